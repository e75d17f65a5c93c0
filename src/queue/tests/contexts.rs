//! What a hook gets to read: contexts of joined tasks with their snapshots, each binding read once.

use super::super::run::{Copies, write_causes};
use super::*;

fn written(config: &str, tasks: Vec<Task>) -> (String, Vec<String>) {
    let registry = Registry::of(&[("hook.sh", config)]);
    let bench = bench(registry, |_, _| Ok(()));
    let hook = &bench.worker.registry.hooks[0];
    let mut joined: Option<HookRun> = None;
    for task in tasks {
        let Work::Run(run) = task.work else {
            panic!("no run");
        };
        match &mut joined {
            None => joined = Some(run),
            Some(joined) => {
                joined.causes.extend(run.causes);
                joined.opens.extend(run.opens);
            }
        }
    }
    let run = joined.unwrap();
    let mut file = Vec::new();
    let copies = Copies::read(bench.fake.as_ref(), 0, hook, &run);
    write_causes(&mut file, hook, &run.causes, &copies).unwrap();
    (String::from_utf8(file).unwrap(), bench.fake.asked())
}

fn change(binding: usize, number: u64) -> Task {
    Task::run(
        0,
        Origin::Change(binding),
        Some(told(number)),
        Instant::now(),
    )
}

#[test]
fn every_cause_has_its_context_and_every_binding_is_read_once() {
    let config = "configVersion: v1
onStartup: 1
kubernetes:
- {name: a, kind: Pod}
- {name: b, kind: Pod, includeSnapshotsFrom: [a, b]}
- {name: c, kind: Pod, group: g}
schedule:
- {name: s, crontab: '* * * * *', includeSnapshotsFrom: [b]}
";
    let sync = |binding| run(0, Origin::Synchronization(binding));
    for (tasks, text, asked) in [
        (
            vec![run(0, Origin::OnStartup)],
            r#"{"binding":"onStartup"}"#,
            &[][..],
        ),
        (
            vec![change(0, 7)],
            r#"{"binding":"a","type":"Event","watchEvent":"Modified","object":7}"#,
            &[],
        ),
        (
            vec![change(1, 7), run(0, Origin::Schedule(0))],
            r#"{"binding":"b","type":"Event","watchEvent":"Modified","object":7,"snapshots":{"a":[{"object":"object 0"}],"b":[{"object":"object 1"}]}},{"binding":"s","type":"Schedule","snapshots":{"b":[{"object":"object 1"}]}}"#,
            &["snapshot 0", "snapshot 1"],
        ),
        // The list and the snapshot of one binding are one copy.
        (
            vec![sync(1)],
            r#"{"binding":"b","type":"Synchronization","objects":[],"snapshots":{"a":[{"object":"object 0"}],"b":[]}}"#,
            &["synchronization 1", "snapshot 0"],
        ),
        (
            vec![sync(2)],
            r#"{"binding":"c","type":"Group","groupName":"g","snapshots":{"c":[]}}"#,
            &["synchronization 2"],
        ),
    ] {
        let (got, reads) = written(config, tasks);
        assert_eq!(got, format!("[{text}]\n"));
        assert_eq!(reads, asked, "{text}");
    }
}

#[test]
fn version_0_tells_names_only() {
    let config = "onStartup: 1\nschedule: [{name: s, crontab: '* * * * *'}]\nonKubernetesEvent: [{name: k, kind: Pod, event: [update]}]\n";
    for (task, text) in [
        (run(0, Origin::OnStartup), r#"{"binding":"onStartup"}"#),
        (run(0, Origin::Schedule(0)), r#"{"binding":"s"}"#),
        (
            change(0, 7),
            r#"{"binding":"k","resourceEvent":"update","resourceNamespace":"n","resourceKind":"Pod","resourceName":"7"}"#,
        ),
    ] {
        assert_eq!(written(config, vec![task]).0, format!("[{text}]\n"));
    }
}

#[test]
fn two_bindings_of_one_name_keep_their_own_objects() {
    let config = "configVersion: v1\nkubernetes: [{kind: Pod}, {kind: Pod, allowFailure: true}]\n";
    let (_, asked) = written(config, vec![run(0, Origin::Synchronization(1))]);
    assert_eq!(asked, ["synchronization 1"]);
}

//! Tables: what is combined, what compaction does to a long queue, which causes of a group stay.

use std::collections::VecDeque;

use super::super::combine::{combine, compact};
use super::*;

/// Bindings 0 and 1 have no group, 2 and 3 are in G, 4 is in H; so have the schedules. Binding 5 is run for events only.
const V1: &str = "configVersion: v1
schedule:
- {name: s0, crontab: '* * * * *'}
- {name: s1, crontab: '* * * * *'}
- {name: s2, crontab: '* * * * *', group: G}
- {name: s3, crontab: '* * * * *', group: G}
- {name: s4, crontab: '* * * * *', group: H}
kubernetes:
- {name: k0, kind: Pod}
- {name: k1, kind: Pod}
- {name: k2, kind: Pod, group: G}
- {name: k3, kind: Pod, group: G}
- {name: k4, kind: Pod, group: H}
- {name: k5, kind: Pod, executeHookOnSynchronization: false}
onStartup: 1
";
const V0: &str = "schedule: [{crontab: '* * * * *'}, {crontab: '* * * * *'}]\n";

/// `a:S0`: hook a, schedule 0. `C`: a change, `Y`: Synchronization, `O`: at start, `E`: enable kubernetes.
fn task(text: &str) -> Task {
    let (hook, what) = text.split_once(':').unwrap();
    let hook = ["a", "b", "old"]
        .iter()
        .position(|name| *name == hook)
        .unwrap();
    let (letter, binding) = what.split_at(1);
    let binding = binding.parse().unwrap_or_default();
    let origin = match letter {
        "S" => Origin::Schedule(binding),
        "C" => Origin::Change(binding),
        "Y" => Origin::Synchronization(binding),
        "O" => Origin::OnStartup,
        _ => return Task::new(hook, Work::EnableKubernetes, Instant::now()),
    };
    run(hook, origin)
}

fn tasks(text: &str) -> VecDeque<Task> {
    text.split_whitespace().map(task).collect()
}

/// The reverse of `task`, with `+` between joined causes.
fn shown(task: &Task) -> String {
    let hook = ["a", "b", "old"][task.hook];
    let Work::Run(run) = &task.work else {
        return format!("{hook}:E");
    };
    let causes: Vec<String> = run
        .causes
        .iter()
        .map(|cause| match cause.origin {
            Origin::Schedule(binding) => format!("S{binding}"),
            Origin::Change(binding) => format!("C{binding}"),
            Origin::Synchronization(binding) => format!("Y{binding}"),
            Origin::OnStartup => "O".to_owned(),
        })
        .collect();
    format!("{hook}:{}", causes.join("+"))
}

fn all(tasks: &VecDeque<Task>) -> String {
    let tasks: Vec<String> = tasks.iter().map(shown).collect();
    tasks.join(" ")
}

fn registry() -> Registry {
    Registry::of(&[("a", V1), ("b", V1), ("old", V0)])
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table of cases")]
fn neighbours_of_one_hook_are_combined() {
    let registry = registry();
    for (name, queue, first, rest, opens) in [
        ("alone", "a:S0", "a:S0", "", ""),
        ("neighbours", "a:S0 a:C1 a:S0", "a:S0+C1+S0", "", ""),
        (
            "another hook ends it",
            "a:S0 b:S0 a:S0",
            "a:S0",
            "b:S0 a:S0",
            "",
        ),
        (
            "up to another hook",
            "a:C0 a:C0 b:C0 a:C0",
            "a:C0+C0",
            "b:C0 a:C0",
            "",
        ),
        (
            "another type ends it",
            "a:S0 a:E a:S0",
            "a:S0",
            "a:E a:S0",
            "",
        ),
        ("a start run stays alone", "a:O a:S0", "a:O", "a:S0", ""),
        (
            "version 0 stays alone",
            "old:S0 old:S1",
            "old:S0",
            "old:S1",
            "",
        ),
        (
            "a first list without a group stays alone",
            "a:Y0 a:Y1 a:C0",
            "a:Y0",
            "a:Y1 a:C0",
            "0",
        ),
        (
            "a first list with a group takes all that follows",
            "a:Y2 a:Y3 a:Y4 a:Y0 a:Y5 b:Y0",
            "a:Y3+Y4+Y0+Y5",
            "b:Y0",
            "2 3 4 0 5",
        ),
        (
            "of a group the last stays",
            "a:S2 a:C2 a:C3",
            "a:C3",
            "",
            "",
        ),
        (
            "of each run of a group",
            "a:S2 a:S3 a:S4 a:S2",
            "a:S3+S4+S2",
            "",
            "",
        ),
        (
            "what has no group separates",
            "a:S2 a:C0 a:S2 a:S2",
            "a:S2+C0+S2",
            "",
            "",
        ),
        (
            "without a group nothing is dropped",
            "a:S0 a:S0 a:S0",
            "a:S0+S0+S0",
            "",
            "",
        ),
        (
            "the group of another hook is another group",
            "a:S2 b:S2 a:S2",
            "a:S2",
            "b:S2 a:S2",
            "",
        ),
    ] {
        let mut pending = tasks(queue);
        let mut head = pending.pop_front().unwrap();
        let index = head.hook;
        let before = pending.len();
        let Work::Run(joined) = &mut head.work else {
            panic!("{name}");
        };
        let origin = joined.head;
        let (taken, dropped) = combine(index, &registry.hooks[index], joined, &mut pending);
        assert_eq!((joined.head, taken.len()), (origin, before - pending.len()));
        assert_eq!(joined.causes.len() + dropped, 1 + taken.len(), "{name}");
        let opened: Vec<String> = joined.opens.iter().map(usize::to_string).collect();
        assert_eq!(
            (shown(&head).as_str(), all(&pending).as_str()),
            (first, rest),
            "{name}"
        );
        assert_eq!(opened.join(" "), opens, "{name}");
    }
}

#[test]
fn compaction_joins_what_is_movable_and_never_crosses_hooks() {
    let registry = registry();
    for (name, queue, hook, expected) in [
        (
            "anywhere in the queue",
            "b:S0 a:C0 b:C1 a:C1 b:S0 a:S0",
            0,
            "b:S0 a:C0+C1+S0 b:C1 b:S0",
        ),
        (
            "the last of each group stands at the end",
            "a:S2 a:C0 a:S4 a:C3 a:S1 a:S2",
            0,
            "a:C0+S1+S4+S2",
        ),
        ("one alone", "b:S0 a:S0", 0, "b:S0 a:S0"),
        ("none", "b:S0 b:S0", 0, "b:S0 b:S0"),
        (
            "first lists, start runs and other work keep their places",
            "a:O a:Y0 a:C1 a:E a:Y2 a:C1",
            0,
            "a:O a:Y0 a:C1+C1 a:E a:Y2",
        ),
        ("version 0 stays", "old:S0 old:S1", 2, "old:S0 old:S1"),
    ] {
        let mut pending = tasks(queue);
        let before = pending.len();
        let merged = compact(hook, &registry.hooks[hook], &mut pending);
        assert_eq!(all(&pending), expected, "{name}");
        assert_eq!(merged, before - pending.len(), "{name}");
    }
}

#[test]
fn a_queue_is_compacted_when_a_hook_has_a_hundred_tasks_in_it() {
    let registry = registry();
    let pending = Pending::new();
    pending.push(task("b:S0"), &registry);
    for count in 1..=1000 {
        pending.push(task("a:C0"), &registry);
        assert!(pending.len() <= 101, "{count}: {}", pending.len());
    }
    // A hook of version 0 cannot be joined; nothing else can bound it.
    for _ in 0..200 {
        pending.push(task("old:S0"), &registry);
    }
    assert_eq!(shown(&pending.take(&registry).unwrap()), "b:S0");
    let mut causes = 0;
    while let Some(task) = (pending.len() > 1)
        .then(|| pending.take(&registry))
        .flatten()
    {
        causes += runs(&task).causes.len() * usize::from(task.hook == 0);
    }
    assert_eq!(causes, 1000, "nothing was lost");
}

#[test]
fn short_queues_are_left_alone() {
    let registry = registry();
    let pending = Pending::new();
    for _ in 0..100 {
        pending.push(task("a:C0"), &registry);
    }
    assert_eq!(pending.len(), 100, "a hundred tasks, not longer than that");
    assert_eq!(pending.push(task("a:C0"), &registry), 100);
    assert_eq!(pending.len(), 1);
}

#[test]
fn the_three_hooks_flooded_in_one_queue_get_exactly_their_own() {
    let registry = Registry::of(&[("a", V1), ("b", V1), ("c", V1)]);
    let pending = Pending::new();
    for number in 0..1500_u64 {
        let hook = usize::try_from(number % 3).unwrap();
        let task = Task::run(hook, Origin::Change(0), Some(told(number)), Instant::now());
        pending.push(task, &registry);
    }
    let mut seen: [Vec<u64>; 3] = Default::default();
    while pending.len() > 0 {
        let mut task = pending.take(&registry).unwrap();
        let index = task.hook;
        if let Work::Run(run) = &mut task.work {
            pending.combine(index, &registry.hooks[index], run);
            seen[index].extend(run.causes.iter().filter_map(number_of));
        }
        pending.finish();
    }
    for (hook, numbers) in seen.iter().enumerate() {
        let expected: Vec<u64> = (0..500).map(|n| n * 3 + hook as u64).collect();
        assert_eq!(numbers, &expected, "hook {hook}");
    }
}

fn number_of(cause: &Cause) -> Option<u64> {
    number(cause)
}

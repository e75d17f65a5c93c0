//! What a worker does with one task: order of steps, gates, failures, announcements.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use super::super::worker::Attempt;
use super::*;

const PODS: &str = "configVersion: v1
kubernetes:
- {name: a, kind: Pod}
- {name: b, kind: Pod, executeHookOnSynchronization: false}
- {name: c, kind: Pod, allowFailure: true}
- {name: d, kind: Pod, queue: q, waitForSynchronization: false}
schedule:
- {name: s, crontab: '* * * * *'}
- {name: t, crontab: '* * * * *', allowFailure: true}
";
const V0: &str = "onKubernetesEvent: [{kind: Pod, event: [add]}]\n";

fn fails(_: usize, _: &HookRun) -> Result<(), RunFailure> {
    Err(RunFailure::Failed("no".to_owned()))
}

fn failed() -> Attempt {
    Attempt::Failed("no".to_owned())
}

fn hook(config: &str) -> Registry {
    Registry::of(&[("hook.sh", config)])
}

#[test]
fn a_gate_opens_on_success_and_stays_shut_on_failure() {
    let good = bench(hook(PODS), |_, _| Ok(()));
    let bad = bench(hook(PODS), fails);
    for (bench, binding, expected, asked) in [
        (&good, 0, Attempt::Done, &["open 0"][..]),
        (&bad, 0, failed(), &[]),
        // Not run at all, so it cannot fail.
        (&bad, 1, Attempt::Done, &["open 1"]),
        // A failure that is allowed is an end.
        (&bad, 2, Attempt::Done, &["open 2"]),
    ] {
        let mut task = run(0, Origin::Synchronization(binding));
        assert_eq!(bench.worker.attempt(&mut task), expected, "{binding}");
        assert_eq!(bench.fake.asked(), asked, "{binding}");
    }
}

#[test]
fn version_0_has_no_first_run_and_its_gate_opens() {
    let bench = bench(hook(V0), fails);
    let mut task = run(0, Origin::Synchronization(0));
    assert_eq!(bench.worker.attempt(&mut task), Attempt::Done);
    assert_eq!(bench.fake.asked(), ["open 0"]);
}

#[test]
fn failures_are_retried_unless_they_are_allowed() {
    let bench = bench(hook(PODS), fails);
    for (origin, expected) in [
        (Origin::OnStartup, failed()),
        (Origin::Schedule(0), failed()),
        (Origin::Schedule(1), Attempt::Done),
        (Origin::Change(0), failed()),
        (Origin::Change(2), Attempt::Done),
    ] {
        let mut task = run(0, origin);
        assert_eq!(bench.worker.attempt(&mut task), expected, "{origin:?}");
    }
    let text = bench.worker.metrics.render();
    for line in [
        "hook_run_errors_total{hook=\"hook.sh\",binding=\"\",queue=\"\"} 1",
        "hook_run_errors_total{hook=\"hook.sh\",binding=\"s\",queue=\"main\"} 1",
        "hook_run_allowed_errors_total{hook=\"hook.sh\",binding=\"s\",queue=\"main\"} 0",
        "hook_run_allowed_errors_total{hook=\"hook.sh\",binding=\"t\",queue=\"main\"} 1",
        "hook_run_success_total{hook=\"hook.sh\",binding=\"t\",queue=\"main\"} 0",
        "hook_run_seconds_count{hook=\"hook.sh\",binding=\"a\",queue=\"main\"} 1",
    ] {
        assert!(text.contains(line), "{line}\n{text}");
    }
}

#[test]
fn enabling_puts_the_first_lists_before_everything_else() {
    let bench = bench(hook(PODS), |_, _| Ok(()));
    let worker = &bench.worker;
    let pending = &worker.pending;
    pending.push(run(0, Origin::Schedule(0)), &worker.registry);
    let mut enable = Task::new(0, Work::EnableKubernetes, Instant::now());
    assert_eq!(worker.attempt(&mut enable), Attempt::Done);
    assert_eq!(bench.fake.asked(), ["enable 0"]);
    // The binding that opted out is for the main loop to queue elsewhere.
    assert!(matches!(
        bench.inbox.try_recv(),
        Ok(Event::KubernetesEnabled { hook: 0 })
    ));
    let order: Vec<Origin> = (0..4)
        .map(|_| runs(&pending.take(&worker.registry).unwrap()).head)
        .collect();
    assert_eq!(
        order,
        [
            Origin::Synchronization(0),
            Origin::Synchronization(1),
            Origin::Synchronization(2),
            Origin::Schedule(0),
        ]
    );
}

#[test]
fn what_was_joined_stays_joined_for_the_next_attempt() {
    let attempts = AtomicUsize::new(0);
    let bench = bench(hook(PODS), move |_, run| {
        let attempt = attempts.fetch_add(1, Ordering::Relaxed);
        assert_eq!(run.causes.len(), attempt + 2);
        if attempt == 0 { fails(0, run) } else { Ok(()) }
    });
    let worker = &bench.worker;
    let mut task = run(0, Origin::Change(0));
    worker
        .pending
        .push(run(0, Origin::Change(1)), &worker.registry);
    assert_eq!(worker.attempt(&mut task), failed());
    // Came while the task was waiting to be tried again.
    worker
        .pending
        .push(run(0, Origin::Change(1)), &worker.registry);
    assert_eq!(worker.attempt(&mut task), Attempt::Done);
    assert_eq!(worker.pending.len(), 0);
}

#[test]
fn announcements_reach_the_main_loop() {
    for hooks in [&[][..], &[("hook.sh", PODS)]] {
        let bench = bench(Registry::of(hooks), |_, _| Ok(()));
        let mut task = Task::new(0, Work::Announce, Instant::now());
        assert_eq!(bench.worker.attempt(&mut task), Attempt::Done);
        assert!(matches!(bench.inbox.try_recv(), Ok(Event::Synchronized)));
    }
    let bench = bench(hook(PODS), |_, _| Ok(()));
    let mut task = Task::new(0, Work::EnableSchedules, Instant::now());
    assert_eq!(bench.worker.attempt(&mut task), Attempt::Done);
    assert!(matches!(
        bench.inbox.try_recv(),
        Ok(Event::SchedulesEnabled { hook: 0 })
    ));
}

#[test]
fn a_rate_limit_holds_a_run_back_and_stopping_ends_the_wait() {
    let limited = "configVersion: v1\nsettings: {executionMinInterval: 1h, executionBurst: 1}\nonStartup: 1\n";
    let bench = bench(hook(limited), |_, _| Ok(()));
    let worker = &bench.worker;
    let mut task = run(0, Origin::OnStartup);
    assert_eq!(worker.attempt(&mut task), Attempt::Done);
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| worker.attempt(&mut run(0, Origin::OnStartup)));
        for pace in &*worker.paces {
            pace.stop();
        }
        assert_eq!(waiting.join().unwrap(), Attempt::Stopped);
    });
}

#[test]
fn a_panic_fails_the_task_and_not_the_thread() {
    let attempts = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&attempts);
    let bench = bench(hook(PODS), move |_, _| {
        seen.fetch_add(1, Ordering::Relaxed);
        panic!("in the middle of a run");
    });
    let worker = &bench.worker;
    worker
        .pending
        .push(run(0, Origin::Schedule(0)), &worker.registry);
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| worker.serve());
        while attempts.load(Ordering::Relaxed) == 0 {
            std::thread::yield_now();
        }
        // It waits before it tries again; stopping ends that wait, and the thread returns as it should.
        worker.pending.stop();
        thread.join().unwrap();
    });
    assert_eq!(attempts.load(Ordering::Relaxed), 1);
}

#[test]
fn a_stopped_queue_begins_nothing() {
    let bench = bench(hook(PODS), |_, _| panic!("must not run"));
    let worker = &bench.worker;
    worker
        .pending
        .push(run(0, Origin::Schedule(0)), &worker.registry);
    worker.pending.stop();
    worker.serve();
    assert!(!worker.pending.pause(Duration::from_secs(3600)));
    assert_eq!(
        worker.attempt(&mut run(0, Origin::Schedule(0))),
        Attempt::Stopped
    );
}

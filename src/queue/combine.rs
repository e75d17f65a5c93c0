//! Joining tasks of one hook, so that a slow hook is run once for many events.
//!
//! ```text
//! combine   [a1] a2 a3 b1 a4       -> [a1 a2 a3] b1 a4      neighbours only, when a run is about to start
//! compact   b1 a1 b2 a2 … a100     -> b1 [a1 a2 … a100] b2  a long queue, wherever the tasks stand
//! groups    G x G G H G            -> G x G H G             of neighbours with one group only the last says anything
//! ```
//! Pure. INVARIANT: a cause never reaches another hook, and only causes that a later one of their group stands for are dropped.

use std::collections::VecDeque;

use crate::hook::Hook;
use crate::hook::binding::Version;
use crate::message::{Cause, HookRun, Origin, Task, Work};

/// The group of the binding behind a run.
pub(super) fn group(hook: &Hook, origin: Origin) -> Option<&str> {
    let config = &hook.config;
    match origin {
        Origin::OnStartup => None,
        Origin::Schedule(binding) => config.schedules.get(binding)?.group.as_deref(),
        Origin::Synchronization(binding) | Origin::Change(binding) => {
            config.kubernetes.get(binding)?.group.as_deref()
        }
    }
}

/// Whether a run takes what stands behind it along. Start runs and the first lists of objects are told apart by hooks; version 0
/// knows only one context a run.
fn takes_others(hook: &Hook, run: &HookRun) -> bool {
    hook.config.version == Version::V1
        && match run.head {
            Origin::OnStartup => false,
            Origin::Synchronization(_) => group(hook, run.head).is_some(),
            Origin::Schedule(_) | Origin::Change(_) => true,
        }
}

/// Joins the tasks of the same hook that stand directly behind a run. Says which tasks were taken and how many causes were
/// dropped for a later one of their group.
pub(super) fn combine(
    index: usize,
    hook: &Hook,
    run: &mut HookRun,
    pending: &mut VecDeque<Task>,
) -> (Vec<Origin>, usize) {
    let mut taken = Vec::new();
    if !takes_others(hook, run) {
        return (taken, 0);
    }
    let is_next = |task: &Task| task.hook == index && matches!(task.work, Work::Run(_));
    while pending.front().is_some_and(is_next) {
        if let Some(Task {
            work: Work::Run(next),
            ..
        }) = pending.pop_front()
        {
            taken.push(next.head);
            join(run, next);
        }
    }
    let before = run.causes.len();
    drop_followed(hook, &mut run.causes);
    (taken, before - run.causes.len())
}

/// Whether compaction may move a task's causes to an earlier task. The first list of a binding has to be run as what it is.
pub(super) fn is_movable(hook: &Hook, task: &Task) -> bool {
    let Work::Run(run) = &task.work else {
        return false;
    };
    hook.config.version == Version::V1
        && run.opens.is_empty()
        && matches!(run.head, Origin::Schedule(_) | Origin::Change(_))
}

/// Joins all movable tasks of one hook in the place of the first of them, and answers how many tasks that made fewer. Of each
/// group the last cause stays, behind everything else.
pub(super) fn compact(index: usize, hook: &Hook, pending: &mut VecDeque<Task>) -> usize {
    let before = pending.len();
    let mut first: Option<usize> = None;
    let mut kept: VecDeque<Task> = VecDeque::with_capacity(before);
    for task in pending.drain(..) {
        if task.hook != index || !is_movable(hook, &task) {
            kept.push_back(task);
            continue;
        }
        let target = first.and_then(|at| kept.get_mut(at));
        match (target.map(|task| &mut task.work), task) {
            (
                Some(Work::Run(run)),
                Task {
                    work: Work::Run(next),
                    ..
                },
            ) => join(run, next),
            (_, task) => {
                first = Some(kept.len());
                kept.push_back(task);
            }
        }
    }
    if let Some(Work::Run(run)) = first
        .and_then(|at| kept.get_mut(at))
        .map(|task| &mut task.work)
    {
        keep_last_of_groups(hook, &mut run.causes);
    }
    let merged = before - kept.len();
    *pending = kept;
    merged
}

fn join(run: &mut HookRun, next: HookRun) {
    run.causes.extend(next.causes);
    run.opens.extend(next.opens);
}

/// Drops every cause whose neighbour behind it has the same group.
fn drop_followed(hook: &Hook, causes: &mut Vec<Cause>) {
    let groups: Vec<Option<&str>> = causes
        .iter()
        .map(|cause| group(hook, cause.origin))
        .collect();
    let mut is_followed = groups
        .iter()
        .zip(groups.iter().skip(1))
        .map(|(this, next)| this.is_some() && this == next);
    causes.retain(|_| !is_followed.next().unwrap_or(false));
}

/// Leaves the causes without a group in their order, then the last one of each group, in the order of these last ones.
fn keep_last_of_groups(hook: &Hook, causes: &mut Vec<Cause>) {
    let mut kept = Vec::with_capacity(causes.len());
    let mut last: Vec<(&str, Cause)> = Vec::new();
    for cause in causes.drain(..) {
        match group(hook, cause.origin) {
            None => kept.push(cause),
            Some(name) => {
                last.retain(|(known, _)| *known != name);
                last.push((name, cause));
            }
        }
    }
    kept.extend(last.into_iter().map(|(_, cause)| cause));
    *causes = kept;
}

//! Queues in words: the text of the original with what else a person wants to know behind it, and the same as JSON.
//!
//! Pure; runs on the connection threads of the debug servers. What a hook printed can end up here by way of an error, so the text holds
//! no control characters: nothing that a hook writes gets to steer the terminal of whoever looks.

use std::fmt::Write as _;

use serde::Serialize;

use crate::message::{HeadState, HeadView, QueueView};

/// Listed first, and counted apart.
const MAIN: &str = "main";

/// All queues, sorted: `main`, then by name.
pub(super) struct Queues {
    active: Vec<QueueView>,
    empty: Vec<QueueView>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct QueueJson<'a> {
    name: &'a str,
    tasks_count: usize,
    #[serde(skip_serializing_if = "str::is_empty")]
    status: &'a str,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tasks: Vec<TaskJson<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    head: Option<HeadJson<'a>>,
}

#[derive(Serialize)]
struct TaskJson<'a> {
    index: usize,
    description: &'a str,
}

/// Not in the original.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct HeadJson<'a> {
    hook: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    binding: &'a str,
    state: &'static str,
    seconds: f64,
    queued_seconds: f64,
    contexts: usize,
    failures: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a str>,
}

#[derive(Serialize)]
struct QueuesJson<'a> {
    active: Vec<QueueJson<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    empty: Option<Vec<QueueJson<'a>>>,
    summary: SummaryJson,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct SummaryJson {
    main_queue_tasks: usize,
    other_queues: OthersJson,
    total_tasks: usize,
}

#[derive(Serialize)]
struct OthersJson {
    active: usize,
    empty: usize,
    tasks: usize,
}

impl Queues {
    pub(super) fn new(mut queues: Vec<QueueView>) -> Queues {
        queues.sort_by(|one, other| {
            let key = |queue: &QueueView| (queue.name != MAIN, queue.name.clone());
            key(one).cmp(&key(other))
        });
        let (empty, active) = queues.into_iter().partition(|queue| queue.tasks.is_empty());
        Queues { active, empty }
    }

    /// A single main queue without tasks is not worth a heading.
    fn shows_empty(&self, wanted: bool) -> bool {
        let all = self.active.iter().chain(&self.empty);
        wanted && all.clone().any(|queue| queue.name != MAIN)
    }

    fn summary(&self) -> SummaryJson {
        let others = |queues: &[QueueView]| queues.iter().filter(|q| q.name != MAIN).count();
        let tasks = |is_main: bool| {
            let active = self.active.iter();
            let chosen = active.filter(|queue| (queue.name == MAIN) == is_main);
            chosen.map(|queue| queue.tasks.len()).sum()
        };
        let (main, other): (usize, usize) = (tasks(true), tasks(false));
        SummaryJson {
            main_queue_tasks: main,
            other_queues: OthersJson {
                active: others(&self.active),
                empty: others(&self.empty),
                tasks: other,
            },
            total_tasks: main + other,
        }
    }

    pub(super) fn text(&self, show_empty: bool, missing: Option<&str>) -> String {
        let mut text = String::new();
        for (index, queue) in self.active.iter().enumerate() {
            if index > 0 {
                text.push('\n');
            }
            write_queue(&mut text, queue);
        }
        if self.shows_empty(show_empty) {
            let _ = writeln!(text, "\nEmpty queues ({}):", self.empty.len());
            for queue in &self.empty {
                let _ = writeln!(text, "- {}", clean(&queue.name));
            }
        }
        self.write_summary(&mut text);
        write_now(&mut text, &self.active, missing);
        text
    }

    fn write_summary(&self, text: &mut String) {
        if self.active.is_empty() && self.empty.is_empty() {
            text.push_str("Summary:\n  No queues.\n");
            return;
        }
        if !text.is_empty() {
            text.push('\n');
        }
        text.push_str("Summary:\n");
        let summary = self.summary();
        let all = || self.active.iter().chain(&self.empty);
        if all().any(|queue| queue.name == MAIN) {
            let tasks = match summary.main_queue_tasks {
                0 => "empty".to_owned(),
                count => counted(count, "task"),
            };
            let _ = writeln!(text, "- '{MAIN}' queue: {tasks}.");
        }
        let OthersJson {
            active,
            empty,
            tasks,
        } = summary.other_queues;
        if active + empty > 0 {
            let queues = counted(active + empty, "other queue");
            let tasks = counted(tasks, "task");
            let _ = writeln!(
                text,
                "- {queues} ({active} active, {empty} empty): {tasks}."
            );
        }
        match summary.total_tasks {
            0 => text.push_str("- no tasks to handle.\n"),
            total => {
                let _ = writeln!(text, "- total {} to handle.", counted(total, "task"));
            }
        }
    }

    pub(super) fn json(&self, show_empty: bool) -> serde_json::Result<Vec<u8>> {
        let empty = || self.empty.iter().map(only_named).collect();
        let list = QueuesJson {
            active: self.active.iter().map(whole).collect(),
            empty: self.shows_empty(show_empty).then(empty),
            summary: self.summary(),
        };
        serde_json::to_vec(&list)
    }
}

/// The main queue alone.
pub(super) fn main_text(queues: Vec<QueueView>, missing: Option<&str>) -> String {
    let main = main_of(queues);
    let mut text = String::new();
    write_queue(&mut text, &main);
    write_now(&mut text, &[main], missing);
    text
}

pub(super) fn main_json(queues: Vec<QueueView>) -> serde_json::Result<Vec<u8>> {
    serde_json::to_vec(&whole(&main_of(queues)))
}

fn main_of(queues: Vec<QueueView>) -> QueueView {
    let mut queues = queues.into_iter();
    queues
        .find(|queue| queue.name == MAIN)
        .unwrap_or_else(|| QueueView {
            name: MAIN.to_owned(),
            status: "Queue is not created".to_owned(),
            tasks: Vec::new(),
            head: None,
        })
}

fn whole(queue: &QueueView) -> QueueJson<'_> {
    let tasks = queue.tasks.iter().enumerate();
    QueueJson {
        name: &queue.name,
        tasks_count: queue.tasks.len(),
        status: &queue.status,
        tasks: tasks
            .map(|(index, description)| TaskJson {
                index: index + 1,
                description,
            })
            .collect(),
        head: queue.head.as_ref().map(head_json),
    }
}

/// Of an empty queue the original tells no status.
fn only_named(queue: &QueueView) -> QueueJson<'_> {
    QueueJson {
        name: &queue.name,
        tasks_count: 0,
        status: "",
        tasks: Vec::new(),
        head: None,
    }
}

fn head_json(head: &HeadView) -> HeadJson<'_> {
    let tenths = |seconds: f64| (seconds * 10.0).round() / 10.0;
    HeadJson {
        hook: &head.hook,
        binding: &head.binding,
        state: match head.state {
            HeadState::Running => "running",
            HeadState::Held => "held",
            HeadState::Paused { .. } => "paused",
        },
        seconds: tenths(head.since.as_secs_f64()),
        queued_seconds: tenths(head.queued.as_secs_f64()),
        contexts: head.contexts,
        failures: head.failures,
        error: head.error.as_deref(),
    }
}

fn write_queue(text: &mut String, queue: &QueueView) {
    let _ = writeln!(
        text,
        "Queue '{}': length {}, status: '{}'\n",
        clean(&queue.name),
        queue.tasks.len(),
        queue.status
    );
    for (index, task) in queue.tasks.iter().enumerate() {
        let _ = writeln!(text, "{:>2}. {}", index + 1, clean(task));
    }
}

/// What the original does not say: what the first task of each queue is doing, and what the operator still lacks.
fn write_now(text: &mut String, queues: &[QueueView], missing: Option<&str>) {
    let heads = queues
        .iter()
        .filter_map(|queue| queue.head.as_ref().map(|head| (queue, head)));
    let mut lines: Vec<String> = heads
        .map(|(queue, head)| format!("- {}: {}", clean(&queue.name), clean(&doing(head))))
        .collect();
    let missing = missing.unwrap_or_default().lines();
    lines.extend(missing.map(|line| format!("- not ready: {}", clean(line))));
    if lines.is_empty() {
        return;
    }
    text.push_str("\nNow:\n");
    for line in lines {
        text.push_str(&line);
        text.push('\n');
    }
}

fn doing(head: &HeadView) -> String {
    let mut text = head.hook.clone();
    if !head.binding.is_empty() {
        let _ = write!(text, " ({})", head.binding);
    }
    let since = head.since.as_secs();
    let _ = match head.state {
        HeadState::Running => write!(text, " is running for {since}s"),
        HeadState::Held => write!(
            text,
            " waits for {since}s until executionMinInterval allows the next run"
        ),
        HeadState::Paused { pause, .. } => {
            let left = pause.saturating_sub(head.since).as_secs();
            write!(text, " is tried again in {left}s")
        }
    };
    if head.failures > 0 {
        let _ = write!(text, ", failed {}", counted_times(head.failures));
    }
    if head.contexts > 1 {
        let _ = write!(text, ", {} binding contexts", head.contexts);
    }
    text
}

fn counted_times(count: u32) -> String {
    if count == 1 {
        "once".to_owned()
    } else {
        format!("{count} times")
    }
}

fn counted(count: usize, what: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {what}{plural}")
}

/// One line, without anything that steers a terminal.
fn clean(text: &str) -> String {
    text.chars()
        .map(|letter| match letter {
            '\n' | '\r' | '\t' => ' ',
            letter if letter.is_control() => '?',
            letter => letter,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn queue(name: &str, status: &str, tasks: &[&str]) -> QueueView {
        QueueView {
            name: name.to_owned(),
            status: status.to_owned(),
            tasks: tasks.iter().map(|task| (*task).to_owned()).collect(),
            head: None,
        }
    }

    fn example() -> Queues {
        Queues::new(vec![
            queue("bg", "waiting for task 3s", &[]),
            queue(
                "main",
                "sleep after fail for 6.3s",
                &[
                    "HookRun:main:kubernetes:002/hook.sh:pods:failures 3:002/hook.sh FAILED: boom",
                    "HookRun:main:schedule:001/tick.sh:every-minute",
                ],
            ),
        ])
    }

    /// The example of the specification, letter for letter.
    #[test]
    fn the_text_is_that_of_the_original() {
        assert_eq!(
            example().text(true, None),
            "Queue 'main': length 2, status: 'sleep after fail for 6.3s'\n\n \
             1. HookRun:main:kubernetes:002/hook.sh:pods:failures 3:002/hook.sh FAILED: boom\n \
             2. HookRun:main:schedule:001/tick.sh:every-minute\n\n\
             Empty queues (1):\n- bg\n\n\
             Summary:\n- 'main' queue: 2 tasks.\n- 1 other queue (0 active, 1 empty): 0 tasks.\n- total 2 tasks to handle.\n"
        );
    }

    #[test]
    fn the_summary_counts_in_words() {
        let text = |queues| Queues::new(queues).text(true, None);
        assert_eq!(text(vec![]), "Summary:\n  No queues.\n");
        assert_eq!(
            text(vec![queue("main", "", &[])]),
            "Summary:\n- 'main' queue: empty.\n- no tasks to handle.\n"
        );
        assert_eq!(
            text(vec![
                queue("main", "s", &["a"]),
                queue("b", "t", &["x"]),
                queue("a", "u", &["y"])
            ]),
            "Queue 'main': length 1, status: 's'\n\n 1. a\n\n\
             Queue 'a': length 1, status: 'u'\n\n 1. y\n\n\
             Queue 'b': length 1, status: 't'\n\n 1. x\n\n\
             Empty queues (0):\n\n\
             Summary:\n- 'main' queue: 1 task.\n- 2 other queues (2 active, 0 empty): 2 tasks.\n- total 3 tasks to handle.\n"
        );
    }

    #[test]
    fn json_has_the_keys_and_the_order_of_the_original() {
        let json = |show_empty| String::from_utf8(example().json(show_empty).unwrap()).unwrap();
        assert_eq!(
            json(false),
            "{\"active\":[{\"name\":\"main\",\"tasksCount\":2,\"status\":\"sleep after fail for 6.3s\",\"tasks\":[\
             {\"index\":1,\"description\":\"HookRun:main:kubernetes:002/hook.sh:pods:failures 3:002/hook.sh FAILED: boom\"},\
             {\"index\":2,\"description\":\"HookRun:main:schedule:001/tick.sh:every-minute\"}]}],\
             \"summary\":{\"mainQueueTasks\":2,\"otherQueues\":{\"active\":0,\"empty\":1,\"tasks\":0},\"totalTasks\":2}}"
        );
        assert!(json(true).contains("\"empty\":[{\"name\":\"bg\",\"tasksCount\":0}],\"summary\""));
        let main = main_json(Vec::new()).unwrap();
        assert_eq!(
            main,
            b"{\"name\":\"main\",\"tasksCount\":0,\"status\":\"Queue is not created\"}"
        );
    }

    #[test]
    fn what_a_hook_printed_cannot_steer_a_terminal_or_forge_a_line() {
        let text = main_text(
            vec![queue("main", "", &["a FAILED: x\u{1b}[2J\ny\u{9b}m"])],
            None,
        );
        assert!(text.contains("\n 1. a FAILED: x?[2J y?m\n"), "{text:?}");
    }

    #[test]
    fn behind_the_text_of_the_original_stands_what_happens_now() {
        let mut main = queue("main", "run first task", &["t"]);
        main.head = Some(HeadView {
            hook: "a.sh".to_owned(),
            binding: "pods".to_owned(),
            state: HeadState::Running,
            since: Duration::from_millis(12_300),
            queued: Duration::from_secs(13),
            contexts: 5,
            failures: 1,
            error: None,
        });
        let text = Queues::new(vec![main.clone()]).text(false, Some("api-server: away\n"));
        assert!(
            text.ends_with(
                "- total 1 task to handle.\n\n\
                 Now:\n- main: a.sh (pods) is running for 12s, failed once, 5 binding contexts\n\
                 - not ready: api-server: away\n"
            ),
            "{text}"
        );
        let json = String::from_utf8(main_json(vec![main]).unwrap()).unwrap();
        assert!(
            json.ends_with(
                "\"head\":{\"hook\":\"a.sh\",\"binding\":\"pods\",\"state\":\"running\",\"seconds\":12.3,\
                 \"queuedSeconds\":13.0,\"contexts\":5,\"failures\":1}}"
            ),
            "{json}"
        );
    }
}

//! `scripts/bench watch`: what it costs to watch many objects on a real API server, and how soon a hook hears of a change.
//!
//! For every number of ConfigMaps of 2 KiB and every way of keeping them an operator is started anew. Its hook writes down when it
//! began and what the kernel said about the operator at that moment, so that nothing is polled from outside while it lists. The
//! figures stand beside those of the original at 10 000 objects, which were measured once on two cores like these.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use super::support::control_plane::Namespace;
use super::support::{Api, ControlPlane, Env, Operator, stage};

/// Connections that create objects at the same time: enough to keep two cores busy.
const CREATORS: usize = 8;
/// The value in each object.
const VALUE: usize = 2048;
/// Changes whose way to the hook is timed, one after the other.
const TIMED: usize = 50;
/// Changes whose CPU time is measured, one by one. Sizes are compared by the cheapest tenth, because other work on the machine
/// empties the caches and makes the others dearer.
const COUNTED: usize = 400;
/// No list of this size takes longer unless it hangs.
const PATIENCE: Duration = Duration::from_secs(120);
/// Memory is steady when the hook's run is over and nothing has happened for this long.
const SETTLING: Duration = Duration::from_secs(2);

/// A way of keeping objects, and what the original needed for it with 10 000 of them.
struct Way {
    title: &'static str,
    keeps_objects: bool,
    filtered: bool,
    original: Option<Original>,
}

/// The figures of the original (v1.20.3) at 10 000 objects.
struct Original {
    rss_mb: f64,
    peak_mb: f64,
    start_seconds: f64,
    cpu_seconds: f64,
}

const WAYS: [Way; 3] = [
    Way {
        title: "full objects",
        keeps_objects: true,
        filtered: false,
        original: Some(Original {
            rss_mb: 367.0,
            peak_mb: 429.0,
            start_seconds: 3.8,
            cpu_seconds: 4.0,
        }),
    },
    Way {
        title: "filter result only",
        keeps_objects: false,
        filtered: true,
        original: Some(Original {
            rss_mb: 249.0,
            peak_mb: 287.0,
            start_seconds: 2.7,
            cpu_seconds: 2.8,
        }),
    },
    Way {
        title: "full and filtered",
        keeps_objects: true,
        filtered: true,
        original: None,
    },
];

/// The name, and what the changes change, since a filter result that stays as it was wakes no hook.
const FILTER: &str = ".metadata.name + (.metadata.labels.mark // \"\")";

/// From the change of an object to the start of its hook, in the original.
const ORIGINAL_LATENCY_MS: f64 = 250.0;

/// What one operator needed.
struct Figures {
    objects: usize,
    /// From the start of the process to the start of the hook.
    start: Duration,
    rss_at_hook_kib: u64,
    peak_kib: u64,
    cpu_at_hook: f64,
    steady_kib: u64,
    /// From sending the change to the start of the hook.
    latency: Duration,
    latency_worst: Duration,
    /// The part of `latency` until the API server had answered the change.
    answered: Duration,
    cpu_per_event_ms: f64,
    /// The same for the cheapest tenth.
    undisturbed_ms: f64,
}

/// `words` may hold `--objects N[,N...]`.
pub(crate) fn run(words: &[String]) {
    let sizes = sizes(words);
    let plane = ControlPlane::own();
    let namespace = plane.namespace("bench");
    let apis: Vec<Api> = (0..CREATORS).map(|_| plane.api()).collect();
    println!(
        "ConfigMaps of {VALUE} bytes; each line is an operator of its own; growth is against the same with no object"
    );
    let empty: Vec<Figures> = WAYS
        .iter()
        .map(|way| measure(&plane, &namespace, &apis[0], way, 0))
        .collect();
    for (way, figures) in WAYS.iter().zip(&empty) {
        println!("{}", row(way, figures, None));
    }
    let mut first: Vec<f64> = Vec::new();
    let mut there = 0;
    for size in sizes {
        let seconds = create(&namespace, &apis, there, size);
        there = there.max(size);
        let stored = stored_size(&namespace, &apis[0]);
        println!("\n{there} objects of {stored} bytes of JSON (created in {seconds:.1} s)");
        for (index, way) in WAYS.iter().enumerate() {
            let figures = measure(&plane, &namespace, &apis[0], way, there);
            println!("{}", row(way, &figures, Some((&empty[index], stored))));
            let per_event = figures.undisturbed_ms;
            match first.get(index) {
                Some(first) => println!(
                    "    cost of an event: {:.2} x that with the fewest objects",
                    per_event / first
                ),
                None => first.push(per_event),
            }
            if let (10_000, Some(original)) = (there, &way.original) {
                println!("    {}", original.beside(&figures));
            }
        }
    }
}

fn sizes(words: &[String]) -> Vec<usize> {
    let at = words.iter().position(|word| word == "--objects");
    let text = at
        .and_then(|at| words.get(at + 1))
        .map_or("1000,10000", String::as_str);
    let mut sizes: Vec<usize> = text
        .split(',')
        .map(|number| number.parse().expect("--objects takes numbers"))
        .collect();
    sizes.sort_unstable();
    sizes
}

/// Creates what is missing; answers the seconds that it took.
fn create(namespace: &Namespace<'_>, apis: &[Api], from: usize, to: usize) -> f64 {
    let path = config_maps(namespace);
    let value = "x".repeat(VALUE);
    let next = AtomicUsize::new(from);
    let begun = Instant::now();
    std::thread::scope(|scope| {
        for api in apis {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= to {
                        return;
                    }
                    let object = stage::config_map(&name(number), &json!({ "value": value }));
                    let answer = api.create(&path, &object);
                    assert_eq!(answer.status, 201, "{}", answer.text());
                }
            });
        }
    });
    begun.elapsed().as_secs_f64()
}

fn config_maps(namespace: &Namespace<'_>) -> String {
    format!("/api/v1/namespaces/{}/configmaps", namespace.name)
}

fn name(number: usize) -> String {
    format!("object-{number:06}")
}

/// The JSON of one object as the API server sends it in a watch.
fn stored_size(namespace: &Namespace<'_>, api: &Api) -> usize {
    let path = format!("{}/{}", config_maps(namespace), name(0));
    api.get(&path).text().trim_end().len()
}

/// Starts an operator, waits for its first run, lets it come to rest, and changes one object again and again.
fn measure(
    plane: &ControlPlane,
    namespace: &Namespace<'_>,
    api: &Api,
    way: &Way,
    objects: usize,
) -> Figures {
    let env = Env::new()
        .kubeconfig(&plane.admin())
        .env("LOG_LEVEL", "error")
        .env("MALLOC_ARENA_MAX", "2");
    let notes = Notes::new(&env);
    env.write_hook("watch.sh", &hook(way, &namespace.name, &notes.folder));
    let begun = SystemTime::now();
    let operator = env.start();
    notes.wait_for_run(1);
    let (status, cpu_at_hook) = notes.at_first_run();
    let start = notes.last_run().duration_since(begun).unwrap_or_default();
    operator.wait_ready();
    std::thread::sleep(SETTLING);
    let steady_kib = operator.rss_kib();
    let mut figures = Figures {
        objects,
        start,
        rss_at_hook_kib: kib(&status, "VmRSS:"),
        peak_kib: kib(&proc_status(&operator), "VmHWM:"),
        cpu_at_hook,
        steady_kib,
        latency: Duration::ZERO,
        latency_worst: Duration::ZERO,
        answered: Duration::ZERO,
        cpu_per_event_ms: 0.0,
        undisturbed_ms: 0.0,
    };
    if objects > 0 {
        change_often(&mut figures, namespace, api, &notes, &operator);
    }
    figures
}

/// One change after the other, each followed to the start of its run.
fn change_often(
    figures: &mut Figures,
    namespace: &Namespace<'_>,
    api: &Api,
    notes: &Notes,
    operator: &Operator,
) {
    let path = format!("{}/{}", config_maps(namespace), name(figures.objects / 2));
    let mut run = 1;
    let mut change = || -> (Duration, Duration) {
        run += 1;
        let mark = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |now| now.as_nanos());
        let patch = json!({ "metadata": { "labels": { "mark": mark.to_string() } } });
        let sent = SystemTime::now();
        let answer = api.merge(&path, &patch);
        let answered = sent.elapsed().unwrap_or_default();
        assert_eq!(answer.status, 200, "{}", answer.text());
        notes.wait_for_run(run);
        let began = notes.last_run().duration_since(sent).unwrap_or_default();
        (began, answered)
    };
    let mut timed: Vec<(Duration, Duration)> = (0..TIMED).map(|_| change()).collect();
    let mut costs: Vec<u64> = (0..COUNTED)
        .map(|_| {
            let before = cpu_nanos(operator);
            change();
            cpu_nanos(operator).saturating_sub(before)
        })
        .collect();
    costs.sort_unstable();
    figures.cpu_per_event_ms = costs[COUNTED / 2] as f64 / 1e6;
    figures.undisturbed_ms = costs[COUNTED / 10] as f64 / 1e6;
    timed.sort();
    figures.latency = timed[TIMED / 2].0;
    figures.latency_worst = timed[TIMED - 1].0;
    let mut answers: Vec<Duration> = timed.iter().map(|(_, answered)| *answered).collect();
    answers.sort();
    figures.answered = answers[TIMED / 2];
}

/// A hook that notes its start before anything else. `$PPID` is the operator, which starts hooks itself.
fn hook(way: &Way, namespace: &str, folder: &Path) -> String {
    let mut binding = json!({
        "name": "objects", "apiVersion": "v1", "kind": "ConfigMap",
        "namespace": { "nameSelector": { "matchNames": [namespace] } },
        "keepFullObjectsInMemory": way.keeps_objects,
    });
    if way.filtered {
        binding["jqFilter"] = Value::from(FILTER);
    }
    let config = json!({ "configVersion": "v1", "kubernetes": [binding] });
    let folder = folder.display();
    let body = format!(
        "now=$(date +%s%N)\n\
         [ -e {folder}/runs ] || cat /proc/$PPID/stat /proc/$PPID/status >{folder}/first\n\
         echo \"$now\" >>{folder}/runs"
    );
    stage::script(&config, &body)
}

/// What the hook wrote down.
struct Notes {
    folder: PathBuf,
}

impl Notes {
    fn new(env: &Env) -> Notes {
        let folder = env.path().join("notes");
        fs::create_dir(&folder).unwrap();
        Notes { folder }
    }

    fn runs(&self) -> String {
        fs::read_to_string(self.folder.join("runs")).unwrap_or_default()
    }

    /// Waits until the hook has run so many times. A plain wait for a file would look too seldom.
    fn wait_for_run(&self, run: usize) {
        let begun = Instant::now();
        while self.runs().lines().count() < run {
            assert!(begun.elapsed() < PATIENCE, "run {run} did not come");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn last_run(&self) -> SystemTime {
        let nanos = self.runs().lines().last().unwrap().parse().unwrap();
        UNIX_EPOCH + Duration::from_nanos(nanos)
    }

    /// The operator's status and CPU seconds when the first run began.
    fn at_first_run(&self) -> (String, f64) {
        let text = fs::read_to_string(self.folder.join("first")).unwrap();
        let (stat, status) = text.split_once('\n').unwrap();
        let after_name = stat.rsplit_once(')').unwrap().1;
        let ticks: f64 = after_name
            .split_whitespace()
            .skip(11)
            .take(2)
            .map(|field| field.parse::<f64>().unwrap())
            .sum();
        (status.to_owned(), ticks / 100.0)
    }
}

/// CPU time of all threads, exactly; those that have ended are not in it, and none ends in a run of a hook.
fn cpu_nanos(operator: &Operator) -> u64 {
    let threads = fs::read_dir(format!("/proc/{}/task", operator.pid())).unwrap();
    threads
        .filter_map(|thread| fs::read_to_string(thread.ok()?.path().join("schedstat")).ok())
        .filter_map(|text| text.split_whitespace().next()?.parse::<u64>().ok())
        .sum()
}

fn proc_status(operator: &Operator) -> String {
    fs::read_to_string(format!("/proc/{}/status", operator.pid())).unwrap()
}

/// A figure of `/proc/PID/status`.
fn kib(status: &str, field: &str) -> u64 {
    let line = status.lines().find(|line| line.starts_with(field)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

fn mib(kib: u64) -> f64 {
    kib as f64 / 1024.0
}

fn row(way: &Way, figures: &Figures, against: Option<(&Figures, usize)>) -> String {
    let mut text = format!(
        "{:>6} {:<18} RSS {:5.1} MiB at the hook, {:5.1} steady, {:5.1} peak ({:.2} x); hook after {:.2} s, {:.2} s of CPU",
        figures.objects,
        way.title,
        mib(figures.rss_at_hook_kib),
        mib(figures.steady_kib),
        mib(figures.peak_kib),
        figures.peak_kib as f64 / figures.steady_kib as f64,
        figures.start.as_secs_f64(),
        figures.cpu_at_hook,
    );
    if let Some((empty, stored)) = against {
        let grown = figures.steady_kib.saturating_sub(empty.steady_kib) * 1024;
        let each = grown as f64 / figures.objects as f64;
        let millis = |time: Duration| time.as_secs_f64() * 1e3;
        write!(
            text,
            "\n    {each:.0} bytes per object = {:.2} x its JSON; change to hook {:.1} ms median, {:.1} ms worst (the API server's answer: {:.1} ms); {:.2} ms of CPU per event, {:.2} ms undisturbed",
            each / stored as f64,
            millis(figures.latency),
            millis(figures.latency_worst),
            millis(figures.answered),
            figures.cpu_per_event_ms,
            figures.undisturbed_ms,
        )
        .unwrap();
    }
    text
}

impl Original {
    fn beside(&self, figures: &Figures) -> String {
        format!(
            "the original: RSS {:.0} MB, peak {:.0} MB, hook after {:.1} s, {:.1} s of CPU, change to hook {ORIGINAL_LATENCY_MS:.0} ms = {:.0} x, {:.0} x, {:.1} x, {:.1} x, {:.0} x ours",
            self.rss_mb,
            self.peak_mb,
            self.start_seconds,
            self.cpu_seconds,
            self.rss_mb * 1e6 / (figures.steady_kib * 1024) as f64,
            self.peak_mb * 1e6 / (figures.peak_kib * 1024) as f64,
            self.start_seconds / figures.start.as_secs_f64(),
            self.cpu_seconds / figures.cpu_at_hook,
            ORIGINAL_LATENCY_MS / (figures.latency.as_secs_f64() * 1e3),
        )
    }
}

//! `scripts/bench`: measurements beside a reference, in one run. Not tests: nothing here passes or fails by the clock.
//!
//! Sub-commands: `admission` (reviews against bare fork+exec, and against the original if `--peer` names its binary), `idle` (memory and
//! CPU time of an operator with nothing to do), `watch` (memory, CPU time and latency with thousands of objects) and `offline` (`review`
//! against bare fork+exec).
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::string_slice,
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::disallowed_methods,
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    dead_code,
    unused_imports,
    reason = "a measurement ends by panicking; it shares a harness of which it needs only a part"
)]

mod admission;
mod offline;
#[path = "../support/mod.rs"]
mod support;
mod watch;

use std::path::Path;
use std::time::Duration;

use admission::{Figures, HOOK, Target};
use support::{Authority, ControlPlane, Env, Operator, Validity};

/// Reviews of one measurement; several are taken in turns with the floor.
const REVIEWS: usize = 1500;
const TURNS: usize = 4;
/// Reviews after which memory is looked at in the long run: it may not have grown.
const LONG_RUN: [usize; 3] = [10_000, 50_000, 100_000];

fn main() {
    // Cargo adds `--bench`; it is no word of ours.
    let words: Vec<String> = std::env::args()
        .skip(1)
        .filter(|word| word != "--bench")
        .collect();
    match words.first().map(String::as_str) {
        Some("admission") => bench_admission(&words[1..]),
        Some("idle") => bench_idle(),
        Some("watch") => watch::run(&words[1..]),
        Some("offline") => offline::run(),
        _ => eprintln!(
            "usage: scripts/bench admission [--callers N[,N]] [--peer PATH] [--long] | idle | watch [--objects N[,N]] | offline"
        ),
    }
}

/// An operator with five hooks, all of them registered and idle, and a way to call it.
fn start(cluster: &ControlPlane, program: Option<&str>) -> (Env, Operator, Target) {
    let authority = Authority::new("bench");
    let mut env = Env::new().kubeconfig(&cluster.admin());
    let address = env.free();
    let ip = env.address().to_string();
    let pair = authority.server(&[&ip, "bench.default.svc"], Validity::Now);
    for (name, content) in [
        ("tls.crt", &pair.certificate_pem),
        ("tls.key", &pair.key_pem),
        ("ca.crt", &authority.pem),
    ] {
        env.write(name, content);
    }
    for number in 0..5 {
        let hook = HOOK.replace("NAME", &format!("n{number}"));
        env = env.hook(&format!("n{number}.sh"), &hook);
    }
    let file = |name: &str| env.path().join(name).display().to_string();
    let variables = [
        ("VALIDATING_WEBHOOK_SERVER_CERT", file("tls.crt")),
        ("VALIDATING_WEBHOOK_SERVER_KEY", file("tls.key")),
        ("VALIDATING_WEBHOOK_CA", file("ca.crt")),
        ("VALIDATING_WEBHOOK_SERVICE_NAME", "bench".to_owned()),
        (
            "VALIDATING_WEBHOOK_CONFIGURATION_NAME",
            support::control_plane::unique("bench"),
        ),
        ("VALIDATING_WEBHOOK_LISTEN_PORT", address.port().to_string()),
        ("SHELL_OPERATOR_NAMESPACE", "default".to_owned()),
        ("LOG_LEVEL", "error".to_owned()),
        ("MALLOC_ARENA_MAX", "2".to_owned()),
    ];
    for (name, value) in variables {
        env = env.env(name, &value);
    }
    let operator = match program {
        Some(program) => env.spawn_program(program, &["start"]),
        None => env.start(),
    };
    let target = Target::new(address, "/hooks/n0-bench-example-com", &authority.pem);
    support::wait_for("the webhook server", Duration::from_secs(30), || {
        std::net::TcpStream::connect(address).is_ok()
    });
    if program.is_none() {
        operator.wait_ready();
    }
    (env, operator, target)
}

fn bench_admission(words: &[String]) {
    let peer = words
        .iter()
        .position(|word| word == "--peer")
        .and_then(|at| words.get(at + 1));
    let cluster = ControlPlane::shared();
    println!(
        "an sh hook that only writes {{\"allowed\":true}}; callers over TLS with keep-alive; floor = the same hook without a server"
    );
    compare("shell-operator", cluster, None, words);
    if let Some(peer) = peer {
        compare("peer", cluster, Some(peer), words);
    }
}

/// The numbers of `WORD N,N`.
fn numbers_after(word: &str, words: &[String]) -> Option<Vec<usize>> {
    let at = words.iter().position(|given| given == word)?;
    let numbers = words.get(at + 1)?.split(',');
    Some(numbers.map(|number| number.parse().unwrap()).collect())
}

fn compare(name: &str, cluster: &ControlPlane, program: Option<&str>, words: &[String]) {
    let (env, operator, target) = start(cluster, program);
    let hook = env.hooks_dir().join("n0.sh");
    let folder = env.path().join("floor");
    println!(
        "\n{name}: {} KiB RSS with 5 hooks, idle",
        operator.rss_kib()
    );
    for callers in numbers_after("--callers", words).unwrap_or_else(|| vec![1, 8, 32]) {
        let mut used = 0.0;
        let (floor, ours) = admission::in_turns(
            TURNS,
            || admission::floor(&hook, &folder, callers, REVIEWS),
            || {
                let before = operator.cpu_seconds();
                let figures = admission::served(&target, callers, REVIEWS);
                used += operator.cpu_seconds() - before;
                figures
            },
        );
        report(name, callers, &floor, &ours);
        println!(
            "{name}: {callers:>2} callers: {:.0} us of the operator's own CPU time a review",
            used / (TURNS * REVIEWS) as f64 * 1e6
        );
    }
    println!("{name}: {} KiB RSS after the load", operator.rss_kib());
    if program.is_none() && words.iter().any(|word| word == "--long") {
        let mut done = 0;
        for target_count in LONG_RUN {
            admission::served(&target, 8, target_count - done);
            done = target_count;
            println!(
                "{name}: {} KiB RSS after {done} further reviews",
                operator.rss_kib()
            );
        }
    }
}

fn report(name: &str, callers: usize, floor: &Figures, ours: &Figures) {
    let millis = |figures: &Figures, share: f64| figures.quantile(share).as_secs_f64() * 1e3;
    println!(
        "{name}: {callers:>2} callers: p50 {:.2} ms = {:.2} x floor ({:.2} ms), p99 {:.2} ms (floor {:.2} ms); {:.0}/s = {:.2} of the floor's {:.0}/s",
        millis(ours, 0.5),
        millis(ours, 0.5) / millis(floor, 0.5),
        millis(floor, 0.5),
        millis(ours, 0.99),
        millis(floor, 0.99),
        ours.rate(),
        ours.rate() / floor.rate(),
        floor.rate(),
    );
}

/// Limits on an idle operator, in KiB (src/ARCHITECTURE.md, "Footprint").
const MAX_BINARY: u64 = 6 * 1024;
const MAX_IDLE: u64 = 5 * 1024;
const MAX_IDLE_WITH_HOOKS: u64 = 6 * 1024;

/// Size of the binary, memory and CPU time of an operator without hooks, for a minute, and memory with five of them.
fn bench_idle() {
    let cluster = ControlPlane::shared();
    let size = std::fs::metadata(Path::new(env!("CARGO_BIN_EXE_shell-operator")))
        .unwrap()
        .len();
    against_limit("binary", size / 1024, MAX_BINARY);
    let env = Env::new().kubeconfig(&cluster.admin());
    std::fs::write(env.hooks_dir().join("README.md"), "no hooks here\n").unwrap();
    let operator = env.start();
    operator.wait_ready();
    let before = operator.cpu_seconds();
    println!("{before:.2} s of CPU until ready");
    memory("no hooks", &operator, MAX_IDLE);
    std::thread::sleep(Duration::from_secs(60));
    memory("no hooks, 60 s later", &operator, MAX_IDLE);
    println!(
        "{:.2} s of CPU in these 60 s",
        operator.cpu_seconds() - before
    );
    drop(operator);
    let (_env, operator, _target) = start(cluster, None);
    memory("5 hooks", &operator, MAX_IDLE_WITH_HOOKS);
}

fn memory(name: &str, operator: &Operator, limit: u64) {
    against_limit(&format!("RSS, {name}"), operator.rss_kib(), limit);
    let (own, mapped) = operator.rss_parts_kib();
    println!("    {own} KiB of its own, {mapped} KiB mapped from files");
}

fn against_limit(name: &str, found: u64, limit: u64) {
    let verdict = if found <= limit { "within" } else { "ABOVE" };
    println!("{name}: {found} KiB, {verdict} the limit of {limit} KiB");
}

//! How files look: a header on every source, sizes, no marks of unfinished work, runnable scripts, hooks that are tested, and a
//! lock file without an async runtime.

use std::path::Path;

use super::source::code;
use super::{document, files_below, none_wrong, shipped_sources};

/// Lines of a source file, tests not counted. A file that is longer does two things.
const MOST_LINES: usize = 500;

/// Files that may be longer, each with its reason.
const LONGER: &[(&str, &str)] = &[];

/// Packages that would make this an async program, or carry a scheduler of their own.
const ASYNC_RUNTIMES: &[&str] = &[
    "actix-rt",
    "async-executor",
    "async-global-executor",
    "async-io",
    "async-std",
    "embassy-executor",
    "futures-executor",
    "glommio",
    "hyper",
    "mio",
    "monoio",
    "smol",
    "tokio",
];

/// Spelt in two halves, or this file would find itself.
const MARKS: &[(&str, &str)] = &[
    ("TO", "DO"),
    ("FIX", "ME"),
    ("XX", "X:"),
    ("#[ign", "ore"),
    ("/ro", "ot/"),
    ("/wo", "rk/"),
    ("/ho", "me/"),
];

#[test]
fn every_source_opens_with_what_it_is() {
    let mut wrong = Vec::new();
    for file in [files_below("src"), files_below("tests")].concat() {
        if file.path.ends_with(".rs") && !file.bytes.starts_with(b"//!") {
            wrong.push(file.path);
        }
    }
    none_wrong("a source file opens with `//!` and what it does", &wrong);
}

#[test]
fn no_source_is_too_long() {
    let mut wrong = Vec::new();
    for file in shipped_sources() {
        let lines = code(&file.text()).trim_end().lines().count();
        let excused = LONGER.iter().any(|(path, _)| *path == file.path);
        if lines > MOST_LINES && !excused {
            wrong.push(format!("{}: {lines} lines", file.path));
        }
        if lines <= MOST_LINES && excused {
            wrong.push(format!("{}: needs no exception any more", file.path));
        }
    }
    none_wrong("a source file has at most 500 lines without tests", &wrong);
}

#[test]
fn nothing_is_marked_as_unfinished_or_tied_to_a_machine() {
    let mut wrong = Vec::new();
    for file in files_below(".") {
        // Written by tools, from the names and sums of other people's packages.
        if file.path.ends_with(".lock") || file.path.ends_with("go.sum") {
            continue;
        }
        for (number, line) in file.text().lines().enumerate() {
            for (left, right) in MARKS {
                if line.contains(&format!("{left}{right}")) {
                    wrong.push(format!("{}:{}: {left}{right}", file.path, number + 1));
                }
            }
        }
    }
    none_wrong(
        "no marks of unfinished work, no paths of one machine",
        &wrong,
    );
}

#[test]
fn scripts_say_who_reads_them_and_can_be_run() {
    let mut wrong = Vec::new();
    for file in [
        files_below("scripts"),
        files_below("hooks"),
        files_below(".ci"),
    ]
    .concat()
    {
        // What is sourced is not run.
        if file.has_shebang() != file.executable && !file.path.starts_with("hooks/lib/") {
            wrong.push(format!(
                "{}: executable is {}, shebang is {}",
                file.path,
                file.executable,
                file.has_shebang()
            ));
        }
    }
    none_wrong("a script has a shebang and the right to be run", &wrong);
    for path in ["scripts/test", "scripts/control-plane", ".ci/run"] {
        assert_eq!(files_below(path).len(), 1, "{path} is missing");
    }
}

#[test]
fn every_example_hook_is_run_by_a_test() {
    let mut tests = String::new();
    for file in files_below("tests") {
        tests.push_str(&file.text());
    }
    let mut wrong = Vec::new();
    for hook in files_below("hooks") {
        let is_library = hook.path.starts_with("hooks/lib/");
        let name = Path::new(&hook.path).file_stem().unwrap().to_string_lossy();
        if hook.has_shebang() && !is_library && !tests.contains(&*name) {
            wrong.push(hook.path);
        }
    }
    none_wrong("an example hook is named in a test that runs it", &wrong);
}

#[test]
fn there_is_no_async_runtime_in_the_lock_file() {
    let lock = document("Cargo.lock");
    let mut wrong = Vec::new();
    for name in lock.lines().filter_map(|line| line.strip_prefix("name = ")) {
        let name = name.trim_matches('"');
        if ASYNC_RUNTIMES.contains(&name) {
            wrong.push(name.to_owned());
        }
    }
    none_wrong("no async runtime, direct or not", &wrong);
}

//! The shipped hooks without the operator: a hook knows only its argument, its environment and two files, and so do
//! these tests. Here is what runs one; the tests are in the modules.
//!
//! A script that a test has just written is given to its interpreter and never executed directly: another thread
//! that is just starting a process may still hold the file open for writing, and the kernel refuses such a file.

mod examples;
mod framework;
mod haproxy;
mod python;
mod readme;

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::Value;

/// The directory `hooks` of the repository.
fn hooks() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("hooks")
}

/// A directory that goes away with its owner.
struct Workplace(PathBuf);

impl Workplace {
    fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("hooks-test-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir(&path).unwrap();
        Self(path)
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        path
    }
}

impl Drop for Workplace {
    fn drop(&mut self) {
        // Nothing can be done about a failure, and a panic here would hide the one that matters.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// What came out of a run.
#[derive(Debug)]
struct Finished {
    status: Option<i32>,
    stdout: String,
    stderr: String,
    answer: String,
}

impl Finished {
    /// The answer of a run that must have succeeded without a word on standard error.
    fn json(&self) -> Value {
        assert_eq!((self.status, self.stderr.as_str()), (Some(0), ""));
        serde_json::from_str(&self.answer).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

/// Runs `command` with the binding context in one file and room for the answer in another.
fn run(mut command: Command, context: &str) -> Finished {
    let place = Workplace::new();
    let answer = place.write("answer.json", "");
    command
        .env("BINDING_CONTEXT_PATH", place.write("context.json", context))
        .env("ADMISSION_RESPONSE_PATH", &answer)
        .env("VALIDATING_RESPONSE_PATH", &answer)
        .env("CONVERSION_RESPONSE_PATH", &answer);
    let output = finish(&mut command);
    Finished {
        status: output.status.code(),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
        answer: std::fs::read_to_string(answer).unwrap(),
    }
}

/// What `command` prints for `--config`, read as YAML, which JSON is too.
fn config(mut command: Command) -> Value {
    let output = finish(command.arg("--config"));
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.status.code(), stderr.as_ref()), (Some(0), ""));
    serde_saphyr::from_str(str::from_utf8(&output.stdout).unwrap()).unwrap()
}

fn finish(command: &mut Command) -> Output {
    let name = format!("{command:?}");
    let output = command.stdin(Stdio::null()).output();
    output.unwrap_or_else(|error| panic!("{name}: {error}"))
}

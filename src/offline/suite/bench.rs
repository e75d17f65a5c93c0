//! The place where a case runs: a directory of its own, with the shims that stand in for commands.
//!
//! Made on the main thread before any hook of the round runs, because a script that some thread has just written cannot be executed
//! while another thread is starting a process. Removed when dropped. A shim is a script of shell built-ins: it calls nothing that
//! could be a shim itself.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

use super::file::{Shim, TestCase};

/// LIMIT: what is read of the list of calls; a hook that calls more has lost its way.
const MOST_CALL_BYTES: usize = 1024 * 1024;

/// A case's own directory.
#[derive(Debug)]
pub(super) struct Bench {
    root: PathBuf,
    variables: Vec<(OsString, OsString)>,
}

impl Bench {
    /// `path` is the `PATH` that the hook would have otherwise.
    pub(super) fn new(
        root: PathBuf,
        case: &TestCase,
        shims: &BTreeSet<String>,
        path: &str,
    ) -> io::Result<Bench> {
        private_directory(&root)?;
        // From here on it is removed again, whatever happens.
        let mut bench = Bench {
            root,
            variables: Vec::new(),
        };
        let temp = bench.root.join("tmp");
        private_directory(&temp)?;
        let programs = bench.root.join("bin");
        private_directory(&programs)?;
        for name in shims {
            let script = match case.commands.get(name) {
                Some(shim) => script(name, shim, &bench.root.join("calls")),
                None => refusal(name, &bench.root.join("unexpected")),
            };
            let file = programs.join(name);
            fs::write(&file, script)?;
            fs::set_permissions(&file, Permissions::from_mode(0o700))?;
        }
        let path = case.env.get("PATH").map_or(path, String::as_str);
        let mut search = programs.into_os_string();
        search.push(":");
        search.push(path);
        let given = case.env.iter().filter(|(name, _)| *name != "PATH");
        bench.variables = given
            .map(|(name, value)| (name.into(), value.into()))
            .chain([("PATH".into(), search)])
            .collect();
        if !case.env.contains_key("TMPDIR") {
            bench.variables.push(("TMPDIR".into(), temp.into()));
        }
        Ok(bench)
    }

    pub(super) fn variables(&self) -> Vec<(OsString, OsString)> {
        self.variables.clone()
    }

    /// The command lines of shims that were called since somebody asked last: those of the case, and the others.
    pub(super) fn take_calls(&self) -> (Vec<String>, Vec<String>) {
        let take = |name: &str| {
            let file = self.root.join(name);
            let content = fs::read(&file).unwrap_or_default();
            let _ = fs::remove_file(&file);
            let read = content.get(..MOST_CALL_BYTES).unwrap_or(&content);
            String::from_utf8_lossy(read)
                .split_terminator('\0')
                .map(|call| call.trim_end().to_owned())
                .collect()
        };
        (take("calls"), take("unexpected"))
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        // A hook may have made a directory that nobody may enter; then the next one to use the place removes it.
        let _ = fs::remove_dir_all(&self.root);
    }
}

pub(super) fn private_directory(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

fn script(name: &str, shim: &Shim, calls: &Path) -> String {
    let Shim {
        exit,
        stdout,
        stderr,
    } = shim;
    let mut script = format!(
        "#!/bin/sh\nprintf '%s\\0' {}\" $*\" >>{}\n",
        quoted(name),
        quoted(&calls.to_string_lossy())
    );
    // What is piped into a command that reads its input must be read, or the hook would be ended by a broken pipe.
    script.push_str(
        "for argument in \"$@\"; do case $argument in -|-f-|*=-) while IFS= read -r line; do :; done; break ;; esac; done\n",
    );
    for (text, to) in [(stdout, ""), (stderr, " >&2")] {
        if !text.is_empty() {
            script.push_str(&format!("printf '%s' {}{to}\n", quoted(text)));
        }
    }
    script.push_str(&format!("exit {exit}\n"));
    script
}

fn refusal(name: &str, calls: &Path) -> String {
    format!(
        "#!/bin/sh\nprintf '%s\\0' {name}\" $*\" >>{}\nprintf '%s: this case does not have it under commands\\n' {name} >&2\nexit 127\n",
        quoted(&calls.to_string_lossy()),
        name = quoted(name)
    )
}

/// A text as one word of a shell script.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}

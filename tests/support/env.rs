//! The world of one test: folders, hooks, an address of its own, and a clean environment for the program.
//!
//! Nothing of the developer's environment reaches the program but `PATH`, so a kubeconfig lying around cannot leak into a test,
//! and no test can by accident talk to a cluster that somebody needs.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use super::temp::write_file;
use super::{Kubeconfig, Loopback, Operator, TempDir};

/// No command that ends by itself takes longer, unless it hangs.
const RUN_LIMIT: Duration = Duration::from_secs(60);

/// The port of the probes and metrics, when a test does not choose another. Every `Env` has its own address.
pub(crate) const PROBE_PORT: u16 = 9115;

/// What a command left behind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Output {
    /// `None`: ended by a signal.
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Output {
    /// Both streams, for searching.
    pub(crate) fn all(&self) -> String {
        format!("{}{}", self.stdout, self.stderr)
    }

    /// Insists on exit code 0 and answers stdout.
    #[track_caller]
    pub(crate) fn ok(self) -> String {
        assert_eq!(self.code, Some(0), "{}", self.all());
        self.stdout
    }

    /// Insists on failure and answers everything printed.
    #[track_caller]
    pub(crate) fn err(self) -> String {
        assert_ne!(self.code, Some(0), "{}", self.all());
        self.all()
    }
}

/// What outlives an `Env` as long as a program started from it does.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) temp: TempDir,
    pub(super) loopback: Loopback,
}

#[derive(Clone, Debug)]
pub(crate) struct Env {
    place: Arc<Place>,
    variables: BTreeMap<String, String>,
    flags: Vec<String>,
}

impl Env {
    pub(crate) fn new() -> Env {
        let place = Arc::new(Place {
            temp: TempDir::new(),
            loopback: Loopback::new(),
        });
        let path = place.temp.path();
        let file = |name: &str| path.join(name).to_string_lossy().into_owned();
        for folder in ["home", "hooks", "tmp"] {
            std::fs::create_dir(path.join(folder)).unwrap();
        }
        let address = place.loopback.address().to_string();
        let path = std::env::var("PATH").unwrap_or_default();
        // Through the environment and not through flags, so that a test may set either.
        let variables = [
            ("PATH", path),
            ("HOME", file("home")),
            ("SHELL_OPERATOR_HOOKS_DIR", file("hooks")),
            ("SHELL_OPERATOR_TMP_DIR", file("tmp")),
            ("DEBUG_UNIX_SOCKET", file("debug.socket")),
            ("SHELL_OPERATOR_LISTEN_ADDRESS", address.clone()),
            ("VALIDATING_WEBHOOK_LISTEN_ADDRESS", address.clone()),
            ("CONVERSION_WEBHOOK_LISTEN_ADDRESS", address),
        ]
        .map(|(key, value)| (key.to_owned(), value));
        Env {
            place,
            variables: variables.into(),
            flags: Vec::new(),
        }
    }

    /// Writes an executable hook. The name may contain folders.
    pub(crate) fn hook(self, name: &str, script: &str) -> Env {
        self.write_hook(name, script);
        self
    }

    /// The same while the test goes on.
    pub(crate) fn write_hook(&self, name: &str, script: &str) -> PathBuf {
        write_file(&self.hooks_dir().join(name), script.as_bytes(), 0o755)
    }

    /// A hook that is content: it needs nothing of the cluster, runs once and does nothing.
    pub(crate) fn quiet_hook(self) -> Env {
        let script = "#!/bin/sh\nif [ \"$1\" = --config ]; then echo '{configVersion: v1, onStartup: 1}'; fi\n";
        self.hook("quiet.sh", script)
    }

    /// Sets a variable of the program's environment.
    pub(crate) fn env(mut self, key: &str, value: &str) -> Env {
        self.variables.insert(key.to_owned(), value.to_owned());
        self
    }

    /// Adds a flag to `start`.
    pub(crate) fn flag(mut self, flag: &str) -> Env {
        self.flags.push(flag.to_owned());
        self
    }

    /// Writes a kubeconfig and names it in `KUBECONFIG`.
    pub(crate) fn kubeconfig(self, kubeconfig: &Kubeconfig) -> Env {
        let path = self.write("kubeconfig", kubeconfig.text());
        self.env("KUBECONFIG", &path.to_string_lossy())
    }

    /// Writes a file below the test's folder and answers its path.
    pub(crate) fn write(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        self.place.temp.write(name, content)
    }

    /// Writes a program below the test's folder and answers its path.
    pub(crate) fn script(&self, name: &str, content: &str) -> PathBuf {
        self.place.temp.script(name, content)
    }

    pub(crate) fn path(&self) -> &Path {
        self.place.temp.path()
    }

    pub(crate) fn hooks_dir(&self) -> PathBuf {
        self.path().join("hooks")
    }

    pub(crate) fn tmp_dir(&self) -> PathBuf {
        self.path().join("tmp")
    }

    pub(crate) fn debug_socket(&self) -> PathBuf {
        self.path().join("debug.socket")
    }

    /// The address that the program listens on, and nobody else.
    pub(crate) fn address(&self) -> IpAddr {
        self.place.loopback.address()
    }

    /// A free address and port for the test's own use.
    pub(crate) fn free(&self) -> SocketAddr {
        self.place.loopback.free()
    }

    /// Starts the operator.
    pub(crate) fn start(&self) -> Operator {
        let mut arguments = vec!["start"];
        arguments.extend(self.flags.iter().map(String::as_str));
        self.spawn(&arguments)
    }

    /// Runs the program with these arguments to its end.
    #[track_caller]
    pub(crate) fn run(&self, arguments: &[&str]) -> Output {
        self.spawn(arguments).output(RUN_LIMIT)
    }

    /// Starts the program with these arguments.
    pub(crate) fn spawn(&self, arguments: &[&str]) -> Operator {
        self.spawn_program(env!("CARGO_BIN_EXE_shell-operator"), arguments)
    }

    /// Starts any program in the same world, in a process group of its own.
    pub(crate) fn spawn_program(&self, program: &str, arguments: &[&str]) -> Operator {
        let mut command = Command::new(program);
        command
            .args(arguments)
            .env_clear()
            .envs(&self.variables)
            .current_dir(self.path())
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        Operator::spawn(command, Arc::clone(&self.place))
    }
}

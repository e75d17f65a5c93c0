//! A real etcd and kube-apiserver for the tests of one run, through `scripts/control-plane`.
//!
//! Shared by all tests, each in its own namespace; a test that stops the API server takes one of its own. Without a control plane
//! the tests fail: they are never skipped. (`scripts/test quick` leaves the module `cluster` out by name.) The shared one lives as
//! long as the test process and is ended by the watchdog.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};

use super::{Api, Authority, Kubeconfig, Output, TempDir, repository, temp, watchdog};

/// The name of the authority that signs clients; `scripts/control-plane` gives it.
const CLIENT_AUTHORITY: &str = "control-plane-client-ca";

pub(crate) struct ControlPlane {
    dir: PathBuf,
    kubectl: PathBuf,
    server: String,
    own: bool,
    // The last field, because it is dropped last: it removes the folder.
    _temp: TempDir,
}

impl ControlPlane {
    /// The one of this run.
    #[track_caller]
    pub(crate) fn shared() -> &'static ControlPlane {
        static SHARED: OnceLock<Result<ControlPlane, String>> = OnceLock::new();
        // A failure is kept as well, or every test would try for itself.
        match SHARED.get_or_init(|| ControlPlane::up(false, &[])) {
            Ok(plane) => plane,
            Err(error) => panic!("no control plane: {error}"),
        }
    }

    /// One for this test alone, which may stop it.
    #[track_caller]
    pub(crate) fn own() -> ControlPlane {
        ControlPlane::own_with(&[])
    }

    /// One for this test alone, with further arguments for the API server.
    #[track_caller]
    pub(crate) fn own_with(apiserver_arguments: &[&str]) -> ControlPlane {
        ControlPlane::up(true, apiserver_arguments)
            .unwrap_or_else(|error| panic!("no control plane: {error}"))
    }

    fn up(own: bool, apiserver_arguments: &[&str]) -> Result<ControlPlane, String> {
        let temp = TempDir::new();
        let dir = temp.path().join("control-plane");
        watchdog::add(watchdog::PLANE, &dir.to_string_lossy());
        let mut command = script(&["up"]);
        for argument in apiserver_arguments {
            command.arg(format!("--apiserver-arg={argument}"));
        }
        run_up(command.arg(&dir))?;
        let settings = fs::read_to_string(dir.join("env")).map_err(|error| error.to_string())?;
        Ok(ControlPlane {
            kubectl: Path::new(&variable(&settings, "ASSETS")).join("kubectl"),
            server: variable(&settings, "SERVER"),
            dir,
            own,
            _temp: temp,
        })
    }

    pub(crate) fn server(&self) -> &str {
        &self.server
    }

    /// The folder with kubectl, for hooks that call it.
    pub(crate) fn tools(&self) -> &Path {
        self.kubectl.parent().unwrap_or(&self.kubectl)
    }

    /// The address of etcd, for compacting its history.
    pub(crate) fn etcd(&self) -> String {
        variable(&self.read("env"), "ETCD")
    }

    pub(crate) fn authority_pem(&self) -> String {
        self.read("ca.crt")
    }

    /// Signs clients that the API server believes.
    pub(crate) fn client_authority(&self) -> Authority {
        Authority::load(
            &self.read("client-ca.crt"),
            &self.read("client-ca.key"),
            CLIENT_AUTHORITY,
        )
    }

    /// The way to the API server, without credentials.
    pub(crate) fn cluster(&self) -> Kubeconfig {
        Kubeconfig::new(&self.server).authority(&self.authority_pem())
    }

    /// The way to the API server for somebody who may do everything.
    pub(crate) fn admin(&self) -> Kubeconfig {
        let tokens = self.read("tokens.csv");
        self.cluster()
            .token(tokens.split(',').next().unwrap_or_default())
    }

    /// A connection of one's own to the API server, as somebody who may do everything.
    pub(crate) fn api(&self) -> Api {
        let tokens = self.read("tokens.csv");
        let token = tokens.split(',').next().unwrap_or_default();
        Api::new(&self.server, self.authority_pem(), token)
    }

    fn read(&self, name: &str) -> String {
        let path = self.dir.join(name);
        fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }

    /// Runs kubectl as the administrator.
    pub(crate) fn kubectl(&self, arguments: &[&str]) -> Output {
        self.kubectl_with(&self.dir.join("kubeconfig"), arguments, "")
    }

    /// Runs kubectl with any kubeconfig and with something on its stdin.
    pub(crate) fn kubectl_with(
        &self,
        kubeconfig: &Path,
        arguments: &[&str],
        input: &str,
    ) -> Output {
        let mut command = Command::new(&self.kubectl);
        command
            .env_clear()
            .env("PATH", std::env::var("PATH").unwrap_or_default())
            .env("HOME", &self.dir)
            .env("KUBECONFIG", kubeconfig)
            .args(arguments);
        run(&mut command, input)
    }

    /// A namespace that nobody else has.
    #[track_caller]
    pub(crate) fn namespace(&self, name: &str) -> Namespace<'_> {
        let name = unique(name);
        self.kubectl(&["create", "namespace", &name]).ok();
        Namespace { plane: self, name }
    }

    /// Ends the API server; etcd and its content stay.
    #[track_caller]
    pub(crate) fn stop_apiserver(&self) {
        assert!(self.own, "only one's own API server may be stopped");
        run(script(&["stop-apiserver", "--kill"]).arg(&self.dir), "").ok();
    }

    /// Starts it again, on the same port, and waits until it is ready.
    #[track_caller]
    pub(crate) fn start_apiserver(&self) {
        run(script(&["start-apiserver"]).arg(&self.dir), "").ok();
    }
}

impl Drop for ControlPlane {
    fn drop(&mut self) {
        let output = run(script(&["down", "--kill", "--purge"]).arg(&self.dir), "");
        if output.code == Some(0) {
            watchdog::remove(watchdog::PLANE, &self.dir.to_string_lossy());
        }
    }
}

/// A namespace of one test. It is not removed: it goes with the control plane.
pub(crate) struct Namespace<'a> {
    pub(crate) plane: &'a ControlPlane,
    pub(crate) name: String,
}

impl Namespace<'_> {
    /// Runs kubectl in this namespace, as the administrator.
    pub(crate) fn kubectl(&self, arguments: &[&str]) -> Output {
        let mut all = vec!["--namespace", self.name.as_str()];
        all.extend(arguments);
        self.plane.kubectl(&all)
    }

    /// Applies YAML or JSON and insists that it is taken.
    #[track_caller]
    pub(crate) fn apply(&self, manifest: &str) {
        self.try_apply(manifest).ok();
    }

    /// Applies YAML or JSON and answers what kubectl said.
    pub(crate) fn try_apply(&self, manifest: &str) -> Output {
        let arguments = ["--namespace", self.name.as_str(), "apply", "-f", "-"];
        let kubeconfig = self.plane.dir.join("kubeconfig");
        self.plane.kubectl_with(&kubeconfig, &arguments, manifest)
    }

    /// Makes a service account with these rules, in the whole cluster, and answers a token for it.
    #[track_caller]
    pub(crate) fn service_account(&self, name: &str, rules: &Value) -> String {
        let role = unique(name);
        self.apply(
            &json!({ "apiVersion": "v1", "kind": "List", "items": [
                { "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": name } },
                {
                    "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
                    "metadata": { "name": role }, "rules": rules,
                },
                {
                    "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
                    "metadata": { "name": role },
                    "roleRef": {
                        "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role,
                    },
                    "subjects": [
                        { "kind": "ServiceAccount", "name": name, "namespace": self.name },
                    ],
                },
            ] })
            .to_string(),
        );
        self.token(name, &[])
    }

    /// Another token of a service account; `arguments` are those of `kubectl create token`.
    #[track_caller]
    pub(crate) fn token(&self, name: &str, arguments: &[&str]) -> String {
        let output = self.kubectl(&[&["create", "token", name], arguments].concat());
        output.ok().trim().to_owned()
    }

    /// The three files that a pod finds under `/var/run/secrets/kubernetes.io/serviceaccount`.
    pub(crate) fn service_account_files(&self, folder: &Path, token: &str) {
        let files = [
            ("token", token),
            ("namespace", &self.name),
            ("ca.crt", &self.plane.authority_pem()),
        ];
        for (name, content) in files {
            temp::write_file(&folder.join(name), content.as_bytes(), 0o600);
        }
    }

    /// The manifest of a CRD with a group of its own, which makes its plural and kind unique too.
    pub(crate) fn crd(&self, plural: &str, kind: &str) -> String {
        let group = format!("{}.example.com", self.name);
        let schema = json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
        json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": { "name": format!("{plural}.{group}") },
            "spec": {
                "group": group, "scope": "Namespaced",
                "names": { "plural": plural, "singular": kind.to_lowercase(), "kind": kind },
                "versions": [{
                    "name": "v1", "served": true, "storage": true,
                    "schema": { "openAPIV3Schema": schema },
                }],
            },
        })
        .to_string()
    }
}

/// A name that no other test has; good for cluster-wide objects.
pub(crate) fn unique(name: &str) -> String {
    static COUNT: AtomicUsize = AtomicUsize::new(1);
    format!("{name}-{}", COUNT.fetch_add(1, Ordering::Relaxed))
}

fn script(arguments: &[&str]) -> Command {
    let mut command = Command::new(repository().join("scripts/control-plane"));
    command.args(arguments);
    command
}

/// Runs `up`, whose build of the binaries can take minutes: its progress goes past the capture of test output.
fn run_up(command: &mut Command) -> Result<(), String> {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .process_group(0);
    let mut child =
        temp::spawn(command).map_err(|error| format!("scripts/control-plane: {error}"))?;
    watchdog::add(watchdog::UP, &child.id().to_string());
    let mut said = String::new();
    for line in BufReader::new(child.stderr.take().unwrap()).lines() {
        let line = line.unwrap_or_default();
        if line.contains("building") || line.contains("waiting") {
            let _ = writeln!(std::io::stderr(), "{line}");
        }
        said.push_str(&line);
        said.push('\n');
    }
    watchdog::remove(watchdog::UP, &child.id().to_string());
    match child.wait() {
        Ok(status) if status.success() => Ok(()),
        _ => Err(said),
    }
}

fn run(command: &mut Command, input: &str) -> Output {
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = temp::spawn(command).unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_owned();
    // In a thread: a program that prints much before it reads would wait for us, and we for it.
    let writer = std::thread::spawn(move || stdin.write_all(input.as_bytes()));
    let output = child.wait_with_output().unwrap();
    // One that does not read its input closes the pipe, which is no failure.
    let _ = writer.join();
    Output {
        code: output.status.code(),
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

/// A value out of `env`, which has lines like `export NAME='value'`.
fn variable(settings: &str, name: &str) -> String {
    let start = format!("export {name}='");
    let line = settings.lines().find_map(|line| line.strip_prefix(&start));
    line.and_then(|rest| rest.strip_suffix('\''))
        .unwrap_or_else(|| panic!("scripts/control-plane wrote no {name}"))
        .to_owned()
}

//! Reaching a real API server: every way to log in that kubeconfig files and pods offer, every way to be turned away, and the
//! search for a kind.
//!
//! The command under test is `resource`, which does what a binding does at start: it reads the configuration, logs in, reads
//! discovery and says what it found. With `--wait` it goes on looking, so credentials can change under it.

use std::time::Duration;

use serde_json::json;

use crate::support::control_plane::unique;
use crate::support::{
    Authority, ControlPlane, Discovery, Env, Kubeconfig, Namespace, Operator, SOON, Scripted,
    Validity, wait_for,
};

/// The waiting command looks at a slow pace, and an API server believes a token for some seconds after it was taken back.
const PATIENCE: Duration = Duration::from_secs(90);

#[track_caller]
fn finds_pods(kubeconfig: &Kubeconfig) {
    let output = Env::new().kubeconfig(kubeconfig).run(&["resource", "po"]);
    let text = output.ok();
    for word in ["v1", "pods", "Pod", "namespaced", "po"] {
        assert!(text.contains(word), "{word} is missing: {text}");
    }
}

/// Insists that the command fails with exactly one line, which holds all these words.
#[track_caller]
fn is_turned_away(kubeconfig: &Kubeconfig, words: &[&str]) {
    let output = Env::new().kubeconfig(kubeconfig).run(&["resource", "pods"]);
    assert_eq!(output.code, Some(1), "{}", output.all());
    assert_eq!(output.stderr.lines().count(), 1, "{}", output.all());
    for word in words {
        assert!(output.stderr.contains(word), "{word}: {}", output.stderr);
    }
}

/// A command that waits for a kind which does not exist yet.
struct Waiting<'a> {
    namespace: &'a Namespace<'a>,
    plural: String,
    command: Operator,
}

impl Waiting<'_> {
    /// Returns when the command has asked once and says that it waits.
    #[track_caller]
    fn start<'a>(namespace: &'a Namespace<'a>, env: &Env) -> Waiting<'a> {
        let plural = unique("crontabs");
        let command = env.spawn(&["resource", &plural, "--wait", "90s"]);
        command.wait_log("that it waits", |line| line.contains(&plural));
        Waiting {
            namespace,
            plural,
            command,
        }
    }

    /// Makes the kind and insists that the command finds it, which it can only with credentials that are good now.
    #[track_caller]
    fn finds_it(self) {
        let crd = self.namespace.crd(&self.plural, "CronTab");
        self.namespace.apply(&crd);
        let text = self.command.output(PATIENCE).ok();
        let group = format!("{}.example.com/v1", self.namespace.name);
        for word in [group.as_str(), &self.plural, "CronTab", "namespaced"] {
            assert!(text.contains(word), "{word} is missing: {text}");
        }
    }
}

#[test]
fn a_client_certificate_is_accepted_inline_and_from_files() {
    let plane = ControlPlane::shared();
    let authority = plane.client_authority();
    let identity = authority.client("jane", &["system:masters"], Validity::Now);
    finds_pods(&plane.cluster().client_certificate(&identity));

    let env = Env::new();
    env.write("jane.crt", &identity.certificate_pem);
    env.write("jane.key", &identity.key_pem);
    env.write("ca.crt", plane.authority_pem());
    // Relative paths are relative to the file that names them.
    let kubeconfig = Kubeconfig::new(plane.server())
        .cluster("certificate-authority", "ca.crt")
        .user("client-certificate", "jane.crt")
        .user("client-key", "jane.key");
    env.kubeconfig(&kubeconfig).run(&["resource", "pods"]).ok();
}

#[test]
fn a_token_is_accepted() {
    let plane = ControlPlane::shared();
    let namespace = plane.namespace("token");
    let token = namespace.service_account("somebody", &json!([]));
    finds_pods(&plane.cluster().token(&token));
    is_turned_away(
        &plane.cluster().token("nonsense"),
        &["401", "check the token"],
    );
}

#[test]
fn a_rotated_token_file_is_used_while_the_old_token_is_refused() {
    let plane = ControlPlane::shared();
    let namespace = plane.namespace("rotation");
    namespace.service_account("somebody", &json!([]));
    // A token lives no longer than the object it is bound to.
    let bound_token = |secret: &str| {
        namespace
            .kubectl(&["create", "secret", "generic", secret])
            .ok();
        let bound = ["--bound-object-kind=Secret", "--bound-object-name", secret];
        namespace.token("somebody", &bound)
    };
    let (old, new) = (bound_token("old"), bound_token("new"));

    let env = Env::new();
    let file = env.write("token", &old);
    let env = env.kubeconfig(&plane.cluster().token_file(&file));
    let waiting = Waiting::start(&namespace, &env);
    env.write("token", new);
    namespace.kubectl(&["delete", "secret", "old"]).ok();
    let with_old = env.write("with-old", plane.cluster().token(&old).text());
    wait_for("the old token to be refused", PATIENCE, || {
        let output = plane.kubectl_with(&with_old, &["get", "--raw", "/apis"], "");
        output.stderr.contains("Unauthorized")
    });
    waiting.finds_it();
}

/// Notes every call and gives a token that is good for two seconds.
const PLUGIN: &str = r#"#!/bin/sh
cd "$(dirname "$0")" || exit 1
echo "$KUBERNETES_EXEC_INFO $*" >>calls
until=$(date -u -d '+2 seconds' +%Y-%m-%dT%H:%M:%SZ)
printf '{"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential",
  "status": {"token": "%s", "expirationTimestamp": "%s"}}' "$(cat token)" "$until"
"#;

#[test]
fn an_exec_plugin_is_called_again_when_its_token_expires() {
    let plane = ControlPlane::shared();
    let namespace = plane.namespace("plugin");
    let env = Env::new();
    env.write("token", namespace.service_account("somebody", &json!([])));
    let plugin = env.script("plugin", PLUGIN);
    let kubeconfig = plane.cluster().exec(&plugin, &["get", "credentials"]);
    let env = env.kubeconfig(&kubeconfig);
    let waiting = Waiting::start(&namespace, &env);
    let calls = || std::fs::read_to_string(env.path().join("calls")).unwrap_or_default();
    wait_for("a third call of the plugin", PATIENCE, || {
        calls().lines().count() >= 3
    });
    waiting.finds_it();
    let calls = calls();
    let first = calls.lines().next().unwrap_or_default();
    assert!(first.contains("ExecCredential"), "{calls}");
    assert!(first.ends_with("get credentials"), "{calls}");
}

#[test]
fn an_exec_plugin_that_fails_is_named() {
    let plane = ControlPlane::shared();
    let env = Env::new();
    let plugin = env.script("plugin", "#!/bin/sh\necho 'log in first' >&2\nexit 3\n");
    is_turned_away(&plane.cluster().exec(&plugin, &[]), &["plugin", "3"]);
    let missing = env.path().join("missing-plugin");
    is_turned_away(&plane.cluster().exec(&missing, &[]), &["missing-plugin"]);
}

#[test]
fn the_files_of_a_service_account_are_used_in_a_pod_and_read_again() {
    let plane = ControlPlane::shared();
    let namespace = plane.namespace("pod");
    let token = namespace.service_account("somebody", &json!([]));
    let env = Env::new();
    let folder = env.path().join("account");
    namespace.service_account_files(&folder, &token);
    let (_, port) = plane.server().rsplit_once(':').unwrap();
    let env = env
        .env("KUBERNETES_SERVICE_HOST", "127.0.0.1")
        .env("KUBERNETES_SERVICE_PORT", port)
        .env(
            "SHELL_OPERATOR_SERVICE_ACCOUNT_DIR",
            &folder.to_string_lossy(),
        );
    let text = env.run(&["resource", "pods"]).ok();
    assert!(text.contains("pods"), "{text}");

    // The account is made anew, which ends every token of the old one.
    let waiting = Waiting::start(&namespace, &env);
    namespace
        .kubectl(&["delete", "serviceaccount", "somebody"])
        .ok();
    let new = namespace.service_account("somebody", &json!([]));
    namespace.service_account_files(&folder, &new);
    waiting.finds_it();
}

#[test]
fn impersonation_is_asked_for() {
    let admin = ControlPlane::shared().admin();
    finds_pods(&admin.clone().impersonate("jane", &["system:masters"]));
    is_turned_away(
        &admin.impersonate("system:anonymous", &["system:unauthenticated"]),
        &["403", "system:anonymous"],
    );
}

#[test]
fn a_context_can_be_chosen_and_files_are_merged() {
    let plane = ControlPlane::shared();
    let env = Env::new();
    // The first file that says something wins, so the current context is the unusable one.
    let nowhere = Kubeconfig::new("https://127.0.0.1:1").text();
    let first = env.write("first", nowhere.replace("\"test\"", "\"nowhere\""));
    let second = env.write("second", plane.admin().text());
    let list = format!("{}:{}", first.display(), second.display());
    let env = env.env("KUBECONFIG", &list);
    let message = env.run(&["resource", "pods"]).err();
    assert!(message.contains("127.0.0.1:1"), "{message}");
    env.run(&["resource", "pods", "--kube-context=test"]).ok();
    let second = format!("--kube-config={}", second.display());
    env.run(&["resource", "pods", &second]).ok();
    let message = env.run(&["resource", "pods", "--kube-context=tset"]).err();
    assert!(message.contains("tset"), "{message}");
}

#[test]
fn a_wrong_authority_is_refused_and_named() {
    let plane = ControlPlane::shared();
    let wrong = Kubeconfig::new(plane.server()).authority(&Authority::new("wrong").pem);
    is_turned_away(&wrong, &["certificate-authority", "127.0.0.1"]);
    // The switch that turns the check off is for people who know what they do.
    let blind = plane
        .admin()
        .cluster("certificate-authority-data", "")
        .cluster("insecure-skip-tls-verify", true);
    finds_pods(&blind);
}

#[test]
fn a_wrong_host_name_is_refused_and_named() {
    let plane = ControlPlane::shared();
    let named = |name: &str| plane.admin().cluster("tls-server-name", name);
    is_turned_away(&named("wrong.example.com"), &["wrong.example.com"]);
    finds_pods(&named("kubernetes.default.svc"));
}

#[test]
fn an_expired_client_certificate_is_turned_away() {
    let plane = ControlPlane::shared();
    let authority = plane.client_authority();
    let identity = authority.client("jane", &["system:masters"], Validity::Expired);
    is_turned_away(
        &plane.cluster().client_certificate(&identity),
        &["401", "certificate"],
    );
}

#[test]
fn an_expired_server_certificate_is_refused_and_named() {
    // A real API server cannot be made to show one while it is ready.
    let authority = Authority::new("right");
    let expired = authority.server(&["127.0.0.1"], Validity::Expired);
    let server = Scripted::tls(&expired, |request| Discovery::aggregated().answer(request));
    let kubeconfig = server.kubeconfig().authority(&authority.pem);
    is_turned_away(&kubeconfig, &["expired", "127.0.0.1"]);
    assert!(server.requests().is_empty());
}

#[test]
fn somebody_without_rights_is_told_who_they_are() {
    let plane = ControlPlane::shared();
    is_turned_away(&plane.cluster(), &["403", "system:anonymous", "roles"]);
}

#[test]
fn a_wrong_path_prefix_is_told_from_a_wrong_kind() {
    let plane = ControlPlane::shared();
    let server = format!("{}/nowhere", plane.server());
    let wrong = plane.admin().cluster("server", server);
    is_turned_away(&wrong, &["404", "server address"]);
}

#[test]
fn a_kind_that_appears_later_is_found() {
    let plane = ControlPlane::shared();
    let namespace = plane.namespace("later");
    let env = Env::new().kubeconfig(&plane.admin());
    let mut waiting = Waiting::start(&namespace, &env);
    assert!(waiting.command.is_running());
    waiting.finds_it();
}

#[test]
fn a_kind_that_does_not_appear_ends_the_wait() {
    let plane = ControlPlane::shared();
    let env = Env::new().kubeconfig(&plane.admin());
    let output = env
        .spawn(&["resource", "crontabs-never", "--wait", "2s"])
        .output(SOON);
    assert_eq!(output.code, Some(1), "{}", output.all());
    assert!(output.stderr.contains("crontabs-never"), "{}", output.all());
}

#[test]
fn a_wrong_name_gets_the_nearest_right_one() {
    let plane = ControlPlane::shared();
    let env = Env::new().kubeconfig(&plane.admin());
    let ask = |arguments: &[&str]| env.run(&[&["resource"], arguments].concat());
    for (wrong, right) in [
        ("deploymnets", "deployments"),
        ("Deploymnet", "Deployment"),
        ("secret s", "secrets"),
    ] {
        let output = ask(&[wrong]);
        assert_eq!(output.code, Some(1), "{}", output.all());
        let hint = output.stderr;
        assert!(hint.contains(wrong) && hint.contains(right), "{hint}");
    }
    // The right name under a wrong version is another mistake with another hint.
    let hint = ask(&["deployments", "--api-version", "apps/v1beta1"]).err();
    assert!(hint.contains("apps/v1"), "{hint}");
}

#[test]
fn a_kind_has_many_names() {
    let plane = ControlPlane::shared();
    let env = Env::new().kubeconfig(&plane.admin());
    for name in ["deployments", "deployment", "Deployment", "deploy"] {
        let text = env.run(&["resource", name]).ok();
        assert!(
            text.contains("apps/v1") && text.contains("deployments"),
            "{text}"
        );
    }
    // Several at once, and one that two groups have.
    let text = env.run(&["resource", "Namespace", "cm"]).ok();
    assert!(
        text.contains("namespaces") && text.contains("cluster"),
        "{text}"
    );
    assert!(text.contains("configmaps"), "{text}");
    let text = env
        .run(&["resource", "Event", "--api-version", "events.k8s.io/v1"])
        .ok();
    assert!(text.contains("events.k8s.io/v1"), "{text}");
}

//! Changes that hooks ask for (`KUBERNETES_PATCH_PATH`), on a real API server: what each operation does, and what becomes of a run
//! in which something goes wrong.
//!
//! A `Site` is a namespace and an operator with one hook, which writes the operations of the test when the operator starts. No
//! controllers run here, so that deployments stay what they are told to be and nobody collects what a deletion leaves.

/// From admission hooks: before the answer, and never in a dry run.
mod admission;
/// Every operation and what it does.
mod effects;
/// Files that are wrong, objects that are not there, hooks that fail.
mod failures;
/// Very many at once.
mod many;

use serde_json::{Value, json};

use crate::support::stage::{config_map, script};
use crate::support::{Api, ControlPlane, Env, Line, Namespace, Operator};

pub(super) struct Site {
    pub(super) namespace: Namespace<'static>,
    pub(super) api: Api,
    pub(super) env: Env,
}

impl Site {
    pub(super) fn new(name: &str) -> Site {
        let plane = ControlPlane::shared();
        Site {
            namespace: plane.namespace(name),
            api: plane.api(),
            env: Env::new()
                .kubeconfig(&plane.admin())
                .env("SHELL_OPERATOR_STOP_DRAIN_DELAY", "0s")
                // The default of five calls a second is for clusters, not for the patience of tests.
                .env("OBJECT_PATCHER_KUBE_CLIENT_QPS", "500")
                .env("OBJECT_PATCHER_KUBE_CLIENT_BURST", "500"),
        }
    }

    /// A hook that writes this to its object patch file at the start, and then does `more`, in sh.
    pub(super) fn hook_that(&self, operations: &str, more: &str) {
        let file = self.env.write("operations", operations);
        let body = format!(
            "cat '{}' >\"$KUBERNETES_PATCH_PATH\"\n{more}",
            file.display()
        );
        let config = json!({ "configVersion": "v1", "onStartup": 1 });
        self.env.write_hook("change.sh", &script(&config, &body));
    }

    /// Carries out operations that must all succeed.
    #[track_caller]
    pub(super) fn run(&self, operations: &str) -> Operator {
        self.hook_that(operations, "");
        let operator = self.env.start();
        operator.wait_ready();
        operator
    }

    /// Carries out operations that fail, and answers the operator and the error of the run.
    #[track_caller]
    pub(super) fn fail(&self, operations: &str) -> (Operator, String) {
        self.hook_that(operations, "");
        let operator = self.env.start();
        let line = operator.wait_log("the failed run", is_failed_run);
        let error = line.label("error").unwrap_or_default().to_owned();
        (operator, error)
    }

    pub(super) fn maps(&self) -> String {
        format!("/api/v1/namespaces/{}/configmaps", self.namespace.name)
    }

    pub(super) fn map(&self, name: &str) -> Value {
        self.api.object(&format!("{}/{name}", self.maps()))
    }

    #[track_caller]
    pub(super) fn create_map(&self, name: &str, data: &Value) {
        let answer = self.api.create(&self.maps(), &config_map(name, data));
        assert_eq!(answer.status, 201, "{}", answer.text());
    }

    /// A ConfigMap of this namespace, as an operation names it.
    pub(super) fn object(&self, name: &str, data: &Value) -> Value {
        let mut map = config_map(name, data);
        map["metadata"]["namespace"] = json!(self.namespace.name);
        map
    }

    /// An operation on a ConfigMap of this namespace, with more fields.
    pub(super) fn on(&self, operation: &str, name: &str, more: &Value) -> Value {
        let mut operation = json!({
            "operation": operation, "apiVersion": "v1", "kind": "ConfigMap",
            "namespace": self.namespace.name, "name": name,
        });
        for (key, value) in more.as_object().into_iter().flatten() {
            operation[key] = value.clone();
        }
        operation
    }
}

pub(super) fn is_failed_run(line: &Line) -> bool {
    line.message() == "Hook failed. Will retry after delay."
}

/// Documents, one after the other.
pub(super) fn documents(operations: &[Value]) -> String {
    operations.iter().map(|one| format!("{one}\n")).collect()
}

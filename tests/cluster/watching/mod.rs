//! Hooks that watch a real cluster: nothing is lost, doubled or mixed up, whatever happens between them and the API server.
//!
//! Every hook here writes down what it reads. A `Scene` is a namespace, a fast client and an operator's world whose hooks do so;
//! the tests act on the cluster and read the journals.

/// Kinds, rights and credentials that come and go.
mod absence;
/// What a hook is told, for every sort of binding.
mod contexts;
/// An API server that goes away and comes back.
mod outage;
/// A policy that needs to know what is there already.
mod policy;
/// Many changes, slow hooks, and what the hooks know in the end.
mod rebuilt;
/// Many hooks on the same objects and in the same queue.
mod sharing;

use std::time::Duration;

use serde_json::{Value, json};

use crate::support::stage::{config_map, script};
use crate::support::{Api, ControlPlane, Env, Kubeconfig, Namespace, Operator, SOON, wait_for};

/// The world of a watching hook.
pub(super) struct Scene<'a> {
    pub(super) namespace: Namespace<'a>,
    pub(super) api: Api,
    pub(super) env: Env,
}

impl<'a> Scene<'a> {
    pub(super) fn on(plane: &'a ControlPlane, name: &str) -> Scene<'a> {
        Scene {
            namespace: plane.namespace(name),
            api: plane.api(),
            env: Env::new()
                .kubeconfig(&plane.admin())
                .env("SHELL_OPERATOR_STOP_DRAIN_DELAY", "0s"),
        }
    }

    pub(super) fn kubeconfig(mut self, kubeconfig: &Kubeconfig) -> Self {
        self.env = self.env.clone().kubeconfig(kubeconfig);
        self
    }

    /// A hook that writes every run into its journal, and then does `more`, in sh.
    pub(super) fn hook(self, stem: &str, config: &Value, more: &str) -> Self {
        self.write_hook(stem, config, more);
        self
    }

    /// The same where the scene is in use already.
    pub(super) fn write_hook(&self, stem: &str, config: &Value, more: &str) {
        let journal = self.journal(stem);
        let body = format!(
            "cat \"$BINDING_CONTEXT_PATH\" >>'{}'\n{more}",
            journal.display()
        );
        self.env
            .write_hook(&format!("{stem}.sh"), &script(config, &body));
    }

    /// A hook that watches the ConfigMaps of this namespace; `more` overrides fields of the binding.
    pub(super) fn watching(self, stem: &str, more: &Value, body: &str) -> Self {
        let config = json!({ "configVersion": "v1", "kubernetes": [self.binding(more)] });
        self.hook(stem, &config, body)
    }

    /// What `watching` declares.
    pub(super) fn binding(&self, more: &Value) -> Value {
        let mut binding = json!({
            "name": "maps", "apiVersion": "v1", "kind": "ConfigMap",
            "namespace": { "nameSelector": { "matchNames": [self.namespace.name] } },
        });
        for (key, value) in more.as_object().into_iter().flatten() {
            binding[key] = value.clone();
        }
        binding
    }

    #[track_caller]
    pub(super) fn start(&self) -> Operator {
        let operator = self.env.start();
        operator.wait_ready();
        operator
    }

    fn journal(&self, stem: &str) -> std::path::PathBuf {
        self.env.path().join(format!("{stem}.journal"))
    }

    // ---- what a hook was told ----

    /// Every run of a hook so far: the array that it read. A run that is just being written down is left out.
    pub(super) fn runs(&self, stem: &str) -> Vec<Vec<Value>> {
        let written = std::fs::read(self.journal(stem)).unwrap_or_default();
        serde_json::Deserializer::from_slice(&written)
            .into_iter()
            .map_while(Result::ok)
            .collect()
    }

    /// The elements of all runs, one after the other.
    pub(super) fn told(&self, stem: &str) -> Vec<Value> {
        self.runs(stem).concat()
    }

    /// `Added name` for every event.
    pub(super) fn events(&self, stem: &str) -> Vec<String> {
        self.told(stem).iter().filter_map(event).collect()
    }

    /// Waits until a hook was told of this event.
    #[track_caller]
    pub(super) fn wait_event_for(&self, stem: &str, expected: &str, limit: Duration) {
        wait_for(&format!("'{expected}' in {stem}"), limit, || {
            self.events(stem).iter().any(|event| event == expected)
        });
    }

    #[track_caller]
    pub(super) fn wait_event(&self, stem: &str, expected: &str) {
        self.wait_event_for(stem, expected, SOON);
    }

    /// Waits for so many elements and answers them all.
    #[track_caller]
    pub(super) fn wait_told(&self, stem: &str, count: usize) -> Vec<Value> {
        wait_for(&format!("{count} elements in {stem}"), SOON, || {
            Some(self.told(stem)).filter(|told| told.len() >= count)
        })
    }

    // ---- objects ----

    pub(super) fn maps(&self) -> String {
        format!("/api/v1/namespaces/{}/configmaps", self.namespace.name)
    }

    #[track_caller]
    pub(super) fn create(&self, name: &str) {
        self.create_with(name, &json!({}), &json!({}));
    }

    #[track_caller]
    pub(super) fn create_with(&self, name: &str, labels: &Value, data: &Value) {
        let mut map = config_map(name, data);
        map["metadata"]["labels"] = labels.clone();
        let answer = self.api.create(&self.maps(), &map);
        assert_eq!(answer.status, 201, "{}", answer.text());
    }

    #[track_caller]
    pub(super) fn change(&self, name: &str, patch: &Value) {
        let answer = self.api.merge(&format!("{}/{name}", self.maps()), patch);
        assert_eq!(answer.status, 200, "{}", answer.text());
    }

    #[track_caller]
    pub(super) fn delete(&self, name: &str) {
        let answer = self.api.delete(&format!("{}/{name}", self.maps()));
        assert_eq!(answer.status, 200, "{}", answer.text());
    }
}

/// `Added name` of an element about one object.
pub(super) fn event(element: &Value) -> Option<String> {
    let kind = element["watchEvent"].as_str()?;
    let name = name_of(&element["object"]);
    Some(format!("{kind} {name}"))
}

pub(super) fn name_of(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or_default()
}

/// The names of the objects in a list of items, in their order.
pub(super) fn names(items: &Value) -> Vec<&str> {
    let items = items.as_array().map(Vec::as_slice).unwrap_or_default();
    items.iter().map(|item| name_of(&item["object"])).collect()
}

/// The sum of all series of a metric of the API server that have all these labels, which are written as in `verb="LIST"`.
pub(super) fn metric(api: &Api, name: &str, labels: &[&str]) -> f64 {
    let text = api.get("/metrics").text();
    text.lines()
        .filter_map(|line| line.strip_prefix(name)?.strip_prefix('{'))
        .filter(|rest| labels.iter().all(|label| rest.contains(label)))
        .filter_map(|rest| rest.rsplit(' ').next()?.parse::<f64>().ok())
        .sum()
}

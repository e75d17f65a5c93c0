//! What an API server says about itself: versions, groups and resources, in the aggregated form and in the old one.
//!
//! Enough of core, apps, admissionregistration and the like for the program to find its way. A test adds its own kinds, takes
//! groups away, or marks one as broken, as an aggregated API whose server is down is.

use serde_json::{Value, json};

use super::{HttpRequest, Reply};

/// One kind of object.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kind {
    pub(crate) group: &'static str,
    pub(crate) version: &'static str,
    pub(crate) plural: &'static str,
    pub(crate) kind: &'static str,
    pub(crate) namespaced: bool,
    pub(crate) short_names: &'static [&'static str],
}

const fn kind(
    group: &'static str,
    version: &'static str,
    plural: &'static str,
    kind: &'static str,
    namespaced: bool,
    short_names: &'static [&'static str],
) -> Kind {
    Kind {
        group,
        version,
        plural,
        kind,
        namespaced,
        short_names,
    }
}

const ADMISSION: &str = "admissionregistration.k8s.io";
const AUTHORIZATION: &str = "rbac.authorization.k8s.io";
const EXTENSIONS: &str = "apiextensions.k8s.io";

const KINDS: &[Kind] = &[
    kind("", "v1", "configmaps", "ConfigMap", true, &["cm"]),
    kind("", "v1", "events", "Event", true, &["ev"]),
    kind("", "v1", "namespaces", "Namespace", false, &["ns"]),
    kind("", "v1", "nodes", "Node", false, &["no"]),
    kind("", "v1", "pods", "Pod", true, &["po"]),
    kind("", "v1", "secrets", "Secret", true, &[]),
    kind("", "v1", "serviceaccounts", "ServiceAccount", true, &["sa"]),
    kind("", "v1", "services", "Service", true, &["svc"]),
    kind("apps", "v1", "daemonsets", "DaemonSet", true, &["ds"]),
    kind("apps", "v1", "deployments", "Deployment", true, &["deploy"]),
    kind("apps", "v1", "replicasets", "ReplicaSet", true, &["rs"]),
    kind("apps", "v1", "statefulsets", "StatefulSet", true, &["sts"]),
    kind("batch", "v1", "cronjobs", "CronJob", true, &["cj"]),
    kind("batch", "v1", "jobs", "Job", true, &[]),
    kind("coordination.k8s.io", "v1", "leases", "Lease", true, &[]),
    kind("events.k8s.io", "v1", "events", "Event", true, &["ev"]),
    kind(
        "networking.k8s.io",
        "v1",
        "ingresses",
        "Ingress",
        true,
        &["ing"],
    ),
    kind(
        ADMISSION,
        "v1",
        "mutatingwebhookconfigurations",
        "MutatingWebhookConfiguration",
        false,
        &[],
    ),
    kind(
        ADMISSION,
        "v1",
        "validatingwebhookconfigurations",
        "ValidatingWebhookConfiguration",
        false,
        &[],
    ),
    kind(
        AUTHORIZATION,
        "v1",
        "clusterroles",
        "ClusterRole",
        false,
        &[],
    ),
    kind(AUTHORIZATION, "v1", "roles", "Role", true, &[]),
    kind(
        EXTENSIONS,
        "v1",
        "customresourcedefinitions",
        "CustomResourceDefinition",
        false,
        &["crd", "crds"],
    ),
];

const VERBS: &[&str] = &[
    "create",
    "delete",
    "deletecollection",
    "get",
    "list",
    "patch",
    "update",
    "watch",
];

/// What a server offers.
#[derive(Clone, Debug)]
pub(crate) struct Discovery {
    kinds: Vec<Kind>,
    aggregated: bool,
    broken: Vec<&'static str>,
}

impl Discovery {
    /// As every server since 1.27 answers a client that asks for it.
    pub(crate) fn aggregated() -> Discovery {
        Discovery {
            kinds: KINDS.to_vec(),
            aggregated: true,
            broken: Vec::new(),
        }
    }

    /// As older servers answer: groups first, then each version's resources, whatever the client accepts.
    pub(crate) fn old() -> Discovery {
        Discovery {
            aggregated: false,
            ..Discovery::aggregated()
        }
    }

    pub(crate) fn kind(mut self, kind: Kind) -> Discovery {
        self.kinds.push(kind);
        self
    }

    /// A group whose own server does not answer.
    pub(crate) fn broken(mut self, group: &'static str) -> Discovery {
        self.broken.push(group);
        self
    }

    /// Answers discovery, `/version` and the health paths; an empty list for a known kind's collection; 404 for the rest.
    pub(crate) fn answer(&self, request: &HttpRequest) -> Reply {
        let path = request.path();
        let wants_aggregated = self.aggregated
            && request
                .header("accept")
                .is_some_and(|accept| accept.contains("as=APIGroupDiscoveryList"));
        match path.trim_matches('/').split('/').collect::<Vec<_>>()[..] {
            ["version"] => Reply::json(&json!({
                "major": "1", "minor": "36", "gitVersion": "v1.36.3", "platform": "linux/amd64",
            })),
            ["healthz" | "livez" | "readyz"] => Reply::text("ok"),
            ["api"] if wants_aggregated => self.aggregated_list(true),
            ["apis"] if wants_aggregated => self.aggregated_list(false),
            ["api"] => Reply::json(&json!({ "kind": "APIVersions", "versions": ["v1"] })),
            ["apis"] => Reply::json(&json!({
                "kind": "APIGroupList", "apiVersion": "v1",
                "groups": self.group_versions().map(old_group).collect::<Vec<_>>(),
            })),
            ["api", version] => self.resource_list("", version, path),
            ["apis", group, version] => self.resource_list(group, version, path),
            ["api", version, .., plural] => self.empty_list("", version, plural, path),
            ["apis", group, version, .., plural] => self.empty_list(group, version, plural, path),
            _ => Reply::not_found(path),
        }
    }

    /// The groups but core, each with its version, in the order of their first kind.
    fn group_versions(&self) -> impl Iterator<Item = (&'static str, &'static str)> {
        let mut seen = Vec::new();
        for kind in &self.kinds {
            let entry = (kind.group, kind.version);
            if !kind.group.is_empty() && !seen.contains(&entry) {
                seen.push(entry);
            }
        }
        seen.into_iter()
    }

    fn aggregated_list(&self, core: bool) -> Reply {
        let mut group_versions: Vec<_> = self.group_versions().collect();
        if core {
            group_versions = vec![("", "v1")];
        }
        let items: Vec<_> = group_versions
            .into_iter()
            .map(|(group, version)| {
                let broken = self.broken.contains(&group);
                let resources: Vec<_> = self
                    .of(group, version)
                    .filter(|_| !broken)
                    .map(aggregated_kind)
                    .collect();
                let freshness = if broken { "Stale" } else { "Current" };
                let entry = json!({
                    "version": version, "resources": resources, "freshness": freshness,
                });
                json!({ "metadata": { "name": group }, "versions": [entry] })
            })
            .collect();
        let list = json!({
            "kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2",
            "metadata": {}, "items": items,
        });
        Reply::json(&list)
            .content_type("application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList")
    }

    fn resource_list(&self, group: &str, version: &str, path: &str) -> Reply {
        if self.broken.contains(&group) {
            return Reply::bytes(503, "text/plain", "service unavailable\n");
        }
        let resources: Vec<_> = self.of(group, version).map(old_kind).collect();
        if resources.is_empty() {
            return Reply::not_found(path);
        }
        Reply::json(&json!({
            "kind": "APIResourceList", "apiVersion": "v1",
            "groupVersion": group_version(group, version), "resources": resources,
        }))
    }

    fn empty_list(&self, group: &str, version: &str, plural: &str, path: &str) -> Reply {
        match self.of(group, version).find(|kind| kind.plural == plural) {
            Some(kind) => Reply::json(&json!({
                "kind": format!("{}List", kind.kind), "apiVersion": group_version(group, version),
                "metadata": { "resourceVersion": "1" }, "items": [],
            })),
            None => Reply::not_found(path),
        }
    }

    fn of(&self, group: &str, version: &str) -> impl Iterator<Item = &Kind> {
        self.kinds
            .iter()
            .filter(move |kind| kind.group == group && kind.version == version)
    }
}

fn group_version(group: &str, version: &str) -> String {
    if group.is_empty() {
        version.to_owned()
    } else {
        format!("{group}/{version}")
    }
}

fn old_group((group, version): (&str, &str)) -> Value {
    let entry = json!({ "groupVersion": group_version(group, version), "version": version });
    json!({ "name": group, "versions": [entry], "preferredVersion": entry })
}

fn old_kind(kind: &Kind) -> Value {
    json!({
        "name": kind.plural, "singularName": kind.kind.to_lowercase(), "kind": kind.kind,
        "namespaced": kind.namespaced, "verbs": VERBS, "shortNames": kind.short_names,
    })
}

fn aggregated_kind(kind: &Kind) -> Value {
    json!({
        "resource": kind.plural, "singularResource": kind.kind.to_lowercase(),
        "responseKind": { "group": kind.group, "version": kind.version, "kind": kind.kind },
        "scope": if kind.namespaced { "Namespaced" } else { "Cluster" },
        "verbs": VERBS, "shortNames": kind.short_names,
    })
}

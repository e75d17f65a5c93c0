//! Discovery: asking the API server which resources it has.
//!
//! Runs on the thread that asks for a kind. Two requests bring everything where the server offers aggregated discovery; older
//! servers are asked group by group. A group whose server is down is remembered by name and does not hide the others. The
//! answer is kept until a name is missed, and then asked for again, but not more often than the pace the caller set.

use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;

use super::client::{Client, Method, Request};
use super::error::Error;
use super::renewed::Renewed;
use super::resource::{Resource, ResourceMap, group_version};

/// The newest form first; a server that knows none of them answers in the old form.
const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,\
    application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json";

/// The resources of one cluster, shared by everyone who asks.
pub(crate) struct Discovery {
    client: Client,
    pace: Duration,
    map: Renewed<ResourceMap>,
}

impl Discovery {
    pub(crate) fn new(client: Client, pace: Duration) -> Discovery {
        Discovery {
            client,
            pace,
            map: Renewed::new(),
        }
    }

    /// Finds a resource by any of its names. A miss asks the server again, unless it was asked just now.
    pub(crate) fn resolve(&self, name: &str, api_version: Option<&str>) -> Result<Resource, Error> {
        let known = match self.map.current() {
            Some(known) => known,
            None => self.map.renew(None, || fetch(&self.client))?,
        };
        let missed = match known.value.lookup(name, api_version) {
            Ok(resource) => return Ok(resource.clone()),
            Err(missed) => missed,
        };
        if known.since.elapsed() < self.pace {
            return Err(missed);
        }
        let newer = self.map.renew(Some(known.since), || fetch(&self.client))?;
        newer.value.lookup(name, api_version).cloned()
    }

    #[cfg_attr(not(test), expect(dead_code, reason = "tests look at the whole map"))]
    /// Everything that is known, asked for if nothing is known yet.
    pub(crate) fn map(&self) -> Result<Arc<ResourceMap>, Error> {
        match self.map.current() {
            Some(known) => Ok(known.value),
            None => Ok(self.map.renew(None, || fetch(&self.client))?.value),
        }
    }
}

/// What a person wants to know about a resource, for the command line.
pub(crate) fn describe(
    discovery: &Discovery,
    name: &str,
    api_version: Option<&str>,
) -> Result<String, Error> {
    let resource = discovery.resolve(name, api_version)?;
    let list = |words: &[String]| match words {
        [] => "-".to_owned(),
        words => words.join(", "),
    };
    let scope = if resource.namespaced {
        "namespaced"
    } else {
        "cluster"
    };
    Ok(format!(
        "kind:         {}\napiVersion:   {}\nplural:       {}\nsingular:     {}\nshort names:  {}\nscope:        {scope}\nverbs:        {}\nsubresources: {}\n",
        resource.kind,
        resource.api_version(),
        resource.plural,
        resource.singular,
        list(&resource.short_names),
        list(&resource.verbs),
        list(&resource.subresources),
    ))
}

#[derive(Default)]
struct Found {
    resources: Vec<Resource>,
    unavailable: Vec<String>,
}

fn fetch(client: &Client) -> Result<ResourceMap, Error> {
    let mut found = Found::default();
    // Core first: its kinds win over those of the same name in a group.
    for root in ["/api", "/apis"] {
        let answer: Value = client
            .send(&Request {
                accept: AGGREGATED,
                ..Request::new(Method::Get, root)
            })?
            .json()?;
        match answer.get("kind").and_then(Value::as_str) {
            Some("APIGroupDiscoveryList") => found.add_aggregated(parse(root, answer)?),
            Some("APIVersions") => {
                let core: CoreVersions = parse(root, answer)?;
                for version in core.versions {
                    found.add_old(client, "", &version)?;
                }
            }
            Some("APIGroupList") => {
                let groups: Groups = parse(root, answer)?;
                for group in groups.groups {
                    for version in group.in_order() {
                        found.add_old(client, &group.name, &version)?;
                    }
                }
            }
            other => {
                let kind = other.unwrap_or("nothing");
                return Err(not_discovery(root, format!("kind is {kind:?}")));
            }
        }
    }
    Ok(ResourceMap::new(found.resources, found.unavailable))
}

fn parse<T: serde::de::DeserializeOwned>(path: &str, answer: Value) -> Result<T, Error> {
    serde_json::from_value(answer).map_err(|error| not_discovery(path, error.to_string()))
}

fn not_discovery(path: &str, detail: String) -> Error {
    Error::NotJson {
        call: super::error::Call {
            method: "GET",
            path: path.to_owned(),
        },
        detail,
    }
}

impl Found {
    fn add_aggregated(&mut self, list: Aggregated) {
        for group in list.items {
            let name = group.metadata.name.unwrap_or_default();
            for version in group.versions {
                if version.freshness.as_deref() == Some("Stale") {
                    self.unavailable
                        .push(group_version(&name, &version.version));
                }
                for entry in version.resources {
                    self.resources.push(Resource {
                        group: name.clone(),
                        version: version.version.clone(),
                        kind: entry
                            .response_kind
                            .map(|kind| kind.kind)
                            .unwrap_or_default(),
                        plural: entry.resource,
                        singular: entry.singular_resource,
                        short_names: entry.short_names,
                        namespaced: entry.scope == "Namespaced",
                        verbs: entry.verbs,
                        subresources: entry
                            .subresources
                            .into_iter()
                            .map(|entry| entry.subresource)
                            .collect(),
                    });
                }
            }
        }
    }

    /// Asks for one group version. Its failure is remembered; only when we cannot go on at all is it returned.
    fn add_old(&mut self, client: &Client, group: &str, version: &str) -> Result<(), Error> {
        let path = if group.is_empty() {
            format!("/api/{version}")
        } else {
            format!("/apis/{group}/{version}")
        };
        match client.get_json::<OldList>(&path) {
            Ok(list) => {
                self.resources.extend(old_resources(group, version, list));
                Ok(())
            }
            Err(error @ (Error::Stopped | Error::Config(_) | Error::Credential(_))) => Err(error),
            Err(error) if group.is_empty() || error.is_unauthorized() => Err(error),
            Err(_) => {
                self.unavailable.push(group_version(group, version));
                Ok(())
            }
        }
    }
}

/// In the old form a subresource is an entry of its own, `pods/status`.
fn old_resources(group: &str, version: &str, list: OldList) -> Vec<Resource> {
    let (subresources, resources): (Vec<OldEntry>, Vec<OldEntry>) = list
        .resources
        .into_iter()
        .partition(|entry| entry.name.contains('/'));
    resources
        .into_iter()
        .map(|entry| Resource {
            group: group.to_owned(),
            version: version.to_owned(),
            subresources: subresources
                .iter()
                .filter_map(|sub| sub.name.split_once('/'))
                .filter(|(parent, _)| *parent == entry.name)
                .map(|(_, name)| name.to_owned())
                .collect(),
            singular: entry.singular_name.unwrap_or_default(),
            short_names: entry.short_names.unwrap_or_default(),
            verbs: entry.verbs.unwrap_or_default(),
            plural: entry.name,
            kind: entry.kind,
            namespaced: entry.namespaced,
        })
        .collect()
}

#[derive(Deserialize)]
struct Aggregated {
    #[serde(default)]
    items: Vec<AggregatedGroup>,
}

#[derive(Deserialize)]
struct AggregatedGroup {
    #[serde(default)]
    metadata: Named,
    #[serde(default)]
    versions: Vec<AggregatedVersion>,
}

#[derive(Deserialize, Default)]
struct Named {
    name: Option<String>,
}

#[derive(Deserialize)]
struct AggregatedVersion {
    version: String,
    #[serde(default)]
    resources: Vec<AggregatedEntry>,
    freshness: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct AggregatedEntry {
    resource: String,
    response_kind: Option<Kind>,
    #[serde(default)]
    scope: String,
    #[serde(default)]
    singular_resource: String,
    #[serde(default)]
    verbs: Vec<String>,
    #[serde(default)]
    short_names: Vec<String>,
    #[serde(default)]
    subresources: Vec<AggregatedSub>,
}

#[derive(Deserialize)]
struct Kind {
    kind: String,
}

#[derive(Deserialize)]
struct AggregatedSub {
    subresource: String,
}

#[derive(Deserialize)]
struct CoreVersions {
    #[serde(default)]
    versions: Vec<String>,
}

#[derive(Deserialize)]
struct Groups {
    #[serde(default)]
    groups: Vec<OldGroup>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct OldGroup {
    name: String,
    #[serde(default)]
    versions: Vec<OldVersion>,
    preferred_version: Option<OldVersion>,
}

#[derive(Deserialize)]
struct OldVersion {
    version: String,
}

impl OldGroup {
    /// The preferred version first, the others as the server lists them.
    fn in_order(&self) -> Vec<String> {
        let preferred = self.preferred_version.iter();
        let mut order: Vec<String> = Vec::new();
        for version in preferred.chain(&self.versions) {
            if !order.contains(&version.version) {
                order.push(version.version.clone());
            }
        }
        order
    }
}

#[derive(Deserialize)]
struct OldList {
    #[serde(default)]
    resources: Vec<OldEntry>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct OldEntry {
    name: String,
    kind: String,
    #[serde(default)]
    namespaced: bool,
    singular_name: Option<String>,
    short_names: Option<Vec<String>>,
    verbs: Option<Vec<String>>,
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::sync::atomic::{AtomicBool, Ordering};

    use serde_json::json;

    use super::*;
    use crate::kube::scripted::{Server, answer};

    const LONG: Duration = Duration::from_secs(600);

    fn path(line: &str) -> &str {
        line.split(' ').nth(1).unwrap()
    }

    fn entry(plural: &str, kind: &str, verbs: &[&str]) -> Value {
        json!({
            "resource": plural,
            "responseKind": {"group": "", "version": "", "kind": kind},
            "scope": if kind == "Node" { "Cluster" } else { "Namespaced" },
            "singularResource": kind.to_lowercase(),
            "verbs": verbs,
            "subresources": [{"subresource": "status", "verbs": ["get"]}],
        })
    }

    fn group(name: &str, versions: &Value) -> Value {
        json!({"metadata": {"name": name}, "versions": versions})
    }

    fn aggregated(items: &Value) -> String {
        json!({"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "items": items})
            .to_string()
    }

    #[test]
    fn aggregated_discovery_takes_two_calls_and_marks_what_is_stale() {
        let server = Server::start(|seen, stream| {
            let body = match path(&seen.line) {
                "/api" => aggregated(&json!([group(
                    "",
                    &json!([{"version": "v1", "resources": [entry("pods", "Pod", &["list"]), entry("nodes", "Node", &["get"]), entry("bindings", "Binding", &[])]}])
                )])),
                _ => aggregated(&json!([
                    group(
                        "apps",
                        &json!([{"version": "v1", "resources": [entry("deployments", "Deployment", &["list", "watch"])], "freshness": "Current"}])
                    ),
                    group(
                        "metrics.k8s.io",
                        &json!([{"version": "v1beta1", "freshness": "Stale"}])
                    ),
                ])),
            };
            stream.write_all(&answer(200, "", &body)).is_ok()
        });
        let discovery = Discovery::new(server.client(), LONG);
        let deployment = discovery.resolve("deployment", None).unwrap();
        assert_eq!(deployment.gvk(), "apps/v1.Deployment");
        assert_eq!(deployment.subresources, ["status"]);
        assert!(deployment.namespaced && deployment.has_verb("watch"));
        assert!(!discovery.resolve("nodes", Some("v1")).unwrap().namespaced);
        let error = discovery
            .resolve("PodMetrics", None)
            .unwrap_err()
            .to_string();
        assert!(error.contains("metrics.k8s.io/v1beta1"), "{error}");
        discovery.resolve("Binding", None).unwrap_err();
        assert_eq!(server.seen().len(), 2);
        let accept = server.seen()[0].header("accept").unwrap().to_owned();
        assert!(
            accept.starts_with(
                "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,"
            )
        );
        assert_eq!(
            describe(&discovery, "deployments", None).unwrap(),
            "kind:         Deployment\napiVersion:   apps/v1\nplural:       deployments\nsingular:     deployment\n\
             short names:  -\nscope:        namespaced\nverbs:        list, watch\nsubresources: status\n"
        );
    }

    #[test]
    fn an_old_server_is_asked_group_by_group_and_a_broken_one_hides_nothing() {
        let server = Server::start(|seen, stream| {
            let resource = |name: &str, kind: &str| json!({"name": name, "singularName": "", "namespaced": true, "kind": kind, "verbs": ["list"]});
            let (code, body) = match path(&seen.line) {
                "/api" => (200, json!({"kind": "APIVersions", "versions": ["v1"]})),
                "/apis" => (
                    200,
                    json!({"kind": "APIGroupList", "groups": [
                        {"name": "broken.io", "versions": [{"version": "v1"}], "preferredVersion": {"version": "v1"}},
                        {"name": "batch", "versions": [{"version": "v1beta1"}, {"version": "v1"}], "preferredVersion": {"version": "v1"}},
                    ]}),
                ),
                "/api/v1" => (
                    200,
                    json!({"kind": "APIResourceList", "resources": [resource("pods", "Pod"), resource("pods/log", "Pod"), resource("pods/status", "Pod")]}),
                ),
                "/apis/batch/v1" | "/apis/batch/v1beta1" => (
                    200,
                    json!({"kind": "APIResourceList", "resources": [resource("cronjobs", "CronJob")]}),
                ),
                _ => (503, json!({"kind": "Status", "message": "down"})),
            };
            stream
                .write_all(&answer(code, "", &body.to_string()))
                .is_ok()
        });
        let discovery = Discovery::new(server.client(), LONG);
        assert_eq!(
            discovery.resolve("CronJob", None).unwrap().gvk(),
            "batch/v1.CronJob"
        );
        assert_eq!(
            discovery.resolve("pods", None).unwrap().subresources,
            ["log", "status"]
        );
        let error = discovery.resolve("Thing", None).unwrap_err().to_string();
        assert!(error.contains("broken.io/v1"), "{error}");
        assert_eq!(discovery.map().unwrap().unavailable(), ["broken.io/v1"]);
    }

    #[test]
    fn a_miss_asks_again_but_not_faster_than_the_pace() {
        let created = std::sync::Arc::new(AtomicBool::new(false));
        let now = std::sync::Arc::clone(&created);
        let server = Server::start(move |seen, stream| {
            let body = match path(&seen.line) {
                "/apis" if now.load(Ordering::SeqCst) => aggregated(&json!([group(
                    "stable.example.com",
                    &json!([{"version": "v1", "resources": [entry("crontabs", "CronTab", &["list"])]}])
                )])),
                _ => aggregated(&json!([])),
            };
            stream.write_all(&answer(200, "", &body)).is_ok()
        });
        let slow = Discovery::new(server.client(), LONG);
        let fast = Discovery::new(server.client(), Duration::ZERO);
        let error = slow.resolve("CronTab", None).unwrap_err();
        assert!(error.retryable());
        fast.resolve("CronTab", None).unwrap_err();
        created.store(true, Ordering::SeqCst);
        slow.resolve("CronTab", None).unwrap_err();
        let found = fast.resolve("CronTab", None).unwrap();
        assert_eq!(
            found.path(Some("a"), None).unwrap(),
            "/apis/stable.example.com/v1/namespaces/a/crontabs"
        );
    }

    #[test]
    fn something_that_is_no_api_server_is_not_taken_for_an_empty_one() {
        for body in ["{}", "{\"kind\":\"Pod\"}", "[1]", "<html>"] {
            let server = Server::saying(answer(200, "", body));
            let error = Discovery::new(server.client(), LONG)
                .resolve("Pod", None)
                .unwrap_err();
            assert!(matches!(error, Error::NotJson { .. }), "{body}: {error}");
        }
    }
}

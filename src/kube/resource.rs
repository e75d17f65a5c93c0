//! Resources: what a kind is called, where it lives, and how it is found by any of its names.
//!
//! Pure, without a client, so that it works as well for a cluster that exists only as files. A `ResourceMap` is made once from
//! a discovery and never changes; the order of its entries is the server's order of preference, core group first, and that
//! order decides between kinds that share a name.

use std::collections::BTreeSet;
use std::fmt::Write;

use super::error::{Error, Unknown};
use crate::operation::is_path_segment;

/// One resource in one version.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Resource {
    /// Empty for the core group.
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) plural: String,
    pub(crate) singular: String,
    pub(crate) kind: String,
    pub(crate) short_names: Vec<String>,
    pub(crate) namespaced: bool,
    pub(crate) verbs: Vec<String>,
    /// `status`, `scale` and the like.
    pub(crate) subresources: Vec<String>,
}

/// Every resource of a cluster, most preferred first.
#[derive(Debug, Clone, Default)]
pub(crate) struct ResourceMap {
    resources: Vec<Resource>,
    /// Group versions that could not be asked.
    unavailable: Vec<String>,
}

impl Resource {
    /// `v1` or `apps/v1`.
    pub(crate) fn api_version(&self) -> String {
        group_version(&self.group, &self.version)
    }

    /// `v1.Service` or `networking.k8s.io/v1.Ingress` (HX-23).
    pub(crate) fn gvk(&self) -> String {
        format!("{}.{}", self.api_version(), self.kind)
    }

    /// The path of the collection or of one object. The namespace of a cluster-scoped resource is left out. A name that is no
    /// single piece of a path is refused: the path would be that of something else.
    pub(crate) fn path(
        &self,
        namespace: Option<&str>,
        name: Option<&str>,
    ) -> Result<String, Error> {
        let mut path = if self.group.is_empty() {
            format!("/api/{}", segment(&self.version)?)
        } else {
            format!(
                "/apis/{}/{}",
                segment(&self.group)?,
                segment(&self.version)?
            )
        };
        if let Some(namespace) = namespace.filter(|text| self.namespaced && !text.is_empty()) {
            path.push_str("/namespaces/");
            path.push_str(&segment(namespace)?);
        }
        path.push('/');
        path.push_str(&segment(&self.plural)?);
        if let Some(name) = name.filter(|text| !text.is_empty()) {
            path.push('/');
            path.push_str(&segment(name)?);
        }
        Ok(path)
    }

    #[cfg_attr(not(test), expect(dead_code, reason = "rules for hooks ask for it"))]
    pub(crate) fn has_verb(&self, verb: &str) -> bool {
        self.verbs.iter().any(|known| known == verb)
    }

    fn is_called(&self, name: &str) -> bool {
        [&self.kind, &self.plural, &self.singular]
            .iter()
            .any(|own| own.eq_ignore_ascii_case(name))
    }

    fn is_called_for_short(&self, name: &str) -> bool {
        self.short_names
            .iter()
            .any(|own| own.eq_ignore_ascii_case(name))
    }
}

/// The `apiVersion` of a group and a version.
pub(super) fn group_version(group: &str, version: &str) -> String {
    if group.is_empty() {
        version.to_owned()
    } else {
        format!("{group}/{version}")
    }
}

/// One piece of a path. To encode a slash is not enough: the server decodes the whole path before it takes it apart, so that
/// the namespace `n%2Fconfigmaps` is the ConfigMaps of `n`. What it refuses in a name is therefore never sent.
pub(crate) fn segment(text: &str) -> Result<String, Error> {
    if !is_path_segment(text) {
        return Err(Error::NotASegment);
    }
    Ok(encode(text, b"-._~:@!$&'()*+,;="))
}

/// One value of a query.
pub(crate) fn query_value(text: &str) -> String {
    encode(text, b"-._~")
}

fn encode(text: &str, plain: &[u8]) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || plain.contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            // Writing to a String cannot fail.
            let _ = write!(encoded, "%{byte:02X}");
        }
    }
    encoded
}

impl ResourceMap {
    /// Resources without verbs cannot be used for anything and are left out.
    pub(crate) fn new(resources: Vec<Resource>, unavailable: Vec<String>) -> ResourceMap {
        ResourceMap {
            resources: resources
                .into_iter()
                .filter(|resource| !resource.verbs.is_empty())
                .collect(),
            unavailable,
        }
    }

    #[cfg_attr(not(test), expect(dead_code, reason = "only errors tell of it"))]
    pub(crate) fn unavailable(&self) -> &[String] {
        &self.unavailable
    }

    /// Finds a resource by kind, plural, singular or short name in any case, or by `plural.group`. Without `api_version` it is
    /// the version that the server prefers. A full name wins over a short one, wherever they stand.
    pub(crate) fn lookup(&self, name: &str, api_version: Option<&str>) -> Result<&Resource, Error> {
        let candidates = || {
            self.resources.iter().filter(|resource| {
                api_version.is_none_or(|wanted| wanted == resource.api_version())
            })
        };
        candidates()
            .find(|resource| resource.is_called(name))
            .or_else(|| candidates().find(|resource| resource.is_called_for_short(name)))
            .or_else(|| {
                let (name, group) = name.split_once('.')?;
                candidates().find(|resource| {
                    resource.group.eq_ignore_ascii_case(group) && resource.is_called(name)
                })
            })
            .ok_or_else(|| {
                Error::UnknownResource(Box::new(Unknown {
                    name: name.to_owned(),
                    api_version: api_version.map(str::to_owned),
                    hint: self.hint(name, api_version),
                    unavailable: self.unavailable.clone(),
                }))
            })
    }

    /// The nearest right answer to a wrong question.
    fn hint(&self, name: &str, api_version: Option<&str>) -> Option<String> {
        if let Some(wanted) = api_version {
            let versions: BTreeSet<String> = self
                .resources
                .iter()
                .filter(|resource| resource.is_called(name) || resource.is_called_for_short(name))
                .map(Resource::api_version)
                .collect();
            if !versions.is_empty() {
                let list = versions.into_iter().collect::<Vec<_>>().join(", ");
                return Some(format!("it has this kind in {list}"));
            }
            if !self
                .resources
                .iter()
                .any(|resource| resource.api_version() == wanted)
            {
                let known: BTreeSet<String> =
                    self.resources.iter().map(Resource::api_version).collect();
                return nearest(wanted, known.iter().map(String::as_str))
                    .map(|near| format!("it has no such apiVersion, did you mean {near:?}?"));
            }
        }
        let near = nearest(
            name,
            self.resources.iter().flat_map(|resource| {
                [&resource.kind, &resource.plural]
                    .into_iter()
                    .chain(&resource.short_names)
                    .map(String::as_str)
            }),
        )?;
        let resource = self
            .resources
            .iter()
            .find(|resource| resource.is_called(near) || resource.is_called_for_short(near))?;
        Some(format!("did you mean {near:?} ({})?", resource.gvk()))
    }
}

/// The nearest of the known words, when it is near enough to be a slip: one letter in three, and never in a word of two.
fn nearest<'a>(word: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let allowed = (word.chars().count() / 3).min(3);
    let word = word.to_lowercase();
    known
        .map(|candidate| (distance(&word, &candidate.to_lowercase()), candidate))
        .filter(|(steps, _)| *steps <= allowed)
        .min_by_key(|(steps, _)| *steps)
        .map(|(_, candidate)| candidate)
}

/// How many letters must be added, removed or replaced to make one word of the other (Levenshtein).
fn distance(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.chars().collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (above, letter) in one.chars().enumerate() {
        let mut diagonal = above;
        let mut left = above + 1;
        for (cell, other) in row.iter_mut().skip(1).zip(&other) {
            let replaced = diagonal + usize::from(letter != *other);
            diagonal = *cell;
            left = replaced.min(left + 1).min(*cell + 1);
            *cell = left;
        }
        if let Some(first) = row.first_mut() {
            *first = above + 1;
        }
    }
    row.last().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resource(group: &str, version: &str, plural: &str, kind: &str, short: &[&str]) -> Resource {
        Resource {
            group: group.to_owned(),
            version: version.to_owned(),
            plural: plural.to_owned(),
            singular: kind.to_lowercase(),
            kind: kind.to_owned(),
            short_names: short.iter().map(|name| (*name).to_owned()).collect(),
            namespaced: true,
            verbs: vec!["list".to_owned()],
            subresources: Vec::new(),
        }
    }

    fn map() -> ResourceMap {
        let mut silent = resource("", "v1", "bindings", "Binding", &[]);
        silent.verbs.clear();
        ResourceMap::new(
            vec![
                silent,
                resource("", "v1", "pods", "Pod", &["po"]),
                resource("", "v1", "events", "Event", &["ev"]),
                resource("apps", "v1", "deployments", "Deployment", &["deploy"]),
                resource(
                    "autoscaling",
                    "v2",
                    "horizontalpodautoscalers",
                    "HorizontalPodAutoscaler",
                    &["hpa"],
                ),
                resource(
                    "autoscaling",
                    "v1",
                    "horizontalpodautoscalers",
                    "HorizontalPodAutoscaler",
                    &["hpa"],
                ),
                resource("early.io", "v1", "earlies", "Early", &["late"]),
                resource("events.k8s.io", "v1", "events", "Event", &["ev"]),
                resource("late.io", "v1", "lates", "Late", &[]),
                resource("networking.k8s.io", "v1", "ingresses", "Ingress", &["ing"]),
                resource("metrics.k8s.io", "v1beta1", "pods", "PodMetrics", &[]),
            ],
            vec!["broken.io/v1".to_owned()],
        )
    }

    #[test]
    fn a_resource_is_found_by_any_of_its_names() {
        for (name, api_version, expected) in [
            ("Pod", None, "v1.Pod"),
            ("pods", None, "v1.Pod"),
            ("POD", None, "v1.Pod"),
            ("po", None, "v1.Pod"),
            ("event", None, "v1.Event"),
            ("Event", Some("events.k8s.io/v1"), "events.k8s.io/v1.Event"),
            ("deploy", Some("apps/v1"), "apps/v1.Deployment"),
            ("hpa", None, "autoscaling/v2.HorizontalPodAutoscaler"),
            (
                "HorizontalPodAutoscaler",
                Some("autoscaling/v1"),
                "autoscaling/v1.HorizontalPodAutoscaler",
            ),
            ("Late", None, "late.io/v1.Late"),
            (
                "ingresses.networking.k8s.io",
                None,
                "networking.k8s.io/v1.Ingress",
            ),
            (
                "pods.metrics.k8s.io",
                None,
                "metrics.k8s.io/v1beta1.PodMetrics",
            ),
            (
                "pods",
                Some("metrics.k8s.io/v1beta1"),
                "metrics.k8s.io/v1beta1.PodMetrics",
            ),
        ] {
            assert_eq!(
                map().lookup(name, api_version).unwrap().gvk(),
                expected,
                "{name}"
            );
        }
    }

    #[test]
    fn a_wrong_name_gets_the_nearest_right_one() {
        for (name, api_version, expected) in [
            (
                "Deploymnt",
                None,
                "did you mean \"Deployment\" (apps/v1.Deployment)?",
            ),
            (
                "ingress",
                Some("extensions/v1beta1"),
                "it has this kind in networking.k8s.io/v1",
            ),
            (
                "Event",
                Some("apps/v1"),
                "it has this kind in events.k8s.io/v1, v1",
            ),
            (
                "Thing",
                Some("app/v1"),
                "it has no such apiVersion, did you mean \"apps/v1\"?",
            ),
            ("Binding", None, "if a CRD defines it, create the CRD first"),
            ("Zebra", None, "broken.io/v1"),
        ] {
            let error = map().lookup(name, api_version).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
            assert!(
                error.contains(name) && error.contains("broken.io/v1"),
                "{error}"
            );
        }
    }

    #[test]
    fn paths_are_built_and_names_cannot_leave_them() {
        let pod = resource("", "v1", "pods", "Pod", &[]);
        let ingress = resource("networking.k8s.io", "v1", "ingresses", "Ingress", &[]);
        let mut role = resource(
            "rbac.authorization.k8s.io",
            "v1",
            "clusterroles",
            "ClusterRole",
            &[],
        );
        role.namespaced = false;
        for (resource, namespace, name, expected) in [
            (&pod, None, None, "/api/v1/pods"),
            (&pod, Some("a"), None, "/api/v1/namespaces/a/pods"),
            (&pod, Some("a"), Some("b"), "/api/v1/namespaces/a/pods/b"),
            (&pod, Some(""), Some(""), "/api/v1/pods"),
            (
                &ingress,
                Some("a"),
                Some("b"),
                "/apis/networking.k8s.io/v1/namespaces/a/ingresses/b",
            ),
            (
                &role,
                Some("a"),
                Some("system:node"),
                "/apis/rbac.authorization.k8s.io/v1/clusterroles/system:node",
            ),
            (
                &pod,
                Some("a.b"),
                Some("x?y#z"),
                "/api/v1/namespaces/a.b/pods/x%3Fy%23z",
            ),
        ] {
            assert_eq!(resource.path(namespace, name).unwrap(), expected);
        }
        for bad in ["../../secrets/x", "x/status", "/", "a%2Fb", "%", ".", ".."] {
            for (namespace, name) in [(bad, "a"), ("a", bad)] {
                pod.path(Some(namespace), Some(name)).unwrap_err();
            }
        }
        role.path(Some("left/out"), Some("a")).unwrap();
        assert_eq!(
            query_value("app in (a,b),!c=d"),
            "app%20in%20%28a%2Cb%29%2C%21c%3Dd"
        );
    }

    #[test]
    fn the_distance_of_words_counts_letters() {
        for (one, other, expected) in [
            ("", "", 0),
            ("abc", "", 3),
            ("", "ab", 2),
            ("kitten", "sitting", 3),
            ("pod", "pods", 1),
            ("größe", "grösse", 2),
        ] {
            assert_eq!(distance(one, other), expected, "{one} {other}");
        }
    }
}

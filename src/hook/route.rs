//! Webhook paths and the hook and binding behind each.
//!
//! Made on the main thread at start, read by every connection thread afterwards. A path is `/hooks/<hook>/<webhook>`; the
//! original's `/hooks/<webhook>` is an alias as long as only one webhook has it. Two webhooks never share a path: that is
//! refused when hooks are loaded.

use super::Hook;
use super::binding::AdmissionKind;
use super::name::{path_segment, webhook_id};

/// The first segment of every path, as in the original.
const ROOT: &str = "hooks";

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Route {
    /// What is registered with the API server.
    pub(crate) path: String,
    /// The original's path, unless several webhooks would have it.
    pub(crate) alias: Option<String>,
    /// Index into the registry's hooks.
    pub(crate) hook: usize,
    pub(crate) kind: AdmissionKind,
    /// Index into the hook's bindings of that kind.
    pub(crate) binding: usize,
}

/// Why a webhook cannot have a route of its own. Names are `<hook file>` and webhook name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Duplicate {
    /// Two webhooks would be registered under one path.
    Path {
        path: String,
        first: (String, String),
        second: (String, String),
    },
    /// Two hooks use one webhook name, which the API server takes only once in a configuration.
    Name {
        name: String,
        kind: AdmissionKind,
        first: String,
        second: String,
    },
}

impl std::fmt::Display for Duplicate {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Path {
                path,
                first,
                second,
            } => write!(
                out,
                "webhook '{}' of hook '{}' and webhook '{}' of hook '{}' would both be registered under path '{path}': rename one of them",
                first.1, first.0, second.1, second.0
            ),
            Self::Name {
                name,
                kind,
                first,
                second,
            } => write!(
                out,
                "hooks '{first}' and '{second}' both have a {} webhook named '{name}': rename one of them",
                kind.section()
            ),
        }
    }
}

/// The routes of one hook, checked against those of the hooks before it.
pub(super) fn routes_of(
    hook: &Hook,
    index: usize,
    hooks: &[Hook],
    routes: &[Route],
) -> Result<Vec<Route>, Duplicate> {
    let mut own: Vec<Route> = Vec::new();
    let segment = path_segment(&hook.name);
    for kind in [AdmissionKind::Validating, AdmissionKind::Mutating] {
        for (binding, admission) in hook.config.admission(kind).iter().enumerate() {
            let id = webhook_id(&admission.name);
            let path = format!("/{ROOT}/{segment}/{id}");
            for route in routes.iter().chain(&own) {
                let other = hooks.get(route.hook).unwrap_or(hook);
                let other_name = binding_name(other, route);
                if route.path == path {
                    return Err(Duplicate::Path {
                        path,
                        first: (other.name.clone(), other_name.to_owned()),
                        second: (hook.name.clone(), admission.name.clone()),
                    });
                }
                if route.kind == kind && other_name == admission.name {
                    return Err(Duplicate::Name {
                        name: admission.name.clone(),
                        kind,
                        first: other.name.clone(),
                        second: hook.name.clone(),
                    });
                }
            }
            own.push(Route {
                path,
                alias: Some(format!("/{ROOT}/{id}")),
                hook: index,
                kind,
                binding,
            });
        }
    }
    Ok(own)
}

fn binding_name<'a>(hook: &'a Hook, route: &Route) -> &'a str {
    hook.config
        .admission(route.kind)
        .get(route.binding)
        .map_or("", |binding| &binding.name)
}

/// Takes the alias from every webhook that would share it: nobody could say which of them is meant.
pub(super) fn drop_shared_aliases(routes: &mut [Route]) {
    let shared: Vec<Option<String>> = routes
        .iter()
        .map(|route| route.alias.clone())
        .filter(|alias| routes.iter().filter(|route| route.alias == *alias).count() > 1)
        .collect();
    for route in routes {
        if shared.contains(&route.alias) {
            route.alias = None;
        }
    }
}

/// A request's path without its query, with empty segments left out, as the original compares them: `//hooks///x?y` is `/hooks/x`.
pub(crate) fn normalize(path: &str) -> String {
    let path = path.split(['?', '#']).next().unwrap_or_default();
    let mut normal = String::with_capacity(path.len());
    for segment in path.split('/').filter(|segment| !segment.is_empty()) {
        normal.push('/');
        normal.push_str(segment);
    }
    normal
}

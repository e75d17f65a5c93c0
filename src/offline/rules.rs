//! Does the API server ask this webhook about this request? Rules, scope, selectors, equivalent versions, match conditions.
//!
//! Pure, on the workers. Each step is the API server's own, in its order (apiserver `plugin/webhook/generic`, `predicates`,
//! `matchconditions`): namespace selector, object selector, rules, rules of equivalent resources, conditions. What depends on something
//! that no file says is said to be unknown.

use serde_json::Value;

use super::cluster::{Cluster, Labels, NAME_LABEL, labels};
use super::kinds::{Gvk, Kinds};
use super::outcome::{Operation, Verdict};
use super::request::{Gvr, Request};
use crate::cel::{self, Expression, Variables};
use crate::hook::binding::{AdmissionBinding, FailurePolicy, Rule};
use crate::hook::selector::{LabelOperator, LabelSelector};

/// A webhook as it would be registered.
pub(super) struct Rules {
    binding: AdmissionBinding,
    conditions: Vec<Condition>,
    fails_closed: bool,
}

struct Condition {
    source: String,
    expression: Expression,
}

/// Whether a webhook is asked.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Matched {
    /// Not asked; the text says what should be known for that and is not.
    No(Option<String>),
    /// Asked, and shown the request as one about this resource.
    Yes(Invocation),
    /// Not asked, and the request is refused (or its fate is unknown) because that could not be found out.
    Stopped(Verdict),
}

/// How a webhook is shown a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Invocation {
    pub(super) kind: Gvk,
    pub(super) resource: Gvr,
    /// The object changes its apiVersion for it.
    pub(super) is_converted: bool,
    /// What should be known for the verdict and is not.
    pub(super) note: Option<String>,
}

impl Rules {
    /// Refuses what the API server would not register. `default` is the failure policy of bindings that name none.
    pub(super) fn new(
        binding: &AdmissionBinding,
        default: FailurePolicy,
        kinds: &Kinds,
    ) -> Result<Rules, String> {
        let mut binding = binding.clone();
        for rule in &mut binding.rules {
            rule.resources = rule
                .resources
                .iter()
                .map(|name| plural(name, kinds))
                .collect();
        }
        let mut conditions = Vec::new();
        for condition in &binding.match_conditions {
            let text = |key: &str| {
                condition
                    .get(key)
                    .and_then(Value::as_str)
                    .unwrap_or_default()
            };
            let source = text("expression");
            let expression = Expression::parse(source).map_err(|error| {
                format!(
                    "webhook '{}': matchConditions '{}': {error}; the API server would refuse to register it",
                    binding.name,
                    text("name")
                )
            })?;
            conditions.push(Condition {
                source: source.to_owned(),
                expression,
            });
        }
        Ok(Rules {
            fails_closed: binding.failure_policy.unwrap_or(default) == FailurePolicy::Fail,
            conditions,
            binding,
        })
    }

    /// The API server's question before it asks.
    pub(super) fn matched(&self, request: &Request, kinds: &Kinds, cluster: &Cluster) -> Matched {
        if is_exempt(&request.kind) {
            return Matched::No(None);
        }
        let (is_selected, note) = self.selects_namespace(request, cluster);
        if (!is_selected && note.is_none()) || !self.selects_object(request) {
            return Matched::No(None);
        }
        let mut invocation = match self.invocation(request, kinds) {
            Matched::Yes(invocation) => invocation,
            other => return other,
        };
        if !is_selected {
            return Matched::No(note);
        }
        invocation.note = note;
        self.weigh(request, invocation)
    }

    /// Also says what is not known, where it makes a difference.
    fn selects_namespace(&self, request: &Request, cluster: &Cluster) -> (bool, Option<String>) {
        let Some(selector) = &self.binding.namespace_selector else {
            return (true, None);
        };
        let is_namespace = request.resource.plural == "namespaces";
        if request.namespace.is_empty() && !is_namespace {
            return (true, None);
        }
        let writes = matches!(request.operation, Operation::Create | Operation::Update);
        if is_namespace && request.subresource.is_empty() && writes {
            let own = request.object.as_ref().map(labels).unwrap_or_default();
            return (selector.matches(&own), None);
        }
        if let Some(labels) = cluster.namespace_labels(&request.namespace) {
            return (selector.matches(labels), None);
        }
        let name = (NAME_LABEL.to_owned(), request.namespace.clone());
        let is_selected = selector.matches(&Labels::from([name]));
        let note = needs_more(selector).then(|| {
            format!(
                "namespace '{}' is not known, so it is taken to have no labels but its name; give it with --objects or -f",
                request.namespace
            )
        });
        (is_selected, note)
    }

    fn selects_object(&self, request: &Request) -> bool {
        let Some(selector) = self
            .binding
            .object_selector
            .as_ref()
            .filter(|one| !is_empty(one))
        else {
            return true;
        };
        // The options of a connection are no object with labels.
        let has_labels = |object: &&Value| object.get("metadata").is_some_and(Value::is_object);
        [&request.object, &request.old_object]
            .into_iter()
            .flatten()
            .filter(has_labels)
            .any(|object| selector.matches(&labels(object)))
    }

    fn invocation(&self, request: &Request, kinds: &Kinds) -> Matched {
        let rules = &self.binding.rules;
        if rules
            .iter()
            .any(|rule| matches(rule, request, &request.resource))
        {
            return Matched::Yes(Invocation {
                kind: request.kind.clone(),
                resource: request.resource.clone(),
                is_converted: false,
                note: None,
            });
        }
        let Gvr {
            group,
            version,
            plural,
        } = &request.resource;
        let Some(resource) = kinds.named(group, version, plural) else {
            return Matched::No(None);
        };
        for rule in rules {
            for other in kinds.equivalents(resource) {
                let shown = Gvr {
                    group: other.group.clone(),
                    version: other.version.clone(),
                    plural: other.plural.clone(),
                };
                if !matches(rule, request, &shown) {
                    continue;
                }
                let is_own_kind = request.kind.kind == resource.kind;
                if is_own_kind && !kinds.converts_plainly(resource) {
                    return Matched::Stopped(Verdict::Unjudged {
                        reason: format!(
                            "the webhook asks for {0}, and only an API server can convert {1} to it: write the object as {0}, or let the rule name {1}, too",
                            other.api_version(),
                            resource.api_version()
                        ),
                    });
                }
                return Matched::Yes(Invocation {
                    kind: if is_own_kind {
                        Gvk::of(other)
                    } else {
                        request.kind.clone()
                    },
                    resource: shown,
                    is_converted: is_own_kind,
                    note: None,
                });
            }
        }
        Matched::No(None)
    }

    /// Match conditions: one that is false decides; errors go by the failure policy.
    fn weigh(&self, request: &Request, invocation: Invocation) -> Matched {
        if self.conditions.is_empty() {
            return Matched::Yes(invocation);
        }
        let convert = |object: &Value| invocation.converted(object);
        let (object, old) = (
            request.object.as_ref().map(convert),
            request.old_object.as_ref().map(convert),
        );
        let attributes = request.attributes(&invocation.kind, &invocation.resource);
        let attributes = Value::Object(attributes);
        let variables = Variables {
            object: object.as_ref(),
            old_object: old.as_ref(),
            request: Some(&attributes),
        };
        let (mut errors, mut unknown) = (Vec::new(), None);
        for condition in &self.conditions {
            match condition.expression.evaluate(&variables) {
                cel::Outcome::Bool(true) => {}
                cel::Outcome::Bool(false) => return Matched::No(None),
                cel::Outcome::Error(error) => errors.push(format!(
                    "expression '{}' resulted in error: {error}",
                    condition.source
                )),
                cel::Outcome::CannotJudge(reason) => {
                    unknown.get_or_insert((condition.source.clone(), reason));
                }
            }
        }
        if let Some((source, reason)) = unknown {
            return Matched::Stopped(Verdict::Unjudged {
                reason: format!(
                    "matchConditions '{source}' cannot be judged without a cluster: {reason}"
                ),
            });
        }
        match errors.as_slice() {
            [] => Matched::Yes(invocation),
            _ if !self.fails_closed => Matched::No(None),
            [error] => Matched::Stopped(forbidden(request, error)),
            errors => Matched::Stopped(forbidden(request, &format!("[{}]", errors.join(", ")))),
        }
    }
}

impl Invocation {
    /// The object as the webhook is shown it.
    pub(super) fn converted(&self, object: &Value) -> Value {
        let mut object = object.clone();
        if self.is_converted
            && let Some(version) = object.get_mut("apiVersion")
        {
            let Gvk {
                group,
                version: name,
                ..
            } = &self.kind;
            *version = if group.is_empty() {
                Value::from(name.as_str())
            } else {
                Value::from(format!("{group}/{name}"))
            };
        }
        object
    }
}

/// The words of the API server for a condition that it cannot evaluate.
fn forbidden(request: &Request, error: &str) -> Verdict {
    let Gvr { group, plural, .. } = &request.resource;
    let mut subject = plural.clone();
    if !group.is_empty() {
        subject.push_str(&format!(".{group}"));
    }
    if !request.name.is_empty() {
        subject.push_str(&format!(" {:?}", request.name));
    }
    Verdict::Denied {
        message: format!("{subject} is forbidden: {error}"),
        code: 403,
    }
}

/// What webhooks are never asked about, or nobody could repair them.
fn is_exempt(kind: &Gvk) -> bool {
    kind.group == "admissionregistration.k8s.io"
        && matches!(
            &*kind.kind,
            "ValidatingWebhookConfiguration"
                | "MutatingWebhookConfiguration"
                | "ValidatingAdmissionPolicy"
                | "ValidatingAdmissionPolicyBinding"
                | "MutatingAdmissionPolicy"
                | "MutatingAdmissionPolicyBinding"
        )
}

fn matches(rule: &Rule, request: &Request, resource: &Gvr) -> bool {
    let has =
        |items: &[String], wanted: &str| items.iter().any(|item| item == "*" || item == wanted);
    let is_namespace =
        resource.group.is_empty() && resource.version == "v1" && resource.plural == "namespaces";
    let in_scope = match rule.scope.as_deref() {
        Some("Namespaced") => !is_namespace && !request.namespace.is_empty(),
        Some("Cluster") => is_namespace || request.namespace.is_empty(),
        _ => true,
    };
    in_scope
        && has(&rule.operations, request.operation.as_str())
        && has(&rule.api_groups, &resource.group)
        && has(&rule.api_versions, &resource.version)
        && rule.resources.iter().any(|written| {
            let (name, subresource) = written.split_once('/').unwrap_or((written, ""));
            (name == "*" || name == resource.plural)
                && (subresource == "*" || subresource == request.subresource)
        })
}

/// SO-19: a Kind or a short name is registered as its plural.
fn plural(written: &str, kinds: &Kinds) -> String {
    let (name, subresource) = match written.split_once('/') {
        Some((name, subresource)) => (name, format!("/{subresource}")),
        None => (written, String::new()),
    };
    match kinds.lookup(name, None) {
        Some(resource) if name != "*" => format!("{}{subresource}", resource.plural),
        _ => written.to_owned(),
    }
}

fn is_empty(selector: &LabelSelector) -> bool {
    selector.match_labels.is_empty() && selector.match_expressions.is_empty()
}

/// Whether labels other than the name could change the answer.
fn needs_more(selector: &LabelSelector) -> bool {
    let is_other = |key: &String| key != NAME_LABEL;
    let (keys, requirements) = (selector.match_labels.keys(), &selector.match_expressions);
    let name_decides = requirements.iter().any(|requirement| {
        requirement.key == NAME_LABEL && requirement.operator == LabelOperator::DoesNotExist
    });
    let others = keys.chain(requirements.iter().map(|requirement| &requirement.key));
    !name_decides && others.into_iter().any(is_other)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::manifest::tests::manifest;
    use super::super::request::{self, Wish};
    use super::*;
    use crate::hook::Registry;
    use crate::hook::binding::AdmissionKind;

    /// Whether a webhook with these keys is asked about the creation of an object: `no`, `yes`, `as VERSION`, or what stops it.
    fn check(keys: &str, manifest_text: &str, expected: &str) {
        let config =
            format!("configVersion: v1\nkubernetesValidating:\n- name: a.example.com\n  {keys}\n");
        let registry = Registry::of(&[("hook.sh", &config)]);
        let hook = registry.hooks.first().unwrap();
        let binding = hook
            .config
            .admission(AdmissionKind::Validating)
            .first()
            .unwrap();
        let definition = manifest(
            "{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, spec: {group: stable.example.com, scope: Namespaced, \
             names: {plural: crontabs, kind: CronTab}, versions: [{name: v1, served: true}, {name: v1beta1, served: true}]}}",
        );
        let kinds = Kinds::new([&definition.object].into_iter());
        let wish = Wish {
            operation: None,
            subresource: String::new(),
            namespace: "default".to_owned(),
            user: request::user(None, &[]),
            dry_run: false,
        };
        let request = Request::new(&manifest(manifest_text), &wish, &kinds, &|_| None);
        let rules = Rules::new(binding, FailurePolicy::Fail, &kinds).unwrap();
        let cluster = Cluster::default();
        let said = match rules.matched(&request.ok().unwrap(), &kinds, &cluster) {
            Matched::No(None) => "no".to_owned(),
            Matched::No(Some(_)) => "no, perhaps".to_owned(),
            Matched::Yes(Invocation {
                is_converted, kind, ..
            }) if is_converted => {
                format!("as {}", kind.version)
            }
            Matched::Yes(Invocation { note: Some(_), .. }) => "yes, perhaps".to_owned(),
            Matched::Yes(_) => "yes".to_owned(),
            Matched::Stopped(verdict) => format!("{}: {}", verdict.word(), verdict.message()),
        };
        assert!(said.starts_with(expected), "{keys}: {said}");
    }

    fn rule(group: &str, version: &str, resource: &str, scope: &str) -> String {
        format!(
            "rules: [{{apiGroups: ['{group}'], apiVersions: ['{version}'], resources: ['{resource}'], operations: [CREATE], scope: '{scope}'}}]"
        )
    }

    const POD: &str = "{apiVersion: v1, kind: Pod, metadata: {name: a, labels: {app: web}}}";
    const NAMESPACE: &str = "{apiVersion: v1, kind: Namespace, metadata: {name: a}}";

    #[test]
    fn rules_match_as_the_api_server_matches_them() {
        check(&rule("", "v1", "pods", "*"), POD, "yes");
        check(&rule("", "v1", "Pod", "*"), POD, "yes");
        check(&rule("*", "*", "*", "Namespaced"), POD, "yes");
        check(&rule("*", "*", "*", "Cluster"), POD, "no");
        check(&rule("*", "*", "*", "Cluster"), NAMESPACE, "yes");
        check(&rule("*", "*", "*", "Namespaced"), NAMESPACE, "no");
        check(&rule("", "v1", "pods/*", "*"), POD, "yes");
        check(&rule("", "v1", "*/*", "*"), POD, "yes");
        check(&rule("", "v1", "pods/status", "*"), POD, "no");
        check(&rule("apps", "v1", "pods", "*"), POD, "no");
        check(&rule("", "v2", "pods", "*"), POD, "no");
        check(
            &rule("*", "*", "*", "*"),
            "{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingWebhookConfiguration, metadata: {name: a}}",
            "no",
        );
    }

    #[test]
    fn another_version_of_the_same_resource_matches_if_it_can_be_shown() {
        let crontab =
            "{apiVersion: stable.example.com/v1beta1, kind: CronTab, metadata: {name: a}}";
        check(
            &rule("stable.example.com", "v1", "crontabs", "*"),
            crontab,
            "as v1",
        );
        let autoscaler =
            "{apiVersion: autoscaling/v1, kind: HorizontalPodAutoscaler, metadata: {name: a}}";
        check(
            &rule("autoscaling", "v2", "horizontalpodautoscalers", "*"),
            autoscaler,
            "unjudged: the webhook asks for autoscaling/v2",
        );
        check(&rule("autoscaling", "*", "*", "*"), autoscaler, "yes");
    }

    #[test]
    fn selectors_choose_and_an_unknown_namespace_is_noted() {
        let all = rule("*", "*", "*", "*");
        check(
            &format!("{all}\n  labelSelector: {{matchLabels: {{app: web}}}}"),
            POD,
            "yes",
        );
        check(
            &format!("{all}\n  labelSelector: {{matchLabels: {{app: db}}}}"),
            POD,
            "no",
        );
        let namespace =
            |selector: &str| format!("{all}\n  namespace: {{labelSelector: {selector}}}");
        check(
            &namespace("{matchLabels: {tier: paid}}"),
            POD,
            "no, perhaps",
        );
        check(
            &namespace("{matchExpressions: [{key: tier, operator: DoesNotExist}]}"),
            POD,
            "yes, perhaps",
        );
        check(
            &namespace("{matchLabels: {kubernetes.io/metadata.name: default}}"),
            POD,
            "yes",
        );
        check(
            &namespace("{matchLabels: {kubernetes.io/metadata.name: a}}"),
            NAMESPACE,
            "yes",
        );
        check(&namespace("{matchLabels: {tier: paid}}"), NAMESPACE, "no");
    }

    #[test]
    fn conditions_go_by_the_failure_policy() {
        let with = |policy: &str, expression: &str| {
            format!(
                "{}\n  failurePolicy: {policy}\n  matchConditions: [{{name: one, expression: {}}}]",
                rule("*", "*", "*", "*"),
                json!(expression)
            )
        };
        check(&with("Fail", "object.metadata.name == 'a'"), POD, "yes");
        check(&with("Fail", "object.metadata.name == 'b'"), POD, "no");
        check(&with("Ignore", "object.spec.nodeName == 'x'"), POD, "no");
        check(
            &with("Fail", "object.spec.nodeName == 'x'"),
            POD,
            "denied: pods \"a\" is forbidden: expression 'object.spec.nodeName == 'x'' resulted in error: no such key: spec",
        );
        check(
            &with(
                "Ignore",
                "authorizer.group('').resource('pods').check('get').allowed()",
            ),
            POD,
            "unjudged: matchConditions",
        );
    }
}

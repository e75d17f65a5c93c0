//! The schema of hook configuration, v0 and v1, as a table, and the walk that checks a tree against it.
//!
//! Runs on the main thread at start. All violations are collected, in document order, with the original's texts, plus the line
//! and, where a key looks misspelled, the key that was probably meant. It never judges meaning: what the fields say together
//! is checked by `config.rs`.

use super::config::Violation;
use crate::yaml::{Node, Tree, integer};

/// What a value must be.
pub(super) enum Schema {
    String,
    Integer,
    Boolean,
    Enum(&'static [&'static str]),
    Array {
        min: usize,
        items: &'static Schema,
    },
    /// An object with any keys whose values are all alike.
    Map(&'static Schema),
    Object(Object),
    /// One of two shapes, told apart by the type of the value.
    Either(&'static Schema, &'static Schema),
}

pub(super) struct Object {
    fields: &'static [Field],
    min: usize,
    max: usize,
    /// Unknown keys are tolerated.
    open: bool,
}

struct Field {
    name: &'static str,
    required: bool,
    schema: &'static Schema,
}

/// Keys that the original's validator lets pass in every object.
const ALWAYS_TOLERATED: [&str; 2] = ["id", "$schema"];

const fn required(name: &'static str, schema: &'static Schema) -> Field {
    Field {
        name,
        required: true,
        schema,
    }
}

const fn optional(name: &'static str, schema: &'static Schema) -> Field {
    Field {
        name,
        required: false,
        schema,
    }
}

const fn object(fields: &'static [Field]) -> Schema {
    sized(fields, 0, usize::MAX)
}

const fn sized(fields: &'static [Field], min: usize, max: usize) -> Schema {
    Schema::Object(Object {
        fields,
        min,
        max,
        open: false,
    })
}

const fn open(fields: &'static [Field]) -> Schema {
    Schema::Object(Object {
        fields,
        min: 0,
        max: usize::MAX,
        open: true,
    })
}

const fn list(min: usize, items: &'static Schema) -> Schema {
    Schema::Array { min, items }
}

static STRING: Schema = Schema::String;
static INTEGER: Schema = Schema::Integer;
static BOOLEAN: Schema = Schema::Boolean;
static STRINGS: Schema = list(0, &STRING);
static SOME_STRINGS: Schema = list(1, &STRING);

static NAME_SELECTOR: Schema = object(&[required("matchNames", &STRINGS)]);

static LABEL_OPERATOR: Schema = Schema::Enum(&["In", "NotIn", "Exists", "DoesNotExist"]);
static LABEL_EXPRESSION: Schema = object(&[
    required("key", &STRING),
    required("operator", &LABEL_OPERATOR),
    optional("values", &STRINGS),
]);
static LABEL_EXPRESSIONS: Schema = list(0, &LABEL_EXPRESSION);
static LABELS: Schema = Schema::Map(&STRING);
static LABEL_SELECTOR: Schema = sized(
    &[
        optional("matchLabels", &LABELS),
        optional("matchExpressions", &LABEL_EXPRESSIONS),
    ],
    1,
    2,
);

static FIELD_OPERATOR: Schema = Schema::Enum(&["=", "==", "Equals", "!=", "NotEquals"]);
static FIELD_EXPRESSION: Schema = sized(
    &[
        optional("field", &STRING),
        optional("operator", &FIELD_OPERATOR),
        optional("value", &STRING),
    ],
    3,
    3,
);
static FIELD_EXPRESSIONS: Schema = list(0, &FIELD_EXPRESSION);
static FIELD_SELECTOR: Schema = object(&[required("matchExpressions", &FIELD_EXPRESSIONS)]);

static NAMESPACE: Schema = sized(
    &[
        optional("nameSelector", &NAME_SELECTOR),
        optional("labelSelector", &LABEL_SELECTOR),
    ],
    1,
    2,
);
static ADMISSION_NAMESPACE: Schema = object(&[required("labelSelector", &LABEL_SELECTOR)]);

static SETTINGS: Schema = object(&[
    optional("executionMinInterval", &STRING),
    optional("executionBurst", &INTEGER),
]);

static SCHEDULE: Schema = object(&[
    optional("name", &STRING),
    required("crontab", &STRING),
    optional("allowFailure", &BOOLEAN),
    optional("includeSnapshotsFrom", &SOME_STRINGS),
    optional("queue", &STRING),
    optional("group", &STRING),
]);
static SCHEDULES: Schema = list(1, &SCHEDULE);

static WATCH_EVENT: Schema = Schema::Enum(&["Added", "Modified", "Deleted"]);
static WATCH_EVENTS: Schema = list(0, &WATCH_EVENT);
static KUBERNETES: Schema = object(&[
    optional("name", &STRING),
    optional("apiVersion", &STRING),
    required("kind", &STRING),
    optional("executeHookOnEvent", &WATCH_EVENTS),
    optional("watchEvent", &WATCH_EVENTS),
    optional("executeHookOnSynchronization", &BOOLEAN),
    optional("waitForSynchronization", &BOOLEAN),
    optional("keepFullObjectsInMemory", &BOOLEAN),
    optional("resynchronizationPeriod", &STRING),
    optional("jqFilter", &STRING),
    optional("nameSelector", &NAME_SELECTOR),
    optional("labelSelector", &LABEL_SELECTOR),
    optional("fieldSelector", &FIELD_SELECTOR),
    optional("namespace", &NAMESPACE),
    optional("allowFailure", &BOOLEAN),
    optional("includeSnapshotsFrom", &SOME_STRINGS),
    optional("queue", &STRING),
    optional("group", &STRING),
    optional("webhookValidation", &WEBHOOK_VALIDATION),
]);
static KUBERNETES_LIST: Schema = list(1, &KUBERNETES);

static OPERATION: Schema = Schema::Enum(&["CREATE", "UPDATE", "DELETE", "CONNECT", "*"]);
static OPERATIONS: Schema = list(1, &OPERATION);
static OVERLAY: Schema = Schema::Either(&BOOLEAN, &OVERLAY_KEYS);
static OVERLAY_KEYS: Schema = object(&[
    optional("bindings", &SOME_STRINGS),
    optional("subresources", &SOME_STRINGS),
]);
static ERROR_SOURCE: Schema = Schema::Enum(&["response", "marked", "tail"]);
static FILTER: Schema = Schema::Enum(&["ansi", "timestamps", "pids", "paths", "haproxy"]);
static FILTER_LIST: Schema = list(0, &FILTER);
static FILTERS_BY_PHASE: Schema = Schema::Map(&FILTER_LIST);
static FILTERS: Schema = Schema::Either(&FILTER_LIST, &FILTERS_BY_PHASE);
static ERRORS: Schema = object(&[
    optional("from", &ERROR_SOURCE),
    optional("filters", &FILTERS),
    optional("maxLength", &INTEGER),
]);
static WEBHOOK_VALIDATION: Schema = Schema::Either(&BOOLEAN, &WEBHOOK_VALIDATION_KEYS);
static WEBHOOK_VALIDATION_KEYS: Schema = object(&[
    optional("operations", &REVIEWED_OPERATIONS),
    optional("timeoutSeconds", &INTEGER),
    optional("failurePolicy", &FAILURE_POLICY),
    optional("errors", &ERRORS),
]);
static REVIEWED_OPERATION: Schema = Schema::Enum(&["CREATE", "UPDATE", "DELETE"]);
static REVIEWED_OPERATIONS: Schema = list(1, &REVIEWED_OPERATION);
static SCOPE: Schema = Schema::Enum(&["Cluster", "Namespaced", "*"]);
static RULE: Schema = object(&[
    required("apiVersions", &SOME_STRINGS),
    required("apiGroups", &SOME_STRINGS),
    required("resources", &SOME_STRINGS),
    required("operations", &OPERATIONS),
    optional("scope", &SCOPE),
]);
static RULES: Schema = list(1, &RULE);
static FAILURE_POLICY: Schema = Schema::Enum(&["Ignore", "Fail"]);
static SIDE_EFFECTS: Schema = Schema::Enum(&["None", "NoneOnDryRun"]);
static REINVOCATION_POLICY: Schema = Schema::Enum(&["Never", "IfNeeded"]);
static MATCH_CONDITION: Schema =
    open(&[required("name", &STRING), required("expression", &STRING)]);
static MATCH_CONDITIONS: Schema = list(0, &MATCH_CONDITION);
// `reinvocationPolicy` is let through for validating bindings too, because `config.rs` explains what is wrong with it there.
static ADMISSION: Schema = object(&[
    required("name", &STRING),
    optional("includeSnapshotsFrom", &SOME_STRINGS),
    optional("group", &STRING),
    optional("rules", &RULES),
    optional("failurePolicy", &FAILURE_POLICY),
    optional("labelSelector", &LABEL_SELECTOR),
    optional("namespace", &ADMISSION_NAMESPACE),
    optional("sideEffects", &SIDE_EFFECTS),
    optional("timeoutSeconds", &INTEGER),
    optional("matchConditions", &MATCH_CONDITIONS),
    optional("reinvocationPolicy", &REINVOCATION_POLICY),
    optional("validateStructure", &BOOLEAN),
    optional("overlay", &OVERLAY),
    optional("errors", &ERRORS),
]);
static ADMISSIONS: Schema = list(1, &ADMISSION);

static CONVERSION_RULE: Schema = object(&[
    required("fromVersion", &STRING),
    required("toVersion", &STRING),
]);
static CONVERSION_RULES: Schema = list(1, &CONVERSION_RULE);
static CONVERSION: Schema = object(&[
    required("name", &STRING),
    optional("includeSnapshotsFrom", &SOME_STRINGS),
    optional("group", &STRING),
    required("crdName", &STRING),
    required("conversions", &CONVERSION_RULES),
]);
static CONVERSIONS: Schema = list(1, &CONVERSION);

static CONFIG_VERSION: Schema = Schema::Enum(&["v1"]);
pub(super) static V1: Schema = sized(
    &[
        required("configVersion", &CONFIG_VERSION),
        optional("settings", &SETTINGS),
        optional("onStartup", &INTEGER),
        optional("schedule", &SCHEDULES),
        optional("kubernetes", &KUBERNETES_LIST),
        optional("kubernetesValidating", &ADMISSIONS),
        optional("kubernetesMutating", &ADMISSIONS),
        optional("kubernetesCustomResourceConversion", &CONVERSIONS),
    ],
    2,
    usize::MAX,
);

// The original does not look inside v0 items with its schema, but its decoder refuses wrong types; unknown keys pass.
static V0_SCHEDULE: Schema = open(&[
    optional("name", &STRING),
    optional("crontab", &STRING),
    optional("allowFailure", &BOOLEAN),
]);
static V0_SCHEDULES: Schema = list(0, &V0_SCHEDULE);
static V0_EXPRESSION: Schema = open(&[
    optional("key", &STRING),
    optional("operator", &STRING),
    optional("values", &STRINGS),
]);
static V0_EXPRESSIONS: Schema = list(0, &V0_EXPRESSION);
static V0_SELECTOR: Schema = open(&[
    optional("matchLabels", &LABELS),
    optional("matchExpressions", &V0_EXPRESSIONS),
]);
static V0_NAMESPACES: Schema = open(&[optional("matchNames", &STRINGS), optional("any", &BOOLEAN)]);
static V0_EVENT: Schema = open(&[
    optional("name", &STRING),
    optional("event", &STRINGS),
    optional("kind", &STRING),
    optional("selector", &V0_SELECTOR),
    optional("objectName", &STRING),
    optional("namespaceSelector", &V0_NAMESPACES),
    optional("jqFilter", &STRING),
    optional("allowFailure", &BOOLEAN),
]);
static V0_EVENTS: Schema = list(0, &V0_EVENT);
pub(super) static V0: Schema = sized(
    &[
        optional("onStartup", &INTEGER),
        optional("schedule", &V0_SCHEDULES),
        optional("onKubernetesEvent", &V0_EVENTS),
    ],
    1,
    usize::MAX,
);

/// Checks a tree and returns everything that is wrong with it.
pub(super) fn check(node: &Node, schema: &Schema) -> Vec<Violation> {
    let mut found = Vec::new();
    walk(node, node.line, schema, "", &mut found);
    found
}

/// `path` is dotted and has no array indexes, as in the original's messages; `line` is where the key of this value stands.
fn walk(node: &Node, line: u64, schema: &Schema, path: &str, found: &mut Vec<Violation>) {
    let wrong_type = |want: &str| {
        Violation::new(
            format!("{path} must be of type {want}: \"{}\"", node.type_name()),
            line,
        )
    };
    match (schema, &node.tree) {
        (Schema::String, Tree::String(_)) | (Schema::Boolean, Tree::Bool(_)) => {}
        (Schema::Integer, Tree::Number(number)) if integer(number).is_some() => {}
        (Schema::Enum(allowed), Tree::String(text)) => {
            if !allowed.contains(&text.as_str()) {
                let violation = Violation::new(
                    format!("{path} should be one of [{}]", allowed.join(" ")),
                    line,
                );
                found.push(violation.hint_opt(did_you_mean(text, allowed.iter().copied())));
            }
        }
        (Schema::Array { min, items }, Tree::Array(nodes)) => {
            if nodes.len() < *min {
                found.push(Violation::new(
                    format!("{path} should have at least {min} items"),
                    line,
                ));
            }
            for item in nodes {
                walk(item, item.line, items, path, found);
            }
        }
        (Schema::Map(values), Tree::Object(entries)) => {
            for entry in entries {
                let below = join(path, &entry.key);
                walk(&entry.node, entry.line, values, &below, found);
            }
        }
        (Schema::Object(object), Tree::Object(_)) => walk_object(node, line, object, path, found),
        (Schema::Either(one, other), _) => match [one, other].into_iter().find(|s| fits(s, node)) {
            Some(schema) => walk(node, line, schema, path, found),
            None => found.push(wrong_type(&format!(
                "{} or {}",
                type_of(one),
                type_of(other)
            ))),
        },
        (Schema::String | Schema::Enum(_), _) => {
            let quote = matches!(node.tree, Tree::Number(_) | Tree::Bool(_));
            let hint = quote.then(|| "quote it to make it a string".to_owned());
            found.push(wrong_type("string").hint_opt(hint));
        }
        (Schema::Integer, _) => found.push(wrong_type("integer")),
        (Schema::Boolean, _) => found.push(wrong_type("boolean")),
        (Schema::Array { .. }, _) => found.push(wrong_type("array")),
        (Schema::Map(_) | Schema::Object(_), _) => {
            // A list of names in place of a selector is how the original's documents print it.
            let names = path.ends_with("nameSelector") && matches!(node.tree, Tree::Array(_));
            let hint = names.then(|| "write `nameSelector: {matchNames: [...]}`".to_owned());
            found.push(wrong_type("object").hint_opt(hint));
        }
    }
}

/// The name of the type that a schema wants.
fn type_of(schema: &Schema) -> &'static str {
    match schema {
        Schema::String | Schema::Enum(_) => "string",
        Schema::Integer => "integer",
        Schema::Boolean => "boolean",
        Schema::Array { .. } => "array",
        Schema::Map(_) | Schema::Object(_) | Schema::Either(..) => "object",
    }
}

/// Whether a value is at least of the type that a schema wants.
fn fits(schema: &Schema, node: &Node) -> bool {
    type_of(schema) == node.type_name()
}

fn walk_object(node: &Node, line: u64, object: &Object, path: &str, found: &mut Vec<Violation>) {
    let Tree::Object(entries) = &node.tree else {
        return;
    };
    // The number of keys is judged alone, as in the original: an object of the wrong size is not looked into.
    if entries.len() < object.min {
        found.push(Violation::new(
            format!("{path} should have at least {} properties", object.min),
            line,
        ));
        return;
    }
    if entries.len() > object.max {
        found.push(Violation::new(
            format!("{path} should have at most {} properties", object.max),
            line,
        ));
        return;
    }
    for field in object.fields.iter().filter(|field| field.required) {
        if node.entry(field.name).is_none() {
            found.push(Violation::new(
                format!("{path}.{} is required", field.name),
                line,
            ));
        }
    }
    for entry in entries {
        let field = object.fields.iter().find(|field| field.name == entry.key);
        if let Some(field) = field {
            let below = join(path, &entry.key);
            walk(&entry.node, entry.line, field.schema, &below, found);
        } else if !object.open && !ALWAYS_TOLERATED.contains(&entry.key.as_str()) {
            let names = object.fields.iter().map(|field| field.name);
            let violation = Violation::new(
                format!("{path}.{} is a forbidden property", entry.key),
                entry.line,
            );
            found.push(violation.hint_opt(did_you_mean(&entry.key, names)));
        }
    }
}

fn join(path: &str, key: &str) -> String {
    if path.is_empty() {
        key.to_owned()
    } else {
        format!("{path}.{key}")
    }
}

/// A hint that names the candidate nearest to what was written, if one is near enough to have been meant.
pub(crate) fn did_you_mean<'a>(
    written: &str,
    candidates: impl Iterator<Item = &'a str>,
) -> Option<String> {
    let lower = written.to_lowercase();
    candidates
        .map(|candidate| (distance(&lower, &candidate.to_lowercase()), candidate))
        .min_by_key(|(distance, _)| *distance)
        // A third of the letters may differ: `resource` for `resources`, but never `id` for `kind`.
        .filter(|(distance, candidate)| *distance * 3 <= candidate.chars().count())
        .map(|(_, candidate)| format!("did you mean `{candidate}`?"))
}

/// The number of letters to insert, remove or change to get from one word to the other (Levenshtein, one row at a time).
fn distance(from: &str, to: &str) -> usize {
    let to: Vec<char> = to.chars().collect();
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (index, letter) in from.chars().enumerate() {
        let mut next = Vec::with_capacity(row.len());
        let mut left = index + 1;
        next.push(left);
        for (other, pair) in to.iter().zip(row.windows(2)) {
            let [diagonal, above] = pair else { continue };
            left = (diagonal + usize::from(*other != letter))
                .min(above + 1)
                .min(left + 1);
            next.push(left);
        }
        row = next;
    }
    row.last().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(schema: &Schema, yaml: &str) -> Vec<String> {
        let node = crate::yaml::parse(yaml).unwrap();
        check(&node, schema)
            .iter()
            .map(|violation| match &violation.hint {
                Some(hint) => format!("{}: {} ({hint})", violation.line, violation.text),
                None => format!("{}: {}", violation.line, violation.text),
            })
            .collect()
    }

    #[test]
    #[expect(clippy::too_many_lines, reason = "a table of cases")]
    fn violations_have_the_texts_of_the_original() {
        for (yaml, expected) in [
            ("configVersion: v1", "1:  should have at least 2 properties"),
            (
                "configVersion: v1\nonStartup: x",
                "2: onStartup must be of type integer: \"string\"",
            ),
            (
                "configVersion: v1\nonStartup: null",
                "2: onStartup must be of type integer: \"null\"",
            ),
            (
                "configVersion: v1\nonStartup: 1.5",
                "2: onStartup must be of type integer: \"number\"",
            ),
            (
                "configVersion: v1\nonStartup: true",
                "2: onStartup must be of type integer: \"boolean\"",
            ),
            (
                "configVersion: v1\nschedule: []",
                "2: schedule should have at least 1 items",
            ),
            (
                "configVersion: v1\nschedule: {}",
                "2: schedule must be of type array: \"object\"",
            ),
            (
                "configVersion: v1\nkubernetes: [Pod]",
                "2: kubernetes must be of type object: \"string\"",
            ),
            (
                "configVersion: v1\nkubernetes:\n- name: a",
                "3: kubernetes.kind is required",
            ),
            (
                "configVersion: v1\nkubernetes:\n- kind: Pod\n  watchEvent: Added",
                "4: kubernetes.watchEvent must be of type array: \"string\"",
            ),
            (
                "configVersion: v1\nkubernetes:\n- kind: Pod\n  watchEvent: [Updated]",
                "4: kubernetes.watchEvent should be one of [Added Modified Deleted]",
            ),
            (
                "configVersion: v1\nkubernetes:\n- kind: Pod\n  mode: x",
                "4: kubernetes.mode is a forbidden property",
            ),
            (
                "configVersion: v1\nkubernetes:\n- kind: Pod\n  labelSelector: {}",
                "4: kubernetes.labelSelector should have at least 1 properties",
            ),
            (
                "configVersion: v1\nkubernetes:\n- kind: Pod\n  labelSelector:\n    matchExpressions:\n    - key: a\n      operator: Is",
                "7: kubernetes.labelSelector.matchExpressions.operator should be one of [In NotIn Exists DoesNotExist]",
            ),
            (
                "configVersion: v1\nkubernetes:\n- kind: Pod\n  fieldSelector:\n    matchExpressions:\n    - field: a\n      operator: '='",
                "6: kubernetes.fieldSelector.matchExpressions should have at least 3 properties",
            ),
            (
                "configVersion: v1\nkubernetes:\n- kind: Pod\n  namespace:\n    nameSelector: [default]",
                "5: kubernetes.namespace.nameSelector must be of type object: \"array\" (write `nameSelector: {matchNames: [...]}`)",
            ),
            (
                "configVersion: v1\nschedule:\n- crontab: '* * * * *'\n  includeSnapshotsFrom: []",
                "4: schedule.includeSnapshotsFrom should have at least 1 items",
            ),
            (
                "configVersion: v1\nkubernetesValidating:\n- name: a.b.c\n  namespace: {nameSelector: {matchNames: [a]}}",
                "4: kubernetesValidating.namespace.labelSelector is required",
            ),
            (
                "configVersion: v1\nkubernetesValidating:\n- name: a.b.c\n  sideEffects: Some",
                "4: kubernetesValidating.sideEffects should be one of [None NoneOnDryRun]",
            ),
            (
                "configVersion: v1\nkubernetesMutating:\n- name: a.b.c\n  rules:\n  - apiGroups: ['']\n    apiVersions: [v1]\n    resources: [pods]\n    operations: [create]",
                "8: kubernetesMutating.rules.operations should be one of [CREATE UPDATE DELETE CONNECT *] (did you mean `CREATE`?)",
            ),
            (
                "configVersion: v1\nkubernetesCustomResourceConversion:\n- name: a\n  crdName: b\n  conversions: []",
                "5: kubernetesCustomResourceConversion.conversions should have at least 1 items",
            ),
            (
                "configVersion: v1\nsettings: {executionBurst: '1'}",
                "2: settings.executionBurst must be of type integer: \"string\"",
            ),
            (
                "configVersion: v1\nschedule:\n- crontab: '* * * * *'\n  name: 5",
                "4: schedule.name must be of type string: \"number\" (quote it to make it a string)",
            ),
        ] {
            let found = texts(&V1, yaml);
            assert_eq!(
                found.first().map(String::as_str),
                Some(expected),
                "{yaml}\n{found:?}"
            );
        }
    }

    #[test]
    fn all_violations_are_collected_in_document_order() {
        assert_eq!(
            texts(
                &V1,
                "configVersion: v1\nkubernetes:\n- name: 1\n  includeSnapshotsForm: [a]\nonStartup: x\nschedul: []\n"
            ),
            [
                "3: kubernetes.kind is required",
                "3: kubernetes.name must be of type string: \"number\" (quote it to make it a string)",
                "4: kubernetes.includeSnapshotsForm is a forbidden property (did you mean `includeSnapshotsFrom`?)",
                "5: onStartup must be of type integer: \"string\"",
                "6: .schedul is a forbidden property (did you mean `schedule`?)",
            ]
        );
    }

    #[test]
    fn id_and_schema_are_tolerated_and_whole_floats_are_integers() {
        assert!(texts(&V1, "configVersion: v1\nid: x\n$schema: y\nonStartup: 10.0").is_empty());
        assert!(
            texts(
                &V1,
                "configVersion: v1\nkubernetesValidating:\n- name: a.b.c\n  matchConditions: [{name: a, expression: b, extra: 1}]"
            )
            .is_empty()
        );
    }

    #[test]
    fn v0_has_its_own_keys() {
        assert_eq!(
            texts(&V0, "kubernetes: []\nonStartup: 1"),
            ["1: .kubernetes is a forbidden property"]
        );
        assert_eq!(texts(&V0, "{}"), ["1:  should have at least 1 properties"]);
        assert_eq!(
            texts(&V0, "configVersion: v0"),
            ["1: .configVersion is a forbidden property"]
        );
        assert_eq!(
            texts(&V0, "onKubernetesEvent:\n- kind: 5\n  anything: goes"),
            [
                "2: onKubernetesEvent.kind must be of type string: \"number\" (quote it to make it a string)"
            ]
        );
    }

    #[test]
    fn a_hint_needs_a_near_word() {
        let keys = ["kind", "includeSnapshotsFrom", "resources"];
        for (written, expected) in [
            ("resource", Some("did you mean `resources`?")),
            (
                "includesnapshotsfrom",
                Some("did you mean `includeSnapshotsFrom`?"),
            ),
            ("Kind", Some("did you mean `kind`?")),
            ("king", Some("did you mean `kind`?")),
            ("when", None),
            ("", None),
        ] {
            assert_eq!(
                did_you_mean(written, keys.into_iter()).as_deref(),
                expected,
                "{written}"
            );
        }
    }
}

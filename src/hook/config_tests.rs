//! Cases for the whole way from text to `Config`. Own data; the list of what to prove follows the original's test files.

use std::time::Duration;

use super::super::binding::{
    AdmissionKind, Change, Changes, FailurePolicy, MAIN_QUEUE, Namespaces, RateLimit,
    ReinvocationPolicy, SideEffects, Version,
};
use super::super::explain::{ErrorSource, Errors, Overlay, TextFilter};
use super::*;

fn good(text: &str) -> Config {
    parse(text.as_bytes())
        .unwrap_or_else(|error| panic!("{text}\n{error}"))
        .config
}

fn warnings(text: &str) -> Vec<String> {
    parse(text.as_bytes())
        .unwrap_or_else(|error| panic!("{text}\n{error}"))
        .warnings
        .iter()
        .map(ToString::to_string)
        .collect()
}

fn bad(text: &str) -> String {
    match parse(text.as_bytes()) {
        Ok(parsed) => panic!("{text}\nwas taken as {:?}", parsed.config),
        Err(error) => error.to_string(),
    }
}

/// Configuration version 1 with one more section.
fn v1(section: &str) -> String {
    format!("configVersion: v1\n{section}\n")
}

const WEBHOOK_RULE: &str = "rules: [{apiGroups: [apps], apiVersions: [v1], resources: [deployments], operations: [CREATE]}]";

#[test]
fn versions_are_told_apart() {
    assert_eq!(good("onStartup: 1").version, Version::V0);
    assert_eq!(good("configVersion: v1\nonStartup: 1").version, Version::V1);
    assert_eq!(
        good("{\"configVersion\":\"v1\",\"onStartup\":10.0}").on_startup,
        Some(10)
    );
    for (text, expected) in [
        (
            "configVersion: v2\nonStartup: 1",
            "config version: 'configVersion' value 'v2' is unsupported (line 1)",
        ),
        (
            "onStartup: 1\nconfigVersion:\n",
            "config version: missing 'configVersion' value (line 2)",
        ),
        (
            "configVersion: 1",
            "config version: string value is expected for key 'configVersion' (line 1)",
        ),
        (
            "configVersion: {}",
            "config version: string value is expected for key 'configVersion' (line 1)",
        ),
    ] {
        assert_eq!(bad(text), expected, "{text}");
    }
    assert!(
        bad("configVersion: v0\nonStartup: 1").contains(".configVersion is a forbidden property")
    );
}

#[test]
fn errors_are_listed_as_the_original_lists_them() {
    assert_eq!(
        bad(
            "configVersion: v1\nkubernetes:\n- name: pods\n  includeSnapshotsForm: [a]\nonStartup: soon\n"
        ),
        "3 errors occurred:\n\
         \t* kubernetes.kind is required (line 3)\n\
         \t* kubernetes.includeSnapshotsForm is a forbidden property (line 4: did you mean `includeSnapshotsFrom`?)\n\
         \t* onStartup must be of type integer: \"string\" (line 5)\n\n"
    );
    assert_eq!(
        bad("configVersion: v1"),
        "1 error occurred:\n\t*  should have at least 2 properties (line 1)\n\n"
    );
    assert!(
        bad("kubernetes:\n- kind: Pod\n")
            .contains(".kubernetes is a forbidden property (line 1: without `configVersion: v1` the old v0 format is expected)")
    );
    assert!(bad("").contains("should have at least 1 properties"));
    assert!(bad("").contains("the hook printed no configuration"));
}

#[test]
fn what_is_not_yaml_is_explained() {
    for text in ["hello", "[1]", "5"] {
        let error = bad(text);
        assert!(
            error.starts_with("config unmarshal: an object is expected, got "),
            "{error}"
        );
    }
    assert_eq!(
        parse(b"onStartup: \xff").unwrap_err().to_string(),
        "config unmarshal: the output is not UTF-8 from byte 11"
    );
    let error = bad("configVersion: v1\na: [1\nb: 2\n");
    assert!(
        error.starts_with("config unmarshal: ") && error.contains("(line "),
        "{error}"
    );
    // A key given twice would lose one of its values.
    assert!(bad("onStartup: 1\nonStartup: 2\n").contains("duplicate"));
}

#[test]
fn a_bare_star_is_told_to_be_quoted() {
    // SO-15: the proposal's own example has it.
    for text in [
        v1("kubernetesValidating:\n- name: a.b.c\n  rules:\n  - operations: [*]"),
        v1(
            "kubernetesValidating:\n- name: a.b.c\n  rules:\n  - operations:\n    - *\n    apiGroups: ['']",
        ),
        v1("schedule:\n- crontab: */5 * * * *"),
        v1("schedule:\n- crontab: * * * * *"),
    ] {
        let error = bad(&text);
        assert!(
            error.contains("`*` must be quoted in YAML"),
            "{text}\n{error}"
        );
    }
    assert!(!bad("configVersion: v1\nschedule: [\"*\"\nx: y").contains("must be quoted"));
}

#[test]
fn on_startup_is_an_order() {
    assert_eq!(good("onStartup: 5").on_startup, Some(5));
    assert_eq!(
        good("configVersion: v1\nonStartup: -1").on_startup,
        Some(-1)
    );
    assert_eq!(good("configVersion: v1\nonStartup: 0").on_startup, Some(0));
    assert_eq!(
        good(&v1("schedule: [{crontab: '* * * * *'}]")).on_startup,
        None
    );
}

#[test]
fn schedules_have_defaults() {
    let config = good(&v1(
        "schedule:\n- crontab: '* * * * *'\n- name: every-5\n  crontab: '*/5 * * * * *'\n  allowFailure: true\n  queue: offload\n  group: g",
    ));
    let [plain, full] = config.schedules.as_slice() else {
        panic!("{config:?}")
    };
    assert_eq!(plain.name, "schedule");
    assert_eq!(plain.crontab.text(), "* * * * *");
    assert_eq!(plain.queue, MAIN_QUEUE);
    assert!(
        !plain.allow_failure && plain.group.is_none() && plain.include_snapshots_from.is_empty()
    );
    assert_eq!(
        (full.name.as_str(), full.queue.as_str()),
        ("every-5", "offload")
    );
    assert!(full.allow_failure);
    assert_eq!(full.group.as_deref(), Some("g"));
}

#[test]
fn a_bad_crontab_is_named() {
    let error = bad(&v1(
        "schedule:\n- crontab: '* * *'\n- name: x\n  crontab: '61 * * * *'",
    ));
    assert!(error.contains("\t* invalid schedule config [0]: crontab is invalid: Expected 5 or 6 fields, found 3: * * * (line 3)\n"), "{error}");
    assert!(error.contains("invalid schedule config [1]: crontab is invalid: End of range (61) above maximum (59): 61 (line 5)"), "{error}");
    assert!(
        bad("schedule:\n- crontab: x").contains("invalid schedule config [0]: crontab is invalid")
    );
}

#[test]
fn kubernetes_bindings_have_defaults() {
    let config = good(&v1("kubernetes:\n- kind: Pod"));
    let binding = &config.kubernetes[0];
    assert_eq!(binding.name, "kubernetes");
    assert_eq!(binding.kind, "Pod");
    assert_eq!(binding.api_version, None);
    assert_eq!(binding.changes, Changes::ALL);
    assert!(binding.changes.contains(Change::Deleted));
    assert!(
        binding.execute_on_synchronization
            && binding.wait_for_synchronization
            && binding.keep_full_objects
    );
    assert!(binding.filter.is_none() && binding.names.is_empty() && binding.labels.is_none());
    assert_eq!(binding.namespaces, Namespaces::All);
    assert_eq!(binding.queue, MAIN_QUEUE);
    assert!(!binding.allow_failure && binding.group.is_none());
}

#[test]
fn kubernetes_bindings_have_every_field() {
    let config = good(&v1("kubernetes:
- name: pods
  apiVersion: v1
  kind: pods
  executeHookOnEvent: [Added, Deleted]
  watchEvent: [Modified]
  executeHookOnSynchronization: false
  waitForSynchronization: false
  keepFullObjectsInMemory: no
  resynchronizationPeriod: 5h
  jqFilter: .metadata.labels
  nameSelector: {matchNames: [a, b]}
  labelSelector:
    matchLabels: {app: web}
    matchExpressions: [{key: tier, operator: In, values: [x, w]}, {key: z, operator: Exists}]
  fieldSelector:
    matchExpressions:
    - {field: status.phase, operator: NotEquals, value: Running}
    - {field: spec.nodeName, operator: '=', value: n1}
  namespace: {nameSelector: {matchNames: [default]}}
  allowFailure: true
  queue: pods
  group: g
"));
    let binding = &config.kubernetes[0];
    assert_eq!(binding.api_version.as_deref(), Some("v1"));
    // executeHookOnEvent wins over its old name.
    assert_eq!(
        binding.changes,
        Changes {
            added: true,
            modified: false,
            deleted: true
        }
    );
    assert!(
        !binding.execute_on_synchronization
            && !binding.wait_for_synchronization
            && !binding.keep_full_objects
    );
    assert_eq!(
        binding.filter.as_ref().map(|filter| filter.text()),
        Some(".metadata.labels")
    );
    assert_eq!(binding.names, ["a", "b"]);
    assert_eq!(
        binding.labels.as_ref().unwrap().to_string(),
        "app=web,tier in (x,w),z"
    );
    let fields: Vec<String> = binding.fields.iter().map(ToString::to_string).collect();
    assert_eq!(fields, ["status.phase!=Running", "spec.nodeName=n1"]);
    assert_eq!(
        binding.namespaces,
        Namespaces::Names(vec!["default".to_owned()])
    );
    assert!(binding.allow_failure);
    assert_eq!(binding.queue, "pods");
}

#[test]
fn kubernetes_bindings_have_special_cases() {
    let one = |fields: &str| {
        good(&v1(&format!("kubernetes:\n- {{kind: Pod, {fields}}}")))
            .kubernetes
            .remove(0)
    };
    assert_eq!(one("executeHookOnEvent: []").changes, Changes::default());
    assert_eq!(
        one("watchEvent: [Added]").changes,
        Changes {
            added: true,
            ..Changes::default()
        }
    );
    assert!(one("jqFilter: ''").filter.is_none());
    assert_eq!(
        one("nameSelector: {matchNames: []}").names,
        Vec::<String>::new()
    );
    // It can be turned off only with a queue of its own.
    assert!(one("waitForSynchronization: false").wait_for_synchronization);
    assert_eq!(
        one("namespace: {nameSelector: {matchNames: []}}").namespaces,
        Namespaces::All
    );
    let Namespaces::Labels(labels) =
        one("namespace: {labelSelector: {matchLabels: {a: b}}}").namespaces
    else {
        panic!("labels expected")
    };
    assert_eq!(labels.to_string(), "a=b");
    let both = v1(
        "kubernetes:\n- kind: Pod\n  namespace: {nameSelector: {matchNames: [x]}, labelSelector: {matchLabels: {a: b}}}",
    );
    assert!(matches!(
        good(&both).kubernetes[0].namespaces,
        Namespaces::Labels(_)
    ));
    assert!(warnings(&both)[0].contains("namespace.nameSelector is ignored"));
    assert_eq!(one("name: a, id: tolerated").name, "a");
}

#[test]
fn kubernetes_bindings_that_cannot_work_are_refused() {
    for (fields, expected) in [
        (
            "apiVersion: a/b/c",
            "invalid kubernetes config [0]: apiVersion is invalid (line 3)",
        ),
        (
            "jqFilter: '.a |'",
            "invalid kubernetes config [0] jqFilter: compile jqFilter: syntax error: ",
        ),
        (
            "jqFilter: nosuch",
            "compile jqFilter: not defined: filter 'nosuch'",
        ),
        (
            "labelSelector: {matchExpressions: [{key: a, operator: In}]}",
            "invalid kubernetes config [0]: labelSelector is invalid: values: Invalid value: []string{}",
        ),
        (
            "namespace: {labelSelector: {matchLabels: {'a b': c}}}",
            "invalid kubernetes config [0]: namespace.labelSelector is invalid: key: Invalid value: \"a b\"",
        ),
        (
            "nameSelector: {matchNames: [a]}, fieldSelector: {matchExpressions: [{field: metadata.name, operator: Equals, value: b}]}",
            "fieldSelector 'metadata.name' and nameSelector.matchNames are mutually exclusive",
        ),
        (
            "includeSnapshotsFrom: [other]",
            "invalid kubernetes config [0]: includeSnapshots 'other' binding name not found (line 3)",
        ),
        (
            "namespace: {}",
            "kubernetes.namespace should have at least 1 properties",
        ),
        (
            "nameSelector: {}",
            "kubernetes.nameSelector.matchNames is required",
        ),
        (
            "executeHookOnEvent: [added]",
            "kubernetes.executeHookOnEvent should be one of [Added Modified Deleted] (line 3: did you mean `Added`?)",
        ),
        (
            "keepFullObjectsInMemory: 'no'",
            "kubernetes.keepFullObjectsInMemory must be of type boolean: \"string\"",
        ),
    ] {
        let error = bad(&v1(&format!("kubernetes:\n- {{kind: Pod, {fields}}}")));
        assert!(error.contains(expected), "{fields}\n{error}");
    }
}

#[test]
fn errors_of_all_sections_are_collected() {
    let error = bad(&v1(
        "settings: {executionMinInterval: fast}\nkubernetes: [{kind: Pod, apiVersion: a/b/c}]\nschedule: [{crontab: x}]\nkubernetesValidating: [{name: short}]",
    ));
    assert!(error.starts_with("4 errors occurred:\n"), "{error}");
}

#[test]
fn snapshots_name_exactly_one_binding() {
    let config = good(&v1(
        "kubernetes: [{name: a, kind: Pod, includeSnapshotsFrom: [a, b]}, {name: b, kind: Node}]\nschedule: [{crontab: '* * * * *', includeSnapshotsFrom: [b]}]",
    ));
    assert_eq!(config.kubernetes[0].include_snapshots_from, ["a", "b"]);
    assert_eq!(config.schedules[0].include_snapshots_from, ["b"]);
    let two = "kubernetes: [{kind: Pod}, {kind: Node}]\n";
    for (section, expected) in [
        (
            "schedule: [{crontab: '* * * * *', includeSnapshotsFrom: [x]}]",
            "invalid schedule config [0]: includeSnapshotsFrom is invalid: 'x' binding name not found",
        ),
        (
            "schedule: [{crontab: '* * * * *', includeSnapshotsFrom: [kubernetes]}]",
            "there are 2 'kubernetes' binding names",
        ),
        (
            "kubernetesValidating: [{name: a.b.c, includeSnapshotsFrom: [x]}]",
            "invalid kubernetesValidating config [0]: includeSnapshotsFrom is invalid: 'x' binding name not found",
        ),
        (
            "kubernetesMutating: [{name: a.b.c, includeSnapshotsFrom: [x]}]",
            "invalid kubernetesMutating config [0]: includeSnapshotsFrom is invalid",
        ),
        (
            "kubernetesCustomResourceConversion: [{name: a, crdName: b.c, conversions: [{fromVersion: v1, toVersion: v2}], includeSnapshotsFrom: [x]}]",
            "invalid kubernetesCustomResourceConversion config [0]: includeSnapshotsFrom is invalid",
        ),
    ] {
        let error = bad(&v1(&format!("{two}{section}")));
        assert!(error.contains(expected), "{section}\n{error}");
    }
}

#[test]
fn groups_add_snapshots_to_every_kind_of_binding() {
    // SO-12, SO-46.
    let config = good(&v1(
        "kubernetes:
- {name: a, kind: Pod, group: g}
- {name: b, kind: Node}
- {name: c, kind: Secret, group: g, includeSnapshotsFrom: [b]}
schedule: [{crontab: '* * * * *', group: g, includeSnapshotsFrom: [c]}, {crontab: '* * * * *', group: other}]
kubernetesValidating: [{name: v.example.com, group: g}]
kubernetesMutating: [{name: m.example.com, group: g, includeSnapshotsFrom: [b, a]}]
kubernetesCustomResourceConversion: [{name: x, crdName: w.x, group: g, conversions: [{fromVersion: v1, toVersion: v2}]}]",
    ));
    assert_eq!(config.kubernetes[0].include_snapshots_from, ["a", "c"]);
    assert!(config.kubernetes[1].include_snapshots_from.is_empty());
    assert_eq!(config.kubernetes[2].include_snapshots_from, ["b", "a", "c"]);
    assert_eq!(config.schedules[0].include_snapshots_from, ["c", "a"]);
    assert!(config.schedules[1].include_snapshots_from.is_empty());
    assert_eq!(config.validating[0].include_snapshots_from, ["a", "c"]);
    assert_eq!(config.mutating[0].include_snapshots_from, ["b", "a", "c"]);
    assert_eq!(config.conversions[0].include_snapshots_from, ["a", "c"]);
}

#[test]
fn admission_bindings_have_defaults() {
    // SO-14, SO-16, SO-17.
    for kind in [AdmissionKind::Validating, AdmissionKind::Mutating] {
        let config = good(&v1(&format!(
            "{}:\n- name: policy.example.com\n  {WEBHOOK_RULE}",
            kind.section()
        )));
        let binding = &config.admission(kind)[0];
        assert_eq!(binding.failure_policy, None);
        assert_eq!(binding.side_effects, SideEffects::None);
        assert_eq!(binding.timeout_seconds, 10);
        assert_eq!(binding.rules[0].resources, ["deployments"]);
        assert_eq!(binding.rules[0].scope, None);
        assert!(binding.object_selector.is_none() && binding.namespace_selector.is_none());
        assert!(binding.match_conditions.is_empty() && !binding.validate_structure);
        assert_eq!(binding.reinvocation_policy, None);
    }
}

#[test]
fn admission_bindings_have_every_field() {
    // SO-06..SO-17, AW-04..AW-16, HX-55.
    let fields = "name: policy.example.com
  group: g
  failurePolicy: Ignore
  sideEffects: NoneOnDryRun
  timeoutSeconds: 30
  labelSelector: {matchLabels: {app: web}}
  namespace: {labelSelector: {matchExpressions: [{key: k, operator: NotIn, values: [v]}]}}
  matchConditions: [{name: m, expression: 'true', extra: 1}]
  validateStructure: true
  rules:
  - {apiGroups: ['', apps], apiVersions: ['*'], resources: [pods, deployments/scale], operations: ['*'], scope: Namespaced}
  - {apiGroups: [''], apiVersions: [v1], resources: ['*/*'], operations: [CREATE, UPDATE, DELETE, CONNECT], scope: '*'}";
    let config = good(&v1(&format!(
        "kubernetesValidating:\n- {fields}\nkubernetesMutating:\n- {fields}\n  reinvocationPolicy: IfNeeded"
    )));
    for binding in [&config.validating[0], &config.mutating[0]] {
        assert_eq!(binding.failure_policy, Some(FailurePolicy::Ignore));
        assert_eq!(binding.side_effects, SideEffects::NoneOnDryRun);
        assert_eq!(binding.timeout_seconds, 30);
        assert_eq!(
            binding.object_selector.as_ref().unwrap().to_string(),
            "app=web"
        );
        assert_eq!(
            binding.namespace_selector.as_ref().unwrap().to_string(),
            "k notin (v)"
        );
        assert_eq!(
            binding.match_conditions,
            [serde_json::json!({"name": "m", "expression": "true", "extra": 1})]
        );
        assert!(binding.validate_structure);
        assert_eq!(binding.rules.len(), 2);
        assert_eq!(binding.rules[0].scope.as_deref(), Some("Namespaced"));
    }
    assert_eq!(
        config.mutating[0].reinvocation_policy,
        Some(ReinvocationPolicy::IfNeeded)
    );
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table of cases")]
fn admission_bindings_that_cannot_work_are_refused() {
    let section = |fields: &str| {
        v1(&format!(
            "kubernetesValidating:\n- {{name: a.example.com, {fields}}}"
        ))
    };
    let rule = |fields: &str| {
        section(&format!(
            "rules: [{{apiGroups: [''], apiVersions: [v1], resources: [pods], operations: [CREATE], {fields}}}]"
        ))
    };
    for (text, expected) in [
        (
            section("timeoutSeconds: 32"),
            "webhooks[0].timeoutSeconds: Invalid value: 32: the timeout value must be between 1 and 30 seconds (line 3)",
        ),
        (
            section("timeoutSeconds: 0"),
            "webhooks[0].timeoutSeconds: Invalid value: 0:",
        ),
        (
            section("failurePolicy: Maybe"),
            "kubernetesValidating.failurePolicy should be one of [Ignore Fail]",
        ),
        (
            section("namespace: {nameSelector: {matchNames: [a]}}"),
            "kubernetesValidating.namespace.nameSelector is a forbidden property",
        ),
        (
            section("labelSelector: {matchExpressions: [{key: a, operator: In}]}"),
            "invalid kubernetesValidating config [0]: labelSelector is invalid: ",
        ),
        (
            section(
                "namespace: {labelSelector: {matchExpressions: [{key: a, operator: Exists, values: [b]}]}}",
            ),
            "invalid kubernetesValidating config [0]: namespace.labelSelector is invalid: ",
        ),
        (
            section("queue: x"),
            "kubernetesValidating.queue is a forbidden property",
        ),
        (
            section("clientConfig: {}"),
            "kubernetesValidating.clientConfig is a forbidden property",
        ),
        (
            section("matchPolicy: Exact"),
            "kubernetesValidating.matchPolicy is a forbidden property",
        ),
        (
            section("matchConditions: [{name: a}]"),
            "kubernetesValidating.matchConditions.expression is required",
        ),
        (
            section("rules: []"),
            "kubernetesValidating.rules should have at least 1 items",
        ),
        (
            section("rules: [{apiGroups: ['']}]"),
            "kubernetesValidating.rules.operations is required",
        ),
        (
            section("reinvocationPolicy: IfNeeded"),
            "kubernetesValidating.reinvocationPolicy is a forbidden property (line 3: only mutating webhooks are called again",
        ),
        (
            rule("scope: Everything"),
            "kubernetesValidating.rules.scope should be one of [Cluster Namespaced *]",
        ),
    ] {
        let error = bad(&text);
        assert!(error.contains(expected), "{text}\n{error}");
    }
}

#[test]
fn wildcards_stand_alone() {
    for (fields, expected) in [
        (
            "apiGroups: [''], apiVersions: [v1], resources: [pods], operations: ['*', CREATE]",
            "webhooks[0].rules[0].operations: Invalid value: []v1.OperationType{\"*\", \"CREATE\"}: if '*' is present, must not specify other operations",
        ),
        (
            "apiGroups: ['*', apps], apiVersions: [v1], resources: [pods], operations: [CREATE]",
            "webhooks[0].rules[0].apiGroups: Invalid value: []string{\"*\", \"apps\"}: if '*' is present, must not specify other API groups",
        ),
        (
            "apiGroups: [''], apiVersions: [v1, '*'], resources: [pods], operations: [CREATE]",
            "webhooks[0].rules[0].apiVersions: Invalid value: []string{\"v1\", \"*\"}: if '*' is present, must not specify other API versions",
        ),
        (
            "apiGroups: [''], apiVersions: [''], resources: [pods], operations: [CREATE]",
            "webhooks[0].rules[0].apiVersions[0]: Required value",
        ),
        (
            "apiGroups: [''], apiVersions: [v1], resources: [''], operations: [CREATE]",
            "webhooks[0].rules[0].resources[0]: Required value",
        ),
        (
            "apiGroups: [''], apiVersions: [v1], resources: ['*', pods], operations: [CREATE]",
            "if '*' is present, must not specify other resources without subresources",
        ),
        (
            "apiGroups: [''], apiVersions: [v1], resources: ['*/*', pods], operations: [CREATE]",
            "if '*/*' is present, must not specify other resources",
        ),
        (
            "apiGroups: [''], apiVersions: [v1], resources: ['pods/*', pods/status], operations: [CREATE]",
            "webhooks[0].rules[0].resources[1]: Invalid value: \"pods/status\": if 'pods/*' is present, must not specify pods/status",
        ),
        (
            "apiGroups: [''], apiVersions: [v1], resources: ['*/scale', pods/scale], operations: [CREATE]",
            "if '*/scale' is present, must not specify pods/scale",
        ),
    ] {
        for section in ["kubernetesValidating", "kubernetesMutating"] {
            let error = bad(&v1(&format!(
                "{section}: [{{name: a.example.com, rules: [{{{fields}}}]}}]"
            )));
            assert!(error.contains(expected), "{fields}\n{error}");
        }
    }
}

#[test]
fn webhook_names_need_three_segments() {
    // SO-18: the message is the API server's, the hint has a name that works.
    for section in ["kubernetesValidating", "kubernetesMutating"] {
        let error = bad(&v1(&format!("{section}:\n- name: snapshots")));
        assert!(
            error.contains("webhooks[0].name: Invalid value: \"snapshots\": should be a domain with at least three segments separated by dots (line 3: write for example `snapshots.example.com`)"),
            "{error}"
        );
    }
    let error = bad(&v1("kubernetesValidating:\n- name: myCrdValidator"));
    assert!(error.contains("webhooks[0].name: Invalid value: \"myCrdValidator\": a lowercase RFC 1123 subdomain must"), "{error}");
    assert!(
        error.contains("write for example `my-crd-validator.example.com`"),
        "{error}"
    );
    let error = bad(&v1("kubernetesValidating:\n- name: ''"));
    assert!(
        error.contains("webhooks[0].name: Required value"),
        "{error}"
    );
    let error = bad(&v1(
        "kubernetesValidating:\n- name: a.example.com\n- name: a.example.com",
    ));
    assert!(
        error.contains("webhooks[1].name: Duplicate value: \"a.example.com\" (line 4)"),
        "{error}"
    );
}

#[test]
fn a_kind_under_resources_is_a_warning_with_the_plural() {
    // SO-19.
    let text = v1("kubernetesValidating:
- name: a.example.com
  rules:
  - apiGroups: [stable.example.com]
    apiVersions: [v1]
    resources: [CronTab]
    operations: ['*']");
    assert_eq!(
        warnings(&text),
        [
            "kubernetesValidating.rules.resources has 'CronTab', but the API server matches lower-case plurals only (line 7: a Kind under `resources`: did you mean `crontabs`?)"
        ]
    );
    assert!(
        warnings(&v1("kubernetesMutating:\n- name: a.example.com"))[0].contains("has no rules")
    );
    assert!(
        warnings(&v1(&format!(
            "kubernetesMutating:\n- name: a.example.com\n  {WEBHOOK_RULE}"
        )))
        .is_empty()
    );
}

#[test]
fn conversions_have_rules() {
    let config = good(&v1(
        "kubernetesCustomResourceConversion:\n- name: up\n  crdName: crontabs.stable.example.com\n  conversions:\n  - {fromVersion: v1, toVersion: stable.example.com/v2}\n  - {fromVersion: v2, toVersion: v3}",
    ));
    let binding = &config.conversions[0];
    assert_eq!(
        (binding.name.as_str(), binding.crd_name.as_str()),
        ("up", "crontabs.stable.example.com")
    );
    let rules: Vec<(&str, &str)> = binding
        .rules
        .iter()
        .map(|rule| (rule.from.as_str(), rule.to.as_str()))
        .collect();
    assert_eq!(rules, [("v1", "stable.example.com/v2"), ("v2", "v3")]);
    for (fields, expected) in [
        (
            "name: a, crdName: b",
            "kubernetesCustomResourceConversion.conversions is required",
        ),
        (
            "crdName: b, conversions: [{fromVersion: a, toVersion: b}]",
            "kubernetesCustomResourceConversion.name is required",
        ),
        (
            "name: a, conversions: [{fromVersion: a, toVersion: b}]",
            "kubernetesCustomResourceConversion.crdName is required",
        ),
        (
            "name: a, crdName: b, conversions: [{fromVersion: a}]",
            "kubernetesCustomResourceConversion.conversions.toVersion is required",
        ),
    ] {
        let error = bad(&v1(&format!(
            "kubernetesCustomResourceConversion: [{{{fields}}}]"
        )));
        assert!(error.contains(expected), "{fields}\n{error}");
    }
}

#[test]
fn a_conversion_that_can_never_happen_is_named() {
    let conversion = |crd: &str, rule: &str| {
        v1(&format!(
            "kubernetesCustomResourceConversion:\n- name: up\n  crdName: {crd}\n  conversions:\n  - {rule}"
        ))
    };
    let rule = "{fromVersion: v1, toVersion: v2}";
    for crd in ["crontabs", "'a.b/c'", "'a.b?x=y'", "A.b.c", "''"] {
        let error = bad(&conversion(crd, rule));
        let expected = "invalid kubernetesCustomResourceConversion config [0]: crdName is invalid";
        assert!(error.contains(expected), "{crd}: {error}");
        assert!(error.contains("(line 4: write the CRD's name"), "{error}");
    }
    for (rule, expected) in [
        ("{fromVersion: v1, toVersion: b.c/v1}", "are the same"),
        (
            "{fromVersion: other.io/v1, toVersion: v2}",
            "not of the CRD's group",
        ),
    ] {
        let found = warnings(&conversion("a.b.c", rule));
        assert!(found[0].contains(expected), "{found:?}");
        assert!(found[0].ends_with("(line 6)"), "{found:?}");
    }
    assert!(warnings(&conversion("a.b.c", rule)).is_empty());
}

#[test]
fn one_key_of_settings_is_enough() {
    let limit =
        |fields: &str| good(&v1(&format!("onStartup: 1\nsettings: {{{fields}}}"))).rate_limit;
    let expect = |seconds, burst| {
        Some(RateLimit {
            interval: Duration::from_secs(seconds),
            burst,
        })
    };
    assert_eq!(
        limit("executionMinInterval: 3s, executionBurst: 2"),
        expect(3, 2)
    );
    assert_eq!(limit("executionMinInterval: 1m30s"), expect(90, 1));
    assert_eq!(limit("executionBurst: 5"), expect(0, 5));
    assert_eq!(limit("executionBurst: 0"), expect(0, 1));
    assert_eq!(limit(""), expect(0, 1));
    assert_eq!(good("configVersion: v1\nonStartup: 1").rate_limit, None);
    // A configuration without bindings is loaded and never run.
    assert_eq!(
        good("configVersion: v1\nsettings: {executionBurst: 1}").on_startup,
        None
    );
    let error = bad(&v1("settings: {executionMinInterval: soon}"));
    assert!(
        error.contains("executionMinInterval is invalid: time: invalid duration \"soon\" (line 2)"),
        "{error}"
    );
    assert!(
        bad(&v1("settings: {executionMinInterval: 5}"))
            .contains("must be of type string: \"number\"")
    );
}

#[test]
fn v0_is_complete() {
    let config = good(
        "onStartup: 3
schedule:
- {name: a, crontab: '* * * * *', allowFailure: true}
- {crontab: '@daily', unknown: tolerated}
onKubernetesEvent:
- name: pods
  kind: pod
  event: [add, update, delete]
  selector: {matchLabels: {app: web}, matchExpressions: [{key: k, operator: In, values: [v]}]}
  objectName: one
  namespaceSelector: {matchNames: [default, kube-system]}
  jqFilter: .metadata
  allowFailure: true
- {kind: node, namespaceSelector: {any: true, matchNames: [x]}}
",
    );
    assert_eq!((config.version, config.on_startup), (Version::V0, Some(3)));
    assert_eq!(config.schedules[0].name, "a");
    assert!(config.schedules[0].allow_failure);
    assert_eq!(config.schedules[1].name, "schedule");
    let pods = &config.kubernetes[0];
    assert_eq!(pods.changes, Changes::ALL);
    assert_eq!(pods.names, ["one"]);
    assert_eq!(
        pods.labels.as_ref().unwrap().to_string(),
        "app=web,k in (v)"
    );
    assert_eq!(
        pods.namespaces,
        Namespaces::Names(vec!["default".to_owned(), "kube-system".to_owned()])
    );
    assert!(pods.allow_failure && pods.filter.is_some());
    assert!(!pods.execute_on_synchronization && !pods.keep_full_objects);
    assert_eq!(pods.queue, MAIN_QUEUE);
    let nodes = &config.kubernetes[1];
    assert_eq!(nodes.name, "onKubernetesEvent");
    // No events are none at all.
    assert_eq!(nodes.changes, Changes::default());
    assert_eq!(nodes.namespaces, Namespaces::All);
}

#[test]
fn v0_that_cannot_work_is_refused() {
    for (text, expected) in [
        (
            "onKubernetesEvent: [{kind: pod, event: [create]}]",
            "event 'create' is unsupported",
        ),
        (
            "onKubernetesEvent: [{event: [add]}]",
            "invalid onKubernetesEvent config [0]: kind is required",
        ),
        (
            "onKubernetesEvent: [{kind: pod, jqFilter: '['}]",
            "invalid onKubernetesEvent config [0] jqFilter: compile jqFilter",
        ),
        (
            "onKubernetesEvent: [{kind: pod, selector: {matchExpressions: [{key: a, operator: Is}]}}]",
            "\"Is\" is not a valid label selector operator",
        ),
        (
            "onKubernetesEvent: {}",
            "onKubernetesEvent must be of type array: \"object\"",
        ),
        (
            "onStartup: later",
            "onStartup must be of type integer: \"string\"",
        ),
        (
            "schedule: [{}]",
            "invalid schedule config [0]: crontab is invalid: Expected 5 or 6 fields, found 0",
        ),
    ] {
        let error = bad(text);
        assert!(error.contains(expected), "{text}\n{error}");
    }
}

#[test]
fn the_summary_has_the_words_of_the_original() {
    let config = good(&v1(&format!(
        "onStartup: 10
settings: {{executionMinInterval: 3s, executionBurst: 2}}
schedule: [{{crontab: '* * * * *'}}, {{crontab: '@daily'}}]
kubernetes: [{{kind: Pod}}, {{kind: Node}}]
kubernetesValidating: [{{name: a.example.com, {WEBHOOK_RULE}}}]
kubernetesMutating: [{{name: a.example.com, {WEBHOOK_RULE}}}]
kubernetesCustomResourceConversion: [{{name: a, crdName: b.c, conversions: [{{fromVersion: v1, toVersion: v2}}]}}]"
    )));
    assert_eq!(
        config.summary(),
        "OnStartup:10, Schedules: '* * * * *', '@daily', Watch k8s kinds: Pod, Node, Validate k8s kinds: deployments, \
         Mutate k8s kinds: deployments, Conversion for crds: b.c, Rate: 3s/2"
    );
    assert_eq!(Config::empty(Version::V1).summary(), "");
}

#[test]
fn overlay_errors_and_webhook_validation_are_short_or_spelled_out() {
    let config = good(&v1(
        "kubernetes:\n- name: a\n  kind: A\n  webhookValidation: true\n- name: b\n  kind: B\n  webhookValidation: {operations: [DELETE], timeoutSeconds: 5, failurePolicy: Ignore}\n\
         - name: c\n  kind: C\n  includeSnapshotsFrom: [a]\n  webhookValidation: false\n\
         kubernetesValidating:\n- name: x.b.c\n  includeSnapshotsFrom: [a]\n  overlay: true\n  errors: {from: tail}\n\
         - name: y.b.c\n  includeSnapshotsFrom: [a, b]\n  overlay: {bindings: [a], subresources: [status]}\n  errors: {from: marked, filters: {syntax: [haproxy]}, maxLength: 9}\n\
         - name: z.b.c\n  overlay: false\n",
    ));
    let [a, b, c] = config.kubernetes.as_slice() else {
        panic!("{config:?}")
    };
    let review = a.review().unwrap();
    assert_eq!(
        a.webhook_validation.as_ref().unwrap().operations,
        ["CREATE", "UPDATE"]
    );
    assert_eq!((review.name.as_str(), review.timeout_seconds), ("a", 10));
    assert_eq!(review.include_snapshots_from, ["a"]);
    assert_eq!(b.review().unwrap().timeout_seconds, 5);
    assert_eq!(
        b.webhook_validation.as_ref().unwrap().operations,
        ["DELETE"]
    );
    assert_eq!(c.review(), None);
    let [x, y, z] = config.validating.as_slice() else {
        panic!("{config:?}")
    };
    assert_eq!(x.overlay, Some(Overlay::default()));
    assert_eq!(x.errors.filters.of(None), TextFilter::PLAIN);
    assert_eq!(
        (x.errors.from, x.errors.max_length),
        (ErrorSource::Tail, Some(1024))
    );
    let overlay = y.overlay.as_ref().unwrap();
    assert_eq!(overlay.bindings.as_deref(), Some(&["a".to_owned()][..]));
    assert_eq!(overlay.subresources, ["status"]);
    assert_eq!(y.errors.filters.of(Some("syntax")), [TextFilter::Haproxy]);
    assert_eq!(y.errors.filters.of(Some("render")), []);
    assert_eq!((&z.overlay, &z.errors), (&None, &Errors::default()));
}

#[test]
fn what_is_wrong_with_them_is_said() {
    let admission = |keys: &str| {
        v1(&format!(
            "kubernetes:\n- name: a\n  kind: A\nkubernetesValidating:\n- name: x.b.c\n  includeSnapshotsFrom: [a]\n  {keys}\n"
        ))
    };
    for (text, expected) in [
        (
            admission("overlay: yes please"),
            "overlay must be of type boolean or object: \"string\"",
        ),
        (
            admission("overlay: {binding: [a]}"),
            "overlay.binding is a forbidden property (line 8: did you mean `bindings`?)",
        ),
        (
            admission("overlay: {bindings: [b]}"),
            "overlay.bindings: 'b' is no snapshot of this binding",
        ),
        (
            admission("overlay: {subresources: [scale]}"),
            "'scale' cannot be shown",
        ),
        (
            admission("errors: {from: stderr}"),
            "errors.from should be one of [response marked tail]",
        ),
        (
            admission("errors: {filters: [ansi, haprox]}"),
            "did you mean `haproxy`?",
        ),
        (
            admission("errors: {maxLength: 0}"),
            "errors.maxLength is invalid: 0 is not between 1 and 16384",
        ),
        (
            v1("kubernetes:\n- kind: A\n  webhookValidation: true\n- kind: B\n"),
            "webhookValidation: there are 2 'kubernetes' binding names (line 4: give each binding a name of its own)",
        ),
        (
            v1("kubernetes:\n- kind: A\n  webhookValidation: {operations: [CONNECT]}\n"),
            "webhookValidation.operations should be one of [CREATE UPDATE DELETE]",
        ),
    ] {
        let error = bad(&text);
        assert!(error.contains(expected), "{error}");
    }
}

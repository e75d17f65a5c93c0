//! Metrics on a real cluster: what hooks record about objects and reviews, and every metric of the operator itself.

use serde_json::json;

use crate::support::stage::{Kind, answers, config_map, message, script};
use crate::support::{Operator, Page, SOON, Stage, wait_for};

/// Counts ConfigMaps by their colour in a group that every run replaces, notes what was deleted for ever, and times itself.
const COUNT: &str = r#"
jq -c '
  (.[-1].snapshots.maps | group_by(.filterResult)[] | {
    name: "maps", set: length, group: "maps", labels: { colour: .[0].filterResult }
  }),
  (if (.[-1].snapshots.maps | length) == 0 then { action: "expire", group: "maps" } else empty end),
  (.[] | select(.watchEvent == "Deleted") | {
    name: "deleted_total", add: 1, group: .object.metadata.name, labels: { map: .object.metadata.name }
  }),
  { name: "contexts", action: "observe", value: length, buckets: [1, 10, 100], group: "size" }
' "$BINDING_CONTEXT_PATH" >"$METRICS_PATH"
"#;

#[track_caller]
fn wait_lines(operator: &Operator, prefix: &str, expected: &[&str]) {
    wait_for(&format!("{expected:#?}"), SOON, || {
        let mut series = operator.hook_metrics().series();
        series.retain(|line| line.starts_with(prefix));
        series == expected
    });
}

#[test]
fn what_a_hook_records_about_objects_follows_them() {
    let stage = Stage::new("counted");
    let config = json!({
        "configVersion": "v1",
        "kubernetes": [{
            "name": "maps", "apiVersion": "v1", "kind": "ConfigMap", "jqFilter": ".data.colour",
            "namespace": { "nameSelector": { "matchNames": [stage.label] } },
            "includeSnapshotsFrom": ["maps"],
        }],
    });
    let stage = stage.script("count.sh", &script(&config, COUNT));
    let operator = stage.start();
    wait_lines(&operator, "maps", &[]);
    for (name, colour) in [("a", "red"), ("b", "red"), ("c", "blue")] {
        let answer = stage.create(name, &json!({ "colour": colour }));
        assert_eq!(answer.status, 201, "{}", answer.text());
    }
    let blue = r#"maps{colour="blue",hook="count.sh"} 1"#;
    let red = |count| format!(r#"maps{{colour="red",hook="count.sh"}} {count}"#);
    wait_lines(&operator, "maps", &[blue, &red(2)]);
    let delete = |name: &str| {
        let answer = stage.api.delete(&format!("{}/{name}", stage.config_maps()));
        assert_eq!(answer.status, 200, "{}", answer.text());
    };
    delete("c");
    wait_lines(&operator, "maps", &[&red(2)]);
    delete("a");
    wait_lines(&operator, "maps", &[&red(1)]);
    delete("b");
    wait_lines(&operator, "maps", &[]);
    let deleted = |name: &str| format!(r#"deleted_total{{hook="count.sh",map="{name}"}} 1"#);
    wait_lines(
        &operator,
        "deleted",
        &[&deleted("a"), &deleted("b"), &deleted("c")],
    );
    let page = operator.hook_metrics();
    assert_eq!(page.kind("contexts"), Some("histogram"));
    // The group of the histogram is replaced as well, so it knows the last run only.
    assert_eq!(page.value("contexts_count", &[]), Some(1.0));
}

/// AW-34, SO-42.
#[test]
fn a_review_is_counted_unless_it_is_a_dry_run_and_a_bad_file_refuses_it() {
    let stage = Stage::new("reviewed");
    let body = format!(
        "name=$(jq -r '.[0].review.request.object.metadata.name' \"$BINDING_CONTEXT_PATH\")\n\
         case $name in\n\
         bad*) echo '{{\"name\": \"x\", \"action\": \"set\"}}' >\"$METRICS_PATH\" ;;\n\
         *) echo '{{\"name\": \"reviews\", \"set\": 1, \"group\": \"'$name'\", \"labels\": {{\"of\": \"'$name'\"}}}}' >\"$METRICS_PATH\" ;;\n\
         esac\n{}",
        answers(&json!({ "allowed": true }))
    );
    let stage = stage.hook("count", Kind::Validating, &json!({}), &body);
    let operator = stage.start();
    let dry = stage.api.create(
        &format!("{}?dryRun=All", stage.config_maps()),
        &config_map("dry", &json!({})),
    );
    assert_eq!(dry.status, 201, "{}", dry.text());
    assert_eq!(stage.create("wet", &json!({})).status, 201);
    assert_eq!(
        operator.hook_metrics().series(),
        [r#"reviews{hook="count.sh",of="wet"} 1"#]
    );
    for path in ["", "?dryRun=All"] {
        let answer = stage.api.create(
            &format!("{}{path}", stage.config_maps()),
            &config_map("bad", &json!({})),
        );
        let text = message(&answer);
        assert!(
            text.ends_with("Shell-operator hook 'count.sh' error: invalid metrics."),
            "{text}"
        );
    }
    operator.wait_log("the reason", |line| {
        line.label("error").is_some_and(|error| {
            error.contains("document 1, metric 'x': 'value' is required for action 'GaugeSet'")
        }) && line.label("event") == Some("kubernetesValidating")
    });
}

const RUN: &[&str] = &["binding", "hook", "queue"];

/// Every metric of the operator, as the original names it: name, type, labels. `P` stands for the prefix.
const OWN: &[(&str, &str, &[&str])] = &[
    ("P_live_ticks", "counter", &[]),
    ("P_tasks_queue_length", "gauge", &["queue"]),
    (
        "P_tasks_queue_action_duration_seconds",
        "histogram",
        &["queue_action", "queue_name"],
    ),
    (
        "d8_telemetry_P_tasks_queue_compaction_operations_total",
        "counter",
        &["hook", "queue_name"],
    ),
    (
        "d8_telemetry_P_tasks_queue_compaction_tasks_by_hook",
        "gauge",
        &["hook", "queue_name"],
    ),
    (
        "P_hook_enable_kubernetes_bindings_seconds",
        "gauge",
        &["hook"],
    ),
    (
        "P_hook_enable_kubernetes_bindings_errors_total",
        "counter",
        &["hook"],
    ),
    (
        "P_hook_enable_kubernetes_bindings_success",
        "gauge",
        &["hook"],
    ),
    ("P_hook_run_seconds", "histogram", RUN),
    ("P_hook_run_user_cpu_seconds", "histogram", RUN),
    ("P_hook_run_sys_cpu_seconds", "histogram", RUN),
    ("P_hook_run_max_rss_bytes", "gauge", RUN),
    ("P_hook_run_errors_total", "counter", RUN),
    ("P_hook_run_allowed_errors_total", "counter", RUN),
    ("P_hook_run_success_total", "counter", RUN),
    ("P_task_wait_in_queue_seconds_total", "counter", RUN),
    ("P_kube_snapshot_objects", "gauge", RUN),
    ("P_kube_jq_filter_duration_seconds", "histogram", RUN),
    ("P_kube_event_duration_seconds", "histogram", RUN),
    (
        "P_kubernetes_client_request_latency_seconds",
        "histogram",
        &["component", "url", "verb"],
    ),
    (
        "P_kubernetes_client_request_result_total",
        "counter",
        &["code", "component", "host", "method"],
    ),
    (
        "P_kubernetes_client_rate_limiter_latency_seconds",
        "histogram",
        &["url", "verb"],
    ),
    // Not here, because nothing goes wrong in this test: `kubernetes_client_watch_errors_total` and
    // `binding_monitor_missing_total`, which the unit tests of the monitors see. And nowhere `factory_informer_dead_total`: a
    // watch that ends by itself ends the operator, so there is none to be found dead.
    ("process_cpu_seconds_total", "counter", &[]),
    ("process_max_fds", "gauge", &[]),
    ("process_open_fds", "gauge", &[]),
    ("process_resident_memory_bytes", "gauge", &[]),
    ("process_start_time_seconds", "gauge", &[]),
    ("process_virtual_memory_bytes", "gauge", &[]),
];

/// Metrics that the original does not have.
const MORE: &[&str] = &[
    "P_webhook_certificate_expiry_seconds",
    "P_webhook_connections_open",
    "P_webhook_connections_evicted_total",
    "P_webhook_connections_shed_total",
    "P_webhook_handshakes_failed_total",
    "P_webhook_panics_total",
    "P_webhook_requests_refused_total",
];

fn own_name(name: &str) -> String {
    name.replace("P_", "shell_operator_")
}

/// The page once it has everything; what is missing until the end is told.
#[track_caller]
fn whole_page(operator: &Operator) -> Page {
    let missing = || {
        let page = operator.metrics();
        let known = page.names();
        let wanted = OWN.iter().map(|(name, _, _)| own_name(name));
        let missing: Vec<String> = wanted
            .filter(|name| !known.contains(&name.as_str()))
            .collect();
        missing
    };
    let begun = std::time::Instant::now();
    while begun.elapsed() < SOON && !missing().is_empty() {
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    assert_eq!(missing(), [""; 0]);
    operator.metrics()
}

/// Compatibility 8.5, to the letter.
#[test]
fn a_busy_operator_shows_every_metric_of_the_original_with_its_labels() {
    let stage = Stage::new("busy");
    let go = stage.env.path().join("go");
    let config = json!({
        "configVersion": "v1",
        "onStartup": 1,
        "kubernetes": [{
            "name": "secrets", "apiVersion": "v1", "kind": "Secret", "jqFilter": ".metadata.name",
            "namespace": { "nameSelector": { "matchNames": [stage.label] } }, "queue": "side",
        }],
    });
    let slow = format!(
        "grep -q watchEvent \"$BINDING_CONTEXT_PATH\" || exec sleep 0.2\n\
         while [ ! -e {} ]; do sleep 0.02; done",
        go.display()
    );
    let allow = format!("sleep 0.2\n{}", answers(&json!({ "allowed": true })));
    let stage = stage.script("slow.sh", &script(&config, &slow)).hook(
        "allow",
        Kind::Validating,
        &json!({}),
        &allow,
    );
    let operator = stage.start();
    assert_eq!(stage.create("a", &json!({})).status, 201);
    // The first is being worked on, a hundred are joined, the rest pile up.
    let path = format!("/api/v1/namespaces/{}/secrets", stage.label);
    for number in 0..140 {
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": { "name": format!("s-{number}") },
        });
        assert_eq!(stage.api.create(&path, &secret).status, 201);
    }
    let page = whole_page(&operator);
    for (name, kind, labels) in OWN {
        let name = own_name(name);
        assert_eq!(page.kind(&name), Some(*kind), "{name}");
        let found: Vec<&str> = page.label_names(&name).into_iter().collect();
        assert_eq!(found, *labels, "{name}");
    }
    let known: Vec<String> = OWN
        .iter()
        .map(|(name, _, _)| *name)
        .chain(MORE.iter().copied())
        .map(own_name)
        .collect();
    for name in page.names() {
        assert!(known.iter().any(|known| known == name), "{name} is new");
    }
    check_values(&page);
    std::fs::write(go, "").unwrap();
    wait_for("an empty queue", SOON, || {
        let queue = [("queue", "side")];
        operator
            .metrics()
            .value("shell_operator_tasks_queue_length", &queue)
            == Some(0.0)
    });
}

/// Label values where the original has peculiar ones, and numbers that are known.
fn check_values(page: &Page) {
    let value = |name: &str, labels: &[(&str, &str)]| page.value(&own_name(name), labels);
    let start = [("hook", "slow.sh"), ("binding", ""), ("queue", "")];
    assert_eq!(value("P_hook_run_success_total", &start), Some(1.0));
    assert_eq!(value("P_hook_run_errors_total", &start), Some(0.0));
    assert_eq!(value("P_hook_run_allowed_errors_total", &start), Some(0.0));
    let review = [("hook", "allow.sh"), ("queue", "")];
    assert_eq!(value("P_hook_run_seconds_count", &review), Some(1.0));
    assert_eq!(
        value(
            "P_hook_run_seconds_bucket",
            &[review[0], review[1], ("le", "0.1")]
        ),
        Some(0.0)
    );
    assert!(value("P_hook_run_max_rss_bytes", &review) > Some(100_000.0));
    let watched = [
        ("hook", "slow.sh"),
        ("binding", "secrets"),
        ("queue", "side"),
    ];
    // With the one that holds the operator's own certificate.
    assert_eq!(value("P_kube_snapshot_objects", &watched), Some(141.0));
    let queued = [("queue_name", "side"), ("hook", "slow.sh")];
    let joined = "d8_telemetry_P_tasks_queue_compaction_operations_total";
    assert_eq!(value(joined, &queued), Some(1.0));
    let waiting = "d8_telemetry_P_tasks_queue_compaction_tasks_by_hook";
    assert!(value(waiting, &queued) > Some(20.0));
    for action in ["AddLast", "AddFirst", "RemoveFirst", "Filter"] {
        let labels = [("queue_name", "main"), ("queue_action", action)];
        let count = value("P_tasks_queue_action_duration_seconds_count", &labels);
        assert!(count >= Some(1.0), "{action}: {count:?}");
    }
    let list = [("component", "main"), ("verb", "GET"), ("url", "/version")];
    assert!(value("P_kubernetes_client_request_latency_seconds_count", &list) >= Some(1.0));
}

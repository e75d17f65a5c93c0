//! The metrics port seen from outside: what hooks record, how a bad file fails a run, every route.
//!
//! The hook of most tests runs every second and records what the test has put into a file, so that a test can go on from page to
//! page.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use serde_json::{Value, json};

use crate::support::env::PROBE_PORT;
use crate::support::stage::script;
use crate::support::{Env, Operator, SOON, Scripted, repository, wait_for};

/// A world with a server that answers.
struct World {
    env: Env,
    _server: Scripted,
}

impl World {
    fn new() -> World {
        let server = Scripted::api();
        let env = Env::new().kubeconfig(&server.kubeconfig());
        World {
            env,
            _server: server,
        }
    }

    /// A hook that runs once, at the start.
    fn at_start(self, name: &str, body: &str) -> World {
        let config = json!({ "configVersion": "v1", "onStartup": 1 });
        self.env.write_hook(name, &script(&config, body));
        self
    }

    /// A hook that runs every second and records what `give` has given it.
    fn every_second(self, name: &str) -> World {
        let config = json!({
            "configVersion": "v1",
            "schedule": [{ "name": "tick", "crontab": "* * * * * *", "queue": name }],
        });
        let given = self.env.path().join(format!("{name}.metrics"));
        let given = given.display();
        let body = format!("if [ -e {given} ]; then cat {given} >\"$METRICS_PATH\"; fi");
        self.env.write_hook(name, &script(&config, &body));
        self
    }

    /// What the hook records from now on.
    fn give(&self, name: &str, documents: &[Value]) {
        let lines: Vec<String> = documents.iter().map(Value::to_string).collect();
        self.give_text(name, &lines.join("\n"));
    }

    fn give_text(&self, name: &str, text: &str) {
        // In one step, so that no run reads half of it.
        let made = self.env.write("made.metrics", text);
        std::fs::rename(made, self.env.path().join(format!("{name}.metrics"))).unwrap();
    }
}

#[track_caller]
fn wait_series(operator: &Operator, expected: &[&str]) {
    operator.wait_alive();
    wait_for(&format!("the series {expected:#?}"), SOON, || {
        operator.hook_metrics().series() == expected
    });
}

#[test]
fn every_action_is_seen_on_the_page_of_hooks_and_on_no_other() {
    let documents = [
        json!({"name": "jobs_total", "add": 2, "labels": {"queue": "a \"b\"\n\\"}}),
        json!({"name": "jobs_total", "action": "add", "value": 0.5, "labels": {"queue": "a \"b\"\n\\"}}),
        json!({"name": "free_bytes", "set": -3.25, "labels": {"hook": "forged"}}),
        json!({"name": "{PREFIX}seen-by.hook", "action": "set", "value": 1, "labels": {"the-zone": "z"}}),
        json!({"name": "took_seconds", "action": "observe", "value": 0.3, "buckets": [0.1, 1]}),
        json!({"name": "took_seconds", "action": "observe", "value": 5, "buckets": [0.1, 1]}),
        json!({"name": "jobs_total", "set": 1}),
        json!({"name": "x", "action": "multiply"}),
    ];
    let lines: Vec<String> = documents.iter().map(Value::to_string).collect();
    let body = format!(
        "cat >\"$METRICS_PATH\" <<'METRICS'\n{}\nMETRICS",
        lines.join("\n")
    );
    let world = World::new().at_start("a/first.sh", &body);
    let operator = world.env.start();
    operator.wait_ready();
    assert_eq!(
        operator.hook_metrics().series(),
        [
            r#"free_bytes{hook="a/first.sh"} -3.25"#,
            r#"jobs_total{hook="a/first.sh",queue="a \"b\"\n\\"} 2.5"#,
            r#"shell_operator_seen_by_hook{hook="a/first.sh",the_zone="z"} 1"#,
            r#"took_seconds_bucket{hook="a/first.sh",le="+Inf"} 2"#,
            r#"took_seconds_bucket{hook="a/first.sh",le="0.1"} 0"#,
            r#"took_seconds_bucket{hook="a/first.sh",le="1"} 1"#,
            r#"took_seconds_count{hook="a/first.sh"} 2"#,
            r#"took_seconds_sum{hook="a/first.sh"} 5.3"#,
        ]
    );
    let page = operator.hook_metrics();
    let kinds = ["jobs_total", "free_bytes", "took_seconds"].map(|name| page.kind(name));
    assert_eq!(kinds, [Some("counter"), Some("gauge"), Some("histogram")]);
    assert!(!operator.metrics().names().contains(&"jobs_total"));
    // What could not be done is told, and the run has succeeded.
    operator.wait_log("the second type of a name", |line| {
        line.label("level") == Some("error")
            && line
                .message()
                .starts_with("metric 'jobs_total' is a counter")
            && line.label("hook") == Some("a/first.sh")
    });
    operator.wait_log("the unknown action", |line| {
        line.message() == "unknown action in shoperation.MetricOperation: multiply"
    });
}

#[test]
fn the_groups_of_a_run_are_replaced_and_the_others_stay() {
    let world = World::new().every_second("a.sh").every_second("b.sh");
    world.give(
        "a.sh",
        &[
            json!({"name": "pods", "set": 1, "labels": {"node": "n1"}, "group": "pods"}),
            json!({"name": "pods", "set": 2, "labels": {"node": "n2"}, "group": "pods"}),
            json!({"name": "runs", "add": 1}),
        ],
    );
    world.give(
        "b.sh",
        &[json!({"name": "pods", "set": 9, "group": "of b"})],
    );
    let operator = world.env.start();
    let b = r#"pods{hook="b.sh",node=""} 9"#;
    let runs = r#"runs{hook="a.sh"} 1"#;
    wait_series(
        &operator,
        &[
            r#"pods{hook="a.sh",node="n1"} 1"#,
            r#"pods{hook="a.sh",node="n2"} 2"#,
            b,
            runs,
        ],
    );
    // A node has gone; what has no group is in that of the hook, and stays while the hook records nothing there.
    world.give(
        "a.sh",
        &[json!({"name": "pods", "set": 3, "labels": {"node": "n2"}, "group": "pods"})],
    );
    wait_series(&operator, &[r#"pods{hook="a.sh",node="n2"} 3"#, b, runs]);
    world.give("a.sh", &[json!({"group": "pods", "action": "expire"})]);
    wait_series(&operator, &[b, runs]);
    // A run that records nothing changes nothing. Two more have ended: the second began after the change.
    world.give("a.sh", &[]);
    let runs_so_far = || {
        let of_hook = [("hook", "a.sh")];
        let count = operator.metrics();
        count.value("shell_operator_hook_run_success_total", &of_hook)
    };
    let before = runs_so_far().unwrap();
    wait_for("two more runs", SOON, || {
        runs_so_far() >= Some(before + 2.0)
    });
    assert_eq!(operator.hook_metrics().series(), [b, runs]);
}

/// A counter without a group begins anew with every run, unless told otherwise.
#[test]
fn old_metrics_without_a_group_add_up_when_that_is_asked_for() {
    let world = World::new().every_second("a.sh");
    world.give("a.sh", &[json!({"name": "runs", "add": 1})]);
    let env = world
        .env
        .flag("--keep-ungrouped-metrics")
        .flag("--prometheus-metrics-prefix=p_")
        .env("QUEUE_ACTIONS_METRICS", "no");
    let operator = env.start();
    operator.wait_alive();
    wait_for("a counter that grows", SOON, || {
        operator.hook_metrics().value("runs", &[]) >= Some(3.0)
    });
    let page = operator.metrics();
    let names = page.names();
    assert!(names.contains(&"p_live_ticks"), "{names:?}");
    assert!(!names.iter().any(|name| name.contains("action_duration")));
    assert!(!names.iter().any(|name| name.contains("shell_operator")));
}

#[test]
fn a_bad_file_fails_the_run_and_nothing_of_it_counts() {
    let world = World::new().every_second("a.sh").every_second("b.sh");
    let good = json!({"name": "good", "set": 1});
    world.give(
        "a.sh",
        &[
            good.clone(),
            json!({"name": "bad", "action": "observe", "value": 1}),
        ],
    );
    world.give_text("b.sh", &format!("{good}\n- name: yaml\n"));
    let operator = world.env.start();
    let failure = |hook: &'static str| {
        let line = operator.wait_log("the failure", move |line| {
            line.message() == "Hook failed. Will retry after delay."
                && line.label("hook") == Some(hook)
        });
        line.label("error").unwrap().to_owned()
    };
    assert_eq!(
        failure("a.sh"),
        "1 error occurred:\n\t* metrics file, document 2, metric 'bad': 'buckets' is required for action 'HistogramObserve'\n\n"
    );
    let error = failure("b.sh");
    assert!(
        error.starts_with("got bad metrics: metrics file, document 2: "),
        "{error}"
    );
    assert!(operator.hook_metrics().names().is_empty());
    let counted = [("hook", "a.sh"), ("binding", "tick"), ("queue", "a.sh")];
    let page = operator.metrics();
    assert_eq!(
        page.value("shell_operator_hook_run_errors_total", &counted),
        Some(1.0)
    );
    assert_eq!(
        page.value("shell_operator_hook_run_success_total", &counted),
        Some(0.0)
    );
    // The same run is tried again, and now its file is good.
    world.give("a.sh", &[good]);
    wait_series(&operator, &[r#"good{hook="a.sh"} 1"#]);
}

/// Whatever hooks write, what is on the page can be read by Prometheus (the reader of these tests is stricter), and is not
/// longer than it may be.
#[test]
fn no_metrics_of_hooks_spoil_the_page_or_make_it_endless() {
    let world = World::new().every_second("a.sh");
    let gauge = json!({"name": "x", "set": 1, "labels": {"le": "1"}});
    world.give("a.sh", &[gauge]);
    let env = world.env.clone().flag("--prometheus-metrics-prefix=");
    let operator = env.start();
    wait_series(&operator, &[r#"x{hook="a.sh",le="1"} 1"#]);
    // The same name becomes a histogram, beside a name of which nothing is left.
    world.give(
        "a.sh",
        &[
            json!({"name": "x", "action": "observe", "value": 1, "buckets": [2]}),
            json!({"name": "{PREFIX}", "set": 1}),
        ],
    );
    wait_series(
        &operator,
        &[
            r#"x_bucket{hook="a.sh",le="+Inf"} 1"#,
            r#"x_bucket{hook="a.sh",le="2"} 1"#,
            r#"x_count{hook="a.sh"} 1"#,
            r#"x_sum{hook="a.sh"} 1"#,
        ],
    );
    operator.wait_log("the name that is gone", |line| {
        line.message().contains("nothing is left of the name")
    });
    // Thirty long label names, which six thousand series would have to show.
    let wide: serde_json::Map<String, Value> = (0..30)
        .map(|number| (format!("{}{number}", "l".repeat(100)), json!("v")))
        .collect();
    let mut many = vec![json!({"name": "w", "set": 1, "labels": wide})];
    many.extend(
        (0..6_000)
            .map(|number| json!({"name": "w", "set": 1, "labels": {"n": number.to_string()}})),
    );
    world.give("a.sh", &many);
    operator.wait_log("that the page is full", |line| {
        line.message()
            .starts_with("metric 'w': the page of all hooks would be longer than 16777216 bytes")
    });
    let answer = operator.http_get(PROBE_PORT, "/metrics/hooks").unwrap();
    assert!(answer.text().len() <= 16_777_216);
    assert!(operator.hook_metrics().series().len() > 1000);
    // Names that look harmless until they are shown.
    world.give(
        "a.sh",
        &[json!({"name": "x", "set": 1, "labels": {"._name__": "y"}})],
    );
    operator.wait_log("the failure", |line| {
        let error = line.label("error").unwrap_or_default();
        error.contains("label '._name__': names that begin with '__' when they are shown")
    });
}

/// Sends one request and answers its head and body as they came.
fn ask(operator_address: SocketAddr, method: &str, path: &str) -> (String, String) {
    let mut stream = TcpStream::connect(operator_address).unwrap();
    let request = format!("{method} {path} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    (head.to_ascii_lowercase(), body.to_owned())
}

#[test]
fn every_route_of_the_metrics_port_is_listed_and_answers() {
    let world = World::new().at_start(
        "a.sh",
        "echo '{\"name\": \"x\", \"set\": 1}' >\"$METRICS_PATH\"",
    );
    let operator = world.env.start();
    operator.wait_ready();
    let address = SocketAddr::new(world.env.address(), PROBE_PORT);
    let (_, listed) = ask(address, "GET", "/discovery");
    let routes: Vec<&str> = listed
        .lines()
        .map(|line| line.strip_prefix("GET ").unwrap())
        .collect();
    assert_eq!(
        routes,
        [
            "/",
            "/discovery",
            "/healthz",
            "/metrics",
            "/metrics/hooks",
            "/readyz"
        ]
    );
    for route in routes {
        let kind = match route {
            "/" => "text/html; charset=utf-8",
            "/metrics" | "/metrics/hooks" => "text/plain; version=0.0.4; charset=utf-8",
            _ => "text/plain; charset=utf-8",
        };
        let (head, body) = ask(address, "GET", route);
        assert!(head.starts_with("http/1.1 200 "), "{route}: {head}");
        assert!(
            head.contains(&format!("content-type: {kind}\r\n")),
            "{route}: {head}"
        );
        assert!(!body.is_empty(), "{route}");
        let (head, body) = ask(address, "HEAD", route);
        assert!(head.starts_with("http/1.1 200 "), "{route}: {head}");
        assert_eq!(body, "", "{route}");
        let (head, _) = ask(address, "POST", route);
        assert!(head.starts_with("http/1.1 405 "), "{route}: {head}");
    }
    let (_, page) = ask(address, "GET", "/");
    assert!(page.contains("<title>Shell operator</title>"), "{page}");
    for gone in ["/debug/pprof/", "/debug/vars", "/metrics/", "/metric"] {
        let (head, _) = ask(address, "GET", gone);
        assert!(head.starts_with("http/1.1 404 "), "{gone}: {head}");
    }
}

/// The fenced block of `hooks/README.md` behind a mark.
fn documented(mark: &str) -> String {
    let readme = std::fs::read_to_string(repository().join("hooks/README.md")).unwrap();
    let (_, rest) = readme.split_once(&format!("<!-- {mark} -->\n```")).unwrap();
    let (_, rest) = rest.split_once('\n').unwrap();
    let (text, _) = rest.split_once("\n```\n").unwrap();
    format!("{text}\n")
}

#[test]
fn the_documented_metrics_give_the_documented_page() {
    let body = format!(
        "cat >\"$METRICS_PATH\" <<'METRICS'\n{}METRICS",
        documented("metrics")
    );
    let world = World::new().at_start("jobs.sh", &body);
    let operator = world.env.start();
    operator.wait_ready();
    let answer = operator.http_get(PROBE_PORT, "/metrics/hooks").unwrap();
    assert_eq!(answer.text(), documented("page"));
}

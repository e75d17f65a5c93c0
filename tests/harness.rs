//! The harness tried on itself. A fault that the scripted server does not really show would make a test pass that proves nothing.

use std::io::{ErrorKind, Write};
use std::time::Duration;

use rustix::process::Signal;
use serde_json::json;

use crate::support::discovery::Kind;
use crate::support::{
    Authority, Connection, Discovery, Env, Loopback, Page, Reply, SOON, Screen, Scripted, Stream,
    TempDir, Validity, http, wait_for, watchdog,
};

fn get(server: &Scripted, path: &str) -> std::io::Result<http::Answer> {
    http::get(server.address(), path)
}

#[test]
fn the_scripted_server_records_what_it_was_asked_and_on_which_connection() {
    let server = Scripted::new(|request| Reply::json(&request.json()));
    let mut connection = Connection::plain(server.address()).unwrap();
    let first = connection.post_json("/a?watch=1&limit=5", &json!({ "x": 1 }));
    assert_eq!(first.unwrap().json(), json!({ "x": 1 }));
    let head = "PUT /b HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n";
    let chunks = "3\r\n{\"y\r\n4\r\n\":2}\r\n0\r\n\r\n";
    connection
        .send(format!("{head}{chunks}").as_bytes())
        .unwrap();
    assert_eq!(connection.answer().unwrap().json(), json!({ "y": 2 }));

    let requests = server.requests();
    assert_eq!(requests[0].path(), "/a");
    assert_eq!(requests[0].query("limit"), Some("5"));
    assert!(requests[0].is_watch() && !requests[1].is_watch());
    assert_eq!(requests[0].header("content-type"), Some("application/json"));
    assert_eq!(requests[0].method, "POST");
    assert_eq!(
        (requests[0].connection, requests[1].connection),
        (1, 1),
        "keep-alive"
    );
    server.wait_request("the second one", |request| request.path() == "/b");
    assert_eq!((server.connections(), server.open_connections()), (1, 1));
    drop(connection);
    wait_for("the connection to be forgotten", SOON, || {
        server.open_connections() == 0
    });
}

#[test]
fn the_scripted_server_misbehaves_on_cue() {
    let server = Scripted::new(|_| Reply::text("fine"));
    assert_eq!(get(&server, "/").unwrap().text(), "fine");

    server.script(|_| Reply::json(&json!(["long enough"])).cut_after(5));
    let error = get(&server, "/").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::UnexpectedEof);

    server.script(|_| Reply::hang_up());
    let error = get(&server, "/").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::UnexpectedEof);

    server.script(|_| Reply::too_many_requests(7));
    let answer = get(&server, "/").unwrap();
    assert_eq!(
        (answer.status, answer.header("retry-after")),
        (429, Some("7"))
    );
    assert_eq!(answer.json()["reason"], "TooManyRequests");

    server.script(|_| Reply::redirect("http://127.0.0.1:1/"));
    let answer = get(&server, "/").unwrap();
    assert_eq!(
        (answer.status, answer.header("location")),
        (307, Some("http://127.0.0.1:1/"))
    );

    server.script(|_| Reply::internal_error());
    assert_eq!(get(&server, "/").unwrap().status, 500);

    server.script(|_| Reply::bytes(200, "application/json", "{not json"));
    assert_eq!(get(&server, "/").unwrap().text(), "{not json");

    server.script(|_| Reply::raw(b"SSH-2.0-not-http\r\n\r\n"));
    assert_eq!(get(&server, "/").unwrap().status, 0);

    server.script(|_| Reply::text("drop by drop").drip(1, Duration::from_millis(1)));
    assert_eq!(get(&server, "/").unwrap().text(), "drop by drop");

    server.script(|_| Reply::text(&"z".repeat(10_000)).gzip());
    let answer = get(&server, "/").unwrap();
    assert_eq!(answer.header("content-encoding"), Some("gzip"));
    assert!(answer.body.len() < 200 && answer.body.starts_with(&[0x1f, 0x8b]));
}

#[test]
fn silence_and_endless_answers_last_until_the_client_gives_up() {
    for reply in [Reply::silence(), Reply::endless(" ")] {
        let server = Scripted::new(move |_| reply.clone());
        let mut connection = Connection::plain(server.address()).unwrap();
        connection.send(b"GET / HTTP/1.1\r\n\r\n").unwrap();
        wait_for("the request", SOON, || !server.requests().is_empty());
        assert_eq!(server.open_connections(), 1);
        drop(connection);
        wait_for("the server to notice", SOON, || {
            server.open_connections() == 0
        });
    }
}

#[test]
fn a_stream_is_sent_as_the_test_says_and_survives_its_reader() {
    let stream = Stream::new();
    let reply = Reply::stream(&stream);
    let server = Scripted::new(move |_| reply.clone());
    let start = |connection: &mut Connection| {
        connection.send(b"GET /w HTTP/1.1\r\n\r\n").unwrap();
    };

    let mut gone = Connection::plain(server.address()).unwrap();
    start(&mut gone);
    wait_for("the request", SOON, || !server.requests().is_empty());
    drop(gone);
    wait_for("its end", SOON, || server.open_connections() == 0);

    let mut reader = Connection::plain(server.address()).unwrap();
    start(&mut reader);
    stream.event("ADDED", &json!({ "kind": "Pod" }));
    stream.bytes(b"half a li");
    stream.end();
    let answer = reader.answer().unwrap();
    assert_eq!(
        answer.text(),
        "{\"object\":{\"kind\":\"Pod\"},\"type\":\"ADDED\"}\nhalf a li"
    );
    // In order, so the connection goes on.
    start(&mut reader);
    stream.cut();
    assert_eq!(
        reader.answer().unwrap_err().kind(),
        ErrorKind::UnexpectedEof
    );
}

#[test]
fn a_server_that_is_dropped_is_gone_and_its_address_can_be_taken_again() {
    let address = Loopback::new().free();
    let server = Scripted::at(address, |_| Reply::silence());
    let mut waiting = Connection::plain(address).unwrap();
    waiting.send(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    wait_for("the request", SOON, || !server.requests().is_empty());
    drop(server);
    waiting.answer().unwrap_err();
    http::get(address, "/").unwrap_err();
    let _second = Scripted::at(address, |_| Reply::text("back"));
    assert_eq!(http::get(address, "/").unwrap().text(), "back");
}

#[test]
fn tls_is_checked_against_authority_name_and_date() {
    let authority = Authority::new("right");
    let dial = |identity, name, authority: &Authority| {
        let server = Scripted::tls(identity, |_| Reply::text("secret"));
        let mut connection = Connection::tls(server.address(), name, &authority.pem, None)?;
        connection.request("GET", "/", &[], b"")
    };
    let good = authority.server(&["127.0.0.1", "api.example.com"], Validity::Now);
    assert_eq!(
        dial(&good, "127.0.0.1", &authority).unwrap().text(),
        "secret"
    );
    assert_eq!(
        dial(&good, "api.example.com", &authority).unwrap().text(),
        "secret"
    );
    dial(&good, "other.example.com", &authority).unwrap_err();
    dial(&good, "127.0.0.1", &Authority::new("wrong")).unwrap_err();
    let expired = authority.server(&["127.0.0.1"], Validity::Expired);
    let error = dial(&expired, "127.0.0.1", &authority).unwrap_err();
    assert!(error.to_string().contains("xpired"), "{error}");
}

#[test]
fn discovery_is_offered_in_both_forms() {
    let crontab = Kind {
        group: "stable.example.com",
        version: "v1",
        plural: "crontabs",
        kind: "CronTab",
        namespaced: true,
        short_names: &["ct"],
    };
    let aggregated_type = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
    let ask = |server: &Scripted, path: &str| {
        let mut connection = Connection::plain(server.address()).unwrap();
        let accept = [("Accept", aggregated_type)];
        connection.request("GET", path, &accept, b"").unwrap()
    };

    let offered = Discovery::aggregated().kind(crontab).broken("batch");
    let server = Scripted::new(move |request| offered.answer(request));
    let groups = ask(&server, "/apis").json();
    let group = |name: &str| {
        let items = groups["items"].as_array().unwrap();
        let found = items.iter().find(|item| item["metadata"]["name"] == name);
        found.unwrap()["versions"][0].clone()
    };
    assert_eq!(
        group("stable.example.com")["resources"][0]["resource"],
        "crontabs"
    );
    assert_eq!(group("batch")["freshness"], "Stale");
    let core = ask(&server, "/api").json();
    let kinds = core["items"][0]["versions"][0]["resources"].to_string();
    assert!(kinds.contains("\"singularResource\":\"pod\""), "{kinds}");

    let offered = Discovery::old().kind(crontab).broken("batch");
    let server = Scripted::new(move |request| offered.answer(request));
    assert_eq!(ask(&server, "/apis").json()["kind"], "APIGroupList");
    assert_eq!(ask(&server, "/apis/batch/v1").status, 503);
    let list = ask(&server, "/apis/stable.example.com/v1").json();
    assert_eq!(list["resources"][0]["shortNames"], json!(["ct"]));

    let server = Scripted::api();
    assert_eq!(get(&server, "/readyz").unwrap().text(), "ok");
    let pods = get(&server, "/api/v1/namespaces/default/pods").unwrap();
    assert_eq!(pods.json()["kind"], "PodList");
    assert_eq!(get(&server, "/apis/no/v1/such").unwrap().status, 404);
}

#[test]
fn a_program_is_watched_while_it_runs() {
    let env = Env::new().env("GREETING", "hello").quiet_hook();
    let script = r#"echo "{\"msg\":\"$GREETING\",\"hook\":\"a.sh\"}"; echo plain >&2; sleep 60 & echo $!; read -r x; wait"#;
    let mut program = env.spawn_program("sh", &["-c", script]);
    let line = program.wait_log("hello", |line| line.message() == "hello");
    assert_eq!((line.label("hook"), line.is_stderr), (Some("a.sh"), false));
    let line = program.wait_log("plain", |line| line.text == "plain");
    assert!(line.is_stderr && line.json.is_none() && line.contains("lai"));
    wait_for("the child", SOON, || !program.children().is_empty());
    assert_eq!(program.offspring(), program.children());
    assert!(program.rss_kib() > 100 && program.fds() >= 3 && program.threads() == 1);
    assert!(program.cpu_seconds() < 5.0);
    assert!(program.is_running());
    assert_eq!(program.log_lines().len(), 3);
    assert!(program.readyz().is_none() && program.healthz().is_none());
    program.signal(Signal::KILL);
    assert_eq!(program.wait_exit(SOON).code(), None);
    let child = program.offspring();
    assert_eq!(child.len(), 1, "it lives on");
    drop(program);
    wait_for("the end of the child", SOON, || {
        !std::path::Path::new(&format!("/proc/{}", child[0])).exists()
    });
}

#[test]
fn a_program_runs_in_a_clean_environment() {
    let env = Env::new();
    let output = env.spawn_program("env", &[]).output(SOON);
    let names: Vec<_> = output
        .stdout
        .lines()
        .filter_map(|line| line.split('=').next())
        .collect();
    assert_eq!(
        names,
        [
            "CONVERSION_WEBHOOK_LISTEN_ADDRESS",
            "DEBUG_UNIX_SOCKET",
            "HOME",
            "PATH",
            "SHELL_OPERATOR_HOOKS_DIR",
            "SHELL_OPERATOR_LISTEN_ADDRESS",
            "SHELL_OPERATOR_TEST_RUN",
            "SHELL_OPERATOR_TMP_DIR",
            "VALIDATING_WEBHOOK_LISTEN_ADDRESS",
        ]
    );
    assert_eq!(output.code, Some(0));
    let text = env.spawn_program("false", &[]).output(SOON).err();
    assert_eq!(text, "");
}

#[test]
fn the_world_of_a_test_is_its_own() {
    let env = Env::new().hook("nested/a.sh", "#!/bin/sh\necho hi\n");
    let (path, hook) = (env.path().to_owned(), env.hooks_dir().join("nested/a.sh"));
    let output = env.spawn_program(&hook.to_string_lossy(), &[]).output(SOON);
    assert_eq!(output.ok(), "hi\n");
    let other = Env::new();
    assert_ne!(env.address(), other.address());
    assert_ne!(env.free(), env.free());
    assert_ne!(path, other.path());
    assert!(env.tmp_dir().is_dir() && !env.debug_socket().exists());
    let running = env.spawn_program("sleep", &["60"]);
    drop(env);
    assert!(path.is_dir(), "a running program keeps it");
    drop(running);
    assert!(!path.exists());
}

#[test]
fn the_watchdog_ends_what_an_interrupted_run_has_left() {
    let (left, taken_back) = (TempDir::new(), TempDir::new());
    let mut process = std::process::Command::new("sleep")
        .arg("60")
        .env("MARK", left.path().join("run"))
        .spawn()
        .unwrap();
    let mut watchdog = watchdog::start();
    let mut input = watchdog.stdin.take().unwrap();
    for (sign, dir) in [('+', &left), ('+', &taken_back), ('-', &taken_back)] {
        writeln!(input, "{sign}dir {}", dir.path().display()).unwrap();
    }
    assert!(process.try_wait().unwrap().is_none());
    drop(input);
    assert!(watchdog.wait().unwrap().success());
    assert!(!process.wait().unwrap().success());
    assert!(!left.path().exists() && taken_back.path().exists());
}

#[test]
#[should_panic(expected = "waited for a thing that never comes in vain")]
fn waiting_in_vain_says_what_for() {
    wait_for(
        "a thing that never comes",
        Duration::from_millis(50),
        || false,
    );
}

#[test]
fn the_reader_of_metrics_takes_nothing_that_is_not_to_the_letter() {
    let head = "# HELP x x\n# TYPE x counter\n";
    let good = format!("{head}x{{a=\"q\\\"\\\\\\n\",b=\"\"}} 1\nx{{a=\"\",b=\"c\"}} 2.5e3\n");
    let page = Page::parse(&good).unwrap();
    assert_eq!(page.kind("x"), Some("counter"));
    assert_eq!(page.value("x", &[("a", "q\"\\\n")]), Some(1.0));
    assert_eq!(page.value("x", &[("b", "c"), ("a", "")]), Some(2500.0));
    assert_eq!(page.value("x", &[("b", "d")]), None);
    assert!(Page::parse("").unwrap().names().is_empty());
    for bad in [
        "x 1\n",
        "# HELP x x\nx 1\n",
        "# TYPE x counter\n# HELP x x\nx 1\n",
        "# HELP x x\n# TYPE x untyped\nx 1\n",
        "# HELP x x\n# TYPE y counter\nx 1\n",
        head,
    ] {
        assert!(Page::parse(bad).is_err(), "{bad}");
    }
    for bad in [
        "x 1",
        "x 1\n\n",
        "y 1\n",
        "x  1\n",
        "x -1\n",
        "x inf\n",
        "x one\n",
        "x{} 1\n",
        "x{a=1} 1\n",
        "x{a=\"1\",} 1\n",
        "x{a=\"1\",a=\"1\"} 1\n",
        "x{a=\"1\",b=\"2\",a=\"\"} 1\n",
        "x{a-b=\"1\"} 1\n",
        "x{__name__=\"y\"} 1\n",
        "{a=\"1\"} 1\n",
        "x{a=\"\\t\"} 1\n",
        "x 1\nx 1\n",
        "x 1\nx{a=\"\"} 1\n",
        "x 1\n# HELP x x\n# TYPE x counter\nx{a=\"b\"} 1\n",
    ] {
        assert!(Page::parse(&format!("{head}{bad}")).is_err(), "{bad}");
    }
    let head = "# HELP h h\n# TYPE h histogram\n";
    let good = "h_bucket{le=\"1\"} 1\nh_bucket{le=\"+Inf\"} 2\nh_sum 3\nh_count 2\n";
    let page = Page::parse(&format!("{head}{good}")).unwrap();
    assert_eq!(page.value("h_bucket", &[("le", "1")]), Some(1.0));
    for (part, instead) in [
        ("h_sum 3\n", ""),
        ("h_count 2", "h_count 3"),
        ("h_bucket{le=\"+Inf\"} 2\n", ""),
        ("le=\"1\"} 1", "le=\"1\"} 3"),
        ("le=\"1\"", "le=\"x\""),
        ("h_sum", "h"),
        ("{le=\"1\"}", "{le=\"1\",le=\"1\"}"),
        ("{le=\"1\"}", "{le=\"\",le=\"1\"}"),
        ("{le=\"1\"}", ""),
        ("h_sum 3", "h_sum{le=\"1\"} 3"),
    ] {
        let bad = good.replace(part, instead);
        assert!(Page::parse(&format!("{head}{bad}")).is_err(), "{bad}");
    }
}

#[test]
fn the_screen_of_a_terminal_shows_what_a_person_would_see() {
    let mut screen = Screen::new(3, 4);
    screen.write("one\r\nlonger\r\n");
    assert_eq!(screen.lines(), ["long", "er"]);
    assert_eq!(screen.scrolled, 1);
    screen.write("\u{1b}[?1049h\u{1b}[?25l\u{1b}[?7l\u{1b}[Habcdefg\r\nh\r\ni");
    assert_eq!(screen.lines(), ["abcg", "h", "i"]);
    assert!(screen.is_other() && !screen.shows_cursor && !screen.wraps);
    screen.write("\u{1b}[Hx\u{1b}[K\r\ny\u{1b}[J\u{1b}[");
    assert_eq!(screen.lines(), ["x", "y"]);
    let mut screen = Screen::new(3, 4);
    screen.write("old\r\n\u{1b}[?1049hnew\u{1b}[?1049lend");
    assert_eq!(screen.lines(), ["old", "end"]);
    assert!(!screen.is_other() && screen.has("ol"));
}

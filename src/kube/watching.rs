//! Tests of watching against a server that misbehaves on cue.

use std::collections::BTreeMap;
use std::net::TcpStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::backoff::{Rest, Tempo};
use super::client::Client;
use super::error::Error;
use super::ground::Ground;
use super::object::Object;
use super::resource::Resource;
use super::scripted::{Seen, Server, answer, begin, chunk, end, silence};
use super::watch::{Difference, Selection, Sink, Watcher};

/// LIMIT: how long a test waits for what must come.
const PATIENCE: Duration = Duration::from_secs(30);

fn tempo() -> Tempo {
    let moment = Duration::from_millis(20);
    Tempo {
        silence: Duration::from_millis(300),
        initial_events: Duration::from_millis(300),
        first_pause: moment,
        longest_pause: 4 * moment,
        login_pause: moment,
        first_probe: moment,
        longest_probe: moment,
        spread: moment,
        absence: 10 * moment,
        ..Tempo::default()
    }
}

/// Tells the test what the watcher told it, after working out what a list leaves out.
struct Recorder {
    told: Sender<String>,
    known: BTreeMap<String, String>,
    unseen: Vec<String>,
}

impl Sink for Recorder {
    fn wanted(&self) -> bool {
        true
    }

    fn begin(&mut self) {
        self.unseen = self.known.keys().cloned().collect();
    }

    fn item(&mut self, object: &Object<'_>) {
        self.unseen.retain(|name| *name != object.name);
        self.put("item", object);
    }

    fn end_of_list(&mut self) {
        for name in std::mem::take(&mut self.unseen) {
            self.known.remove(&name);
            let _ = self.told.send(format!("gone {name}"));
        }
        let _ = self.told.send("listed".to_owned());
    }

    fn changed(&mut self, difference: Difference, object: &Object<'_>) {
        match difference {
            Difference::Put => self.put("put", object),
            Difference::Deleted => {
                self.known.remove(&*object.name);
                let _ = self.told.send(format!("deleted {}", object.name));
            }
        }
    }

    fn failed(&mut self, error: &Error) {
        let _ = self.told.send(match error.code() {
            Some(code) => format!("failed {code}"),
            None => "failed".to_owned(),
        });
    }
}

impl Recorder {
    fn put(&mut self, what: &str, object: &Object<'_>) {
        let version = object.version.to_string();
        if self.known.insert(object.name.to_string(), version.clone()) != Some(version.clone()) {
            let _ = self.told.send(format!("{what} {}@{version}", object.name));
        }
    }
}

/// A watch of config maps that runs until it is dropped.
struct Running {
    told: Receiver<String>,
    client: Client,
    rest: Arc<Rest>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Running {
    fn start(client: Client) -> Running {
        Running::start_with(client, &Arc::default(), tempo())
    }

    #[expect(clippy::disallowed_methods, reason = "test support")]
    fn start_with(client: Client, ground: &Arc<Ground>, tempo: Tempo) -> Running {
        let (sender, told) = channel();
        let rest = Arc::new(Rest::default());
        let sink = Recorder {
            told: sender,
            known: BTreeMap::new(),
            unseen: Vec::new(),
        };
        let watcher = Watcher::new(
            client.clone(),
            Selection::new(&config_maps(), None, "", "").unwrap(),
            Arc::clone(ground),
            tempo,
            Arc::clone(&rest),
            sink,
        );
        Running {
            told,
            client,
            rest,
            thread: Some(std::thread::spawn(|| watcher.run())),
        }
    }

    fn expect(&self, expected: &[&str]) {
        for word in expected {
            let told = self.told.recv_timeout(PATIENCE).unwrap();
            assert_eq!(told, *word);
        }
    }

    /// Waits for one word; what came before it is returned.
    fn until(&self, word: &str) -> Vec<String> {
        let mut before = Vec::new();
        loop {
            let told = self.told.recv_timeout(PATIENCE);
            match told {
                Ok(told) if told == word => return before,
                Ok(told) => before.push(told),
                Err(_) => panic!("no {word:?} after {before:?}"),
            }
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.rest.stop();
        self.client.shutdown();
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

fn config_maps() -> Resource {
    Resource {
        version: "v1".to_owned(),
        plural: "configmaps".to_owned(),
        kind: "ConfigMap".to_owned(),
        namespaced: true,
        ..Resource::default()
    }
}

fn object(name: &str, version: u32) -> String {
    format!(r#"{{"metadata":{{"name":"{name}","namespace":"n","resourceVersion":"{version}"}}}}"#)
}

fn list(version: u32, next: &str, items: &[String]) -> Vec<u8> {
    let body = format!(
        r#"{{"kind":"ConfigMapList","apiVersion":"v1","metadata":{{"resourceVersion":"{version}","continue":"{next}"}},"items":[{}]}}"#,
        items.join(",")
    );
    answer(200, "", &body)
}

fn event(kind: &str, object: &str) -> String {
    format!("{{\"type\":\"{kind}\",\"object\":{object}}}\n")
}

fn write(stream: &mut TcpStream, bytes: &[u8]) -> bool {
    std::io::Write::write_all(stream, bytes).is_ok()
}

/// The requests for config maps, without those for the version of the server.
fn asked(server: &Server) -> Vec<Seen> {
    let mut seen = server.seen();
    seen.retain(|seen| seen.path() != "/version");
    seen
}

/// A server that answers lists and watches by two scripts; each is told how often it was asked before.
fn server(
    lists: impl Fn(usize, &Seen, &mut TcpStream) -> bool + Send + Sync + 'static,
    watches: impl Fn(usize, &Seen, &mut TcpStream) -> bool + Send + Sync + 'static,
) -> Server {
    let (listed, watched) = (AtomicUsize::new(0), AtomicUsize::new(0));
    Server::start(move |seen, stream| {
        if seen.path() == "/version" {
            return write(stream, &answer(404, "", "{}"));
        }
        if seen.is_watch() {
            watches(watched.fetch_add(1, Ordering::SeqCst), seen, stream)
        } else {
            lists(listed.fetch_add(1, Ordering::SeqCst), seen, stream)
        }
    })
}

#[test]
fn a_list_is_read_page_by_page_and_the_watch_begins_at_its_version() {
    let server = server(
        |number, _, stream| match number {
            0 => write(stream, &list(10, "a/b", &[object("a", 1), object("b", 2)])),
            _ => write(stream, &list(10, "", &[object("c", 3)])),
        },
        |_, _, stream| {
            begin(stream);
            chunk(stream, &event("ADDED", &object("d", 11)));
            chunk(stream, &event("MODIFIED", &object("a", 12)));
            chunk(stream, &event("DELETED", &object("b", 13)));
            silence(stream)
        },
    );
    let watch = Running::start(server.client());
    watch.expect(&["item a@1", "item b@2", "item c@3", "listed"]);
    watch.expect(&["put d@11", "put a@12", "deleted b"]);
    let seen = asked(&server);
    assert_eq!(seen[0].line, "GET /api/v1/configmaps?limit=500 HTTP/1.1");
    assert_eq!(
        seen[1].line,
        "GET /api/v1/configmaps?limit=500&continue=a%2Fb HTTP/1.1"
    );
    assert_eq!(seen[2].parameter("resourceVersion"), Some("10"));
    assert_eq!(seen[2].parameter("allowWatchBookmarks"), Some("true"));
    let seconds: u64 = seen[2]
        .parameter("timeoutSeconds")
        .unwrap()
        .parse()
        .unwrap();
    assert!((20..=30).contains(&seconds), "{seconds}");
}

#[test]
fn selectors_are_part_of_every_question_and_encoded() {
    let selection = Selection::new(
        &config_maps(),
        Some("kube-system"),
        "app in (a,b),!c",
        "metadata.name=x",
    )
    .unwrap();
    assert_eq!(
        selection.path_with(&[("limit", "5")]),
        "/api/v1/namespaces/kube-system/configmaps?labelSelector=app%20in%20%28a%2Cb%29%2C%21c&fieldSelector=metadata.name%3Dx&limit=5"
    );
    let everything = Selection::new(&config_maps(), None, "", "").unwrap();
    assert_eq!(everything.path_with(&[]), "/api/v1/configmaps");
    assert_eq!(everything.to_string(), "/api/v1/configmaps");
}

#[test]
fn a_connection_that_breaks_in_mid_line_is_resumed_without_a_list() {
    let server = server(
        |_, _, stream| write(stream, &list(10, "", &[])),
        |number, _, stream| {
            begin(stream);
            if number == 0 {
                chunk(stream, &event("ADDED", &object("a", 11)));
                chunk(stream, event("ADDED", &object("b", 12)).get(..40).unwrap());
                return false;
            }
            chunk(stream, &event("ADDED", &object("b", 12)));
            silence(stream)
        },
    );
    let watch = Running::start(server.client());
    watch.expect(&["listed", "put a@11", "failed", "put b@12"]);
    let seen = asked(&server);
    assert_eq!(seen.len(), 3, "one list, two watches: {seen:?}");
    assert_eq!(seen[2].parameter("resourceVersion"), Some("11"));
}

#[test]
fn a_connection_that_falls_silent_is_noticed_and_resumed() {
    let server = server(
        |_, _, stream| write(stream, &list(10, "", &[])),
        |number, _, stream| {
            begin(stream);
            if number == 1 {
                chunk(stream, &event("ADDED", &object("a", 11)));
            }
            // No FIN: the peer just says nothing more.
            silence(stream)
        },
    );
    let watch = Running::start(server.client());
    watch.expect(&["listed", "failed", "put a@11"]);
    assert_eq!(asked(&server)[2].parameter("resourceVersion"), Some("10"));
}

#[test]
fn bookmarks_move_the_version_and_unknown_events_are_passed_over() {
    let server = server(
        |_, _, stream| write(stream, &list(10, "", &[])),
        |number, _, stream| {
            begin(stream);
            if number == 0 {
                chunk(stream, "\n");
                chunk(
                    stream,
                    &event("BOOKMARK", r#"{"metadata":{"resourceVersion":"77"}}"#),
                );
                chunk(stream, &event("FANCY", r#"{"x":1}"#));
                return end(stream);
            }
            chunk(stream, &event("ADDED", &object("a", 78)));
            silence(stream)
        },
    );
    let watch = Running::start(server.client());
    watch.expect(&["listed", "put a@78"]);
    assert_eq!(asked(&server)[2].parameter("resourceVersion"), Some("77"));
    // The list, the first watch and the second one; an answer that ended well leaves the connection usable.
    assert_eq!(server.connections.load(Ordering::SeqCst), 1);
}

const EXPIRED: &str = r#"{"kind":"Status","reason":"Expired","message":"too old","code":410}"#;

#[test]
fn an_expired_version_leads_to_a_list_that_finds_what_was_missed() {
    for by_event in [true, false] {
        let server = server(
            |number, _, stream| match number {
                0 => write(
                    stream,
                    &list(10, "", &[object("a", 1), object("b", 2), object("c", 3)]),
                ),
                _ => write(stream, &list(50, "", &[object("a", 1), object("c", 40)])),
            },
            move |number, _, stream| match number {
                0 if by_event => {
                    begin(stream);
                    chunk(stream, &event("ERROR", EXPIRED));
                    end(stream)
                }
                0 => write(stream, &answer(410, "", EXPIRED)),
                _ => {
                    begin(stream);
                    silence(stream)
                }
            },
        );
        let watch = Running::start(server.client());
        watch.expect(&["item a@1", "item b@2", "item c@3", "listed"]);
        watch.expect(&["failed 410", "item c@40", "gone b", "listed"]);
        watch.expect(&["failed"]);
        assert_eq!(asked(&server)[3].parameter("resourceVersion"), Some("50"));
    }
}

#[test]
fn versions_that_expire_at_once_do_not_make_a_storm_of_lists() {
    let server = server(
        |_, _, stream| write(stream, &list(10, "", &[])),
        |_, _, stream| write(stream, &answer(410, "", EXPIRED)),
    );
    let slow = Tempo {
        first_pause: Duration::from_millis(400),
        longest_pause: Duration::from_secs(60),
        ..tempo()
    };
    let watch = Running::start_with(server.client(), &Arc::default(), slow);
    watch.expect(&[
        "listed",
        "failed 410",
        "listed",
        "failed 410",
        "listed",
        "failed 410",
    ]);
    let lists = asked(&server)
        .iter()
        .filter(|seen| !seen.is_watch())
        .count();
    assert_eq!(lists, 3, "the fourth is waited for");
}

#[test]
fn a_server_that_says_later_is_asked_later_from_the_same_version() {
    let refused = Arc::new(Mutex::new(None));
    let at = Arc::clone(&refused);
    let server = server(
        |_, _, stream| write(stream, &list(10, "", &[])),
        move |number, _, stream| {
            if number == 0 {
                *at.lock().unwrap() = Some(Instant::now());
                return write(stream, &answer(429, "Retry-After: 1\r\n", "{}"));
            }
            begin(stream);
            chunk(stream, &event("ADDED", &object("a", 11)));
            silence(stream)
        },
    );
    let watch = Running::start(server.client());
    watch.expect(&["listed", "failed 429", "put a@11"]);
    let waited = refused.lock().unwrap().unwrap().elapsed();
    assert!(waited >= Duration::from_secs(1), "{waited:?}");
    assert_eq!(asked(&server)[2].parameter("resourceVersion"), Some("10"));
}

#[test]
fn an_object_of_three_megabytes_comes_through_list_and_watch() {
    let big = |name: &str, version: u32| {
        format!(
            r#"{{"metadata":{{"name":"{name}","resourceVersion":"{version}"}},"data":{{"x":"{}"}}}}"#,
            "y".repeat(3 * 1024 * 1024)
        )
    };
    let server = server(
        move |_, _, stream| write(stream, &list(10, "", &[big("a", 1), object("b", 2)])),
        move |_, _, stream| {
            begin(stream);
            chunk(stream, &event("MODIFIED", &big("a", 11)));
            chunk(stream, &event("MODIFIED", &object("b", 12)));
            silence(stream)
        },
    );
    let watch = Running::start(server.client());
    watch.expect(&["item a@1", "item b@2", "listed", "put a@11", "put b@12"]);
}

#[test]
fn an_endless_line_and_an_endless_object_are_refused() {
    let (sent, seen) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (list_bytes, watch_bytes) = (Arc::clone(&sent), Arc::clone(&seen));
    let piece = "y".repeat(1024 * 1024);
    let endless = move |count: &AtomicUsize, stream: &mut TcpStream| {
        while chunk(stream, &piece) {
            count.fetch_add(1, Ordering::SeqCst);
        }
        false
    };
    let other = endless.clone();
    let server = server(
        move |number, _, stream| {
            if number > 0 {
                return write(stream, &list(10, "", &[]));
            }
            begin(stream);
            chunk(stream, r#"{"metadata":{},"items":[{"metadata":{"name":""#);
            endless(&list_bytes, stream)
        },
        move |_, _, stream| {
            begin(stream);
            chunk(stream, "{\"type\":\"");
            other(&watch_bytes, stream)
        },
    );
    let watch = Running::start(server.client());
    watch.expect(&["failed", "listed", "failed"]);
    drop(watch);
    for count in [sent, seen] {
        let count = count.load(Ordering::SeqCst);
        assert!(count < 100, "{count} MiB were taken");
    }
}

#[test]
fn twenty_thousand_objects_come_complete_although_a_page_expired() {
    let all: Vec<String> = (0..20_000)
        .map(|n| object(&format!("o{n:05}"), n + 1))
        .collect();
    let server = server(
        move |_, seen, stream| match (seen.parameter("limit"), seen.parameter("continue")) {
            (Some(_), None) => write(stream, &list(30_000, "p2", &all[..500])),
            (Some(_), Some("p2")) => write(stream, &list(30_000, "p3", &all[500..1000])),
            (Some(_), _) => write(stream, &answer(410, "", EXPIRED)),
            (None, _) => write(stream, &list(30_001, "", &all)),
        },
        |_, _, stream| {
            begin(stream);
            silence(stream)
        },
    );
    let watch = Running::start(server.client());
    let told = watch.until("listed");
    let items = told.iter().filter(|word| word.starts_with("item")).count();
    assert_eq!(
        (items, told.len()),
        (20_000, 20_001),
        "each once, one failure"
    );
    watch.expect(&["failed"]);
    let version = asked(&server)[4]
        .parameter("resourceVersion")
        .map(str::to_owned);
    assert_eq!(version.as_deref(), Some("30001"));
}

#[test]
fn an_item_is_handed_on_before_the_next_one_has_come() {
    let (go, wait) = channel::<()>();
    let wait = Mutex::new(wait);
    let server = server(
        move |_, _, stream| {
            begin(stream);
            chunk(stream, r#"{"metadata":{"resourceVersion":"9"},"items":["#);
            for number in 0..3 {
                let comma = if number == 0 { "" } else { "," };
                chunk(
                    stream,
                    &format!("{comma}{}", object(&format!("o{number}"), number)),
                );
                if wait.lock().unwrap().recv().is_err() {
                    return false;
                }
            }
            chunk(stream, "]}");
            end(stream)
        },
        |_, _, stream| {
            begin(stream);
            silence(stream)
        },
    );
    let patient = Tempo {
        silence: PATIENCE,
        ..tempo()
    };
    let watch = Running::start_with(server.client(), &Arc::default(), patient);
    for number in 0..3 {
        watch.expect(&[&format!("item o{number}@{number}")]);
        go.send(()).unwrap();
    }
    watch.expect(&["listed"]);
}

#[test]
fn an_answer_that_is_no_list_empties_nothing() {
    let server = server(
        |number, _, stream| match number {
            0 => write(stream, &list(10, "", &[object("a", 1)])),
            1 => write(stream, &answer(200, "", "{}")),
            2 => write(
                stream,
                &answer(
                    200,
                    "",
                    r#"{"kind":"Status","metadata":{},"status":"Success"}"#,
                ),
            ),
            3 => write(stream, &answer(200, "", r#"{"metadata":{},"items":["#)),
            _ => write(stream, &list(20, "", &[object("a", 1)])),
        },
        |number, _, stream| match number {
            0 => write(stream, &answer(410, "", EXPIRED)),
            _ => {
                begin(stream);
                silence(stream)
            }
        },
    );
    let watch = Running::start(server.client());
    watch.expect(&["item a@1", "listed", "failed 410"]);
    watch.expect(&["failed", "failed", "failed", "listed"]);
}

#[test]
fn a_watch_that_ends_at_once_is_not_begun_again_in_a_hurry() {
    let server = server(
        |_, _, stream| write(stream, &list(10, "", &[])),
        |_, _, stream| {
            begin(stream);
            end(stream)
        },
    );
    let slow = Tempo {
        first_pause: Duration::from_secs(60),
        longest_pause: Duration::from_secs(60),
        ..tempo()
    };
    let watch = Running::start_with(server.client(), &Arc::default(), slow);
    watch.expect(&["listed", "failed", "failed"]);
    assert_eq!(
        asked(&server).len(),
        3,
        "one list, two watches, then a pause"
    );
}

#[test]
fn what_is_forbidden_or_missing_is_asked_for_until_it_is_there() {
    for code in [403, 404, 500] {
        let server = server(
            move |number, _, stream| match number {
                0..3 => write(stream, &answer(code, "", "{}")),
                _ => write(stream, &list(10, "", &[object("a", 1)])),
            },
            |_, _, stream| {
                begin(stream);
                silence(stream)
            },
        );
        let watch = Running::start(server.client());
        let failed = format!("failed {code}");
        watch.expect(&[&failed, &failed, &failed, "item a@1", "listed"]);
    }
}

#[test]
fn objects_of_a_resource_that_stays_away_are_gone_and_come_back_with_it() {
    let back = Arc::new(AtomicUsize::new(0));
    let switch = Arc::clone(&back);
    let server = server(
        move |number, _, stream| match (number, switch.load(Ordering::SeqCst)) {
            (0, _) => write(stream, &list(10, "", &[object("a", 1)])),
            (_, 0) => write(stream, &answer(404, "", "{}")),
            _ => write(stream, &list(20, "", &[object("b", 12)])),
        },
        |number, _, stream| match number {
            0 => write(stream, &answer(404, "", "{}")),
            _ => {
                begin(stream);
                silence(stream)
            }
        },
    );
    let watch = Running::start(server.client());
    watch.expect(&["item a@1", "listed", "failed 404", "failed 404"]);
    let told = watch.until("gone a");
    assert!(told.iter().all(|word| word == "failed 404"), "{told:?}");
    back.store(1, Ordering::SeqCst);
    watch.until("item b@12");
    watch.expect(&["listed"]);
}

#[test]
fn a_version_that_is_refused_for_ever_is_left() {
    let server = server(
        |number, _, stream| match number {
            0 => write(stream, &list(1000, "", &[object("a", 1)])),
            _ => write(stream, &list(20, "", &[object("a", 1)])),
        },
        |_, seen, stream| {
            if seen.parameter("resourceVersion") == Some("1000") {
                return write(
                    stream,
                    &answer(504, "", r#"{"kind":"Status","reason":"Timeout"}"#),
                );
            }
            begin(stream);
            chunk(stream, &event("ADDED", &object("b", 21)));
            silence(stream)
        },
    );
    let watch = Running::start(server.client());
    let told = watch.until("put b@21");
    assert_eq!(told.iter().filter(|word| *word == "failed 504").count(), 5);
}

/// A server of the given version, whose streaming lists are answered by a script.
fn streaming(streams: impl Fn(&mut TcpStream) -> bool + Send + Sync + 'static) -> Server {
    Server::start(move |seen, stream| {
        if seen.path() == "/version" {
            return write(stream, &answer(200, "", r#"{"major":"1","minor":"36"}"#));
        }
        if seen.parameter("sendInitialEvents").is_some() {
            return streams(stream);
        }
        if seen.is_watch() {
            begin(stream);
            chunk(stream, &event("ADDED", &object("late", 90)));
            return silence(stream);
        }
        write(stream, &list(80, "", &[object("a", 1), object("b", 2)]))
    })
}

#[test]
fn a_streaming_list_ends_with_its_mark_and_a_watch_goes_on() {
    let server = streaming(|stream| {
        begin(stream);
        chunk(stream, &event("ADDED", &object("a", 1)));
        chunk(
            stream,
            &event("BOOKMARK", r#"{"metadata":{"resourceVersion":"5"}}"#),
        );
        chunk(stream, &event("ADDED", &object("b", 2)));
        chunk(
            stream,
            &event(
                "BOOKMARK",
                r#"{"metadata":{"resourceVersion":"70","annotations":{"k8s.io/initial-events-end":"true"}}}"#,
            ),
        );
        silence(stream)
    });
    let watch = Running::start(server.client());
    watch.expect(&["item a@1", "item b@2", "listed", "put late@90"]);
    let seen = asked(&server);
    assert_eq!(
        seen[0].parameter("resourceVersionMatch"),
        Some("NotOlderThan")
    );
    assert_eq!(seen[0].parameter("resourceVersion"), None);
    assert_eq!(seen[1].parameter("resourceVersion"), Some("70"));
    assert_eq!(seen.len(), 2, "no plain list");
}

#[test]
fn a_streaming_list_without_its_mark_is_replaced_by_a_plain_one() {
    let silent = |stream: &mut TcpStream| {
        begin(stream);
        chunk(stream, &event("ADDED", &object("a", 1)));
        silence(stream)
    };
    let ended = |stream: &mut TcpStream| {
        begin(stream);
        chunk(stream, &event("ADDED", &object("a", 1)));
        end(stream)
    };
    let old = |stream: &mut TcpStream| {
        begin(stream);
        chunk(stream, &event("ADDED", &object("a", 1)));
        chunk(stream, &event("DELETED", &object("x", 3)));
        silence(stream)
    };
    let scripts: [fn(&mut TcpStream) -> bool; 3] = [silent, ended, old];
    for script in scripts {
        let server = streaming(script);
        let watch = Running::start(server.client());
        watch.expect(&["item a@1", "item b@2", "listed", "put late@90"]);
        assert_eq!(asked(&server)[1].parameter("limit"), Some("500"));
    }
}

#[test]
fn a_server_that_refuses_streaming_lists_is_asked_only_once() {
    let server = streaming(|stream| {
        write(
            stream,
            &answer(422, "", r#"{"kind":"Status","reason":"Invalid"}"#),
        )
    });
    let ground = Arc::default();
    for _ in 0..3 {
        let watch = Running::start_with(server.client(), &ground, tempo());
        watch.expect(&["item a@1", "item b@2", "listed", "put late@90"]);
    }
    let streams = asked(&server)
        .iter()
        .filter(|seen| seen.parameter("sendInitialEvents").is_some())
        .count();
    assert_eq!(streams, 1);
}

#[test]
fn many_watches_survive_a_server_that_goes_away_without_a_storm() {
    let script = |seen: &Seen, stream: &mut TcpStream| {
        if seen.path() == "/version" {
            return write(stream, &answer(404, "", "{}"));
        }
        if seen.is_watch() {
            begin(stream);
            let version: u32 = seen.parameter("resourceVersion").unwrap().parse().unwrap();
            chunk(
                stream,
                &event("ADDED", &object(&format!("after-{version}"), version + 1)),
            );
            return silence(stream);
        }
        write(stream, &list(10, "", &[]))
    };
    let server = Server::start(script);
    let address = server.address;
    let ground = Arc::default();
    let patient = Tempo {
        silence: PATIENCE,
        ..tempo()
    };
    let watches: Vec<Running> = (0..20)
        .map(|_| Running::start_with(server.client(), &ground, patient))
        .collect();
    for watch in &watches {
        watch.expect(&["listed", "put after-10@11"]);
    }
    drop(server);
    for watch in &watches {
        // The cut, and the refused connection after it.
        watch.expect(&["failed", "failed"]);
    }
    let returned = Instant::now();
    let server = Server::start_at(address, script);
    for watch in &watches {
        watch.expect(&["put after-11@12"]);
    }
    assert!(returned.elapsed() < Duration::from_secs(5));
    let lists = asked(&server)
        .iter()
        .filter(|seen| !seen.is_watch())
        .count();
    assert_eq!(lists, 0, "nothing was lost, so nothing is listed");
}

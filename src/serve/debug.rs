//! The debug server: queues, hooks, snapshots and runtime parameters, as the original serves them.
//!
//! Runs on the connection threads of the unix socket and, when asked for, of a TCP port. It reads the operator through `Inside` and
//! changes nothing but the level of the log. Snapshots are shown whole, Secrets included, as in the original: whoever may open the
//! socket (mode 0600) could read them from the process anyway. Nothing of an answer is ever logged.

use std::io::{self, Write as _};
use std::sync::Arc;

use serde_json::{Value, json};

use super::dump::{self, Queues};
use super::parameter::Parameters;
use super::probe::Readiness;
use super::{Head, Limits, Request, Respond, Response};
use crate::hook::context::write_items;
use crate::message::{Operations, QueueView, SnapshotView};
use crate::review::Afterwards;
use crate::yaml;

/// What there is to see of the operator. Never waits for a hook or a queue.
pub(crate) trait Inside: Send + Sync + 'static {
    /// Empty before hooks are known.
    fn queues(&self) -> Vec<QueueView>;
    /// Names, in hook order.
    fn hooks(&self) -> Vec<String>;
    /// The objects of a hook's bindings; None if there is no such hook.
    fn snapshots(&self, hook: &str) -> Option<Vec<SnapshotView>>;
}

/// LIMIT: people and a script or two look; a form with three short values is the only body.
pub(crate) fn limits() -> Limits {
    Limits {
        connections: 16,
        body: 16 * 1024,
        bodies: 256 * 1024,
        ..Limits::default()
    }
}

/// Answers the debug servers.
pub(crate) struct Debug {
    pub(crate) inside: Arc<dyn Inside>,
    pub(crate) readiness: Arc<Readiness>,
    pub(crate) parameters: Parameters,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    Text,
    Json,
    Yaml,
}

const NOT_FOUND: &str = "404 page not found\n";

impl Respond for Debug {
    fn screen(&self, head: &Head) -> Option<Response> {
        let is_set = head.path == "/config/set";
        let fits = match head.method.as_str() {
            "GET" | "HEAD" => !is_set,
            "POST" => is_set,
            _ => false,
        };
        (!fits).then(|| Response::text(405, "only GET is served here, and POST for /config/set\n"))
    }

    fn respond(&self, request: Request, _: &mut Afterwards) -> Response {
        let path = request.head.path.as_str();
        if path == "/config/set" {
            return self.set(&request.body);
        }
        let query = request.head.query.as_deref().unwrap_or_default();
        self.show(path, query)
            .unwrap_or_else(|| Response::text(404, NOT_FOUND))
    }
}

impl Debug {
    fn show(&self, path: &str, query: &str) -> Option<Response> {
        if path == "/" {
            return Some(Response::text(200, "debug endpoint is alive"));
        }
        let (route, format) = split_format(path)?;
        match route {
            "/queue/main" => Some(self.main_queue(format)),
            "/queue/list" => Some(self.queues(format, is_true(&field(query, "showEmpty")))),
            "/hook/list" => Some(formed(format, || serde_json::to_vec(&self.inside.hooks()))),
            "/config/list" => Some(match format {
                Format::Text => Response::text(200, self.parameters.table()),
                _ => formed(format, || serde_json::to_vec(&self.parameters.list())),
            }),
            _ => {
                let hook = route.strip_prefix("/hook/")?.strip_suffix("/snapshots")?;
                Some(self.snapshots(&decoded(hook, false), format))
            }
        }
    }

    fn main_queue(&self, format: Format) -> Response {
        let queues = self.inside.queues();
        match format {
            Format::Text => {
                let missing = self.readiness.missing();
                Response::text(200, dump::main_text(queues, missing.as_deref()))
            }
            _ => formed(format, || dump::main_json(queues)),
        }
    }

    fn queues(&self, format: Format, show_empty: bool) -> Response {
        let queues = Queues::new(self.inside.queues());
        match format {
            Format::Text => {
                let missing = self.readiness.missing();
                Response::text(200, queues.text(show_empty, missing.as_deref()))
            }
            _ => formed(format, || queues.json(show_empty)),
        }
    }

    fn snapshots(&self, hook: &str, format: Format) -> Response {
        match self.inside.snapshots(hook) {
            Some(views) => formed(format, || snapshots_json(&views)),
            None => Response::text(400, format!("hook '{hook}' is not exist\n")),
        }
    }

    fn set(&self, body: &[u8]) -> Response {
        let form = String::from_utf8_lossy(body);
        let (name, value) = (field(&form, "name"), field(&form, "value"));
        match self
            .parameters
            .set(&name, &value, &field(&form, "duration"))
        {
            Ok(()) => Response::text(200, ""),
            Err(error) => Response::text(400, format!("{error}\n")),
        }
    }
}

/// The route without its ending, which says how to answer; none means text. None: an ending that means nothing.
fn split_format(path: &str) -> Option<(&str, Format)> {
    let last = path.rsplit('/').next().unwrap_or_default();
    let Some((_, ending)) = last.rsplit_once('.') else {
        return Some((path, Format::Text));
    };
    let format = match ending {
        "text" => Format::Text,
        "json" => Format::Json,
        "yaml" => Format::Yaml,
        _ => return None,
    };
    let route = path.strip_suffix(ending)?.strip_suffix('.')?;
    Some((route, format))
}

/// JSON with a newline, also where text is asked for and there is no text of its own; or the same as YAML.
fn formed(format: Format, json: impl FnOnce() -> serde_json::Result<Vec<u8>>) -> Response {
    let made = json().and_then(|mut json| {
        if format == Format::Yaml {
            json = yaml::emit(&json)?.into_bytes();
        } else {
            json.push(b'\n');
        }
        Ok(json)
    });
    match made {
        Ok(body) => Response {
            content_type: match format {
                Format::Text => "text/plain; charset=utf-8",
                Format::Json => "application/json",
                Format::Yaml => "application/yaml",
            },
            ..Response::json(200, body)
        },
        Err(error) => Response::text(500, format!("cannot be written down: {error}\n")),
    }
}

/// Objects go through as the bytes that the store holds.
fn snapshots_json(views: &[SnapshotView]) -> serde_json::Result<Vec<u8>> {
    let mut out = b"{".to_vec();
    for (index, view) in views.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        write_snapshot(&mut out, &key(views, index), view).map_err(serde_json::Error::io)?;
    }
    out.push(b'}');
    Ok(out)
}

fn write_snapshot(out: &mut Vec<u8>, key: &str, view: &SnapshotView) -> io::Result<()> {
    serde_json::to_writer(&mut *out, key)?;
    out.write_all(b":{\"snapshot\":")?;
    write_items(out, &view.objects)?;
    let operations = json!({
        "sinceStart": counts(view.since_start),
        "sinceLastExecution": counts(view.since_last),
    });
    write!(out, ",\"operations\":{operations}}}")
}

fn counts(operations: Operations) -> Value {
    json!({
        "count": operations.count,
        "added": operations.added,
        "deleted": operations.deleted,
        "modified": operations.modified,
        "cleaned": operations.cleaned,
    })
}

/// The binding's name; with a number when an earlier binding has the same, so that none hides another.
fn key(views: &[SnapshotView], index: usize) -> String {
    let name = views.get(index).map_or("", |view| view.binding.as_str());
    let earlier = views.iter().take(index);
    match earlier.filter(|view| view.binding == name).count() {
        0 => name.to_owned(),
        more => format!("{name}[{more}]"),
    }
}

fn is_true(text: &str) -> bool {
    matches!(text, "true" | "True" | "TRUE" | "t" | "T" | "1")
}

/// The first value of this name in a form or query; empty when there is none.
fn field(form: &str, name: &str) -> String {
    let mut pairs = form
        .split('&')
        .map(|pair| pair.split_once('=').unwrap_or((pair, "")));
    let found = pairs.find(|(key, _)| decoded(key, true) == name);
    found.map_or_else(String::new, |(_, value)| decoded(value, true))
}

/// Undoes percent-encoding; what is not encoded well stays as it is.
fn decoded(text: &str, is_form: bool) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        let digits = after.split_at_checked(2).filter(|_| *first == b'%');
        let byte = digits.and_then(|(digits, after)| {
            let digits = std::str::from_utf8(digits).ok()?;
            let plain = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
            let byte = u8::from_str_radix(digits, 16).ok().filter(|_| plain)?;
            rest = after;
            Some(byte)
        });
        bytes.push(match byte {
            Some(byte) => byte,
            None if is_form && *first == b'+' => b' ',
            None => *first,
        });
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use log::LevelFilter;

    use super::*;
    use crate::message::Item;

    struct Example;

    impl Inside for Example {
        fn queues(&self) -> Vec<QueueView> {
            Vec::new()
        }

        fn hooks(&self) -> Vec<String> {
            vec!["001/a.sh".to_owned(), "b c.sh".to_owned()]
        }

        fn snapshots(&self, hook: &str) -> Option<Vec<SnapshotView>> {
            let view = |binding: &str| SnapshotView {
                binding: binding.to_owned(),
                objects: vec![Item {
                    object: Some(Arc::from(*b"{\"kind\":\"Pod\"}")),
                    filter_result: Some(Arc::from(*b"1.50")),
                }],
                since_start: Operations {
                    count: 1,
                    added: 2,
                    ..Operations::default()
                },
                since_last: Operations::default(),
            };
            (hook == "001/a.sh").then(|| vec![view("pods"), view("pods")])
        }
    }

    fn debug() -> Debug {
        let (events, _) = crossbeam_channel::unbounded();
        Debug {
            inside: Arc::new(Example),
            readiness: Arc::default(),
            parameters: Parameters::new(LevelFilter::Info, events),
        }
    }

    fn shown(path: &str) -> (u16, &'static str, String) {
        let response = debug()
            .show(path, "")
            .unwrap_or_else(|| Response::text(404, NOT_FOUND));
        let text = String::from_utf8(response.body).unwrap();
        (response.status, response.content_type, text)
    }

    #[test]
    fn routes_answer_in_the_format_of_their_ending() {
        let hooks = "[\"001/a.sh\",\"b c.sh\"]\n".to_owned();
        let text = "text/plain; charset=utf-8";
        assert_eq!(
            shown("/hook/list.json"),
            (200, "application/json", hooks.clone())
        );
        assert_eq!(shown("/hook/list.text"), (200, text, hooks.clone()));
        assert_eq!(shown("/hook/list"), (200, text, hooks));
        assert_eq!(
            shown("/hook/list.yaml"),
            (
                200,
                "application/yaml",
                "- 001/a.sh\n- \"b c.sh\"\n".replace("001/a.sh", "\"001/a.sh\"")
            )
        );
        assert_eq!(
            shown("/"),
            (200, text, "debug endpoint is alive".to_owned())
        );
        for path in [
            "/hook/list.xml",
            "/hook/x",
            "/queue",
            "/queue/other.json",
            "/config/list.",
            "/hook//",
        ] {
            assert_eq!(shown(path), (404, text, NOT_FOUND.to_owned()), "{path}");
        }
    }

    #[test]
    fn snapshots_are_shown_whole_under_names_that_do_not_hide_each_other() {
        let (status, _, text) = shown("/hook/001/a.sh/snapshots.json");
        assert_eq!(status, 200);
        let first = "{\"pods\":{\"snapshot\":[{\"object\":{\"kind\":\"Pod\"},\"filterResult\":1.50}],\"operations\":{";
        assert!(text.starts_with(first), "{text}");
        let value: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(value["pods"]["operations"]["sinceStart"]["added"], 2);
        assert_eq!(
            value["pods[1]"]["operations"]["sinceLastExecution"]["cleaned"],
            0
        );
        assert_eq!(shown("/hook/001%2Fa.sh/snapshots.text").2, text);
        let unknown = shown("/hook/c.sh/snapshots");
        assert_eq!(
            (unknown.0, unknown.2.as_str()),
            (400, "hook 'c.sh' is not exist\n")
        );
    }

    #[test]
    fn forms_are_decoded_as_browsers_encode_them() {
        for (form, expected) in [
            ("name=log.level", "log.level"),
            ("x=1&name=a+b%26c", "a b&c"),
            ("name=%", "%"),
            ("name=%zz%2", "%zz%2"),
            ("name=%+1", "% 1"),
            ("n%61me=%C3%BC", "ü"),
            ("name", ""),
            ("", ""),
        ] {
            assert_eq!(field(form, "name"), expected, "{form}");
        }
        let refused = debug().set(b"name=log.level&value=loud");
        assert_eq!(refused.status, 400);
        assert_eq!(
            refused.body,
            b"'value' parameter is invalid: no level found\n"
        );
    }
}

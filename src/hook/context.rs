//! The JSON a hook reads: an array of binding contexts, streamed to the file from bytes that are already JSON.
//!
//! Pure: whoever runs the hook passes a writer. Objects, filter results and requests go through untouched, so that numbers stay
//! as they are and no list of objects is ever built in memory. It decides only the shape; which snapshots a run gets, and from
//! which moment, is the caller's business.

use std::io::{self, Write};

use serde_json::value::RawValue;

use super::binding::{AdmissionKind, Change, ON_STARTUP};

/// One object of a snapshot or event. Both parts are JSON text.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Item<'a> {
    /// None when the binding does not keep full objects.
    pub(crate) object: Option<&'a [u8]>,
    /// None when the binding has no jqFilter.
    pub(crate) filter_result: Option<&'a [u8]>,
    /// Set when it comes from the request under review and not from the cluster.
    pub(crate) proposed: Option<Mark>,
}

/// What is special about an object that a request proposes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Mark {
    /// It has no name yet, only the beginning of one.
    pub(crate) generated: bool,
    /// It is in another version than the objects around it.
    pub(crate) version_mismatch: bool,
}

/// What an overlay changed, for a hook that wants to know.
pub(crate) struct OverlayNote<'a> {
    pub(crate) operation: &'a str,
    /// Names of the snapshots that are about the kind of the request.
    pub(crate) bindings: Vec<&'a str>,
    /// Snapshot, namespace and name of what would be gone from it.
    pub(crate) removed: Vec<(&'a str, &'a str, &'a str)>,
}

/// Objects in their order. A store implements this without copying them.
pub(crate) trait Items {
    fn visit(&self, each: &mut dyn FnMut(Item<'_>) -> io::Result<()>) -> io::Result<()>;
}

impl Items for [Item<'_>] {
    fn visit(&self, each: &mut dyn FnMut(Item<'_>) -> io::Result<()>) -> io::Result<()> {
        self.iter().try_for_each(|item| each(*item))
    }
}

impl<const N: usize> Items for [Item<'_>; N] {
    fn visit(&self, each: &mut dyn FnMut(Item<'_>) -> io::Result<()>) -> io::Result<()> {
        self.as_slice().visit(each)
    }
}

/// The objects of one kubernetes binding, under its name.
pub(crate) struct Snapshot<'a> {
    pub(crate) name: &'a str,
    pub(crate) items: &'a dyn Items,
}

/// Why a hook runs, and what it gets to see.
pub(crate) struct BindingContext<'a> {
    pub(crate) reason: Reason<'a>,
    /// One for every name of the binding's `includeSnapshotsFrom`; none at all leaves the key out.
    pub(crate) snapshots: &'a [Snapshot<'a>],
    /// Only for a review that asked for it: everything else looks as it does in the original.
    pub(crate) overlay: Option<OverlayNote<'a>>,
}

/// One case for every shape of a context.
#[derive(Clone, Copy)]
pub(crate) enum Reason<'a> {
    OnStartup,
    Schedule {
        binding: &'a str,
    },
    Synchronization {
        binding: &'a str,
        objects: &'a dyn Items,
    },
    Event {
        binding: &'a str,
        change: Change,
        item: Item<'a>,
    },
    /// A schedule or kubernetes binding with a group; `binding` is the one that caused the run.
    Group {
        binding: &'a str,
        group: &'a str,
    },
    Admission {
        binding: &'a str,
        kind: AdmissionKind,
        /// JSON, written as it is.
        request: &'a [u8],
    },
    Conversion {
        binding: &'a str,
        /// As written in the hook's rule.
        from: &'a str,
        to: &'a str,
        uid: &'a str,
        desired: &'a str,
        objects: &'a [&'a RawValue],
    },
    /// A v0 hook's onStartup or schedule.
    V0 {
        binding: &'a str,
    },
    /// A v0 hook's kubernetes event.
    V0Event {
        binding: &'a str,
        change: Change,
        namespace: &'a str,
        kind: &'a str,
        name: &'a str,
    },
}

/// Writes the whole file: the array, and a newline.
pub(crate) fn write_contexts(
    out: &mut dyn Write,
    contexts: &[BindingContext<'_>],
) -> io::Result<()> {
    out.write_all(b"[")?;
    for (index, context) in contexts.iter().enumerate() {
        if index > 0 {
            out.write_all(b",")?;
        }
        write_context(out, context)?;
    }
    out.write_all(b"]\n")
}

fn write_context(out: &mut dyn Write, context: &BindingContext<'_>) -> io::Result<()> {
    match &context.reason {
        // Never has snapshots, whatever the caller passed.
        Reason::OnStartup => {
            open(out, ON_STARTUP)?;
            return out.write_all(b"}");
        }
        Reason::Schedule { binding } => {
            open(out, binding)?;
            field(out, "type", "Schedule")?;
        }
        Reason::Synchronization { binding, objects } => {
            open(out, binding)?;
            field(out, "type", "Synchronization")?;
            out.write_all(b",\"objects\":")?;
            write_items(out, *objects)?;
        }
        Reason::Event {
            binding,
            change,
            item,
        } => {
            open(out, binding)?;
            field(out, "type", "Event")?;
            field(out, "watchEvent", change.as_str())?;
            write_parts(out, *item, b",")?;
        }
        Reason::Group { binding, group } => {
            open(out, binding)?;
            field(out, "type", "Group")?;
            field(out, "groupName", group)?;
        }
        Reason::Admission {
            binding,
            kind,
            request,
        } => {
            open(out, binding)?;
            field(out, "type", kind.as_str())?;
            // Hooks always see v1, whatever version the API server spoke.
            out.write_all(b",\"review\":{\"apiVersion\":\"admission.k8s.io/v1\",\"kind\":\"AdmissionReview\",\"request\":")?;
            out.write_all(request)?;
            out.write_all(b"}")?;
        }
        Reason::Conversion { .. } => write_conversion(out, &context.reason)?,
        Reason::V0 { binding } => open(out, binding)?,
        Reason::V0Event {
            binding,
            change,
            namespace,
            kind,
            name,
        } => {
            open(out, binding)?;
            field(out, "resourceEvent", change.as_v0())?;
            field(out, "resourceNamespace", namespace)?;
            field(out, "resourceKind", kind)?;
            field(out, "resourceName", name)?;
        }
    }
    write_snapshots(out, context.snapshots)?;
    if let Some(note) = &context.overlay {
        write_overlay(out, note)?;
    }
    out.write_all(b"}")
}

fn write_conversion(out: &mut dyn Write, reason: &Reason<'_>) -> io::Result<()> {
    let Reason::Conversion {
        binding,
        from,
        to,
        uid,
        desired,
        objects,
    } = reason
    else {
        return Ok(());
    };
    open(out, binding)?;
    field(out, "type", "Conversion")?;
    field(out, "fromVersion", from)?;
    field(out, "toVersion", to)?;
    out.write_all(b",\"review\":{\"apiVersion\":\"apiextensions.k8s.io/v1\",\"kind\":\"ConversionReview\",\"request\":{\"uid\":")?;
    string(out, uid)?;
    field(out, "desiredAPIVersion", desired)?;
    out.write_all(b",\"objects\":[")?;
    for (index, object) in objects.iter().enumerate() {
        if index > 0 {
            out.write_all(b",")?;
        }
        out.write_all(object.get().as_bytes())?;
    }
    out.write_all(b"]}}")
}

fn write_snapshots(out: &mut dyn Write, snapshots: &[Snapshot<'_>]) -> io::Result<()> {
    if snapshots.is_empty() {
        return Ok(());
    }
    out.write_all(b",\"snapshots\":{")?;
    for (index, snapshot) in snapshots.iter().enumerate() {
        if index > 0 {
            out.write_all(b",")?;
        }
        string(out, snapshot.name)?;
        out.write_all(b":")?;
        write_items(out, snapshot.items)?;
    }
    out.write_all(b"}")
}

fn write_overlay(out: &mut dyn Write, note: &OverlayNote<'_>) -> io::Result<()> {
    out.write_all(b",\"overlay\":{\"operation\":")?;
    string(out, note.operation)?;
    out.write_all(b",\"bindings\":")?;
    serde_json::to_writer(&mut *out, &note.bindings)?;
    out.write_all(b",\"removed\":[")?;
    for (index, (binding, namespace, name)) in note.removed.iter().enumerate() {
        out.write_all(if index > 0 { b",{" } else { b"{" })?;
        out.write_all(b"\"binding\":")?;
        string(out, binding)?;
        field(out, "namespace", namespace)?;
        field(out, "name", name)?;
        out.write_all(b"}")?;
    }
    out.write_all(b"]}")
}

/// The objects as an array.
pub(crate) fn write_items(out: &mut dyn Write, items: &dyn Items) -> io::Result<()> {
    out.write_all(b"[")?;
    let mut separator: &[u8] = b"";
    items.visit(&mut |item| {
        out.write_all(separator)?;
        separator = b",";
        out.write_all(b"{")?;
        write_parts(out, item, b"")?;
        out.write_all(b"}")
    })?;
    out.write_all(b"]")
}

/// `object` and `filterResult`, each where there is one; `before` stands before the first.
fn write_parts(out: &mut dyn Write, item: Item<'_>, before: &[u8]) -> io::Result<()> {
    let mut before = before;
    for (key, part) in [
        (&b"\"object\":"[..], item.object),
        (&b"\"filterResult\":"[..], item.filter_result),
    ] {
        if let Some(json) = part {
            out.write_all(before)?;
            out.write_all(key)?;
            out.write_all(json)?;
            before = b",";
        }
    }
    let Some(mark) = item.proposed else {
        return Ok(());
    };
    out.write_all(before)?;
    out.write_all(b"\"proposed\":true")?;
    if mark.generated {
        out.write_all(b",\"generated\":true")?;
    }
    if mark.version_mismatch {
        out.write_all(b",\"versionMismatch\":true")?;
    }
    Ok(())
}

fn open(out: &mut dyn Write, binding: &str) -> io::Result<()> {
    out.write_all(b"{\"binding\":")?;
    string(out, binding)
}

fn field(out: &mut dyn Write, key: &str, value: &str) -> io::Result<()> {
    write!(out, ",\"{key}\":")?;
    string(out, value)
}

/// A string with everything escaped that JSON wants escaped.
fn string(out: &mut dyn Write, text: &str) -> io::Result<()> {
    serde_json::to_writer(out, text).map_err(io::Error::from)
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn written(contexts: &[BindingContext<'_>]) -> String {
        let mut out = Vec::new();
        write_contexts(&mut out, contexts).unwrap();
        let text = String::from_utf8(out).unwrap();
        serde_json::from_str::<Value>(&text).unwrap_or_else(|error| panic!("{text}: {error}"));
        text
    }

    fn check(reason: Reason<'_>, snapshots: &[Snapshot<'_>], expected: &str) {
        let context = BindingContext {
            reason,
            snapshots,
            overlay: None,
        };
        assert_eq!(written(&[context]), format!("[{expected}]\n"));
    }

    fn item<'a>(object: Option<&'a str>, filter_result: Option<&'a str>) -> Item<'a> {
        Item {
            object: object.map(str::as_bytes),
            filter_result: filter_result.map(str::as_bytes),
            proposed: None,
        }
    }

    #[test]
    #[expect(clippy::too_many_lines, reason = "a table of cases")]
    fn every_reason_has_its_shape() {
        let full = [
            item(Some("{\"kind\":\"Pod\"}"), Some("{\"a\":\"1\"}")),
            item(Some("{\"n\":1.10}"), None),
            item(None, Some("null")),
            item(None, None),
        ];
        let none: [Item<'_>; 0] = [];
        check(Reason::OnStartup, &[], "{\"binding\":\"onStartup\"}");
        check(
            Reason::Schedule {
                binding: "every-minute",
            },
            &[],
            "{\"binding\":\"every-minute\",\"type\":\"Schedule\"}",
        );
        check(
            Reason::Synchronization {
                binding: "pods",
                objects: &full,
            },
            &[],
            "{\"binding\":\"pods\",\"type\":\"Synchronization\",\"objects\":[{\"object\":{\"kind\":\"Pod\"},\"filterResult\":{\"a\":\"1\"}},{\"object\":{\"n\":1.10}},{\"filterResult\":null},{}]}",
        );
        check(
            Reason::Synchronization {
                binding: "pods",
                objects: &none,
            },
            &[],
            "{\"binding\":\"pods\",\"type\":\"Synchronization\",\"objects\":[]}",
        );
        check(
            Reason::Event {
                binding: "pods",
                change: Change::Deleted,
                item: full[0],
            },
            &[],
            "{\"binding\":\"pods\",\"type\":\"Event\",\"watchEvent\":\"Deleted\",\"object\":{\"kind\":\"Pod\"},\"filterResult\":{\"a\":\"1\"}}",
        );
        check(
            Reason::Event {
                binding: "pods",
                change: Change::Added,
                item: full[3],
            },
            &[],
            "{\"binding\":\"pods\",\"type\":\"Event\",\"watchEvent\":\"Added\"}",
        );
        check(
            Reason::Event {
                binding: "pods",
                change: Change::Modified,
                item: full[2],
            },
            &[],
            "{\"binding\":\"pods\",\"type\":\"Event\",\"watchEvent\":\"Modified\",\"filterResult\":null}",
        );
        check(
            Reason::Group {
                binding: "cfg",
                group: "main",
            },
            &[
                Snapshot {
                    name: "pods",
                    items: &none,
                },
                Snapshot {
                    name: "cfg",
                    items: &none,
                },
            ],
            "{\"binding\":\"cfg\",\"type\":\"Group\",\"groupName\":\"main\",\"snapshots\":{\"pods\":[],\"cfg\":[]}}",
        );
    }

    #[test]
    fn a_review_is_passed_on_untouched() {
        // SO-20, SO-21, SO-22.
        let request = RawValue::from_string("{ \"uid\":\"1\",\"object\":{\"n\": 1.10, \"big\":12345678901234567890123},\"oldObject\":null }".to_owned()).unwrap();
        let items = [item(Some("{\"kind\":\"Secret\"}"), None)];
        for (kind, name) in [
            (AdmissionKind::Validating, "Validating"),
            (AdmissionKind::Mutating, "Mutating"),
        ] {
            check(
                Reason::Admission {
                    binding: "policy.example.com",
                    kind,
                    request: request.get().as_bytes(),
                },
                &[Snapshot {
                    name: "secrets",
                    items: &items,
                }],
                &format!(
                    "{{\"binding\":\"policy.example.com\",\"type\":\"{name}\",\"review\":{{\"apiVersion\":\"admission.k8s.io/v1\",\"kind\":\"AdmissionReview\",\"request\":{}}},\"snapshots\":{{\"secrets\":[{{\"object\":{{\"kind\":\"Secret\"}}}}]}}}}",
                    request.get()
                ),
            );
        }
    }

    #[test]
    fn a_conversion_names_both_versions() {
        let objects = [
            RawValue::from_string("{\"a\":1}".to_owned()).unwrap(),
            RawValue::from_string("{\"b\":2}".to_owned()).unwrap(),
        ];
        check(
            Reason::Conversion {
                binding: "up",
                from: "v1",
                to: "stable.example.com/v2",
                uid: "u",
                desired: "stable.example.com/v3",
                objects: &objects.each_ref().map(|object| &**object),
            },
            &[],
            "{\"binding\":\"up\",\"type\":\"Conversion\",\"fromVersion\":\"v1\",\"toVersion\":\"stable.example.com/v2\",\"review\":{\"apiVersion\":\"apiextensions.k8s.io/v1\",\"kind\":\"ConversionReview\",\"request\":{\"uid\":\"u\",\"desiredAPIVersion\":\"stable.example.com/v3\",\"objects\":[{\"a\":1},{\"b\":2}]}}}",
        );
    }

    #[test]
    fn version_0_has_its_own_shapes() {
        check(
            Reason::V0 {
                binding: "schedule",
            },
            &[],
            "{\"binding\":\"schedule\"}",
        );
        for (change, word) in [
            (Change::Added, "add"),
            (Change::Modified, "update"),
            (Change::Deleted, "delete"),
        ] {
            check(
                Reason::V0Event {
                    binding: "pods",
                    change,
                    namespace: "default",
                    kind: "Pod",
                    name: "a",
                },
                &[],
                &format!(
                    "{{\"binding\":\"pods\",\"resourceEvent\":\"{word}\",\"resourceNamespace\":\"default\",\"resourceKind\":\"Pod\",\"resourceName\":\"a\"}}"
                ),
            );
        }
    }

    #[test]
    fn contexts_are_an_array_in_order_and_names_are_escaped() {
        let schedule = |binding| BindingContext {
            reason: Reason::Schedule { binding },
            snapshots: &[],
            overlay: None,
        };
        assert_eq!(
            written(&[schedule("a"), schedule("say \"hi\"\n"), schedule("c")]),
            "[{\"binding\":\"a\",\"type\":\"Schedule\"},{\"binding\":\"say \\\"hi\\\"\\n\",\"type\":\"Schedule\"},{\"binding\":\"c\",\"type\":\"Schedule\"}]\n"
        );
    }

    #[test]
    fn a_start_run_never_has_snapshots() {
        let none: [Item<'_>; 0] = [];
        check(
            Reason::OnStartup,
            &[Snapshot {
                name: "a",
                items: &none,
            }],
            "{\"binding\":\"onStartup\"}",
        );
    }

    #[test]
    fn a_full_disk_is_an_error_and_not_a_short_file() {
        struct Full;
        impl Write for Full {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                Err(io::Error::from(io::ErrorKind::StorageFull))
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let context = BindingContext {
            reason: Reason::Schedule { binding: "a" },
            snapshots: &[],
            overlay: None,
        };
        assert_eq!(
            write_contexts(&mut Full, &[context]).unwrap_err().kind(),
            io::ErrorKind::StorageFull
        );
    }
}

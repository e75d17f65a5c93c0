//! A suite file, `<hook>.tests.yaml`: from text to cases.
//!
//! Pure. It knows the keys and what they mean by themselves; whether a binding exists is found out when the hook is known (`target.rs`).
//! Everything that several cases share stands under `global` and is laid under each case here, so a case knows all it needs.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::super::outcome::Operation;
use super::expect::{self, Expect};
use super::fields::{Fault, Fields, Read};
use crate::hook::binding::Change;
use crate::yaml::{self, Node, Tree};

/// LIMIT: characters of a case's name; it has to fit on a line of a report with its hook before it.
const LONGEST_NAME: usize = 200;

const SUITE: &[&str] = &["global", "tests"];
const GLOBAL: &[&str] = &["snapshots", "commands", "env", "requires"];
const CASE: &[&str] = &[
    "name",
    "binding",
    "request",
    "context",
    "snapshots",
    "commands",
    "env",
    "requires",
    "expect",
];
const REQUEST: &[&str] = &[
    "operation",
    "object",
    "oldObject",
    "userInfo",
    "subResource",
    "dryRun",
    "options",
    "resource",
    "name",
    "namespace",
];
const CONTEXT: &[&str] = &[
    "type",
    "watchEvent",
    "object",
    "objects",
    "fromVersion",
    "toVersion",
];
const SHIM: &[&str] = &["exit", "stdout", "stderr"];

/// All cases of a hook.
#[derive(Debug)]
pub(super) struct Suite {
    pub(super) cases: Vec<TestCase>,
    /// Every command that a case of the suite replaces: whoever calls one without saying what it does has made a mistake.
    pub(super) shims: BTreeSet<String>,
}

/// One case, with everything that the suite shares laid under it.
#[derive(Clone, Debug)]
pub(super) struct TestCase {
    pub(super) name: String,
    pub(super) line: u64,
    /// With the line it is written on.
    pub(super) binding: Option<(String, u64)>,
    pub(super) asked: Asked,
    /// By the name of the kubernetes binding.
    pub(super) snapshots: BTreeMap<String, Vec<Value>>,
    /// The line of each of these names.
    pub(super) snapshot_lines: BTreeMap<String, u64>,
    pub(super) commands: BTreeMap<String, Shim>,
    pub(super) env: BTreeMap<String, String>,
    /// Programs without which the case is skipped.
    pub(super) requires: Vec<String>,
    pub(super) expect: Expect,
}

/// What the hook is run for.
#[derive(Clone, Debug)]
pub(super) enum Asked {
    Request(Box<Request>),
    OnStartup,
    Schedule,
    /// Without objects: those of the binding's snapshot.
    Synchronization(Option<Vec<Value>>),
    Event(Change, Value),
    Conversion {
        from: String,
        to: String,
        objects: Vec<Value>,
    },
}

/// What an AdmissionReview is made of.
#[derive(Clone, Debug)]
pub(super) struct Request {
    pub(super) operation: Operation,
    pub(super) object: Option<Value>,
    pub(super) old_object: Option<Value>,
    pub(super) user: Option<Value>,
    pub(super) sub_resource: String,
    pub(super) dry_run: bool,
    pub(super) options: Option<Value>,
    /// The plural, where it cannot be guessed from the kind.
    pub(super) resource: Option<String>,
    pub(super) name: Option<String>,
    pub(super) namespace: Option<String>,
}

/// A command that is replaced for the hook.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Shim {
    pub(super) exit: u8,
    pub(super) stdout: String,
    pub(super) stderr: String,
}

/// What is laid under every case.
#[derive(Default)]
struct Shared {
    snapshots: BTreeMap<String, Vec<Value>>,
    lines: BTreeMap<String, u64>,
    commands: BTreeMap<String, Shim>,
    env: BTreeMap<String, String>,
    requires: Vec<String>,
}

impl Suite {
    pub(super) fn parse(text: &str) -> Read<Suite> {
        let node =
            yaml::parse(text).map_err(|error| Fault::new(error.line.max(1), error.message))?;
        let fields = Fields::open(&node, "a suite", SUITE)?;
        let shared = match fields.get("global") {
            None => Shared::default(),
            Some(node) => Shared::read(&Fields::open(node, "global", GLOBAL)?)?,
        };
        let nodes = fields.list("tests")?.unwrap_or_default();
        if nodes.is_empty() {
            return fields.fault("tests", "a suite needs `tests` with at least one case");
        }
        let mut suite = Suite {
            cases: Vec::with_capacity(nodes.len()),
            shims: shared.commands.keys().cloned().collect(),
        };
        for node in nodes {
            let case = read_case(node, &shared)?;
            if let Some(other) = suite.cases.iter().find(|known| known.name == case.name) {
                let text = format!(
                    "the case {:?} is here twice, first on line {}; give each its own name",
                    case.name, other.line
                );
                return Err(Fault::new(case.line, text));
            }
            suite.shims.extend(case.commands.keys().cloned());
            suite.cases.push(case);
        }
        Ok(suite)
    }
}

impl Shared {
    fn read(fields: &Fields<'_>) -> Read<Shared> {
        let mut lines = BTreeMap::new();
        Ok(Shared {
            snapshots: read_snapshots(fields, &mut lines)?,
            lines,
            commands: fields.map("commands", read_shim)?,
            env: fields.map("env", read_variable)?,
            requires: fields.texts("requires")?,
        })
    }
}

fn read_case(node: &Node, shared: &Shared) -> Read<TestCase> {
    let fields = Fields::open(node, "a case", CASE)?;
    let name = match fields.text("name")? {
        Some(name) if name.trim().is_empty() => None,
        other => other,
    };
    let Some(name) = name else {
        return fields.fault("name", "a case needs a `name`");
    };
    if name.chars().count() > LONGEST_NAME {
        let text = format!("the name of a case has at most {LONGEST_NAME} characters");
        return fields.fault("name", text);
    }
    let Some(expected) = fields.get("expect") else {
        return fields.fault(
            "expect",
            format!("the case {name:?} needs `expect`, or it tests nothing"),
        );
    };
    let asked = read_asked(&fields)?;
    let expect = expect::read(expected, &asked)?;
    let mut lines = shared.lines.clone();
    let own = read_snapshots(&fields, &mut lines)?;
    let mut requires = shared.requires.clone();
    requires.extend(fields.texts("requires")?);
    let mut commands = shared.commands.clone();
    commands.extend(fields.map("commands", read_shim)?);
    let mut env = shared.env.clone();
    env.extend(fields.map("env", read_variable)?);
    let binding = fields.text("binding")?;
    Ok(TestCase {
        name,
        line: fields.line_of("name"),
        binding: binding.map(|binding| (binding, fields.line_of("binding"))),
        asked,
        snapshots: overlaid(&shared.snapshots, own),
        snapshot_lines: lines,
        commands,
        env,
        requires,
        expect,
    })
}

fn read_asked(fields: &Fields<'_>) -> Read<Asked> {
    match (fields.get("request"), fields.get("context")) {
        (Some(node), None) => read_request(&Fields::open(node, "request", REQUEST)?),
        (None, Some(node)) => match &node.tree {
            // The short form: `context: Schedule`.
            Tree::String(kind) => read_context(kind, None, node.line),
            _ => {
                let inner = Fields::open(node, "context", CONTEXT)?;
                let Some(kind) = inner.text("type")? else {
                    return inner.fault("type", "a context needs a `type`");
                };
                read_context(&kind, Some(&inner), inner.line_of("type"))
            }
        },
        (Some(_), Some(_)) => fields.fault(
            "context",
            "a case has a `request` or a `context`, and not both",
        ),
        (None, None) => Err(Fault::new(
            fields.line(),
            "a case needs a `request`, for webhooks, or a `context`, for all other bindings",
        )),
    }
}

fn read_request(fields: &Fields<'_>) -> Read<Asked> {
    let operation = fields
        .text("operation")?
        .unwrap_or_else(|| "CREATE".to_owned());
    let Some(operation) = Operation::parse(&operation) else {
        return fields.fault(
            "operation",
            "request.operation is CREATE, UPDATE, DELETE or CONNECT",
        );
    };
    let request = Request {
        operation,
        object: fields.object("object")?,
        old_object: fields.object("oldObject")?,
        user: fields.object("userInfo")?,
        sub_resource: fields.text("subResource")?.unwrap_or_default(),
        dry_run: fields.truth("dryRun")?.unwrap_or(false),
        options: fields.object("options")?,
        resource: fields.text("resource")?,
        name: fields.text("name")?,
        namespace: fields.text("namespace")?,
    };
    let given = (request.object.is_some(), request.old_object.is_some());
    let problem = match (operation, given) {
        (Operation::Create | Operation::Connect, (true, false))
        | (Operation::Update, (true, true))
        | (Operation::Delete, (false, true)) => None,
        (Operation::Create | Operation::Connect, (_, true)) => Some(("oldObject", "no oldObject")),
        (Operation::Create | Operation::Connect, (false, _)) => Some(("object", "an object")),
        (Operation::Update, _) => Some(("oldObject", "an object and an oldObject")),
        (Operation::Delete, (true, _)) => Some(("object", "no object: what goes is the oldObject")),
        (Operation::Delete, (false, false)) => Some(("oldObject", "an oldObject")),
    };
    match problem {
        None => Ok(Asked::Request(Box::new(request))),
        Some((key, needs)) => fields.fault(
            key,
            format!("a request to {} has {needs}", operation.as_str()),
        ),
    }
}

fn read_context(kind: &str, fields: Option<&Fields<'_>>, line: u64) -> Read<Asked> {
    let objects = || fields.map_or(Ok(None), |fields| fields.objects("objects"));
    let text = |key: &str| -> Read<String> {
        let found = fields.map_or(Ok(None), |fields| fields.text(key))?;
        found.ok_or_else(|| Fault::new(line, format!("a context of type {kind} needs `{key}`")))
    };
    let allowed: &[&str] = match kind {
        "Synchronization" => &["objects"],
        "Event" => &["watchEvent", "object"],
        "Conversion" => &["fromVersion", "toVersion", "objects"],
        _ => &[],
    };
    for key in CONTEXT.iter().filter(|key| **key != "type") {
        if let Some(fields) = fields.filter(|fields| fields.is_written(key))
            && !allowed.contains(key)
        {
            return fields.fault(key, format!("a context of type {kind} has no `{key}`"));
        }
    }
    match kind {
        "OnStartup" | "onStartup" => Ok(Asked::OnStartup),
        "Schedule" => Ok(Asked::Schedule),
        "Synchronization" => Ok(Asked::Synchronization(objects()?)),
        "Event" => {
            let change = match text("watchEvent")?.as_str() {
                "Added" => Change::Added,
                "Modified" => Change::Modified,
                "Deleted" => Change::Deleted,
                _ => return Err(Fault::new(line, "watchEvent is Added, Modified or Deleted")),
            };
            let object = fields.map_or(Ok(None), |fields| fields.object("object"))?;
            let missing = || Fault::new(line, "a context of type Event needs `object`");
            Ok(Asked::Event(change, object.ok_or_else(missing)?))
        }
        "Conversion" => Ok(Asked::Conversion {
            from: text("fromVersion")?,
            to: text("toVersion")?,
            objects: objects()?
                .filter(|objects| !objects.is_empty())
                .ok_or_else(|| Fault::new(line, "a context of type Conversion needs `objects`"))?,
        }),
        _ => Err(Fault::new(
            line,
            "a context has the type Synchronization, Event, Schedule, OnStartup or Conversion; for webhooks write `request`",
        )),
    }
}

fn read_snapshots(
    fields: &Fields<'_>,
    lines: &mut BTreeMap<String, u64>,
) -> Read<BTreeMap<String, Vec<Value>>> {
    fields.map("snapshots", |name, node| {
        lines.insert(name.to_owned(), node.line);
        let wrong = |line| {
            let text = format!("the snapshot {name:?} must be a list of objects");
            Err(Fault::new(line, text))
        };
        let Tree::Array(items) = &node.tree else {
            return wrong(node.line);
        };
        let mut objects = Vec::with_capacity(items.len());
        for item in items {
            if !matches!(item.tree, Tree::Object(_)) {
                return wrong(item.line);
            }
            objects.push(item.to_value());
        }
        Ok(objects)
    })
}

fn read_shim(name: &str, node: &Node) -> Read<Shim> {
    if name.is_empty() || name.contains(['/', '\0']) || name.starts_with('.') {
        let text =
            format!("{name:?} is no command that a shim can stand for: give the name of a program");
        return Err(Fault::new(node.line, text));
    }
    let fields = Fields::open(node, "a command", SHIM)?;
    let exit = fields.number("exit")?.unwrap_or(0);
    let Ok(exit) = u8::try_from(exit) else {
        return fields.fault("exit", "an exit status is 0 to 255");
    };
    Ok(Shim {
        exit,
        stdout: fields.text("stdout")?.unwrap_or_default(),
        stderr: fields.text("stderr")?.unwrap_or_default(),
    })
}

fn read_variable(name: &str, node: &Node) -> Read<String> {
    if name.is_empty() || name.contains(['=', '\0']) {
        return Err(Fault::new(
            node.line,
            format!("{name:?} is no name of a variable"),
        ));
    }
    match &node.tree {
        Tree::String(text) if !text.contains('\0') => Ok(text.clone()),
        _ => Err(Fault::new(
            node.line,
            format!("the variable {name} must be a text (put it in quotes)"),
        )),
    }
}

/// The objects of each binding: what is shared, with objects of the same name replaced, and then the case's own.
fn overlaid(
    shared: &BTreeMap<String, Vec<Value>>,
    own: BTreeMap<String, Vec<Value>>,
) -> BTreeMap<String, Vec<Value>> {
    let mut all = shared.clone();
    for (binding, objects) in own {
        let known = all.entry(binding).or_default();
        known.retain(|object| {
            !objects
                .iter()
                .any(|other| identity(object) == identity(other))
        });
        known.extend(objects);
    }
    all
}

/// What makes two texts one object.
fn identity(object: &Value) -> [Option<&str>; 4] {
    let text = |path: &str| object.pointer(path).and_then(Value::as_str);
    [
        text("/apiVersion"),
        text("/kind"),
        text("/metadata/namespace"),
        text("/metadata/name"),
    ]
}

//! The Python module `hooks/lib/shell_operator.py`: what each function writes, which function is called for which context, and
//! what a mistake says.

use std::path::PathBuf;
use std::process::Command;

use serde_json::{Value, json};

use super::{Workplace, finish, hooks};

/// What came out of a hook.
#[derive(Debug)]
struct Ended {
    status: Option<i32>,
    stdout: String,
    stderr: String,
    admission: Vec<Value>,
    conversion: Vec<Value>,
    objects: Vec<Value>,
    metrics: Vec<Value>,
}

impl Ended {
    #[track_caller]
    fn well(self) -> Ended {
        assert_eq!(
            (self.status, self.stderr.as_str()),
            (Some(0), ""),
            "{self:?}"
        );
        self
    }

    /// The last line of the trace, of a hook that has failed.
    #[track_caller]
    fn mistake(&self) -> String {
        assert_eq!(self.status, Some(1), "{self:?}");
        let last = self.stderr.trim_end().lines().last().unwrap_or_default();
        last.trim_start_matches("shell_operator.HookError: ")
            .to_owned()
    }

    fn wrote_nothing(&self) -> bool {
        let files = [
            &self.admission,
            &self.conversion,
            &self.objects,
            &self.metrics,
        ];
        files.iter().all(|documents| documents.is_empty())
    }
}

/// A hook with the module imported as `hook`, run for these contexts or, without any, with `--config`.
fn python(body: &str, contexts: Option<&Value>) -> Ended {
    let place = Workplace::new();
    let text = format!("import shell_operator as hook\n{body}\n");
    let mut command = Command::new("python3");
    command
        .arg(place.write("hook.py", &text))
        .env("PYTHONPATH", hooks().join("lib"))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env_remove("ADMISSION_RESPONSE_PATH");
    let mut files: Vec<PathBuf> = Vec::new();
    if let Some(contexts) = contexts {
        let path = place.write("context.json", &contexts.to_string());
        command.env("BINDING_CONTEXT_PATH", path);
        for variable in [
            "ADMISSION_RESPONSE_PATH",
            "CONVERSION_RESPONSE_PATH",
            "KUBERNETES_PATCH_PATH",
            "METRICS_PATH",
        ] {
            let path = place.write(variable, "");
            command.env(variable, &path);
            files.push(path);
        }
    } else {
        command.arg("--config");
    }
    let output = finish(&mut command);
    let mut documents = files.iter().map(|path| {
        let text = std::fs::read_to_string(path).unwrap();
        let lines = text.lines().map(|line| serde_json::from_str(line).unwrap());
        lines.collect::<Vec<Value>>()
    });
    let mut next = || documents.next().unwrap_or_default();
    Ended {
        status: output.status.code(),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
        admission: next(),
        conversion: next(),
        objects: next(),
        metrics: next(),
    }
}

/// A hook that does this for its only context.
fn does(call: &str) -> Ended {
    let body = format!("@hook.on()\ndef act(context):\n    {call}\nhook.run()");
    python(&body, Some(&json!([{ "binding": "a", "type": "Event" }])))
}

#[test]
fn answers_are_what_the_operator_reads_and_the_last_one_counts() {
    let cases = [
        ("hook.allow()", json!({ "allowed": true })),
        (
            "hook.deny('a \"b\"\\n\u{e9}')",
            json!({ "allowed": false, "message": "a \"b\"\n\u{e9}" }),
        ),
        (
            "hook.deny('no', code=422)",
            json!({ "allowed": false, "status": { "code": 422, "message": "no" } }),
        ),
        (
            "hook.warn('a', 'b')",
            json!({ "allowed": true, "warnings": ["a", "b"] }),
        ),
        (
            "hook.patch([{'op': 'remove', 'path': '/a'}])",
            json!({ "allowed": true, "patch": [{ "op": "remove", "path": "/a" }] }),
        ),
        ("hook.deny('no'); hook.allow()", json!({ "allowed": true })),
    ];
    for (call, wanted) in cases {
        assert_eq!(does(call).well().admission, [wanted], "{call}");
    }
    let ended = does("hook.converted([{'kind': 'A'}])").well();
    assert_eq!(
        ended.conversion,
        [json!({ "convertedObjects": [{ "kind": "A" }] })]
    );
    let ended = does("hook.conversion_failed('why')").well();
    assert_eq!(ended.conversion, [json!({ "failedMessage": "why" })]);
}

#[test]
fn object_operations_are_written_in_their_order() {
    let body = "
map = {'apiVersion': 'v1', 'kind': 'ConfigMap', 'metadata': {'name': 'm', 'namespace': 'n'}}
@hook.on()
def act(context):
    hook.create(map)
    hook.create_if_not_exists(map)
    hook.create_or_update(map)
    hook.apply(map, field_manager='me', force=True)
    hook.delete('ConfigMap', 'm', namespace='n')
    hook.delete('ConfigMap', 'm', propagation='Background')
    hook.delete('ConfigMap', 'm', propagation='Orphan')
    hook.merge_patch('Pod', 'p', {'a': None}, namespace='n', api_version='v1', ignoreMissingObject=True)
    hook.json_patch('Pod', 'p', [{'op': 'remove', 'path': '/a'}], subresource='status')
    hook.jq_patch('Pod', 'p', '.a = 1')
hook.run()";
    let ended = python(body, Some(&json!([{ "binding": "a" }]))).well();
    let map = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "m", "namespace": "n" } });
    let wanted = [
        json!({ "operation": "Create", "object": map }),
        json!({ "operation": "CreateIfNotExists", "object": map }),
        json!({ "operation": "CreateOrUpdate", "object": map }),
        json!({ "operation": "Apply", "object": map, "fieldManager": "me", "force": true }),
        json!({ "operation": "Delete", "kind": "ConfigMap", "name": "m", "namespace": "n" }),
        json!({ "operation": "DeleteInBackground", "kind": "ConfigMap", "name": "m" }),
        json!({ "operation": "DeleteNonCascading", "kind": "ConfigMap", "name": "m" }),
        json!({
            "operation": "MergePatch", "kind": "Pod", "name": "p", "namespace": "n",
            "apiVersion": "v1", "mergePatch": { "a": null }, "ignoreMissingObject": true,
        }),
        json!({
            "operation": "JSONPatch", "kind": "Pod", "name": "p", "subresource": "status",
            "jsonPatch": [{ "op": "remove", "path": "/a" }],
        }),
        json!({ "operation": "JQPatch", "kind": "Pod", "name": "p", "jqFilter": ".a = 1" }),
    ];
    assert_eq!(ended.objects, wanted);
}

#[test]
fn metrics_and_log_lines_are_json() {
    let body = "
@hook.on()
def act(context):
    hook.metric_set('size', 1.5, labels={'number': 1}, group='g')
    hook.metric_add('runs')
    hook.metric_observe('seconds', 2, (1, 5))
    hook.metric_expire('old')
    hook.log('two\\nlines', level='warn', path=__import__('pathlib').Path('a'), count=2)
hook.run()";
    let ended = python(body, Some(&json!([{ "binding": "a" }]))).well();
    let wanted = [
        json!({ "action": "set", "name": "size", "value": 1.5, "labels": { "number": "1" }, "group": "g" }),
        json!({ "action": "add", "name": "runs", "value": 1, "labels": {} }),
        json!({ "action": "observe", "name": "seconds", "value": 2, "labels": {}, "buckets": [1, 5] }),
        json!({ "action": "expire", "group": "old" }),
    ];
    assert_eq!(ended.metrics, wanted);
    let line: Value = serde_json::from_str(&ended.stdout).unwrap();
    let wanted = json!({ "level": "warn", "msg": "two\nlines", "path": "a", "count": 2 });
    assert_eq!(line, wanted);
}

#[test]
fn the_narrowest_function_is_called_for_every_context() {
    let names = [
        "@hook.on()",
        "@hook.on('pods')",
        "@hook.on('pods', 'Added', 'Modified')",
        "@hook.on('pods', 'Synchronization')",
        "@hook.on('pods', 'Added')",
        "@hook.on('state', 'Group')",
        "@hook.on_startup",
        "@hook.on('turn', 'v1->v2')",
        "@hook.on('turn', 'Conversion')",
    ];
    let body = names
        .iter()
        .enumerate()
        .fold(String::new(), |body, (number, decorator)| {
            format!("{body}{decorator}\ndef f{number}(context):\n    print({number})\n")
        });
    let event = |change: &str| json!({ "binding": "pods", "type": "Event", "watchEvent": change });
    let contexts = json!([
        { "binding": "onStartup" },
        { "binding": "pods", "type": "Synchronization", "objects": [] },
        event("Added"),
        event("Modified"),
        event("Deleted"),
        { "binding": "pods", "type": "Group", "groupName": "state" },
        { "binding": "pods", "type": "Group", "groupName": "other" },
        { "binding": "turn", "type": "Conversion", "fromVersion": "v1", "toVersion": "v2" },
        { "binding": "turn", "type": "Conversion", "fromVersion": "v2", "toVersion": "v1" },
        { "binding": "clock", "type": "Schedule" },
    ]);
    let ended = python(&format!("{body}hook.run()"), Some(&contexts)).well();
    let called: Vec<&str> = ended.stdout.lines().collect();
    assert_eq!(called, ["6", "3", "2", "2", "1", "5", "0", "7", "8", "0"]);
}

#[test]
fn the_configuration_is_printed_as_a_dictionary_or_as_text() {
    let ended = python(
        "hook.config({'configVersion': 'v1', 'onStartup': 1})\nhook.run()",
        None,
    )
    .well();
    assert_eq!(
        ended.stdout,
        "{\"configVersion\": \"v1\", \"onStartup\": 1}\n"
    );
    let ended = python("hook.config('configVersion: v1')\nhook.run()", None).well();
    assert_eq!(ended.stdout, "configVersion: v1\n");
    let ended = python("hook.run()", None);
    assert_eq!(
        ended.mistake(),
        "there is no configuration: call config() before run()"
    );
}

#[test]
fn a_mistake_says_what_it_is_and_writes_nothing() {
    let cases = [
        (
            "hook.deny('no', code='x')",
            "deny: 'x' is not an HTTP status code",
        ),
        (
            "hook.patch({})",
            "patch: a JSON Patch is a list of operations",
        ),
        (
            "hook.create({'kind': 'Pod'})",
            "an object is a dictionary with apiVersion, kind and metadata.name",
        ),
        (
            "hook.delete('Pod', '')",
            "Delete: name must be a text that is not empty",
        ),
        (
            "hook.delete('Pod', 'p', propagation='x')",
            "delete: propagation must be one of Foreground, Background, Orphan, not 'x'",
        ),
        (
            "hook.merge_patch('Pod', 'p', {'a': {1, 2}})",
            "what goes to KUBERNETES_PATCH_PATH cannot be written as JSON: Object of type set is not JSON serializable",
        ),
        (
            "hook.metric_set('m', float('nan'))",
            "metric 'm': the value must be a finite number, not nan",
        ),
        (
            "hook.metric_set('m', True)",
            "metric 'm': the value must be a finite number, not True",
        ),
        (
            "hook.log('a', level='loud')",
            "log: the level must be one of debug, info, warn, error, not 'loud'",
        ),
        (
            "hook.on(print)",
            "write @on() with brackets, and a binding name in them",
        ),
        (
            "import os; del os.environ['METRICS_PATH']; hook.metric_add('m')",
            "METRICS_PATH is not set: the operator sets it; to try a hook by hand, let it name a file",
        ),
    ];
    for (call, wanted) in cases {
        let ended = does(call);
        assert_eq!(ended.mistake(), wanted, "{call}");
        assert!(ended.wrote_nothing(), "{ended:?}");
    }
    let ended = python(
        "hook.run()",
        Some(&json!([{ "binding": "a", "type": "Schedule" }])),
    );
    assert_eq!(
        ended.mistake(),
        "no function for 'a' Schedule: bind one with @on('a'), or with @on()"
    );
    let ended = python("hook.run()", Some(&json!({})));
    assert_eq!(ended.mistake(), "the binding context is not a list");
}

#[test]
fn an_old_python_understands_the_module() {
    let path = hooks().join("lib/shell_operator.py");
    let program = "import ast, sys; ast.parse(open(sys.argv[1]).read(), feature_version=(3, 7))";
    let output = finish(Command::new("python3").args(["-c", program]).arg(&path));
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    // Names that came later than 3.7 are not seen by a parser; these are all that the module imports.
    let text = std::fs::read_to_string(path).unwrap();
    let imports: Vec<&str> = text
        .lines()
        .filter(|line| line.starts_with("import "))
        .collect();
    assert_eq!(
        imports,
        ["import json", "import math", "import os", "import sys"]
    );
}

#[test]
fn a_failure_for_the_user_is_marked() {
    let body = "@hook.on()\ndef any(context):\n    hook.phase('tests')\n    hook.fail('one\\ntwo')\nhook.run()";
    let ended = python(body, Some(&json!([{ "binding": "b" }])));
    assert_eq!(ended.status, Some(1));
    assert_eq!(
        ended.stderr,
        "PHASE: tests\nFAIL[tests]: one\nFAIL[tests]: two\n"
    );
    let plain = python("hook.fail('plain')", Some(&json!([])));
    assert_eq!(plain.stderr, "FAIL: plain\n");
}

//! What a user sees of what a hook answered: texts, codes, warnings, patches; and what is made of an answer that cannot be used.
//!
//! Each test starts one operator with several hooks. A label of the ConfigMap chooses the hook.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::support::stage::{Kind, answers, config_map, message, review};
use crate::support::{Answer, Stage};

/// A hook for ConfigMaps with the label `case=<stem>`.
fn hook<'a>(stage: Stage<'a>, stem: &str, kind: Kind, body: &str) -> Stage<'a> {
    hook_with(stage, stem, kind, &json!({}), body)
}

fn hook_with<'a>(stage: Stage<'a>, stem: &str, kind: Kind, more: &Value, body: &str) -> Stage<'a> {
    let mut more = more.clone();
    more["labelSelector"] = json!({ "matchLabels": { "case": stem } });
    stage.hook(stem, kind, &more, body)
}

/// A ConfigMap whose label chooses a hook.
fn chosen(stem: &str) -> Value {
    let mut map = config_map(stem, &json!({ "a": "1" }));
    map["metadata"]["labels"] = json!({ "case": stem });
    map
}

#[track_caller]
fn create(stage: &Stage<'_>, stem: &str) -> Answer {
    stage.api.create(&stage.config_maps(), &chosen(stem))
}

/// The text of the API server around a message of ours.
fn denial(stage: &Stage<'_>, stem: &str, message: &str) -> String {
    let name = stage.webhook_name(stem);
    format!("admission webhook \"{name}\" denied the request: {message}")
}

/// SO-26, AW-49.
#[test]
fn a_denial_reaches_the_user_with_its_text_code_and_reason() {
    let deny = Kind::Validating;
    let stage = Stage::new("denial");
    let stage = hook(
        stage,
        "plain",
        deny,
        &answers(&json!({ "allowed": false, "message": "no, because" })),
    );
    let status = json!({ "code": 422, "message": "not like this", "reason": "Invalid" });
    let stage = hook(
        stage,
        "status",
        deny,
        &answers(&json!({ "allowed": false, "status": status })),
    );
    let stage = hook(
        stage,
        "reason",
        deny,
        &answers(&json!({ "allowed": false, "status": { "reason": "only a reason" } })),
    );
    // The proposal appends to the file, under the name it uses once.
    let appended =
        "echo '{\"allowed\": false, \"message\": \"appended\"}' >>\"$VALIDATION_RESPONSE_PATH\"";
    let stage = hook(stage, "appended", deny, appended);
    let _operator = stage.start();
    for (stem, code, text) in [
        ("plain", 403, "no, because"),
        ("status", 422, "not like this"),
        ("reason", 403, "only a reason"),
        ("appended", 403, "appended"),
    ] {
        let answer = create(&stage, stem);
        assert_eq!(answer.status, code, "{stem}: {}", answer.text());
        assert_eq!(message(&answer), denial(&stage, stem, text));
    }
    assert_eq!(create(&stage, "status").json()["reason"], "Invalid");

    let shown = stage.namespace.try_apply(&chosen("plain").to_string());
    let shown = shown.err();
    let expected = format!(
        "Error from server: error when creating \"STDIN\": {}\n",
        denial(&stage, "plain", "no, because")
    );
    assert_eq!(shown, expected);
}

/// SO-42, SO-43, SO-44, T18: whatever cannot be used is a denial, also under Ignore, and its details are in the log only.
#[test]
fn an_unusable_answer_is_denied_with_the_text_of_so_43() {
    let response = |text: &str| format!("printf '%s' '{text}' >\"$ADMISSION_RESPONSE_PATH\"");
    let cases = [
        ("empty", "true".to_owned(), "empty"),
        ("no-json", response("{\"allowed\": tru"), "not JSON"),
        ("list", response("[true]"), "must be an object"),
        ("string", response("{\"allowed\": \"true\"}"), "`allowed`"),
        (
            "two",
            response("{\"allowed\": true} {\"allowed\": false}"),
            "disagree",
        ),
        (
            "patching",
            answers(
                &json!({ "allowed": true, "patch": [{ "op": "add", "path": "/data/b", "value": "2" }] }),
            ),
            "kubernetesMutating",
        ),
    ];
    let ignore = json!({ "failurePolicy": "Ignore" });
    let mut stage = Stage::new("unusable");
    for (stem, body, _) in &cases {
        stage = hook_with(stage, stem, Kind::Validating, &ignore, body);
    }
    let fails = [
        (
            "exit",
            "echo 'the password is 123' >&2; exit 3",
            "exit code 3",
        ),
        ("signal", "kill -s SEGV $$", "signal"),
    ];
    for (stem, body, _) in fails {
        let body = format!("{}{body}", answers(&json!({ "allowed": true })));
        stage = hook_with(stage, stem, Kind::Validating, &ignore, &body);
    }
    let operator = stage.start();
    for (stem, _, detail) in &cases {
        let answer = create(&stage, stem);
        assert_eq!(answer.status, 500, "{stem}: {}", answer.text());
        let text = format!("Shell-operator hook '{stem}.sh' error: invalid response.");
        assert_eq!(message(&answer), denial(&stage, stem, &text));
        operator.wait_log(&format!("the details of {stem}"), |line| {
            line.label("level") == Some("error")
                && line.label("hook") == Some(&format!("{stem}.sh"))
                && line.contains(detail)
        });
    }
    for (stem, _, detail) in fails {
        let answer = create(&stage, stem);
        assert_eq!(answer.status, 500, "{stem}: {}", answer.text());
        let text = message(&answer);
        let start = denial(
            &stage,
            stem,
            &format!("Shell-operator hook '{stem}.sh' error: "),
        );
        assert!(text.starts_with(&start) && text.contains(detail), "{text}");
        assert!(!text.contains("password"), "{text}");
    }
}

/// AW-51, AW-52.
#[test]
fn warnings_are_shown_and_audit_annotations_are_taken() {
    let stage = Stage::new("warnings");
    let long = "x".repeat(300);
    let stage = hook(
        stage,
        "allowing",
        Kind::Validating,
        &answers(&json!({
            "allowed": true, "auditAnnotations": { "checked": "yes" },
            "warnings": ["think of the others", "line\nbreak \u{1b}[31mred", long],
        })),
    );
    let stage = hook(
        stage,
        "denying",
        Kind::Mutating,
        &answers(&json!({ "allowed": false, "message": "no", "warnings": ["and a warning"] })),
    );
    let operator = stage.start();
    let shown = stage.namespace.try_apply(&chosen("allowing").to_string());
    assert_eq!(shown.code, Some(0), "{}", shown.all());
    assert!(
        shown.stderr.contains("Warning: think of the others\n"),
        "{}",
        shown.stderr
    );
    assert!(!shown.stderr.contains('\u{1b}'), "{}", shown.stderr);
    let longest = shown.stderr.lines().map(str::len).max().unwrap();
    assert!((256..280).contains(&longest), "{}", shown.stderr);
    assert!(shown.stderr.contains("..."), "{}", shown.stderr);
    operator.wait_log("the advice about long warnings", |line| {
        line.label("level") == Some("warn") && line.contains("120")
    });
    let shown = stage.namespace.try_apply(&chosen("denying").to_string());
    assert_ne!(shown.code, Some(0));
    assert!(
        shown.stderr.contains("Warning: and a warning\n"),
        "{}",
        shown.stderr
    );

    let path = stage.path("allowing");
    let answer = stage.connect().post_json(&path, &review("u", &chosen("a")));
    let response = answer.unwrap().json()["response"].clone();
    assert_eq!(response["auditAnnotations"], json!({ "checked": "yes" }));
}

/// AW-50.
#[test]
fn a_patch_is_taken_as_a_list_and_as_base64() {
    let patch = json!([{ "op": "add", "path": "/data/added", "value": "yes" }]);
    let encoded = STANDARD.encode(patch.to_string());
    // The API server sets a key that is absent, where the standard wants an error.
    let lenient = json!([{ "op": "replace", "path": "/data/added", "value": "yes" }]);
    let stage = Stage::new("patch");
    let cases = [
        ("list", json!({ "allowed": true, "patch": patch })),
        ("base64", json!({ "allowed": true, "patch": encoded })),
        (
            "typed",
            json!({ "allowed": true, "patch": encoded, "patchType": "JSONPatch" }),
        ),
        ("lenient", json!({ "allowed": true, "patch": lenient })),
    ];
    let mut stage = stage;
    for (stem, answer) in &cases {
        stage = hook(stage, stem, Kind::Mutating, &answers(answer));
    }
    let nothing = answers(&json!({ "allowed": true, "patch": [] }));
    let stage = hook(stage, "nothing", Kind::Mutating, &nothing);
    let _operator = stage.start();
    for (stem, _) in &cases {
        let answer = create(&stage, stem);
        assert_eq!(answer.status, 201, "{stem}: {}", answer.text());
        assert_eq!(answer.json()["data"], json!({ "a": "1", "added": "yes" }));
    }
    let answer = create(&stage, "nothing");
    assert_eq!(answer.json()["data"], json!({ "a": "1" }));
}

#[test]
fn a_patch_that_cannot_work_is_a_hook_error_that_names_hook_and_operation() {
    let patch = |operations: Value| answers(&json!({ "allowed": true, "patch": operations }));
    let add = json!([{ "op": "add", "path": "/data/b", "value": "2" }]);
    let absent = json!([{ "op": "add", "path": "/spec/deep/key", "value": "top-secret" }]);
    let removal = json!([{ "op": "test", "path": "/data/a", "value": "1" }, { "op": "remove", "path": "/data/zzz" }]);
    let stage = Stage::new("unpatchable");
    let stage = hook(stage, "absent", Kind::Mutating, &patch(absent));
    let stage = hook(stage, "removal", Kind::Mutating, &patch(removal));
    let rules = json!([{
        "apiGroups": [""], "apiVersions": ["v1"],
        "resources": ["configmaps"], "operations": ["DELETE"],
    }]);
    let on_delete = json!({ "rules": rules });
    let stage = hook_with(stage, "deletion", Kind::Mutating, &on_delete, &patch(add));
    let operator = stage.start();
    for (stem, place) in [("absent", "/spec/deep/key"), ("removal", "/data/zzz")] {
        let answer = create(&stage, stem);
        assert_eq!(answer.status, 500, "{stem}: {}", answer.text());
        let text = format!("Shell-operator hook '{stem}.sh' error: invalid response.");
        assert_eq!(message(&answer), denial(&stage, stem, &text));
        operator.wait_log(&format!("which operation of {stem} failed"), |line| {
            line.label("hook") == Some(&format!("{stem}.sh")) && line.contains(place)
        });
    }
    assert_eq!(create(&stage, "deletion").status, 201);
    let path = format!("{}/deletion", stage.config_maps());
    let answer = stage.api.delete(&path);
    let text = "Shell-operator hook 'deletion.sh' error: invalid response.";
    assert_eq!(message(&answer), denial(&stage, "deletion", text));
    operator.wait_log("that there is nothing to patch on DELETE", |line| {
        line.label("hook") == Some("deletion.sh") && line.contains("DELETE")
    });
    let secret = |line: &crate::support::Line| line.contains("top-secret");
    assert!(!operator.log_lines().iter().any(secret));
}

/// SO-20, SO-22, AW-46: what the hook reads is what the API server said. AW-32: a dry run reaches it and says so.
#[test]
fn a_hook_reads_the_whole_request_and_whether_it_is_a_dry_run() {
    let stage = Stage::new("request");
    let seen = stage.env.path().join("seen.json");
    let body = format!(
        "cp \"$BINDING_CONTEXT_PATH\" {0}.part && mv {0}.part {0}\n{1}",
        seen.display(),
        answers(&json!({ "allowed": true }))
    );
    let stage = stage.hook("look", Kind::Validating, &json!({}), &body);
    let _operator = stage.start();
    let read = || -> Value { serde_json::from_slice(&std::fs::read(&seen).unwrap()).unwrap() };

    let dry = format!("{}?dryRun=All", stage.config_maps());
    assert_eq!(stage.api.create(&dry, &chosen("dry")).status, 201);
    let path = format!("{}/dry", stage.config_maps());
    assert_eq!(stage.api.get(&path).status, 404);
    let contexts = read();
    assert_eq!(contexts.as_array().unwrap().len(), 1);
    let context = &contexts[0];
    assert_eq!(context["binding"], stage.webhook_name("look").as_str());
    assert_eq!(context["type"], "Validating");
    let request = &context["review"]["request"];
    assert_eq!(request["dryRun"], true);
    assert_eq!(request["operation"], "CREATE");
    assert_eq!(request["oldObject"], Value::Null);
    assert_eq!(request["userInfo"]["username"], "admin");
    assert_eq!(request["object"]["data"], json!({ "a": "1" }));
    assert_eq!(
        request["resource"],
        json!({ "group": "", "version": "v1", "resource": "configmaps" })
    );
    assert_eq!(request["namespace"], stage.label.as_str());
    assert!(request["uid"].as_str().is_some_and(|uid| uid.len() == 36));

    // HX-12, HX-15: a change carries both objects.
    assert_eq!(create(&stage, "wet").status, 201);
    assert_eq!(read()[0]["review"]["request"]["dryRun"], false);
    let path = format!("{}/wet", stage.config_maps());
    let change = json!({ "data": { "a": "2" } });
    assert_eq!(stage.api.merge(&path, &change).status, 200);
    let request = read()[0]["review"]["request"].clone();
    assert_eq!(request["oldObject"]["data"], json!({ "a": "1" }));
    assert_eq!(request["object"]["data"], json!({ "a": "2" }));
}

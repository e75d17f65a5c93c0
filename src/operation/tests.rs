//! What may be written to the object patch file, and what is said about everything else.

use serde_json::{Value, json};

use super::*;

/// Every operation of a file, as the server would be asked: verb, object, and what is sent.
fn shown(operation: &Operation) -> String {
    let body = match &operation.change {
        Change::Create { object, existing } => format!("{existing:?} {object}"),
        Change::Delete(propagation) => format!("{propagation:?}"),
        Change::Filter(filter) => filter.text().to_owned(),
        Change::Merge(patch) | Change::Json(patch) => patch.clone(),
        Change::Apply {
            object,
            field_manager,
            force,
        } => format!("{field_manager} {force} {object}"),
    };
    let subresource = operation.subresource.iter();
    let subresource: String = subresource.map(|name| format!(" {name}")).collect();
    let flags = [
        (operation.ignore_missing_object, " missing"),
        (operation.ignore_hook_error, " error"),
    ];
    let flags: String = flags
        .iter()
        .filter(|(set, _)| *set)
        .map(|(_, word)| *word)
        .collect();
    let Operation { verb, target, .. } = operation;
    format!("{} {target}{subresource}{flags}: {body}", verb.name())
}

fn read(text: &str) -> Result<Vec<String>, String> {
    let file = File::read(text.as_bytes(), &|| true).map_err(|error| error.to_string())?;
    let mut operations = Vec::new();
    let end: Result<(), ()> = file.each(|operation| {
        assert_eq!(operation.document, operations.len() + 1);
        operations.push(shown(&operation));
        Ok(())
    });
    end.unwrap();
    assert_eq!(file.count, operations.len());
    Ok(operations)
}

#[track_caller]
fn check(text: &str, expected: &[&str]) {
    assert_eq!(read(text).as_deref(), Ok(&*owned(expected)), "{text}");
}

fn owned(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

#[track_caller]
fn refused(text: &str, expected: &str) {
    let error = read(text).unwrap_err();
    assert!(error.starts_with("object patch file: "), "{error}");
    assert!(error.contains(expected), "{text}\n{error}");
    assert!(!error.contains('\n'), "{error}");
}

const MAP: &str = r#"{"apiVersion":"v1","data":{"n":"1"},"kind":"ConfigMap","metadata":{"name":"a","namespace":"n"}}"#;

#[test]
fn every_operation_is_read_from_json() {
    for (verb, existing) in [
        ("Create", "Fail"),
        ("CreateIfNotExists", "Keep"),
        ("CreateOrUpdate", "Replace"),
    ] {
        check(
            &format!(r#"{{"operation":"{verb}","object":{MAP}}}"#),
            &[&format!("{verb} v1/ConfigMap/n/a: {existing} {MAP}")],
        );
    }
    for (verb, propagation) in [
        ("Delete", "Foreground"),
        ("DeleteInBackground", "Background"),
        ("DeleteNonCascading", "Orphan"),
    ] {
        check(
            &format!(
                r#"{{"operation":"{verb}","apiVersion":"apps/v1","kind":"Deployment","namespace":"n","name":"a"}}"#
            ),
            &[&format!("{verb} apps/v1/Deployment/n/a: {propagation}")],
        );
    }
    check(
        r#"{"operation":"JQPatch","kind":"Namespace","name":"a","jqFilter":".x = 1","subresource":"status"}"#,
        &["JQPatch Namespace/a status: .x = 1"],
    );
    check(
        r#"{"operation":"MergePatch","kind":"Pod","namespace":"n","name":"a","mergePatch":{"spec": {"x":1.0}},"ignoreMissingObject":true}"#,
        &[r#"MergePatch Pod/n/a missing: {"spec": {"x":1.0}}"#],
    );
    check(
        r#"{"operation":"Apply","object":{"kind":"X","apiVersion":"x.io/v1","metadata":{"name":"a"}}}"#,
        &[
            r#"Apply x.io/v1/X/a: shell-operator false {"apiVersion":"x.io/v1","kind":"X","metadata":{"name":"a"}}"#,
        ],
    );
    check(
        r#"{"operation":"Apply","fieldManager":"me","force":true,"object":{"kind":"X","apiVersion":"x.io/v1","metadata":{"name":"a"}}}"#,
        &[
            r#"Apply x.io/v1/X/a: me true {"apiVersion":"x.io/v1","kind":"X","metadata":{"name":"a"}}"#,
        ],
    );
}

/// The original refuses a patch whose first item has no value.
#[test]
fn a_json_patch_may_begin_with_a_removal() {
    let patch = r#"[{"op":"remove","path":"/x"},{"op":"move","from":"/a","path":"/b"}]"#;
    check(
        &format!(
            r#"{{"operation":"JSONPatch","kind":"Pod","namespace":"n","name":"a","jsonPatch":{patch},"ignoreHookError":true}}"#
        ),
        &[&format!("JSONPatch Pod/n/a error: {patch}")],
    );
}

#[test]
fn documents_follow_each_other_in_both_forms() {
    let delete = |name: &str| {
        format!(r#"{{"operation":"Delete","kind":"Pod","namespace":"n","name":"{name}"}}"#)
    };
    let expected = ["Delete Pod/n/a: Foreground", "Delete Pod/n/b: Foreground"];
    check(&format!("{}{}\n\n", delete("a"), delete("b")), &expected);
    check(
        &format!("{}\n---\n{}\n", delete("a"), delete("b")),
        &expected,
    );
    let yaml = |name: &str| format!("operation: Delete\nkind: Pod\nnamespace: n\nname: {name}\n");
    check(
        &format!("---\n{}---\n{}---\n", yaml("a"), yaml("b")),
        &expected,
    );
    for nothing in ["", " \n\t", "---\n", "# nothing\n", "null"] {
        check_nothing(nothing);
    }
}

#[track_caller]
fn check_nothing(text: &str) {
    // A bare null is a JSON document that is no operation, and then an empty YAML document.
    check(text, &[]);
}

#[test]
fn keys_of_json_are_matched_in_any_case_and_unknown_ones_are_ignored() {
    check(
        r#"{"Operation":"Delete","KIND":"Pod","nameSpace":"n","name":"a","more":[1]}"#,
        &["Delete Pod/n/a: Foreground"],
    );
    refused(
        "Operation: Delete\nkind: Pod\nname: a\n",
        "document 1: operation is required",
    );
}

#[test]
fn objects_and_patches_may_be_texts() {
    let object = "kind: ConfigMap\\napiVersion: v1\\nmetadata: {name: a, namespace: \\\"n\\\"}\\ndata: {\\\"n\\\": \\\"1\\\"}";
    check(
        &format!(r#"{{"operation":"Create","object":"{object}"}}"#),
        &[&format!("Create v1/ConfigMap/n/a: Fail {MAP}")],
    );
    check(
        "operation: CreateOrUpdate\nobject: |\n  kind: ConfigMap\n  apiVersion: v1\n  metadata:\n    name: a\n    namespace: \"n\"\n  data: {\"n\": \"1\"}\n",
        &[&format!("CreateOrUpdate v1/ConfigMap/n/a: Replace {MAP}")],
    );
    check(
        "operation: MergePatch\nkind: Pod\nnamespace: n\nname: a\nmergePatch: |\n  metadata:\n    labels: {a: b}\n",
        &[r#"MergePatch Pod/n/a: {"metadata":{"labels":{"a":"b"}}}"#],
    );
    check(
        "operation: JSONPatch\nkind: Pod\nnamespace: n\nname: a\njsonPatch: |\n  - op: remove\n    path: /x\n",
        &[r#"JSONPatch Pod/n/a: [{"op":"remove","path":"/x"}]"#],
    );
    // The original does not look into texts, and hooks that have nothing to change write these.
    for (verb, field, nothing) in [
        ("MergePatch", "mergePatch", "{}"),
        ("JSONPatch", "jsonPatch", "[]"),
    ] {
        check(
            &format!(
                r#"{{"operation":"{verb}","kind":"Pod","namespace":"n","name":"a","{field}":"{nothing}"}}"#
            ),
            &[&format!("{verb} Pod/n/a: {nothing}")],
        );
    }
}

/// Compatibility 7.2: integers in YAML bring the original down.
#[test]
fn numbers_of_yaml_stay_what_they_are() {
    check(
        "operation: CreateOrUpdate\nobject:\n  apiVersion: apps/v1\n  kind: Deployment\n  metadata: {name: a, namespace: n}\n  spec: {replicas: 3, mode: 0644, big: 12345678901234567890, half: 0.5, word: yes}\n",
        &[
            r#"CreateOrUpdate apps/v1/Deployment/n/a: Replace {"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"a","namespace":"n"},"spec":{"big":12345678901234567890,"half":0.5,"mode":420,"replicas":3,"word":"yes"}}"#,
        ],
    );
    let big = r#"{"apiVersion":"v1","data":{"n":10000000000000000000000001},"kind":"X","metadata":{"name":"a"}}"#;
    check(
        &format!(r#"{{"operation":"Create","object":{big}}}"#),
        &[&format!("Create v1/X/a: Fail {big}")],
    );
}

#[test]
fn names_that_look_like_numbers_are_texts_where_it_is_clear_how_they_were_written() {
    let pod = |name: &str| format!("operation: Delete\nkind: Pod\nnamespace: n\nname: {name}\n");
    check(&pod("5"), &["Delete Pod/n/5: Foreground"]);
    check(&pod("\"0644\""), &["Delete Pod/n/0644: Foreground"]);
    check(&pod("true"), &["Delete Pod/n/true: Foreground"]);
    check(
        r#"{"operation":"Delete","kind":"Pod","namespace":"n","name":5}"#,
        &["Delete Pod/n/5: Foreground"],
    );
    // It would be the object "420", or "1.1".
    for unclear in ["0644", "1.10", "0x10"] {
        refused(&pod(unclear), "name must be a string; put it in quotes");
    }
    refused(&pod("[a]"), "name must be a string");
}

/// Upstream issue 346: an object out of a snapshot can be created.
#[test]
fn what_the_server_sets_is_taken_out_of_an_object_before_it_is_created() {
    let taken = json!({
        "kind": "ConfigMap", "apiVersion": "v1", "data": { "n": "1" },
        "metadata": {
            "name": "a", "namespace": "n", "uid": "u", "resourceVersion": "7", "generation": 2, "selfLink": "/x",
            "creationTimestamp": null, "managedFields": [{ "manager": "x" }],
            "deletionTimestamp": "2020-01-01T00:00:00Z", "deletionGracePeriodSeconds": 30,
        },
    });
    for verb in ["Create", "CreateIfNotExists", "CreateOrUpdate", "Apply"] {
        let text = json!({ "operation": verb, "object": taken }).to_string();
        let operations = read(&text).unwrap();
        assert!(operations[0].ends_with(MAP), "{operations:?}");
    }
    let object: Value = serde_json::from_str(&with_version(MAP, "9").unwrap()).unwrap();
    assert_eq!(object["metadata"]["resourceVersion"], "9");
    assert_eq!(object["metadata"]["name"], "a");
    let kept = r#"{"apiVersion":"v1","kind":"X","metadata":{"annotations":{"a":"b"},"finalizers":["f"],"generateName":"a-","labels":{"l":"m"},"ownerReferences":[]},"status":{"s":1}}"#;
    check(
        &format!(r#"{{"operation":"Create","object":{kept}}}"#),
        &[&format!("Create v1/X: Fail {kept}")],
    );
}

/// Documents and what is said about them.
const BAD: &[(&str, &str)] = &[
    (r#"{}"#, "document 2: operation is required"),
    (
        r#"{"operation":"delete"}"#,
        "document 2: operation \"delete\" is not one of Create, ",
    ),
    (
        r#"{"operation":["Delete"]}"#,
        "document 2: operation must be a string",
    ),
    (
        r#"{"operation":"Create"}"#,
        "document 2 (Create): object is required",
    ),
    (
        r#"{"operation":"Create","object":null}"#,
        "(Create): object is required",
    ),
    (
        r#"{"operation":"Create","object":""}"#,
        "(Create): object is required",
    ),
    (
        r#"{"operation":"Create","object":[]}"#,
        "(Create): object must be an object",
    ),
    (
        r#"{"operation":"Create","object":"- a"}"#,
        "(Create): object must be an object",
    ),
    (
        r#"{"operation":"Create","object":"a: ["}"#,
        "(Create): object is a text that is neither JSON nor YAML: YAML, line ",
    ),
    (
        r#"{"operation":"Create","object":{"apiVersion":"v1","metadata":{"name":"a","namespace":"n"}}}"#,
        "(Create n/a): object.kind is required",
    ),
    (
        r#"{"operation":"Create","object":{"kind":"Pod","metadata":{"name":"a"}}}"#,
        "(Create Pod/a): object.apiVersion is required",
    ),
    (
        r#"{"operation":"Create","object":{"kind":"Pod","apiVersion":"v1"}}"#,
        "(Create v1/Pod): object.metadata.name is required",
    ),
    (
        r#"{"operation":"Create","object":{"kind":"Pod","apiVersion":"v1","metadata":{"name":5}}}"#,
        "object.metadata.name must be a string",
    ),
    (
        r#"{"operation":"Create","object":{"kind":"Pod","apiVersion":"v1","metadata":[]}}"#,
        "object.metadata must be an object",
    ),
    (
        r#"{"operation":"Apply","object":{"kind":"Pod","apiVersion":"v1","metadata":{"generateName":"a"}}}"#,
        "(Apply v1/Pod): object.metadata.name is required",
    ),
    (
        r#"{"operation":"Delete","namespace":"n","name":"a"}"#,
        "(Delete n/a): kind is required",
    ),
    (
        r#"{"operation":"Delete","kind":"Pod","namespace":"n"}"#,
        "(Delete Pod/n): name is required",
    ),
    (
        r#"{"operation":"Delete","kind":"Pod","name":""}"#,
        "(Delete Pod): name is required",
    ),
    (
        r#"{"operation":"JQPatch","kind":"Pod","name":"a"}"#,
        "(JQPatch Pod/a): jqFilter is required",
    ),
    (
        r#"{"operation":"JQPatch","kind":"Pod","name":"a","jqFilter":""}"#,
        "jqFilter is required",
    ),
    (
        r#"{"operation":"JQPatch","kind":"Pod","name":"a","jqFilter":".a ="}"#,
        "(JQPatch Pod/a): jqFilter does not compile",
    ),
    (
        r#"{"operation":"MergePatch","kind":"Pod","name":"a"}"#,
        "mergePatch is required",
    ),
    (
        r#"{"operation":"MergePatch","kind":"Pod","name":"a","mergePatch":{}}"#,
        "mergePatch must not be empty",
    ),
    (
        r#"{"operation":"MergePatch","kind":"Pod","name":"a","mergePatch":[1]}"#,
        "mergePatch must be an object",
    ),
    (
        r#"{"operation":"JSONPatch","kind":"Pod","name":"a"}"#,
        "jsonPatch is required",
    ),
    (
        r#"{"operation":"JSONPatch","kind":"Pod","name":"a","jsonPatch":[]}"#,
        "jsonPatch must not be empty",
    ),
    (
        r#"{"operation":"JSONPatch","kind":"Pod","name":"a","jsonPatch":{"op":"remove"}}"#,
        "jsonPatch must be a list",
    ),
    (
        r#"{"operation":"JSONPatch","kind":"Pod","name":"a","jsonPatch":[{"op":"remove","path":"/a"},{"op":"remove"}]}"#,
        "item 2 has no path",
    ),
    (
        r#"{"operation":"JSONPatch","kind":"Pod","name":"a","jsonPatch":[{"path":"/a"}]}"#,
        "item 1 has no op",
    ),
    (
        r#"{"operation":"JSONPatch","kind":"Pod","name":"a","jsonPatch":[{"op":"drop","path":"/a"}]}"#,
        "item 1 has an op that is not one of",
    ),
    (
        r#"{"operation":"JSONPatch","kind":"Pod","name":"a","jsonPatch":[{"op":"move","path":"/a"}]}"#,
        "item 1 has no from",
    ),
    (
        r#"{"operation":"JSONPatch","kind":"Pod","name":"a","jsonPatch":[5]}"#,
        "item 1 is not an object",
    ),
    (
        r#"{"operation":"Delete","kind":"Pod","name":"a","ignoreMissingObject":"maybe"}"#,
        "ignoreMissingObject must be true or false",
    ),
];

/// The server decodes a path before it takes it apart: `Namespace` `n2/configmaps` would be every ConfigMap of `n2`.
#[test]
fn a_name_that_leads_to_another_object_is_refused() {
    for bad in ["n2/configmaps", "/", "a/", "a%2Fb", "%", ".", ".."] {
        for field in ["name", "namespace", "subresource"] {
            for (verb, more) in [
                ("Delete", json!({})),
                ("DeleteInBackground", json!({})),
                ("DeleteNonCascading", json!({})),
                ("MergePatch", json!({ "mergePatch": { "a": 1 } })),
                (
                    "JSONPatch",
                    json!({ "jsonPatch": [{ "op": "remove", "path": "/a" }] }),
                ),
                ("JQPatch", json!({ "jqFilter": "." })),
            ] {
                let mut document =
                    json!({ "operation": verb, "kind": "Pod", "name": "a", "namespace": "n" });
                for (key, value) in more.as_object().unwrap() {
                    document[key] = value.clone();
                }
                document[field] = json!(bad);
                refused(&document.to_string(), &format!("{field} must not be"));
            }
        }
        for field in ["name", "namespace", "generateName"] {
            for verb in ["Create", "CreateIfNotExists", "CreateOrUpdate", "Apply"] {
                let mut object = json!({
                    "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "a", "namespace": "n" },
                });
                object["metadata"][field] = json!(bad);
                let document = json!({ "operation": verb, "object": object });
                let expected = format!("object.metadata.{field} must not be");
                refused(&document.to_string(), &expected);
            }
        }
    }
    for subresource in ["status", "/status"] {
        let document = json!({
            "operation": "JQPatch", "kind": "Pod", "name": "a", "jqFilter": ".", "subresource": subresource,
        });
        check(
            &document.to_string(),
            &[&format!("JQPatch Pod/a {subresource}: .")],
        );
    }
    let document = |subresource: &str| json!({ "operation": "Delete", "kind": "Pod", "name": "a", "subresource": subresource });
    for bad in ["//status", "/a/b"] {
        refused(&document(bad).to_string(), "subresource must not be");
    }
}

/// Whatever a hook writes, the log and the error of a run stay short.
#[test]
fn a_long_name_is_refused_and_cut_where_it_is_shown() {
    let long = "x".repeat(100_000);
    for field in ["apiVersion", "kind", "name", "namespace"] {
        let mut document =
            json!({ "operation": "Delete", "kind": "Pod", "name": "a", "namespace": "n" });
        document[field] = json!(long);
        let error = read(&document.to_string()).unwrap_err();
        assert!(
            error.contains(&format!("{field} is longer than 512 bytes")),
            "{error}"
        );
        assert!(error.len() < 500, "{error}");
        let mut object = json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "a" } });
        match field {
            "apiVersion" | "kind" => object[field] = json!(long),
            _ => object["metadata"][field] = json!(long),
        }
        let error = read(&json!({ "operation": "Create", "object": object }).to_string());
        assert!(error.unwrap_err().len() < 500);
    }
    let longest = "x".repeat(253);
    let document = json!({ "operation": "Delete", "kind": "Pod", "name": longest });
    check(
        &document.to_string(),
        &[&format!("Delete Pod/{longest}: Foreground")],
    );
}

#[test]
fn a_bad_document_is_named_with_its_number_operation_and_object() {
    let good = r#"{"operation":"Delete","kind":"Pod","namespace":"n","name":"a"}"#;
    for (bad, expected) in BAD {
        refused(&format!("{good}\n{bad}\n{good}"), expected);
    }
    refused("[]", "document 1: an operation is a mapping");
    refused("- a\n", "document 1: an operation is a mapping");
    refused(
        &format!("{good}\n[{good}]"),
        "document 2 cannot be read: an operation is a JSON object",
    );
    refused(
        &format!("{good}\n{{\"operation\": "),
        "document 2 cannot be read: EOF",
    );
    refused(
        "operation: Delete\nkind: [\n",
        "document 1 cannot be read: YAML, line",
    );
    let yaml = "operation: Delete\nkind: Pod\nname: a\n";
    refused(
        &format!("{yaml}---\n{yaml}name: b\n"),
        "document 2 cannot be read: YAML, line 8, column 1: duplicate",
    );
    for bytes in [&b"\xff\xfe"[..], b"{\"operation\":\"Delete\"}\0"] {
        assert!(File::read(bytes, &|| true).is_err());
    }
}

/// T16: whatever is wrong, the words hold nothing of what was written.
#[test]
fn no_value_is_in_an_error() {
    let marker = "marker4711";
    let secret = |data: &str| {
        format!(
            r#"{{"apiVersion":"v1","kind":"Secret","metadata":{{"name":"s","namespace":"n"}},"data":{data}}}"#
        )
    };
    let texts = [
        format!(
            r#"{{"operation":"Create","object":{}}} {{"#,
            secret(&format!(r#"{{"k":"{marker}"}}"#))
        ),
        format!(
            r#"{{"operation":"Create","object":{}"#,
            secret(&format!(r#"{{"k":{marker}}}"#))
        ),
        format!("operation: Create\nobject:\n  data: {{k: {marker}\n"),
        format!("operation: Create\nobject:\n  data:\n    k: *{marker}\n"),
        format!("operation: Create\nobject:\n  data:\n    k: !!int {marker}\n"),
        format!("operation: Create\nobject:\n  data: {{{marker}: 1, {marker}: 2}}\n"),
        format!("operation: Create\nobject: |\n  data: [{marker}\n"),
        format!("operation: Create\nobject:\n  data:\n    k: !!{marker} x\n"),
        format!("operation: Create\nobject:\n  data:\n    k: !!{marker} {{}}\n"),
        format!("operation: Create\nobject:\n  ? [{marker}]\n  : x\n"),
        format!("operation: Create\nobject:\n  <<: {marker}\n"),
        format!("operation: Create\nobject: \"k: !!{marker} x\"\n"),
        format!("operation: Create\n{marker}\n"),
        format!("%{marker} x\n---\noperation: Create\n"),
        format!("operation: Create\nobject: !{marker}!x y\n"),
        format!("operation: Create\nobject: \"\\{marker}\"\n"),
        format!(r#""{marker}""#),
        format!("{marker}\n"),
        format!(
            r#"{{"operation":"JQPatch","kind":"Secret","name":"s","jqFilter":".data.k = \"{marker}"}}"#
        ),
        format!(
            r#"{{"operation":"JQPatch","kind":"Secret","name":"s","jqFilter":".data.k = {marker}"}}"#
        ),
        format!(
            r#"{{"operation":"MergePatch","kind":"Secret","name":"s","mergePatch":"{marker}"}}"#
        ),
        format!(
            r#"{{"operation":"JSONPatch","kind":"Secret","name":"s","jsonPatch":[{{"op":"{marker}","path":"/{marker}"}}]}}"#
        ),
    ];
    for text in texts {
        let error = read(&text).unwrap_err();
        assert!(!error.contains(marker), "{text}\n{error}");
    }
}

/// T16: a password that looks like a number beyond all numbers is a text, as for the original, and no error quotes it.
#[test]
fn a_numeral_out_of_range_is_a_text() {
    let secret = |value: &str| {
        format!(
            "operation: Create\nobject:\n  apiVersion: v1\n  kind: Secret\n  metadata: {{name: s}}\n  stringData:\n    password: {value}\n"
        )
    };
    for value in ["31337123e4567", "-1.5e999"] {
        let operations = read(&secret(value)).unwrap();
        assert!(
            operations[0].contains(&format!(r#""password":"{value}""#)),
            "{operations:?}"
        );
    }
    let error = read(&secret("!!float 31337123e4567")).unwrap_err();
    assert!(!error.contains("31337"), "{error}");
    refused(
        &secret(".inf"),
        "YAML, line 7, column 15: a number is not finite",
    );
}

/// Both forms have the same limit, and nobody waits for the check of a large file who cannot.
#[test]
fn a_file_of_too_many_documents_is_refused_and_its_check_can_be_interrupted() {
    let json = "{\"operation\":\"Delete\",\"kind\":\"Pod\",\"name\":\"a\"}\n";
    let yaml = "---\noperation: Delete\nkind: Pod\nname: a\n";
    for (form, expected) in [
        (json, "more than 50000 documents"),
        (yaml, "document 50001 cannot be read"),
    ] {
        refused(&form.repeat(50_001), expected);
        let asked = std::cell::Cell::new(0);
        let text = form.repeat(1000);
        let end = File::read(text.as_bytes(), &|| {
            asked.set(asked.get() + 1);
            asked.get() < 10
        });
        assert_eq!(end.err(), Some(FileError::Interrupted));
        assert_eq!(asked.get(), 10);
    }
    assert_eq!(read(&json.repeat(50_000)).unwrap().len(), 50_000);
}

/// T13: neither depth nor size of what a hook writes can end the process.
#[test]
fn hostile_files_are_refused_without_harm() {
    let deep = "[".repeat(200_000);
    read(&deep).unwrap_err();
    read(&format!(r#"{{"operation":"Create","object":{deep}"#)).unwrap_err();
    let text = Value::from(deep).to_string();
    read(&format!(r#"{{"operation":"Create","object":{text}}}"#)).unwrap_err();
    let wide = format!("operation: Create\nobject: [{}]\n", "1,".repeat(400_000));
    read(&wide).unwrap_err();
    let bomb = (1..20).fold("a0: &a0 [x, x]\n".to_owned(), |text, level| {
        format!("{text}a{level}: &a{level} [*a{0}, *a{0}]\n", level - 1)
    });
    read(&bomb).unwrap_err();
    // A value that is nested deeply is the server's to refuse.
    let nested = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    let patch = format!(
        r#"{{"operation":"MergePatch","kind":"Pod","name":"a","mergePatch":{{"x":{nested}}}}}"#
    );
    assert_eq!(read(&patch).unwrap().len(), 1);
}

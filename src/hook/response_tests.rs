//! Cases for answers: every malformation of the response file is an error that names the field, and none of them allows.

use serde_json::json;

use super::super::json_patch::Problem;
use super::*;

fn parse(text: &str) -> Result<AdmissionAnswer, ResponseError> {
    AdmissionAnswer::parse(text.as_bytes())
}

fn verdict(text: &str) -> Verdict {
    parse(text)
        .unwrap_or_else(|error| panic!("{text}: {error}"))
        .verdict
}

fn denial(code: u16, message: &str, reason: &str) -> Verdict {
    Verdict {
        allowed: false,
        code,
        message: message.to_owned(),
        reason: reason.to_owned(),
        warnings: Vec::new(),
        audit_annotations: BTreeMap::new(),
        phase: None,
        patch: None,
    }
}

fn raw(value: &Value) -> Box<RawValue> {
    RawValue::from_string(value.to_string()).unwrap()
}

#[test]
fn an_answer_allows_or_denies() {
    // SO-25, SO-26.
    assert!(verdict("{\"allowed\":true}").allowed);
    assert!(verdict(" \n{\"allowed\": true, \"message\": \"unused\", \"unknown\": 1}\n").allowed);
    assert!(verdict("{\"Allowed\": true}").allowed);
    for (text, expected) in [
        ("{}", denial(403, "", "")),
        ("{\"allowed\":false}", denial(403, "", "")),
        (
            "{\"allowed\":false,\"message\":\"no\"}",
            denial(403, "no", ""),
        ),
        (
            "{\"ALLOWED\":false,\"Message\":\"no\"}",
            denial(403, "no", ""),
        ),
        (
            "{\"allowed\":false,\"message\":null,\"warnings\":null,\"patch\":null,\"status\":null,\"auditAnnotations\":null}",
            denial(403, "", ""),
        ),
        (
            "{\"allowed\":false,\"status\":{\"code\":422,\"message\":\"bad\",\"reason\":\"Invalid\"}}",
            denial(422, "bad", "Invalid"),
        ),
        (
            "{\"allowed\":false,\"status\":{\"reason\":\"only a reason\"}}",
            denial(403, "", "only a reason"),
        ),
        (
            "{\"allowed\":false,\"message\":\"outer\",\"status\":{\"code\":0}}",
            denial(403, "outer", ""),
        ),
        (
            "{\"allowed\":false,\"message\":\"outer\",\"status\":{\"message\":\"inner\"}}",
            denial(403, "inner", ""),
        ),
        // A denial's patch goes nowhere.
        (
            "{\"allowed\":false,\"patch\":[{\"op\":\"remove\",\"path\":\"/a\"}]}",
            denial(403, "", ""),
        ),
    ] {
        assert_eq!(verdict(text), expected, "{text}");
    }
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table of cases")]
fn every_malformation_is_an_error_and_never_allows() {
    // SO-42 and the list of apiserver-contract T18.
    for (text, expected) in [
        ("", "the response file is empty"),
        ("  \n\t ", "the response file is empty"),
        (
            "{\"allowed\":true",
            "the response is not JSON: EOF while parsing",
        ),
        ("{\"allowed\":tru}", "the response is not JSON: "),
        ("allowed: true", "the response is not JSON: "),
        ("true", "the response must be an object, not a boolean"),
        (
            "[{\"allowed\":true}]",
            "the response must be an object, not an array",
        ),
        ("null", "the response must be an object, not null"),
        (
            "{\"allowed\":\"true\"}",
            "`allowed` in the response must be true or false, not a string",
        ),
        (
            "{\"allowed\":1}",
            "`allowed` in the response must be true or false, not a number",
        ),
        (
            "{\"allowed\":null}",
            "`allowed` in the response must be true or false, not null",
        ),
        (
            "{\"allowed\":false,\"allowed\":true}",
            "`allowed` is in the response more than once",
        ),
        (
            "{\"allowed\":true,\"Allowed\":true}",
            "`allowed` is in the response more than once",
        ),
        (
            "{\"allowed\":true}{\"allowed\":false}",
            "several answers that disagree",
        ),
        (
            "{\"allowed\":false}\n{\"allowed\":true}",
            "several answers that disagree",
        ),
        (
            "{\"allowed\":true}\n{\"allowed\":\"no\"}",
            "several answers that disagree",
        ),
        (
            "{\"allowed\":true,\"message\":5}",
            "`message` in the response must be a string, not a number",
        ),
        (
            "{\"allowed\":false,\"status\":\"no\"}",
            "`status` in the response must be an object, not a string",
        ),
        (
            "{\"allowed\":false,\"status\":{\"code\":\"403\"}}",
            "`status.code` in the response must be an HTTP status code, not a string",
        ),
        (
            "{\"allowed\":false,\"status\":{\"code\":-1}}",
            "`status.code`",
        ),
        (
            "{\"allowed\":false,\"status\":{\"code\":9999}}",
            "`status.code`",
        ),
        (
            "{\"allowed\":false,\"status\":{\"message\":{}}}",
            "`status.message` in the response must be a string, not an object",
        ),
        (
            "{\"allowed\":true,\"warnings\":\"w\"}",
            "`warnings` in the response must be an array of strings, not a string",
        ),
        (
            "{\"allowed\":true,\"warnings\":[1]}",
            "`warnings` in the response must be an array of strings, not a number",
        ),
        (
            "{\"allowed\":true,\"auditAnnotations\":[]}",
            "`auditAnnotations` in the response must be an object of strings, not an array",
        ),
        (
            "{\"allowed\":true,\"auditAnnotations\":{\"a\":1}}",
            "`auditAnnotations` in the response must be an object of strings, not a number",
        ),
        (
            "{\"allowed\":true,\"patch\":{}}",
            "`patch` in the response must be a base64 string or a JSON Patch array, not an object",
        ),
        (
            "{\"allowed\":true,\"patch\":\"[{}]\"}",
            "`patch` is a string but not base64",
        ),
        (
            "{\"allowed\":true,\"patch\":\"bm8=\"}",
            "`patch` is not a JSON Patch",
        ),
        (
            "{\"allowed\":true,\"patch\":\"e30=\"}",
            "`patch` is not a JSON Patch",
        ),
        (
            "{\"allowed\":true,\"patch\":[],\"patchType\":\"Merge\"}",
            "`patchType` in the response must be JSONPatch",
        ),
    ] {
        let error = match parse(text) {
            Ok(answer) => panic!("{text} gave {answer:?}"),
            Err(error) => error.to_string(),
        };
        assert!(error.contains(expected), "{text}: {error}");
        assert!(!error.contains('\n'), "{error}");
    }
    assert!(matches!(
        AdmissionAnswer::parse(b"{\"allowed\":true,\"message\":\"\xff\"}"),
        Err(ResponseError::NotJson(_))
    ));
    let nested = "[".repeat(200_000);
    assert!(matches!(parse(&nested), Err(ResponseError::NotJson(_))));
    let nested = format!("{{\"allowed\":true,\"x\":{nested}}}");
    assert!(matches!(parse(&nested), Err(ResponseError::NotJson(_))));
}

#[test]
fn what_follows_the_first_document_does_not_matter_unless_it_disagrees() {
    assert!(verdict("{\"allowed\":true} trailing").allowed);
    assert!(verdict("{\"allowed\":true}{\"allowed\":true}").allowed);
    assert!(verdict("{\"allowed\":true}{\"other\":1}[1]").allowed);
    assert!(!verdict("{}{\"allowed\":false}").allowed);
}

#[test]
fn warnings_are_made_fit_and_nothing_is_dropped_in_silence() {
    // AW-51.
    let answer = parse(&json!({"allowed": true, "warnings": ["plain", "", "  ", "two\nlines\tand\u{1b}[31m colour\u{7}"]}).to_string()).unwrap();
    assert_eq!(
        answer.verdict.warnings,
        ["plain", "two lines and[31m colour"]
    );
    assert!(answer.advice.is_empty());

    let answer = parse(
        &json!({"allowed": false, "warnings": ["x".repeat(121), "é".repeat(300)]}).to_string(),
    )
    .unwrap();
    assert_eq!(answer.verdict.warnings[0].len(), 121);
    assert_eq!(answer.verdict.warnings[1].chars().count(), WARNING_MAX);
    assert!(answer.verdict.warnings[1].ends_with("é..."));
    assert_eq!(
        answer.advice,
        [
            "warning 1 has 121 characters: 120 are advised, 256 are shown",
            "warning 2 has 300 characters: 120 are advised, 256 are shown",
        ]
    );

    let many = vec!["y".repeat(100); 50];
    let answer = parse(&json!({"allowed": true, "warnings": many}).to_string()).unwrap();
    assert_eq!(answer.verdict.warnings.len(), 40);
    assert_eq!(
        answer.advice,
        ["10 warnings are left out: all together may have 4096 characters"]
    );
}

#[test]
fn audit_annotations_are_passed_on() {
    // AW-52.
    let annotations = verdict("{\"allowed\":true,\"auditAnnotations\":{\"k\":\"v\",\"a\":\"\"}}")
        .audit_annotations;
    assert_eq!(
        annotations,
        [
            ("a".to_owned(), String::new()),
            ("k".to_owned(), "v".to_owned())
        ]
        .into()
    );
}

#[test]
fn a_patch_is_base64_or_the_array_itself() {
    // AW-50.
    let operations = json!([{"op": "add", "path": "/metadata/labels", "value": {"a": "b"}}]);
    let text = "[ {\"op\": \"add\", \"path\": \"/metadata/labels\", \"value\": {\"a\": \"b\"}} ]";
    let encoded = STANDARD.encode(text);
    let (head, tail) = encoded.split_at(20);
    let wrapped = format!("{head}\\n{tail}");
    for patch in [format!("\"{encoded}\""), format!("\"{wrapped}\"")] {
        let patch = verdict(&format!(
            "{{\"allowed\":true,\"patch\":{patch},\"patchType\":\"JSONPatch\"}}"
        ))
        .patch
        .unwrap();
        assert_eq!(Value::from(patch.operations), operations);
        // The hook's own bytes.
        assert_eq!(patch.json, text.as_bytes());
    }
    let patch = verdict(&format!("{{\"allowed\":true,\"patch\":{operations}}}"))
        .patch
        .unwrap();
    assert_eq!(
        serde_json::from_slice::<Value>(&patch.json).unwrap(),
        operations
    );
    assert_eq!(format!("{patch:?}"), "Patch(1 operations)");
    for none in ["\"\"", "[]", "\"W10=\"", "\"bnVsbA==\"", "null"] {
        assert_eq!(
            verdict(&format!("{{\"allowed\":true,\"patch\":{none}}}")).patch,
            None,
            "{none}"
        );
    }
}

#[test]
fn a_patch_is_tried_before_it_is_sent() {
    // AW-50, AC-21.
    let answer = |path: &str| {
        parse(
            &json!({"allowed": true, "patch": [{"op": "add", "path": path, "value": 1}]})
                .to_string(),
        )
        .unwrap()
    };
    let object = raw(&json!({"metadata": {}}));
    let null = raw(&Value::Null);
    let good = answer("/metadata/x");
    assert_eq!(
        good.check_patch(
            AdmissionKind::Mutating,
            "CREATE",
            Some(object.get().as_bytes())
        ),
        Ok(())
    );
    assert_eq!(
        good.check_patch(
            AdmissionKind::Mutating,
            "UPDATE",
            Some(object.get().as_bytes())
        ),
        Ok(())
    );
    assert_eq!(
        good.check_patch(
            AdmissionKind::Validating,
            "CREATE",
            Some(object.get().as_bytes())
        ),
        Err(ResponseError::PatchFromValidating)
    );
    for (operation, object) in [
        ("DELETE", None),
        ("DELETE", Some(&null)),
        ("CONNECT", Some(&object)),
        ("CREATE", None),
        ("CREATE", Some(&null)),
    ] {
        assert_eq!(
            good.check_patch(
                AdmissionKind::Mutating,
                operation,
                object.map(|object| object.get().as_bytes())
            ),
            Err(ResponseError::PatchOn(operation.to_owned()))
        );
    }
    match answer("/spec/x").check_patch(
        AdmissionKind::Mutating,
        "CREATE",
        Some(object.get().as_bytes()),
    ) {
        Err(ResponseError::Patch(error)) => {
            assert_eq!((error.index, error.problem), (0, Problem::MissingParent))
        }
        other => panic!("{other:?}"),
    }
    // Without a patch there is nothing to check, also on DELETE.
    let none = parse("{\"allowed\":true}").unwrap();
    assert_eq!(
        none.check_patch(AdmissionKind::Validating, "DELETE", None),
        Ok(())
    );
}

#[test]
fn a_conversion_gives_objects_or_a_message() {
    let converted = |text: &str| match ConversionAnswer::parse(text.as_bytes()) {
        Ok(ConversionAnswer::Converted(objects)) => objects
            .iter()
            .map(|object| object.get().to_owned())
            .collect::<Vec<_>>(),
        other => panic!("{text}: {other:?}"),
    };
    assert_eq!(
        converted("{\"convertedObjects\":[{\"a\": 1.10},{}]}"),
        ["{\"a\": 1.10}", "{}"]
    );
    assert_eq!(
        converted("{\"ConvertedObjects\":[],\"failedMessage\":\"\"}"),
        Vec::<String>::new()
    );
    assert!(converted("{}").is_empty());
    assert!(converted("{\"convertedObjects\":null}").is_empty());
    match ConversionAnswer::parse(b"{\"failedMessage\":\"cannot\",\"convertedObjects\":[{}]}") {
        Ok(ConversionAnswer::Failed(message)) => assert_eq!(message, "cannot"),
        other => panic!("{other:?}"),
    }
    for (text, expected) in [
        ("", "empty"),
        ("[]", "must be an object"),
        (
            "{\"convertedObjects\":{}}",
            "`convertedObjects` in the response must be an array of objects",
        ),
        (
            "{\"convertedObjects\":[1]}",
            "`convertedObjects` in the response must be an array of objects",
        ),
        (
            "{\"failedMessage\":1}",
            "`failedMessage` in the response must be a string",
        ),
    ] {
        let error = ConversionAnswer::parse(text.as_bytes())
            .unwrap_err()
            .to_string();
        assert!(error.contains(expected), "{text}: {error}");
    }
}

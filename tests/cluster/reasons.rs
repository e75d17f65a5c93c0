//! What a user reads of a hook that failed (HX-42…HX-46): nothing it printed, unless its binding says so; then what it marked, or
//! the cleaned end of it. And the phase, in the log, the metrics and the audit annotations.

use serde_json::{Value, json};

use crate::support::stage::{Kind, config_map, message, review};
use crate::support::{Operator, Stage};

/// A ConfigMap whose label chooses a hook.
fn chosen(stem: &str) -> Value {
    let mut map = config_map(stem, &json!({}));
    map["metadata"]["labels"] = json!({ "case": stem });
    map
}

/// What HAProxy 2.6.12 of Debian prints for an unknown keyword.
const CHECK: &str = "cat >&2 <<'END'
[NOTICE]   (25387) : haproxy version is 2.6.12-1+deb12u4
[NOTICE]   (25387) : path to executable is /usr/sbin/haproxy
[ALERT]    (25387) : config : parsing [/tmp/x/haproxy.cfg:9] : unknown keyword 'defalt_backend' in 'frontend' section; did you mean 'default_backend' maybe ?
[ALERT]    (25387) : config : Error(s) found in configuration file : haproxy.cfg
[ALERT]    (25387) : config : Fatal errors found in configuration.
END
exit 1";

/// A hook, what its binding says about errors, and what comes of that.
struct Case {
    stem: &'static str,
    errors: Value,
    body: String,
    code: u16,
    text: &'static str,
    /// Empty for none.
    phase: &'static str,
}

fn case(
    stem: &'static str,
    errors: Value,
    body: &str,
    code: u16,
    text: &'static str,
    phase: &'static str,
) -> Case {
    Case {
        stem,
        errors,
        body: body.to_owned(),
        code,
        text,
        phase,
    }
}

fn cases() -> Vec<Case> {
    let lib = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("hooks/lib");
    let failing = format!(
        "exec bash -c 'source {}/shell_lib.sh; render() {{ hook::phase render; hook::fail \"$1\"; }}; \
         echo \"password=123\" >&2; text=$(render \"Service api not found\")'",
        lib.display()
    );
    let python = format!(
        "PYTHONPATH={} exec python3 -c 'import shell_operator as hook; hook.phase(\"schema\"); hook.fail(\"spec.a: required\")'",
        lib.display()
    );
    let syntax = format!("echo 'PHASE: syntax' >&2\n{CHECK}");
    let respond = r#"echo '{"allowed": false, "message": "no, in /a/b/c", "phase": "semantic"}' >"$VALIDATING_RESPONSE_PATH""#;
    let haproxy = json!({ "from": "tail", "filters": { "syntax": ["haproxy"] } });
    let marked = || json!({ "from": "marked" });
    let keyword = "unknown keyword 'defalt_backend' in 'frontend' section; did you mean 'default_backend' maybe ?";
    vec![
        case(
            "unset",
            json!({}),
            &failing,
            500,
            "Shell-operator hook 'unset.sh' error: exit code 1.",
            "",
        ),
        case(
            "marked",
            marked(),
            &failing,
            403,
            "Service api not found",
            "render",
        ),
        case(
            "python",
            marked(),
            &python,
            403,
            "spec.a: required",
            "schema",
        ),
        case(
            "unmarked",
            marked(),
            CHECK,
            500,
            "Shell-operator hook 'unmarked.sh' error: exit code 1.",
            "",
        ),
        case("tail", haproxy, &syntax, 500, keyword, "syntax"),
        case(
            "answer",
            json!({ "filters": ["paths"], "maxLength": 6 }),
            respond,
            403,
            "no,...",
            "semantic",
        ),
        case(
            "late",
            json!({ "from": "tail" }),
            "echo 'FAIL: not this' >&2; sleep 30",
            500,
            "killed after",
            "",
        ),
    ]
}

#[test]
fn a_failure_is_explained_as_far_as_its_binding_says() {
    let mut stage = Stage::new("reasons");
    let cases = cases();
    for Case {
        stem, errors, body, ..
    } in &cases
    {
        let mut more =
            json!({ "labelSelector": { "matchLabels": { "case": stem } }, "timeoutSeconds": 3 });
        // Without the key all is as in the original.
        if *stem != "unset" {
            more["errors"] = errors.clone();
        }
        stage = stage.hook(stem, Kind::Validating, &more, body);
    }
    let operator = stage.start();
    for case in &cases {
        let Case {
            stem, code, text, ..
        } = case;
        let answer = stage.api.create(&stage.config_maps(), &chosen(stem));
        assert_eq!(answer.status, *code, "{stem}: {}", answer.text());
        let said = message(&answer);
        assert!(said.contains(text), "{stem}: {said}");
        for hidden in ["password", "Traceback", "NOTICE"] {
            assert!(!said.contains(hidden), "{said}");
        }
        if *code == 403 {
            assert!(
                said.ends_with(&format!("denied the request: {text}")),
                "{said}"
            );
        }
        if !case.phase.is_empty() {
            check_phase(&stage, &operator, case);
        }
    }
}

/// The phase is told everywhere. The hook has been asked once before, through the API server.
fn check_phase(stage: &Stage<'_>, operator: &Operator, case: &Case) {
    let Case { stem, phase, .. } = case;
    let asked = review("uid-1", &chosen(stem));
    let answer = stage
        .connect()
        .post_json(&stage.path(stem), &asked)
        .unwrap();
    assert_eq!(
        answer.json()["response"]["auditAnnotations"],
        json!({ "phase": phase }),
        "{stem}"
    );
    let hook = format!("{stem}.sh");
    operator.wait_log(&format!("the phase of {stem}"), |line| {
        line.label("hook") == Some(&hook) && line.label("phase") == Some(phase)
    });
    let binding = stage.webhook_name(stem);
    let labels = [
        ("hook", hook.as_str()),
        ("binding", &binding),
        ("phase", phase),
    ];
    let page = operator.metrics();
    assert_eq!(
        page.value("shell_operator_hook_denials_total", &labels),
        Some(2.0),
        "{stem}"
    );
    // What a hook meant to say is no failure of it.
    let labels = [
        ("hook", hook.as_str()),
        ("binding", &binding),
        ("queue", ""),
    ];
    let failures = if *stem == "tail" { 2.0 } else { 0.0 };
    assert_eq!(
        page.value("shell_operator_hook_run_errors_total", &labels),
        Some(failures),
        "{stem}"
    );
}

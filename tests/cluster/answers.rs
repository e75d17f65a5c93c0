//! What a user sees of what a hook answered: texts, codes, warnings, patches.

use serde_json::json;

use crate::support::Stage;
use crate::support::stage::{Kind, answers, message};

#[test]
fn a_denial_reads_exactly_as_the_api_server_writes_it() {
    let stage = Stage::new("denial");
    let denial = answers(&json!({ "allowed": false, "message": "no, because" }));
    let stage = stage.hook("deny", Kind::Validating, &json!({}), &denial);
    let _operator = stage.start();
    let answer = stage.create("a", &json!({}));
    let name = stage.webhook_name("deny");
    assert_eq!(answer.status, 403, "{}", answer.text());
    assert_eq!(
        message(&answer),
        format!("admission webhook \"{name}\" denied the request: no, because")
    );
    let shown = stage.kubectl_create("a").err();
    assert_eq!(
        shown.trim(),
        format!(
            "error: failed to create configmap: admission webhook \"{name}\" denied the request: no, because"
        )
    );
}

//! Tests of the writers: what `review` finds as cases, and texts that try to break out of a format.

use std::time::{Duration, SystemTime};

use super::*;
use crate::offline::outcome::{Finding, ObjectName, Operation, Place, Report, Verdict};

fn finding(file: &str, source: Option<&str>, verdict: Verdict) -> Finding {
    Finding {
        place: Place {
            file: file.to_owned(),
            line: 7,
            document: 2,
            source: source.map(str::to_owned),
        },
        object: ObjectName {
            api_version: "v1".to_owned(),
            kind: "Pod".to_owned(),
            namespace: "shop".to_owned(),
            name: "web".to_owned(),
        },
        operation: Operation::Update,
        subresource: "status".to_owned(),
        hook: Some("a.sh".to_owned()),
        webhook: Some("a.example.com".to_owned()),
        verdict,
        warnings: Vec::new(),
        patched: None,
        output: vec!["printed".to_owned()],
        elapsed: Duration::from_millis(1234),
    }
}

fn report(findings: Vec<Finding>) -> Report {
    Report {
        findings,
        notes: Vec::new(),
        started: SystemTime::UNIX_EPOCH,
        elapsed: Duration::from_secs(2),
    }
}

#[test]
fn a_finding_is_a_case_with_the_webhook_as_its_judge() {
    let denied = Verdict::Denied {
        message: "no".to_owned(),
        code: 403,
    };
    let unjudged = Verdict::Unjudged {
        reason: "unknown".to_owned(),
    };
    let report = report(vec![
        finding("./m.yaml", None, denied),
        finding("-", Some("chart/templates/a.yaml"), unjudged),
        finding("-", None, Verdict::Allowed),
    ]);
    let cases = cases_of(&report, false).cases;
    assert_eq!(cases[0].name, "UPDATE Pod shop/web (status)");
    assert_eq!((cases[0].file.as_str(), cases[0].line), ("m.yaml", 7));
    assert_eq!(
        (cases[0].judge.as_str(), cases[0].status),
        ("a.example.com", Status::Failed)
    );
    assert_eq!(cases[0].details, "hook: a.sh\nprinted");
    // The rendered text is in no repository; the template is.
    assert_eq!(
        (cases[1].file.as_str(), cases[1].line),
        ("chart/templates/a.yaml", 1)
    );
    assert_eq!(cases[1].status, Status::Error);
    assert_eq!(cases_of(&report, true).cases[1].status, Status::Skipped);
    assert_eq!((cases[2].file.as_str(), cases[2].line), ("stdin", 7));
    assert_eq!(
        (cases[2].status, cases[2].details.as_str()),
        (Status::Passed, "")
    );
}

#[test]
fn cases_of_a_suite_stand_together_and_times_have_no_exponent() {
    let mut cases = cases_of(
        &report(vec![
            finding("a.yaml", None, Verdict::Allowed),
            finding("b.yaml", None, Verdict::Allowed),
            finding("a.yaml", None, Verdict::NotMatched),
        ]),
        false,
    );
    let suites: Vec<(&str, usize)> = cases
        .suites()
        .into_iter()
        .map(|(name, cases)| (name, cases.len()))
        .collect();
    assert_eq!(suites, [("a.yaml", 2), ("b.yaml", 1)]);
    cases.elapsed = Duration::from_nanos(1);
    let junit = write(ReportForm::Junit, &cases).unwrap();
    assert!(junit.contains("time=\"0.000\">\n"), "{junit}");
    assert!(
        junit.contains("time=\"2.468\" timestamp=\"1970-01-01T00:00:00Z\""),
        "{junit}"
    );
}

#[test]
fn a_report_without_cases_can_be_read_all_the_same() {
    let empty = cases_of(&report(Vec::new()), false);
    assert_eq!(write(ReportForm::Text, &empty), None);
    let tap = write(ReportForm::Tap, &empty).unwrap();
    assert_eq!(tap, "TAP version 14\n1..0 # SKIP there is no case\n");
    let sarif: serde_json::Value =
        serde_json::from_str(&write(ReportForm::Sarif, &empty).unwrap()).unwrap();
    assert_eq!(sarif["runs"][0]["results"], serde_json::json!([]));
    let junit = write(ReportForm::Junit, &empty).unwrap();
    assert!(
        junit.ends_with("tests=\"0\" failures=\"0\" errors=\"0\" time=\"2.000\">\n</testsuites>\n"),
        "{junit}"
    );
}

#[test]
fn warnings_of_what_passed_are_told_too() {
    let mut allowed = finding("a.yaml", None, Verdict::Allowed);
    allowed.warnings = vec!["old <api>".to_owned()];
    let cases = cases_of(&report(vec![allowed]), false);
    let told = |form| write(form, &cases).unwrap();
    assert!(told(ReportForm::Junit).contains("<system-out>old &lt;api&gt;</system-out>"));
    assert!(told(ReportForm::Sarif).contains("\"level\": \"warning\""));
    assert!(told(ReportForm::Github).contains("::warning file=a.yaml,line=7,"));
    assert!(told(ReportForm::Tap).contains("severity: warning"));
}

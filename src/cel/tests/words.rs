//! What people read: places and reasons of refused expressions, and the names of what cannot be known.

use serde_json::json;

use super::super::{Expression, Outcome, Variables};

#[test]
fn a_refused_expression_says_where_and_what_was_expected() {
    for (expression, words) in [
        ("1 +", "line 1, column 4: expected a value, found the end"),
        (
            "object.\n  == 1",
            "line 2, column 3: expected the name of a field, found `==`",
        ),
        ("(true", "line 1, column 6: expected `)`, found the end"),
        (
            "true true",
            "line 1, column 6: expected an operator or the end, found `true`",
        ),
        ("'abc", "line 1, column 1: the string has no end"),
        (
            "params.x == 1",
            "line 1, column 1: undeclared reference to `params`",
        ),
        (
            "nope(1)",
            "line 1, column 1: undeclared reference to `nope`",
        ),
        (
            "object.data.a",
            "line 1, column 12: must evaluate to bool but got dyn",
        ),
        (
            "1 + 'a' == 2",
            "line 1, column 3: no overload of `_+_` takes (int, string)",
        ),
        (
            "request.nope == 1",
            "line 1, column 8: undefined field `nope`",
        ),
        (
            "[1, 'a'].size() == 2",
            "line 1, column 5: expected int, found string",
        ),
        (
            "has(object)",
            "line 1, column 1: has() needs a field, such as has(object.spec)",
        ),
        (
            "Pod{name: 'a'} == null",
            "line 1, column 4: no message type is declared, so none can be made",
        ),
    ] {
        let error = Expression::parse(expression).expect_err(expression);
        assert_eq!(error.to_string(), words, "{expression}");
    }
}

#[test]
fn what_cannot_be_known_is_named() {
    let variables = Variables::default();
    for (expression, words) in [
        (
            "authorizer.group('').resource('pods').check('get').allowed()",
            "authorizer",
        ),
        (
            "authorizer.requestResource.check('get').allowed()",
            "authorizer",
        ),
        ("'é'.matches('(?i)É')", "the regular expression \"(?i)É\""),
        ("'a'.matches('\\\\pL')", "the regular expression \"\\\\pL\""),
        (
            "format.dns1123Label().validate('A').value().size() == 1",
            "the words of a named format",
        ),
        (
            "format.uuid().validate('a').hasValue()",
            "the named format uuid",
        ),
        (
            "timestamp(0).getHours('Mars/Olympus') == 1",
            "the time zone \"Mars/Olympus\"",
        ),
    ] {
        let outcome = Expression::parse(expression)
            .expect(expression)
            .evaluate(&variables);
        assert_eq!(
            outcome,
            Outcome::CannotJudge(words.to_owned()),
            "{expression}"
        );
    }
}

#[test]
fn what_cannot_be_known_gives_way_to_what_decides() {
    let object = json!({ "a": 1 });
    let variables = Variables {
        object: Some(&object),
        ..Variables::default()
    };
    let asked = "authorizer.path('/x').check('get').allowed()";
    for (expression, outcome) in [
        (format!("{asked} && false"), Outcome::Bool(false)),
        (format!("false && {asked}"), Outcome::Bool(false)),
        (format!("{asked} || true"), Outcome::Bool(true)),
        (format!("true ? true : {asked}"), Outcome::Bool(true)),
        (
            format!("[1, 2].exists(x, x == 2 || {asked})"),
            Outcome::Bool(true),
        ),
        (
            format!("{asked} && true"),
            Outcome::CannotJudge("authorizer".to_owned()),
        ),
        // It could be false, so the error does not decide.
        (
            format!("object.nope == 1 && {asked}"),
            Outcome::CannotJudge("authorizer".to_owned()),
        ),
        (
            format!("{asked} && object.nope == 1"),
            Outcome::CannotJudge("authorizer".to_owned()),
        ),
        (
            "object.nope == 1 && true".to_owned(),
            Outcome::Error("no such key: nope".to_owned()),
        ),
    ] {
        let found = Expression::parse(&expression)
            .expect(&expression)
            .evaluate(&variables);
        assert_eq!(found, outcome, "{expression}");
    }
}

#[test]
fn numbers_of_json_are_ints_and_doubles() {
    let object = json!({ "int": 3, "fraction": 1.5, "whole": 2.0, "large": 18_446_744_073_709_551_615_u64, "null": null, "list": [1, 2] });
    let variables = Variables {
        object: Some(&object),
        ..Variables::default()
    };
    for expression in [
        "type(object.int) == int && type(object.fraction) == double && type(object.whole) == double",
        "type(object.large) == double && type(object['null']) == null_type",
        "object.list.map(x, x * 2) == [2, 4]",
        "object.int + 1 == 4 && object.fraction * 2.0 == 3.0 && object.int > object.fraction",
        "object.list.sum() == 3 && object.list.max() == 2",
        "oldObject == null && request == null",
    ] {
        let found = Expression::parse(expression)
            .expect(expression)
            .evaluate(&variables);
        assert_eq!(found, Outcome::Bool(true), "{expression}");
    }
}

//! Tests: changes, deletions and JSON texts give what the installed jq gives, program by program.

use std::process::Command;

use serde_json::Value;

use super::Filter;

/// Input, then the programs that are applied to it.
const TABLE: &[(&str, &[&str])] = &[
    (
        "[1,2,3]",
        &[
            "del(.[0],.[1])",
            "del(.[0,1])",
            "del(.[0,2])",
            "del(.[-1])",
            "del(.[-1,0])",
            "del(.[5])",
            "del(.[-5])",
            "del(.[1:])",
            "del(.[:1], .[2])",
            "del(.[])",
            "del(.)",
            "del(empty)",
            "del(.[] | select(. > 1))",
            "del(.[] | select(. == 1 or . == 3))",
            "delpaths([[0],[1]])",
            "delpaths([[1],[0],[1]])",
            "delpaths([])",
            "delpaths([[]])",
            "to_entries | del(.[0].key, .[1])",
            ".[1] = 9",
            ".[5] = 9",
            ".[-1] = 9",
            ".[1:] = [7]",
            ".[1:2] = [7, 8, 9]",
            ".[:1] |= map(. + 1)",
            ".[] += 1",
            "map_values(. + 1)",
            "first(.[]) = 5",
            "last |= 7",
            "(.[] | select(. > 1)) |= . * 2",
            "limit(2; .[]) = 0",
            "setpath([3]; 1)",
            "setpath([]; 1)",
            "paths",
            "[paths] | length",
            ".[0] |= empty | length",
        ],
    ),
    (
        r#"{"a":{"b":1,"c":[{"d":1},{"d":2},{"d":3}]},"x":null,"l":{}}"#,
        &[
            "del(.a.b)",
            "del(.a.c[0].d, .a.c[1], .a.b)",
            "del(.a.c[] | select(.d != 2))",
            "del(.a.c[].d)",
            "del(.a.c[1:][0])",
            "del(.nope.deeper.still)",
            "del(.nope[0])",
            "del(.x.y, .x[0])",
            "del(.a, .x, .l)",
            "del(.a[\"b\", \"c\"])",
            "del(..|select(. == 2))",
            "delpaths([[\"a\",\"c\",0],[\"a\",\"b\"],[\"q\",\"r\"]])",
            "[delpaths([paths | select(.[-1] == \"d\")])]",
            ".status.conditions[0].x = 1",
            ".metadata.labels[\"k\"] = \"v\"",
            "\"k\" as $k | .metadata.labels[$k] = \"v\"",
            "\"k\" as $k | .metadata.labels[$k] += 1",
            ".m.n += 2 | .m.o -= 1 | .m.p //= 3",
            ".m[2].n |= 5",
            ".m.n |= (. // 4)",
            ".a.c[].e = 1",
            ".a.c[1].d *= 5",
            ".a.c[1].d /= 2",
            ".a.c |= map(.d = 0)",
            "(.a.c[] | select(.d == 2)).m.o = 2",
            "(.a.b, .x) = 5",
            ".a.b = (1, 2)",
            ".a.b += (1, 2)",
            ".a.b = .a.c[1].d",
            ".a.b |= . + 1",
            "(.a // .b).z = 1",
            "(.nope // .l).z = 1",
            ".[\"l\"].k = 1",
            "(if .a then .l else .x end).q = 1",
            ".a.c[1:] = [0]",
            "to_entries | map(select(.key == \"x\")) | from_entries",
            "with_entries(.value |= 1)",
            "(.. | select(type == \"number\")) |= . + 1",
            "walk(if type == \"number\" then . + 1 else . end)",
            "getpath([\"a\",\"c\",1,\"d\"]) = 9",
            "getpath([\"n\",\"m\",1]) = 9",
            "setpath([\"n\",\"m\",1,\"o\"]; 9)",
            "reduce (\"p\",\"q\") as $k (.; .[$k].r = 1)",
            "def f: .a.z = 1; f",
            ".a.c[0] |= (.d = 5 | .e = 6)",
            "\"\\(.a.b = 7)\" | length > 0",
            ".l.(\"z\")? // 1",
            "(.a.c | map(.d)) as [$x] | .l.v = $x",
            "[.a.c[] | .d] | .[1] = null",
            "(.a?).b = 5",
            "(try .a catch .x).b = 5",
            "label $out | (.a.b = 3)",
            ".a.b = 1",
        ],
    ),
    (
        r#"{"a":1,"l":[1]}"#,
        &[
            ".a.b = 1",
            ".a[0] = 1",
            "del(.a.b)",
            ".l.k = 1",
            ".l[-5] = 1",
            "del(.l.k)",
            "del(.a[0])",
            "delpaths(1)",
            "delpaths([1])",
            "setpath(1; 2)",
            "1 = 2",
            ".l[0:1] = 5",
            "(.a | tostring) = 2",
        ],
    ),
    (
        "null",
        &[
            ".a.b = 1",
            ".[1] = 2",
            "del(.a.b)",
            "del(.[0])",
            ".a += 1",
            "delpaths([[\"a\"]])",
        ],
    ),
    (
        r#"["[1,{\"a\":2}]","12","-1.5e3"," 7 ","007","1 2","","nul","nan","{\"a\":1}x","[","\"q\""]"#,
        &[
            ".[] | try fromjson catch \"bad\"",
            ".[1,2,3,4] | tonumber",
            "map(try tonumber catch \"bad\")",
            "[.[] | fromjson?]",
        ],
    ),
    (
        r#"{"s":"ab","n":3}"#,
        &[
            ".s * .n",
            ".n * .n",
            ".n *= 2",
            "{} * {a: 1}",
            ".s * 0",
            "{a: {b: 1}} * {a: {c: 2}}",
            "[.n, 2] | .[0] * .[1]",
        ],
    ),
];

#[expect(
    clippy::disallowed_methods,
    reason = "a test asks the program it compares with"
)]
/// jq's results, one or a list of them as `Filter` gives them; none if it fails.
fn by_jq(program: &str, input: &str) -> Option<Vec<Value>> {
    let output = Command::new("jq")
        .args(["-c", "-n", "--argjson", "input", input])
        .arg(format!("$input | {program}"))
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let lines = text.lines().map(|line| serde_json::from_str(line).unwrap());
    output.status.success().then(|| lines.collect())
}

/// H3, L5: several places deleted at once, places made that are not there.
#[test]
fn changes_are_those_of_jq() {
    let mut wrong = Vec::new();
    for (input, programs) in TABLE {
        let value: Value = serde_json::from_str(input).unwrap();
        for program in *programs {
            let ours = Filter::compile(program).and_then(|filter| filter.apply(&value));
            let theirs = by_jq(program, input).map(|mut results| match results.len() {
                0 => Value::Null,
                1 => results.remove(0),
                _ => Value::Array(results),
            });
            if ours.clone().ok() != theirs {
                wrong.push(format!(
                    "{input} | {program}\n  ours {ours:?}\n  jq   {theirs:?}"
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

//! Input that means harm: deep, long, endless, and no language at all. None of it may panic, overflow the stack or take long.

use serde_json::json;

use super::super::{Expression, Outcome, Variables};
use super::{cases, judge};

#[test]
fn deep_nesting_is_refused_and_what_is_allowed_fits_the_stack() {
    for (open, close) in [
        ("(", ")"),
        ("[", "]"),
        ("!(", ")"),
        ("-(", ")"),
        ("f(", ")"),
        ("{1:", "}"),
        ("a[", "]"),
        ("[1].map(x, ", ")"),
        ("true ? true : ", ""),
        ("true || (", ")"),
        ("1 + (", ")"),
    ] {
        for depth in [10, 60, 63, 65, 250, 1000, 5000] {
            let source = format!("{}true{}", open.repeat(depth), close.repeat(depth));
            let (found, words) = judge(&source, "x");
            if depth > 64 {
                assert_eq!(found, "unknown", "{open}");
                assert!(words.contains("an expression"), "{open}: {words}");
            }
        }
    }
    let nested = format!("{}true{}", "(".repeat(60), ")".repeat(60));
    assert_eq!(judge(&nested, "x").0, "true");
}

#[test]
fn long_chains_are_judged_or_refused() {
    for (first, link) in [
        ("1", " + 1"),
        ("object", ".a"),
        ("object", "[0]"),
        ("object", ".?a"),
        ("true", " == true"),
        ("'a'", ".trim()"),
        ("[1]", ".map(x, x)"),
    ] {
        for length in [10, 300, 2000] {
            let source = format!("{first}{} == 1", link.repeat(length));
            judge(&source, "x");
        }
    }
    // Neither is bounded but by the length of the source.
    assert_eq!(judge(&["true"; 2000].join(" && "), "x").0, "true");
    assert_eq!(judge(&["false"; 1000].join(" || "), "x").0, "false");
    assert_eq!(judge(&format!("{}true", "!".repeat(5000)), "x").0, "true");
    assert_eq!(judge(&"x".repeat(20_000), "x").0, "unknown");
}

#[test]
fn an_expression_that_would_not_end_soon_is_not_judged() {
    let list: Vec<u32> = (0..3000).collect();
    let object = json!({ "list": list, "text": "a".repeat(100_000) });
    let variables = Variables {
        object: Some(&object),
        ..Variables::default()
    };
    let doubled = format!("[object.text]{}.size() == 1", ".map(x, x + x)".repeat(60));
    for expression in [
        "object.list.all(a, object.list.all(b, object.list.all(c, a + b + c >= 0)))",
        "object.list.all(a, object == object)",
        "object.list.all(a, object.text.replace('', object.text).size() > 0)",
        "object.list.map(a, object.text).join(object.text).size() > 0",
        "object.list.all(a, object.text.matches('(a*)*b') || true)",
        "object.list.map(a, object.list.map(b, object.list)).size() == 1",
        "object.list.transformMap(i, v, v).size() == 1",
        "object.list.all(a, object.text.contains(object.text + 'b') || true)",
        &doubled,
    ] {
        let found = Expression::parse(expression)
            .expect(expression)
            .evaluate(&variables);
        assert!(
            matches!(found, Outcome::CannotJudge(_)),
            "{expression}: {found:?}"
        );
    }
}

/// Reproducible and without a dependency.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 33).unwrap() % sides
    }
}

#[test]
fn mutilated_expressions_are_judged_or_refused_without_a_panic() {
    let all: Vec<Vec<char>> = cases().map(|(_, _, text)| text.chars().collect()).collect();
    let strange: Vec<char> = "\0\u{7f}é\u{202e}😀'\"\\`$#@[](){}<>.?:,0x9e-+u!&|%\n"
        .chars()
        .collect();
    let mut dice = Dice(0x2545_f491_4f6c_dd1d);
    for _ in 0..6_000 {
        let mut text = all[dice.roll(all.len())].clone();
        for _ in 0..=dice.roll(3) {
            let at = dice.roll(text.len().max(1)).min(text.len());
            match dice.roll(4) {
                0 => text.truncate(at),
                1 => text.insert(at, strange[dice.roll(strange.len())]),
                2 if at < text.len() => {
                    text.remove(at);
                }
                _ => {
                    let other = &all[dice.roll(all.len())];
                    text.splice(at..at, other[..dice.roll(other.len())].iter().copied());
                }
            }
        }
        judge(&text.into_iter().collect::<String>(), "x");
    }
}

#[test]
fn noise_is_refused_without_a_panic() {
    let mut dice = Dice(0x9e37_79b9_7f4a_7c15);
    for _ in 0..5_000 {
        let octets: Vec<u8> = (0..dice.roll(60))
            .map(|_| u8::try_from(dice.roll(256)).unwrap())
            .collect();
        judge(&String::from_utf8_lossy(&octets), "x");
    }
}

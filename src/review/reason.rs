//! The words for a denial, where a hook failed and its binding lets it explain itself.
//!
//! A hook marks what it wants its user to read: a line `FAIL: text` or `FAIL[phase]: text` on stderr, and `PHASE: name` when it
//! enters a phase. Runs on the thread that decides the review; owns what it heard of one run. What nobody marked is shown only
//! where the binding asks for the tail: it may hold anything.

use super::clean::clean;
use crate::hook::explain::{ErrorSource, Errors};

/// LIMIT: what is kept of marked lines: as much as a denial may be long.
const MARKED: usize = 16 * 1024;
/// LIMIT: a line that is longer than this is no mark; it is passed over without being kept.
const LONGEST_LINE: usize = 16 * 1024;
/// LIMIT: a phase is a word for people and a part of keys.
const LONGEST_PHASE: usize = 32;
/// Phases that are counted under their own names; whatever else a hook makes up counts as one, so that series stay few.
const PHASES: [&str; 7] = [
    "setup", "render", "syntax", "schema", "semantic", "tests", "policy",
];
const OTHER_PHASE: &str = "other";
/// What a cut text ends with.
const CUT: &str = "...";

/// What a user may read about a failure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Words {
    pub(crate) text: String,
    pub(crate) phase: Option<String>,
    /// The hook marked them; otherwise they are what it happened to print.
    pub(crate) is_meant: bool,
}

/// What a run marked so far.
#[derive(Default)]
pub(super) struct Marks {
    line: Vec<u8>,
    is_too_long: bool,
    text: String,
    phase: Option<String>,
}

impl Marks {
    /// Takes a piece of stderr.
    pub(super) fn hear(&mut self, piece: &[u8]) {
        for part in piece.split_inclusive(|byte| *byte == b'\n') {
            let (part, ends) = match part.strip_suffix(b"\n") {
                Some(part) => (part, true),
                None => (part, false),
            };
            if self.line.len() + part.len() <= LONGEST_LINE {
                self.line.extend_from_slice(part);
            } else {
                self.is_too_long = true;
            }
            if ends {
                self.end_of_line();
            }
        }
    }

    fn end_of_line(&mut self) {
        let line = std::mem::take(&mut self.line);
        if std::mem::take(&mut self.is_too_long) {
            return;
        }
        let line = String::from_utf8_lossy(&line);
        if let Some(phase) = line.strip_prefix("PHASE: ") {
            self.phase = phase_of(phase.trim()).or(self.phase.take());
        } else if let Some((phase, text)) = marked(&line) {
            self.phase = phase.or(self.phase.take());
            if self.text.len() + text.len() < MARKED {
                if !self.text.is_empty() {
                    self.text.push('\n');
                }
                self.text.push_str(text);
            }
        }
    }

    /// What may be shown. `tail` is the end of all that the hook printed to stderr.
    pub(super) fn words(mut self, errors: &Errors, tail: &str) -> Option<Words> {
        self.end_of_line();
        let phase = self.phase;
        let explain = |text: &str, is_meant: bool| {
            let text = tidy(text, errors, phase.as_deref(), !is_meant);
            (!text.is_empty()).then(|| Words {
                text,
                phase: phase.clone(),
                is_meant,
            })
        };
        let said = (errors.from >= ErrorSource::Marked)
            .then(|| explain(&self.text, true))
            .flatten();
        said.or_else(|| {
            let lines = tail
                .lines()
                .filter(|line| !line.starts_with("PHASE: "))
                .collect::<Vec<_>>()
                .join("\n");
            (errors.from == ErrorSource::Tail)
                .then(|| explain(&lines, false))
                .flatten()
        })
    }
}

/// The phase and the text of a marked line.
fn marked(line: &str) -> Option<(Option<String>, &str)> {
    let rest = line.strip_prefix("FAIL")?;
    if let Some(text) = rest.strip_prefix(": ") {
        return Some((None, text));
    }
    let (phase, text) = rest.strip_prefix('[')?.split_once("]: ")?;
    Some((phase_of(phase), text))
}

/// A word of small letters, digits and dashes.
pub(super) fn phase_of(text: &str) -> Option<String> {
    let plain =
        |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '-';
    let fits = !text.is_empty() && text.len() <= LONGEST_PHASE && text.chars().all(plain);
    fits.then(|| text.to_owned())
}

/// The label that a phase is counted under.
pub(super) fn counted(phase: &str) -> &str {
    PHASES
        .iter()
        .find(|known| **known == phase)
        .map_or(OTHER_PHASE, |known| known)
}

/// A message as the binding wants it shown: through the filters of its phase, and not longer than it says. `from_end` keeps the
/// end of it, where the reason for a failure usually stands.
pub(super) fn tidy(text: &str, errors: &Errors, phase: Option<&str>, from_end: bool) -> String {
    let filters = errors.filters.of(phase);
    let text = if filters.is_empty() {
        text.to_owned()
    } else {
        clean(text, filters)
    };
    match errors.max_length {
        Some(longest) if text.len() > longest => cut(&text, longest, from_end),
        _ => text,
    }
}

fn cut(text: &str, longest: usize, from_end: bool) -> String {
    let room = longest.saturating_sub(CUT.len());
    if from_end {
        let mut start = text.len().saturating_sub(room);
        while !text.is_char_boundary(start) {
            start += 1;
        }
        format!("{CUT}{}", text.get(start..).unwrap_or_default())
    } else {
        let mut end = room;
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        format!("{}{CUT}", text.get(..end).unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hook::explain::{Filters, TextFilter};

    fn errors(from: ErrorSource) -> Errors {
        Errors {
            from,
            filters: Filters::default(),
            max_length: Some(40),
        }
    }

    fn words(printed: &[&str], errors: &Errors) -> Option<Words> {
        let mut marks = Marks::default();
        for piece in printed {
            marks.hear(piece.as_bytes());
        }
        marks.words(errors, printed.concat().trim())
    }

    const TRACE: &str = "Traceback (most recent call last):\n  File \"hook.sh\", line 3, in render\nFAIL[render]: Service 'api' not found\nExiting with status 1\n";

    #[test]
    fn of_a_stack_trace_only_the_marked_sentence_is_shown_hx_42_hx_45() {
        let said = words(&[TRACE], &errors(ErrorSource::Marked)).unwrap();
        assert_eq!(said.text, "Service 'api' not found");
        assert_eq!(said.phase.as_deref(), Some("render"));
        assert!(said.is_meant);
    }

    #[test]
    fn nothing_is_shown_unless_the_binding_says_so_so_43() {
        assert_eq!(words(&[TRACE], &errors(ErrorSource::Response)), None);
        assert_eq!(words(&["password=1\n"], &errors(ErrorSource::Marked)), None);
    }

    #[test]
    fn a_mark_may_come_in_pieces_and_without_an_end() {
        let said = words(
            &["FA", "IL: one\nFAIL: t", "wo"],
            &errors(ErrorSource::Marked),
        )
        .unwrap();
        assert_eq!((said.text.as_str(), said.phase), ("one\ntwo", None));
    }

    #[test]
    fn the_tail_is_its_end_without_the_marks_of_phases() {
        let printed = "PHASE: syntax\nfirst line that is long enough to be cut\nthe last line\n";
        let said = words(&[printed], &errors(ErrorSource::Tail)).unwrap();
        assert_eq!(said.text, "...s long enough to be cut\nthe last line");
        assert_eq!(said.phase.as_deref(), Some("syntax"));
        assert!(!said.is_meant);
        // A marked line comes first.
        assert_eq!(
            words(&[TRACE], &errors(ErrorSource::Tail)).unwrap().text,
            "Service 'api' not found"
        );
    }

    #[test]
    fn the_filters_are_chosen_by_the_phase_hx_44() {
        let mut errors = errors(ErrorSource::Marked);
        let by_phase = [("syntax".to_owned(), vec![TextFilter::Paths])];
        errors.filters.by_phase = by_phase.into();
        let said = |line: &str| words(&[line], &errors).unwrap().text;
        assert_eq!(said("FAIL[syntax]: /a/b/c is bad"), "c is bad");
        assert_eq!(said("FAIL[render]: /a/b/c is bad"), "/a/b/c is bad");
    }

    #[test]
    fn what_is_no_mark_is_none_and_what_is_endless_is_not_kept() {
        for line in ["FAIL", "FAIL:", "FAILED: x", "FAIL[x] y", " FAIL: x"] {
            assert_eq!(words(&[line], &errors(ErrorSource::Marked)), None, "{line}");
        }
        let endless = "x".repeat(100_000);
        let mut marks = Marks::default();
        marks.hear(format!("FAIL: {endless}").as_bytes());
        marks.hear(endless.as_bytes());
        assert!(marks.line.len() <= LONGEST_LINE);
        assert_eq!(phase_of("Not A Phase"), None);
        assert_eq!((counted("render"), counted("made-up")), ("render", "other"));
    }

    #[test]
    fn a_text_is_cut_between_letters() {
        let errors = Errors {
            max_length: Some(6),
            ..Errors::default()
        };
        assert_eq!(tidy("ääää", &errors, None, false), "ä...");
        assert_eq!(tidy("ääää", &errors, None, true), "...ä");
        assert_eq!(tidy("ääää", &Errors::default(), None, false), "ääää");
    }
}

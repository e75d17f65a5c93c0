//! A text as a case expects it: word for word, or as a regular expression between slashes.
//!
//! Pure. There is one spelling for each: `/…/` is searched for anywhere in the text, everything else must be the whole text.

use std::fmt;
use std::sync::Arc;

use regex_bites::Regex;

/// An expected text.
#[derive(Clone)]
pub(super) enum Pattern {
    Exact(String),
    Search(String, Arc<Regex>),
}

impl fmt::Debug for Pattern {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Pattern({self})")
    }
}

/// As it is written in a suite.
impl fmt::Display for Pattern {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Pattern::Exact(text) => write!(out, "{text:?}"),
            Pattern::Search(text, _) => out.write_str(text),
        }
    }
}

impl Pattern {
    pub(super) fn parse(text: &str) -> Result<Pattern, String> {
        let inner = text
            .strip_prefix('/')
            .and_then(|rest| rest.strip_suffix('/'))
            .filter(|inner| !inner.is_empty());
        match inner {
            None => Ok(Pattern::Exact(text.to_owned())),
            Some(inner) => match Regex::new(inner) {
                Ok(regex) => Ok(Pattern::Search(text.to_owned(), Arc::new(regex))),
                Err(_) => Err(format!("{text} is no regular expression")),
            },
        }
    }

    pub(super) fn matches(&self, text: &str) -> bool {
        match self {
            Pattern::Exact(expected) => expected == text,
            Pattern::Search(_, regex) => regex.is_match(text),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slashes_make_a_regular_expression_and_nothing_else_does() {
        let matches = |pattern: &str, text: &str| Pattern::parse(pattern).unwrap().matches(text);
        assert!(matches("a.c", "a.c") && !matches("a.c", "abc"));
        assert!(matches("/a.c/", "xabcx") && !matches("/^a.c$/", "xabc"));
        assert!(matches("/", "/") && matches("//", "//") && matches("", ""));
        assert!(!matches("a", "a\n"));
        assert!(Pattern::parse("/(/").is_err());
    }
}

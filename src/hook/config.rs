//! What a hook printed for `--config`, from text to a checked `Config`.
//!
//! Runs on the main thread at start.
//!
//! ```text
//! text -> tree with lines -> version -> schema -> wire values (v0.rs, v1.rs) -> checks across fields -> Config
//! ```
//!
//! Everything that is wrong is collected and shown at once, with the original's words, the line and a hint. Errors are values;
//! nothing is logged here.

use std::fmt;

use super::binding::Config;
use super::schema::{self, Schema};
use super::{v0, v1};
use crate::yaml;
use crate::yaml::{Node, Step, Tree};

/// One thing that is wrong with a configuration, or unwise in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Violation {
    /// The words of the original.
    pub(crate) text: String,
    /// Counts from 1; 0 means that the place is not known.
    pub(crate) line: u64,
    /// What to write instead.
    pub(crate) hint: Option<String>,
}

impl Violation {
    pub(super) fn new(text: String, line: u64) -> Violation {
        Violation {
            text,
            line,
            hint: None,
        }
    }

    pub(super) fn hint_opt(mut self, hint: Option<String>) -> Violation {
        self.hint = hint;
        self
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.text)?;
        match (self.line, &self.hint) {
            (0, None) => Ok(()),
            (0, Some(hint)) => write!(out, " ({hint})"),
            (line, None) => write!(out, " (line {line})"),
            (line, Some(hint)) => write!(out, " (line {line}: {hint})"),
        }
    }
}

/// Why a configuration cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ConfigError {
    /// Neither YAML nor JSON, or not an object.
    Unreadable(Violation),
    /// `configVersion` is missing a usable value.
    Version(Violation),
    /// The schema or the checks across fields found something; at least one entry.
    Invalid(Vec<Violation>),
}

impl fmt::Display for ConfigError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable(violation) => write!(out, "config unmarshal: {violation}"),
            Self::Version(violation) => write!(out, "config version: {violation}"),
            // The one message of more than one line: log readers know the original's list.
            Self::Invalid(violations) => {
                match violations.len() {
                    1 => out.write_str("1 error occurred:\n")?,
                    count => writeln!(out, "{count} errors occurred:")?,
                }
                for violation in violations {
                    writeln!(out, "\t* {violation}")?;
                }
                out.write_str("\n")
            }
        }
    }
}

impl std::error::Error for ConfigError {}

/// A usable configuration and what its author should know about it.
#[derive(Debug)]
pub(crate) struct Parsed {
    pub(crate) config: Config,
    pub(crate) warnings: Vec<Violation>,
}

/// What the checks across fields found so far.
pub(super) struct Findings<'a> {
    root: &'a Node,
    errors: Vec<Violation>,
    warnings: Vec<Violation>,
}

impl Findings<'_> {
    pub(super) fn error(&mut self, path: &[Step<'_>], text: String) {
        self.error_with_hint(path, text, None);
    }

    pub(super) fn error_with_hint(
        &mut self,
        path: &[Step<'_>],
        text: String,
        hint: Option<String>,
    ) {
        let line = self.root.line_at(path);
        self.errors.push(Violation::new(text, line).hint_opt(hint));
    }

    pub(super) fn warn(&mut self, path: &[Step<'_>], text: String, hint: Option<String>) {
        let line = self.root.line_at(path);
        self.warnings
            .push(Violation::new(text, line).hint_opt(hint));
    }
}

/// Reads what a hook printed.
pub(crate) fn parse(output: &[u8]) -> Result<Parsed, ConfigError> {
    let text = std::str::from_utf8(output).map_err(|error| {
        ConfigError::Unreadable(Violation::new(
            format!("the output is not UTF-8 from byte {}", error.valid_up_to()),
            0,
        ))
    })?;
    let mut root = yaml::parse(text).map_err(|error| unreadable(text, &error))?;
    match root.tree {
        // A hook that printed nothing at all is told so by the schema.
        Tree::Null => root.tree = Tree::Object(Vec::new()),
        Tree::Object(_) => {}
        _ => {
            let text = format!("an object is expected, got {}", root.type_name());
            return Err(ConfigError::Unreadable(Violation::new(text, root.line)));
        }
    }
    let (schema, convert): (&Schema, Convert) = match version(&root)? {
        "v1" => (&schema::V1, v1::convert),
        _ => (&schema::V0, v0::convert),
    };
    let violations = schema::check(&root, schema);
    if !violations.is_empty() {
        return Err(ConfigError::Invalid(explain(&root, violations)));
    }
    let mut findings = Findings {
        root: &root,
        errors: Vec::new(),
        warnings: Vec::new(),
    };
    let config = convert(&root, &mut findings);
    match config {
        Some(mut config) if findings.errors.is_empty() => {
            config.expand_groups();
            Ok(Parsed {
                config,
                warnings: findings.warnings,
            })
        }
        _ => Err(ConfigError::Invalid(findings.errors)),
    }
}

/// Turns a tree that fits its schema into a configuration. None only together with an error among the findings.
type Convert = fn(&Node, &mut Findings<'_>) -> Option<Config>;

fn version(root: &Node) -> Result<&str, ConfigError> {
    let Some(entry) = root.entry("configVersion") else {
        return Ok("v0");
    };
    let problem = |text: String| Err(ConfigError::Version(Violation::new(text, entry.line)));
    match &entry.node.tree {
        Tree::String(version) if version == "v0" || version == "v1" => Ok(version),
        Tree::String(version) => {
            problem(format!("'configVersion' value '{version}' is unsupported"))
        }
        Tree::Null => problem("missing 'configVersion' value".to_owned()),
        _ => problem("string value is expected for key 'configVersion'".to_owned()),
    }
}

/// Adds the hint that only the whole document shows: v1 keys without a version, or no output at all.
fn explain(root: &Node, mut violations: Vec<Violation>) -> Vec<Violation> {
    let empty = matches!(&root.tree, Tree::Object(entries) if entries.is_empty());
    let versioned = root.entry("configVersion").is_some();
    for violation in &mut violations {
        if violation.hint.is_some() {
            continue;
        }
        if empty {
            violation.hint = Some("the hook printed no configuration".to_owned());
        } else if !versioned && violation.text.ends_with("is a forbidden property") {
            let hint = "without `configVersion: v1` the old v0 format is expected";
            violation.hint = Some(hint.to_owned());
        }
    }
    violations
}

fn unreadable(text: &str, error: &yaml::Error) -> ConfigError {
    let hint =
        bare_star(text, error.line).then(|| "`*` must be quoted in YAML: write \"*\"".to_owned());
    ConfigError::Unreadable(Violation::new(error.message.clone(), error.line).hint_opt(hint))
}

/// Whether the line of an error, or the one before it, has a star where YAML reads an alias: at the start of a value, unquoted.
fn bare_star(text: &str, line: u64) -> bool {
    let last = usize::try_from(line).unwrap_or_default();
    text.lines()
        .take(last)
        .skip(last.saturating_sub(2))
        .any(|line| {
            let mut before = ' ';
            for letter in line.chars() {
                match letter {
                    '"' | '\'' | '#' => return false,
                    '*' if matches!(before, '[' | ',' | ':' | '-' | ' ') => return true,
                    ' ' => {}
                    other => before = other,
                }
            }
            false
        })
}

#[cfg(test)]
#[path = "config_tests.rs"]
mod tests;

//! What can be wrong with a command line or an environment, in words that name the thing and the remedy.
//!
//! Pure. Every message is one line; the caller prints it to standard error and exits with 1.

use std::fmt;

/// Why no command could be made of the arguments and the environment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum UsageError {
    UnknownFlag {
        given: String,
        nearest: Option<String>,
    },
    /// The flag exists, but not for this command.
    ForeignFlag {
        flag: &'static str,
        command: &'static str,
    },
    MissingValue {
        flag: String,
        placeholder: &'static str,
    },
    BadFlag {
        flag: &'static str,
        value: String,
        expected: &'static str,
    },
    BadVariable {
        variable: &'static str,
        value: String,
        expected: &'static str,
    },
    UnknownCommand {
        given: String,
        nearest: Option<&'static str>,
    },
    /// A command did not like its words; the text is argh's.
    Words {
        command: &'static str,
        problem: String,
    },
}

/// LIMIT: of a wrong value at most this much is repeated, so that a file pasted into a variable does not fill the screen.
const SHOWN_VALUE_CHARS: usize = 80;

impl fmt::Display for UsageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            UsageError::UnknownFlag { given, nearest } => {
                write!(f, "unknown flag {}", shown(given))?;
                match nearest {
                    Some(nearest) => write!(f, ": did you mean --{nearest}?"),
                    None => write!(f, ": `shell-operator start --help` lists the flags"),
                }
            }
            UsageError::ForeignFlag { flag, command } => write!(
                f,
                "flag --{flag} does not belong to `{command}`: `shell-operator help {command}` lists those that do"
            ),
            UsageError::MissingValue { flag, placeholder } => {
                write!(
                    f,
                    "flag --{flag} needs a value: write --{flag}={placeholder}"
                )
            }
            UsageError::BadFlag {
                flag,
                value,
                expected,
            } => write!(f, "flag --{flag}={}: expected {expected}", shown(value)),
            UsageError::BadVariable {
                variable,
                value,
                expected,
            } => write!(
                f,
                "configuration error: environment variable {variable}={}: expected {expected}",
                shown(value)
            ),
            UsageError::UnknownCommand { given, nearest } => {
                write!(f, "unknown command {}", shown(given))?;
                match nearest {
                    Some(nearest) => write!(f, ": did you mean `shell-operator {nearest}`?"),
                    None => write!(f, ": `shell-operator help` lists the commands"),
                }
            }
            UsageError::Words { command, problem } => write!(
                f,
                "{problem}: see `shell-operator help {command}` for how it is called"
            ),
        }
    }
}

impl std::error::Error for UsageError {}

/// A value as it can be shown in one line: quoted, control characters escaped, not too long.
fn shown(value: &str) -> String {
    let mut short: String = value.chars().take(SHOWN_VALUE_CHARS).collect();
    if short.len() < value.len() {
        short.push('…');
    }
    format!("{short:?}")
}

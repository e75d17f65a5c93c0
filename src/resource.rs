//! `shell-operator resource`: how the API server knows a kind, for whoever writes rules and bindings. Runs on the main thread,
//! makes a few calls and ends.

use std::time::{Duration, Instant};

use crossbeam_channel::bounded;

use crate::kube::{self, Discovery, Error};
use crate::operator::parts;
use crate::settings::Settings;

/// How often a name that is not known yet is asked for again.
const PACE: Duration = Duration::from_millis(500);

/// What there is to say about each name. Names that are unknown or unreachable are waited for until `wait` is over, which
/// `note` is told once for each.
pub(crate) fn show(
    names: &[String],
    api_version: Option<&str>,
    wait: Duration,
    settings: &Settings,
    note: &dyn Fn(&str),
) -> Result<String, String> {
    let (events, _inbox) = bounded(1);
    let executor = parts::executor(settings, &events)?;
    let client = parts::connect(settings, &executor)?;
    let discovery = Discovery::new(client, PACE);
    let until = Instant::now() + wait;
    let mut pages = Vec::new();
    for name in names {
        let mut noted = false;
        let page = loop {
            match kube::describe(&discovery, name, api_version) {
                Ok(page) => break page,
                Err(error) if waits(&error) && Instant::now() + PACE < until => {
                    if !noted {
                        note(&format!("waiting: {error}"));
                        noted = true;
                    }
                    std::thread::sleep(PACE);
                }
                Err(error) => return Err(error.to_string()),
            }
        };
        pages.push(page);
    }
    Ok(pages.join("\n"))
}

/// True if the answer may be another one in a moment.
fn waits(error: &Error) -> bool {
    error.retryable() || matches!(error, Error::UnknownResource(_))
}

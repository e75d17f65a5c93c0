//! Entry: command line -> the one function that does it -> exit code. Nothing else exits.
#![doc = include_str!("ARCHITECTURE.md")]

mod cel;
mod dispatch;
mod duration;
mod executor;
mod flow;
mod hook;
mod inspect;
mod jq;
mod kube;
mod logger;
mod message;
mod metrics;
mod monitor;
mod offline;
mod operation;
mod operator;
mod pace;
mod queue;
mod resource;
mod review;
mod schedule;
mod serve;
mod settings;
mod threads;
mod yaml;

use std::io::{self, Write};
use std::process::ExitCode;
use std::time::Duration;

use settings::{Command, LogFormat, Settings};

/// A full stdout may not hold up the end of the process.
const LAST_WORDS: Duration = Duration::from_millis(500);
/// The log writer only moves bytes.
const LOG_STACK: usize = 128 * 1024;

fn main() -> ExitCode {
    match settings::parse_process() {
        Ok(Command::Start(settings)) => start(*settings),
        Ok(Command::Version) => say(&settings::version_text()),
        Ok(Command::Help(text)) => say(&text),
        Ok(Command::Resource {
            names,
            api_version,
            wait,
            settings,
        }) => match resource::show(&names, api_version.as_deref(), wait, &settings, &note) {
            Ok(text) => say(&text),
            Err(reason) => fail(&reason),
        },
        Ok(Command::Look(looking)) => match inspect::run(&looking) {
            Ok(()) => ExitCode::SUCCESS,
            Err(reason) => fail(&reason),
        },
        Ok(Command::Test(testing)) => match offline::test(&testing) {
            Ok(code) => ExitCode::from(code),
            Err(reason) => undecided(&reason),
        },
        Ok(Command::Review {
            reviewing,
            settings,
        }) => match offline::review(&reviewing, &settings) {
            Ok(ending) => ExitCode::from(ending.exit_code()),
            Err(reason) => undecided(&reason),
        },
        // Of these commands 1 says "denied".
        Err(error) if settings::decides(&settings::arguments()) => undecided(&error.to_string()),
        Err(error) => fail(&error.to_string()),
    }
}

fn start(settings: Settings) -> ExitCode {
    let options = logger::Options {
        format: match settings.log.format {
            LogFormat::Json => logger::Format::Json,
            LogFormat::Text => logger::Format::Text,
        },
        time: !settings.log.no_time,
        level: settings.log.level,
    };
    let started = logger::start(options, |body| {
        threads::spawn_short("log", LOG_STACK, body).map(drop)
    });
    if let Err(error) = started {
        return fail(&format!("start the logger: {error}"));
    }
    threads::log_panics();
    logger::plain_line(&format!("shell-operator {}", settings::version()));
    for warning in &settings.warnings {
        log::warn!("{warning}");
    }
    let end = operator::run(settings);
    logger::flush(LAST_WORDS);
    match end {
        operator::End::Asked => ExitCode::SUCCESS,
        operator::End::Again => fail(&operator::begin_anew()),
        operator::End::Failed(reason) => fail(&reason),
    }
}

/// Prints what was asked for. Nobody can be told if stdout is gone.
fn say(text: &str) -> ExitCode {
    let _ = io::stdout().write_all(text.as_bytes());
    ExitCode::SUCCESS
}

/// Tells a person who waits what for.
fn note(text: &str) {
    let _ = writeln!(io::stderr(), "{text}");
}

/// The same for a command that ends with 1 when something is denied.
fn undecided(reason: &str) -> ExitCode {
    let _ = fail(reason);
    ExitCode::from(offline::outcome::Ending::Failed.exit_code())
}

/// The one line that says why. Goes to stderr, where it is found also when the log is shipped elsewhere.
fn fail(reason: &str) -> ExitCode {
    let _ = writeln!(io::stderr(), "Error: {reason}");
    ExitCode::FAILURE
}

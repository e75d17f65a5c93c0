//! Evaluates the jq programs of hooks in processes of their own: our executable once more, with a hidden command.
//!
//! On the thread of the run that asks. Owns nothing but the executor's handle and the path of the executable as it was at the start.
//! A process that dies or does not end is the failure of one operation. What the process printed to stderr is not looked at: it
//! may quote an object.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::executor::{Capture, CaptureError, Captured, Executor, Exit};
use crate::jq::child;
use crate::operation::{Evaluate, Unevaluated};

/// LIMIT: three times what the process gives itself of a processor, which it may have to share.
const TIME: Duration = Duration::from_secs(3 * child::SECONDS);

/// LIMIT: bytes of a result. The API server takes 3 MiB, and a multiple of that as JSON with escapes.
const OUTPUT: usize = 16 * 1024 * 1024;

pub(super) struct Apart {
    executor: Executor,
    program: PathBuf,
}

/// The path is found once: later the file may be another, or gone.
pub(super) fn evaluator(executor: &Executor) -> Result<Arc<dyn Evaluate>, String> {
    let program = std::env::current_exe()
        .map_err(|error| format!("find the executable of this process: {error}"))?;
    Ok(Arc::new(Apart {
        executor: executor.clone(),
        program,
    }))
}

impl Apart {
    fn ask(
        &self,
        job: &str,
        request: &[u8],
        until: Option<Instant>,
    ) -> Result<Captured, Unevaluated> {
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        if left.is_some_and(|left| left.is_zero()) {
            return Err(Unevaluated::Late);
        }
        let captured = self.executor.capture(&Capture {
            program: &self.program,
            args: &["apply-jq", job],
            // Nobody reads what it says when it dies, and finding its words takes seconds.
            env: &[("RUST_BACKTRACE".to_owned(), "0".to_owned())],
            cwd: None,
            input: Some(request),
            limit: left.map_or(TIME, |left| left.min(TIME)),
            max_output: OUTPUT,
        });
        captured.map_err(|error| match error {
            CaptureError::Stopped => Unevaluated::Stopped,
            CaptureError::TimedOut { .. } if left.is_some_and(|left| left < TIME) => {
                Unevaluated::Late
            }
            CaptureError::TimedOut { .. } => excess(),
            CaptureError::TooMuchOutput { limit } => {
                Unevaluated::Excess(format!("{} MiB for its result", limit / 1024 / 1024))
            }
            other => Unevaluated::Broken(other.to_string()),
        })
    }
}

impl Evaluate for Apart {
    fn check(&self, programs: &[&str], until: Option<Instant>) -> Result<(), (usize, Unevaluated)> {
        let request = child::check_request(programs);
        let captured = self
            .ask("check", &request, until)
            .map_err(|reason| (0, reason))?;
        let answers = &captured.stdout;
        if let Some(bad) = answers.iter().position(|answer| *answer != child::GOOD) {
            return Err((bad, Unevaluated::NoProgram));
        }
        if answers.len() == programs.len() {
            return Ok(());
        }
        // It died of the first program that it gave no answer for.
        Err((answers.len(), ending(&captured.exit)))
    }

    fn apply(
        &self,
        program: &str,
        object: &[u8],
        until: Option<Instant>,
    ) -> Result<Vec<u8>, Unevaluated> {
        let request = child::apply_request(program, object);
        let captured = self.ask("apply", &request, until)?;
        if captured.exit.is_success() {
            return Ok(captured.stdout);
        }
        Err(ending(&captured.exit))
    }
}

fn ending(exit: &Exit) -> Unevaluated {
    match exit {
        Exit::Code(_) => Unevaluated::Failed,
        Exit::Signal(_) => excess(),
    }
}

fn excess() -> Unevaluated {
    Unevaluated::Excess(format!(
        "{} MiB, {} s or the stack",
        child::MEMORY_MIB,
        child::SECONDS
    ))
}

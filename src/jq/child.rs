//! Programs that hooks write while they run, in a process of their own: nothing that one of them does can harm the operator.
//!
//! The operator starts its own executable with a hidden command; `serve` is what that process does, on its main thread. It gives
//! itself limits of memory and time, reads what it is asked on stdin, answers on stdout and ends. What a program makes of
//! an object goes nowhere else, and no words of it are printed.
//!
//! ```text
//! check: programs          ->  one byte for each, as soon as it is known: whether it can be compiled
//! apply: program, object   ->  the result, and exit code 0
//! ```

use std::io::{self, Read, Write};

use rustix::process::{Resource, Rlimit, setrlimit};

use super::{Filter, Input};

/// LIMIT: address space of the process. An object has 3 MiB at most, and the program itself needs about 20.
pub(crate) const MEMORY_MIB: u64 = 256;

/// LIMIT: time of a processor. Programs that people write take milliseconds.
pub(crate) const SECONDS: u64 = 10;

/// The answers to `check`.
pub(crate) const GOOD: u8 = b'+';
const BAD: u8 = b'-';

/// What the process is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Job {
    Check,
    Apply,
}

/// What `check` reads.
pub(crate) fn check_request(programs: &[&str]) -> Vec<u8> {
    serde_json::to_vec(programs).unwrap_or_default()
}

/// What `apply` reads. JSON on one line has no line break, so the object begins after the first.
pub(crate) fn apply_request(program: &str, object: &[u8]) -> Vec<u8> {
    let mut request = serde_json::to_vec(program).unwrap_or_default();
    request.push(b'\n');
    request.extend_from_slice(object);
    request
}

/// Does the job. False: the program failed, which is all that is told.
pub(crate) fn serve(job: Job, input: &mut dyn Read, output: &mut dyn Write) -> io::Result<bool> {
    limit(Resource::Core, 0)?;
    limit(Resource::As, MEMORY_MIB * 1024 * 1024)?;
    limit(Resource::Cpu, SECONDS)?;
    let mut request = Vec::new();
    input.read_to_end(&mut request)?;
    match job {
        Job::Check => {
            let programs: Vec<String> = serde_json::from_slice(&request)?;
            for program in programs {
                let is_good = Filter::compile_apart(&program).is_ok();
                output.write_all(&[if is_good { GOOD } else { BAD }])?;
                output.flush()?;
            }
            Ok(true)
        }
        Job::Apply => {
            let mut parts = request.splitn(2, |byte| *byte == b'\n');
            let program: String = serde_json::from_slice(parts.next().unwrap_or_default())?;
            let object = parts.next().unwrap_or_default();
            let result = Filter::compile_apart(&program)
                .and_then(|filter| filter.apply_to(&Input::read(object)?));
            let Ok(result) = result else {
                return Ok(false);
            };
            serde_json::to_writer(io::BufWriter::new(&mut *output), &result)?;
            output.flush()?;
            Ok(true)
        }
    }
}

fn limit(resource: Resource, most: u64) -> io::Result<()> {
    let limit = Rlimit {
        current: Some(most),
        maximum: Some(most),
    };
    Ok(setrlimit(resource, limit)?)
}

//! Both output streams of one run, from bytes to log records with the labels of the run. Runs on the thread that follows the
//! process; owns what of the last line has not ended yet.

use serde_json::{Map, Value};

use super::output::{HookOutput, Line};

/// The log of one run.
pub(crate) struct HookLog {
    stdout: HookOutput,
    stderr: HookOutput,
    labels: Map<String, Value>,
}

impl HookLog {
    pub(crate) fn new(proxy_json: bool, labels: &[(&str, &str)]) -> HookLog {
        HookLog {
            stdout: HookOutput::new("stdout", proxy_json),
            stderr: HookOutput::new("stderr", proxy_json),
            labels: labels
                .iter()
                .map(|(name, value)| ((*name).to_owned(), Value::from(*value)))
                .collect(),
        }
    }

    pub(crate) fn stdout(&mut self, text: &[u8]) {
        feed(&mut self.stdout, &self.labels, text);
    }

    pub(crate) fn stderr(&mut self, text: &[u8]) {
        feed(&mut self.stderr, &self.labels, text);
    }

    /// The process has ended: what is left is a line, too.
    pub(crate) fn finish(mut self) {
        for output in [&mut self.stdout, &mut self.stderr] {
            let stream = output.stream();
            output.finish(&mut |line: Line| line.write(stream, &self.labels));
        }
    }
}

fn feed(output: &mut HookOutput, labels: &Map<String, Value>, text: &[u8]) {
    let stream = output.stream();
    output.feed(text, &mut |line: Line| line.write(stream, labels));
}

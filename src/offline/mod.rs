//! `review`: what the cluster would say about manifests, decided here with the same hooks and without a cluster.
//!
//! Runs on the main thread, with worker threads for the reviews themselves. It opens no socket and writes nothing but its report.
#![expect(dead_code, reason = "the commands are wired in the next steps")]

pub(crate) mod outcome;

//! `review`: what the cluster would say about manifests, decided here with the same hooks and without a cluster.
//!
//! Runs on the main thread, with worker threads for the reviews themselves. It opens no socket and writes nothing but its report.

pub(crate) mod outcome;
pub(crate) mod report;
mod suite;

pub(crate) use suite::run as test;

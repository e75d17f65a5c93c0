//! Index of the tests that see the program from outside: one target, so that the harness is compiled once.
//!
//! Layer 2 (black box): the built binary against a scripted API server that misbehaves on cue.
//! Layer 3 (module `cluster`): the same binary against a real etcd and kube-apiserver, with kubectl as the client.
//! Layer 1, the unit tests, is inline in `src`. `scripts/test` runs all three.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::string_slice,
    clippy::print_stderr,
    clippy::disallowed_methods,
    reason = "a test ends by panicking, starts processes and makes threads; the rules are for what we ship"
)]

/// What needs a real API server.
mod cluster;
/// The harness tried on itself: a broken test language proves nothing.
mod harness;
/// The shell framework and every hook in `hooks/`, run the way the operator runs them.
mod hooks;
/// The debug socket and the commands that look through it.
mod inside;
/// The log as pipelines read it.
mod logging;
/// The metrics port: what hooks record, and every route.
mod metrics;
/// `review`: manifests, hooks and no cluster.
mod offline;
/// Start, stop, probes and the mistakes people make.
mod process;
/// Start order, schedules, joined contexts, retries, stopping while hooks run.
mod queues;
/// HUP: hooks that changed on disk.
mod reload;
/// Reads the repository: imports, capabilities, headers, sizes, documents.
mod repository;
/// Suites beside hooks, `shell-operator test`, and reports for machines.
mod suite;
/// The test language: `Env`, `Operator`, `Scripted`, `ControlPlane`.
mod support;

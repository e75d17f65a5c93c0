//! Entry: command line -> the one function that does it -> exit code. Nothing else exits.
#![allow(dead_code, unused_imports, reason = "rooms are being wired")]

mod executor;
mod kube;
mod logger;
mod message;
mod metrics;
mod pace;
mod serve;
mod settings;
mod threads;
mod yaml;

fn main() {}

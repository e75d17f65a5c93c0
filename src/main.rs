//! Entry: command line -> the one function that does it -> exit code. Nothing else exits.
#![allow(dead_code, unused_imports, reason = "rooms are being wired")]

mod logger;
mod message;
mod settings;
mod threads;

fn main() {}

//! Entry: command line -> the one function that does it -> exit code. Nothing else exits.
#![allow(dead_code, reason = "rooms are being wired")]

mod hook;
mod jq;
mod message;
mod threads;
mod yaml;

fn main() {}

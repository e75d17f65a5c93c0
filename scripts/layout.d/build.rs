//! Hands the linker the order of functions for release builds, and does nothing else.
//!
//! Linux maps a program's code in windows of 64 KiB around every page that is used. An idle operator uses a third of the code,
//! but spread evenly, so that without an order all of it would be in memory. Why it is done this way, and how the list is made
//! anew: src/ARCHITECTURE.md, "Footprint". A list that is out of date costs memory and nothing else.

#![expect(
    clippy::disallowed_methods,
    reason = "cargo speaks to a build script through the environment"
)]

use std::env;

fn main() {
    let list = "scripts/layout.d/idle.ld";
    println!("cargo::rerun-if-changed={list}");
    println!("cargo::rerun-if-env-changed=SHELL_OPERATOR_LAYOUT");
    let is = |name: &str, value: &str| env::var(name).is_ok_and(|found| found == value);
    // Test and debug builds are not measured, and matching the names takes the linker seconds.
    let wanted = is("PROFILE", "release") && !is("SHELL_OPERATOR_LAYOUT", "none");
    if wanted && is("CARGO_CFG_TARGET_OS", "linux") {
        let root = env::var("CARGO_MANIFEST_DIR").unwrap_or_default();
        println!("cargo::rustc-link-arg-bins=-Wl,-T,{root}/{list}");
    }
}

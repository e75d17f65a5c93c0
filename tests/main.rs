//! Index of the black-box tests.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::string_slice,
    clippy::disallowed_methods,
    reason = "a test ends by panicking and starts processes; the rules are for what we ship"
)]

/// The shell framework and every hook in `hooks/`, run the way the operator runs them.
mod hooks;

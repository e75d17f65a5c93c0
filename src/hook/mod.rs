//! Hooks.
mod admission;
pub(crate) mod binding;
pub(crate) mod config;
pub(crate) mod crontab;
pub(crate) mod duration;
mod name;
mod schema;
pub(crate) mod selector;
mod tree;
mod v0;
mod v1;

//! Everything that talks to the API server.
//!
//! ```text
//! flags, env -> config (kubeconfig | in-cluster) -> client -> discovery -> resource
//!                        |                            |
//!                        credential (token, exec)     connect (agents, TLS, rotation), pace (QPS and burst)
//!
//! operations -> patcher -> patch (one of them: calls, conflicts, what counts as success)
//! selection -> watch (list, events, object; backoff, outage, ground) -> sink
//! ```
//!
//! Calls block the thread that makes them and have a deadline. This room knows nothing of hooks, starts no thread and no
//! process (an `exec` plugin is run through a function given by the caller), and only `connect` opens sockets.

#![allow(unused_imports, reason = "rooms are being wired")]

mod agents;
mod answer;
mod backoff;
mod client;
mod config;
mod connect;
mod credential;
mod discovery;
mod error;
mod events;
#[cfg(test)]
mod faults;
mod ground;
#[cfg(test)]
mod handshakes;
mod kubeconfig;
mod list;
mod login;
mod object;
mod outage;
mod patch;
mod patcher;
#[cfg(test)]
mod patching;
mod renewed;
mod resource;
mod scan;
#[cfg(test)]
pub(crate) mod scripted;
mod tls;
mod watch;
#[cfg(test)]
mod watching;

pub(crate) use answer::{Answer, Stream};
pub(crate) use backoff::{Rest, Tempo};
pub(crate) use client::{ANSWER_LIMIT, Client, DEADLINE, Limits, Method, Observation, Request};
pub(crate) use config::{ClusterConfig, Wanted};
pub(crate) use credential::{ExecCommand, ExecRunner};
pub(crate) use discovery::{Discovery, describe};
pub(crate) use error::{Call, Error, Fault, Unknown};
pub(crate) use ground::Ground;
pub(crate) use object::Object;
pub(crate) use patcher::Patcher;
pub(crate) use resource::{Resource, ResourceMap};
pub(crate) use watch::{Difference, Selection, Sink, Watcher};

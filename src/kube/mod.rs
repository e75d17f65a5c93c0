//! Everything that talks to the API server.
//!
//! ```text
//! flags, env -> config (kubeconfig | in-cluster) -> client -> discovery -> resource
//!                        |                            |
//!                        credential (token, exec)     connect (agents, TLS, rotation), pace (QPS and burst)
//! ```
//!
//! Calls block the thread that makes them and have a deadline. This room knows nothing of hooks, starts no thread and no
//! process (an `exec` plugin is run through a function given by the caller), and only `connect` opens sockets.

#![allow(unused_imports, reason = "rooms are being wired")]

mod agents;
mod answer;
mod client;
mod config;
mod connect;
mod credential;
mod discovery;
mod error;
#[cfg(test)]
mod faults;
#[cfg(test)]
mod handshakes;
mod kubeconfig;
mod login;
mod renewed;
mod resource;
#[cfg(test)]
mod scripted;
mod tls;

pub(crate) use answer::{Answer, Stream};
pub(crate) use client::{ANSWER_LIMIT, Client, DEADLINE, Limits, Method, Observation, Request};
pub(crate) use config::{ClusterConfig, Wanted};
pub(crate) use credential::{ExecCommand, ExecRunner};
pub(crate) use discovery::{Discovery, describe};
pub(crate) use error::{Call, Error, Fault, Unknown};
pub(crate) use resource::{Resource, ResourceMap};

//! Layer 3: the built binary against a real etcd and kube-apiserver, with kubectl as the client.
//!
//! What a user relies on is proven here. All tests share one control plane, each in its own namespace; the name of this module is
//! what `scripts/test quick` leaves out.

/// Every way to log in, and every way to be turned away.
mod access;
/// Connections that are kept open.
mod ageing;
/// What a user sees of what a hook answered.
mod answers;
/// Callers that mean harm.
mod attack;
/// Who may ask the operator.
mod callers;
/// Match conditions, ours and theirs.
mod cel;
/// The serving certificate, and its changes.
mod certificates;
/// Objects of a custom resource in every version, through hooks.
mod conversion;
/// The README's first command.
mod demo;
/// Hooks as people have them already.
mod dropin;
/// The cases of Kubernetes itself.
mod e2e;
/// Hooks that do not end.
mod hanging;
/// The HAProxy example.
mod haproxy;
/// Requests that come all the time.
mod load;
/// What hooks and the operator itself record.
mod metrics;
/// `review` and the API server, asked the same.
mod offline;
/// Changes that hooks ask for.
mod operations;
/// An API server that is away.
mod outage;
/// Snapshots as they would be.
mod overlay;
/// Many reviews at once, and the end.
mod parallel;
/// The harness's own part that needs a control plane.
mod plane;
/// The webhook port as callers see it.
mod protocol;
/// What a user reads of a failure.
mod reasons;
/// What the operator registers, and keeps registered.
mod registration;
/// HUP with webhooks.
mod reload;
/// What must not leak or be believed.
mod secrecy;
/// An API server that comes and goes.
mod start;
/// Reviews that come from what hooks watch.
mod validation;
/// Hooks that watch the cluster.
mod watching;

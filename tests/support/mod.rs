//! The test language. A test reads as a story: `Env::new().hook("a.sh", …).kubeconfig(…).start()`, then waits for what it expects.
//!
//! Nothing here uses our own code: the program is known only by the path of its binary, by what it prints and by what it answers.
//! Nothing sleeps where a condition can be waited for, and everything started here is ended also when a test panics or when the
//! run is interrupted (`watchdog`).

mod api;
mod certificate;
pub(crate) mod control_plane;
pub(crate) mod discovery;
pub(crate) mod env;
pub(crate) mod http;
mod kubeconfig;
mod loopback;
mod operator;
mod prometheus;
mod reply;
mod scripted;
pub(crate) mod stage;
mod temp;
mod terminal;
pub(crate) mod watchdog;

pub(crate) use api::Api;
pub(crate) use certificate::{Authority, Identity, Validity};
pub(crate) use control_plane::{ControlPlane, Namespace};
pub(crate) use discovery::Discovery;
pub(crate) use env::{Env, Output};
pub(crate) use http::{Answer, Connection};
pub(crate) use kubeconfig::Kubeconfig;
pub(crate) use loopback::Loopback;
pub(crate) use operator::{Line, Operator};
pub(crate) use prometheus::Page;
pub(crate) use reply::{Reply, Stream};
pub(crate) use scripted::{HttpRequest, Scripted};
pub(crate) use stage::Stage;
pub(crate) use temp::TempDir;
pub(crate) use terminal::{Screen, Terminal};

use std::path::Path;
use std::time::{Duration, Instant};

/// How long a condition that should hold "soon" may take on a machine that does ten other things at once.
pub(crate) const SOON: Duration = Duration::from_secs(20);

/// How often a condition is looked at.
const POLL: Duration = Duration::from_millis(20);

/// What `wait_for` asks for: `Some(value)`, or `true`.
pub(crate) trait Found {
    type Value;
    fn found(self) -> Option<Self::Value>;
}

impl<T> Found for Option<T> {
    type Value = T;
    fn found(self) -> Option<T> {
        self
    }
}

impl Found for bool {
    type Value = ();
    fn found(self) -> Option<()> {
        self.then_some(())
    }
}

/// Looks until the condition holds. `what` completes the sentence "waited for …".
#[track_caller]
pub(crate) fn wait_for<F: Found>(
    what: &str,
    limit: Duration,
    mut look: impl FnMut() -> F,
) -> F::Value {
    let begun = Instant::now();
    loop {
        if let Some(value) = look().found() {
            return value;
        }
        assert!(
            begun.elapsed() < limit,
            "waited for {what} in vain, for {:.1} s",
            begun.elapsed().as_secs_f64()
        );
        std::thread::sleep(POLL);
    }
}

/// The top folder of the repository.
pub(crate) fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

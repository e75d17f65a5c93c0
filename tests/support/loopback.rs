//! A loopback address of one's own, so that tests which run side by side never want the same port.
//!
//! All of 127.0.0.0/8 is this machine. An `Env` takes one address out of it and has all 65 535 ports there, also the program's
//! default ones. That nobody else uses the address, not even another run of the tests, is proven by a listener that is held
//! on one agreed port of it.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::sync::atomic::{AtomicU16, Ordering};

/// Held open on a taken address. Any port does that nothing under test listens on and that an ordinary user may take.
const CLAIM_PORT: u16 = 20_007;
/// Where free ports are handed out from; above the privileged ones and below the range of outgoing connections.
const FIRST_PORT: u16 = 10_000;

#[derive(Debug)]
pub(crate) struct Loopback {
    address: Ipv4Addr,
    next_port: AtomicU16,
    _claim: TcpListener,
}

impl Loopback {
    pub(crate) fn new() -> Loopback {
        for attempt in 0..100 {
            let address = random_address(attempt);
            if let Ok(claim) = TcpListener::bind((address, CLAIM_PORT)) {
                return Loopback {
                    address,
                    next_port: AtomicU16::new(FIRST_PORT),
                    _claim: claim,
                };
            }
        }
        panic!("no address in 127.0.0.0/8 can be listened on; the tests need Linux");
    }

    pub(crate) fn address(&self) -> IpAddr {
        IpAddr::V4(self.address)
    }

    /// A port that was never handed out on this address.
    pub(crate) fn free(&self) -> SocketAddr {
        let port = self.next_port.fetch_add(1, Ordering::Relaxed);
        SocketAddr::new(self.address(), port)
    }
}

/// 127.0 is used by everybody and 127.100 holds the ClusterIPs of the control plane, so the second byte is 1 to 99.
fn random_address(attempt: u64) -> Ipv4Addr {
    // The standard library's only source of randomness: the keys of its hash maps.
    let mut hasher = RandomState::new().build_hasher();
    hasher.write_u64(attempt);
    let bytes = hasher.finish().to_le_bytes();
    Ipv4Addr::new(127, bytes[0] % 99 + 1, bytes[1], bytes[2] % 254 + 1)
}

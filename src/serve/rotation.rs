//! The order in which a changed certificate goes into use, as a state machine without I/O. Owned by the webhook thread.
//!
//! ```text
//! new CA offered -> registered beside the old one -> new certificate served -> old CA taken out
//! ```
//!
//! The other order would refuse calls: an API server that does not know the new CA yet cannot call a server that shows it.

use super::source::Offer;
use super::tls::Pem;

/// What is served, what will be, and what was until a moment ago.
#[derive(Debug, Default)]
pub(crate) struct Rotation {
    served: Option<Offer>,
    announced: Option<Announced>,
    /// CAs of what was served before, registered for one more round.
    retired: Option<Pem>,
}

#[derive(Debug)]
struct Announced {
    offer: Offer,
    registered: bool,
}

/// What to do with an offer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// It is served already.
    Keep,
    /// Register its CA beside the one in use; serve it in a later round.
    Announce,
    /// Serve it now.
    Serve,
}

impl Rotation {
    /// What has to happen for `offer` to be served. Changes nothing.
    pub(crate) fn step(&self, offer: &Offer) -> Step {
        let Some(served) = &self.served else {
            return Step::Serve;
        };
        if served == offer {
            return Step::Keep;
        }
        // With the same CA, or with the same certificate, no caller can see a pair that does not fit.
        if served.bundle.bytes == offer.bundle.bytes || served.material == offer.material {
            return Step::Serve;
        }
        match &self.announced {
            Some(announced) if announced.offer == *offer && announced.registered => Step::Serve,
            _ => Step::Announce,
        }
    }

    /// What is served is what is offered: anything announced was withdrawn, and its CA is registered no longer.
    pub(crate) fn keep(&mut self) {
        self.announced = None;
    }

    /// `offer` waits until its CA is registered.
    pub(crate) fn announce(&mut self, offer: Offer) {
        let known = self
            .announced
            .as_ref()
            .is_some_and(|announced| announced.offer == offer);
        if !known {
            self.announced = Some(Announced {
                offer,
                registered: false,
            });
        }
    }

    /// `offer` is served from now on.
    pub(crate) fn serve(&mut self, offer: Offer) {
        let before = self.served.replace(offer);
        self.retired = before.map(|offer| offer.bundle);
        self.announced = None;
    }

    /// The CAs that callers must be told of, each once.
    pub(crate) fn bundle(&self) -> String {
        let served = self.served.as_ref().map(|offer| &offer.bundle);
        let announced = self
            .announced
            .as_ref()
            .map(|announced| &announced.offer.bundle);
        let mut bundle = String::new();
        for pem in [served, announced, self.retired.as_ref()]
            .into_iter()
            .flatten()
        {
            let text = String::from_utf8_lossy(&pem.bytes);
            if !bundle.contains(text.trim()) {
                bundle.push_str(text.trim());
                bundle.push('\n');
            }
        }
        bundle
    }

    /// The bundle was registered as it is. True if it should be registered again soon.
    pub(crate) fn registered(&mut self) -> bool {
        let changing = self.announced.is_some() || self.retired.is_some();
        self.retired = None;
        if let Some(announced) = &mut self.announced {
            announced.registered = true;
        }
        changing
    }
}

#[cfg(test)]
mod tests {
    use super::super::tls::Material;
    use super::*;

    fn pem(text: &str) -> Pem {
        Pem {
            from: "test".to_owned(),
            bytes: text.as_bytes().to_vec(),
        }
    }

    fn offer(certificate: &str, ca: &str) -> Offer {
        Offer {
            material: Material {
                certificate: pem(certificate),
                key: pem("key"),
                client_authorities: Vec::new(),
            },
            bundle: pem(ca),
        }
    }

    #[test]
    fn a_new_ca_is_registered_before_it_is_served_and_the_old_one_leaves_last() {
        let mut rotation = Rotation::default();
        let (old, new) = (offer("c1", "ca1"), offer("c2", "ca2"));
        assert_eq!(rotation.step(&old), Step::Serve);
        rotation.serve(old.clone());
        assert!(!rotation.registered());
        assert_eq!(rotation.step(&old), Step::Keep);

        assert_eq!(rotation.step(&new), Step::Announce);
        rotation.announce(new.clone());
        assert_eq!(rotation.bundle(), "ca1\nca2\n");
        assert_eq!(rotation.step(&new), Step::Announce, "not registered yet");
        assert!(rotation.registered());

        assert_eq!(rotation.step(&new), Step::Serve);
        rotation.serve(new);
        assert_eq!(rotation.bundle(), "ca2\nca1\n");
        assert!(rotation.registered());
        assert_eq!(rotation.bundle(), "ca2\n");
    }

    #[test]
    fn a_withdrawn_ca_is_registered_no_longer() {
        let mut rotation = Rotation::default();
        rotation.serve(offer("c1", "ca1"));
        rotation.announce(offer("c2", "ca2"));
        assert!(rotation.registered());
        assert_eq!(rotation.step(&offer("c1", "ca1")), Step::Keep);
        rotation.keep();
        assert_eq!(rotation.bundle(), "ca1\n");
        assert!(!rotation.registered());
    }

    #[test]
    fn a_new_certificate_of_the_same_ca_is_served_at_once() {
        let mut rotation = Rotation::default();
        rotation.serve(offer("c1", "ca1"));
        assert_eq!(rotation.step(&offer("c2", "ca1")), Step::Serve);
        assert_eq!(rotation.step(&offer("c1", "ca1 ca2")), Step::Serve);
    }
}

//! Which of the two webhook servers something is for: what they are called in flags, in the log, in metrics and in readiness.
//!
//! Pure, read by the main thread and by the webhook threads. It owns nothing but names and decides nothing.

use super::probe::Readiness;

/// Which of the two servers. The texts are parts that readiness lists, flags, names of threads and labels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    Admission,
    Conversion,
}

impl Purpose {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Purpose::Admission => "admission",
            Purpose::Conversion => "conversion",
        }
    }

    pub(crate) fn thread(self) -> &'static str {
        match self {
            Purpose::Admission => "webhook",
            Purpose::Conversion => "conversion-webhook",
        }
    }

    /// How the names of its flags begin.
    pub(crate) fn flags(self) -> &'static str {
        match self {
            Purpose::Admission => "--validating-webhook",
            Purpose::Conversion => "--conversion-webhook",
        }
    }

    pub(crate) fn port_flag(self) -> &'static str {
        match self {
            Purpose::Admission => "--validating-webhook-listen-port",
            Purpose::Conversion => "--conversion-webhook-listen-port",
        }
    }

    pub(super) fn certificate(self) -> &'static str {
        match self {
            Purpose::Admission => "certificate",
            Purpose::Conversion => "conversion-certificate",
        }
    }

    pub(super) fn registration(self) -> &'static str {
        match self {
            Purpose::Admission => "registration",
            Purpose::Conversion => "conversion-registration",
        }
    }

    /// Says what will be missing until the thread has done its work. To be called before the last other part is there, or the
    /// operator would be ready for a moment without serving anything.
    pub(crate) fn expect(self, readiness: &Readiness) {
        readiness.lacks(self.certificate(), "not there yet");
        readiness.lacks(self.registration(), "not done yet");
    }
}

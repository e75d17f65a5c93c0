//! What a review is and how a hook decides it, whoever asks: the webhook server of a cluster or the offline `review`.
//!
//! `question` is the AdmissionReview on the wire, `decide` one review by one hook, `runner` one run of a hook for somebody who waits,
//! `turns` how many do at one time. Runs on the caller's thread; owns the rate limits of hooks and the turns. Never listens, never
//! dials and never queues.

mod afterwards;
mod clean;
mod decide;
mod proposal;
mod question;
mod reason;
mod runner;
mod sight;
mod turns;

pub(crate) use self::afterwards::Afterwards;
pub(crate) use self::decide::{FAILED, Review, Webhook, failed};
pub(crate) use self::question::{
    Answer, BadReview, Envelope, Form, Question, ReviewId, asked_timeout, time_limit,
};
pub(crate) use self::runner::{
    Asked, PANICKED, Paces, Runner, Target, Undecided, failure, seconds,
};
pub(crate) use self::sight::{ReadOverlaid, ReadSnapshot};
pub(crate) use self::turns::Turns;

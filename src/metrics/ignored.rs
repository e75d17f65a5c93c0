//! Why something that a hook wants to record is left out, in words for the log.
//!
//! Pure. Made by `page`, under its lock, and logged by `hook::metric` after it. Names the metric and the remedy, and never a label's
//! value.

use std::fmt;

use super::page::{Kind, MOST_BYTES, MOST_LABEL_NAMES, MOST_SERIES};

/// Why something was not recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Ignored {
    /// A second type would make the whole page unreadable for Prometheus.
    OtherKind {
        name: String,
        known: Kind,
        wanted: Kind,
    },
    /// A histogram and another metric that would write the same line.
    NameTaken {
        name: String,
        by: String,
    },
    TooManySeries {
        name: String,
    },
    TooManyLabelNames {
        name: String,
    },
    /// The page would become longer than anybody should have to read.
    PageFull {
        name: String,
    },
    /// A histogram's buckets have the label `le`, and a second one makes the whole page unreadable.
    ReservedLabel {
        name: String,
    },
    /// Nothing was left of the name.
    NoName,
}

impl fmt::Display for Ignored {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Ignored::OtherKind {
                name,
                known,
                wanted,
            } => write!(
                out,
                "metric '{name}' is a {known} and cannot be a {wanted} as well; give one of them another name"
            ),
            Ignored::NameTaken { name, by } => write!(
                out,
                "metric '{name}' would write the same lines as '{by}'; give one of them another name"
            ),
            Ignored::TooManySeries { name } => write!(
                out,
                "metric '{name}': there are {MOST_SERIES} series of hooks already; use fewer label values, or groups that expire"
            ),
            Ignored::TooManyLabelNames { name } => write!(
                out,
                "metric '{name}': there are {MOST_LABEL_NAMES} label names already; put what differs into values"
            ),
            Ignored::PageFull { name } => write!(
                out,
                "metric '{name}': the page of all hooks would be longer than {MOST_BYTES} bytes; use fewer or shorter labels, or groups that expire"
            ),
            Ignored::ReservedLabel { name } => write!(
                out,
                "metric '{name}': label 'le' is that of a histogram's buckets; give it another name"
            ),
            Ignored::NoName => out.write_str(
                "metric '{PREFIX}': nothing is left of the name, since --prometheus-metrics-prefix is empty; write more behind {PREFIX}",
            ),
        }
    }
}

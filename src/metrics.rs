//! The registry of metrics and its rendering in the Prometheus text format.
//!
//! Any thread records; the probe server's connection threads render. One lock guards the whole registry and is never held
//! across I/O. Written here and not taken from a crate because names must stay as they are (a crate that renames
//! `…_errors` to `…_errors_total` breaks dashboards) and label sets are not known before the first use.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Upper bounds for durations of hook runs, in seconds: from a shell script that only writes a line to a job of minutes.
pub(crate) const RUN_SECONDS: &[f64] = &[
    0.0, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0,
];

/// Upper bounds for what happens to one object on its way to a queue, in seconds.
pub(crate) const EVENT_SECONDS: &[f64] = &[
    0.0, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0,
];

/// Label names and values of one series, in the order they were given.
type Labels = Vec<(String, String)>;

/// Everything that is counted. Shared by `Arc`.
#[derive(Debug, Default)]
pub(crate) struct Metrics {
    prefix: String,
    families: Mutex<BTreeMap<String, Family>>,
}

#[derive(Debug)]
struct Family {
    kind: Kind,
    series: BTreeMap<Labels, Series>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Counter,
    Gauge,
    Histogram,
}

#[derive(Debug)]
enum Series {
    Value(f64),
    Buckets {
        bounds: &'static [f64],
        counts: Vec<u64>,
        sum: f64,
        count: u64,
    },
}

impl Metrics {
    /// `prefix` is put before every name given to the recording functions.
    pub(crate) fn new(prefix: &str) -> Self {
        Metrics {
            prefix: prefix.to_owned(),
            families: Mutex::default(),
        }
    }

    /// Adds to a counter; adding 0 makes the series visible.
    pub(crate) fn add(&self, name: &str, labels: &[(&str, &str)], amount: f64) {
        self.update(name, Kind::Counter, labels, |series| {
            if let Series::Value(value) = series {
                *value += amount;
            }
        });
    }

    /// Sets a counter that somebody else counts.
    pub(crate) fn total(&self, name: &str, labels: &[(&str, &str)], total: f64) {
        self.update(name, Kind::Counter, labels, |series| {
            *series = Series::Value(total);
        });
    }

    /// Sets a gauge.
    pub(crate) fn set(&self, name: &str, labels: &[(&str, &str)], value: f64) {
        self.update(name, Kind::Gauge, labels, |series| {
            *series = Series::Value(value);
        });
    }

    /// Records one observation in a histogram with the bounds of `RUN_SECONDS`.
    pub(crate) fn observe(&self, name: &str, labels: &[(&str, &str)], observed: f64) {
        self.observe_within(RUN_SECONDS, name, labels, observed);
    }

    /// As `observe`, with other bounds. Those of the first observation of a series stay.
    pub(crate) fn observe_within(
        &self,
        bounds: &'static [f64],
        name: &str,
        labels: &[(&str, &str)],
        observed: f64,
    ) {
        self.update(name, Kind::Histogram, labels, |series| {
            // How every series begins.
            if let Series::Value(_) = series {
                *series = buckets(bounds);
            }
            if let Series::Buckets {
                bounds,
                counts,
                sum,
                count,
            } = series
            {
                *sum += observed;
                *count += 1;
                for (bound, bucket) in bounds.iter().zip(counts) {
                    if observed <= *bound {
                        *bucket += 1;
                    }
                }
            }
        });
    }

    /// Everything recorded so far, in the Prometheus text format, sorted by name and labels.
    pub(crate) fn render(&self) -> String {
        let mut text = String::new();
        for (name, family) in self.locked().iter() {
            let kind = match family.kind {
                Kind::Counter => "counter",
                Kind::Gauge => "gauge",
                Kind::Histogram => "histogram",
            };
            // Writing to a String cannot fail.
            let _ = writeln!(text, "# HELP {name} {name}\n# TYPE {name} {kind}");
            for (labels, series) in &family.series {
                render_series(&mut text, name, labels, series);
            }
        }
        text
    }

    fn update(
        &self,
        name: &str,
        kind: Kind,
        labels: &[(&str, &str)],
        change: impl FnOnce(&mut Series),
    ) {
        let key = labels
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect();
        let mut families = self.locked();
        let family = families
            .entry(format!("{}{name}", self.prefix))
            .or_insert_with(|| Family {
                kind,
                series: BTreeMap::new(),
            });
        // One name has one type: a second type would make the whole page unreadable for Prometheus.
        if family.kind == kind {
            change(family.series.entry(key).or_insert(Series::Value(0.0)));
        }
    }

    /// A poisoned lock only means that a recording thread panicked; the numbers are still the best there are.
    fn locked(&self) -> MutexGuard<'_, BTreeMap<String, Family>> {
        self.families.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn buckets(bounds: &'static [f64]) -> Series {
    Series::Buckets {
        bounds,
        counts: vec![0; bounds.len()],
        sum: 0.0,
        count: 0,
    }
}

fn render_series(text: &mut String, name: &str, labels: &Labels, series: &Series) {
    // Writing to a String cannot fail, so the results below are dropped on purpose.
    match series {
        Series::Value(value) => {
            let _ = writeln!(text, "{name}{} {value}", render_labels(labels, None));
        }
        Series::Buckets {
            bounds,
            counts,
            sum,
            count,
        } => {
            for (bound, bucket) in bounds.iter().zip(counts) {
                let le = bound.to_string();
                let labels = render_labels(labels, Some(&le));
                let _ = writeln!(text, "{name}_bucket{labels} {bucket}");
            }
            let infinite = render_labels(labels, Some("+Inf"));
            let plain = render_labels(labels, None);
            let _ = writeln!(text, "{name}_bucket{infinite} {count}");
            let _ = writeln!(text, "{name}_sum{plain} {sum}\n{name}_count{plain} {count}");
        }
    }
}

fn render_labels(labels: &Labels, le: Option<&str>) -> String {
    let pairs = labels
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_str()))
        .chain(le.map(|bound| ("le", bound)));
    let rendered: Vec<String> = pairs
        .map(|(name, value)| format!("{name}=\"{}\"", escape(value)))
        .collect();
    if rendered.is_empty() {
        String::new()
    } else {
        format!("{{{}}}", rendered.join(","))
    }
}

fn escape(value: &str) -> String {
    value
        .replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_gauges_and_histograms_render_as_prometheus_reads_them() {
        let metrics = Metrics::new("p_");
        metrics.add("runs_total", &[("hook", "a \"b\"\n")], 0.0);
        metrics.add("runs_total", &[("hook", "a \"b\"\n")], 2.0);
        metrics.set("length", &[], 3.5);
        metrics.observe("seconds", &[("hook", "h")], 0.03);
        let text = metrics.render();
        assert!(text.contains("p_runs_total{hook=\"a \\\"b\\\"\\n\"} 2\n"));
        assert!(text.contains("# TYPE p_length gauge\np_length 3.5\n"));
        assert!(text.contains("p_seconds_bucket{hook=\"h\",le=\"0.02\"} 0\n"));
        assert!(text.contains("p_seconds_bucket{hook=\"h\",le=\"0.05\"} 1\n"));
        assert!(text.contains("p_seconds_bucket{hook=\"h\",le=\"+Inf\"} 1\n"));
        assert!(text.contains("p_seconds_count{hook=\"h\"} 1\n"));
    }

    #[test]
    fn a_name_keeps_the_type_of_its_first_use() {
        let metrics = Metrics::new("");
        metrics.add("x", &[], 1.0);
        metrics.set("x", &[], 9.0);
        assert!(metrics.render().contains("x 1\n"));
    }
}

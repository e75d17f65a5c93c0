//! One page of series: found or made by name and labels, removed by group, written in the Prometheus text format.
//!
//! No lock and no thread of its own: whoever holds the page's lock calls. INVARIANT: what `render` writes is a page that Prometheus
//! reads, whatever was recorded: one type for a name, no series twice, names of the plain alphabet, values escaped.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Write as _};

/// LIMIT: series on a page. Prometheus itself advises against ten for each label of a metric, so this is many metrics; with the
/// bounds on the labels of one operation (`hook::metric`) a page takes tens of megabytes at the very worst, and usually 2 MB.
const MOST_SERIES: usize = 10_000;

/// LIMIT: different label names under one metric name. Each series shows all of them, so their number multiplies the page.
const MOST_LABEL_NAMES: usize = 64;

/// What Prometheus adds to the name of a histogram.
const SUFFIXES: [&str; 3] = ["_bucket", "_sum", "_count"];

/// Upper bounds of buckets; those of our own metrics are constants.
pub(super) type Bounds = Cow<'static, [f64]>;

/// Label names and values, sorted, without the empty ones: an empty value means the same as no label.
type Labels = Vec<(String, String)>;

#[derive(Debug)]
pub(super) struct Page {
    families: BTreeMap<String, Family>,
    /// Series, in all families.
    count: usize,
    most: usize,
}

/// All series of one name.
#[derive(Debug)]
struct Family {
    kind: Kind,
    bounds: Bounds,
    /// Every label name that was ever given, in that order. Series without it show it empty.
    names: Vec<String>,
    series: BTreeMap<Labels, Series>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Counter,
    Gauge,
    Histogram,
}

impl fmt::Display for Kind {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        })
    }
}

#[derive(Debug)]
struct Series {
    /// Of the last who recorded.
    group: Option<String>,
    /// The value of a counter or gauge, the sum of a histogram.
    value: f64,
    /// Of a histogram: observations up to each bound.
    buckets: Vec<u64>,
    count: u64,
}

/// Which series is meant.
pub(super) struct Target<'a> {
    pub(super) name: &'a str,
    pub(super) labels: &'a [(&'a str, &'a str)],
    pub(super) kind: Kind,
    pub(super) bounds: Bounds,
    pub(super) group: Option<String>,
}

/// A series that can be changed.
pub(super) struct SeriesRef<'a> {
    series: &'a mut Series,
    bounds: &'a [f64],
}

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
        }
    }
}

impl Page {
    /// For what the program itself records: as many series as it has hooks, bindings, queues and kinds.
    pub(super) fn of_our_own() -> Page {
        Page {
            families: BTreeMap::new(),
            count: 0,
            most: usize::MAX,
        }
    }

    /// For what others record.
    pub(super) fn of_hooks() -> Page {
        Page {
            most: MOST_SERIES,
            ..Page::of_our_own()
        }
    }

    /// Finds a series, or makes it.
    pub(super) fn series(&mut self, target: Target<'_>) -> Result<SeriesRef<'_>, Ignored> {
        let name = || target.name.to_owned();
        if !self.has_series(target.name) {
            if let Some(by) = self.taken_by(target.name, target.kind) {
                return Err(Ignored::NameTaken { name: name(), by });
            }
            if self.count >= self.most {
                return Err(Ignored::TooManySeries { name: name() });
            }
        }
        let family = self.families.entry(name()).or_insert_with(|| Family {
            kind: target.kind,
            bounds: Bounds::default(),
            names: Vec::new(),
            series: BTreeMap::new(),
        });
        if family.series.is_empty() {
            (family.kind, family.bounds) = (target.kind, target.bounds);
        }
        if family.kind != target.kind {
            return Err(Ignored::OtherKind {
                name: name(),
                known: family.kind,
                wanted: target.kind,
            });
        }
        let key = key(target.labels);
        if !family.series.contains_key(&key) && self.count >= self.most {
            return Err(Ignored::TooManySeries { name: name() });
        }
        family.learn(target.labels).map_err(|()| {
            let name = name();
            Ignored::TooManyLabelNames { name }
        })?;
        let count = &mut self.count;
        let buckets = family.bounds.len();
        let series = family.series.entry(key).or_insert_with(|| {
            *count += 1;
            Series {
                group: None,
                value: 0.0,
                buckets: vec![0; buckets],
                count: 0,
            }
        });
        series.group = target.group;
        Ok(SeriesRef {
            series,
            bounds: &family.bounds,
        })
    }

    /// A family of another name that has, or would have, a line of this name.
    fn taken_by(&self, name: &str, kind: Kind) -> Option<String> {
        let stems = SUFFIXES.iter().filter_map(|end| name.strip_suffix(end));
        let is_histogram = |stem: &&str| {
            let known = self.families.get(*stem);
            known.is_some_and(|family| family.kind == Kind::Histogram) && self.has_series(stem)
        };
        if let Some(stem) = stems.into_iter().find(is_histogram) {
            return Some(stem.to_owned());
        }
        if kind != Kind::Histogram {
            return None;
        }
        let mut lines = SUFFIXES.iter().map(|end| format!("{name}{end}"));
        lines.find(|line| self.has_series(line))
    }

    fn has_series(&self, name: &str) -> bool {
        let family = self.families.get(name);
        family.is_some_and(|family| !family.series.is_empty())
    }

    /// Removes every series of these groups. Names that are left without any keep their labels until `forget_empty`, so that a
    /// run which replaces its series does not change how those of others look.
    pub(super) fn expire(&mut self, groups: &BTreeSet<String>) {
        if groups.is_empty() {
            return;
        }
        for family in self.families.values_mut() {
            let before = family.series.len();
            family.series.retain(|_, series| {
                !series
                    .group
                    .as_ref()
                    .is_some_and(|group| groups.contains(group))
            });
            self.count = self.count.saturating_sub(before - family.series.len());
        }
    }

    /// A name without series is not shown.
    pub(super) fn forget_empty(&mut self) {
        self.families.retain(|_, family| !family.series.is_empty());
    }

    /// Everything, sorted by name and labels.
    pub(super) fn render(&self) -> String {
        let mut text = String::new();
        for (name, family) in &self.families {
            let kind = family.kind;
            // Writing to a String cannot fail, here and below.
            let _ = writeln!(text, "# HELP {name} {name}\n# TYPE {name} {kind}");
            for (labels, series) in &family.series {
                family.render(&mut text, name, labels, series);
            }
        }
        text
    }
}

impl Family {
    /// Notes new label names, but not too many.
    fn learn(&mut self, labels: &[(&str, &str)]) -> Result<(), ()> {
        let known = self.names.len();
        for (name, _) in labels {
            if !self.names.iter().any(|known| known == name) {
                self.names.push((*name).to_owned());
            }
        }
        if self.names.len() <= MOST_LABEL_NAMES {
            return Ok(());
        }
        self.names.truncate(known);
        Err(())
    }

    fn render(&self, text: &mut String, name: &str, labels: &Labels, series: &Series) {
        let plain = self.render_labels(labels, None);
        if self.kind != Kind::Histogram {
            let _ = writeln!(text, "{name}{plain} {}", Number(series.value));
            return;
        }
        for (bound, bucket) in self.bounds.iter().zip(&series.buckets) {
            let labels = self.render_labels(labels, Some(&Number(*bound).to_string()));
            let _ = writeln!(text, "{name}_bucket{labels} {bucket}");
        }
        let infinite = self.render_labels(labels, Some("+Inf"));
        let (sum, count) = (Number(series.value), series.count);
        let _ = writeln!(text, "{name}_bucket{infinite} {count}");
        let _ = writeln!(text, "{name}_sum{plain} {sum}\n{name}_count{plain} {count}");
    }

    fn render_labels(&self, labels: &Labels, le: Option<&str>) -> String {
        let value = |name: &str| {
            let found = labels.iter().find(|(known, _)| known == name);
            found.map_or("", |(_, value)| value.as_str())
        };
        let names = self.names.iter().map(String::as_str);
        let pairs = names
            .map(|name| (name, value(name)))
            .chain(le.map(|bound| ("le", bound)));
        let rendered: Vec<String> = pairs
            .map(|(name, value)| format!("{name}=\"{}\"", escape(value)))
            .collect();
        if rendered.is_empty() {
            return String::new();
        }
        format!("{{{}}}", rendered.join(","))
    }
}

impl SeriesRef<'_> {
    pub(super) fn add(&mut self, amount: f64) {
        self.series.value += amount;
    }

    pub(super) fn set(&mut self, value: f64) {
        self.series.value = value;
    }

    pub(super) fn observe(&mut self, observed: f64) {
        self.series.value += observed;
        self.series.count = self.series.count.saturating_add(1);
        for (bound, bucket) in self.bounds.iter().zip(&mut self.series.buckets) {
            if observed <= *bound {
                *bucket = bucket.saturating_add(1);
            }
        }
    }
}

fn key(labels: &[(&str, &str)]) -> Labels {
    let given = labels.iter().filter(|(_, value)| !value.is_empty());
    let sorted: BTreeMap<&str, &str> = given.copied().collect();
    sorted
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}

/// A name in the plain alphabet of Prometheus; everything else becomes `_`, as on the original's page.
pub(super) fn shown_name(name: &str, may_have_colons: bool) -> Cow<'_, str> {
    let is_plain = |at: usize, letter: char| {
        letter.is_ascii_alphabetic()
            || letter == '_'
            || (letter == ':' && may_have_colons)
            || (letter.is_ascii_digit() && at > 0)
    };
    if name.char_indices().all(|(at, letter)| is_plain(at, letter)) {
        return Cow::Borrowed(name);
    }
    let letters = name.char_indices();
    letters
        .map(|(at, letter)| if is_plain(at, letter) { letter } else { '_' })
        .collect::<String>()
        .into()
}

fn escape(value: &str) -> String {
    value
        .replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}

/// A number as Prometheus and the original write it; without the exponent, large ones would be hundreds of digits.
struct Number(f64);

impl fmt::Display for Number {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = self.0;
        if value.is_infinite() {
            out.write_str(if value > 0.0 { "+Inf" } else { "-Inf" })
        } else if value != 0.0 && !(1e-6..1e21).contains(&value.abs()) {
            write!(out, "{value:e}")
        } else {
            write!(out, "{value}")
        }
    }
}

//! One page of series: found or made by name and labels, removed by group, written in the Prometheus text format.
//!
//! No lock and no thread of its own: whoever holds the page's lock calls. INVARIANT: what `render` writes is a page that Prometheus
//! reads, whatever was recorded: one type for a name, no series twice, names of the plain alphabet, values escaped.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Write as _};

use super::ignored::Ignored;
use super::text::{LONGEST_NUMBER, Number, escape, escaped_length};

/// LIMIT: series of hooks. Prometheus itself advises against ten for each label of a metric, so this is many metrics.
pub(super) const MOST_SERIES: usize = 10_000;

/// LIMIT: different label names under one metric name. Each series shows all of them, so their number multiplies the page.
pub(super) const MOST_LABEL_NAMES: usize = 64;

/// LIMIT: how long the page of hooks may become. So many series with 200 bytes of labels take 2 MB, or 16 MB if every one of them had
/// eight buckets. Whoever reads the page gets it in one piece, so that is also what a reader costs.
pub(super) const MOST_BYTES: usize = 16 * 1024 * 1024;

/// LIMIT: the same for our own page, whose series come from hooks, bindings, queues and kinds: about 25 000 histograms.
const MOST_BYTES_OF_OUR_OWN: usize = 64 * 1024 * 1024;

/// What a line has beside names, label values and its number: a suffix, braces, a space, its end, and `le=""` with a comma.
const LINE: usize = "_bucket".len() + "{} \n".len() + ",le=\"\"".len();

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
    /// What `render` writes at most.
    bytes: usize,
    most_bytes: usize,
}

/// All series of one name.
#[derive(Debug)]
struct Family {
    kind: Kind,
    bounds: Bounds,
    /// Every label name that was ever given, in that order. Series without it show it empty.
    names: Vec<String>,
    series: BTreeMap<Labels, Series>,
    /// Bytes of the label values of all series, each counted once.
    values: usize,
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

impl Page {
    /// For what the program itself records: as many series as it has hooks, bindings, queues and kinds.
    pub(super) fn of_our_own() -> Page {
        Page {
            families: BTreeMap::new(),
            count: 0,
            most: usize::MAX,
            bytes: 0,
            most_bytes: MOST_BYTES_OF_OUR_OWN,
        }
    }

    /// For what others record.
    pub(super) fn of_hooks() -> Page {
        Page {
            most: MOST_SERIES,
            most_bytes: MOST_BYTES,
            ..Page::of_our_own()
        }
    }

    /// Finds a series, or makes it.
    pub(super) fn series(&mut self, target: Target<'_>) -> Result<SeriesRef<'_>, Ignored> {
        let name = || target.name.to_owned();
        if target.name.is_empty() {
            return Err(Ignored::NoName);
        }
        if target.kind == Kind::Histogram && target.labels.iter().any(|(name, _)| *name == "le") {
            return Err(Ignored::ReservedLabel { name: name() });
        }
        if !self.has_series(target.name)
            && let Some(by) = self.taken_by(target.name, target.kind)
        {
            return Err(Ignored::NameTaken { name: name(), by });
        }
        let family = self
            .families
            .entry(name())
            .or_insert_with(|| Family::new(target.kind));
        if family.series.is_empty() {
            family.begin(target.kind, target.bounds);
        }
        if family.kind != target.kind {
            return Err(Ignored::OtherKind {
                name: name(),
                known: family.kind,
                wanted: target.kind,
            });
        }
        let key = key(target.labels);
        let is_new = !family.series.contains_key(&key);
        if is_new && self.count >= self.most {
            return Err(Ignored::TooManySeries { name: name() });
        }
        let (known, before) = (family.names.len(), family.bytes(target.name));
        family.learn(target.labels);
        if family.names.len() > MOST_LABEL_NAMES {
            family.names.truncate(known);
            return Err(Ignored::TooManyLabelNames { name: name() });
        }
        let after = family.bytes_with(target.name, is_new.then_some(&key));
        let bytes = self.bytes.saturating_sub(before).saturating_add(after);
        if bytes > self.most_bytes {
            family.names.truncate(known);
            return Err(Ignored::PageFull { name: name() });
        }
        self.bytes = bytes;
        if is_new {
            self.count += 1;
            family.values = family.values.saturating_add(values_of(&key));
        }
        let buckets = family.bounds.len();
        let series = family
            .series
            .entry(key)
            .or_insert_with(|| Series::new(buckets));
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
        for (name, family) in &mut self.families {
            let (count, bytes) = (family.series.len(), family.bytes(name));
            family.series.retain(|_, series| {
                let group = series.group.as_ref();
                !group.is_some_and(|group| groups.contains(group))
            });
            let gone = count - family.series.len();
            if gone > 0 {
                family.values = family.series.keys().map(values_of).sum();
                self.count = self.count.saturating_sub(gone);
                let freed = bytes.saturating_sub(family.bytes(name));
                self.bytes = self.bytes.saturating_sub(freed);
            }
        }
    }

    /// A name without series is not shown.
    pub(super) fn forget_empty(&mut self) {
        self.families.retain(|_, family| !family.series.is_empty());
    }

    #[cfg(test)]
    pub(super) fn most_written(&self) -> usize {
        self.bytes
    }

    /// Everything, sorted by name and labels.
    pub(super) fn render(&self) -> String {
        let mut text = String::new();
        let shown = self.families.iter();
        for (name, family) in shown.filter(|(_, family)| !family.series.is_empty()) {
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
    fn new(kind: Kind) -> Family {
        Family {
            kind,
            bounds: Bounds::default(),
            names: Vec::new(),
            series: BTreeMap::new(),
            values: 0,
        }
    }

    /// A name without series may become something else. Then its labels are of no use any more, and in a histogram `le` would be
    /// there twice.
    fn begin(&mut self, kind: Kind, bounds: Bounds) {
        if self.kind != kind {
            self.names.clear();
        }
        (self.kind, self.bounds) = (kind, bounds);
    }

    /// Notes new label names.
    fn learn(&mut self, labels: &[(&str, &str)]) {
        for (name, _) in labels {
            if !self.names.iter().any(|known| known == name) {
                self.names.push((*name).to_owned());
            }
        }
    }

    /// What `render` writes of it at most.
    fn bytes(&self, name: &str) -> usize {
        self.bytes_with(name, None)
    }

    /// The same with one more series.
    fn bytes_with(&self, name: &str, more: Option<&Labels>) -> usize {
        let series = self.series.len() + usize::from(more.is_some());
        if series == 0 {
            return 0;
        }
        let values = self.values.saturating_add(more.map_or(0, values_of));
        let lines = match self.kind {
            Kind::Counter | Kind::Gauge => 1,
            // A bucket without end, the sum and the count.
            Kind::Histogram => self.bounds.len() + 3,
        };
        let label_names = self.names.iter().map(|name| name.len() + "=\"\",".len());
        let line = name.len() + label_names.sum::<usize>() + LINE + 2 * LONGEST_NUMBER;
        let head = "# HELP  \n# TYPE  histogram\n".len() + 3 * name.len();
        let written = series.saturating_mul(line).saturating_add(values);
        written.saturating_mul(lines).saturating_add(head)
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

impl Series {
    fn new(buckets: usize) -> Series {
        Series {
            group: None,
            value: 0.0,
            buckets: vec![0; buckets],
            count: 0,
        }
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

/// Bytes of a series' label values as they are written.
fn values_of(labels: &Labels) -> usize {
    labels.iter().map(|(_, value)| escaped_length(value)).sum()
}

fn key(labels: &[(&str, &str)]) -> Labels {
    let given = labels.iter().filter(|(_, value)| !value.is_empty());
    let sorted: BTreeMap<&str, &str> = given.copied().collect();
    sorted
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}

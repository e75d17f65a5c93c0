//! A reader of the Prometheus text format, written from its description and stricter than Prometheus itself: one block for each
//! name, HELP and TYPE before the samples, no series twice, histograms that add up.

use std::collections::{BTreeMap, BTreeSet};

type Labels = BTreeMap<String, String>;

/// One page.
#[derive(Debug, Default)]
pub(crate) struct Page {
    families: BTreeMap<String, Family>,
}

#[derive(Debug)]
struct Family {
    kind: String,
    samples: Vec<Sample>,
}

#[derive(Debug)]
struct Sample {
    name: String,
    labels: Labels,
    value: f64,
}

impl Page {
    /// Reads a page to the letter.
    pub(crate) fn parse(text: &str) -> Result<Page, String> {
        let mut page = Page::default();
        let mut lines = text.split_terminator('\n').peekable();
        if !text.is_empty() && !text.ends_with('\n') {
            return Err("the last line has no end".to_owned());
        }
        while let Some(line) = lines.next() {
            let name = line
                .strip_prefix("# HELP ")
                .and_then(|rest| rest.split(' ').next())
                .filter(|name| is_name(name, true))
                .ok_or_else(|| format!("no HELP with a name: {line:?}"))?;
            let of_type = lines.next().unwrap_or_default();
            let kind = of_type
                .strip_prefix(&format!("# TYPE {name} "))
                .filter(|kind| ["counter", "gauge", "histogram"].contains(kind))
                .ok_or_else(|| format!("no TYPE of {name}: {of_type:?}"))?;
            let mut samples = Vec::new();
            while let Some(line) = lines.next_if(|line| !line.starts_with('#')) {
                let sample = Sample::parse(line).ok_or_else(|| format!("no sample: {line:?}"))?;
                samples.push(sample);
            }
            let kind = kind.to_owned();
            let family = Family { kind, samples };
            family.check(name)?;
            if page.families.insert(name.to_owned(), family).is_some() {
                return Err(format!("{name} is there twice"));
            }
        }
        page.check_series()?;
        Ok(page)
    }

    /// No line of the page stands for the same series as another one.
    fn check_series(&self) -> Result<(), String> {
        let mut seen = BTreeSet::new();
        for family in self.families.values() {
            for sample in &family.samples {
                // An empty label is the same as none.
                let mut labels = sample.labels.clone();
                labels.retain(|_, value| !value.is_empty());
                if !seen.insert((&sample.name, labels)) {
                    return Err(format!("twice: {sample:?}"));
                }
            }
        }
        Ok(())
    }

    pub(crate) fn names(&self) -> Vec<&str> {
        self.families.keys().map(String::as_str).collect()
    }

    /// `counter`, `gauge` or `histogram`.
    pub(crate) fn kind(&self, name: &str) -> Option<&str> {
        self.families.get(name).map(|family| family.kind.as_str())
    }

    /// The label names of all series of a name; that of a histogram's buckets is left out.
    pub(crate) fn label_names(&self, name: &str) -> BTreeSet<&str> {
        let samples = self.families.get(name).into_iter();
        samples
            .flat_map(|family| &family.samples)
            .flat_map(|sample| sample.labels.keys())
            .map(String::as_str)
            .filter(|name| *name != "le")
            .collect()
    }

    /// The value of the one series with this name that has all these labels. The name may be a line of a histogram.
    #[track_caller]
    pub(crate) fn value(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        let has = |sample: &&Sample| {
            sample.name == name
                && labels.iter().all(|(name, value)| {
                    sample.labels.get(*name).map_or("", String::as_str) == *value
                })
        };
        let samples = self.families.values().flat_map(|family| &family.samples);
        let found: Vec<&Sample> = samples.filter(has).collect();
        assert!(found.len() < 2, "{name} {labels:?} is not one: {found:?}");
        found.first().map(|sample| sample.value)
    }

    /// Every series as `name{label="value",…} value`, sorted; labels sorted too.
    pub(crate) fn series(&self) -> Vec<String> {
        let samples = self.families.values().flat_map(|family| &family.samples);
        let mut lines: Vec<String> = samples
            .map(|sample| {
                let labels = sample.labels.iter();
                let labels: Vec<String> = labels
                    .map(|(name, value)| format!("{name}={value:?}"))
                    .collect();
                format!("{}{{{}}} {}", sample.name, labels.join(","), sample.value)
            })
            .collect();
        lines.sort();
        lines
    }
}

impl Family {
    fn check(&self, name: &str) -> Result<(), String> {
        if self.samples.is_empty() {
            return Err(format!("{name} has no sample"));
        }
        if self.kind == "histogram" {
            return self.check_histogram(name);
        }
        for sample in &self.samples {
            if sample.name != name {
                return Err(format!("{} stands below {name}", sample.name));
            }
            if self.kind == "counter" && (sample.value < 0.0 || sample.value.is_nan()) {
                return Err(format!("a counter below zero: {sample:?}"));
            }
        }
        Ok(())
    }

    /// For each set of labels: buckets in rising order whose counts do not fall, `+Inf` as the last and equal to the count, a sum.
    fn check_histogram(&self, name: &str) -> Result<(), String> {
        let mut sets: BTreeMap<Labels, Histogram> = BTreeMap::new();
        for sample in &self.samples {
            let mut labels = sample.labels.clone();
            let le = labels.remove("le");
            let set = sets.entry(labels).or_default();
            let part = sample.name.strip_prefix(name);
            match (part, le) {
                (Some("_bucket"), Some(le)) => {
                    let bound = number(&le).ok_or_else(|| format!("no bound: {sample:?}"))?;
                    set.buckets.push((bound, sample.value));
                }
                (Some("_sum"), None) => set.sum = Some(sample.value),
                (Some("_count"), None) => set.count = Some(sample.value),
                _ => return Err(format!("not of the histogram {name}: {sample:?}")),
            }
        }
        for (labels, set) in sets {
            let mut pairs = set.buckets.windows(2);
            let rises = pairs.all(|pair| pair[0].0 < pair[1].0 && pair[0].1 <= pair[1].1);
            let last = set.buckets.last().copied();
            let is_whole = last == set.count.map(|count| (f64::INFINITY, count));
            if !rises || !is_whole || set.sum.is_none() {
                return Err(format!("{name} {labels:?} does not add up: {set:?}"));
            }
        }
        Ok(())
    }
}

#[derive(Debug, Default)]
struct Histogram {
    buckets: Vec<(f64, f64)>,
    sum: Option<f64>,
    count: Option<f64>,
}

impl Sample {
    fn parse(line: &str) -> Option<Sample> {
        let end = line.find(['{', ' '])?;
        let (name, rest) = line.split_at(end);
        let (labels, value) = match rest.strip_prefix('{') {
            Some(rest) => parse_labels(rest)?,
            None => (Labels::new(), rest),
        };
        Some(Sample {
            name: Some(name).filter(|name| is_name(name, true))?.to_owned(),
            labels,
            value: number(value.strip_prefix(' ')?)?,
        })
    }
}

/// What stands behind the opening brace, and what is left behind the closing one.
fn parse_labels(mut rest: &str) -> Option<(Labels, &str)> {
    let mut labels = Labels::new();
    loop {
        let (name, behind) = rest.split_once("=\"")?;
        let (value, behind) = parse_value(behind)?;
        // Prometheus keeps names that begin so for itself.
        let is_label = is_name(name, false) && !name.starts_with("__");
        if !is_label || labels.insert(name.to_owned(), value).is_some() {
            return None;
        }
        match behind.strip_prefix(',') {
            Some(more) => rest = more,
            None => return Some((labels, behind.strip_prefix('}')?)),
        }
    }
}

/// A label value up to its closing quote: only these three escapes exist.
fn parse_value(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut letters = text.char_indices();
    while let Some((at, letter)) = letters.next() {
        match letter {
            '"' => return Some((value, &text[at + 1..])),
            '\\' => value.push(match letters.next()?.1 {
                '\\' => '\\',
                '"' => '"',
                'n' => '\n',
                _ => return None,
            }),
            letter => value.push(letter),
        }
    }
    None
}

fn is_name(name: &str, may_have_colons: bool) -> bool {
    let is_first = |letter: char| {
        letter.is_ascii_alphabetic() || letter == '_' || (may_have_colons && letter == ':')
    };
    name.starts_with(is_first)
        && name
            .chars()
            .all(|letter| is_first(letter) || letter.is_ascii_digit())
}

fn number(text: &str) -> Option<f64> {
    match text {
        "+Inf" => Some(f64::INFINITY),
        "-Inf" => Some(f64::NEG_INFINITY),
        "NaN" => Some(f64::NAN),
        text if text.starts_with(|letter: char| letter.is_ascii_digit() || letter == '-') => {
            text.parse().ok()
        }
        _ => None,
    }
}

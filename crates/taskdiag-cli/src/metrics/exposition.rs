//! A snapshot of all metrics, and its text: Prometheus's format or OpenMetrics.

use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{prometheus_text, text, DescriptorEncoder, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::exemplar::Exemplar;
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;

use super::families::{Family, Kind, Number, GROUPS, THREADS, THREAD_COUNT, WCHANS};
use super::totals::Group;

/// A text format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Prometheus's text, version 0.0.4.
    Prometheus,
    /// OpenMetrics, version 1.0.0.
    OpenMetrics,
}

impl Format {
    /// The content type for HTTP.
    pub fn content_type(self) -> &'static str {
        match self {
            Format::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
            Format::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }

    /// The preferred format according to Accept (RFC 9110, 12.5.1). The default is Prometheus's text.
    pub fn preferred<'a>(accept: impl Iterator<Item = &'a str>) -> Format {
        let (mut open, mut plain) = (0.0_f64, 0.0_f64);
        for range in accept.flat_map(|value| value.split(',')) {
            let mut parts = range.split(';').map(str::trim);
            let kind = parts.next().unwrap_or_default().to_ascii_lowercase();
            let (mut quality, mut has_version) = (1.0, true);
            for parameter in parts {
                let Some((name, value)) = parameter.split_once('=') else {
                    continue;
                };
                match name.trim().to_ascii_lowercase().as_str() {
                    "q" => quality = value.trim().parse().unwrap_or(0.0),
                    "version" => has_version = value.trim() == "1.0.0",
                    _ => {}
                }
            }
            match kind.as_str() {
                "application/openmetrics-text" if has_version => open = open.max(quality),
                "text/plain" | "text/*" | "*/*" => plain = plain.max(quality),
                _ => {}
            }
        }
        if open > 0.0 && open >= plain {
            Format::OpenMetrics
        } else {
            Format::Prometheus
        }
    }
}

/// Groups of one kind.
#[derive(Clone, Debug, Default)]
pub struct Groups {
    /// The prefix of names that process-exporter has, too.
    pub usual_prefix: &'static str,
    /// The prefix of our own names.
    pub prefix: &'static str,
    /// The label with the name of a group.
    pub label: &'static str,
    pub groups: Vec<(Arc<str>, Group)>,
}

/// A metric that is not about groups.
#[derive(Clone, Debug)]
pub struct Single {
    pub name: &'static str,
    pub kind: Kind,
    pub help: &'static str,
    pub series: Vec<Series>,
}

/// The labels and the value of a series.
pub type Series = (Vec<(&'static str, String)>, Number);

impl Single {
    /// A metric with one series.
    pub fn new(name: &'static str, kind: Kind, help: &'static str, value: Number) -> Single {
        Single {
            name,
            kind,
            help,
            series: vec![(Vec::new(), value)],
        }
    }

    /// A metric with these labels: their values, each time with a number.
    pub fn labelled<V: ToString, const LABELS: usize>(
        name: &'static str,
        kind: Kind,
        help: &'static str,
        labels: [&'static str; LABELS],
        numbers: impl IntoIterator<Item = ([V; LABELS], u64)>,
    ) -> Single {
        let of = |(values, number): ([V; LABELS], u64)| {
            let values = values.map(|value| value.to_string());
            (labels.into_iter().zip(values).collect(), Number::Whole(number))
        };
        Single {
            name,
            kind,
            help,
            series: numbers.into_iter().map(of).collect(),
        }
    }
}

/// All metrics at one time.
#[derive(Clone, Debug)]
pub struct Picture {
    /// When the first query for it began.
    pub at: Instant,
    pub groups: Vec<Groups>,
    pub singles: Vec<Single>,
}

/// The series that are collected for one answer.
#[derive(Debug)]
struct Answer {
    picture: Arc<Picture>,
    added: Vec<Single>,
}

impl Picture {
    /// The text of all metrics, and of `added`, which belong to this answer only.
    pub fn text(self: &Arc<Picture>, format: Format, added: Vec<Single>) -> Result<String, fmt::Error> {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(Answer {
            picture: self.clone(),
            added,
        }));
        let mut out = String::new();
        match format {
            Format::Prometheus => prometheus_text::encode(&mut out, &registry)?,
            Format::OpenMetrics => text::encode(&mut out, &registry)?,
        }
        Ok(out)
    }

    /// The number of series.
    pub fn series(&self) -> usize {
        let of_group = |group: &Group| {
            let groups = GROUPS.iter().flat_map(|family| family.series);
            let names = group.threads.values().map(|threads| {
                let series = THREADS.iter().flat_map(|family| family.series);
                1 + series
                    .filter(|(_, from)| from.of_counts(&threads.counts).is_some())
                    .count()
            });
            groups.filter(|(_, from)| from.of_group(group).is_some()).count()
                + names.sum::<usize>()
                + group.now.wchans.len()
        };
        let groups = self.groups.iter().flat_map(|groups| &groups.groups);
        let singles = self.singles.iter().map(|single| single.series.len());
        groups.map(|(_, group)| of_group(group)).sum::<usize>() + singles.sum::<usize>()
    }
}

impl Collector for Answer {
    fn encode(&self, mut encoder: DescriptorEncoder) -> fmt::Result {
        for groups in &self.picture.groups {
            groups.encode(&mut encoder)?;
        }
        for single in self.picture.singles.iter().chain(&self.added) {
            let mut metric = describe(&mut encoder, single.name, single.kind, single.help)?;
            for (labels, value) in &single.series {
                let labels: Vec<(&str, &str)> = labels.iter().map(|(name, value)| (*name, value.as_str())).collect();
                put(&mut metric, single.kind, &labels, *value)?;
            }
        }
        Ok(())
    }
}

impl Groups {
    fn encode(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        for family in GROUPS {
            let series =
                |(_, group): &(Arc<str>, Group)| family.series.iter().any(|(_, from)| from.of_group(group).is_some());
            if !self.groups.iter().any(series) {
                continue;
            }
            let full_name = self.name_of(family);
            let mut metric = describe(encoder, &full_name, family.kind, family.help)?;
            for (name, group) in &self.groups {
                let labels = [(self.label, &**name)];
                put_family(&mut metric, family, &labels, |from| from.of_group(group))?;
            }
        }
        if self.groups.iter().any(|(_, group)| !group.now.wchans.is_empty()) {
            let full_name = format!("{}{}", self.usual_prefix, WCHANS.0);
            let mut metric = describe(encoder, &full_name, WCHANS.1, WCHANS.2)?;
            for (name, group) in &self.groups {
                for (wchan, &count) in &group.now.wchans {
                    let labels = [(self.label, &**name), ("wchan", wchan.as_str())];
                    put(&mut metric, WCHANS.1, &labels, Number::Whole(count))?;
                }
            }
        }
        self.encode_threads(encoder)
    }

    fn encode_threads(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        if self.groups.iter().all(|(_, group)| group.threads.is_empty()) {
            return Ok(());
        }
        for family in THREADS {
            let full_name = self.name_of(family);
            let mut metric = describe(encoder, &full_name, family.kind, family.help)?;
            for (name, group) in &self.groups {
                for (thread, threads) in &group.threads {
                    let labels = [(self.label, &**name), ("threadname", thread.as_str())];
                    put_family(&mut metric, family, &labels, |from| from.of_counts(&threads.counts))?;
                }
            }
        }
        let (suffix, kind, help) = THREAD_COUNT;
        let full_name = format!("{}{suffix}", self.usual_prefix);
        let mut metric = describe(encoder, &full_name, kind, help)?;
        for (name, group) in &self.groups {
            for (thread, threads) in &group.threads {
                let labels = [(self.label, &**name), ("threadname", thread.as_str())];
                put(&mut metric, kind, &labels, Number::Whole(threads.count))?;
            }
        }
        Ok(())
    }

    fn name_of(&self, family: &Family) -> String {
        let prefix = if family.is_usual {
            self.usual_prefix
        } else {
            self.prefix
        };
        format!("{prefix}{}", family.name)
    }
}

fn describe<'e>(
    encoder: &'e mut DescriptorEncoder<'_>,
    name: &'e str,
    kind: Kind,
    help: &str,
) -> Result<MetricEncoder<'e>, fmt::Error> {
    let kind = match kind {
        Kind::Counter => MetricType::Counter,
        Kind::Gauge => MetricType::Gauge,
        Kind::Untyped => MetricType::Unknown,
    };
    encoder.encode_descriptor(name, &format!("{help}."), None, kind)
}

fn put_family(
    metric: &mut MetricEncoder<'_>,
    family: &Family,
    labels: &[(&str, &str)],
    value: impl Fn(super::families::Origin) -> Option<Number>,
) -> fmt::Result {
    for (told_apart, from) in family.series {
        let Some(value) = value(*from) else { continue };
        let own = family.labels.iter().copied().zip(told_apart.iter().copied());
        let all: Vec<(&str, &str)> = labels.iter().copied().chain(own).collect();
        put(metric, family.kind, &all, value)?;
    }
    Ok(())
}

fn put(metric: &mut MetricEncoder<'_>, kind: Kind, labels: &[(&str, &str)], value: Number) -> fmt::Result {
    let mut series = metric.encode_family(&labels)?;
    let none: Option<&Exemplar<NoLabelSet, f64>> = None;
    match (kind, value) {
        (Kind::Counter, Number::Whole(value)) => series.encode_counter(&value, none),
        (Kind::Counter, Number::Real(value)) => series.encode_counter(&value, none),
        (_, Number::Whole(value)) => series.encode_gauge(&value),
        (_, Number::Real(value)) => series.encode_gauge(&value),
    }
}

#[cfg(test)]
mod tests {
    use super::super::totals::{Counter, Gauges, Threads};
    use super::*;

    fn picture(name: &str) -> Arc<Picture> {
        let mut group = Group {
            now: Gauges {
                processes: 2,
                resident_bytes: 1 << 60,
                ..Gauges::default()
            },
            ..Group::default()
        };
        group.counts.set(Counter::UserNs, Ok(1_250_000_000));
        group.threads.insert("t".to_owned(), Threads::default());
        Arc::new(Picture {
            at: Instant::now(),
            groups: vec![Groups {
                usual_prefix: "namedprocess_namegroup_",
                prefix: "taskdiag_namegroup_",
                label: "groupname",
                groups: vec![(name.into(), group)],
            }],
            singles: vec![Single::new("x", Kind::Untyped, "An x", Number::Whole(7))],
        })
    }

    /// Check both texts: names, types, labels and omitted series.
    #[test]
    fn both_formats_have_the_same_series() {
        let picture = picture("a");
        let added = || vec![Single::new("stale", Kind::Gauge, "Old", Number::Whole(0))];
        let old = picture.text(Format::Prometheus, added()).expect("text");
        let new = picture.text(Format::OpenMetrics, added()).expect("text");
        for line in [
            "# TYPE namedprocess_namegroup_num_procs gauge",
            "namedprocess_namegroup_num_procs{groupname=\"a\"} 2",
            "namedprocess_namegroup_cpu_seconds_total{groupname=\"a\",mode=\"user\"} 1.25",
            "namedprocess_namegroup_memory_bytes{groupname=\"a\",memtype=\"resident\"} 1152921504606846976",
            "namedprocess_namegroup_thread_count{groupname=\"a\",threadname=\"t\"} 0",
            "x 7",
            "stale 0",
        ] {
            assert!(old.lines().any(|one| one == line), "{line}\n{old}");
            assert!(new.lines().any(|one| one == line), "{line}\n{new}");
        }
        let has = |text: &str, line: &str| text.lines().any(|one| one == line);
        assert!(
            has(&old, "# TYPE namedprocess_namegroup_cpu_seconds_total counter"),
            "{old}"
        );
        assert!(has(&new, "# TYPE namedprocess_namegroup_cpu_seconds counter"), "{new}");
        assert!(has(&old, "# TYPE x untyped") && has(&new, "# TYPE x unknown"));
        assert!(new.ends_with("# EOF\n") && !old.contains("# EOF"));
        for absent in [
            "mode=\"system\"",
            "read_bytes",
            "open_filedesc",
            "proportionalResident",
            "wchan",
            "oldest",
        ] {
            assert!(!old.contains(absent), "{absent}\n{old}");
        }
        let series = old.lines().filter(|line| !line.starts_with('#')).count();
        assert_eq!(series, picture.series() + 1);
    }

    /// Check that the preferred format is used, and Prometheus's text by default.
    #[test]
    fn the_preferred_format_is_given() {
        for (accept, expected) in [
            ("", Format::Prometheus),
            ("*/*", Format::Prometheus),
            ("text/plain", Format::Prometheus),
            ("application/openmetrics-text", Format::OpenMetrics),
            // Prometheus 2.42
            (
                "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,\
                 text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
                Format::OpenMetrics,
            ),
            ("application/openmetrics-text;version=0.0.1", Format::Prometheus),
            (
                "Application/OpenMetrics-Text; q=0.4, text/plain; q=0.5",
                Format::Prometheus,
            ),
            ("application/openmetrics-text; q=0, */*", Format::Prometheus),
            (
                "text/html;q=x,,;;=,application/openmetrics-text;q=0.1",
                Format::OpenMetrics,
            ),
        ] {
            assert_eq!(Format::preferred(std::iter::once(accept)), expected, "{accept}");
        }
    }

    /// Check that a name with characters that could end a label or a line remains one label in one
    /// line.
    #[test]
    fn hostile_names_are_escaped() {
        let name = "<script>\"} 1\nup{x=\"\\\r\u{2028}é";
        let escaped = "groupname=\"<script>\\\"} 1\\nup{x=\\\"\\\\\r\u{2028}é\"";
        for format in [Format::Prometheus, Format::OpenMetrics] {
            let text = picture(name).text(format, Vec::new()).expect("text");
            let lines = text.split('\n').filter(|line| line.contains("num_procs{"));
            assert_eq!(
                lines.collect::<Vec<_>>(),
                [format!("namedprocess_namegroup_num_procs{{{escaped}}} 2")]
            );
            assert!(!text.split('\n').any(|line| line.starts_with("up")));
        }
    }

    /// Check that names of metrics are unique, and that names, labels and help texts have the form
    /// that Prometheus requires.
    #[test]
    fn names_are_names() {
        let is_name =
            |name: &str| !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
        let mut names: Vec<&str> = GROUPS.iter().chain(THREADS).map(|family| family.name).collect();
        names.extend([THREAD_COUNT.0, WCHANS.0]);
        for family in GROUPS.iter().chain(THREADS) {
            assert!(
                is_name(family.name) && !family.name.ends_with("_total"),
                "{}",
                family.name
            );
            assert!(
                family.labels.is_empty() == (family.series.len() == 1),
                "{}",
                family.name
            );
            assert!(family.labels.iter().all(|label| is_name(label)), "{:?}", family.labels);
            assert!(
                family
                    .series
                    .iter()
                    .all(|(values, _)| values.len() == family.labels.len()),
                "{}",
                family.name
            );
            assert!(!family.help.ends_with('.'), "{}", family.help);
        }
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
    }
}

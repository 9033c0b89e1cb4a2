//! What surrounds rows for programs: the members of a JSON document, the header of CSV, the lines
//! before samples.

use jiff::Timestamp;
use taskdiag::Value;
use taskdiag_sys::host::proc_file;

use super::format::Machine;
use super::{csv, json, people};
use crate::history;

/// What a JSON document says about its rows. The other members are the same for all commands.
#[derive(Clone, Debug)]
pub struct Head<'a> {
    pub command: &'a str,
    /// What each source answered.
    pub sources: Vec<(&'a str, &'a str)>,
    /// The counters, if they are known before the rows.
    pub counters: Option<Vec<(&'static str, Value<'a>)>>,
}

impl<'a> Head<'a> {
    /// The head of a document whose counters are known.
    pub fn new(
        command: &'a str,
        sources: Vec<(&'a str, &'a str)>,
        counters: impl IntoIterator<Item = (&'static str, u64)>,
    ) -> Head<'a> {
        let counters = counters.into_iter().map(|(name, count)| (name, Value::Unsigned(count)));
        Head {
            command,
            sources,
            counters: Some(counters.collect()),
        }
    }

    /// The head of a document whose counters follow its rows.
    pub fn streaming(command: &'a str, sources: Vec<(&'a str, &'a str)>) -> Head<'a> {
        Head {
            command,
            sources,
            counters: None,
        }
    }
}

/// Rows for programs, while they are being written: in a JSON document, as lines of JSON, or as
/// CSV.
#[derive(Debug)]
pub struct Document {
    machine: Machine,
    has_rows: bool,
}

impl Document {
    /// Appends what precedes the rows. `header` has the names of the columns, if CSV is to have a
    /// header.
    pub fn begin(
        out: &mut Vec<u8>,
        machine: Machine,
        head: &Head<'_>,
        header: Option<impl IntoIterator<Item = impl AsRef<str>>>,
    ) -> Document {
        match (machine, header) {
            (Machine::Json, _) => begin_document(out, head),
            (Machine::Csv, Some(names)) => csv::header(out, names),
            _ => {}
        }
        Document {
            machine,
            has_rows: false,
        }
    }

    /// Appends a row. `write` appends the row itself: an object, or cells.
    #[inline]
    pub fn row(&mut self, out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
        if self.machine == Machine::Json {
            out.extend_from_slice(if self.has_rows { b",\n" } else { b"\n" });
            write(out);
        } else {
            write(out);
            out.push(b'\n');
        }
        self.has_rows = true;
    }

    /// Appends what follows the rows. `write` appends more members of a JSON document, each
    /// preceded by a comma.
    pub fn end(self, out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
        if self.machine == Machine::Json {
            out.extend_from_slice(b"\n]");
            write(out);
            out.extend_from_slice(b"}\n");
        }
    }
}

/// Appends the part of a document that precedes its rows.
fn begin_document(out: &mut Vec<u8>, head: &Head<'_>) {
    out.extend_from_slice(b"{\"schema\":1");
    member(out, "command", |out| json::string(out, head.command));
    member(out, "time", |out| json::string(out, &now()));
    machine(out);
    member(out, "sources", |out| {
        json::object(out, &head.sources, |&(what, source)| {
            (what, move |out: &mut Vec<u8>| json::string(out, source))
        });
    });
    if let Some(counters) = &head.counters {
        self::counters(out, counters);
    }
    out.extend_from_slice(b",\"rows\":[");
}

/// Appends the description of the machine: this one, or that of a recording.
fn machine(out: &mut Vec<u8>) {
    if let Some(moment) = history::shown() {
        let about = &moment.about;
        for (name, text) in [
            ("host", &about.host),
            ("boot_id", &about.boot_id),
            ("kernel", &about.kernel),
        ] {
            member(out, name, |out| json::string(out, text));
        }
        return;
    }
    let system = rustix::system::uname();
    member(out, "host", |out| json::text(out, system.nodename().to_bytes()));
    if let Some(id) = boot_id() {
        member(out, "boot_id", |out| json::string(out, &id));
    }
    member(out, "kernel", |out| json::text(out, system.release().to_bytes()));
}

/// Appends a member to an object that already has members.
pub fn member(out: &mut Vec<u8>, name: &str, write: impl FnOnce(&mut Vec<u8>)) {
    out.push(b',');
    json::string(out, name);
    out.push(b':');
    write(out);
}

/// Appends the counters of a document.
pub fn counters(out: &mut Vec<u8>, counters: &[(&str, Value<'_>)]) {
    member(out, "counters", |out| {
        json::object(out, counters, |&(name, value)| {
            (name, move |out: &mut Vec<u8>| json::write_value(out, value))
        });
    });
}

/// Appends the counters of a document, from numbers.
pub fn counts<'k>(out: &mut Vec<u8>, counted: impl IntoIterator<Item = (&'k str, u64)>) {
    let value = |(name, count)| (name, Value::Unsigned(count));
    let counted: Vec<_> = counted.into_iter().map(value).collect();
    counters(out, &counted);
}

/// One sample of several.
#[derive(Clone, Copy, Debug)]
pub struct Sample<'a> {
    /// Its number, from 0.
    pub number: u64,
    /// When it was taken, in the format of [`now`].
    pub time: &'a str,
}

/// Appends the line before the rows of a sample, in lines of JSON. No row has a key `rows`.
pub fn sample(out: &mut Vec<u8>, sample: Sample<'_>, rows: usize) {
    out.extend_from_slice(b"{\"sample\":");
    people::number(out, sample.number);
    member(out, "time", |out| json::string(out, sample.time));
    member(out, "rows", |out| people::number(out, rows));
    out.extend_from_slice(b"}\n");
}

/// The time of the rows in RFC 3339 format, in UTC with milliseconds: now, or the moment of a
/// recording.
pub fn now() -> String {
    if let Some(moment) = history::shown() {
        return history::exact(moment.time.wall_ns);
    }
    format!("{:.3}", Timestamp::now())
}

/// The random id of the kernel's current boot (random(4)). `None` where /proc/sys is not mounted.
pub fn boot_id() -> Option<String> {
    let text = std::fs::read_to_string(proc_file("sys/kernel/random/boot_id")).ok()?;
    Some(text.trim_end().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(machine: Machine, head: &Head<'_>) -> String {
        let mut out = Vec::new();
        let mut document = Document::begin(&mut out, machine, head, Some(["a"]));
        for row in ["1", "2"] {
            document.row(&mut out, |out| out.extend_from_slice(row.as_bytes()));
        }
        document.end(&mut out, |out| member(out, "total", |out| out.push(b'3')));
        String::from_utf8(out).expect("made of UTF-8")
    }

    /// Check what surrounds the rows in each form, and the description in a document.
    #[test]
    fn rows_have_three_surroundings() {
        let head = Head::new("ps", vec![("base", "bpf")], [("tasks", 2)]);
        assert_eq!(written(Machine::Csv, &head), "a\n1\n2\n");
        assert_eq!(written(Machine::Jsonl, &head), "1\n2\n");
        let text = written(Machine::Json, &head);
        let document: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        let members: Vec<&str> = document
            .as_object()
            .expect("an object")
            .keys()
            .map(String::as_str)
            .collect();
        for name in [
            "schema", "command", "time", "host", "kernel", "sources", "counters", "rows", "total",
        ] {
            assert!(members.contains(&name), "{name}: {text}");
        }
        assert_eq!(document["sources"], serde_json::json!({"base": "bpf"}));
        assert_eq!(document["counters"], serde_json::json!({"tasks": 2}));
        assert_eq!(document["rows"], serde_json::json!([1, 2]));
        let streaming = written(Machine::Json, &Head::streaming("cache", Vec::new()));
        assert!(!streaming.contains("counters"), "{streaming}");
    }

    /// Check that times are in UTC and in RFC 3339 format.
    #[test]
    fn times_are_utc() {
        let time = now();
        assert_eq!((time.len(), &time[23..]), (24, "Z"), "{time}");
        assert!(time.parse::<Timestamp>().is_ok_and(|then| then <= Timestamp::now()));
    }
}

//! A running exporter, and its output.

#![allow(dead_code)]

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead as _, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use taskdiag_testkit::temporary;

use crate::common;

/// The maximum time for anything that does not wait on purpose.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// A run of `taskdiag metrics`, which ends when dropped.
#[derive(Debug)]
pub struct Exporter {
    pub child: Child,
    pub place: String,
    stderr: BufReader<std::process::ChildStderr>,
}

impl Exporter {
    /// Starts the exporter on a free port.
    pub fn start(args: &[&str]) -> Exporter {
        let mut all = vec!["metrics", "--listen", "127.0.0.1:0"];
        if !args.contains(&"--fresh-for") {
            // Each scrape takes a sample.
            all.extend(["--fresh-for", "0"]);
        }
        all.extend(args);
        Exporter::run(&mut common::command(&all))
    }

    /// Runs a command that serves metrics, and waits until it listens.
    pub fn run(command: &mut Command) -> Exporter {
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        let mut child = command.spawn().expect("the binary runs");
        let stderr = BufReader::new(child.stderr.take().expect("a pipe"));
        let mut exporter = Exporter {
            child,
            place: String::new(),
            stderr,
        };
        let mut said = String::new();
        loop {
            let mut line = String::new();
            exporter.stderr.read_line(&mut line).expect("a message");
            if let Some(place) = line.strip_prefix("taskdiag: listening: ") {
                exporter.place = place.trim_end().to_owned();
                return exporter;
            }
            assert!(!line.is_empty(), "it ended: {said}");
            said.push_str(&line);
        }
    }

    /// The address on which it listens.
    pub fn address(&self) -> SocketAddr {
        let address = self
            .place
            .strip_prefix("http://")
            .and_then(|rest| rest.strip_suffix("/metrics"));
        address.and_then(|address| address.parse().ok()).expect("an address")
    }

    /// Connects.
    pub fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address()).expect("it listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a time");
        stream
    }

    /// Requests a page.
    pub fn get(&self, path: &str, headers: &str) -> Answer {
        let mut stream = self.connect();
        ask(&mut stream, path, headers)
    }

    /// All metrics.
    #[track_caller]
    pub fn scrape(&self) -> Scrape {
        let answer = self.get("/metrics", "");
        assert_eq!(answer.status, 200, "{}", answer.body);
        Scrape::parse(&answer.body)
    }

    /// Scrapes until `is_so` holds, for changes that need some time to appear.
    #[track_caller]
    pub fn scrape_until(&self, is_so: impl Fn(&Scrape) -> bool) -> Scrape {
        let began = Instant::now();
        loop {
            let scrape = self.scrape();
            if is_so(&scrape) {
                return scrape;
            }
            assert!(began.elapsed() < PATIENCE, "it is never so: {:#?}", scrape.0);
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Ends it with a signal. Returns its status and its last messages.
    pub fn end(mut self, signal: &str) -> (Option<i32>, String) {
        let kill = Command::new("kill")
            .args([signal, &self.child.id().to_string()])
            .status();
        assert!(kill.expect("kill exists").success());
        let mut said = String::new();
        self.stderr.read_to_string(&mut said).expect("messages");
        (self.child.wait().expect("it ends").code(), said)
    }

    /// Its resident memory, in bytes.
    pub fn resident_bytes(&self) -> u64 {
        let status = common::status(&self.child.id().to_string(), "VmRSS");
        let kib: u64 = status.trim_end_matches(" kB").parse().expect("a number");
        kib * 1024
    }

    /// Its open descriptors.
    pub fn descriptors(&self) -> usize {
        fs::read_dir(format!("/proc/{}/fd", self.child.id()))
            .expect("its descriptors")
            .count()
    }
}

impl Drop for Exporter {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// An HTTP answer.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub head: String,
    pub body: String,
}

/// Requests a page over a connection, which ends with the answer.
pub fn ask(stream: &mut (impl Read + Write), path: &str, headers: &str) -> Answer {
    write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n").expect("it listens");
    receive(stream)
}

/// Receives an answer to its end.
pub fn receive(stream: &mut impl Read) -> Answer {
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).expect("an answer");
    let text = String::from_utf8(bytes).expect("answers are UTF-8");
    let (head, body) = text.split_once("\r\n\r\n").expect("a head");
    let status = head
        .split(' ')
        .nth(1)
        .and_then(|status| status.parse().ok())
        .expect("a status");
    let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: "));
    let length: usize = length.expect("a length").parse().expect("a number");
    assert!(
        body.is_empty() || body.len() == length,
        "{} of {length} bytes",
        body.len()
    );
    Answer {
        status,
        head: head.to_owned(),
        body: body.to_owned(),
    }
}

pub type Labels = BTreeMap<String, String>;

/// The series of a scrape.
#[derive(Debug)]
pub struct Scrape(pub Vec<(String, Labels, f64)>);

impl Scrape {
    /// Parses Prometheus's text.
    pub fn parse(text: &str) -> Scrape {
        let lines = text
            .split('\n')
            .filter(|line| !line.is_empty() && !line.starts_with('#'));
        Scrape(lines.map(parse_line).collect())
    }

    /// The value of the series with this name and exactly these labels.
    pub fn value(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        let wanted: Labels = labels
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect();
        let mut found = self
            .0
            .iter()
            .filter(|(other, labels, _)| other == name && *labels == wanted);
        let value = found.next().map(|(.., value)| *value);
        assert!(found.next().is_none(), "{name} {labels:?} is there twice");
        value
    }

    /// A metric of process-exporter for a group; `more` are further labels.
    #[track_caller]
    pub fn group(&self, name: &str, group: &str, more: &[(&str, &str)]) -> f64 {
        let labels = [&[("groupname", group)], more].concat();
        let value = self.value(&format!("namedprocess_namegroup_{name}"), &labels);
        value.unwrap_or_else(|| panic!("{name} {labels:?} is not there"))
    }

    /// The processor time of a group, in all modes.
    pub fn seconds(&self, group: &str) -> f64 {
        let is_it = |(name, labels, _): &&(String, Labels, f64)| {
            name == "namedprocess_namegroup_cpu_seconds_total" && labels["groupname"] == group
        };
        self.0.iter().filter(is_it).map(|(.., value)| value).sum()
    }

    /// The values of a metric.
    pub fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = (&'a Labels, f64)> {
        self.0
            .iter()
            .filter(move |(other, ..)| other == name)
            .map(|(_, labels, value)| (labels, *value))
    }
}

fn parse_line(line: &str) -> (String, Labels, f64) {
    let name_end = line.find(['{', ' ']).expect("a name");
    let (name, mut rest) = line.split_at(name_end);
    let mut labels = Labels::new();
    if rest.starts_with('{') {
        rest = &rest[1..];
        while !rest.starts_with('}') {
            let (label, after) = rest.split_once("=\"").expect("a label");
            let mut value = String::new();
            let mut characters = after.char_indices();
            let end = loop {
                match characters.next().expect("the end of a label") {
                    (at, '"') => break at + 1,
                    (_, '\\') => match characters.next().expect("an escape").1 {
                        'n' => value.push('\n'),
                        other => value.push(other),
                    },
                    (_, other) => value.push(other),
                }
            };
            labels.insert(label.to_owned(), value);
            rest = after[end..].trim_start_matches(',');
        }
        rest = &rest[1..];
    }
    let value = rest.trim().parse().unwrap_or_else(|_| panic!("{line:?} has no value"));
    (name.to_owned(), labels, value)
}

/// A directory of a test.
#[derive(Debug)]
pub struct Directory(pub temporary::Directory);

impl Directory {
    pub fn new() -> Directory {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        Directory(temporary::Directory::new(&format!("metrics-{number}")))
    }

    /// Writes a file, and returns its path.
    pub fn file(&self, name: &str, text: &str) -> String {
        let path = self.0.join(name);
        fs::write(&path, text).expect("a file");
        path.to_str().expect("UTF-8").to_owned()
    }

    /// A copy of a program with another name.
    pub fn program(&self, of: &str, name: &[u8]) -> PathBuf {
        let path = self
            .0
            .join(<std::ffi::OsStr as std::os::unix::ffi::OsStrExt>::from_bytes(name));
        common::copy_program(of.as_ref(), &path).expect("a copy");
        path
    }
}

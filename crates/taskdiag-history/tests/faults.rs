//! Recording to a file system that fails, tears writes and loses data: earlier samples survive, and
//! nothing is read that was not recorded.

use std::collections::BTreeMap;
use std::io;

use proptest::prelude::*;
use taskdiag_core::absent::Absent;
use taskdiag_core::field::{Field, Fields};
use taskdiag_core::query::Query;
use taskdiag_core::record::{attr, Base, Cpu, Header, Writer};
use taskdiag_core::snapshot::{Indexer, Snapshot};
use taskdiag_history::decode::{Decoder, End};
use taskdiag_history::directory::{file_name, Keep};
use taskdiag_history::encode::Sample;
use taskdiag_history::events::IntervalEvents;
use taskdiag_history::figures::{self, Figure, Figures, Part};
use taskdiag_history::piece::Time;
use taskdiag_history::recorder::{Notice, Recorder};
use taskdiag_history::store::{RecordingFile, Space, Store};
use taskdiag_history::{About, MAX_BYTES};
use zerocopy::native_endian::{U32, U64};
use zerocopy::IntoBytes as _;

/// The outcome of an operation.
#[derive(Clone, Copy, Debug)]
enum Fate {
    Fine,
    /// Fails after writing a part of the bytes.
    NoSpace(u8),
    ReadOnly,
    /// Writes the bytes, but a power loss may lose them.
    NotSynced,
}

/// A file: its bytes, and how many of them survive a power loss.
#[derive(Clone, Debug, Default)]
struct Bytes {
    all: Vec<u8>,
    synced: usize,
}

#[derive(Debug, Default)]
struct Faulty {
    files: BTreeMap<String, Bytes>,
    fates: Vec<Fate>,
    is_full: bool,
}

impl Faulty {
    fn fate(&mut self) -> Fate {
        self.fates.pop().unwrap_or(Fate::Fine)
    }
}

impl Store for Faulty {
    type File = String;

    fn list(&self) -> io::Result<Vec<RecordingFile>> {
        let listed = |(name, bytes): (&String, &Bytes)| RecordingFile {
            name: name.clone(),
            bytes: bytes.all.len() as u64,
        };
        Ok(self.files.iter().map(listed).collect())
    }

    fn create(&mut self, name: &str) -> io::Result<String> {
        if matches!(self.fate(), Fate::ReadOnly) {
            return Err(io::ErrorKind::ReadOnlyFilesystem.into());
        }
        if self.files.contains_key(name) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        self.files.insert(name.to_owned(), Bytes::default());
        Ok(name.to_owned())
    }

    fn append(&mut self, file: &mut String, bytes: &[u8]) -> io::Result<()> {
        let fate = self.fate();
        let all = &mut self.files.get_mut(file).expect("it was made").all;
        match fate {
            Fate::NoSpace(part) => {
                all.extend_from_slice(&bytes[..bytes.len() * usize::from(part) / 256]);
                Err(io::ErrorKind::StorageFull.into())
            }
            Fate::ReadOnly => Err(io::ErrorKind::ReadOnlyFilesystem.into()),
            Fate::Fine | Fate::NotSynced => {
                all.extend_from_slice(bytes);
                Ok(())
            }
        }
    }

    fn sync(&mut self, file: &mut String) -> io::Result<()> {
        let fate = self.fate();
        let bytes = self.files.get_mut(file).expect("it was made");
        match fate {
            Fate::NotSynced => Err(io::Error::other("input/output error")),
            _ => {
                bytes.synced = bytes.all.len();
                Ok(())
            }
        }
    }

    fn truncate(&mut self, file: &mut String, len: u64) -> io::Result<()> {
        match self.fate() {
            Fate::ReadOnly => Err(io::ErrorKind::ReadOnlyFilesystem.into()),
            _ => {
                self.files
                    .get_mut(file)
                    .expect("it was made")
                    .all
                    .truncate(len as usize);
                Ok(())
            }
        }
    }

    fn remove(&mut self, name: &str) -> io::Result<()> {
        // What is removed makes room.
        self.is_full &= self.files.remove(name).is_none();
        Ok(())
    }

    fn space(&self) -> io::Result<Space> {
        let available = if self.is_full { 4 } else { 50 };
        Ok(Space { total: 100, available })
    }
}

/// A process: pid, start time, a counter, a name.
type Made = (u32, u64, u64, u8);

fn fields() -> Fields {
    Field::Pid | Field::Tid | Field::StartNs | Field::Comm | Field::UtimeNs | Field::Cmdline
}

fn snapshot(made: &[Made]) -> Snapshot {
    snapshot_of(made, true)
}

/// The processes that are new or ran, and all processes without the values that change only when
/// they run.
fn light(before: &[Made], made: &[Made]) -> (Snapshot, Snapshot) {
    let used = |made: &Made| (made.0, made.1, made.2);
    let is_idle = |made: &Made| before.iter().any(|before| used(before) == used(made));
    let ran: Vec<Made> = made.iter().copied().filter(|made| !is_idle(made)).collect();
    (snapshot(&ran), snapshot_of(made, false))
}

fn snapshot_of(made: &[Made], has_times: bool) -> Snapshot {
    let mut snapshot = Snapshot::default();
    snapshot.clear(Query::processes().fields(fields()).fields_read());
    let (records, mut indexer) = Indexer::split(&mut snapshot);
    for &(pid, start, counter, name) in made {
        let mut base = Base::default();
        base.comm[..2].copy_from_slice(&[b'p', b'a' + name % 20]);
        let cpu = Cpu {
            utime_ns: U64::new(counter),
            prev_utime: U64::new(counter),
            sum_exec_runtime: U64::new(counter),
            ..Cpu::default()
        };
        let mut writer = Writer::new(records);
        writer.put(attr::BASE, 0, base.as_bytes());
        if has_times {
            writer.put(attr::CPU, 0, cpu.as_bytes());
        }
        writer.put(attr::ARGS, 0, &[b'x', name, 0]);
        writer.finish(Header {
            pid: U32::new(pid),
            tid: U32::new(pid),
            start_ns: U64::new(start * 10_000_000),
            ..Header::default()
        });
    }
    indexer.index(records, 0).expect("they are records");
    snapshot
}

/// The content of a snapshot, as text.
fn said(snapshot: &Snapshot) -> Vec<String> {
    let task = |task: taskdiag_core::snapshot::Task<'_>| {
        fields()
            .iter()
            .map(|field| format!("{field}={:?};", task.value(field)))
            .collect::<String>()
    };
    snapshot.tasks().map(task).collect()
}

fn time(index: usize) -> Time {
    let ns = index as u64 * 5_000_000_000;
    Time {
        wall_ns: 1_795_000_000_000_000_000 + ns as i64,
        boot_ns: 1_000_000_000_000 + ns,
    }
}

/// Reads a file up to the first damage: time, processes and one figure of each sample.
fn read(bytes: &[u8]) -> Vec<(Time, Vec<String>, Option<u64>)> {
    let mut samples = Vec::new();
    let Ok(Some(mut decoder)) = Decoder::open(bytes.to_vec()) else {
        return samples;
    };
    while let Ok(None) = decoder.advance() {
        let figures = decoder.figures().expect("what has the right checksum is whole");
        let mut snapshot = Snapshot::default();
        snapshot.clear(Query::processes().fields(fields()).fields_read());
        decoder
            .tasks_into(&figures, &mut snapshot)
            .expect("what has the right checksum is whole");
        let figure = taskdiag_history::decode::number(&figures, b"", b"index");
        samples.push((decoder.time, said(&snapshot), figure));
    }
    samples
}

/// Records samples. Returns the store, and for each sample whether it is reported as recorded.
fn record(all: &[Vec<Made>], fates: Vec<Fate>) -> (Faulty, Vec<bool>) {
    let about = About {
        every_ns: 5_000_000_000,
        fields: fields().iter().map(|field| field.name().to_owned()).collect(),
        ..About::default()
    };
    let store = Faulty {
        fates,
        ..Faulty::default()
    };
    let mut recorder = Recorder::new(store, about, Keep::Usual);
    let mut is_stopped = false;
    let mut before = Vec::new();
    let mut recorded = Vec::new();
    for (index, made) in all.iter().enumerate() {
        let mut figures = Figures::new();
        figures::set(&mut figures, b"", b"index", Figure::Number(index as u64));
        let parts = [part(&figures, 1 + index as u64)];
        let all = snapshot(made);
        let light = (!recorder.needs_all(time(index), false)).then(|| light(&before, made));
        let sample = Sample {
            time: time(index),
            tasks: light.as_ref().map_or(&all, |(ran, _)| ran),
            others: light.as_ref().map(|(_, others)| others),
            figures: &parts,
            happened: &IntervalEvents::default(),
        };
        let notices = recorder.record(&sample, false);
        before.clone_from(made);
        for notice in notices {
            match notice {
                Notice::Stopped(_) => is_stopped = true,
                Notice::GoesOn(_) => is_stopped = false,
                notice => panic!("{notice:?}"),
            }
        }
        recorded.push(!is_stopped);
    }
    (std::mem::take(recorder.store()), recorded)
}

/// The first file of the finest tier.
fn full(store: &Faulty) -> &[u8] {
    let mut files = store.files.iter();
    let file = files.find(|(name, _)| name.starts_with("full"));
    &file.expect("a file").1.all
}

fn samples() -> impl Strategy<Value = Vec<Vec<Made>>> {
    // Few pids and start times, so that processes stay, end, and have their pids reused.
    let made = proptest::collection::btree_map(1..12_u32, (0..2_u64, 0..1_000_u64, 0..4_u8), 0..8);
    let sample = made.prop_map(|made| {
        made.into_iter()
            .map(|(pid, (start, used, name))| (pid, start, used, name))
            .collect()
    });
    proptest::collection::vec(sample, 1..40)
}

fn fates() -> impl Strategy<Value = Vec<Fate>> {
    let fate = prop_oneof![
        6 => Just(Fate::Fine),
        1 => any::<u8>().prop_map(Fate::NoSpace),
        1 => Just(Fate::ReadOnly),
        1 => Just(Fate::NotSynced),
    ];
    proptest::collection::vec(fate, 0..60)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Check that every sample reported as recorded survives write errors and a power loss, and
    /// that everything that is read was recorded.
    #[test]
    fn what_was_recorded_survives(all in samples(), fates in fates(), keeps: u8) {
        let (store, recorded) = record(&all, fates);
        let mut found = BTreeMap::new();
        for (name, bytes) in &store.files {
            // A part of the data that was not synchronised survives.
            let rest = bytes.all.len().saturating_sub(bytes.synced);
            let len = bytes.synced.min(bytes.all.len()) + rest * usize::from(keeps) / 256;
            for (time, tasks, figure) in read(&bytes.all[..len]) {
                if name.starts_with("full") {
                    found.insert(time.wall_ns, (tasks, figure));
                }
            }
        }
        for (index, made) in all.iter().enumerate() {
            match found.get(&time(index).wall_ns) {
                Some((tasks, figure)) => {
                    prop_assert_eq!(tasks, &said(&snapshot(made)));
                    prop_assert_eq!(*figure, Some(index as u64));
                }
                // The failure may be in another tier; the sample is then not reported as recorded.
                None => prop_assert!(!recorded[index], "sample {index}"),
            }
        }
    }

    /// Check that a flipped bit or a truncation loses nothing before it and nothing in other files,
    /// and that nothing is read that was not recorded.
    #[test]
    fn damage_is_seen(all in samples(), at: prop::sample::Index, bit in 0..8_u8, is_cut: bool) {
        let (store, _) = record(&all, Vec::new());
        let bytes = full(&store);
        let whole = read(bytes);
        prop_assert_eq!(whole.len(), all.len());
        let at = at.index(bytes.len());
        let mut damaged = bytes.to_vec();
        if is_cut {
            damaged.truncate(at);
        } else {
            damaged[at] ^= 1 << bit;
        }
        let after = read(&damaged);
        prop_assert_eq!(&whole[..after.len()], &after[..]);
        let before = read(&bytes[..at]);
        prop_assert!(after.len() >= before.len());
        prop_assert!(after.len() < whole.len() || is_cut && at == bytes.len());
    }

    /// Check that arbitrary bytes after a valid beginning are decoded or refused.
    #[test]
    fn any_bytes_end(bytes: Vec<u8>, len in 0..400_usize) {
        let (store, _) = record(&[vec![(1, 1, 1, 1)], vec![(1, 1, 2, 1)]], Vec::new());
        let real = &store.files.values().next().expect("a file").all;
        let mut made = real[..len.min(real.len())].to_vec();
        made.extend_from_slice(&bytes);
        read(&made);
        read(&bytes);
    }
}

/// Check that a file that ends within a sample is reported as torn, and a complete file as whole.
#[test]
fn torn_ends_are_told() {
    let (store, _) = record(&[vec![(1, 1, 1, 1)], vec![(1, 1, 2, 1)]], Vec::new());
    let bytes = full(&store);
    let mut decoder = Decoder::open(bytes[..bytes.len() - 1].to_vec()).unwrap().unwrap();
    assert_eq!(decoder.advance(), Ok(None));
    assert!(matches!(decoder.advance(), Ok(Some(End::Torn(bytes))) if bytes > 0));
    let mut decoder = Decoder::open(bytes.to_vec()).unwrap().unwrap();
    assert_eq!(
        (decoder.advance(), decoder.advance(), decoder.advance()),
        (Ok(None), Ok(None), Ok(Some(End::Whole)))
    );
}

fn part(figures: &Figures, version: u64) -> Part<'_> {
    Part { figures, version }
}

fn whole<'a>(time: Time, tasks: &'a Snapshot, figures: &'a [Part<'a>], happened: &'a IntervalEvents) -> Sample<'a> {
    Sample {
        time,
        tasks,
        others: None,
        figures,
        happened,
    }
}

/// Check that a value that changes and changes back is recorded: records in `others` are compared
/// with the last one of the same task.
#[test]
fn what_changes_back_is_recorded() {
    let all =
        [(0, b'a'), (0, b'a'), (1, b'b'), (1, b'a'), (1, b'a')].map(|(counter, name)| vec![(1, 1, counter, name)]);
    let (store, _) = record(&all, Vec::new());
    let (_, full) = store
        .files
        .iter()
        .find(|(name, _)| name.starts_with("full"))
        .expect("a file");
    let read: Vec<Vec<String>> = read(&full.all).into_iter().map(|(_, tasks, _)| tasks).collect();
    assert_eq!(read, all.map(|made| said(&snapshot(&made))));
}

/// Check that the last part of a file system is left free, that this is reported once, and that
/// recording resumes when there is room.
#[test]
fn the_last_part_is_left_to_others() {
    let mut recorder = Recorder::new(Faulty::default(), About::default(), Keep::Usual);
    let (tasks, happened) = (snapshot(&[(1, 1, 1, 1)]), IntervalEvents::default());
    let sample =
        |recorder: &mut Recorder<Faulty>, index| recorder.record(&whole(time(index), &tasks, &[], &happened), false);
    assert_eq!(sample(&mut recorder, 0), []);
    recorder.store().is_full = true;
    let before = recorder.bytes_written();
    assert!(matches!(&sample(&mut recorder, 1)[..], [Notice::Stopped(reason)] if reason.contains("5 %")));
    assert_eq!((sample(&mut recorder, 2), recorder.bytes_written()), (vec![], before));
    assert!(recorder.needs_all(time(3), false));
    recorder.store().is_full = false;
    // Another reason is reported, too.
    recorder.store().fates = vec![Fate::ReadOnly];
    assert!(matches!(&sample(&mut recorder, 3)[..], [Notice::Stopped(reason)] if reason.contains("read-only")));
    assert_eq!(sample(&mut recorder, 4), [Notice::GoesOn(3)]);
    assert!(recorder.bytes_written() > before);
}

/// Check that a sample that can't be recorded leaves no file.
#[test]
fn what_is_too_large_leaves_nothing() {
    let mut recorder = Recorder::new(Faulty::default(), About::default(), Keep::Usual);
    let (tasks, happened) = (snapshot(&[(1, 1, 1, 1)]), IntervalEvents::default());
    let text = Figure::Text(vec![b'x'; MAX_BYTES + 1].into());
    let figures = Figures::from([((b"host"[..].into(), b"name"[..].into()), text)]);
    let parts = [part(&figures, 1)];
    let notices = recorder.record(&whole(time(0), &tasks, &parts, &happened), false);
    assert!(matches!(&notices[..], [Notice::Stopped(_)]), "{notices:?}");
    assert_eq!(recorder.store().files.len(), 0);
    let notices = recorder.record(&whole(time(1), &tasks, &[], &happened), false);
    assert_eq!(notices, [Notice::GoesOn(1)]);
}

/// Check that samples that are too old are removed although there is no room, and make room.
#[test]
fn old_samples_make_room() {
    let mut store = Faulty {
        is_full: true,
        ..Faulty::default()
    };
    let old = file_name("full", time(0).wall_ns - 2 * 86_400 * 1_000_000_000, 0);
    store.files.insert(old.clone(), Bytes::default());
    let mut recorder = Recorder::new(store, About::default(), Keep::Usual);
    let (tasks, happened) = (snapshot(&[(1, 1, 1, 1)]), IntervalEvents::default());
    assert_eq!(recorder.record(&whole(time(0), &tasks, &[], &happened), false), []);
    assert!(!recorder.store().files.contains_key(&old) && recorder.bytes_written() > 0);
}

/// Records samples at these times, in seconds. Returns how many samples each tier has.
fn counts(every_ns: u64, seconds: impl Iterator<Item = usize>, full_at: usize) -> Vec<(String, usize)> {
    let about = About {
        every_ns,
        ..About::default()
    };
    let mut recorder = Recorder::new(Faulty::default(), about, Keep::Usual);
    let (tasks, happened) = (snapshot(&[(1, 1, 1, 1)]), IntervalEvents::default());
    for second in seconds {
        recorder.store().is_full = second == full_at;
        let at = Time {
            wall_ns: time(0).wall_ns + second as i64 * 1_000_000_000,
            boot_ns: second as u64 * 1_000_000_000,
        };
        recorder.record(&whole(at, &tasks, &[], &happened), false);
    }
    let mut counts = BTreeMap::new();
    for (name, bytes) in &recorder.store().files {
        let tier = name.split('-').next().expect("a tier");
        *counts.entry(tier.to_owned()).or_insert(0) += read(&bytes.all).len();
    }
    counts.into_iter().collect()
}

/// Check that a tier has its sample later if it could not be written when it was due.
#[test]
fn a_sample_stays_due() {
    let counted = |full_at| counts(5_000_000_000, (0..=90).step_by(5), full_at);
    let tiers = |full: usize| [("10min", 1), ("1min", 2), ("full", full)].map(|(tier, count)| (tier.to_owned(), count));
    assert_eq!(counted(usize::MAX), tiers(19));
    assert_eq!(counted(60), tiers(18));
}

/// Check that samples at a long interval are kept as long as those at a short one: all tiers have
/// them.
#[test]
fn long_intervals_are_kept_as_long() {
    // Two samples may be in the same ten minutes, because one is late.
    let seconds = (0..12).map(|index| 599 + index * 600 + index % 2);
    let all = [("10min", 12), ("1min", 12), ("full", 12)].map(|(tier, count)| (tier.to_owned(), count));
    assert_eq!(counts(600_000_000_000, seconds, usize::MAX), all);
}

/// Check that setting the clock begins new files, even if it is set back to a time that was already
/// recorded.
#[test]
fn clocks_may_be_set() {
    let mut recorder = Recorder::new(Faulty::default(), About::default(), Keep::Usual);
    let (tasks, happened) = (snapshot(&[(1, 1, 1, 1)]), IntervalEvents::default());
    recorder.record(&whole(time(0), &tasks, &[], &happened), false);
    let set = Time {
        wall_ns: time(0).wall_ns,
        ..time(1)
    };
    assert!(recorder.needs_all(set, false) && !recorder.needs_all(time(1), false));
    let notices = recorder.record(&whole(set, &tasks, &[], &happened), false);
    assert_eq!(notices, [Notice::ClockSet(-5_000_000_000)]);
    let full = recorder
        .store()
        .files
        .keys()
        .filter(|name| name.starts_with("full"))
        .count();
    assert_eq!(full, 2);
}

/// Check that command lines that are too long or too many are absent with that reason, and that no
/// process can make a sample too large to record.
#[test]
fn command_lines_have_bounds() {
    const PROCESSES: u32 = 400;
    let mut tasks = Snapshot::default();
    tasks.clear(Query::processes().fields(fields()).fields_read());
    let (records, mut indexer) = Indexer::split(&mut tasks);
    for pid in 1..=PROCESSES {
        let mut arguments = vec![b'x'; if pid == 1 { 200_000 } else { 100_000 }];
        arguments[..4].copy_from_slice(&pid.to_ne_bytes());
        let mut writer = Writer::new(records);
        writer.put(attr::BASE, 0, Base::default().as_bytes());
        writer.put(attr::ARGS, 0, &arguments);
        writer.finish(Header {
            pid: U32::new(pid),
            tid: U32::new(pid),
            start_ns: U64::new(10_000_000),
            ..Header::default()
        });
    }
    indexer.index(records, 0).expect("they are records");
    let about = About {
        fields: fields().iter().map(|field| field.name().to_owned()).collect(),
        ..About::default()
    };
    let mut recorder = Recorder::new(Faulty::default(), about, Keep::Usual);
    let happened = IntervalEvents::default();
    assert_eq!(recorder.record(&whole(time(0), &tasks, &[], &happened), false), []);
    let store = std::mem::take(recorder.store());
    let mut decoder = Decoder::open(full(&store).to_vec()).unwrap().unwrap();
    assert_eq!(decoder.advance(), Ok(None));
    let mut read = Snapshot::default();
    read.clear(Query::processes().fields(fields()).fields_read());
    decoder.tasks_into(&Figures::new(), &mut read).expect("a sample");
    let lines: Vec<_> = read
        .tasks()
        .map(|task| task.value(Field::Cmdline).map(|_| ()))
        .collect();
    assert_eq!(lines.len(), PROCESSES as usize);
    let is_there = |line: &&Result<(), Absent>| line.is_ok();
    let there = lines.iter().filter(is_there).count();
    assert_eq!((lines[0], there), (Err(Absent::Truncated), (32 << 20) / 100_000));
    assert!(lines.iter().all(|line| matches!(line, Ok(()) | Err(Absent::Truncated))));
}

/// Check that figures are recorded: changed ones, removed ones, and those of unchanged parts.
#[test]
fn parts_of_figures_have_versions() {
    let mut recorder = Recorder::new(Faulty::default(), About::default(), Keep::Usual);
    let (tasks, happened) = (snapshot(&[(1, 1, 1, 1)]), IntervalEvents::default());
    let figures = |made: &[(&str, u64)]| {
        let mut figures = Figures::new();
        for (key, number) in made {
            figures::set(&mut figures, b"of", key.as_bytes(), Figure::Number(*number));
        }
        figures
    };
    let fast = [
        figures(&[("b", 1)]),
        figures(&[("b", 2)]),
        figures(&[("d", 2)]),
        figures(&[("b", 4)]),
    ];
    let slow = [
        figures(&[("a", 7), ("c", 8)]),
        figures(&[]),
        figures(&[("c", 9), ("e", 1)]),
    ];
    let versions = [(0, 1), (0, 1), (1, 2), (2, 3)];
    for (index, (fast, (slow_index, version))) in fast.iter().zip(versions).enumerate() {
        let parts = [part(fast, 1 + index as u64), part(&slow[slow_index], version)];
        assert_eq!(
            recorder.record(&whole(time(index), &tasks, &parts, &happened), false),
            []
        );
    }
    let store = std::mem::take(recorder.store());
    let mut decoder = Decoder::open(full(&store).to_vec()).unwrap().unwrap();
    for (fast, (slow_index, _)) in fast.iter().zip(versions) {
        assert_eq!(decoder.advance(), Ok(None));
        let mut all = fast.clone();
        all.extend(slow[slow_index].clone());
        assert_eq!(decoder.figures(), Ok(all));
    }
}

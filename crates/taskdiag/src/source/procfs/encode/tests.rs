//! Records made from texts that are written here.

use proptest::prelude::*;
use taskdiag_core::record::Record;
use taskdiag_core::snapshot::Snapshot;
use taskdiag_core::value::Value;

use super::*;

const STAT: &[u8] =
    b"7 (x) S 1 2 3 4 5 6 7 8 9 10 150 12 13 14 20 0 1 0 249641 4096 1 1 1 1 1 1 1 1 1 1 1 1 1 1 17 2 0 0\n";
const ZOMBIE: &[u8] =
    b"7 (x) Z 1 2 3 4 5 6 7 8 9 10 11 12 13 14 20 0 1 0 249641 0 0 1 0 0 0 0 0 0 0 0 0 0 0 0 17 2 0 0\n";

fn encode(fields: Fields, raw: &RawTask<'_>) -> Result<Snapshot, NoRecord> {
    let mut snapshot = Snapshot::default();
    snapshot.clear(fields);
    let plan = Plan::new(fields, Files::NONE);
    Encoder::new(100).encode(&plan, (7, 7), (raw, None), &mut snapshot.records)?;
    snapshot.add_row(0);
    Ok(snapshot)
}

fn texts<'a>(files: &[(Files, Result<&'a [u8], Absent>)]) -> RawTask<'a> {
    let mut raw = RawTask::NONE;
    for &(file, text) in files {
        raw.texts[index(file)] = text;
    }
    raw
}

/// Check that no more files are read than needed.
#[test]
fn plans_are_small() {
    let files = |fields: Fields| Plan::new(fields, Files::NONE).files;
    assert_eq!(files(Field::Pid | Field::Tid), Files::NONE);
    assert_eq!(files(Field::Ppid | Field::Comm), Files::STAT);
    assert_eq!(files(Field::Ppid | Field::Uid), Files::STATUS);
    assert_eq!(files(Field::NsNet.into()), Files::STAT | Files::NS);
    assert_eq!(files(Field::NsNet | Field::Uid), Files::STATUS | Files::NS);
}

/// Check that times are ticks converted to nanoseconds, and that user and system time are not
/// scaled again.
#[test]
fn ticks_become_nanoseconds() {
    let fields = Field::StartNs | Field::UtimeNs | Field::StimeNs;
    let snapshot = encode(fields, &texts(&[(Files::STAT, Ok(STAT))])).unwrap();
    let task = snapshot.task(0);
    assert_eq!(task.start_ns(), Ok(2_496_410_000_000));
    assert_eq!((task.utime_ns(), task.stime_ns()), (Ok(1_500_000_000), Ok(120_000_000)));
    let odd = Encoder::new(1024);
    assert_eq!(odd.nanoseconds(1), 976_562);
    let ticks = u64::MAX / 1_000_000;
    let exact = u128::from(ticks) * 1_000_000_000 / 1024;
    assert_eq!(u128::from(odd.nanoseconds(ticks)), exact);
}

/// Check that each missing field has a reason of its own.
#[test]
fn missing_fields_have_reasons() {
    let fields = Field::Comm
        | Field::Uid
        | Field::Seccomp
        | Field::Nspids
        | Field::RuntimeNs
        | Field::UtimeNs
        | Field::NsNet
        | Field::NsMnt
        | Field::Cgroup
        | Field::CgroupId
        | Field::OomScore
        | Field::OomScoreAdj;
    let mut raw = texts(&[
        (Files::STAT, Ok(STAT)),
        (Files::STATUS, Ok(b"Uid:\t1\t1\t1\t1\n")),
        (Files::SCHEDSTAT, Err(Absent::Unsupported)),
        (Files::CGROUP, Ok(b"1:cpu:/\n")),
        (Files::OOM_SCORE, Ok(b"666\n")),
        (Files::OOM_SCORE_ADJ, Err(Absent::Denied)),
    ]);
    raw.namespaces[2] = Ok(5);
    raw.namespaces[3] = Err(Absent::Denied);
    raw.cgroup_id = Err(Absent::Unsupported);
    let snapshot = encode(fields, &raw).unwrap();
    let task = snapshot.task(0);
    assert_eq!((task.uid(), task.comm()), (Ok(1), Ok(&b"x"[..])));
    assert_eq!(
        (task.seccomp(), task.nspids()),
        (Err(Absent::Unsupported), Err(Absent::Unsupported))
    );
    assert_eq!(
        (task.runtime_ns(), task.utime_ns()),
        (Err(Absent::Unsupported), Ok(1_500_000_000))
    );
    assert_eq!((task.ns_mnt(), task.ns_net()), (Ok(5), Err(Absent::Denied)));
    assert_eq!(
        (task.cgroup(), task.cgroup_id()),
        (Err(Absent::Unsupported), Err(Absent::Unsupported))
    );
    assert_eq!((task.oom_score(), task.oom_score_adj()), (Ok(666), Err(Absent::Denied)));
}

/// Check that an empty command line is an empty list for a process, and absent for a task without
/// memory.
#[test]
fn empty_command_lines_differ() {
    let fields = Field::Cmdline | Field::Comm;
    let snapshot = encode(fields, &texts(&[(Files::STAT, Ok(STAT)), (Files::CMDLINE, Ok(b""))])).unwrap();
    assert!(snapshot.task(0).cmdline().unwrap().is_empty());
    let snapshot = encode(fields, &texts(&[(Files::STAT, Ok(ZOMBIE)), (Files::CMDLINE, Ok(b""))])).unwrap();
    assert_eq!(snapshot.task(0).cmdline(), Err(Absent::NoMemory));
    let snapshot = encode(Field::RssBytes.into(), &texts(&[(Files::STATUS, Ok(b"Threads:\t1\n"))])).unwrap();
    assert_eq!(snapshot.task(0).rss_bytes(), Err(Absent::NoMemory));
}

/// Check that a task that was released during the read, or has a malformed `stat`, has no record.
#[test]
fn released_tasks_have_no_record() {
    let status = b"State:\tX (dead)\nPPid:\t0\nThreads:\t0\n";
    let fields = Field::Ppid | Field::Uid;
    assert_eq!(
        encode(fields, &texts(&[(Files::STATUS, Ok(status))])).unwrap_err(),
        NoRecord::Gone
    );
    assert_eq!(
        encode(Field::Comm.into(), &texts(&[(Files::STAT, Ok(b"no"))])).unwrap_err(),
        NoRecord::Malformed
    );
}

proptest! {
    /// Check that any texts lead to a complete record, and that every field of it can be asked for.
    #[test]
    fn any_texts_make_whole_records(texts in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..80), FILES - 1),
            comm in proptest::collection::vec(1u8.., 0..100)) {
        let mut raw = RawTask::NONE;
        let stat = [b"7 (", &comm[..], STAT.strip_prefix(b"7 (x").unwrap()].concat();
        raw.texts[0] = Ok(&stat);
        for (slot, text) in raw.texts[1..].iter_mut().zip(&texts) {
            *slot = Ok(text);
        }
        let snapshot = encode(Fields::all(), &raw).unwrap();
        let (record, rest) = Record::split_first(&snapshot.records).unwrap();
        prop_assert!(rest.is_empty());
        // What `stat` alone has.
        for part in [attr::BASE, attr::TTY, attr::CPU, attr::FAULTS] {
            prop_assert!(record.attribute(part).is_some(), "{}", part);
        }
        for &field in Field::ALL {
            let value = snapshot.task(0).value(field);
            if field == Field::Comm {
                prop_assert_eq!(value, Ok(Value::Text(&comm)));
            }
        }
    }
}

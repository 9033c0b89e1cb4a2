//! Derived fields. A pure function makes their values from those of other fields.
//!
//! Everything else that they depend on, such as the time and the names of users, is in the
//! [`Context`]. If a value that a derived value is made of is absent, the derived value is absent
//! for the same reason. For a task without a terminal, unit or container the value is an empty
//! text: this is a known value, not an absent one.

use std::io::Write as _;

use jiff::Timestamp;
use zerocopy::native_endian::{U16, U32};
use zerocopy::IntoBytes as _;

use crate::absent::Absent;
use crate::cgroup::{self, Container, Runtime};
use crate::field::{Field, Fields, Group};
use crate::filter::HasFields;
use crate::record::{attr, AbsentField, Header, Writer, HAS_ABSENT};
use crate::text::process::hierarchies;
use crate::value::Value;

const SECOND_NS: i64 = 1_000_000_000;

/// What derived values depend on besides other values.
#[derive(Clone, Copy)]
#[allow(missing_debug_implementations)]
pub struct Context<'a> {
    /// Time since boot when the answer was complete (`CLOCK_BOOTTIME`), in nanoseconds.
    pub now_ns: u64,
    /// When the machine booted according to the clock's present setting: nanoseconds since 1970.
    pub boot_ns: i64,
    /// A clock tick of `/proc`, in nanoseconds.
    pub tick_ns: u64,
    /// The memory of the machine. 0 if that is not known.
    pub memory_bytes: u64,
    /// Whether version 1 hierarchies are in use. Containers and units may have cgroups in those and
    /// none in the unified hierarchy: [`Field::Cgroups`] has them.
    pub has_cgroup1: bool,
    /// For percentages of processor time over part of a task's life: the processor time used before
    /// that part, and the length of the part, both in nanoseconds.
    pub part: Option<(u64, u64)>,
    /// The source of names.
    pub names: &'a dyn Names,
}

/// Names from outside the kernel: the user database, `/dev`, container runtimes.
pub trait Names {
    /// The name of a user, or its number in decimal.
    fn user(&self, uid: u32) -> Result<&[u8], Absent>;
    /// The name of a group, or its number in decimal.
    fn group(&self, gid: u32) -> Result<&[u8], Absent>;
    /// The name of the terminal with a device number, without `/dev/`.
    fn terminal(&self, device: u32) -> Result<&[u8], Absent>;
    /// The runtime of the container with an id.
    fn container_runtime(&self, id: &[u8]) -> Result<Runtime, Absent>;
    /// The name of the container with an id.
    fn container_name(&self, id: &[u8]) -> Result<&[u8], Absent>;
}

/// Appends the value of a derived field, in the form that
/// [`FromDerived`](crate::value::FromDerived) reads. Appends nothing if it is absent.
pub fn derive(field: Field, task: &impl HasFields, context: &Context<'_>, out: &mut Vec<u8>) -> Result<(), Absent> {
    let value = |field| task.value(field);
    let elapsed_ns = || {
        let elapsed_ns = i128::from(context.now_ns) - i128::from(signed(task, Field::StartNs)?);
        Ok::<_, Absent>(u64::try_from(elapsed_ns).unwrap_or(0))
    };
    match field {
        Field::User => out.extend_from_slice(context.names.user(id(task, Field::Euid)?)?),
        Field::Group => out.extend_from_slice(context.names.group(id(task, Field::Egid)?)?),
        Field::CpuPercent => {
            let used = number(task, Field::UtimeNs)?.saturating_add(number(task, Field::StimeNs)?);
            let (before, time) = match context.part {
                Some(part) => part,
                None => (0, elapsed_ns()?),
            };
            out.extend_from_slice(&percent(used.saturating_sub(before), time.max(1)).to_ne_bytes());
        }
        Field::MemPercent => {
            let resident = number(task, Field::RssBytes)?;
            if context.memory_bytes == 0 {
                return Err(Absent::Unsupported);
            }
            out.extend_from_slice(&percent(resident, context.memory_bytes).to_ne_bytes());
        }
        Field::ElapsedNs => out.extend_from_slice(&elapsed_ns()?.to_ne_bytes()),
        Field::StartTime => start_time(signed(task, Field::StartNs)?, context, out)?,
        Field::Stat => stat(task, out)?,
        Field::Tty => match id(task, Field::TtyNr)? {
            0 => {}
            device => out.extend_from_slice(context.names.terminal(device)?),
        },
        Field::Unit => out.extend_from_slice(of_cgroup(value, context.has_cgroup1, cgroup::unit)?.unwrap_or_default()),
        Field::UserUnit => {
            out.extend_from_slice(of_cgroup(value, context.has_cgroup1, cgroup::user_unit)?.unwrap_or_default());
        }
        Field::Slice => {
            let slice = of_cgroup(value, context.has_cgroup1, cgroup::slice)?;
            out.extend_from_slice(slice.unwrap_or(cgroup::ROOT_SLICE));
        }
        Field::ContainerId | Field::ContainerName | Field::ContainerRuntime => {
            if let Some(container) = of_cgroup(value, context.has_cgroup1, cgroup::container)? {
                of_container(field, container, context, out)?;
            }
        }
        Field::PodUid => {
            if let Some(uid) = of_cgroup(value, context.has_cgroup1, cgroup::pod_uid)? {
                cgroup::pod_uid_text(uid, out);
            }
        }
        _ => return Err(Absent::Unsupported),
    }
    Ok(())
}

fn of_container(
    field: Field,
    container: Container<'_>,
    context: &Context<'_>,
    out: &mut Vec<u8>,
) -> Result<(), Absent> {
    match (field, container.runtime) {
        (Field::ContainerRuntime, Some(runtime)) => out.extend_from_slice(runtime.name().as_bytes()),
        (Field::ContainerRuntime, None) => {
            let runtime = context.names.container_runtime(container.id)?;
            out.extend_from_slice(runtime.name().as_bytes());
        }
        _ if container.is_name => cgroup::unescape(container.id, out),
        (Field::ContainerName, _) => out.extend_from_slice(context.names.container_name(container.id)?),
        _ => out.extend_from_slice(container.id),
    }
    Ok(())
}

/// `part` in percent of `whole`, to a thousandth.
fn percent(part: u64, whole: u64) -> f64 {
    let (part, whole) = (u128::from(part), u128::from(whole));
    ((part * 100_000 + whole / 2) / whole) as f64 / 1000.0
}

/// The second in which a task started. Uses only whole ticks: some sources know no more, and all
/// should give the same value.
fn start_time(start_ns: i64, context: &Context<'_>, out: &mut Vec<u8>) -> Result<(), Absent> {
    // The kernel divides negative numbers as unsigned ones.
    let into_tick = start_ns as u64 % context.tick_ns.max(1);
    let ticks_ns = start_ns.checked_sub_unsigned(into_tick);
    let started_ns = ticks_ns.and_then(|since_boot| since_boot.checked_add(context.boot_ns));
    let second = started_ns.ok_or(Absent::Unsupported)?.div_euclid(SECOND_NS);
    let time = Timestamp::from_second(second).map_err(|_| Absent::Unsupported)?;
    write!(out, "{time}").map_err(|_| Absent::Unsupported)
}

/// The letters that ps(1) shows, in its order.
fn stat(task: &impl HasFields, out: &mut Vec<u8>) -> Result<(), Absent> {
    let Value::Letter(state) = task.value(Field::State)? else {
        return Err(Absent::Unsupported);
    };
    let nice = signed(task, Field::Nice)?;
    let locked_bytes = match number(task, Field::LockedBytes) {
        Err(Absent::NoMemory) => 0,
        locked => locked?,
    };
    let leads_session = number(task, Field::Sid)? == number(task, Field::Pid)?;
    let threads = number(task, Field::ThreadsCount)?;
    let pgid = number(task, Field::Pgid)?;
    let is_in_foreground = match signed(task, Field::Tpgid) {
        Err(Absent::NotApplicable) => false,
        tpgid => i64::try_from(pgid) == Ok(tpgid?),
    };
    out.extend_from_slice(state.encode_utf8(&mut [0; 4]).as_bytes());
    for (letter, is_so) in [
        (b'<', nice < 0),
        (b'N', nice > 0),
        (b'L', locked_bytes > 0),
        (b's', leads_session),
        (b'l', threads > 1),
        (b'+', is_in_foreground),
    ] {
        if is_so {
            out.push(letter);
        }
    }
    Ok(())
}

fn number(task: &impl HasFields, field: Field) -> Result<u64, Absent> {
    match task.value(field)? {
        Value::Unsigned(number) => Ok(number),
        _ => Err(Absent::Unsupported),
    }
}

fn id(task: &impl HasFields, field: Field) -> Result<u32, Absent> {
    u32::try_from(number(task, field)?).map_err(|_| Absent::Unsupported)
}

fn signed(task: &impl HasFields, field: Field) -> Result<i64, Absent> {
    match task.value(field)? {
        Value::Signed(number) => Ok(number),
        Value::Unsigned(number) => i64::try_from(number).map_err(|_| Absent::Unsupported),
        _ => Err(Absent::Unsupported),
    }
}

/// What `find` finds in the path of the task's cgroup. Where version 1 hierarchies are in use, the
/// path in one of them may tell what the path in the unified hierarchy does not: then systemd's own
/// hierarchy is asked before those of controllers.
pub fn of_cgroup<'a, T>(
    value: impl Fn(Field) -> Result<Value<'a>, Absent>,
    has_cgroup1: bool,
    find: impl Fn(&'a [u8]) -> Option<T>,
) -> Result<Option<T>, Absent> {
    let text = |field| match value(field)? {
        Value::Text(text) => Ok(text),
        _ => Err(Absent::Unsupported),
    };
    let unified = text(Field::Cgroup);
    if !has_cgroup1 {
        return unified.map(find);
    }
    if let Some(found) = unified.ok().and_then(&find) {
        return Ok(Some(found));
    }
    let lines = text(Field::Cgroups)?;
    // The lines may be of a later moment than the path of an event, which they do not replace.
    let hierarchies = |lines| hierarchies(lines).filter(|(name, _)| unified.is_err() || !name.is_empty());
    let of_systemd = |&(name, _): &(&[u8], &[u8])| name == b"name=systemd";
    let others = hierarchies(lines).filter(|hierarchy| !of_systemd(hierarchy));
    let mut paths = hierarchies(lines).filter(of_systemd).chain(others);
    Ok(paths.find_map(|(_, path)| find(path)))
}

/// Makes records of derived values. Keep it to reuse its memory.
#[derive(Debug, Default)]
pub struct Maker {
    fields: Vec<Field>,
    value: Vec<u8>,
    absent: Vec<AbsentField>,
}

impl Maker {
    /// Begins an answer with the derived fields that are among `fields`.
    pub fn begin(&mut self, fields: Fields) {
        self.fields.clear();
        let derived = fields.iter().filter(|field| field.group() == Group::Derived);
        self.fields.extend(derived);
    }

    /// Appends a record with the values of one task. Returns where it begins.
    pub fn put(&mut self, task: &impl HasFields, context: &Context<'_>, records: &mut Vec<u8>) -> usize {
        let place = records.len();
        let mut writer = Writer::new(records);
        self.absent.clear();
        for &field in &self.fields {
            self.value.clear();
            match derive(field, task, context, &mut self.value) {
                Ok(()) => writer.put(attr::DERIVED, field as u16, &self.value),
                Err(reason) => self.absent.push(AbsentField {
                    field: U16::new(field as u16),
                    reason: U16::new(reason as u16),
                }),
            }
        }
        let mut flags = 0;
        if !self.absent.is_empty() {
            writer.put(attr::ABSENT, 0, self.absent.as_bytes());
            flags = HAS_ABSENT;
        }
        writer.finish(Header {
            flags: U32::new(flags),
            ..Header::default()
        });
        place
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::filter::tests::Made;
    use crate::snapshot::{Place, Snapshot};
    use crate::value::FromDerived as _;

    /// Has some names.
    struct Known;

    impl Names for Known {
        fn user(&self, uid: u32) -> Result<&[u8], Absent> {
            match uid {
                0 => Ok(b"root"),
                _ => Err(Absent::NoAnswer),
            }
        }

        fn group(&self, gid: u32) -> Result<&[u8], Absent> {
            self.user(gid)
        }

        fn terminal(&self, device: u32) -> Result<&[u8], Absent> {
            match device {
                0x8803 => Ok(b"pts/3"),
                _ => Err(Absent::Gone),
            }
        }

        fn container_runtime(&self, _: &[u8]) -> Result<Runtime, Absent> {
            Ok(Runtime::CriO)
        }

        fn container_name(&self, _: &[u8]) -> Result<&[u8], Absent> {
            Ok(b"web")
        }
    }

    const TICK_NS: u64 = 10_000_000;

    fn context() -> Context<'static> {
        let boot: Timestamp = "2026-11-23T03:12:05.995Z".parse().unwrap();
        Context {
            now_ns: 100 * SECOND_NS as u64,
            boot_ns: boot.as_nanosecond() as i64,
            tick_ns: TICK_NS,
            memory_bytes: 1 << 30,
            has_cgroup1: false,
            part: None,
            names: &Known,
        }
    }

    fn derived(field: Field, row: &Made) -> Result<Vec<u8>, Absent> {
        let mut out = Vec::new();
        let result = derive(field, row, &context(), &mut out);
        assert!(result.is_ok() || out.is_empty(), "{field}");
        result.map(|()| out)
    }

    fn text(field: Field, row: &Made) -> Result<String, Absent> {
        derived(field, row).map(|bytes| String::from_utf8(bytes).unwrap())
    }

    fn row(values: &[(Field, Value<'static>)]) -> Made {
        Made(values.iter().map(|&(field, value)| (field, Ok(value))).collect())
    }

    /// Check that percentages are of the right whole, and are rounded to a thousandth.
    #[test]
    fn percentages_are_of_their_whole() {
        let float = |field, row: &Made| derived(field, row).map(|bytes| f64::from_bytes(&bytes).unwrap());
        let half = row(&[
            (Field::StartNs, Value::Unsigned(80 * SECOND_NS as u64)),
            (Field::UtimeNs, Value::Unsigned(7 * SECOND_NS as u64)),
            (Field::StimeNs, Value::Unsigned(3 * SECOND_NS as u64)),
            (Field::RssBytes, Value::Unsigned(1 << 20)),
        ]);
        assert_eq!(float(Field::CpuPercent, &half), Ok(50.0));
        assert_eq!(float(Field::MemPercent, &half), Ok(0.098));
        assert_eq!(
            derived(Field::ElapsedNs, &half).map(|bytes| u64::from_bytes(&bytes)),
            Ok(Some(20_000_000_000))
        );
        // Older than the zero of the clock.
        let old = row(&[
            (Field::StartNs, Value::from(-100 * SECOND_NS)),
            (Field::UtimeNs, Value::Unsigned(7 * SECOND_NS as u64)),
            (Field::StimeNs, Value::Unsigned(3 * SECOND_NS as u64)),
        ]);
        assert_eq!(float(Field::CpuPercent, &old), Ok(5.0));
        assert_eq!(
            derived(Field::ElapsedNs, &old).map(|bytes| u64::from_bytes(&bytes)),
            Ok(Some(200_000_000_000))
        );
        let fresh = row(&[
            (Field::StartNs, Value::Unsigned(101 * SECOND_NS as u64)),
            (Field::UtimeNs, Value::Unsigned(0)),
            (Field::StimeNs, Value::Unsigned(0)),
        ]);
        assert_eq!(float(Field::CpuPercent, &fresh), Ok(0.0));
        // Of ten seconds, after six had been used before: four of ten.
        let part = Context {
            part: Some((6 * SECOND_NS as u64, 10 * SECOND_NS as u64)),
            ..context()
        };
        let mut out = Vec::new();
        assert_eq!(derive(Field::CpuPercent, &half, &part, &mut out), Ok(()));
        assert_eq!(f64::from_bytes(&out), Some(40.0));
        let unknown = Context {
            memory_bytes: 0,
            ..context()
        };
        assert_eq!(
            derive(Field::MemPercent, &half, &unknown, &mut Vec::new()),
            Err(Absent::Unsupported)
        );
    }

    /// Check that the start is the same second, whether nanoseconds or ticks are known.
    #[test]
    fn starts_are_told_in_seconds() {
        for (start_ns, expected) in [
            (0, "2026-11-23T03:12:05Z"),
            (9_999_999, "2026-11-23T03:12:05Z"),
            (10_000_000, "2026-11-23T03:12:06Z"),
            (19_999_999, "2026-11-23T03:12:06Z"),
            (86_400_000_000_000, "2026-11-24T03:12:05Z"),
        ] {
            for start_ns in [start_ns, start_ns - start_ns % TICK_NS] {
                let row = row(&[(Field::StartNs, Value::Unsigned(start_ns))]);
                assert_eq!(text(Field::StartTime, &row), Ok(expected.to_owned()), "{start_ns}");
            }
        }
        let before = row(&[(Field::StartNs, Value::from(-10_000_001_i64))]);
        assert_eq!(text(Field::StartTime, &before), Ok("2026-11-23T03:12:05Z".to_owned()));
        let never = row(&[(Field::StartNs, Value::Unsigned(u64::MAX))]);
        assert_eq!(text(Field::StartTime, &never), Err(Absent::Unsupported));
    }

    /// Check each letter of `stat`, and that only what is made of absent values is absent.
    #[test]
    fn letters_of_stat() {
        let plain = [
            (Field::State, Value::Letter('S')),
            (Field::Nice, Value::Signed(0)),
            (Field::LockedBytes, Value::Unsigned(0)),
            (Field::Pid, Value::Unsigned(7)),
            (Field::Sid, Value::Unsigned(1)),
            (Field::ThreadsCount, Value::Unsigned(1)),
            (Field::Pgid, Value::Unsigned(0)),
            (Field::Tpgid, Value::Signed(2)),
        ];
        assert_eq!(text(Field::Stat, &row(&plain)), Ok("S".to_owned()));
        for (field, value, expected) in [
            (Field::State, Value::Letter('R'), "R"),
            (Field::Nice, Value::Signed(-1), "S<"),
            (Field::Nice, Value::Signed(1), "SN"),
            (Field::LockedBytes, Value::Unsigned(4096), "SL"),
            (Field::Sid, Value::Unsigned(7), "Ss"),
            (Field::ThreadsCount, Value::Unsigned(2), "Sl"),
            (Field::Tpgid, Value::Signed(0), "S+"),
        ] {
            let mut changed = row(&plain);
            changed
                .0
                .iter_mut()
                .filter(|(has, _)| *has == field)
                .for_each(|(_, has)| *has = Ok(value));
            assert_eq!(text(Field::Stat, &changed), Ok(expected.to_owned()));
        }
        for (field, reason, expected) in [
            (Field::LockedBytes, Absent::NoMemory, Ok("S".to_owned())),
            (Field::LockedBytes, Absent::Denied, Err(Absent::Denied)),
            (Field::Tpgid, Absent::Gone, Err(Absent::Gone)),
            (Field::Tpgid, Absent::NotApplicable, Ok("S".to_owned())),
        ] {
            let mut lacking = row(&plain);
            lacking
                .0
                .iter_mut()
                .filter(|(has, _)| *has == field)
                .for_each(|(_, has)| *has = Err(reason));
            assert_eq!(text(Field::Stat, &lacking), expected);
        }
    }

    /// Check that names come from the context, and that a task without a terminal or container has
    /// an empty text.
    #[test]
    fn names_come_from_the_context() {
        let in_pod: &'static str = format!("/kubepods/pod{}/{}", "a".repeat(32), "b".repeat(64)).leak();
        let some = row(&[
            (Field::Euid, Value::Unsigned(0)),
            (Field::Egid, Value::Unsigned(5)),
            (Field::TtyNr, Value::Unsigned(0x8803)),
            (Field::Cgroup, Value::Text(in_pod.as_bytes())),
        ]);
        let none = row(&[
            (Field::TtyNr, Value::Unsigned(0)),
            (Field::Cgroup, Value::Text(b"/system.slice/cron.service")),
        ]);
        let machine = row(&[
            (Field::TtyNr, Value::Unsigned(1)),
            (
                Field::Cgroup,
                Value::Text(b"/machine.slice/machine-a\\x2db.scope/payload"),
            ),
        ]);
        let ok = |text: &str| Ok(text.to_owned());
        for (field, of_some, of_none, of_machine) in [
            (Field::User, ok("root"), Err(Absent::NotAsked), Err(Absent::NotAsked)),
            (
                Field::Group,
                Err(Absent::NoAnswer),
                Err(Absent::NotAsked),
                Err(Absent::NotAsked),
            ),
            (Field::Tty, ok("pts/3"), ok(""), Err(Absent::Gone)),
            (Field::Unit, ok(""), ok("cron.service"), ok("machine-a\\x2db.scope")),
            (Field::UserUnit, ok(""), ok(""), ok("")),
            (Field::Slice, ok("-.slice"), ok("system.slice"), ok("machine.slice")),
            (Field::ContainerId, ok(&"b".repeat(64)), ok(""), ok("a-b")),
            (Field::ContainerName, ok("web"), ok(""), ok("a-b")),
            (Field::ContainerRuntime, ok("cri-o"), ok(""), ok("systemd-nspawn")),
            (Field::PodUid, ok(&"a".repeat(32)), ok(""), ok("")),
        ] {
            assert_eq!(text(field, &some), of_some, "{field}");
            assert_eq!(text(field, &none), of_none, "{field}");
            assert_eq!(text(field, &machine), of_machine, "{field}");
        }
        let cgroup1 = Context {
            has_cgroup1: true,
            ..context()
        };
        // Version 1 hierarchies name what the unified one does not, and systemd's own comes first.
        let in_pod = in_pod.trim_start_matches('/');
        let lines = format!("4:memory:/a.slice/{in_pod}\n1:name=systemd:/b.slice/x.service\n0::/");
        let row1 = |unified: &'static str, lines: &str| {
            let lines: &'static str = lines.to_owned().leak();
            row(&[
                (Field::Cgroup, Value::Text(unified.as_bytes())),
                (Field::Cgroups, Value::Text(lines.as_bytes())),
            ])
        };
        let (other, outside) = (
            row1("/", &lines),
            row1("/c.slice/y.service", "1:name=systemd:/\n0::/c.slice/y.service"),
        );
        let unknown = row(&[(Field::Cgroup, Value::Text(b"/"))]);
        for (field, of_other, of_outside) in [
            (Field::Unit, "x.service", "y.service"),
            (Field::Slice, "b.slice", "c.slice"),
            (Field::ContainerName, "web", ""),
            (Field::PodUid, &"a".repeat(32), ""),
        ] {
            let derived = |task| {
                let mut out = Vec::new();
                derive(field, task, &cgroup1, &mut out).map(|()| String::from_utf8(out).unwrap())
            };
            assert_eq!(derived(&other), ok(of_other), "{field}");
            assert_eq!(derived(&outside), ok(of_outside), "{field}");
            assert_eq!(derived(&unknown), Err(Absent::NotAsked), "{field}");
        }
    }

    /// Check that each derived field can be derived, and reads exactly the fields that the table
    /// names.
    #[test]
    fn fields_are_made_of_what_the_table_says() {
        struct Watched(std::cell::RefCell<Fields>);
        impl HasFields for Watched {
            fn value(&self, field: Field) -> Result<Value<'_>, Absent> {
                self.0.borrow_mut().insert(field);
                Ok(match field {
                    Field::State => Value::Letter('S'),
                    Field::Nice | Field::Tpgid => Value::Signed(0),
                    Field::Cgroup => Value::Text(b"/"),
                    _ => Value::Unsigned(0),
                })
            }
        }
        for field in Fields::of_group(Group::Derived).iter() {
            let watched = Watched(Fields::NONE.into());
            assert_eq!(derive(field, &watched, &context(), &mut Vec::new()), Ok(()), "{field}");
            let made_of: Fields = field.info().made_of.iter().copied().collect();
            assert_eq!(watched.0.into_inner(), made_of, "{field}");
            assert_ne!(made_of, Fields::NONE);
        }
        assert_eq!(
            derive(Field::Pid, &row(&[]), &context(), &mut Vec::new()),
            Err(Absent::Unsupported)
        );
    }

    /// Check that values and reasons are read from a snapshot as they were written.
    #[test]
    fn records_are_read_again() {
        let fields = Field::User | Field::Group | Field::ElapsedNs | Field::MemPercent | Field::Tty | Field::Pid;
        let made = row(&[
            (Field::Euid, Value::Unsigned(0)),
            (Field::Egid, Value::Unsigned(5)),
            (Field::StartNs, Value::Unsigned(1)),
            (Field::RssBytes, Value::Unsigned(1 << 29)),
            (Field::TtyNr, Value::Unsigned(0)),
        ]);
        let mut snapshot = Snapshot::default();
        snapshot.clear(fields);
        Writer::new(&mut snapshot.records).finish(Header::default());
        snapshot.add_row(0);
        assert_eq!(snapshot.task(0).user(), Err(Absent::Unsupported));
        let mut maker = Maker::default();
        maker.begin(fields);
        let place = maker.put(&made, &context(), &mut snapshot.records);
        let mut more = Vec::new();
        snapshot.rows[0].more(&mut more).derived = Some(Place::own(place));
        snapshot.more = more;
        let task = snapshot.task(0);
        assert_eq!(task.user(), Ok(&b"root"[..]));
        assert_eq!(task.group(), Err(Absent::NoAnswer));
        assert_eq!(task.elapsed_ns(), Ok(99_999_999_999));
        assert_eq!(task.mem_percent(), Ok(50.0));
        assert_eq!(task.tty(), Ok(&b""[..]));
        assert_eq!(task.stat(), Err(Absent::NotAsked));
        assert_eq!(task.pid(), Ok(0));
    }
}

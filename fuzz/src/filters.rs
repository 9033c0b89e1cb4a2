//! Filters: any text is parsed, or refused with the position of the error. A filter that is printed
//! and parsed again decides the same. A task that passes a filter passes each of its parts, and the
//! kernel's tests.

use taskdiag_core::absent::Absent;
use taskdiag_core::field::{Field, Group, Kind};
use taskdiag_core::filter::{Filter, HasFields};
use taskdiag_core::record::{value, KernelTest, TESTS};
use taskdiag_core::value::{Arguments, Ids, Value};
use zerocopy::IntoBytes as _;

pub fn run(data: &[u8]) {
    // The expression, a NUL, and the bytes that determine the task's values.
    let end = data.iter().position(|&byte| byte == 0).unwrap_or(data.len());
    let task = Task(data.get(end + 1..).unwrap_or_default());
    let Ok(text) = std::str::from_utf8(&data[..end]) else {
        return;
    };
    let names = |_, name: &[u8]| name.first().map(|&byte| byte.into());
    let filter = match Filter::parse_with_names(text, &names) {
        Ok(filter) => filter,
        Err(error) => {
            assert!(text.is_char_boundary(error.at));
            let _ = error.to_string();
            return;
        }
    };

    let printed = filter.to_string();
    let again = Filter::parse_with_names(&printed, &names).unwrap_or_else(|error| panic!("{printed:?}: {error}"));
    assert_eq!(again.to_string(), printed);
    assert_eq!(again.fields(), filter.fields());
    let decided = filter.decide(&task);
    assert_eq!(again.decide(&task), decided, "{printed:?}");

    // The filter requires all of these parts.
    let parts = Group::ALL
        .into_iter()
        .map(|group| filter.part_without(|field| field.group() == group))
        .chain([filter.cheap_part()]);
    for part in parts.flatten() {
        assert!(
            decided != Some(true) || part.decide(&task) == Some(true),
            "{part} of {printed:?}"
        );
    }
    let kernel = filter.kernel_tests(&|path| path.first().map(|&byte| byte.into()));
    assert!(kernel.tests.len() <= TESTS);
    let clauses = kernel.tests.chunk_by(|one, next| one.clause == next.clause);
    let passes = clauses
        .into_iter()
        .all(|clause| clause.iter().any(|test| task.holds(test)));
    assert!(decided != Some(true) || passes, "{kernel} of {printed:?}");
}

/// A task with values of any kind, some of them absent.
struct Task<'a>(&'a [u8]);

impl Task<'_> {
    fn number(&self, at: usize) -> u64 {
        let mut bytes = [0; 8];
        for (byte, from) in bytes.iter_mut().zip(self.0.iter().cycle().skip(at)) {
            *byte = *from;
        }
        u64::from_ne_bytes(bytes)
    }

    fn text(&self, at: usize) -> &[u8] {
        self.0[at..].split(|&byte| byte == 0).next().unwrap_or_default()
    }

    /// `test_holds()` of bpf/task/tests.bpf.h. The kernel has a value where the task here has none,
    /// so such a test may hold.
    fn holds(&self, test: &KernelTest) -> bool {
        let what = test.what.get();
        let Some((_, field)) = TESTED.iter().find(|(number, _)| *number == what) else {
            return true;
        };
        let number = match self.value(*field) {
            Ok(Value::Unsigned(number)) => number as i64,
            Ok(Value::Signed(number)) => number,
            Ok(Value::Flag(flag)) => flag.into(),
            Ok(Value::Letter(letter)) => u32::from(letter).into(),
            Ok(Value::Text(name)) => {
                let mut comm = [0; 16];
                let len = name.len().min(15);
                comm[..len].copy_from_slice(&name[..len]);
                let (value, mask) = (test.value.as_bytes(), test.mask.as_bytes());
                return (0..16).all(|at| (comm[at] ^ value[at]) & mask[at] == 0);
            }
            _ => return true,
        };
        let wanted = test.value[0].get() as i64;
        match test.relation.get() {
            0 => number == wanted,
            1 => number != wanted,
            2 => number < wanted,
            3 => number <= wanted,
            4 => number > wanted,
            _ => number >= wanted,
        }
    }
}

/// The fields that the kernel can test, except cgroups.
const TESTED: [(u32, Field); 21] = [
    (value::PID, Field::Pid),
    (value::TID, Field::Tid),
    (value::PPID, Field::Ppid),
    (value::PGID, Field::Pgid),
    (value::SID, Field::Sid),
    (value::STATE, Field::State),
    (value::COMM, Field::Comm),
    (value::THREADS_COUNT, Field::ThreadsCount),
    (value::KERNEL_THREAD, Field::KernelThread),
    (value::TTY_NR, Field::TtyNr),
    (value::UID, Field::Uid),
    (value::EUID, Field::Euid),
    (value::SUID, Field::Suid),
    (value::FSUID, Field::Fsuid),
    (value::GID, Field::Gid),
    (value::EGID, Field::Egid),
    (value::SGID, Field::Sgid),
    (value::FSGID, Field::Fsgid),
    (value::NICE, Field::Nice),
    (value::POLICY, Field::Policy),
    (value::OOM_SCORE_ADJ, Field::OomScoreAdj),
];

impl HasFields for Task<'_> {
    fn value(&self, field: Field) -> Result<Value<'_>, Absent> {
        let Some(len) = self.0.len().checked_sub(1) else {
            return Err(Absent::Denied);
        };
        // A different place for each field.
        let at = field as usize % (len + 1);
        if self.0[at] == 0 {
            return Err(Absent::Gone);
        }
        let number = self.number(at);
        Ok(match field.info().kind {
            // The width of the kernel's type.
            Kind::Id | Kind::User | Kind::GroupId | Kind::Count => Value::Unsigned(number as u32 as u64),
            Kind::Signed => Value::Signed((number as i32).into()),
            Kind::Flag => Value::Flag(number % 2 == 1),
            Kind::Letter => Value::Letter(char::from(self.0[at] & 0x7f)),
            Kind::Text => Value::Text(self.text(at)),
            Kind::Texts => Value::Texts(Arguments::new(&self.0[at..])),
            Kind::Ids => Value::Ids(Ids::new(&self.0[at..])),
            Kind::Capabilities | Kind::Signals | Kind::Mask => Value::Mask(number),
            Kind::Cpus | Kind::Limits => return Err(Absent::Unsupported),
            _ => Value::Unsigned(number),
        })
    }
}

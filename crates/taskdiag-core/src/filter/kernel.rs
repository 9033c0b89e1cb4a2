//! The part of a filter that the kernel's side can decide.
//!
//! It decides only against tasks: those that pass are looked at again, with the whole filter, where their records are read.
//! So a test here may be weaker than what was written, and never stronger.

use std::fmt;

use zerocopy::native_endian::{U16, U32, U64};

use super::{Comparison, Conjunct, Expression, Relation, Test};
use crate::field::Field;
use crate::record::{value, KernelTest, TESTS};

/// Tests for the kernel: all of those with one number in `clause` in a row, at least one has to hold.
#[derive(Clone, Debug, Default)]
#[doc(hidden)]
pub struct KernelTests {
    pub tests: Vec<KernelTest>,
    /// What they test, in the words of the filter.
    pub text: Vec<String>,
}

impl fmt::Display for KernelTests {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text.join(" and "))
    }
}

/// Makes tests of those conjuncts that the kernel's side can decide, as far as there is room for them.
#[doc(hidden)]
pub fn tests(conjuncts: &[Conjunct<'_>], cgroup_id: &dyn Fn(&[u8]) -> Option<u64>) -> KernelTests {
    let mut kernel = KernelTests::default();
    for conjunct in conjuncts {
        let mut clause = Vec::new();
        if !add(conjunct.expression, conjunct.is_negated, cgroup_id, &mut clause)
            || kernel.tests.len() + clause.len() > TESTS
        {
            continue;
        }
        let number = kernel.text.len() as u16;
        clause.iter_mut().for_each(|test| test.clause = U16::new(number));
        kernel.tests.extend(clause);
        kernel.text.push(conjunct.to_string());
    }
    kernel
}

/// Adds the alternatives of a clause. False if one of them is not for the kernel, for then the clause is not either.
fn add(
    expression: &Expression,
    is_negated: bool,
    cgroup_id: &dyn Fn(&[u8]) -> Option<u64>,
    clause: &mut Vec<KernelTest>,
) -> bool {
    match (expression, is_negated) {
        (Expression::Any(parts), false) | (Expression::All(parts), true) => {
            parts.iter().all(|part| add(part, is_negated, cgroup_id, clause))
        }
        (Expression::All(parts), false) | (Expression::Any(parts), true) => match parts.as_slice() {
            [part] => add(part, is_negated, cgroup_id, clause),
            _ => false,
        },
        (Expression::Not(part), _) => add(part, !is_negated, cgroup_id, clause),
        (Expression::Test(test), _) => match kernel_test(test, is_negated, cgroup_id) {
            Some(test) => {
                clause.push(test);
                true
            }
            None => false,
        },
    }
}

fn kernel_test(test: &Test, is_negated: bool, cgroup_id: &dyn Fn(&[u8]) -> Option<u64>) -> Option<KernelTest> {
    let made = |what: u32, relation: Relation, value: [u64; 2], mask: [u64; 2]| KernelTest {
        what: U32::new(what),
        relation: U16::new(if !is_negated { relation } else { relation.negated() } as u16),
        clause: U16::new(0),
        value: value.map(U64::new),
        mask: mask.map(U64::new),
    };
    match &test.comparison {
        Comparison::Number(relation, number) => {
            let what = value_of(test.field)?;
            // All that is compared fits; a number that does not is left to be compared here.
            let number = i64::try_from(*number).ok()?;
            Some(made(what, *relation, [number as u64, 0], [u64::MAX, 0]))
        }
        Comparison::Text(relation, text) if test.field == Field::State => match text.as_slice() {
            &[letter] => Some(made(value::STATE, *relation, [letter.into(), 0], [u64::MAX, 0])),
            _ => None,
        },
        // `comm` of a kernel thread is the beginning of the name that /proc shows, so that only beginnings can be tested, and
        // only for being the same.
        Comparison::Text(Relation::Equal, text) if test.field == Field::Comm && !is_negated => {
            Some(beginning(text, &made))
        }
        Comparison::Pattern(pattern) if test.field == Field::Comm && !is_negated && !pattern.prefix.0.is_empty() => {
            Some(beginning(&pattern.prefix.0, &made))
        }
        Comparison::Within(path) if !is_negated => Some(made(
            value::CGROUP,
            Relation::Equal,
            [cgroup_id(path)?, 0],
            [u64::MAX, 0],
        )),
        _ => None,
    }
}

/// A test for what the first 15 bytes of a name, which are all that `comm` holds, begin with.
fn beginning(text: &[u8], made: &dyn Fn(u32, Relation, [u64; 2], [u64; 2]) -> KernelTest) -> KernelTest {
    let len = text.len().min(15);
    let (mut value, mut mask) = ([0; 16], [0; 16]);
    value[..len].copy_from_slice(&text[..len]);
    mask[..len].fill(u8::MAX);
    let words = |bytes: [u8; 16]| {
        let (first, second) = bytes.split_at(8);
        [first, second].map(|word| u64::from_ne_bytes(word.try_into().expect("eight bytes")))
    };
    made(value::COMM, Relation::Equal, words(value), words(mask))
}

/// The values that the program can look up.
fn value_of(field: Field) -> Option<u32> {
    Some(match field {
        Field::Pid => value::PID,
        Field::Tid => value::TID,
        Field::Ppid => value::PPID,
        Field::Pgid => value::PGID,
        Field::Sid => value::SID,
        Field::ThreadsCount => value::THREADS_COUNT,
        Field::KernelThread => value::KERNEL_THREAD,
        Field::TtyNr => value::TTY_NR,
        Field::Uid => value::UID,
        Field::Euid => value::EUID,
        Field::Suid => value::SUID,
        Field::Fsuid => value::FSUID,
        Field::Gid => value::GID,
        Field::Egid => value::EGID,
        Field::Sgid => value::SGID,
        Field::Fsgid => value::FSGID,
        Field::Nice => value::NICE,
        Field::Policy => value::POLICY,
        Field::OomScoreAdj => value::OOM_SCORE_ADJ,
        _ => return None,
    })
}

impl Relation {
    fn negated(self) -> Relation {
        match self {
            Relation::Equal => Relation::NotEqual,
            Relation::NotEqual => Relation::Equal,
            Relation::Less => Relation::GreaterOrEqual,
            Relation::LessOrEqual => Relation::Greater,
            Relation::Greater => Relation::LessOrEqual,
            Relation::GreaterOrEqual => Relation::Less,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Filter;
    use super::*;

    fn text(filter: &str) -> String {
        Filter::parse(filter)
            .unwrap()
            .kernel_tests(&|path| (path == b"/a").then_some(7))
            .to_string()
    }

    /// Check which parts are the kernel's: those whose every alternative it knows.
    #[test]
    fn parts_are_pushed_down_whole() {
        for (filter, pushed) in [
            ("uid == 0 and cmdline ~ 'x'", "uid == 0"),
            ("uid == 0 or cmdline ~ 'x'", ""),
            ("uid == 0 or uid == 1", "(uid == 0 or uid == 1)"),
            ("not (uid == 0 and nice > 1)", "not (uid == 0 and nice > 1)"),
            ("not (uid == 0 or nice > 1)", "not uid == 0 and not nice > 1"),
            ("not (uid == 0 or comm ~ 'x')", "not uid == 0"),
            (
                "not kernel_thread and comm ~ '^ssh'",
                "not kernel_thread and comm ~ '^ssh'",
            ),
            ("not comm ~ '^ssh'", ""),
            ("comm ~ 'ssh'", ""),
            ("comm == 'sshd' and state == 'S'", "comm == 'sshd' and state == 'S'"),
            ("pid == 99999999999", "pid == 99999999999"),
            ("vsize_bytes > 1 and pid > 18446744073709551615", ""),
        ] {
            assert_eq!(text(filter), pushed, "{filter}");
        }
        let within =
            |path: &str| Filter::within_cgroup(path.as_bytes()).kernel_tests(&|path| (path == b"/a").then_some(7));
        assert_eq!((within("/a").tests.len(), within("/b").tests.len()), (1, 0));
        let many: Vec<u32> = (0..100).collect();
        assert_eq!(Filter::one_of(Field::Pid, &many).kernel_tests(&|_| None).tests.len(), 0);
    }

    /// Check that clauses are numbered from 0, alternatives alike, and that negation turns relations round.
    #[test]
    fn clauses_are_numbered() {
        let tests = Filter::parse("(uid == 0 or uid == 1) and not nice < 5")
            .unwrap()
            .kernel_tests(&|_| None);
        let clauses: Vec<u16> = tests.tests.iter().map(|test| test.clause.get()).collect();
        assert_eq!(clauses, [0, 0, 1]);
        assert_eq!(tests.tests[2].relation.get(), Relation::GreaterOrEqual as u16);
    }

    fn tests_of(filter: &str) -> Vec<KernelTest> {
        let filter = Filter::parse(filter).unwrap();
        filter.kernel_tests(&|_| None).tests
    }

    /// Check that each value has its number, and is compared whole.
    #[test]
    fn values_have_their_numbers() {
        for (field, what) in [
            ("pid", value::PID),
            ("tid", value::TID),
            ("ppid", value::PPID),
            ("pgid", value::PGID),
            ("sid", value::SID),
            ("threads_count", value::THREADS_COUNT),
            ("kernel_thread", value::KERNEL_THREAD),
            ("tty_nr", value::TTY_NR),
            ("uid", value::UID),
            ("euid", value::EUID),
            ("suid", value::SUID),
            ("fsuid", value::FSUID),
            ("gid", value::GID),
            ("egid", value::EGID),
            ("sgid", value::SGID),
            ("fsgid", value::FSGID),
            ("nice", value::NICE),
            ("policy", value::POLICY),
            ("oom_score_adj", value::OOM_SCORE_ADJ),
        ] {
            let expression = match field {
                "kernel_thread" => "kernel_thread == true".to_owned(),
                _ => format!("{field} == 1"),
            };
            let tests = tests_of(&expression);
            assert_eq!(tests.len(), 1, "{field}");
            let test = tests[0];
            assert_eq!(
                (test.what.get(), test.relation.get()),
                (what, Relation::Equal as u16),
                "{field}"
            );
            assert_eq!(test.value.map(U64::get), [1, 0], "{field}");
            assert_eq!(test.mask.map(U64::get), [u64::MAX, 0], "{field}");
        }
        assert_eq!(tests_of("vsize_bytes == 1").len(), 0);
    }

    /// Check that of names as many bytes are compared as the kernel keeps, and that only the beginning is.
    #[test]
    fn names_are_compared_from_their_beginning() {
        let bytes = |words: [U64; 2]| words.map(|word| word.get().to_ne_bytes()).concat();
        for (filter, beginning) in [
            ("comm == 'sshd'", &b"sshd"[..]),
            ("comm ~ '^ss'", b"ss"),
            ("comm == 'kworker/u8:2-ext4'", b"kworker/u8:2-ex"),
        ] {
            let tests = tests_of(filter);
            assert_eq!(tests.len(), 1, "{filter}");
            assert_eq!(tests[0].what.get(), value::COMM);
            let mut expected = beginning.to_vec();
            expected.resize(16, 0);
            assert_eq!(bytes(tests[0].value), expected, "{filter}");
            let mut mask = vec![0xff; beginning.len()];
            mask.resize(16, 0);
            assert_eq!(bytes(tests[0].mask), mask, "{filter}");
        }
        for filter in ["not comm == 'sshd'", "comm != 'sshd'", "comm > 'a'", "exe == '/bin/sh'"] {
            assert_eq!(tests_of(filter).len(), 0, "{filter}");
        }
    }

    /// Check that what stands behind a cgroup is not tested where it is negated, and what is alone in parentheses is.
    #[test]
    fn what_is_negated_is_tested_only_where_that_is_known() {
        let within = Filter::within_cgroup(b"/a").0;
        let negated = Filter(Expression::Not(Box::new(within.clone())));
        assert_eq!(negated.kernel_tests(&|_| Some(7)).tests.len(), 0);
        for alone in [Expression::All(vec![within.clone()]), Expression::Any(vec![within])] {
            let other = Filter::parse("pid == 1").unwrap().0;
            let any = Filter(Expression::Any(vec![alone, other]));
            assert_eq!(any.kernel_tests(&|_| Some(7)).tests.len(), 2);
        }
    }

    /// Check that there are as many tests as there is room for, and of the next clause none.
    #[test]
    fn tests_fill_their_room() {
        let count = |numbers: usize| {
            let numbers: Vec<u32> = (0..numbers as u32).collect();
            let filter = Filter::one_of(Field::Pid, &numbers).and(Filter::one_of(Field::Uid, &[5]));
            filter.kernel_tests(&|_| None).tests.len()
        };
        assert_eq!(count(TESTS - 1), TESTS);
        assert_eq!(count(TESTS), TESTS);
        assert_eq!(count(TESTS + 1), 1);
    }
}

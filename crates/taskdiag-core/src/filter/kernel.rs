//! The part of a filter that the kernel's side can decide.
//!
//! A test here may be weaker than the part of the filter that it is made from, but never stronger:
//! tasks that pass are tested again with the whole filter after their records are read.

use std::fmt;

use zerocopy::native_endian::{U16, U32, U64};

use super::comparison::{Comparison, Operand, Relation, Subject, Test};
use super::{Conjunct, Expression};
use crate::field::Field;
use crate::record::c::Constant;
use crate::record::header::constants;
use crate::record::{value, KernelTest, TESTS};

/// Tests for the kernel. A clause is a run of tests with the same `clause`. At least one test of
/// each clause must hold.
#[derive(Clone, Debug, Default)]
pub struct KernelTests {
    /// The tests, clause by clause.
    pub tests: Vec<KernelTest>,
    /// The parts of the filter that they test, as text.
    pub text: Vec<String>,
}

impl fmt::Display for KernelTests {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text.join(" and "))
    }
}

/// Finds the id of a cgroup by its path.
type CgroupId<'a> = &'a dyn Fn(&[u8]) -> Option<u64>;

type Clause = Vec<KernelTest>;

/// Makes tests of the conjuncts that the kernel's side can decide, while there is room for them.
pub(super) fn tests(conjuncts: &[Conjunct<'_>], cgroup_id: CgroupId<'_>) -> KernelTests {
    let mut kernel = KernelTests::default();
    let mut count = 0;
    for conjunct in conjuncts {
        let Some(clauses) = clauses(conjunct, cgroup_id) else {
            continue;
        };
        let len: usize = clauses.iter().map(Vec::len).sum();
        if kernel.tests.len() + len > TESTS {
            continue;
        }
        for mut clause in clauses {
            clause.iter_mut().for_each(|test| test.clause = U16::new(count));
            kernel.tests.append(&mut clause);
            count += 1;
        }
        kernel.text.push(conjunct.to_string());
    }
    kernel
}

/// The clauses of a conjunct. `None` if the kernel can't decide it.
fn clauses(conjunct: &Conjunct<'_>, cgroup_id: CgroupId<'_>) -> Option<Vec<Clause>> {
    if let (Expression::Test(test), true) = (conjunct.expression, conjunct.is_negated) {
        if let Comparison::In(operands) = &test.comparison {
            // "Equal to none of them" means unequal to each.
            let unequal = |operand| Some(vec![relation_test(test, Relation::Equal, operand, true)?]);
            return operands.iter().map(unequal).collect();
        }
    }
    let mut clause = Vec::new();
    add(conjunct.expression, conjunct.is_negated, cgroup_id, &mut clause)?;
    Some(vec![clause])
}

/// Adds the alternatives of a clause. `None` if the kernel can't decide one of them, because then
/// it can't decide the clause.
fn add(expression: &Expression, is_negated: bool, cgroup_id: CgroupId<'_>, clause: &mut Clause) -> Option<()> {
    match (expression, is_negated) {
        (Expression::Any(parts), false) | (Expression::All(parts), true) => parts
            .iter()
            .try_for_each(|part| add(part, is_negated, cgroup_id, clause)),
        (Expression::All(parts), false) | (Expression::Any(parts), true) => match parts.as_slice() {
            [part] => add(part, is_negated, cgroup_id, clause),
            _ => None,
        },
        (Expression::Not(part), _) => add(part, !is_negated, cgroup_id, clause),
        (Expression::Test(test), _) => add_test(test, is_negated, cgroup_id, clause),
    }
}

fn add_test(test: &Test, is_negated: bool, cgroup_id: CgroupId<'_>, clause: &mut Clause) -> Option<()> {
    match &test.comparison {
        Comparison::Is(relation, operand) => clause.push(relation_test(test, *relation, operand, is_negated)?),
        Comparison::In(operands) if !is_negated => {
            for operand in operands {
                clause.push(relation_test(test, Relation::Equal, operand, false)?);
            }
        }
        Comparison::Matches(pattern) if is_name(test) && !is_negated && !pattern.prefix.0.is_empty() => {
            clause.push(beginning(&pattern.prefix.0));
        }
        Comparison::Within(path) if !is_negated && test.subject == Subject::Field(Field::Cgroup) => {
            clause.push(number_test(value::CGROUP, Relation::Equal, cgroup_id(path)?));
        }
        _ => return None,
    }
    Some(())
}

/// A test that compares the subject with one operand.
fn relation_test(test: &Test, relation: Relation, operand: &Operand, is_negated: bool) -> Option<KernelTest> {
    let Subject::Field(field) = test.subject else {
        return None;
    };
    let meant = if is_negated { relation.negated() } else { relation };
    match operand {
        Operand::Number(number) => {
            // All values that the kernel compares fit. A number that does not fit is compared in
            // the library.
            let number = i64::try_from(*number).ok()?;
            Some(number_test(value_of(field)?, meant, number as u64))
        }
        Operand::Text(text) if field == Field::State => match text.as_slice() {
            &[letter] => Some(number_test(value::STATE, meant, letter.into())),
            _ => None,
        },
        // A kernel thread's name in `/proc` can be longer than `comm`, which holds only its
        // beginning. So only the beginning can be tested, and only for equality. The name of a
        // workqueue worker goes on otherwise than its `comm`, so workers pass.
        Operand::Text(text) if is_name(test) && meant == Relation::Equal && !is_negated => Some(beginning(text)),
        _ => None,
    }
}

fn is_name(test: &Test) -> bool {
    test.subject == Subject::Field(Field::Comm)
}

fn number_test(what: u32, relation: Relation, number: u64) -> KernelTest {
    kernel_test(what, relation, [number, 0], [u64::MAX, 0])
}

/// A test for the first 15 bytes of a name. `comm` holds no more. Workqueue workers pass it.
fn beginning(text: &[u8]) -> KernelTest {
    let len = text.len().min(15);
    let (mut value, mut mask) = ([0; 16], [0; 16]);
    value[..len].copy_from_slice(&text[..len]);
    mask[..len].fill(u8::MAX);
    let words = |bytes: [u8; 16]| {
        let (first, second) = bytes.split_at(8);
        [first, second].map(|word| u64::from_ne_bytes(word.try_into().expect("eight bytes")))
    };
    kernel_test(value::COMM, Relation::Equal, words(value), words(mask))
}

fn kernel_test(what: u32, relation: Relation, value: [u64; 2], mask: [u64; 2]) -> KernelTest {
    KernelTest {
        what: U32::new(what),
        relation: U16::new(relation as u16),
        clause: U16::new(0),
        value: value.map(U64::new),
        mask: mask.map(U64::new),
    }
}

/// The value that the program can look up: the one that has the name of the field.
fn value_of(field: Field) -> Option<u32> {
    let name = field.name().to_uppercase();
    let of_name = |value: &Constant| value.name.strip_prefix("TD_VALUE_") == Some(&name);
    Some(constants().find(of_name)?.value as u32)
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

    /// Check that a part is decided by the kernel exactly if the kernel can decide all its
    /// alternatives.
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
            ("not uid == 0 or nice > 1", "(not uid == 0 or nice > 1)"),
            ("uid in (0, 1) and cmdline ~ 'x'", "uid in (0, 1)"),
            ("uid not in (0, 1)", "not uid in (0, 1)"),
            ("not (uid in (0, 1) or nice > 1)", "not uid in (0, 1) and not nice > 1"),
            ("not (uid in (0, 1) and nice > 1)", ""),
            (
                "uid in (0, 1) or state in ('R', 'D')",
                "(uid in (0, 1) or state in ('R', 'D'))",
            ),
            ("comm in ('sshd', 'cron')", "comm in ('sshd', 'cron')"),
            ("comm not in ('sshd', 'cron')", ""),
            ("state < 'SD'", ""),
            ("uid in (0, euid)", ""),
            ("uid != euid", ""),
            ("limits.nofile.soft < 1024", ""),
            ("cap_effective has chown", ""),
            ("cgroup within '/a' and cgroup within '/b'", "cgroup within '/a'"),
        ] {
            assert_eq!(text(filter), pushed, "{filter}");
        }
        let within =
            |path: &str| Filter::within_cgroup(path.as_bytes()).kernel_tests(&|path| (path == b"/a").then_some(7));
        assert_eq!((within("/a").tests.len(), within("/b").tests.len()), (1, 0));
        let many: Vec<u32> = (0..100).collect();
        assert_eq!(Filter::one_of(Field::Pid, &many).kernel_tests(&|_| None).tests.len(), 0);
    }

    /// Check that clauses are numbered from 0, with one number for all alternatives, and that
    /// negation inverts relations.
    #[test]
    fn clauses_are_numbered() {
        let tests = Filter::parse("(uid == 0 or uid == 1) and not nice < 5")
            .unwrap()
            .kernel_tests(&|_| None);
        let clauses: Vec<u16> = tests.tests.iter().map(|test| test.clause.get()).collect();
        assert_eq!(clauses, [0, 0, 1]);
        assert_eq!(tests.tests[2].relation.get(), Relation::GreaterOrEqual as u16);
        let clauses = |filter: &str| {
            tests_of(filter)
                .iter()
                .map(|test| test.clause.get())
                .collect::<Vec<_>>()
        };
        assert_eq!(clauses("uid in (0, 1, 2) and nice < 5"), [0, 0, 0, 1]);
        assert_eq!(clauses("uid not in (0, 1, 2) and nice < 5"), [0, 1, 2, 3]);
    }

    fn tests_of(filter: &str) -> Vec<KernelTest> {
        let filter = Filter::parse(filter).unwrap();
        filter.kernel_tests(&|_| None).tests
    }

    /// Check that each value has its number, and that all its bits are compared.
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

    /// Check that only the beginning of a name is compared, and no more bytes than the kernel
    /// keeps.
    #[test]
    fn names_are_compared_from_their_beginning() {
        let bytes = |words: [U64; 2]| words.map(|word| word.get().to_ne_bytes()).concat();
        for (filter, beginning) in [
            ("comm == 'sshd'", &b"sshd"[..]),
            ("comm ~ '^ss'", b"ss"),
            ("comm == 'rcu_tasks_trace_kthread'", b"rcu_tasks_trace"),
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

    /// Check that a negated cgroup is not tested, and that a single expression in parentheses is
    /// tested.
    #[test]
    fn cgroups_are_tested_unless_negated() {
        let within = Filter::within_cgroup(b"/a").expression;
        let negated = Filter::new(Expression::Not(Box::new(within.clone())));
        assert_eq!(negated.kernel_tests(&|_| Some(7)).tests.len(), 0);
        for alone in [Expression::All(vec![within.clone()]), Expression::Any(vec![within])] {
            let other = Filter::parse("pid == 1").unwrap().expression;
            let any = Filter::new(Expression::Any(vec![alone, other]));
            assert_eq!(any.kernel_tests(&|_| Some(7)).tests.len(), 2);
        }
    }

    /// Check that tests are made only while a whole clause has room.
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

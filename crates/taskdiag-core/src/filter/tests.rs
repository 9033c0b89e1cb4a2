//! Tests of whole filters.

use proptest::prelude::*;

use super::*;
use crate::field::Mask;
use crate::record::KernelTest;
use crate::value::{Arguments, Ids, Limits};

/// A row with values from a test.
#[derive(Debug)]
pub(crate) struct Made(pub Vec<(Field, Result<Value<'static>, Absent>)>);

impl HasFields for Made {
    fn value(&self, field: Field) -> Result<Value<'_>, Absent> {
        let found = self.0.iter().find(|(has, _)| *has == field);
        found.map_or(Err(Absent::NotAsked), |(_, value)| *value)
    }
}

fn sshd() -> Made {
    Made(vec![
        (Field::Pid, Ok(Value::Unsigned(7))),
        (Field::Groups, Ok(Value::Ids(Ids::new(&[4, 0, 0, 0, 10, 0, 0, 0])))),
        (Field::Uid, Ok(Value::Unsigned(0))),
        (Field::Nice, Ok(Value::Signed(-5))),
        (Field::KernelThread, Ok(Value::Flag(false))),
        (Field::State, Ok(Value::Letter('S'))),
        (Field::Comm, Ok(Value::Text(b"sshd"))),
        (Field::Cgroup, Ok(Value::Text(b"/system.slice/ssh.service"))),
        (
            Field::Cmdline,
            Ok(Value::Texts(Arguments::new(b"sshd\0-D\0-p\x0022\0"))),
        ),
        (Field::RssBytes, Err(Absent::NoMemory)),
        (Field::Euid, Ok(Value::Unsigned(1000))),
        (Field::Suid, Ok(Value::Unsigned(1000))),
        (Field::UtimeNs, Ok(Value::Unsigned(1_500_000_000))),
        (Field::StimeNs, Ok(Value::Unsigned(7_200_000_000_000))),
        (Field::VsizeBytes, Ok(Value::Unsigned(3 << 29))),
        (Field::CapEffective, Ok(Value::from(Mask(1 << 21 | 1 << 12)))),
        (Field::SigBlocked, Ok(Value::from(Mask(1 << 14)))),
        (Field::FdCount, Ok(Value::Unsigned(1000))),
        (Field::Limits, Ok(Value::Limits(Limits::new(LIMITS)))),
        (Field::Exe, Ok(Value::Text(b"sshd"))),
        (Field::StartTime, Ok(Value::Text(b"2026-11-23T03:12:05Z"))),
        (Field::CpuPercent, Ok(Value::Float(12.5))),
    ])
}

/// Soft and hard limits: all unlimited except the number of open files.
const LIMITS: &[u8] = &{
    let mut limits = [0xff; 256];
    let nofile = [1023_u64, 4096];
    let mut at = 0;
    while at < 16 {
        limits[7 * 16 + at] = nofile[at / 8].to_ne_bytes()[at % 8];
        at += 1;
    }
    limits
};

fn decided(text: &str) -> Option<bool> {
    Filter::parse(text)
        .unwrap_or_else(|error| panic!("{text}: {error}"))
        .decide(&sshd())
}

/// Check that a part is written without parentheses that the text did not have.
#[test]
fn a_part_is_written_as_it_was_parsed() {
    let filter = Filter::parse("(pid == 1 or pid == 2) and fd_count > 1").unwrap();
    let part = filter.part_without(|field| field.group() == Group::Fds).unwrap();
    assert_eq!(part.to_string(), "pid == 1 or pid == 2");
}

/// Check that the root cgroup is looked up by its name, and other cgroups without a slash at the
/// end.
#[test]
fn cgroups_end_without_a_slash() {
    for (path, asked) in [("/", "/"), ("/a/", "/a"), ("/a", "/a")] {
        let id = |path: &[u8]| (path == asked.as_bytes()).then_some(1);
        let parsed = Filter::parse(&format!("cgroup within '{path}'")).unwrap();
        for filter in [parsed, Filter::within_cgroup(path.as_bytes())] {
            assert_eq!(filter.kernel_tests(&id).tests.len(), 1, "{path}");
        }
    }
}

/// Check comparisons of every kind.
#[test]
fn comparisons_compare() {
    for (text, expected) in [
        ("pid == 7", true),
        ("pid != 7", false),
        ("groups == 4", true),
        ("groups == 5", false),
        ("groups != 4", false),
        ("groups != 5", true),
        ("groups > 9", true),
        ("nice < 0", true),
        ("nice >= -5", true),
        ("nice >= -4", false),
        ("nice > -5", false),
        ("nice > -6", true),
        ("nice < -5", false),
        ("nice < -4", true),
        ("nice <= -5", true),
        ("nice <= -6", false),
        ("uid == 0 and not kernel_thread and comm ~ '^ssh'", true),
        ("kernel_thread == false", true),
        ("kernel_thread", false),
        ("state == 'S'", true),
        ("state ~ \"[DR]\"", false),
        ("comm == 'sshd'", true),
        ("comm < 'ssha'", false),
        ("comm ~* 'ss?d'", true),
        ("comm ~* 'ss'", false),
        ("comm ~* 's*'", true),
        ("comm ~* '[a-s]shd'", true),
        ("comm ~ 'h'", true),
        ("cmdline == 'sshd -D -p 22'", true),
        ("cmdline ~ '-p [0-9]+$'", true),
        ("(pid == 1 or pid == 7) and (uid == 1 or nice == -5)", true),
        ("not (pid == 7 and uid == 1)", true),
        ("pid == 0x7", true),
        ("uid != euid", true),
        ("euid == suid", true),
        ("uid > euid", false),
        ("utime_ns < stime_ns", true),
        ("comm == exe", true),
        ("comm < cgroup", false),
        ("groups == uid", false),
        ("groups != uid", true),
        ("pid in (6, 7)", true),
        ("pid in (6, 8)", false),
        ("pid not in (6, 8)", true),
        ("not pid in (6, 7)", false),
        ("uid in (euid, suid)", false),
        ("euid in (uid, suid)", true),
        ("comm in ('cron', 'sshd')", true),
        ("state in ('R', 'D')", false),
        ("groups in (9, 10)", true),
        ("vsize_bytes == 1.5G", true),
        ("vsize_bytes > 1.4G and vsize_bytes < 1.6G", true),
        ("utime_ns == 1.5s", true),
        ("stime_ns >= 2h", true),
        ("stime_ns > 0.1d", false),
        ("cap_effective has sys_admin", true),
        ("cap_effective has CAP_NET_ADMIN", true),
        ("cap_effective has 'sys_ptrace'", false),
        ("cap_effective has 12", true),
        ("not cap_effective has sys_ptrace", true),
        ("sig_blocked has TERM", true),
        ("sig_blocked has SIGKILL", false),
        ("sig_blocked has 15", true),
        ("sig_blocked has RTMIN+1", false),
        ("groups has 4", true),
        ("groups has 5", false),
        ("limits.nofile.soft < 1024", true),
        ("limits.nofile.hard == 4096", true),
        ("limits.nofile.soft == limits.nofile.hard", false),
        ("limits.as.soft == unlimited", true),
        ("limits.as.soft > 1T", true),
        ("limits.nofile.soft < unlimited", true),
        ("fd_count > limits.nofile.soft", false),
        ("vsize_bytes < limits.as.soft", true),
        ("cgroup within '/system.slice'", true),
        ("cgroup within '/system.slice/'", true),
        ("cgroup within '/system'", false),
        ("start_time > '2026-11-23T03:12:04Z'", true),
        ("start_time <= '2026-11-23T05:12:04+02:00'", false),
        ("start_time == '2026-11-23T03:12:05Z'", true),
        ("start_time ~ '^2026-11'", true),
        ("cpu_percent == 12.5", true),
        ("cpu_percent > 12.499", true),
        ("cpu_percent >= 13", false),
    ] {
        assert_eq!(decided(text), Some(expected), "{text}");
    }
}

/// Check that an absent value makes a comparison neither true nor false, and that the rest of the
/// expression may still decide.
#[test]
fn absent_values_decide_nothing() {
    assert_eq!(decided("rss_bytes > 1M"), None);
    assert_eq!(decided("not rss_bytes > 1M"), None);
    assert_eq!(decided("rss_bytes > 1M or pid == 7"), Some(true));
    assert_eq!(decided("rss_bytes > 1M and pid == 8"), Some(false));
    assert_eq!(decided("rss_bytes > 1M and pid == 7"), None);
    assert_eq!(decided("rss_bytes > vsize_bytes"), None);
    assert_eq!(decided("vsize_bytes > rss_bytes"), None);
    assert_eq!(decided("rss_bytes in (1M, 2M)"), None);
    assert_eq!(decided("vsize_bytes in (rss_bytes, 1.5G)"), Some(true));
    assert_eq!(decided("vsize_bytes in (rss_bytes, 1G)"), None);
    assert_eq!(decided("not vsize_bytes in (rss_bytes, 1G)"), None);
    assert_eq!(decided("rss_bytes not in (1M)"), None);
}

/// Check that `none` stands for what a row does not have, not for what is unknown.
#[test]
fn none_is_what_a_row_does_not_have() {
    let row = Made(vec![
        (Field::Loginuid, Err(Absent::NotApplicable)),
        (Field::RssBytes, Err(Absent::NoMemory)),
        (Field::Exe, Err(Absent::Denied)),
        (Field::Pid, Ok(Value::Unsigned(7))),
        (Field::Comm, Ok(Value::Text(b""))),
        (Field::Unit, Ok(Value::Text(b""))),
        (Field::Tty, Ok(Value::Text(b"pts/1"))),
        (Field::ContainerId, Err(Absent::Gone)),
    ]);
    for (field, is_none) in [
        ("loginuid", Some(true)),
        ("rss_bytes", Some(true)),
        ("exe", None),
        ("pid", Some(false)),
        ("comm", Some(false)),
        ("unit", Some(true)),
        ("tty", Some(false)),
        ("container_id", None),
    ] {
        let decide = |text: String| Filter::parse(&text).unwrap().decide(&row);
        assert_eq!(decide(format!("{field} == none")), is_none);
        assert_eq!(decide(format!("{field} != none")), is_none.map(|is_none| !is_none));
    }
    assert_eq!(Filter::parse("loginuid > 5").unwrap().decide(&row), None);
}

/// Check that a task is counted as undecided exactly if a value is absent for a reason that the
/// caller may be able to remove.
#[test]
fn undecided_tasks_are_counted() {
    let row = |rss: Absent| {
        Made(vec![
            (Field::Pid, Ok(Value::Unsigned(7))),
            (Field::RssBytes, Err(rss)),
            (Field::Loginuid, Err(Absent::NotApplicable)),
        ])
    };
    let mut undecided = Undecided::default();
    let mut admits = |text: &str, rss| {
        let admitted = Filter::parse(text).unwrap().admits(&row(rss), &mut undecided);
        (admitted, undecided.total())
    };
    for (text, reason, expected) in [
        ("pid == 7", Absent::Denied, (true, 0)),
        ("pid == 8", Absent::Denied, (false, 0)),
        ("rss_bytes > 1", Absent::Denied, (false, 1)),
        ("rss_bytes > 1", Absent::NoMemory, (false, 1)),
        ("rss_bytes > 1", Absent::NoAnswer, (false, 2)),
        // The absent value does not matter: the tests beside it decide, or lack values for good.
        ("rss_bytes > 1 or pid == 7", Absent::Denied, (true, 2)),
        ("rss_bytes > 1 and pid == 8", Absent::Denied, (false, 2)),
        ("rss_bytes > 1 and loginuid == 5", Absent::Denied, (false, 2)),
        ("not (rss_bytes > 1 or not loginuid == 5)", Absent::Denied, (false, 2)),
        ("not (rss_bytes > 1 and loginuid == 5)", Absent::Denied, (false, 3)),
        ("rss_bytes > 1 or loginuid == 5", Absent::Denied, (false, 4)),
    ] {
        assert_eq!(admits(text, reason), expected, "{text}");
    }
    let of = |reason| undecided.of(reason);
    assert_eq!(
        (of(Absent::Denied), of(Absent::NoAnswer), of(Absent::NoMemory)),
        (3, 1, 0)
    );
}

/// Check which fields a filter reads, and which parts do not read a group.
#[test]
fn filters_know_what_they_look_at() {
    let filter = Filter::parse("uid == 0 and (comm ~ 'x' or pss_bytes > 1) and not cmdline ~ 'y'").unwrap();
    let fields = Field::Uid | Field::Comm | Field::PssBytes | Field::Cmdline;
    assert_eq!(filter.fields(), fields);
    let without = |group| {
        filter
            .part_without(|field| field.group() == group)
            .map(|part| part.to_string())
    };
    assert_eq!(
        without(Group::Rollup),
        Some("uid == 0 and not cmdline ~ 'y'".to_owned())
    );
    assert_eq!(
        without(Group::Args),
        Some("uid == 0 and (comm ~ 'x' or pss_bytes > 1)".to_owned())
    );
    let both = Filter::parse("uid != euid and rss_bytes in (1, pss_bytes) and limits.nofile.soft > 1").unwrap();
    assert_eq!(
        both.fields(),
        Field::Uid | Field::Euid | Field::RssBytes | Field::PssBytes | Field::Limits
    );
    let part = both
        .part_without(|field| field.group() == Group::Rollup)
        .map(|part| part.to_string());
    assert_eq!(part, Some("uid != euid and limits.nofile.soft > 1".to_owned()));
    let without_uid = filter
        .part_without(|field| field == Field::Uid)
        .map(|part| part.to_string());
    assert_eq!(
        without_uid,
        Some("(comm ~ 'x' or pss_bytes > 1) and not cmdline ~ 'y'".to_owned())
    );
    let all = Filter::parse("pss_bytes > 1").unwrap();
    assert!(all.part_without(|field| field == Field::PssBytes).is_none());
    assert!(all.part_without(|field| field.group() == Group::Rollup).is_none());
}

/// Check that cgroups contain others by whole names.
#[test]
fn cgroups_lie_in_others() {
    let within = |path: &str| Filter::within_cgroup(path.as_bytes()).decide(&sshd());
    for path in ["/", "/system.slice", "/system.slice/", "/system.slice/ssh.service"] {
        assert_eq!(within(path), Some(true), "{path}");
    }
    for path in ["/system", "/system.slice/ssh", "/user.slice"] {
        assert_eq!(within(path), Some(false), "{path}");
    }
}

/// Check that the first part to be decided needs nothing expensive.
#[test]
fn cheap_parts_come_first() {
    let cheap = |text: &str| Filter::parse(text).unwrap().cheap_part().map(|part| part.to_string());
    assert_eq!(cheap("uid == 0 and cmdline ~ 'x'"), Some("uid == 0".to_owned()));
    assert_eq!(cheap("uid == 0 or cmdline ~ 'x'"), None);
    assert_eq!(
        cheap("cmdline ~ 'x' and (pid == 1 or pid == 2) and not comm == 'a'"),
        Some("(pid == 1 or pid == 2) and not comm == 'a'".to_owned())
    );
    assert_eq!(Filter::one_of(Field::Euid, &[1, 2]).to_string(), "euid in (1, 2)");
    assert_eq!(Filter::one_of(Field::Euid, &[1]).to_string(), "euid == 1");
    assert_eq!(cheap("uid != euid and uid == fd_count"), Some("uid != euid".to_owned()));
}

/// Valid expressions over fields that the kernel's side knows and some that it does not.
pub(crate) fn expression() -> impl Strategy<Value = String> {
    let number = || (0..4_u32).prop_map(|number| number.to_string());
    let numeric = || proptest::sample::select(vec!["pid", "uid", "euid", "nice", "threads_count", "fd_count"]);
    let relation = || proptest::sample::select(vec!["==", "!=", "<", "<=", ">", ">="]);
    let name = || proptest::sample::select(vec!["'a'", "'ab'", "'kworker/u8:2-ext4'", "''"]);
    let test = prop_oneof![
        (numeric(), relation(), number()).prop_map(|(field, relation, number)| format!("{field} {relation} {number}")),
        (numeric(), relation(), numeric()).prop_map(|(field, relation, other)| format!("{field} {relation} {other}")),
        (
            numeric(),
            any::<bool>(),
            proptest::collection::vec(prop_oneof![number(), numeric().prop_map(str::to_owned)], 1..4)
        )
            .prop_map(|(field, is_in, list)| format!(
                "{field} {} ({})",
                if is_in { "in" } else { "not in" },
                list.join(", ")
            )),
        Just("kernel_thread".to_owned()),
        (relation(), name()).prop_map(|(relation, name)| format!("comm {relation} {name}")),
        (name(), name()).prop_map(|(one, other)| format!("comm in ({one}, {other})")),
        proptest::sample::select(vec![
            "comm ~ '^a'",
            "comm ~ 'b'",
            "comm ~* 'a*'",
            "comm ~ '^kworker/u8:2-ext4$'",
            "state >= 'RS'"
        ])
        .prop_map(str::to_owned),
        (relation(), proptest::sample::select(vec!["'S'", "'R'", "'D'"]))
            .prop_map(|(relation, letter)| format!("state {relation} {letter}")),
        Just("cap_effective has chown".to_owned()),
        Just("limits.nofile.soft < 2".to_owned()),
        proptest::sample::select(vec!["cgroup within '/a'", "cgroup within '/'", "cgroup within '/a/b'"])
            .prop_map(str::to_owned),
    ];
    test.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("({a} and {b})")),
            (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("({a} or {b})")),
            (inner.clone(), inner.clone(), inner.clone()).prop_map(|(a, b, c)| format!("{a} and {b} and {c}")),
            inner.prop_map(|a| format!("not {a}")),
        ]
    })
}

/// Rows with the fields of [`expression`]. Those that the kernel's side reads are never absent.
fn row() -> impl Strategy<Value = Made> {
    let small = || (0..4_u64).prop_map(|number| Ok::<_, Absent>(Value::Unsigned(number)));
    let maybe = || prop_oneof![Just(Err(Absent::Denied)), small()];
    let name = proptest::sample::select(vec![&b"a"[..], b"ab", b"b", b"", b"kworker/u8:2-ext4"]);
    let ids = (small(), small(), small(), -4..4_i64, small(), maybe());
    let path = proptest::sample::select(vec![&b"/"[..], b"/a", b"/a/b", b"/ab"]);
    let rest = (
        any::<bool>(),
        name,
        proptest::sample::select(vec!['S', 'R']),
        any::<bool>(),
        path,
    );
    (ids, rest).prop_map(
        |((pid, uid, euid, nice, threads, fds), (kernel_thread, comm, state, has_all, cgroup))| {
            Made(vec![
                (Field::Pid, pid),
                (Field::Uid, uid),
                (Field::Euid, euid),
                (Field::Nice, Ok(Value::Signed(nice))),
                (Field::ThreadsCount, threads),
                (Field::FdCount, fds),
                (Field::KernelThread, Ok(Value::Flag(kernel_thread))),
                (Field::Comm, Ok(Value::Text(comm))),
                (Field::State, Ok(Value::Letter(state))),
                (Field::CapEffective, Ok(Value::Mask(has_all.into()))),
                (
                    Field::Limits,
                    if has_all {
                        Ok(Value::Limits(Limits::new(LIMITS)))
                    } else {
                        Err(Absent::Denied)
                    },
                ),
                (Field::Cgroup, Ok(Value::Text(cgroup))),
            ])
        },
    )
}

/// The number of a cgroup for the comparison on the kernel's side.
fn cgroup_id(path: &[u8]) -> Option<u64> {
    [&b"/"[..], b"/a", b"/a/b"]
        .iter()
        .position(|known| *known == path)
        .map(|index| index as u64)
}

/// Whether a row passes a test, as `bpf/task/tests.bpf.h` decides.
fn passes(test: &KernelTest, row: &Made) -> bool {
    use crate::record::value;
    let number = |field| match row.value(field) {
        Ok(Value::Unsigned(number)) => number as i64,
        Ok(Value::Signed(number)) => number,
        Ok(Value::Flag(flag)) => flag.into(),
        Ok(Value::Letter(letter)) => letter as i64,
        other => panic!("{field} is {other:?}"),
    };
    let mut name = [0; 16];
    let looked_up = match test.what.get() {
        value::PID => number(Field::Pid),
        value::UID => number(Field::Uid),
        value::EUID => number(Field::Euid),
        value::NICE => number(Field::Nice),
        value::THREADS_COUNT => number(Field::ThreadsCount),
        value::KERNEL_THREAD => number(Field::KernelThread),
        value::STATE => number(Field::State),
        value::COMM => {
            let Ok(Value::Text(comm)) = row.value(Field::Comm) else {
                panic!("no name")
            };
            let len = comm.len().min(15);
            name[..len].copy_from_slice(&comm[..len]);
            let words = [0, 8].map(|at| u64::from_ne_bytes(name[at..at + 8].try_into().unwrap()));
            return (0..2).all(|index| words[index] & test.mask[index].get() == test.value[index].get());
        }
        // It holds for the cgroup itself and for those above it.
        value::CGROUP => {
            let Ok(Value::Text(path)) = row.value(Field::Cgroup) else {
                panic!("no cgroup")
            };
            let is_within = |above: &[u8]| above == b"/" || path == above || path.starts_with(&[above, b"/"].concat());
            let of_test = [&b"/"[..], b"/a", b"/a/b"][test.value[0].get() as usize];
            return is_within(of_test);
        }
        what => panic!("no test has {what}"),
    };
    let given = test.value[0].get() as i64;
    match test.relation.get() {
        relation if relation == Relation::Equal as u16 => looked_up == given,
        relation if relation == Relation::NotEqual as u16 => looked_up != given,
        relation if relation == Relation::Less as u16 => looked_up < given,
        relation if relation == Relation::LessOrEqual as u16 => looked_up <= given,
        relation if relation == Relation::Greater as u16 => looked_up > given,
        _ => looked_up >= given,
    }
}

proptest! {
    /// Check that no part that is decided first rules out a task that the whole filter admits.
    #[test]
    fn parts_are_weaker_than_the_whole(text in expression(), row in row()) {
        let filter = Filter::parse(&text).unwrap();
        if filter.decide(&row) == Some(true) {
            for part in [filter.cheap_part(), filter.part_without(|field| field.group() == Group::Fds)].into_iter().flatten() {
                prop_assert_eq!(part.decide(&row), Some(true), "{}: {}", text, part);
            }
            let tests = filter.kernel_tests(&cgroup_id).tests;
            let clauses: std::collections::BTreeSet<u16> = tests.iter().map(|test| test.clause.get()).collect();
            for clause in clauses {
                let mut of_clause = tests.iter().filter(|test| test.clause.get() == clause);
                prop_assert!(of_clause.any(|test| passes(test, &row)), "{}: {:?}", text, tests);
            }
        }
    }
}

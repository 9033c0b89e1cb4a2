//! These tests load programs. They need CAP_BPF and CAP_PERFMON.

use std::os::fd::{AsFd as _, BorrowedFd};
use std::process::{Child, Command};

use taskdiag_core::field::{Field, Fields};

use super::*;
use crate::btf::tests::{with_unknown_type, without_member};
use crate::load::kernel_btf;
use crate::vma_walk;
use crate::walk::{self, Walk};

/// A program that walks, for the tests of [`walk`].
pub(crate) struct WalkingProgram(Program);

impl WalkingProgram {
    pub(crate) fn load(groups: Groups) -> WalkingProgram {
        WalkingProgram(Program::load_walk(groups, kernel_btf().unwrap().bytes(), None).unwrap())
    }

    /// The walk, and the link that runs it.
    pub(crate) fn walk(&mut self) -> (&mut Walk, BorrowedFd<'_>) {
        match &mut self.0.form {
            Form::Walk(walk) => (walk, self.0.link.as_fd()),
            Form::Called(_) => unreachable!("load() loads a walk"),
        }
    }

    pub(crate) fn pass(&mut self, scope: Scope, pids: &[u32], groups: Groups) -> Snapshot {
        let mut snapshot = Snapshot::default();
        let config = Config {
            groups: groups.0,
            threads: scope.is_threads().into(),
            ..Config::default()
        };
        self.0.configure(config).unwrap();
        self.0.pass(scope, pids, usize::MAX, &mut snapshot).unwrap();
        snapshot
    }
}

/// A process that sleeps.
struct Sleeper(Child);

impl Sleeper {
    fn start() -> Sleeper {
        let child = Command::new("sleep").arg("100").spawn().unwrap();
        let syscall = format!("/proc/{}/syscall", child.id());
        let asleep = format!("{} ", libc::SYS_clock_nanosleep);
        while !std::fs::read_to_string(&syscall).is_ok_and(|line| line.starts_with(&asleep)) {
            std::thread::yield_now();
        }
        Sleeper(child)
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Stands for the value of a field whose group the program deferred to procfs.
const DEFERRED: &str = "deferred";

/// The forms of the program that this kernel can run. True is the form that walks.
fn forms() -> Vec<bool> {
    if walk::is_possible() {
        vec![true, false]
    } else {
        vec![false]
    }
}

/// Loads one form of the program as for a kernel with this type information.
fn program(is_walk: bool, groups: Groups, btf: &[u8]) -> Result<Program> {
    if is_walk {
        Program::load_walk(groups, btf, None)
    } else {
        Program::load_called(groups, btf, None)
    }
}

/// The value of each field of a process that a program reads.
fn values(program: Program, pid: u32) -> Vec<(Field, String)> {
    let mut bpf = Bpf {
        program: Some(program),
        ..Bpf::default()
    };
    let mut snapshot = Snapshot::default();
    snapshot.clear(Fields::all());
    let request = PassRequest {
        groups: Groups::ALL,
        ..PassRequest::ids(Scope::Process(pid))
    };
    bpf.read(&request, &mut snapshot).unwrap();
    assert_eq!(snapshot.len(), 1);
    let task = snapshot.task(0);
    let deferred = deferred(task.record());
    let value = |&field: &Field| {
        let value = match (deferred.contains(field.group()), task.value(field)) {
            (true, _) => DEFERRED.to_owned(),
            // When its arguments are read elsewhere, a page of it can become resident.
            (_, Ok(_)) if matches!(field.group(), Group::Mem | Group::Oom) => "Ok(some)".to_owned(),
            (_, value) => format!("{value:?}"),
        };
        (field, value)
    };
    // The kernel counts queued signals for all processes of a user.
    let own = Field::ALL.iter().filter(|&&field| field != Field::SigQueuedCount);
    own.map(value).collect()
}

/// Members that depend on the kernel's configuration, and the fields that are missing or have
/// another value without them.
const OPTIONAL_MEMBERS: [(&str, &str, &[Field]); 11] = [
    // Without CONFIG_TASK_DELAY_ACCT /proc prints 0. A process that sleeps has that value too.
    ("task_struct", "delays", &[]),
    ("task_struct", "on_cpu", &[]),
    ("task_struct", "seccomp", &[Field::Seccomp, Field::SeccompFiltersCount]),
    ("seccomp", "filter_count", &[Field::SeccompFiltersCount]),
    (
        "task_struct",
        "sched_info",
        &[Field::RunDelayNs, Field::TimeslicesCount],
    ),
    ("task_struct", "cgroups", &[Field::CgroupId, Field::Cgroup]),
    // Without CONFIG_SECURITY there is no Landlock, whose domains the broker reads.
    ("cred", "security", &[]),
    // A real kernel without these has one processor, and no parts to add.
    ("percpu_counter", "counters", &[]),
    ("task_struct", "loginuid", &[Field::Loginuid, Field::AuditSession]),
    ("task_struct", "sessionid", &[Field::Loginuid, Field::AuditSession]),
    (
        "task_struct",
        "ioac",
        &[
            Field::ReadChars,
            Field::WriteChars,
            Field::ReadSyscalls,
            Field::WriteSyscalls,
            Field::ReadBytes,
            Field::WriteBytes,
            Field::CancelledWriteBytes,
        ],
    ),
];

/// Check that a kernel that lacks an optional member loses exactly the fields that need it.
#[test]
fn missing_members_cost_only_their_fields() {
    let sleeper = Sleeper::start();
    let pid = sleeper.0.id();
    let host = kernel_btf().unwrap();
    // All that a program can have, as the broker loads it.
    let groups = Groups::ALL.or(Groups::ACCESS).or(Groups::VIEW).or(Groups::TESTABLE);
    for is_walk in forms() {
        let expected = values(program(is_walk, groups, host.bytes()).unwrap(), pid);
        for (owner, member, dependent) in OPTIONAL_MEMBERS {
            let Some(btf) = without_member(host.bytes(), owner, member) else {
                println!("this kernel itself lacks {owner}.{member}");
                continue;
            };
            let program =
                program(is_walk, groups, &btf).unwrap_or_else(|error| panic!("without {owner}.{member}: {error}"));
            for ((field, expected), (_, value)) in expected.iter().zip(values(program, pid)) {
                if dependent.contains(field) {
                    let is_missing = value.starts_with("Err(") || value == DEFERRED;
                    assert!(is_missing, "without {owner}.{member}, {field:?}: {value}");
                } else {
                    assert_eq!(*expected, value, "without {owner}.{member}, {field:?}");
                }
            }
        }
    }
}

/// Check that programs load and read the same if the kernel's last type is of an unknown kind.
#[test]
fn types_of_an_unknown_kind_do_no_harm() {
    let sleeper = Sleeper::start();
    let host = kernel_btf().unwrap();
    let newer = with_unknown_type(host.bytes());
    for is_walk in forms() {
        let expected = values(program(is_walk, Groups::ALL, host.bytes()).unwrap(), sleeper.0.id());
        assert_eq!(
            values(program(is_walk, Groups::ALL, &newer).unwrap(), sleeper.0.id()),
            expected
        );
    }
}

/// The number of instructions that the verifier processed, for each program that this process has
/// open.
fn verified() -> Vec<u64> {
    let open = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
    let programs =
        open.filter(|entry| std::fs::read_link(entry.path()).is_ok_and(|to| to.ends_with("anon_inode:bpf-prog")));
    // Other tests may close their programs in between.
    let counts = programs.filter_map(|entry| {
        let info = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", entry.file_name().to_str()?)).ok()?;
        let count = info.lines().find_map(|line| line.strip_prefix("verified_insns:"))?;
        Some(count.trim().parse().unwrap())
    });
    counts.collect()
}

/// Check that the verifier processes far fewer than a million instructions, its limit, for each
/// program. Kernels follow different numbers of paths, and a program that exceeds the limit does
/// not load.
#[test]
fn programs_are_far_from_the_verifiers_limit() {
    const LIMIT: u64 = 200_000;
    let host = kernel_btf().unwrap();
    let each = Groups::ALL.iter().map(|group| Groups::NONE.with(group));
    let groups: Vec<Groups> = each
        .chain([Groups::NONE, Groups::ALL, Groups::ALL.or(Groups::TESTABLE)])
        .collect();
    let mut max = 0;
    let mut check = |what: &str, programs: usize| {
        let verified = verified();
        assert!(verified.len() >= programs, "{what}: {verified:?}");
        assert!(
            verified.iter().all(|&count| (1..LIMIT).contains(&count)),
            "{what}: {verified:?}"
        );
        max = max.max(verified.into_iter().max().unwrap_or(0));
    };
    for is_walk in forms() {
        for &groups in &groups {
            let loaded = program(is_walk, groups, host.bytes());
            let _loaded = loaded.unwrap_or_else(|error| panic!("{groups:?}: {error}"));
            check(&format!("{groups:?}, {is_walk}"), 1);
        }
    }
    if let Some(_walk) = vma_walk::VmaWalk::load().unwrap() {
        check("mappings", 1);
    }
    println!("at most {max} instructions");
}

/// Check that a full table of network traffic says what it could not count, and that then nothing is
/// known of a process without an entry. Its only entry is the one about the counting.
#[test]
fn a_full_table_is_noticed() {
    let groups = Groups::NONE.with(Group::Net);
    let has_net = |room: u32| {
        let mut bpf = Bpf {
            network: Some(Network::with_room(room).expect("these tests need root and BPF")),
            ..Bpf::default()
        };
        bpf.prepare(BpfWay::ToLoad, groups, Path::new("/none"))
            .expect("a program");
        let (one, other) = std::os::unix::net::UnixDatagram::pair().expect("a pair");
        one.send(b"12345").expect("it is sent");
        other.recv(&mut [0; 10]).expect("it is received");
        let mut snapshot = Snapshot::default();
        let request = PassRequest {
            groups,
            ..PassRequest::ids(Scope::Process(std::process::id()))
        };
        bpf.read(&request, &mut snapshot).expect("a pass");
        let (record, _) = Record::split_first(&snapshot.records).expect("a record");
        record.attribute(attr::NET).is_some()
    };
    assert_eq!([1, 1000].map(has_net), [false, true]);
}

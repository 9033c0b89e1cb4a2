//! These load programs, and so need CAP_BPF and CAP_PERFMON.

use std::process::{Child, Command};

use taskdiag_core::field::{Field, Fields};

use super::*;
use crate::btf::tests::{with_unknown_type, without_member};
use crate::vma_walk;

/// A process at rest.
struct Sleeper(Child);

impl Sleeper {
    fn start() -> Sleeper {
        let child = Command::new("sleep").arg("100").spawn().unwrap();
        let syscall = format!("/proc/{}/syscall", child.id());
        let at_rest = format!("{} ", libc::SYS_clock_nanosleep);
        while !std::fs::read_to_string(&syscall).is_ok_and(|line| line.starts_with(&at_rest)) {
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

/// What is said of a field that procfs has to be asked for.
const LEFT: &str = "left to procfs";

/// The shapes of programs that this kernel can run: whether it is the one that walks.
fn shapes() -> Vec<bool> {
    if walk::is_possible() {
        vec![true, false]
    } else {
        vec![false]
    }
}

/// A program of either shape, for a kernel with this type information.
fn program(is_walk: bool, groups: Groups, btf: &[u8]) -> Result<Program> {
    if is_walk {
        Program::load_walk(groups, btf)
    } else {
        Program::load_called(groups, btf)
    }
}

/// All that a program says of a process: each field, and what it leaves to procfs.
fn told(program: Program, pid: u32) -> Vec<(Field, String)> {
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
            (true, _) => LEFT.to_owned(),
            // Whoever reads its arguments may have a page of it brought in.
            (_, Ok(_)) if matches!(field.group(), Group::Mem | Group::Oom) => "Ok(some)".to_owned(),
            (_, value) => format!("{value:?}"),
        };
        (field, value)
    };
    // Signals are counted for all processes of the user.
    let own = Field::ALL.iter().filter(|&&field| field != Field::SigQueuedCount);
    own.map(value).collect()
}

/// What a kernel's configuration decides about, and the fields that are not told without it, or have another value.
const LACKS: [(&str, &str, &[Field]); 9] = [
    // Without CONFIG_TASK_DELAY_ACCT /proc prints 0, which is what a process at rest has.
    ("task_struct", "delays", &[]),
    ("task_struct", "on_cpu", &[]),
    ("task_struct", "seccomp", &[Field::Seccomp]),
    (
        "task_struct",
        "sched_info",
        &[Field::RunDelayNs, Field::TimeslicesCount],
    ),
    ("task_struct", "cgroups", &[Field::CgroupId, Field::Cgroup]),
    // Where these are missing in truth there is one processor, and no part of it to add.
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

/// Check that a kernel without one of the things that depend on its configuration loses the fields concerned, and no others.
#[test]
fn what_a_kernel_lacks_costs_its_own_fields() {
    let sleeper = Sleeper::start();
    let pid = sleeper.0.id();
    let host = kernel_btf().unwrap();
    for is_walk in shapes() {
        let whole = told(program(is_walk, Groups::ALL, host.bytes()).unwrap(), pid);
        for (owner, member, concerned) in LACKS {
            let Some(btf) = without_member(host.bytes(), owner, member) else {
                println!("this kernel has no {owner}.{member} either");
                continue;
            };
            let program =
                program(is_walk, Groups::ALL, &btf).unwrap_or_else(|error| panic!("without {owner}.{member}: {error}"));
            for ((field, whole), (_, told)) in whole.iter().zip(told(program, pid)) {
                assert!(
                    *whole == told || concerned.contains(field),
                    "without {owner}.{member}, {field:?}: {whole}, {told}"
                );
                if concerned.contains(field) {
                    let is_left = told.starts_with("Err(") || told == LEFT;
                    assert!(is_left, "without {owner}.{member}, {field:?}: {told}");
                }
            }
        }
    }
}

/// Check that a type of a kind which nobody knows, behind all others, is no reason not to answer.
#[test]
fn types_of_an_unknown_kind_do_no_harm() {
    let sleeper = Sleeper::start();
    let host = kernel_btf().unwrap();
    let newer = with_unknown_type(host.bytes());
    for is_walk in shapes() {
        let of_host = told(program(is_walk, Groups::ALL, host.bytes()).unwrap(), sleeper.0.id());
        assert_eq!(
            told(program(is_walk, Groups::ALL, &newer).unwrap(), sleeper.0.id()),
            of_host
        );
    }
}

/// How many instructions the verifier looked at, for each program that this process has open.
fn verified() -> Vec<u64> {
    let open = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
    let programs =
        open.filter(|entry| std::fs::read_link(entry.path()).is_ok_and(|to| to.ends_with("anon_inode:bpf-prog")));
    // Other tests close theirs meanwhile.
    let told = programs.filter_map(|entry| {
        let info = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", entry.file_name().to_str()?)).ok()?;
        let count = info.lines().find_map(|line| line.strip_prefix("verified_insns:"))?;
        Some(count.trim().parse().unwrap())
    });
    told.collect()
}

/// Check that the verifier gets through all programs with a small part of the million instructions that it looks at: kernels differ in
/// how many ways through a program they follow, and one that needs too many does not load at all.
#[test]
fn programs_are_far_from_the_verifiers_limit() {
    const MOST: u64 = 200_000;
    let host = kernel_btf().unwrap();
    let each = Groups::ALL.iter().map(|group| Groups::NONE.with(group));
    let groups: Vec<Groups> = each
        .chain([Groups::NONE, Groups::ALL, Groups::ALL.or(Groups::TESTABLE)])
        .collect();
    let mut most = 0;
    let mut check = |what: &str, programs: usize| {
        let verified = verified();
        assert!(verified.len() >= programs, "{what}: {verified:?}");
        assert!(
            verified.iter().all(|&count| (1..MOST).contains(&count)),
            "{what}: {verified:?}"
        );
        most = most.max(verified.into_iter().max().unwrap_or(0));
    };
    for is_walk in shapes() {
        for &groups in &groups {
            let loaded = program(is_walk, groups, host.bytes());
            let _loaded = loaded.unwrap_or_else(|error| panic!("{groups:?}: {error}"));
            check(&format!("{groups:?}, {is_walk}"), 1);
        }
    }
    if let Some(_walk) = vma_walk::VmaWalk::load().unwrap() {
        check("mappings", 1);
    }
    println!("{most} at most");
}

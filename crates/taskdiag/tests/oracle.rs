//! Every field of every task, from each source, is equal to the kernel's own text.

use std::collections::BTreeMap;
use taskdiag::{Absent, Field, Query, Scope, SourceId, Task, Value};
use taskdiag_testkit::{child, compare::compare, handle, test_name, text};
use taskdiag_zoo::{Animal, Facts};

/// Before 6.2 the kernel's memory counters, where it does not sum them, lag behind the resident
/// memory: by 64 faults of up to 16 pages for each thread.
const LAG: u64 = 1 << 20;

/// At least this many tasks must have a value for each field.
const LEAST: usize = 20;

fn check_against_text(source: SourceId, scope: Scope) {
    let animals = taskdiag_testkit::everything();
    compare(&mut handle(source), source, scope)
        .check(&format!("{source}, {scope:?}, {} animals", animals.len()), LEAST);
}

/// Check that BPF's processes are equal to the text.
#[test]
fn bpf_processes_equal_text() {
    check_against_text(SourceId::Bpf, Scope::Processes);
}

/// Check that BPF's threads are equal to the text.
#[test]
fn bpf_threads_equal_text() {
    check_against_text(SourceId::Bpf, Scope::Threads);
}

/// Check that the processes of procfs are equal to the text.
#[test]
fn procfs_processes_equal_text() {
    check_against_text(SourceId::Procfs, Scope::Processes);
}

/// Check that the threads of procfs are equal to the text.
#[test]
fn procfs_threads_equal_text() {
    check_against_text(SourceId::Procfs, Scope::Threads);
}

/// Check that what pinned programs read is equal to the text.
#[test]
fn pinned_programs_equal_text() {
    child::run(test_name!(), "pinned", child::nothing_pinned(), || {
        taskdiag::pin::pin().expect("pinning");
        let mut handle = taskdiag_testkit::unasked(SourceId::Bpf);
        assert!(handle.support().pinned.is_yes(), "{:?}", handle.support().pinned);
        taskdiag_testkit::everything();
        for scope in [Scope::Processes, Scope::Threads] {
            compare(&mut handle, SourceId::Bpf, scope).check(&format!("pinned, {scope:?}"), LEAST);
        }
        taskdiag::pin::unpin().expect("unpinning");
    });
}

/// Check that a group has the same values alone as among all groups: no group depends on another.
#[test]
fn single_groups_equal_everything() {
    let zombie = taskdiag_testkit::animal("dead-leader");
    let animal = taskdiag_testkit::animal("ids-all-different");
    for source in taskdiag_testkit::SOURCES {
        for pid in [zombie.pid, animal.pid] {
            let query = Query::process(pid as u32);
            let whole = handle(source)
                .query(&query.clone().fields(taskdiag_testkit::fields()))
                .expect("everything");
            // Signals of other processes of the user are counted too, and time passes.
            let moving = Field::SigQueuedCount | Field::ElapsedNs | Field::CpuPercent;
            for field in taskdiag_testkit::fields().without(moving).iter() {
                let single = taskdiag_testkit::unasked(source)
                    .query(&query.clone().fields(field))
                    .expect("one field");
                let value = |task: Task<'_>| task.value(field).map(|value| text::plain(field, value));
                assert_eq!(value(single.task(0)), value(whole.task(0)), "{source} {pid} {field}");
                let other = if field == Field::Uid { Field::Gid } else { Field::Uid };
                assert_eq!(single.task(0).value(other), Err(Absent::NotAsked));
            }
        }
    }
}

/// Check that each source reports the known values of each animal, which was made with them.
#[test]
fn animals_are_as_they_were_made() {
    let animals = taskdiag_testkit::everything();
    for source in taskdiag_testkit::SOURCES {
        let mut handle = handle(source);
        let processes = handle
            .query(&Query::processes().fields(taskdiag_testkit::fields()))
            .expect("processes");
        let query = Query::threads().fields(taskdiag_testkit::fields());
        let threads = handle.query(&query).expect("threads");
        let by_pid: BTreeMap<u32, Task<'_>> = processes
            .tasks()
            .map(|task| (task.pid().expect("a pid"), task))
            .collect();
        let own = by_pid[&std::process::id()];
        let mut checker = Checker::default();
        for animal in animals {
            let threads = threads
                .tasks()
                .filter(|task| task.pid() == Ok(animal.pid as u32))
                .collect();
            checker.check(animal, by_pid[&(animal.pid as u32)], threads, own, &by_pid);
        }
        let shown = checker.wrong.join("\n");
        println!("{source}: {} facts about {} animals", checker.compared, animals.len());
        assert!(
            checker.wrong.is_empty(),
            "{source}: {} wrong:\n{shown}",
            checker.wrong.len()
        );
        assert!(checker.compared > 200, "only {} facts", checker.compared);
    }
}

#[derive(Default)]
struct Checker {
    compared: usize,
    wrong: Vec<String>,
}

impl Checker {
    fn equal<T: PartialEq + std::fmt::Debug>(
        &mut self,
        animal: &Animal,
        what: &str,
        fact: Option<T>,
        ours: Result<T, Absent>,
    ) {
        let Some(fact) = fact else { return };
        self.compared += 1;
        if ours.as_ref() != Ok(&fact) {
            let cut = |text: String| text.chars().take(200).collect::<String>();
            let (fact, ours) = (cut(format!("{fact:?}")), cut(format!("{ours:?}")));
            self.wrong.push(format!(
                "{} ({}) {what}: {ours} instead of {fact}",
                animal.name, animal.pid
            ));
        }
    }

    fn at_least(&mut self, animal: &Animal, what: &str, fact: Option<u64>, ours: Result<u64, Absent>, slack: u64) {
        let Some(fact) = fact else { return };
        self.compared += 1;
        if !ours.is_ok_and(|ours| (fact..=fact.saturating_add(slack)).contains(&ours)) {
            self.wrong.push(format!(
                "{} ({}) {what}: {ours:?} instead of {fact} or somewhat more",
                animal.name, animal.pid
            ));
        }
    }

    fn check(
        &mut self,
        animal: &Animal,
        task: Task<'_>,
        threads: Vec<Task<'_>>,
        own: Task<'_>,
        by_pid: &BTreeMap<u32, Task<'_>>,
    ) {
        const SLACK: u64 = 4 << 20;
        // Names every fact: a new one does not compile until it is checked or left out here.
        let Facts {
            pid: _,
            comm,
            cmdline,
            cmdline_raw,
            environ,
            exe,
            state,
            ppid,
            pgid,
            sid,
            tty_nr,
            tpgid,
            tracer_pid,
            threads_count,
            tids,
            children,
            memory_shared_with,
            nspids,
            own_namespaces,
            boottime_offset_s: _,
            uids,
            gids,
            groups,
            cap_inheritable,
            cap_permitted,
            cap_effective,
            cap_bounding,
            cap_ambient,
            no_new_privs,
            seccomp,
            dumpable: _,
            nice,
            policy,
            rt_priority,
            affinity,
            oom_score_adj,
            loginuid,
            sig_blocked,
            sig_pending,
            sig_shared_pending,
            sig_ignored,
            sig_caught,
            anon_at_least_bytes,
            file_at_least_bytes,
            shmem_at_least_bytes,
            locked_bytes,
            peak_above_current_bytes,
            cpu_at_least_ns,
            thread_cpu_at_least_ns,
            child_cpu_at_least_ns,
            child_min_faults,
            fd_at_least_count,
            cgroup,
            mappings: _,
        } = animal.facts.clone();
        let unsigned = |number: Option<i32>| number.map(|number| number as u32);
        let list = |field: Field| match task.value(field)? {
            Value::Ids(ids) => Ok(ids.iter().collect::<Vec<u32>>()),
            Value::Cpus(cpus) => Ok(cpus.iter().map(|cpu| cpu as u32).collect()),
            other => panic!("{field} is {other:?}"),
        };
        self.equal(animal, "comm", comm, task.comm().map(<[u8]>::to_vec));
        self.equal(
            animal,
            "cmdline",
            cmdline_raw,
            task.cmdline().map(|args| args.as_bytes().to_vec()),
        );
        let args = task.cmdline().map(|args| args.iter().map(<[u8]>::to_vec).collect());
        self.equal(animal, "cmdline's arguments", cmdline, args);
        self.equal(animal, "state", state.or(Some('S')), task.state());
        self.equal(animal, "ppid", unsigned(ppid), task.ppid());
        self.equal(animal, "pgid", unsigned(pgid), task.pgid());
        self.equal(animal, "sid", unsigned(sid), task.sid());
        self.equal(animal, "tty_nr", unsigned(tty_nr), task.tty_nr());
        // The kernel writes -1 for none.
        let known = |fact| {
            if fact == -1 {
                Err(Absent::NotApplicable)
            } else {
                Ok(fact)
            }
        };
        self.equal(animal, "tpgid", tpgid.map(known), Ok(task.tpgid()));
        self.equal(
            animal,
            "tracer_pid",
            unsigned(tracer_pid).or(Some(0)),
            task.tracer_pid(),
        );
        self.equal(
            animal,
            "threads_count",
            threads_count.map(|count| count as u32).or(Some(1)),
            task.threads_count(),
        );
        let tids = tids.unwrap_or_else(|| vec![animal.pid]);
        self.equal(
            animal,
            "tids",
            Some(tids),
            threads.iter().map(|task| task.tid().map(|tid| tid as i32)).collect(),
        );
        if let Some(children) = children {
            let is_child = |task: &&Task<'_>| task.ppid() == Ok(animal.pid as u32);
            let ours = by_pid
                .values()
                .filter(is_child)
                .map(|task| task.pid().map(|pid| pid as i32))
                .collect();
            self.equal(animal, "children", Some(children), ours);
        }
        if let Some(other) = memory_shared_with {
            let other = by_pid[&(other as u32)];
            self.equal(animal, "shared memory", other.vsize_bytes().ok(), task.vsize_bytes());
            self.equal(
                animal,
                "shared memory",
                other.rss_anon_bytes().ok(),
                task.rss_anon_bytes(),
            );
        }
        self.equal(
            animal,
            "nspids",
            nspids.map(|ids| ids.iter().map(|&id| id as u32).collect()),
            list(Field::Nspids),
        );
        for name in own_namespaces.into_iter().flatten() {
            let name = format!("ns_{}", String::from_utf8_lossy(&name));
            // A namespace for which there is no field.
            if name == "ns_time_for_children" {
                continue;
            }
            let field: Field = name.parse().expect("a namespace");
            let differs = task.value(field).map(|value| Ok(value) != own.value(field));
            self.equal(animal, &name, Some(true), differs);
        }
        let all = |ids: [Result<u32, Absent>; 4]| ids.into_iter().collect::<Result<Vec<u32>, Absent>>();
        self.equal(
            animal,
            "uids",
            uids,
            all([task.uid(), task.euid(), task.suid(), task.fsuid()]),
        );
        self.equal(
            animal,
            "gids",
            gids,
            all([task.gid(), task.egid(), task.sgid(), task.fsgid()]),
        );
        self.equal(animal, "groups", groups, list(Field::Groups));
        self.equal(
            animal,
            "cap_inheritable",
            cap_inheritable,
            task.cap_inheritable().map(|set| set.0),
        );
        self.equal(
            animal,
            "cap_permitted",
            cap_permitted,
            task.cap_permitted().map(|set| set.0),
        );
        self.equal(
            animal,
            "cap_effective",
            cap_effective,
            task.cap_effective().map(|set| set.0),
        );
        self.equal(
            animal,
            "cap_bounding",
            cap_bounding,
            task.cap_bounding().map(|set| set.0),
        );
        self.equal(animal, "cap_ambient", cap_ambient, task.cap_ambient().map(|set| set.0));
        self.equal(animal, "no_new_privs", no_new_privs, task.no_new_privs());
        self.equal(animal, "seccomp", seccomp, task.seccomp());
        self.equal(animal, "nice", nice, task.nice());
        self.equal(animal, "policy", policy, task.policy());
        self.equal(animal, "rt_priority", rt_priority, task.rt_priority());
        self.equal(animal, "affinity", affinity, list(Field::Affinity));
        self.equal(animal, "oom_score_adj", oom_score_adj, task.oom_score_adj());
        self.equal(animal, "loginuid", loginuid, task.loginuid());
        self.at_least(
            animal,
            "rss_anon_bytes",
            anon_at_least_bytes.map(|bytes| bytes - LAG),
            task.rss_anon_bytes(),
            LAG + SLACK,
        );
        self.at_least(
            animal,
            "rss_file_bytes",
            file_at_least_bytes.map(|bytes| bytes - LAG),
            task.rss_file_bytes(),
            LAG + 2 * SLACK,
        );
        // If executables are on tmpfs, their pages are shared memory too.
        self.at_least(
            animal,
            "rss_shmem_bytes",
            shmem_at_least_bytes.map(|bytes| bytes - LAG),
            task.rss_shmem_bytes(),
            LAG + 2 * SLACK,
        );
        self.equal(animal, "locked_bytes", locked_bytes, task.locked_bytes());
        let above = task.peak_rss_bytes().and_then(|peak| Ok(peak - task.rss_bytes()?));
        self.at_least(animal, "peak_rss_bytes", peak_above_current_bytes, above, SLACK);
        let used = task.utime_ns().and_then(|utime| Ok(utime + task.stime_ns()?));
        // In clock ticks, each part is rounded down.
        let cpu = cpu_at_least_ns.map(|ns| ns - 2 * text::TICK_NS);
        self.at_least(animal, "utime_ns and stime_ns", cpu, used, u64::MAX);
        for thread in threads.iter().skip(1) {
            self.at_least(
                animal,
                "runtime_ns",
                thread_cpu_at_least_ns,
                thread.runtime_ns(),
                u64::MAX,
            );
        }
        let used = task.cutime_ns().and_then(|cutime| Ok(cutime + task.cstime_ns()?));
        let cpu = child_cpu_at_least_ns.map(|ns| ns - 2 * text::TICK_NS);
        self.at_least(animal, "cutime_ns and cstime_ns", cpu, used, u64::MAX);
        self.equal(animal, "child_min_faults", child_min_faults, task.child_min_faults());
        for (name, fact, ours) in [
            ("sig_blocked", sig_blocked, task.sig_blocked()),
            ("sig_pending", sig_pending, task.sig_pending()),
            ("sig_shared_pending", sig_shared_pending, task.sig_shared_pending()),
            ("sig_ignored", sig_ignored, task.sig_ignored()),
            ("sig_caught", sig_caught, task.sig_caught()),
        ] {
            self.equal(animal, name, fact, ours.map(|set| set.0));
        }
        self.equal(animal, "exe", exe, task.exe().map(<[u8]>::to_vec));
        let environment = task
            .environ()
            .map(|environ| environ.iter().map(<[u8]>::to_vec).collect());
        self.equal(animal, "environ", environ, environment);
        self.at_least(
            animal,
            "fd_count",
            fd_at_least_count,
            task.fd_count().map(u64::from),
            16,
        );
        self.equal(animal, "cgroup", cgroup, task.cgroup().map(<[u8]>::to_vec));
    }
}

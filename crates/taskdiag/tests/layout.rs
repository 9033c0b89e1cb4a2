//! Check that the records of `src/record.rs` are those of `bpf/record.h`, as a C compiler sees them.

use std::fmt::Write as _;
use std::mem::{offset_of, size_of};
use std::process::Command;

use taskdiag::record;

/// Lists (C expression, Rust value) for the size and the offsets of structures that both sides have.
macro_rules! structures {
    ($($rust:ident $c:literal: $($field:ident $(as $c_field:ident)?),*;)*) => {
        vec![$(
            (concat!("sizeof(struct ", $c, ")").to_owned(), size_of::<record::$rust>()),
            $((
                format!("offsetof(struct {}, {})", $c, [stringify!($field) $(, stringify!($c_field))?].last().unwrap()),
                offset_of!(record::$rust, $field),
            )),*
        ),*]
    };
}

fn layout() -> Vec<(String, usize)> {
    let mut layout = structures! {
        Header "td_record": len, flags, pid, tid, start_ns;
        AttrHeader "td_attr": len, kind as type, flags;
        Base "td_base": ppid, tracer_pid, pgid, sid, exit_signal, threads_count, state, reserved, comm;
        Tty "td_tty": tty_nr, tpgid;
        Cred "td_cred": uid, euid, suid, fsuid, gid, egid, sgid, fsgid, cap_inheritable, cap_permitted, cap_effective,
            cap_bounding, cap_ambient, no_new_privs, seccomp;
        Cpu "td_cpu": utime_ns, stime_ns, cutime_ns, cstime_ns, runtime_ns, run_delay_ns, voluntary_switches,
            involuntary_switches, nice, priority, rt_priority, policy, cpu, reserved, sum_exec_runtime, prev_utime, prev_stime;
        Faults "td_faults": min_faults, maj_faults, child_min_faults, child_maj_faults;
        Mem "td_mem": vsize_bytes, rss_anon_bytes, rss_file_bytes, rss_shmem_bytes, swap_bytes, peak_vsize_bytes,
            peak_rss_bytes, text_bytes, data_bytes, stack_bytes, lib_bytes, locked_bytes, pinned_bytes, page_table_bytes;
        Oom "td_oom": oom_score_adj, oom_score;
        Namespaces "td_namespaces": ns_pid, ns_pid_for_children, ns_mnt, ns_net, ns_user, ns_uts, ns_ipc, ns_cgroup, ns_time;
        Cgroup "td_cgroup": cgroup_id;
        Defer "td_defer": groups, reserved;
        AbsentField "td_absent": field, reason;
    };
    let constants = [
        ("TD_ABI", record::ABI),
        ("TD_KERNEL_THREAD", record::KERNEL_THREAD),
        ("TD_NO_MM", record::NO_MM),
        ("TD_DEFERRED", record::DEFERRED),
        ("TD_TITLE", record::TITLE),
        ("TD_HAS_ABSENT", record::HAS_ABSENT),
        ("TD_ARGS_KEPT", record::ARGS_KEPT),
        ("TD_ARGS_SAME", record::ARGS_SAME),
        ("TD_NO_READER", record::NO_READER),
        ("TD_CPU_UNSCALED", record::CPU_UNSCALED.into()),
        ("TD_ATTR_BASE", record::attr::BASE.into()),
        ("TD_ATTR_NAME", record::attr::NAME.into()),
        ("TD_ATTR_TTY", record::attr::TTY.into()),
        ("TD_ATTR_CRED", record::attr::CRED.into()),
        ("TD_ATTR_GROUPS", record::attr::GROUPS.into()),
        ("TD_ATTR_CPU", record::attr::CPU.into()),
        ("TD_ATTR_AFFINITY", record::attr::AFFINITY.into()),
        ("TD_ATTR_FAULTS", record::attr::FAULTS.into()),
        ("TD_ATTR_MEM", record::attr::MEM.into()),
        ("TD_ATTR_ARGS", record::attr::ARGS.into()),
        ("TD_ATTR_ARGS_SAME", record::attr::ARGS_SAME.into()),
        ("TD_ATTR_OOM", record::attr::OOM.into()),
        ("TD_ATTR_NAMESPACES", record::attr::NAMESPACES.into()),
        ("TD_ATTR_NSPIDS", record::attr::NSPIDS.into()),
        ("TD_ATTR_CGROUP", record::attr::CGROUP.into()),
        ("TD_ATTR_CGROUP_PATH", record::attr::CGROUP_PATH.into()),
        ("TD_ATTR_DEFER", record::attr::DEFER.into()),
        ("TD_ATTR_ABSENT", record::attr::ABSENT.into()),
        ("TD_ATTR_ARGS_SLOT", record::attr::ARGS_SLOT.into()),
    ];
    layout.extend(constants.map(|(name, value)| (name.to_owned(), value as usize)));
    layout
}

/// Check that sizes, offsets and constants are the same on both sides: static assertions, compiled by the C compiler.
#[test]
fn records_are_laid_out_alike() {
    let header = concat!(env!("CARGO_MANIFEST_DIR"), "/bpf/record.h");
    let mut source = format!("#include <linux/types.h>\n#include <stddef.h>\n#include {header:?}\n");
    for (expression, value) in layout() {
        writeln!(source, "_Static_assert({expression} == {value}, \"{expression}\");").unwrap();
    }
    let file = std::env::temp_dir().join(format!("taskdiag-layout-{}.c", std::process::id()));
    std::fs::write(&file, source).unwrap();
    let output = Command::new("cc")
        .arg("-fsyntax-only")
        .arg(&file)
        .output()
        .expect("cc, which Rust links with, is there");
    std::fs::remove_file(&file).unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

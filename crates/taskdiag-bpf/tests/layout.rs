//! Check that a C compiler gives the structures of `bpf/record.h`, `bpf/event.h`, `bpf/vma.h` and
//! `bpf/files.h` the layout that they have in Rust.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::fmt::Write as _;
use std::io::Write as _;
use std::mem::{offset_of, size_of};
use std::process::{Command, Stdio};

use taskdiag_bpf::tracing;
use taskdiag_core::event::wire;
use taskdiag_core::record::header;

/// Lists (C expression, Rust value) for the size and the offsets of structures.
macro_rules! structures {
    ($module:ident: $($rust:ident $c:literal: $($field:ident $(as $c_field:ident)?),*;)*) => {
        vec![$(
            (concat!("sizeof(struct ", $c, ")").to_owned(), size_of::<$module::$rust>()),
            $((
                format!("offsetof(struct {}, {})", $c, [stringify!($field) $(, stringify!($c_field))?].last().unwrap()),
                offset_of!($module::$rust, $field),
            )),*
        ),*]
    };
}

/// The structures and constants that C has from Rust.
fn layout() -> Vec<(String, usize)> {
    let mut layout = mapping_layout();
    for structure in header::structures() {
        layout.push((format!("sizeof(struct {})", structure.name), structure.size));
        layout.extend(structure.members.iter().map(|member| {
            let expression = format!("offsetof(struct {}, {})", structure.name, member.name);
            (expression, member.offset)
        }));
    }
    layout.extend(header::constants().map(|constant| (constant.name.to_owned(), constant.value as usize)));
    layout
}

/// The layout of `bpf/vma.h`.
fn mapping_layout() -> Vec<(String, usize)> {
    use taskdiag_bpf::vma as record;

    let mut layout = structures! {
        record:
        Settings "td_vma_pass": filter, epoch, names, page_shift, backing_mode, saw_init, next_name, pid, matches_count, reserved, matches;
        Record "td_vma": len, pid, name_id, flags, name_len, start, end, offset, inode, dev_major, dev_minor, page_size;
    };
    let constants = [
        ("TD_VMA_FILE", record::FILE),
        ("TD_VMA_DEFER", record::DEFER),
        ("TD_VMA_NO_OTHER", record::NO_OTHER),
    ];
    layout.extend(constants.map(|(name, value)| (name.to_owned(), value.into())));
    layout.push(("sizeof(struct td_vma_name_key)".to_owned(), record::KEY_SIZE as usize));
    layout.push(("sizeof(struct td_vma_name)".to_owned(), record::NAME_SIZE as usize));
    layout
}

/// Check the memory of the program that reads mappings.
#[test]
fn walks_over_mappings_have_the_same_layout() {
    use taskdiag_bpf::vma_walk as walk;

    let mut layout = structures! {
        walk: Position "td_vma_walk": op, fd, count, blocks, state, filled, cursor, found, pid_leaf_end, process_start, leaf_end,
            has_branch, leaves, has_leaf, slot, slots_count, address, task, mm, start_ns, exec_id, sequence, from, root,
            branch_max, leaf_max, looked_up;
    };
    // The C structure is longer, and its first member comes before these.
    layout.remove(0);
    layout.iter_mut().for_each(|(_, offset)| *offset += walk::POSITION);
    let number = |name: &str, value: usize| (name.to_owned(), value);
    layout.extend([
        number("sizeof(struct td_vma_walk)", walk::WALK_SIZE),
        number("offsetof(struct td_vma_walk, addresses)", walk::ADDRESSES_AT),
        number("offsetof(struct td_vma_walk, records)", walk::RECORDS_AT),
        number("TD_VMA_BLOCK", walk::BLOCK),
        number("TD_VMA_ADDRESSES", walk::ADDRESSES),
        number("TD_VMA_RECORDS", walk::RECORDS),
        number("TD_VMA_MACHINE", walk::op::MACHINE as usize),
        number("TD_VMA_LIST", walk::op::LIST as usize),
        number("TD_VMA_LOOK_UP", walk::op::LOOK_UP as usize),
        number("TD_VMA_CHECK", walk::op::CHECK as usize),
        number("TD_VMA_NOWHERE", walk::state::NOWHERE as usize),
        number("TD_VMA_GOES_ON", walk::state::GOES_ON as usize),
        number("TD_VMA_ENDED", walk::state::ENDED as usize),
        number("TD_VMA_CHANGED", walk::state::CHANGED as usize),
        number("TD_VMA_GONE", walk::state::GONE as usize),
    ]);
    check(&["vma.h"], layout, &[]);
}

/// Check the records and the memory of the program that reads open files.
#[test]
fn open_files_have_the_same_layout() {
    use taskdiag_bpf::files;

    let mut layout = structures! {
        files: Position "td_files_walk": wants, uses, listed, check_every, max_run_ns, types, deleted, matches_count, has_advanced, matches,
            next, fd, has_links, state, filled, steps,
            next_check, attempts, run_start_ns, longest_run_ns, address, slots, open_fds, close_on_exec,
            word, max_fds, leaf_end, process_filled, process_fd, process_has_links, position, mount, dentry, root_mount,
            root_dentry, arrived, as_task;
    };
    // The C structure is longer.
    layout.remove(0);
    layout.extend(structures! {
        files: Match "td_file_match": dev_major, dev_minor, inode;
        Record "td_file": len, index, fd, used_as as use, flags, open_flags, mnt_id, offset, size, inode, dev_major,
            dev_minor, nlink, mode, name, name_len, start_ns;
    });
    let number = |name: &str, value: usize| (name.to_owned(), value);
    layout.extend([
        number("sizeof(struct td_files_walk)", files::WALK_SIZE),
        number("offsetof(struct td_files_walk, list)", files::LIST_AT),
        number("offsetof(struct td_files_walk, records)", files::RECORDS_AT),
        number("TD_FILES_LISTED", files::LISTED),
        number("TD_FILE_MATCHES", files::MATCHES),
        number("TD_FILES_RECORDS", files::RECORDS),
        number("TD_FILE_FD", files::used_as::FD.into()),
        number("TD_FILE_CWD", files::used_as::CWD.into()),
        number("TD_FILE_ROOT", files::used_as::ROOT.into()),
        number("TD_FILE_EXE", files::used_as::EXE.into()),
        number("TD_FILE_PROCESS", files::used_as::PROCESS.into()),
        number("TD_FILE_END", files::used_as::END.into()),
        number("TD_FILE_DEFER_STAT", files::DEFER_STAT.into()),
        number("TD_FILE_DEFER_NAME", files::DEFER_NAME.into()),
        number("TD_FILE_DEFER_ALL", files::DEFER_ALL.into()),
        number("TD_FILE_DEFER_SPACE", files::DEFER_SPACE.into()),
        number("TD_FILE_DEFER_THREADS", files::DEFER_THREADS.into()),
        number("TD_FILE_NAMES", files::wants::NAMES as usize),
        number("TD_FILE_FLAGS", files::wants::FLAGS as usize),
        number("TD_FILE_STAT", files::wants::STAT as usize),
        number("TD_FILE_SPACE", files::wants::SPACE as usize),
        number("TD_NAME_NONE", files::name::NONE.into()),
        number("TD_NAME_WHOLE", files::name::WHOLE.into()),
        number("TD_NAME_SOCKET", files::name::SOCKET.into()),
        number("TD_NAME_PIPE", files::name::PIPE.into()),
        number("TD_NAME_ANON", files::name::ANON.into()),
        number("TD_NAME_SIMPLE", files::name::SIMPLE.into()),
        number("TD_FILES_NOWHERE", files::state::NOWHERE as usize),
        number("TD_FILES_GOES_ON", files::state::GOES_ON as usize),
        number("TD_FILES_ENDED", files::state::ENDED as usize),
    ]);
    check(&["files.h"], layout, &[]);
}

fn event_layout() -> Vec<(String, usize)> {
    let header = size_of::<wire::Header>();
    let mut layout = vec![("sizeof(struct td_event)".to_owned(), header)];
    let members = wire::Header::MEMBERS.iter();
    layout.extend(members.map(|&(member, offset)| (format!("offsetof(struct td_event, {member})"), offset)));
    let number = |name: &str, value: usize| (name.to_owned(), value);
    layout.extend([
        number("sizeof(struct td_event_fork)", header + size_of::<wire::Fork>()),
        number(
            "offsetof(struct td_event_fork, caller_pid)",
            header + offset_of!(wire::Fork, caller_pid),
        ),
        number(
            "offsetof(struct td_event_fork, caller_tid)",
            header + offset_of!(wire::Fork, caller_tid),
        ),
        number("sizeof(struct td_event_exit)", header + size_of::<wire::Exit>()),
        number(
            "offsetof(struct td_event_exit, status)",
            header + offset_of!(wire::Exit, status),
        ),
        number(
            "offsetof(struct td_event_exit, runtime_ns)",
            header + offset_of!(wire::Exit, runtime_ns),
        ),
        number(
            "offsetof(struct td_event_exit, peak_rss_pages)",
            header + offset_of!(wire::Exit, peak_rss_pages),
        ),
        number("offsetof(struct td_event_exec, filename)", header),
        number("offsetof(struct td_event_long_exec, filename)", header),
        number("TD_EVENT_FORK", wire::FORK.into()),
        number("TD_EVENT_EXEC", wire::EXEC.into()),
        number("TD_EVENT_EXIT", wire::EXIT.into()),
        number("TD_EVENT_THREAD", wire::THREAD.into()),
        number("TD_EVENT_KERNEL_THREAD", wire::KERNEL_THREAD.into()),
        number("TD_EVENT_CUT", wire::CUT.into()),
        number("TD_EVENT_CONNECTOR", wire::CONNECTOR.into()),
        number("TD_EVENT_GONE", wire::GONE.into()),
        number("TD_EVENT_NO_RUNTIME", wire::NO_RUNTIME.into()),
        number("TD_EVENT_OOM_VICTIM", wire::OOM_VICTIM.into()),
        number("offsetof(struct td_event_state, lost)", tracing::LOST),
        number("sizeof(struct td_event_state)", tracing::STATE_SIZE),
    ]);
    layout
}

/// Check the sizes, offsets and constants of records.
#[test]
fn records_have_the_same_layout() {
    check(&["record.h", "vma.h"], layout(), &[]);
}

/// Check the sizes, offsets and constants of events.
#[test]
fn events_have_the_same_layout() {
    check(&["event.h"], event_layout(), &[]);
}

/// Check the memory of the programs that read tasks.
#[test]
fn walks_have_the_same_layout() {
    use taskdiag_bpf::{reader, walk};

    let mut layout = structures! {
        walk: Position "td_walk": state, listed, cursor, filled, found, next, attempts, gone, leaf_end, steps, check_every,
            next_check, max_run_ns, run_start_ns, longest_run_ns, root, head, node;
    };
    // The C structure is longer.
    layout.remove(0);
    let number = |name: &str, value: usize| (name.to_owned(), value);
    layout.extend([
        number("sizeof(struct td_reader)", walk::READER_SIZE as usize),
        number("offsetof(struct td_reader, scratch)", walk::SCRATCH),
        number("offsetof(struct td_reader, walk)", walk::POSITION),
        number("offsetof(struct td_reader, walk.list)", walk::LIST),
        number("TD_LISTED", walk::LISTED),
        number("TD_BLOCK", walk::BLOCK),
        number("TD_WALK_NOWHERE", walk::state::NOWHERE as usize),
        number("TD_WALK_GOES_ON", walk::state::GOES_ON as usize),
        number("TD_WALK_ENDED", walk::state::ENDED as usize),
        number("TD_WALK_LOST", walk::state::LOST as usize),
    ]);
    check(&["record.h"], layout, &["-DTD_WALKS=1"]);
    let called = [("sizeof(struct td_reader)".to_owned(), reader::CALLED_SIZE as usize)];
    check(&["record.h"], called.to_vec(), &[]);
}

/// Compiles a static assertion for each expression.
fn check(headers: &[&str], layout: Vec<(String, usize)>, options: &[&str]) {
    let mut source = "#include <linux/types.h>\n#include <stddef.h>\n".to_owned();
    for header in headers {
        let path = format!("{}/bpf/{header}", env!("CARGO_MANIFEST_DIR"));
        writeln!(source, "#include {path:?}").unwrap();
    }
    for (expression, value) in layout {
        writeln!(source, "_Static_assert({expression} == {value}, \"{expression}\");").unwrap();
    }
    let mut compiler = Command::new("cc")
        .args(["-fsyntax-only", "-I", env!("OUT_DIR"), "-x", "c"])
        .args(options)
        .arg("-")
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("cc is installed, because Rust links with it");
    let mut input = compiler.stdin.take().expect("the standard input is a pipe");
    input.write_all(source.as_bytes()).expect("cc reads its input");
    drop(input);
    let output = compiler.wait_with_output().expect("cc ends");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

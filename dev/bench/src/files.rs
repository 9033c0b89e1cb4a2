//! Open files of the machine, of one path, of one process; and sockets.

use std::hint::black_box;
use std::ops::ControlFlow;
use std::time::Duration;

use taskdiag::files::{self, FileField, PathMatch, Use};
use taskdiag::sockets::{self, Kind, SocketField};
use taskdiag::{Field, Handle, Query, Set, Snapshot, SourceId};

use crate::actors::{FILES, MANY, OTHERS, SOCKETS};
use crate::case::{call, command, timed, times, whole, Case, Contender, Counts, Stage};
use crate::loops;
use crate::served::Served;
use crate::{Result, Sizes};

/// Processes with open files, or sockets.
const PROCESSES: usize = 5_000;

/// A file that all processes with files have open.
const FILE: &str = "/etc/passwd";

#[rustfmt::skip]
pub fn cases(sizes: &Sizes) -> Vec<Case> {
    let processes = sizes.or(&[PROCESSES])[0];
    let case = |title: &str, role: &'static str, each: usize| {
        let stage = move || {
            let actor = Served::actor(role, processes, None)?;
            let all = walk(None)?;
            if all < processes * each {
                return Err(format!("only {all} descriptors are open").into());
            }
            let stage = Stage {
                title: format!(": {processes} processes with {each} descriptors each, {all} descriptors in all"),
                ..Stage::default()
            };
            Ok(stage.subject(std::process::id()).keep(actor))
        };
        Case::new(title, stage).counting(Counts::Memory, "")
    };

    let all = case("Open files", "files", FILES).of(of_all(), vec![
        times("times as fast as lsof -nP", "lsof -nP", COMMAND, 15.0),
        times("times as fast as lsfd", "lsfd", COMMAND, 20.0),
        times("names, times as fast as a readlink walk", "readlink walk", "taskdiag bpf, loaded, names", 4.0),
    ]);
    let of_one = vec![
        command("command: taskdiag files PID", "", "taskdiag files SUBJECT"),
        command("ls -l /proc/PID/fd", "", "ls -l /proc/SUBJECT/fd"),
        command("lsof -nP -p PID", "", "lsof -nP -p SUBJECT"),
    ];
    let wanted = times("times as fast as ls -l", "ls -l /proc/PID/fd", "command: taskdiag files PID", 1.0);
    let one = case("Open files of one process", "files", FILES).of(of_one, vec![wanted]);
    let path = case("Who has one file open", "many-files", MANY * FILES).of(of_path(), vec![
        times("times as fast as fuser", "fuser FILE", PATH_COMMAND, 50.0),
        times("times as fast as lsof", "lsof FILE", PATH_COMMAND, 50.0),
    ]);
    let tcp = case("TCP sockets", "sockets", SOCKETS + OTHERS).of(of_tcp(), vec![
        times("with owners, times as fast as ss -tanp", "ss -tanp", "command: taskdiag sockets --tcp", 5.0),
        times("without owners, times as fast as ss -tan", "ss -tan", PLAIN, 1.0),
    ]);
    vec![all, one, path, tcp]
}

const COMMAND: &str = "command: taskdiag files --jsonl";
const PATH_COMMAND: &str = "command: taskdiag files --path FILE";
const PLAIN: &str = "command: taskdiag sockets --tcp -o state,…";

fn of_all() -> Vec<Contender> {
    let ours = |name, source, fields| {
        call(name, "", move |_| {
            let mut request = files::Request::default();
            request.fields = fields;
            list(source, request)
        })
    };
    let usual = files::Request::default().fields;
    let names = Set::from(FileField::Name);
    vec![
        call("readlink walk", "", |_| timed(|| walk(None))),
        ours("taskdiag bpf, loaded, names", SourceId::Bpf, names),
        ours("taskdiag bpf, loaded, all values", SourceId::Bpf, usual),
        ours("taskdiag procfs, names", SourceId::Procfs, names),
        whole("taskdiag files --jsonl"),
        whole("taskdiag files"),
        whole("taskdiag files --jsonl --source procfs"),
        command("lsof -nP", "", "lsof -nP -w"),
        command("lsfd", "", "lsfd"),
    ]
}

fn of_path() -> Vec<Contender> {
    let ours = |_: &_| {
        let mut request = files::Request::default();
        request.fields = FileField::Name.into();
        request.uses = Set::from(Use::ALL).without(Use::Map);
        request.paths = vec![PathMatch::new(FILE, Duration::from_secs(1))?];
        list(SourceId::Bpf, request)
    };
    vec![
        call("readlink walk", "", |_| timed(|| walk(Some(FILE)))),
        call("taskdiag bpf, loaded, without mapped files", "", ours),
        command(PATH_COMMAND, "", &format!("taskdiag files --path {FILE}")),
        command("lsof FILE", "", &format!("lsof -w {FILE}")),
        command("fuser FILE", "", &format!("fuser {FILE}")),
    ]
}

/// Queries the files of all processes.
fn list(source: SourceId, request: files::Request) -> Result<crate::case::Runner> {
    let mut handle = Handle::new().with_source(source);
    timed(move || {
        let processes = handle.query(&Query::processes().fields(Field::StartNs))?;
        let mut rows = 0;
        handle.files(&processes, &request, |_, file| {
            black_box(file);
            rows += 1;
            ControlFlow::Continue(())
        })?;
        Ok(rows)
    })
}

/// Reads the link of each descriptor. Returns how many there are, or how many lead to a path.
fn walk(path: Option<&str>) -> Result<usize> {
    let mut count = 0;
    loops::each_descriptor(|name| count += usize::from(path.is_none_or(|path| path.as_bytes() == name)))?;
    Ok(count)
}

#[rustfmt::skip]
fn of_tcp() -> Vec<Contender> {
    const FIELDS: &str = "state,recv_queue_bytes,send_queue_bytes,local_addr,local_port,remote_addr,remote_port";
    let ours = |name, fields, own_namespace| {
        call(name, "", move |_| {
            let mut handle = Handle::new();
            timed(move || list_tcp(&mut handle, fields, own_namespace))
        })
    };
    vec![
        ours("taskdiag, this namespace", Set::NONE, true),
        ours("taskdiag, all namespaces", Set::NONE, false),
        ours("taskdiag, all namespaces, owners", SocketField::Owners.into(), false),
        whole("taskdiag sockets --tcp"),
        command(PLAIN, "", &format!("taskdiag sockets --tcp -o {FIELDS}")),
        whole("taskdiag sockets --tcp --own-netns"),
        command("ss -tanp", "", "ss -tanp"),
        command("ss -tan", "", "ss -tan"),
        command("lsof -nP -iTCP", "", "lsof -nP -w -iTCP"),
    ]
}

fn list_tcp(handle: &mut Handle, fields: Set<SocketField>, own_namespace: bool) -> Result<usize> {
    let processes = if fields.contains(SocketField::Owners) {
        handle.query(&Query::processes().fields(Field::StartNs | Field::Comm))?
    } else {
        Snapshot::default()
    };
    let mut request = sockets::Request::default();
    request.kinds = Kind::Tcp.into();
    request.own_namespace = own_namespace;
    request.fields = fields;
    let mut rows = 0;
    handle.sockets(&processes, &request, |socket| {
        black_box(socket);
        rows += 1;
        ControlFlow::Continue(())
    })?;
    Ok(rows)
}

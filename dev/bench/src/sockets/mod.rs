//! The suite for sockets: those of the machine, with and without their owners.

use std::fs::File;
use std::hint::black_box;
use std::net::{TcpListener, TcpStream};
use std::ops::ControlFlow;

use taskdiag::sockets::{Kind, Request, SocketField};
use taskdiag::{Field, Handle, Query, Set, Snapshot};

use crate::files::holders::Holders;
use crate::files::{entry, measure, table, targets_table, Entry, Target};
use crate::measure::Effort;
use crate::tools::{self, Tools};
use crate::{Report, Result};

/// The number of processes with sockets; some have many, as servers do, and other files.
const PROCESSES: usize = 5_000;
/// Connections of each process to itself. Each is two sockets.
const CONNECTIONS: usize = 2;
/// Other descriptors of each process.
const FILES: usize = 9;

/// Opens the descriptors of one process.
pub fn open() -> Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    for _ in 0..CONNECTIONS {
        let client = TcpStream::connect(listener.local_addr()?)?;
        std::mem::forget((client, listener.accept()?));
    }
    std::mem::forget(listener);
    for _ in 0..FILES {
        std::mem::forget(File::open("/dev/null")?);
    }
    Ok(())
}

const OWNERS: &str = "command: taskdiag sockets --tcp";
const PLAIN: &str = "command: taskdiag sockets --tcp -o state,…";

/// Measures all cases.
pub fn run(effort: Effort, tools: &Tools, report: &mut Report) -> Result<()> {
    let holders = Holders::start("--socket-holders", PROCESSES)?;
    let mut count = 0;
    list(&mut Handle::new(), Set::NONE, true, &mut count)?;
    let wanted = PROCESSES * (2 * CONNECTIONS + 1);
    if count < wanted {
        return Err(format!("only {count} sockets are there, not {wanted}").into());
    }
    let mut all = contenders(tools)?;
    measure(&mut all, effort)?;
    drop(holders);
    let descriptors = PROCESSES * (2 * CONNECTIONS + 1 + FILES);
    report.heading(&format!(
        "Sockets: {count} of TCP, {PROCESSES} processes, {descriptors} descriptors"
    ));
    report.table(&table(&all));
    report.heading("Targets for sockets");
    report.line("Median of the ratios of each round.");
    let targets: [Target<'_>; 2] = [
        ("with owners, times as fast as ss -tanp", &all, "ss -tanp", OWNERS, 5.0),
        ("without owners, times as fast as ss -tan", &all, "ss -tan", PLAIN, 1.0),
    ];
    report.table(&targets_table(&targets));
    Ok(())
}

fn contenders(tools: &Tools) -> Result<Vec<Entry>> {
    let taskdiag = tools.taskdiag()?;
    let command = |name, args: &'static [&'static str]| {
        let taskdiag = taskdiag.clone();
        entry(name, move || tools::answer(&taskdiag, args))
    };
    let ours = |name, fields, own_namespace| {
        let mut handle = Handle::new();
        entry(name, move || list(&mut handle, fields, own_namespace, &mut 0))
    };
    const FIELDS: &str = "state,recv_queue_bytes,send_queue_bytes,local_addr,local_port,remote_addr,remote_port";
    Ok(vec![
        ours("taskdiag, this namespace", Set::NONE, true),
        ours("taskdiag, all namespaces", Set::NONE, false),
        ours("taskdiag, all namespaces, owners", SocketField::Owners.into(), false),
        command(OWNERS, &["sockets", "--tcp"]),
        command(PLAIN, &["sockets", "--tcp", "-o", FIELDS]),
        command(
            "command: taskdiag sockets --tcp --jsonl",
            &["sockets", "--tcp", "--jsonl"],
        ),
        command(
            "command: taskdiag sockets --tcp --own-netns",
            &["sockets", "--tcp", "--own-netns"],
        ),
        entry("ss -tanp", || tools::answer("ss", &["-tanp"])),
        entry("ss -tan", || tools::answer("ss", &["-tan"])),
        entry("lsof -nP -iTCP", || tools::answer("lsof", &["-nP", "-w", "-iTCP"])),
    ])
}

fn list(handle: &mut Handle, fields: Set<SocketField>, own_namespace: bool, count: &mut usize) -> Result<()> {
    let processes = if fields.contains(SocketField::Owners) {
        handle.query(&Query::processes().fields(Field::StartNs | Field::Comm))?
    } else {
        Snapshot::default()
    };
    let mut request = Request::default();
    request.kinds = Kind::Tcp.into();
    request.own_namespace = own_namespace;
    request.fields = fields;
    handle.sockets(&processes, &request, |socket| {
        black_box(socket);
        *count += 1;
        ControlFlow::Continue(())
    })?;
    Ok(())
}

//! Proportional sizes: of one process, of all, and of a large one.

use std::cell::RefCell;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::thread::sleep;
use std::time::Duration;

use taskdiag::{Budget, Field, Fields, Handle, Query};
use taskdiag_zoo::{Farm, Zoo};

use crate::case::Bound::{AtLeast, AtMost};
use crate::case::Value::{Rows, Time};
use crate::case::{call, command, psutil, single, timed, times, whole, Case, Context, Counts, Runner, Stage, Target};
use crate::served::Served;
use crate::{loops, Result, Sizes};

/// The numbers of mappings of the examined processes, and how many times as fast as smaps is wanted.
const SIZES: [(usize, f64); 3] = [(2_700, 12.0), (5_000, 12.0), (20_000, 15.0)];

/// The number of processes whose sizes are all read.
const PROCESSES: usize = 2_000;

/// The number of small processes, and the MiB of the large one.
const SMALL: usize = 500;
const LARGE: usize = 4 << 10;

/// Values of unchanged processes are remembered.
const REMEMBERING: Budget = Budget::UNLIMITED.max_age(Duration::from_secs(3600));

pub fn cases(sizes: &Sizes) -> Vec<Case> {
    let mut cases: Vec<Case> = SIZES.into_iter().map(|(size, times)| one(size, times)).collect();
    cases.push(all(sizes.or(&[PROCESSES])[0]));
    cases.push(large(if sizes.0.is_empty() { LARGE } else { 64 }));
    cases
}

#[rustfmt::skip]
fn one(size: usize, least: f64) -> Case {
    let stage = move || {
        let animal = Zoo::new()?.with_mappings(size)?;
        Ok(Stage::default().subject(animal.pid).keep(animal))
    };
    let sum = |name, file| call(name, "", move |context: &Context| sums(file, Some(context.subject.clone())));
    Case::new(format!("Proportional size of a process with {size} mappings"), stage).of(
        vec![
            sum("smaps summed", "smaps"),
            sum("smaps_rollup read", "smaps_rollup"),
            call("taskdiag", "", |context| ours(Query::process(context.number(0)?), Budget::UNLIMITED)),
            psutil("psutil memory_full_info", "", "memory"),
        ],
        vec![times("times as fast as summing smaps", "smaps summed", "taskdiag", least)],
    )
}

#[rustfmt::skip]
fn all(processes: usize) -> Case {
    let title = format!("Proportional sizes of all processes, {processes} of them idle");
    let sum = |name, file| call(name, "", move |_| sums(file, None));
    // The programs that people use. Bare reading of rollups in a loop is the kernel's own cost.
    let rivals = ["smaps summed", "psutil memory_full_info", "command: smem"].map(str::to_owned);
    let rival = |claim, fast, least| Target { of: rivals.to_vec(), ..times(claim, "", fast, least) };
    Case::new(title, move || Ok(Stage::default().keep(Farm::start(processes, 1)?))).of(
        vec![
            sum("smaps summed", "smaps"),
            sum("smaps_rollup read", "smaps_rollup"),
            call("taskdiag", "", |_| ours(Query::processes(), Budget::UNLIMITED)),
            call("taskdiag, nothing changed", "", |_| ours(Query::processes(), REMEMBERING)),
            psutil("psutil memory_full_info", "", "all memory"),
            whole("taskdiag mem"),
            whole("smem"),
        ],
        vec![
            rival("times as fast as the fastest competitor", "taskdiag", 3.0),
            rival("again, with nothing changed, as the fastest competitor", "taskdiag, nothing changed", 20.0),
        ],
    )
}

/// Small processes and a large one: what a deadline leaves out, and how long a walk makes the large
/// one wait.
#[rustfmt::skip]
fn large(mib: usize) -> Case {
    let hoarder: Rc<RefCell<Option<Served>>> = Rc::default();
    let kept = hoarder.clone();
    let stage = move || {
        let started = Served::actor("hoarder", mib, None)?;
        let stage = Stage::default().subject(started.pid()).keep(Farm::start(SMALL, 1)?);
        kept.replace(Some(started));
        Ok(stage)
    };
    let wait = |name, about, is_walked: bool| {
        let hoarder = hoarder.clone();
        call(name, about, move |context: &Context| {
            let (hoarder, pid, mut handle) = (hoarder.clone(), context.number(0)?, Handle::new());
            Ok(Box::new(move || {
                let mut hoarder = hoarder.borrow_mut();
                let hoarder = hoarder.as_mut().ok_or("there is none")?;
                hoarder.run()?;
                if is_walked { walk(&mut handle, pid)? } else { sleep(Duration::from_millis(50)) }
                hoarder.run()
            }))
        })
    };
    let deadline = "command: taskdiag mem --deadline 0.05";
    let words = "taskdiag mem --deadline 0.05 --max-rss none --csv -o pid,pss_bytes --where pss_bytes>0";
    Case::new(format!("{SMALL} small processes and one of {mib} MiB"), stage).counting(Counts::Nothing, "").of(
        vec![
            call("a walk of the large one", "", |context| {
                let (pid, mut handle) = (context.number(0)?, Handle::new());
                timed(move || walk(&mut handle, pid).map(|()| 1))
            }),
            wait("mmap and munmap in it, meanwhile", "the one that waited longest", true),
            wait("mmap and munmap in it, without a walk", "the same", false),
            command(deadline, "the whole command", words),
        ],
        vec![
            single("small ones answered", Rows, deadline, AtLeast(SMALL as f64)),
            single("milliseconds with a deadline of 50", Time, deadline, AtMost(100.0)),
        ],
    )
}

fn walk(handle: &mut Handle, pid: u32) -> Result<()> {
    let query = Query::process(pid).fields(Field::PssBytes).budget(Budget::UNLIMITED);
    handle.query(&query)?.task(0).pss_bytes()?;
    Ok(())
}

/// Repeats a query for the fields that all contenders add up.
fn ours(query: Query, budget: Budget) -> Result<Runner> {
    let fields: Fields = Field::RssBytes | Field::SwapBytes | Field::PssBytes | Field::UssBytes;
    let mut handle = Handle::new();
    handle.prepare(fields | Field::UtimeNs | Field::MinFaults)?;
    crate::tasks::repeat(handle, query.fields(fields).budget(budget))
}

/// What a C program would read and add up, with one buffer, no copies and no allocations: a file of
/// a process, or of all that have memory.
fn sums(file: &'static str, pid: Option<String>) -> Result<Runner> {
    let mut buffer = vec![0; 256 << 10];
    timed(move || {
        let mut rows = 0;
        let mut read = |proc: &OwnedFd, pid: &[u8]| {
            // Rss, Pss, private, Swap.
            let mut sums = [0; 4];
            loops::each_line(proc, pid, file, &mut buffer, |line| add_up(line, &mut sums))?;
            rows += usize::from(std::hint::black_box(sums)[1] > 0);
            Ok(())
        };
        match &pid {
            Some(pid) => read(&loops::proc()?, pid.as_bytes())?,
            None => loops::each_process(read)?,
        }
        match rows {
            0 => Err("no process has memory".into()),
            _ => Ok(rows),
        }
    })
}

fn add_up(line: &[u8], [rss, pss, private, swap]: &mut [u64; 4]) {
    let sum = match line {
        [b'R', b's', b's', b':', ..] => rss,
        [b'P', b's', b's', b':', ..] => pss,
        [b'P', b'r', b'i', b'v', b'a', b't', b'e', b'_', ..] => private,
        [b'S', b'w', b'a', b'p', b':', ..] => swap,
        _ => return,
    };
    let digits = line.iter().filter(|byte| byte.is_ascii_digit());
    *sum += digits.fold(0, |number, digit| number * 10 + u64::from(digit - b'0'));
}

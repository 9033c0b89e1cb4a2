//! Open files from the broker, and from procfs what it can't answer exactly.

use std::collections::HashMap;
use std::ops::ControlFlow;

use taskdiag_bpf::files::{self, FilesPassRequest, Record};
use taskdiag_core::error::{ErrorKind, Result};
use taskdiag_protocol::wire::{self, Strategy};
use zerocopy::native_endian::{U32, U64};

use super::bpf::{deliver, kernel_asked, read_mapped, read_rest, Run, State};
use super::{Pass, Process};
use crate::source::broker::{Broker, Records};

/// Up to this many processes are requested one by one; for more, one request covers all processes.
const ONE_BY_ONE: usize = 64;

/// Reads the files of processes, and passes them on. If the broker does not show a process, or not
/// completely, procfs answers for it.
pub(super) fn read(broker: &mut Broker, processes: &[Process], pass: &mut Pass<'_>) -> Result<ControlFlow<()>> {
    match read_mapped(processes, pass) {
        ControlFlow::Continue(true) => {}
        ControlFlow::Continue(false) => return Ok(ControlFlow::Continue(())),
        ControlFlow::Break(()) => return Ok(ControlFlow::Break(())),
    }
    let asked = request(&kernel_asked(pass.request));
    let pids = || processes.iter().map(|process| process.identity.tid());
    // Answers about all processes come by ascending pid.
    let is_ascending = pids().is_sorted_by(|one, next| one < next);
    let requests: Vec<(Strategy, u32)> = if processes.len() > ONE_BY_ONE && is_ascending {
        vec![(Strategy::All, 0)]
    } else {
        pids().map(|pid| (Strategy::One, pid)).collect()
    };
    let indexes: HashMap<u32, u32> = pids().zip(0..).collect();
    let mut states = vec![State::default(); processes.len()];
    for (strategy, pid) in requests {
        let mut each = |packet: &[Records<'_>]| {
            let run = take(packet, &indexes, processes, &mut states, pass)?;
            Ok(deliver(&run, processes, pass).is_continue())
        };
        match broker.read_files(strategy, pid, &asked, &mut each) {
            Ok(true) => {}
            Ok(false) => return Ok(ControlFlow::Break(())),
            // It has ended, or procfs will report that it is denied.
            Err(error) if matches!(error.kind(), ErrorKind::NoSuchTask) => {}
            Err(error) if matches!(error.kind(), ErrorKind::Denied) && strategy == Strategy::One => {}
            Err(error) => return Err(error),
        }
    }
    Ok(read_rest(processes, &states, pass))
}

/// Takes in the records of a packet.
fn take(
    packet: &[Records<'_>],
    indexes: &HashMap<u32, u32>,
    processes: &[Process],
    states: &mut [State],
    pass: &Pass<'_>,
) -> Result<Run> {
    let needs = pass.needs;
    let mut run = Run::default();
    for (pid, records) in packet {
        let Some(&index) = indexes.get(pid) else {
            continue;
        };
        files::decode(records, |record, text| {
            let record = Record { index, ..*record };
            run.take(&record, text, processes, states, needs);
        })?;
    }
    Ok(run)
}

/// The request in the broker's form.
fn request(asked: &FilesPassRequest) -> wire::Files {
    let matched = |file: files::Match| wire::FileMatch {
        dev_major: U32::new(file.dev_major),
        dev_minor: U32::new(file.dev_minor),
        inode: U64::new(file.inode),
    };
    wire::Files {
        uses: U32::new(asked.uses),
        wants: U32::new(asked.wants),
        types: U32::new(asked.types),
        deleted: U32::new(asked.deleted.into()),
        matches: asked.matches.map(matched),
    }
}

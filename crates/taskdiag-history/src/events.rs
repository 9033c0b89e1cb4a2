//! Events between two samples, and sums of what ran and ended there.

use std::collections::BTreeMap;

use taskdiag_core::event::wire;
use zerocopy::IntoBytes as _;

use crate::texts::{Interned, Texts};
use crate::varint::{self, Input};
use crate::Damage;

/// Processes of one program in one unit that ended between two samples.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sum {
    /// How many ended.
    pub ended_count: u64,
    /// How many of them began after the sample before: no sample has them.
    pub unseen_count: u64,
    /// How many ended with a code other than 0, or by a signal.
    pub failed_count: u64,
    /// How many processes began.
    pub forks_count: u64,
    /// How many programs were executed.
    pub execs_count: u64,
    /// The processor time of those that ended, in nanoseconds, of their first threads.
    pub runtime_ns: u64,
    /// The largest peak of resident memory among them, in bytes.
    pub peak_rss_bytes: u64,
}

impl Sum {
    fn parts(&mut self) -> [&mut u64; 7] {
        [
            &mut self.ended_count,
            &mut self.unseen_count,
            &mut self.failed_count,
            &mut self.forks_count,
            &mut self.execs_count,
            &mut self.runtime_ns,
            &mut self.peak_rss_bytes,
        ]
    }

    /// Adds another sum: of the same program, for a longer time.
    pub fn add(&mut self, mut other: Sum) {
        let peak = self.peak_rss_bytes.max(other.peak_rss_bytes);
        for (part, more) in self.parts().into_iter().zip(other.parts()) {
            *part = part.saturating_add(*more);
        }
        self.peak_rss_bytes = peak;
    }
}

/// Sums by unit and program.
pub type Sums = BTreeMap<(Vec<u8>, Vec<u8>), Sum>;

/// What happened between two samples.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Happened {
    /// Sums by unit and program.
    pub sums: Sums,
    /// Single events, as their source wrote them: see [`wire`].
    pub events: Vec<Vec<u8>>,
    /// Events that were lost, or left out of `events` because there were too many.
    pub left_out: u64,
}

impl Happened {
    /// Adds what happened later, without its single events.
    pub fn add(&mut self, other: &Happened) {
        for (of, &sum) in &other.sums {
            self.sums.entry(of.clone()).or_default().add(sum);
        }
        self.left_out = self.left_out.saturating_add(other.left_out);
    }
}

pub(crate) fn encode(happened: &Happened, texts: &mut Interned, out: &mut Vec<u8>) {
    varint::number(out, happened.left_out);
    varint::number(out, happened.sums.len() as u64);
    for ((unit, program), sum) in &happened.sums {
        varint::number(out, texts.number(unit).into());
        varint::number(out, texts.number(program).into());
        let mut sum = *sum;
        sum.parts().into_iter().for_each(|part| varint::number(out, *part));
    }
    let whole = happened.events.iter().filter_map(|event| wire::split(event));
    let events: Vec<(wire::Header, &[u8])> = whole.map(|(header, rest)| (*header, rest)).collect();
    varint::number(out, events.len() as u64);
    // One member of all events after the other.
    let mut before = [0; MEMBERS];
    let all: Vec<[u64; MEMBERS]> = events.iter().map(|(header, _)| numbers(header)).collect();
    for member in 0..MEMBERS {
        for event in &all {
            varint::signed(out, event[member].wrapping_sub(before[member]) as i64);
            before[member] = event[member];
        }
    }
    for (header, rest) in &events {
        varint::number(out, texts.number(&header.comm).into());
        if header.kind.get() == wire::EXEC {
            varint::number(out, texts.number(rest).into());
        } else {
            let words = rest.chunks_exact(4);
            varint::number(out, words.len() as u64);
            for word in words {
                let word = <[u8; 4]>::try_from(word).map_or(0, u32::from_ne_bytes);
                varint::number(out, word.into());
            }
        }
    }
}

pub(crate) fn decode(input: &mut Input<'_>, texts: &Texts) -> Result<Happened, Damage> {
    let mut happened = Happened {
        left_out: input.number()?,
        ..Happened::default()
    };
    for _ in 0..input.count()? {
        let (unit, program) = (texts.get(input.number()?)?, texts.get(input.number()?)?);
        let mut sum = Sum::default();
        for part in sum.parts() {
            *part = input.number()?;
        }
        happened.sums.insert((unit.to_vec(), program.to_vec()), sum);
    }
    let count = input.count()?;
    let mut all = vec![[0_u64; MEMBERS]; count];
    for member in 0..MEMBERS {
        let mut before = 0_u64;
        for event in &mut all {
            before = before.wrapping_add(input.signed()? as u64);
            event[member] = before;
        }
    }
    for numbers in &all {
        let mut header = header(numbers);
        let comm = texts.get(input.number()?)?;
        header.comm = comm
            .try_into()
            .map_err(|_| Damage("the name in an event is too long"))?;
        let mut rest = Vec::new();
        if header.kind.get() == wire::EXEC {
            rest.extend_from_slice(texts.get(input.number()?)?);
        } else {
            for _ in 0..input.count()? {
                rest.extend_from_slice(&input.small()?.to_ne_bytes());
            }
        }
        header.len.set((size_of::<wire::Header>() + rest.len()) as u32);
        let mut event = header.as_bytes().to_vec();
        event.append(&mut rest);
        happened.events.push(event);
    }
    Ok(happened)
}

const MEMBERS: usize = 10;

fn numbers(header: &wire::Header) -> [u64; MEMBERS] {
    [
        header.kind.get().into(),
        header.flags.get().into(),
        header.time_ns.get(),
        header.start_ns.get(),
        header.cgroup_id.get(),
        header.pid.get().into(),
        header.tid.get().into(),
        header.ppid.get().into(),
        header.uid.get().into(),
        header.euid.get().into(),
    ]
}

fn header(numbers: &[u64; MEMBERS]) -> wire::Header {
    let mut header = wire::Header::default();
    let [kind, flags, time_ns, start_ns, cgroup_id, pid, tid, ppid, uid, euid] = *numbers;
    header.kind.set(kind as u16);
    header.flags.set(flags as u16);
    header.time_ns.set(time_ns);
    header.start_ns.set(start_ns);
    header.cgroup_id.set(cgroup_id);
    header.pid.set(pid as u32);
    header.tid.set(tid as u32);
    header.ppid.set(ppid as u32);
    header.uid.set(uid as u32);
    header.euid.set(euid as u32);
    header
}

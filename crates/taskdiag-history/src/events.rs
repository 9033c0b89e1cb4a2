//! Events between two samples, and sums of what ran and ended there.

use std::collections::BTreeMap;

use taskdiag_core::event::wire;
use zerocopy::IntoBytes as _;

use crate::texts::{Interned, Texts};
use crate::varint::{self, Input};
use crate::{Damage, Named};

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
    /// The processor time of those that ended, in nanoseconds.
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

/// Sums that a sample of a coarse tier has at most.
const MOST_SUMS: usize = 4096;

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
            self.add_sum(of.clone(), sum, MOST_SUMS);
        }
        self.left_out = self.left_out.saturating_add(other.left_out);
    }

    /// Adds to the sum of a program of a unit. Once there are so many, others are in one sum without a
    /// name: processes choose their names.
    pub fn add_sum(&mut self, of: (Vec<u8>, Vec<u8>), sum: Sum, most: usize) {
        let has_room = self.sums.len() < most || self.sums.contains_key(&of);
        let of = if has_room { of } else { Default::default() };
        self.sums.entry(of).or_default().add(sum);
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
    let mut events: Vec<(wire::Header, &[u8])> = whole.map(|(header, rest)| (*header, rest)).collect();
    // Those of a process are together: most of what they have is the same.
    events.sort_by_key(|(header, _)| (header.pid.get(), header.start_ns.get(), header.time_ns.get()));
    varint::number(out, events.len() as u64);
    let all: Vec<[u64; MEMBERS]> = events.iter().map(|(header, _)| numbers(header)).collect();
    for member in 0..MEMBERS {
        let mut before = [0; MEMBERS];
        for event in &all {
            varint::signed(out, event[member].wrapping_sub(likely(member, event, &before)) as i64);
            before = *event;
        }
    }
    for (header, _) in &events {
        varint::number(out, texts.number(&header.comm).into());
    }
    let words = |rest: &[u8]| rest.len() / WORD;
    for (header, rest) in &events {
        if header.kind.get() == wire::EXEC {
            varint::number(out, texts.number(rest).into());
        } else {
            varint::number(out, words(rest) as u64);
        }
    }
    let others = || events.iter().filter(|(header, _)| header.kind.get() != wire::EXEC);
    for index in 0..others().map(|(_, rest)| words(rest)).max().unwrap_or(0) {
        for word in others().filter_map(|(_, rest)| rest.chunks_exact(WORD).nth(index)) {
            let word = <[u8; WORD]>::try_from(word).map_or(0, u32::from_ne_bytes);
            varint::number(out, word.into());
        }
    }
}

pub(crate) fn decode(input: &mut Input<'_>, texts: &Texts) -> Result<Happened, Damage> {
    let mut happened = Happened {
        left_out: input.number()?,
        ..Happened::default()
    };
    let mut named = Named::default();
    for _ in 0..input.count()? {
        let unit = named.add(texts.get(input.number()?)?)?;
        let program = named.add(texts.get(input.number()?)?)?;
        let mut sum = Sum::default();
        for part in sum.parts() {
            *part = input.number()?;
        }
        happened.sums.insert((unit.to_vec(), program.to_vec()), sum);
    }
    let count = input.count()?;
    if count > MOST_EVENTS {
        return Err(Damage("there are more events than any recorder writes"));
    }
    let mut all = vec![[0_u64; MEMBERS]; count];
    for member in 0..MEMBERS {
        let mut before = [0; MEMBERS];
        for event in &mut all {
            let difference = input.signed()? as u64;
            event[member] = likely(member, event, &before).wrapping_add(difference);
            before = *event;
        }
    }
    let mut events: Vec<(wire::Header, Vec<u8>)> = Vec::with_capacity(count);
    for numbers in &all {
        let mut header = header(numbers);
        let comm = texts.get(input.number()?)?;
        header.comm = comm
            .try_into()
            .map_err(|_| Damage("the name in an event is too long"))?;
        events.push((header, Vec::new()));
    }
    let mut words = vec![0_u64; count];
    for ((header, rest), words) in events.iter_mut().zip(&mut words) {
        if header.kind.get() == wire::EXEC {
            rest.extend_from_slice(named.add(texts.get(input.number()?)?)?);
        } else {
            *words = input.number()?;
            if *words > MOST_WORDS {
                return Err(Damage("an event is longer than any that is written"));
            }
        }
    }
    for index in 0..words.iter().copied().max().unwrap_or(0) {
        for ((_, rest), _) in events.iter_mut().zip(&words).filter(|(_, words)| **words > index) {
            rest.extend_from_slice(&input.small()?.to_ne_bytes());
        }
    }
    events.sort_by_key(|(header, _)| header.time_ns.get());
    for (mut header, rest) in events {
        header.len.set((size_of::<wire::Header>() + rest.len()) as u32);
        happened.events.push([header.as_bytes(), &rest].concat());
    }
    Ok(happened)
}

/// The bytes of a number in what follows the header of an event.
const WORD: usize = 4;

/// More events than a sample has.
const MOST_EVENTS: usize = 1 << 20;

/// More words than events of any kind have.
const MOST_WORDS: u64 = 64;

/// Where some members are in [`numbers`].
const PID: usize = 2;
const TIME_NS: usize = 3;
const START_NS: usize = 4;

/// What a member of an event is likely to be: what it was in the event before. A process that has no event
/// before probably began just now. The members before it are known by then.
fn likely(member: usize, event: &[u64; MEMBERS], before: &[u64; MEMBERS]) -> u64 {
    if member == START_NS && event[PID] != before[PID] {
        event[TIME_NS]
    } else {
        before[member]
    }
}

const MEMBERS: usize = 10;

fn numbers(header: &wire::Header) -> [u64; MEMBERS] {
    [
        header.kind.get().into(),
        header.flags.get().into(),
        header.pid.get().into(),
        header.time_ns.get(),
        header.start_ns.get(),
        header.cgroup_id.get(),
        header.tid.get().into(),
        header.ppid.get().into(),
        header.uid.get().into(),
        header.euid.get().into(),
    ]
}

fn header(numbers: &[u64; MEMBERS]) -> wire::Header {
    let mut header = wire::Header::default();
    let [kind, flags, pid, time_ns, start_ns, cgroup_id, tid, ppid, uid, euid] = *numbers;
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn event(kind: u16, pid: u32, time_ns: u64, rest: &[u8]) -> Vec<u8> {
        let mut header = wire::Header::default();
        header.len.set((size_of::<wire::Header>() + rest.len()) as u32);
        header.kind.set(kind);
        header.pid.set(pid);
        header.time_ns.set(time_ns);
        header.start_ns.set(time_ns / 2);
        header.comm[..2].copy_from_slice(&[b'c', pid as u8]);
        [header.as_bytes(), rest].concat()
    }

    proptest! {
        /// Check that events come back in the order of time, each as it was, and so do sums.
        #[test]
        fn events_come_back(made in proptest::collection::vec((1..4_u16, 0..5_u32, any::<u64>(), proptest::collection::vec(any::<u32>(), 0..6)), 0..30)) {
            let mut happened = Happened { left_out: 7, ..Happened::default() };
            for (kind, pid, time_ns, words) in &made {
                let rest: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
                happened.events.push(event(*kind, *pid, *time_ns, &rest));
                happened.sums.entry((vec![b'u'], vec![*pid as u8])).or_default().add(Sum { ended_count: 1, peak_rss_bytes: *time_ns, ..Sum::default() });
            }
            let (mut interned, mut out, mut named) = (Interned::default(), Vec::new(), Vec::new());
            encode(&happened, &mut interned, &mut out);
            interned.encode(&mut named);
            let mut texts = Texts::default();
            texts.decode(&mut Input(&named)).expect("texts");
            let mut input = Input(&out);
            let mut read = decode(&mut input, &texts).expect("events");
            prop_assert!(input.0.is_empty());
            prop_assert!(read.events.is_sorted_by_key(|event| wire::split(event).map(|(header, _)| header.time_ns.get())));
            read.events.sort();
            happened.events.sort();
            prop_assert_eq!(read, happened);
        }
    }
}

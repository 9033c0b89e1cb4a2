//! Events between two samples, and sums over the processes that started and ended between them.

use std::collections::BTreeMap;

use taskdiag_core::event::wire;
use taskdiag_core::record::Net;
use zerocopy::IntoBytes as _;

use crate::coder::Coder;
use crate::texts::{Interned, Texts};
use crate::{Damage, Named};

/// The number of parts of a sum, but for network traffic.
const PARTS: usize = 7;

/// The number of parts that are network traffic.
const NET_PARTS: usize = 2;

/// The counters of network traffic in an event: those of [`Net`] behind its first two members, which
/// are not about the process. Those of protocols are the last.
const NET_BEGIN: usize = 2 * WORD;
const NET_WORDS: usize = (size_of::<Net>() - NET_BEGIN) / WORD;
const PROTOCOL_WORDS: usize = 4;

/// Sums over the processes of one program in one unit that started, executed or ended between two
/// samples.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sum {
    /// How many ended.
    pub ended_count: u64,
    /// How many of them started after the previous sample, so that no sample has them.
    pub unseen_count: u64,
    /// How many of them ended with a nonzero exit code or by a signal.
    pub failed_count: u64,
    /// How many processes started.
    pub forks_count: u64,
    /// How many programs were executed.
    pub execs_count: u64,
    /// The processor time of those that ended, in nanoseconds.
    pub runtime_ns: u64,
    /// What those that ended sent to other machines, in bytes.
    pub net_sent_bytes: u64,
    /// What those that ended received from other machines, in bytes.
    pub net_received_bytes: u64,
    /// The largest peak resident set among those that ended, in bytes.
    pub peak_rss_bytes: u64,
}

impl Sum {
    fn parts(&mut self) -> [&mut u64; PARTS] {
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

    fn net_parts(&mut self) -> [&mut u64; NET_PARTS] {
        [&mut self.net_sent_bytes, &mut self.net_received_bytes]
    }

    /// Adds a sum of the same program, to cover a longer time.
    pub fn add(&mut self, mut other: Sum) {
        let peak = self.peak_rss_bytes.max(other.peak_rss_bytes);
        for (part, more) in self.parts().into_iter().zip(other.parts()) {
            *part = part.saturating_add(*more);
        }
        for (part, more) in self.net_parts().into_iter().zip(other.net_parts()) {
            *part = part.saturating_add(*more);
        }
        self.peak_rss_bytes = peak;
    }
}

/// The maximum number of sums in a sample of a coarse tier.
const MAX_SUMS: usize = 4096;

/// Sums by unit and program.
pub type Sums = BTreeMap<(Vec<u8>, Vec<u8>), Sum>;

/// What happened between two samples.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IntervalEvents {
    /// Sums by unit and program.
    pub sums: Sums,
    /// Single events, as their source wrote them. See [`wire`].
    pub events: Vec<Vec<u8>>,
    /// Events that were lost, or omitted from `events` because there were too many.
    pub left_out: u64,
}

impl IntervalEvents {
    /// Adds what happened later, except single events.
    pub fn add(&mut self, other: &IntervalEvents) {
        for (of, &sum) in &other.sums {
            self.add_sum(of.clone(), sum, MAX_SUMS);
        }
        self.left_out = self.left_out.saturating_add(other.left_out);
    }

    /// Adds to the sum of a program in a unit. From `most` sums on, new names go to one sum without
    /// a name: processes choose their names, so the number of names must be limited.
    pub fn add_sum(&mut self, of: (Vec<u8>, Vec<u8>), sum: Sum, most: usize) {
        let has_room = self.sums.len() < most || self.sums.contains_key(&of);
        let of = if has_room { of } else { Default::default() };
        self.sums.entry(of).or_default().add(sum);
    }
}

const TOO_MANY_EVENTS: &str = "there are more events than any recorder writes";
const TOO_MANY_SUMS: &str = "there are more programs than any recorder writes";

/// After its header, an exec event has a text. Other events have words of this many bytes.
const WORD: usize = 8;

/// No event has this many words.
const MAX_WORDS: usize = 8;

/// The numbers of an event, and its words. Texts are replaced by their numbers.
type Single = [u64; MEMBERS + MAX_WORDS];

/// The places of an event's numbers.
const KIND: usize = 0;
const COMM: usize = 1;
const START_NS: usize = 2;
const PID: usize = 3;
const PPID: usize = 4;
const CGROUP_ID: usize = 5;
const UID: usize = 6;
const EUID: usize = 7;
/// Of an exec.
const FILE: usize = 8;
/// Nanoseconds since the start of the process.
const AGE_NS: usize = 9;
/// The thread id minus the pid.
const TID: usize = 10;
const FLAGS: usize = 11;
const WORDS_COUNT: usize = 12;
const MEMBERS: usize = 13;

/// The numbers of a unit and of a program, and the parts of their sum.
type Summed = [u64; 2 + PARTS];

/// The same of network traffic, of those that had some. Earlier versions recorded none.
type NetSummed = [u64; 2 + NET_PARTS];

/// The place of an event, and its network traffic, without protocols and by protocol.
type NetSingle = [u64; 1 + NET_WORDS - PROTOCOL_WORDS];
type ProtocolSingle = [u64; 1 + PROTOCOL_WORDS];

impl IntervalEvents {
    pub(crate) fn encode(&self, texts: &mut Interned, coder: &mut impl Coder) -> Result<(), Damage> {
        coder.number(self.left_out)?;
        let whole = self.events.iter().filter_map(|event| wire::split(event));
        let mut all: Vec<(Single, &[u8])> = whole.map(|(header, rest)| single(header, rest, texts)).collect();
        // By kind, name and start: so an event resembles the one before it.
        all.sort_unstable();
        let mut events: Vec<Single> = all.iter().map(|&(single, _)| single).collect();
        coder.rows(&mut events, MEMBERS + MAX_WORDS, TOO_MANY_EVENTS)?;
        let (mut sums, mut net): (Vec<Summed>, Vec<NetSummed>) = Default::default();
        for ((unit, program), &(mut sum)) in &self.sums {
            let mut summed = [0; 2 + PARTS];
            (summed[0], summed[1]) = (texts.number(unit), texts.number(program));
            summed[2..].copy_from_slice(&sum.parts().map(|part| *part));
            sums.push(summed);
            let [sent, received] = sum.net_parts().map(|part| *part);
            if sent | received > 0 {
                net.push([summed[0], summed[1], sent, received]);
            }
        }
        sums.sort_unstable();
        coder.rows(&mut sums, 2, TOO_MANY_SUMS)?;
        net.sort_unstable();
        coder.rows(&mut net, 2, TOO_MANY_SUMS)?;
        let has_traffic = |(_, net): &(usize, &[u8])| net.iter().any(|&byte| byte != 0);
        let of_events = all.iter().map(|&(_, net)| net).enumerate().filter(has_traffic);
        let (mut singles, mut of_protocols) = (Vec::<NetSingle>::new(), Vec::<ProtocolSingle>::new());
        for (place, net) in of_events {
            let (mut single, mut of_protocol) = (NetSingle::default(), ProtocolSingle::default());
            (single[0], of_protocol[0]) = (place as u64, place as u64);
            let (net, by_protocol) = net.split_at(net.len().saturating_sub(PROTOCOL_WORDS * WORD));
            words(net, &mut single[1..]);
            words(by_protocol, &mut of_protocol[1..]);
            singles.push(single);
            of_protocols.push(of_protocol);
        }
        coder.rows(&mut singles, 1, TOO_MANY_EVENTS)?;
        coder.rows(&mut of_protocols, 1, TOO_MANY_EVENTS)
    }

    pub(crate) fn decode(texts: &Texts, coder: &mut impl Coder) -> Result<IntervalEvents, Damage> {
        let mut happened = IntervalEvents {
            left_out: coder.number(0)?,
            ..IntervalEvents::default()
        };
        let (mut events, mut sums) = (Vec::<Single>::new(), Vec::<Summed>::new());
        coder.rows(&mut events, MEMBERS + MAX_WORDS, TOO_MANY_EVENTS)?;
        coder.rows(&mut sums, 2, TOO_MANY_SUMS)?;
        let (mut net, mut of_events) = (Vec::<NetSummed>::new(), Vec::<NetSingle>::new());
        if coder.has_more() {
            coder.rows(&mut net, 2, TOO_MANY_SUMS)?;
            coder.rows(&mut of_events, 1, TOO_MANY_EVENTS)?;
        }
        let mut of_protocols = Vec::<ProtocolSingle>::new();
        if coder.has_more() {
            coder.rows(&mut of_protocols, 1, TOO_MANY_EVENTS)?;
        }
        let mut traffic = vec![[0; NET_WORDS]; events.len()];
        let singles = of_events.iter().map(|row| (0, row.as_slice()));
        let of_protocols = of_protocols
            .iter()
            .map(|row| (NET_WORDS - PROTOCOL_WORDS, row.as_slice()));
        for (begin, row) in singles.chain(of_protocols) {
            let place = usize::try_from(row[0]).unwrap_or(usize::MAX);
            let net: &mut [u64; NET_WORDS] = traffic.get_mut(place).ok_or(Damage("there is traffic of no event"))?;
            net[begin..][..row.len() - 1].copy_from_slice(&row[1..]);
        }
        let mut named = Named::default();
        let mut events: Vec<(Single, [u64; NET_WORDS])> = events.into_iter().zip(traffic).collect();
        events.sort_by_key(|(event, _)| time_ns(event));
        for (event, net) in events {
            happened.events.push(bytes(&event, &net, texts, &mut named)?);
        }
        for [unit, program, parts @ ..] in sums {
            let unit = named.add(texts.get(unit)?)?;
            let program = named.add(texts.get(program)?)?;
            let mut sum = Sum::default();
            sum.parts()
                .into_iter()
                .zip(parts)
                .for_each(|(part, number)| *part = number);
            happened.sums.insert((unit.to_vec(), program.to_vec()), sum);
        }
        for [unit, program, sent, received] in net {
            let of = (texts.get(unit)?.to_vec(), texts.get(program)?.to_vec());
            if let Some(sum) = happened.sums.get_mut(&of) {
                (sum.net_sent_bytes, sum.net_received_bytes) = (sent, received);
            }
        }
        Ok(happened)
    }
}

/// Reads as many words as there are.
fn words(bytes: &[u8], words: &mut [u64]) -> usize {
    let all = words.iter_mut().zip(bytes.chunks_exact(WORD));
    all.map(|(word, bytes)| *word = bytes.try_into().map_or(0, u64::from_ne_bytes))
        .count()
}

/// The numbers of an event, and the bytes of its network traffic.
fn single<'a>(header: &wire::Header, rest: &'a [u8], texts: &mut Interned) -> (Single, &'a [u8]) {
    let mut single = [0; MEMBERS + MAX_WORDS];
    let (pid, start_ns) = (header.pid.get(), header.start_ns.get());
    single[KIND] = header.kind.get().into();
    single[COMM] = texts.number(&header.comm);
    single[PID] = pid.into();
    single[START_NS] = start_ns;
    single[PPID] = header.ppid.get().into();
    single[CGROUP_ID] = header.cgroup_id.get();
    single[UID] = header.uid.get().into();
    single[EUID] = header.euid.get().into();
    single[AGE_NS] = header.time_ns.get().wrapping_sub(start_ns);
    single[TID] = header.tid.get().wrapping_sub(pid).into();
    single[FLAGS] = header.flags.get().into();
    let has_net = header.flags.get() & wire::NET != 0;
    let (rest, net) = match rest.split_at_checked(size_of::<wire::Exit>()).filter(|_| has_net) {
        Some((exit, net)) => (exit, net.get(NET_BEGIN..).unwrap_or_default()),
        None => (rest, &[][..]),
    };
    if header.kind.get() == wire::EXEC {
        single[FILE] = texts.number(rest);
    } else {
        single[WORDS_COUNT] = words(rest, &mut single[MEMBERS..]) as u64;
    }
    (single, net)
}

fn time_ns(single: &Single) -> u64 {
    single[START_NS].wrapping_add(single[AGE_NS])
}

/// The bytes of an event.
fn bytes(single: &Single, net: &[u64; NET_WORDS], texts: &Texts, named: &mut Named) -> Result<Vec<u8>, Damage> {
    let mut header = wire::Header::default();
    let comm = texts.get(single[COMM])?;
    header.comm = comm
        .try_into()
        .map_err(|_| Damage("the name in an event has another length"))?;
    let rest = if single[KIND] as u16 == wire::EXEC {
        named.add(texts.get(single[FILE])?)?.to_vec()
    } else {
        let words = single[MEMBERS..].iter().take(single[WORDS_COUNT] as usize);
        let has_net = single[FLAGS] as u16 & wire::NET != 0;
        let net = [[0; NET_BEGIN / WORD].as_slice(), net].concat();
        let net = net.iter().take(if has_net { usize::MAX } else { 0 });
        words.chain(net).flat_map(|word| word.to_ne_bytes()).collect()
    };
    header.kind.set(single[KIND] as u16);
    header.flags.set(single[FLAGS] as u16);
    header.time_ns.set(time_ns(single));
    header.start_ns.set(single[START_NS]);
    header.cgroup_id.set(single[CGROUP_ID]);
    header.pid.set(single[PID] as u32);
    header.tid.set((single[PID] as u32).wrapping_add(single[TID] as u32));
    header.ppid.set(single[PPID] as u32);
    header.uid.set(single[UID] as u32);
    header.euid.set(single[EUID] as u32);
    header.len.set((size_of::<wire::Header>() + rest.len()) as u32);
    Ok([header.as_bytes(), &rest].concat())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::coder::{Reader, Writer};
    use crate::varint::Input;

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

    /// Encodes and decodes.
    fn come_back(happened: &IntervalEvents) -> IntervalEvents {
        let (mut interned, mut named) = (Interned::default(), Vec::new());
        let mut coder = Writer::default();
        happened.encode(&mut interned, &mut coder).expect("it is valid");
        let out = coder.finish();
        interned.encode(&mut named);
        let mut texts = Texts::default();
        texts.decode(&mut Input(&named)).expect("texts");
        IntervalEvents::decode(&texts, &mut Reader::new(Input(&out))).expect("events")
    }

    /// Check that the network traffic of exits and sums survives, that none is not the same as not
    /// counted, and that a recording of an earlier version, which ends before it, is read.
    #[test]
    fn traffic_comes_back() {
        let exit = |traffic: Option<u64>| {
            let mut rest = vec![0; size_of::<wire::Exit>()];
            let mut flags = 0;
            if let Some(bytes) = traffic {
                rest.extend([0; NET_BEGIN]);
                rest.extend([bytes.to_ne_bytes(); NET_WORDS].concat());
                flags = wire::NET;
            }
            let mut event = event(wire::EXIT, 1, 7, &rest);
            event[6..8].copy_from_slice(&flags.to_ne_bytes());
            event
        };
        let sent = |net_sent_bytes| Sum {
            net_sent_bytes,
            ..Sum::default()
        };
        let happened = IntervalEvents {
            events: [None, Some(0), Some(u64::MAX), Some(5)].map(exit).into(),
            sums: [(b"a", sent(0)), (b"b", sent(9))]
                .map(|(name, sum)| ((Vec::new(), name.to_vec()), sum))
                .into(),
            left_out: 0,
        };
        let mut read = come_back(&happened);
        read.events.sort();
        let mut expected = happened.clone();
        expected.events.sort();
        assert_eq!(read, expected);

        let mut coder = Writer::default();
        // How many are left out, and how many events and sums there are.
        for _ in 0..3 {
            coder.number(0).expect("any number");
        }
        let out = coder.finish();
        let read = IntervalEvents::decode(&Texts::default(), &mut Reader::new(Input(&out)));
        assert_eq!(read, Ok(IntervalEvents::default()));
    }

    proptest! {
        /// Check that events survive unchanged, in order of time, and that sums survive.
        #[test]
        fn events_come_back(made in proptest::collection::vec((1..4_u16, 0..5_u32, any::<u64>(), proptest::collection::vec(prop_oneof![0..3_u64, any::<u64>()], 0..4)), 0..30)) {
            let mut happened = IntervalEvents { left_out: 7, ..IntervalEvents::default() };
            for (kind, pid, time_ns, words) in &made {
                let rest: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
                happened.events.push(event(*kind, *pid, *time_ns, &rest));
                happened.sums.entry((vec![b'u'], vec![*pid as u8])).or_default().add(Sum { ended_count: 1, peak_rss_bytes: *time_ns, ..Sum::default() });
            }
            let mut read = come_back(&happened);
            prop_assert!(read.events.is_sorted_by_key(|event| wire::split(event).map(|(header, _)| header.time_ns.get())));
            read.events.sort();
            happened.events.sort();
            prop_assert_eq!(read, happened);
        }
    }
}

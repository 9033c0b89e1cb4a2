//! Events between two samples, and sums over the processes that started and ended between them.

use std::collections::{BTreeMap, HashMap};

use taskdiag_core::event::wire;
use zerocopy::IntoBytes as _;

use crate::coder::{BitModel, Coder, NumberModel, Reader};
use crate::texts::{Interned, Texts};
use crate::{Damage, Named};

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
    /// The largest peak resident set among those that ended, in bytes.
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

    /// Adds a sum of the same program, to cover a longer time.
    pub fn add(&mut self, mut other: Sum) {
        let peak = self.peak_rss_bytes.max(other.peak_rss_bytes);
        for (part, more) in self.parts().into_iter().zip(other.parts()) {
            *part = part.saturating_add(*more);
        }
        self.peak_rss_bytes = peak;
    }
}

/// The maximum number of sums in a sample of a coarse tier.
const MOST_SUMS: usize = 4096;

/// Sums by unit and program.
pub type Sums = BTreeMap<(Vec<u8>, Vec<u8>), Sum>;

/// What happened between two samples.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Happened {
    /// Sums by unit and program.
    pub sums: Sums,
    /// Single events, as their source wrote them. See [`wire`].
    pub events: Vec<Vec<u8>>,
    /// Events that were lost, or omitted from `events` because there were too many.
    pub left_out: u64,
}

impl Happened {
    /// Adds what happened later, except single events.
    pub fn add(&mut self, other: &Happened) {
        for (of, &sum) in &other.sums {
            self.add_sum(of.clone(), sum, MOST_SUMS);
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

/// No sample has this many events.
const MOST_EVENTS: usize = 1 << 20;
const TOO_MANY: &str = "there are more events than any recorder writes";

/// No sample has sums of this many programs and units.
const MOST_PROGRAMS: usize = 1 << 20;

/// No event has this many words.
const MOST_WORDS: usize = 32;

/// After its header, an exec event has a text. Other events have words of this many bytes.
const WORD: usize = 8;

/// The maximum numbers of remembered events, by kind and program, and of remembered parents.
const MOST_REMEMBERED: usize = 64;
const MOST_PARENTS: usize = 16;

/// A single event. Texts are replaced by their numbers.
#[derive(Clone, Debug, Default)]
struct Single {
    /// Its kind, its name and, for an exec, its file. An event probably resembles the last one with
    /// the same `what`.
    what: (u16, u32, u32),
    numbers: [u64; MEMBERS],
    words: Vec<u64>,
}

/// The places of an event's members.
const PID: usize = 0;
const START_NS: usize = 1;
/// Nanoseconds since the start of the process.
const AGE_NS: usize = 2;
const PPID: usize = 3;
/// Minus the pid.
const TID: usize = 4;
const FLAGS: usize = 5;
const CGROUP_ID: usize = 6;
const UID: usize = 7;
const EUID: usize = 8;
const MEMBERS: usize = 9;

impl Single {
    fn new(header: &wire::Header, rest: &[u8], texts: &mut Interned) -> Single {
        let is_exec = header.kind.get() == wire::EXEC;
        let (file, words) = if is_exec {
            (texts.number(rest), Vec::new())
        } else {
            let word = |word: &[u8]| <[u8; WORD]>::try_from(word).map_or(0, u64::from_ne_bytes);
            (0, rest.chunks_exact(WORD).take(MOST_WORDS).map(word).collect())
        };
        let (pid, start_ns) = (header.pid.get(), header.start_ns.get());
        Single {
            what: (header.kind.get(), texts.number(&header.comm), file),
            numbers: [
                pid.into(),
                start_ns,
                header.time_ns.get().wrapping_sub(start_ns),
                header.ppid.get().into(),
                header.tid.get().wrapping_sub(pid).into(),
                header.flags.get().into(),
                header.cgroup_id.get(),
                header.uid.get().into(),
                header.euid.get().into(),
            ],
            words,
        }
    }

    fn time_ns(&self) -> u64 {
        self.numbers[START_NS].wrapping_add(self.numbers[AGE_NS])
    }

    fn bytes(&self, texts: &Texts, named: &mut Named) -> Result<Vec<u8>, Damage> {
        let (kind, comm, file) = self.what;
        let mut header = wire::Header::default();
        let comm = texts.get(comm.into())?;
        header.comm = comm
            .try_into()
            .map_err(|_| Damage("the name in an event is too long"))?;
        let rest = if kind == wire::EXEC {
            named.add(texts.get(file.into())?)?.to_vec()
        } else {
            self.words.iter().flat_map(|word| word.to_ne_bytes()).collect()
        };
        let small = |member: usize| self.numbers[member] as u32;
        header.kind.set(kind);
        header.flags.set(self.numbers[FLAGS] as u16);
        header.time_ns.set(self.time_ns());
        header.start_ns.set(self.numbers[START_NS]);
        header.cgroup_id.set(self.numbers[CGROUP_ID]);
        header.pid.set(small(PID));
        header.tid.set(small(PID).wrapping_add(small(TID)));
        header.ppid.set(small(PPID));
        header.uid.set(small(UID));
        header.euid.set(small(EUID));
        header.len.set((size_of::<wire::Header>() + rest.len()) as u32);
        Ok([header.as_bytes(), &rest].concat())
    }
}

/// A remembered event, the context for similar ones.
#[derive(Clone, Debug, Default)]
struct Remembered {
    event: Single,
    /// The `what` of the event that followed.
    next: (u16, u32, u32),
    /// Whether the process started nearer to the end of its parent's last child than to that
    /// child's start.
    is_sequel: bool,
}

/// A parent's last child: its start and its end.
#[derive(Clone, Copy, Debug, Default)]
struct Parent {
    pid: u64,
    start_ns: u64,
    end_ns: u64,
}

/// The models and context of events and sums.
#[derive(Debug, Default)]
pub(crate) struct Habits {
    left_out: NumberModel,
    count: NumberModel,
    /// Most recent first.
    remembered: Vec<Remembered>,
    /// Most recent first.
    parents: Vec<Parent>,
    before: Single,
    is_next: BitModel,
    rank: NumberModel,
    what: [NumberModel; 3],
    /// By the kind of the previous event.
    is_same: [BitModel; 4],
    /// The second index is the context: how the start time was predicted.
    members: [[NumberModel; 4]; MEMBERS],
    words_count: NumberModel,
    words: [NumberModel; 4],
    programs: Programs,
}

/// The models and context of sums.
#[derive(Debug, Default)]
struct Programs {
    /// All units and programs that had a sum, by the numbers of their texts.
    known: Vec<(u32, u32)>,
    places: HashMap<(u32, u32), usize>,
    count: NumberModel,
    step: NumberModel,
    texts: [NumberModel; 2],
    parts: [NumberModel; 7],
}

impl Habits {
    /// Encodes what happened.
    pub(crate) fn encode(&mut self, happened: &Happened, texts: &mut Interned, coder: &mut impl Coder) {
        coder.number(&mut self.left_out, happened.left_out);
        let whole = happened.events.iter().filter_map(|event| wire::split(event));
        let mut events: Vec<Single> = whole.map(|(header, rest)| Single::new(header, rest, texts)).collect();
        // Sort by process, in order of start time.
        events.sort_by_key(|event| (event.numbers[START_NS], event.numbers[PID], event.time_ns()));
        coder.number(&mut self.count, events.len() as u64);
        for event in &mut events {
            self.event(event, coder);
        }
        self.programs.encode(&happened.sums, &events, texts, coder);
    }

    /// Decodes what happened.
    pub(crate) fn decode(&mut self, texts: &Texts, coder: &mut Reader<'_>) -> Result<Happened, Damage> {
        let mut happened = Happened {
            left_out: coder.number(&mut self.left_out, 0),
            ..Happened::default()
        };
        let mut named = Named::default();
        let count = coder.count(&mut self.count, MOST_EVENTS, TOO_MANY)?;
        let mut events = Vec::new();
        for _ in 0..count {
            let mut event = Single::default();
            self.event(&mut event, coder);
            coder.check()?;
            events.push(event);
        }
        happened.sums = self.programs.decode(&events, texts, &mut named, coder)?;
        events.sort_by_key(Single::time_ns);
        for event in events {
            happened.events.push(event.bytes(texts, &mut named)?);
        }
        Ok(happened)
    }

    /// Codes an event. When decoding, its content is ignored.
    fn event<C: Coder>(&mut self, event: &mut Single, coder: &mut C) {
        let mut like = self.like(event, coder);
        let before = self.before.numbers;
        let has_same = |member: usize| event.numbers[member] == before[member];
        let model = &mut self.is_same[usize::from(self.before.what.0).min(3)];
        let is_same = coder.bit(model, has_same(PID) && has_same(START_NS));
        let guess = &mut like.event.numbers;
        (guess[PID], guess[START_NS]) = (before[PID], before[START_NS]);
        let mut how = usize::from(is_same);
        if is_same {
            for member in [PPID, CGROUP_ID, UID, EUID] {
                guess[member] = before[member];
            }
        }
        let habits = &mut self.members;
        let mut code = |member: usize, how: usize, guess: u64, event: &mut Single| {
            let difference = event.numbers[member].wrapping_sub(guess) as i64;
            let difference = coder.signed(&mut habits[member][how], difference);
            event.numbers[member] = guess.wrapping_add(difference as u64);
        };
        code(PPID, how, guess[PPID], event);
        let parent = self.parents.iter().position(|parent| parent.pid == event.numbers[PPID]);
        let parent = parent.map_or_else(Parent::default, |place| self.parents.remove(place));
        if !is_same && parent.start_ns != 0 {
            (how, guess[START_NS]) = if like.is_sequel {
                (2, parent.end_ns)
            } else {
                (3, parent.start_ns)
            };
        }
        for member in [PID, START_NS, AGE_NS, TID, FLAGS, CGROUP_ID, UID, EUID] {
            code(member, how, guess[member], event);
        }
        let count = coder.number(&mut self.words_count, event.words.len() as u64);
        event.words.resize((count as usize).min(MOST_WORDS), 0);
        for (place, word) in event.words.iter_mut().enumerate() {
            let guess = like.event.words.get(place).copied().unwrap_or(0);
            let difference = word.wrapping_sub(guess) as i64;
            let difference = coder.signed(&mut self.words[place.min(3)], difference);
            *word = guess.wrapping_add(difference as u64);
        }
        self.remember(event, parent, is_same);
    }

    /// Codes what an event is. Returns the remembered event that it probably resembles, which moves
    /// to the front.
    fn like<C: Coder>(&mut self, event: &mut Single, coder: &mut C) -> Remembered {
        let all = &mut self.remembered;
        let find = |what, all: &[Remembered]| all.iter().position(|remembered| remembered.event.what == what);
        let place = find(event.what, all).unwrap_or(all.len());
        let next = all.first().and_then(|first| find(first.next, all));
        let is_next = next.is_some() && coder.bit(&mut self.is_next, next == Some(place));
        let place = match next {
            Some(next) if is_next => next,
            _ => (coder.number(&mut self.rank, place as u64) as usize).min(all.len()),
        };
        if place == all.len() {
            let (kind, comm, file) = &mut event.what;
            *kind = coder.number(&mut self.what[0], (*kind).into()) as u16;
            *comm = coder.number(&mut self.what[1], (*comm).into()) as u32;
            *file = coder.number(&mut self.what[2], (*file).into()) as u32;
            // The best prediction for an event that is not remembered is the latest of its kind.
            let like = all.iter().find(|remembered| remembered.event.what.0 == event.what.0);
            let mut like = like.cloned().unwrap_or_default();
            like.event.what = event.what;
            all.push(like);
        }
        event.what = all[place].event.what;
        all[0].next = event.what;
        all[..=place].rotate_right(1);
        all.truncate(MOST_REMEMBERED);
        all[0].clone()
    }

    /// Remembers an event.
    fn remember(&mut self, event: &Single, mut parent: Parent, is_same: bool) {
        let start_ns = event.numbers[START_NS];
        let like = &mut self.remembered[0];
        like.event.clone_from(event);
        if !is_same {
            like.is_sequel = start_ns.abs_diff(parent.end_ns) < start_ns.abs_diff(parent.start_ns);
            parent.start_ns = start_ns;
        }
        if event.what.0 == wire::EXIT {
            parent.end_ns = event.time_ns();
        }
        parent.pid = event.numbers[PPID];
        self.parents.insert(0, parent);
        self.parents.truncate(MOST_PARENTS);
        self.before.clone_from(event);
    }
}

impl Programs {
    /// Encodes sums. They are predicted from the single events.
    fn encode(&mut self, sums: &Sums, events: &[Single], texts: &mut Interned, coder: &mut impl Coder) {
        let mut all: Vec<((u32, u32), &[u8], Sum)> = Vec::new();
        for ((unit, program), &sum) in sums {
            all.push(((texts.number(unit), texts.number(program)), program, sum));
        }
        // Programs without an earlier sum come last.
        all.sort_by_key(|(of, ..)| self.places.get(of).copied().unwrap_or(usize::MAX));
        let expected = added_up(events, |comm| texts.text(comm));
        coder.number(&mut self.count, all.len() as u64);
        let mut next = 0;
        for (of, program, mut sum) in all {
            let place = self.places.get(&of).copied().unwrap_or(self.known.len());
            coder.number(&mut self.step, (place - next) as u64);
            next = place + 1;
            if place == self.known.len() {
                coder.number(&mut self.texts[0], of.0.into());
                coder.number(&mut self.texts[1], of.1.into());
                self.places.insert(of, place);
                self.known.push(of);
            }
            self.sum(&mut sum, expected.get(program), coder);
        }
    }

    fn decode(
        &mut self,
        events: &[Single],
        texts: &Texts,
        named: &mut Named,
        coder: &mut Reader<'_>,
    ) -> Result<Sums, Damage> {
        const FAR: Damage = Damage("a program is named that is not there");
        let expected = added_up(events, |comm| texts.get(comm.into()).unwrap_or_default());
        let mut sums = Sums::new();
        let mut next = 0_usize;
        for _ in 0..coder.count(&mut self.count, MOST_PROGRAMS, TOO_MANY)? {
            let place = next.checked_add(coder.small(&mut self.step)? as usize).ok_or(FAR)?;
            next = place + 1;
            if place == self.known.len() && place < MOST_PROGRAMS {
                let unit = coder.small(&mut self.texts[0])?;
                self.known.push((unit, coder.small(&mut self.texts[1])?));
            }
            let &(unit, program) = self.known.get(place).ok_or(FAR)?;
            let unit = named.add(texts.get(unit.into())?)?;
            let program = named.add(texts.get(program.into())?)?;
            let mut sum = Sum::default();
            self.sum(&mut sum, expected.get(program), coder);
            coder.check()?;
            sums.insert((unit.to_vec(), program.to_vec()), sum);
        }
        Ok(sums)
    }

    /// Codes a sum. When decoding, its content is ignored.
    fn sum<C: Coder>(&mut self, sum: &mut Sum, expected: Option<&Sum>, coder: &mut C) {
        let mut expected = expected.copied().unwrap_or_default();
        let parts = sum.parts().into_iter().zip(expected.parts());
        for ((part, &mut guess), model) in parts.zip(&mut self.parts) {
            let difference = coder.signed(model, part.wrapping_sub(guess) as i64);
            *part = guess.wrapping_add(difference as u64);
        }
    }
}

/// Sums single events by program.
fn added_up<'t>(events: &[Single], text: impl Fn(u32) -> &'t [u8]) -> HashMap<&'t [u8], Sum> {
    /// A prediction: with larger pages, the coded difference is larger.
    const PAGE_BYTES: u64 = 4096;
    let mut sums: HashMap<&[u8], Sum> = HashMap::new();
    for event in events {
        let (kind, comm, _) = event.what;
        let comm = text(comm);
        let program = comm.split(|&byte| byte == 0).next().unwrap_or_default();
        let sum = sums.entry(program).or_default();
        match (kind, &event.words[..]) {
            (wire::EXEC, _) => sum.execs_count += 1,
            (wire::EXIT, &[status, runtime_ns, peak_pages]) => sum.add(Sum {
                ended_count: 1,
                unseen_count: 1,
                forks_count: 1,
                failed_count: (status as u32 != 0).into(),
                runtime_ns,
                peak_rss_bytes: peak_pages.wrapping_mul(PAGE_BYTES),
                ..Sum::default()
            }),
            _ => {}
        }
    }
    sums
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::coder::Writer;
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

    proptest! {
        /// Check that events survive unchanged, in order of time, and that sums survive.
        #[test]
        fn events_come_back(made in proptest::collection::vec((1..4_u16, 0..5_u32, any::<u64>(), proptest::collection::vec(prop_oneof![0..3_u64, any::<u64>()], 0..4)), 0..30)) {
            let mut happened = Happened { left_out: 7, ..Happened::default() };
            for (kind, pid, time_ns, words) in &made {
                let rest: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
                happened.events.push(event(*kind, *pid, *time_ns, &rest));
                happened.sums.entry((vec![b'u'], vec![*pid as u8])).or_default().add(Sum { ended_count: 1, peak_rss_bytes: *time_ns, ..Sum::default() });
            }
            let (mut interned, mut named) = (Interned::default(), Vec::new());
            let (mut written, mut habits) = (Habits::default(), Habits::default());
            // The second round uses the learned models.
            let encoded = [(); 2].map(|()| {
                let mut out = Vec::new();
                let mut coder = Writer::new(&mut out);
                written.encode(&happened, &mut interned, &mut coder);
                coder.finish();
                out
            });
            interned.encode(&mut named);
            let mut texts = Texts::default();
            if !named.is_empty() {
                texts.decode(&mut Input(&named)).expect("texts");
            }
            let [first, mut read] = encoded.map(|out| habits.decode(&texts, &mut Reader::new(&out)).expect("events"));
            prop_assert_eq!(&first, &read);
            prop_assert!(read.events.is_sorted_by_key(|event| wire::split(event).map(|(header, _)| header.time_ns.get())));
            read.events.sort();
            happened.events.sort();
            prop_assert_eq!(read, happened);
        }
    }
}

//! The recorder: which samples go to which files, and what happens when writing fails.

use std::io;

use crate::about::About;
use crate::directory::{file_name, to_remove, Keep, Tier, TIERS};
use crate::encode::{Encoder, Sample};
use crate::events::IntervalEvents;
use crate::piece::Time;
use crate::store::{Space, Store};

/// The part of the file system that is left free: 1/20.
const LEFT_FREE: u64 = 20;

/// After this size a new segment begins, whatever the age of the old one.
const MAX_SEGMENT_BYTES: u64 = 256 << 20;

/// The same for the size of texts, which recorders and readers keep in memory.
const MAX_TEXT_BYTES: usize = 64 << 20;

/// A larger change of the wall clock, relative to the time since boot, counts as a jump.
const JUMP_NS: i128 = 1_000_000_000;

/// What users should know about the recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// Writing stopped, for this reason, or is impossible for this reason now. It is retried with
    /// every sample.
    Stopped(String),
    /// Writing goes on; this many samples were lost.
    GoesOn(u64),
    /// The wall clock was set by this many nanoseconds.
    ClockSet(i128),
    /// A segment that is due for removal could not be removed.
    NotRemoved(String),
}

/// Writes samples to a [`Store`].
#[derive(Debug)]
pub struct Recorder<S: Store> {
    store: S,
    about: About,
    keep: Keep,
    tiers: Vec<InTier<S::File>>,
    last: Option<Time>,
    /// The number of samples lost since the last one that was written, and the reason that was told
    /// last; `None` if none was lost.
    stopped: Option<(u64, String)>,
    bytes_written: u64,
}

/// The state of a tier.
#[derive(Debug)]
struct InTier<F> {
    tier: Tier,
    /// The interval between two samples; 0 if it records every sample.
    every_ns: u64,
    open: Option<Open<F>>,
    /// When the last sample was written.
    written: Option<Time>,
    /// What happened since the last sample of this tier.
    happened: IntervalEvents,
}

/// The segment that is being written.
#[derive(Debug)]
struct Open<F> {
    file: F,
    name: String,
    encoder: Encoder,
    bytes: u64,
    began_ns: u64,
}

impl<F> InTier<F> {
    /// Whether this is the tier of all samples.
    fn is_first(&self) -> bool {
        self.tier.every_ns == 0
    }

    /// Whether the tier records the sample at this time. A sample that could not be written stays
    /// due.
    fn is_due(&self, now: Time) -> bool {
        let number = |time: Time| time.boot_ns.checked_div(self.every_ns);
        self.every_ns == 0 || self.written.map(number) != Some(number(now))
    }

    /// Whether a sample at this time begins a new segment.
    fn begins_anew(&self, now: Time) -> bool {
        let is_over = |open: &Open<F>| {
            now.boot_ns.saturating_sub(open.began_ns) >= self.tier.segment_ns
                || open.bytes > MAX_SEGMENT_BYTES
                || open.encoder.text_bytes() > MAX_TEXT_BYTES
        };
        self.open.as_ref().is_none_or(is_over)
    }
}

impl<S: Store> Recorder<S> {
    /// Creates a recorder. `about` describes all its segments.
    pub fn new(store: S, about: About, keep: Keep) -> Recorder<S> {
        // A tier that is finer than the recorder's interval has every sample, too: what goes when is
        // decided by the name of a file alone, and must not depend on the interval.
        let in_tier = |tier: Tier| InTier {
            every_ns: if tier.every_ns > about.every_ns {
                tier.every_ns
            } else {
                0
            },
            tier,
            open: None,
            written: None,
            happened: IntervalEvents::default(),
        };
        Recorder {
            store,
            tiers: TIERS.into_iter().map(in_tier).collect(),
            about,
            keep,
            last: None,
            stopped: None,
            bytes_written: 0,
        }
    }

    /// The store that it writes to.
    pub fn store(&mut self) -> &mut S {
        &mut self.store
    }

    /// How many bytes were written.
    pub fn bytes_written(&self) -> u64 {
        self.bytes_written
    }

    /// Notes what else is missing, in segments that begin from now on.
    pub fn add_note(&mut self, note: String) {
        self.about.notes.push(note);
    }

    /// Whether a sample at this time needs all values of all processes: a new segment begins, or a
    /// tier records it that did not record the previous sample. Otherwise [`Sample::others`] may be
    /// used.
    pub fn needs_all(&self, now: Time, is_last: bool) -> bool {
        let before = self.last;
        let is_needed = |tier: &InTier<S::File>| tier.is_due(now) && (!tier.is_first() || tier.begins_anew(now));
        let is_jump = before.is_none_or(|before| jump_ns(before, now).is_some());
        // Lost samples had values that no other sample has.
        is_last || is_jump || self.stopped.is_some() || self.tiers.iter().any(is_needed)
    }

    /// Writes a sample to the tiers for which it is due, or to all tiers if it is the last.
    pub fn record(&mut self, sample: &Sample<'_>, is_last: bool) -> Vec<Notice> {
        let Sample { time, happened, .. } = *sample;
        let mut notices = Vec::new();
        let before = self.last.replace(time);
        if let Some(jump) = before.and_then(|before| jump_ns(before, time)) {
            notices.push(Notice::ClockSet(jump));
            // Within a segment, times must ascend.
            self.tiers.iter_mut().for_each(|tier| tier.open = None);
        }
        let mut failed = self.check_space().err();
        if failed.is_some() {
            // Samples that may go may be what takes the space.
            self.remove_old(time, true, &mut notices);
            failed = self.check_space().err();
        }
        for index in 0..self.tiers.len() {
            let in_tier = &mut self.tiers[index];
            in_tier.happened.add(happened);
            let is_first = in_tier.is_first();
            let is_due = is_last || in_tier.is_due(time);
            if !is_due || failed.is_some() {
                if is_first {
                    in_tier.happened.left_out += happened.events.len() as u64;
                }
                continue;
            }
            let mut all = std::mem::take(&mut in_tier.happened);
            if is_first {
                all.events.clone_from(&happened.events);
            }
            let sample = Sample {
                happened: &all,
                ..*sample
            };
            let began = match self.write(index, &sample) {
                Ok(began) => began,
                Err(error) => {
                    all.left_out += std::mem::take(&mut all.events).len() as u64;
                    self.tiers[index].happened = all;
                    failed = Some(error.to_string());
                    false
                }
            };
            if began || failed.is_some() {
                self.remove_old(time, failed.is_some(), &mut notices);
            }
        }
        notices.extend(self.tell(failed));
        notices
    }

    /// Checks for free space. The last part of a file system is left to others.
    fn check_space(&self) -> Result<(), String> {
        let Space { total, available } = self.store.space().map_err(|error| error.to_string())?;
        if available < total / LEFT_FREE {
            return Err(format!(
                "less than {} % of the file system is free, and the last part is left to others",
                100 / LEFT_FREE
            ));
        }
        Ok(())
    }

    /// Returns a notice if writing stopped, if it is impossible for another reason now, or if it
    /// resumed.
    fn tell(&mut self, failed: Option<String>) -> Option<Notice> {
        let before = self.stopped.take();
        let Some(reason) = failed else {
            return before.map(|(count, _)| Notice::GoesOn(count));
        };
        let is_told = before.as_ref().is_some_and(|(_, told)| *told == reason);
        self.stopped = Some((before.map_or(0, |(count, _)| count) + 1, reason.clone()));
        (!is_told).then_some(Notice::Stopped(reason))
    }

    /// Writes a sample to a tier. Returns whether this began a new segment.
    fn write(&mut self, index: usize, sample: &Sample<'_>) -> io::Result<bool> {
        let in_tier = &mut self.tiers[index];
        let mut bytes = Vec::new();
        let is_over = in_tier.begins_anew(sample.time);
        let open = in_tier.open.take().filter(|_| !is_over);
        let began = open.is_none();
        let mut open = match open {
            Some(open) => open,
            None => self.begin(index, sample.time, &mut bytes)?,
        };
        // If this fails, the encoder is ahead of the file, so the segment must end here.
        let encoded = open.encoder.sample(sample, &mut bytes);
        let appended = encoded.and_then(|()| self.store.append(&mut open.file, &bytes));
        if let Err(error) = appended.and_then(|()| self.store.sync(&mut open.file)) {
            // If this fails too, a reader recognises the remainder as incomplete.
            if open.bytes == 0 {
                let _ = self.store.remove(&open.name);
            } else {
                let _ = self.store.truncate(&mut open.file, open.bytes);
            }
            return Err(error);
        }
        open.bytes += bytes.len() as u64;
        self.bytes_written += bytes.len() as u64;
        (self.tiers[index].open, self.tiers[index].written) = (Some(open), Some(sample.time));
        Ok(began)
    }

    /// Creates the file of a segment.
    fn begin(&mut self, index: usize, time: Time, bytes: &mut Vec<u8>) -> io::Result<Open<S::File>> {
        /// The clock may have been set back, so names may be taken.
        const ATTEMPTS: u32 = 100;
        let tier = self.tiers[index].tier;
        let about = About {
            tier: tier.name.to_owned(),
            every_ns: self.about.every_ns.max(tier.every_ns),
            ..self.about.clone()
        };
        let encoder = Encoder::begin(&about, time, bytes)?;
        let mut attempt = 0;
        loop {
            let name = file_name(tier.name, time.wall_ns, attempt);
            match self.store.create(&name) {
                Ok(file) => {
                    return Ok(Open {
                        file,
                        name,
                        encoder,
                        bytes: 0,
                        began_ns: time.boot_ns,
                    })
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists && attempt < ATTEMPTS => attempt += 1,
                Err(error) => return Err(error),
            }
        }
    }

    /// Removes old segments. If writing has stopped, it does not matter that the directory cannot
    /// be listed, and what cannot be removed is told once.
    fn remove_old(&mut self, time: Time, is_stopped: bool, notices: &mut Vec<Notice>) {
        let open: Vec<String> = self
            .tiers
            .iter()
            .filter_map(|tier| Some(tier.open.as_ref()?.name.clone()))
            .collect();
        let files = match self.store.list() {
            Ok(files) => files,
            Err(_) if is_stopped => return,
            Err(error) => return notices.push(Notice::NotRemoved(error.to_string())),
        };
        for name in to_remove(&files, &open, self.keep, time.wall_ns) {
            if let (Err(error), None) = (self.store.remove(&name), &self.stopped) {
                notices.push(Notice::NotRemoved(format!("{name}: {error}")));
            }
        }
    }
}

/// By how much the wall clock was set between two samples, if it jumped.
fn jump_ns(before: Time, now: Time) -> Option<i128> {
    let offset = |time: Time| i128::from(time.wall_ns) - i128::from(time.boot_ns);
    let jump = offset(now) - offset(before);
    (jump.abs() > JUMP_NS).then_some(jump)
}

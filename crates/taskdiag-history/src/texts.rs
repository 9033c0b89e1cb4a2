//! Texts: each is in a segment once, and has a number there.

use std::collections::HashMap;
use std::sync::Arc;

use crate::varint::{self, Input};
use crate::{Damage, MAX_BYTES};

/// The texts of a segment that is being written.
#[derive(Debug, Default)]
pub(crate) struct Interned {
    numbers: HashMap<Arc<[u8]>, u64>,
    list: Vec<Arc<[u8]>>,
    /// How many of them were encoded.
    written: usize,
    /// Their total length in bytes.
    pub(crate) bytes: usize,
    /// The length of those not yet encoded, in bytes.
    new_bytes: usize,
}

/// The maximum total length of a sample's command lines, and the maximum length of one, in bytes.
/// The arguments of an execve(2) can have megabytes, and a process can change them for each sample.
/// So these limits keep processes from filling the disk or making samples too large to record.
const MAX_ARGUMENT_BYTES: usize = 32 << 20;
const LONGEST_ARGUMENTS: usize = 128 << 10;

impl Interned {
    pub(crate) fn number(&mut self, text: &[u8]) -> u64 {
        if let Some(&number) = self.numbers.get(text) {
            return number;
        }
        let (text, number) = (Arc::<[u8]>::from(text), self.list.len() as u64);
        self.bytes += text.len();
        self.new_bytes += text.len();
        self.list.push(text.clone());
        self.numbers.insert(text, number);
        number
    }

    /// Whether the next sample has room for these arguments.
    pub(crate) fn has_room_for(&self, arguments: &[u8]) -> bool {
        let is_short = arguments.len() <= LONGEST_ARGUMENTS;
        is_short && self.new_bytes + arguments.len() <= MAX_ARGUMENT_BYTES || self.numbers.contains_key(arguments)
    }

    /// The number of a text that is probably `before`. The texts of an idle process are only
    /// compared, not looked up.
    pub(crate) fn number_like(&mut self, text: &[u8], before: Option<u64>) -> u64 {
        match before {
            Some(number) if self.list.get(number as usize).is_some_and(|known| **known == *text) => number,
            _ => self.number(text),
        }
    }

    /// Appends the texts that are new since the last call.
    pub(crate) fn encode(&mut self, out: &mut Vec<u8>) {
        let new = &self.list[self.written..];
        varint::number(out, new.len() as u64);
        new.iter().for_each(|text| varint::text(out, text));
        self.written = self.list.len();
        self.new_bytes = 0;
    }
}

/// The texts of a segment that is being read.
#[derive(Debug, Default)]
pub(crate) struct Texts {
    list: Vec<Box<[u8]>>,
    bytes: usize,
}

/// No segment has this many texts: a recorder begins a new segment long before.
const MAX_TEXTS: usize = 1 << 24;
const MAX_TEXT_BYTES: usize = MAX_BYTES + MAX_BYTES / 2;

impl Texts {
    pub(crate) fn decode(&mut self, input: &mut Input<'_>) -> Result<(), Damage> {
        for _ in 0..input.count()? {
            let text = input.text()?;
            self.bytes += text.len();
            if self.list.len() >= MAX_TEXTS || self.bytes > MAX_TEXT_BYTES {
                return Err(Damage("there are more texts than any recorder writes"));
            }
            self.list.push(text.into());
        }
        Ok(())
    }

    pub(crate) fn get(&self, number: u64) -> Result<&[u8], Damage> {
        let text = usize::try_from(number).ok().and_then(|number| self.list.get(number));
        text.map(|text| &**text)
            .ok_or(Damage("a text is named that is not there"))
    }

    /// The number of a text.
    pub(crate) fn find(&self, text: &[u8]) -> Option<u64> {
        let place = self.list.iter().position(|known| **known == *text);
        place.map(|place| place as u64)
    }
}

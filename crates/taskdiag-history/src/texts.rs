//! Texts: each is in a segment once, and has a number there.

use std::collections::HashMap;
use std::sync::Arc;

use crate::varint::{self, Input};
use crate::Damage;

/// The texts of a segment that is being written.
#[derive(Debug, Default)]
pub(crate) struct Interned {
    numbers: HashMap<Arc<[u8]>, u32>,
    list: Vec<Arc<[u8]>>,
    /// How many of them are in samples that were encoded.
    written: usize,
    /// Their bytes, all together.
    pub(crate) bytes: usize,
}

impl Interned {
    pub(crate) fn number(&mut self, text: &[u8]) -> u32 {
        if let Some(&number) = self.numbers.get(text) {
            return number;
        }
        let (text, number) = (Arc::<[u8]>::from(text), self.list.len() as u32);
        self.bytes += text.len();
        self.list.push(text.clone());
        self.numbers.insert(text, number);
        number
    }

    /// The number of a text that was probably `before`: an idle process's texts are compared, not
    /// looked up.
    pub(crate) fn number_like(&mut self, text: &[u8], before: Option<u64>) -> u32 {
        match before {
            Some(number) if self.list.get(number as usize).is_some_and(|known| **known == *text) => number as u32,
            _ => self.number(text),
        }
    }

    /// Appends those that are new since the last call.
    pub(crate) fn encode(&mut self, out: &mut Vec<u8>) {
        let new = &self.list[self.written..];
        varint::number(out, new.len() as u64);
        new.iter().for_each(|text| varint::text(out, text));
        self.written = self.list.len();
    }
}

/// The texts of a segment that is being read.
#[derive(Debug, Default)]
pub(crate) struct Texts(Vec<Box<[u8]>>);

impl Texts {
    pub(crate) fn decode(&mut self, input: &mut Input<'_>) -> Result<(), Damage> {
        for _ in 0..input.count()? {
            self.0.push(input.text()?.into());
        }
        Ok(())
    }

    pub(crate) fn get(&self, number: u64) -> Result<&[u8], Damage> {
        let text = usize::try_from(number).ok().and_then(|number| self.0.get(number));
        text.map(|text| &**text)
            .ok_or(Damage("a text is named that is not there"))
    }
}

//! Figures: numbers of the machine and of cgroups, and names. Each has an object and a key.
//!
//! The object of the machine's own figures is empty, that of a cgroup is its path. Which figures there
//! are is up to who records: a reader looks up what it knows.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::texts::{Interned, Texts};
use crate::varint::{self, Input};
use crate::Damage;

/// The value of a figure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Figure {
    /// A number.
    Number(u64),
    /// A text, such as the name of a user.
    Text(Arc<[u8]>),
}

/// All figures of a moment, by object and key.
pub type Figures = BTreeMap<(Arc<[u8]>, Arc<[u8]>), Figure>;

/// Sets a figure.
pub fn set(figures: &mut Figures, object: &[u8], key: &[u8], figure: Figure) {
    figures.insert((object.into(), key.into()), figure);
}

/// Figures by the numbers of their texts: whether the value is a text, and the value.
type Numbered = BTreeMap<(u32, u32), (bool, u64)>;

/// The figures of a segment that is being written.
#[derive(Debug, Default)]
pub(crate) struct Written(Numbered);

impl Written {
    /// Appends what has changed since the last call.
    pub(crate) fn encode(&mut self, figures: &Figures, texts: &mut Interned, out: &mut Vec<u8>) {
        let mut now = Numbered::new();
        for ((object, key), figure) in figures {
            let value = match figure {
                Figure::Number(number) => (false, *number),
                Figure::Text(text) => (true, texts.number(text).into()),
            };
            now.insert((texts.number(object), texts.number(key)), value);
        }
        let gone: Vec<(u32, u32)> = self.0.keys().filter(|key| !now.contains_key(key)).copied().collect();
        let changed: Vec<((u32, u32), (bool, u64))> = now
            .iter()
            .filter(|&(key, value)| self.0.get(key) != Some(value))
            .map(|(&key, &value)| (key, value))
            .collect();
        let mut keys = Keys::default();
        varint::number(out, gone.len() as u64);
        gone.iter().for_each(|&key| keys.put(key, out));
        let mut keys = Keys::default();
        varint::number(out, changed.len() as u64);
        changed.iter().for_each(|&(key, _)| keys.put(key, out));
        for (key, (is_text, value)) in changed {
            let (_, before) = self.0.get(&key).copied().unwrap_or_default();
            out.push(is_text.into());
            varint::signed(out, value.wrapping_sub(before) as i64);
        }
        self.0 = now;
    }
}

/// The figures of a segment that is being read.
#[derive(Debug, Default)]
pub(crate) struct Read(Numbered);

impl Read {
    pub(crate) fn decode(&mut self, input: &mut Input<'_>) -> Result<(), Damage> {
        let mut keys = Keys::default();
        for _ in 0..input.count()? {
            let key = keys.take(input)?;
            self.0
                .remove(&key)
                .ok_or(Damage("a figure is gone that was not there"))?;
        }
        let mut keys = Keys::default();
        let changed: Vec<(u32, u32)> = (0..input.count()?)
            .map(|_| keys.take(input))
            .collect::<Result<_, _>>()?;
        for key in changed {
            let is_text = input.number()? != 0;
            let (_, before) = self.0.get(&key).copied().unwrap_or_default();
            let value = before.wrapping_add(input.signed()? as u64);
            self.0.insert(key, (is_text, value));
        }
        Ok(())
    }

    pub(crate) fn all(&self, texts: &Texts) -> Result<Figures, Damage> {
        let mut figures = Figures::new();
        for (&(object, key), &(is_text, value)) in &self.0 {
            let value = if is_text {
                Figure::Text(texts.get(value)?.into())
            } else {
                Figure::Number(value)
            };
            set(&mut figures, texts.get(object.into())?, texts.get(key.into())?, value);
        }
        Ok(figures)
    }
}

/// Ascending pairs, as steps.
#[derive(Debug, Default)]
struct Keys(u32, u32);

impl Keys {
    fn put(&mut self, (object, key): (u32, u32), out: &mut Vec<u8>) {
        varint::number(out, (object - self.0).into());
        let before = if object == self.0 { self.1 } else { 0 };
        varint::number(out, (key - before).into());
        *self = Keys(object, key);
    }

    fn take(&mut self, input: &mut Input<'_>) -> Result<(u32, u32), Damage> {
        const FAR: Damage = Damage("a figure's name is out of range");
        let step = input.small()?;
        let before = if step == 0 { self.1 } else { 0 };
        self.0 = self.0.checked_add(step).ok_or(FAR)?;
        self.1 = before.checked_add(input.small()?).ok_or(FAR)?;
        Ok((self.0, self.1))
    }
}

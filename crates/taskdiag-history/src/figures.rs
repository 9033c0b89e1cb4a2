//! Figures: numbers of the machine and of cgroups, and names. Each has an object and a key.
//!
//! The object of the machine's own figures is empty, that of a cgroup is its path. Which figures there
//! are is up to who records: a reader looks up what it knows.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::texts::{Interned, Texts};
use crate::varint::{self, Input};
use crate::{Damage, Named};

/// The value of a figure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Figure {
    /// A number.
    Number(u64),
    /// A text, such as the name of a user.
    Text(Arc<[u8]>),
}

/// All figures of a moment, by object and key.
pub type Figures = BTreeMap<Name, Figure>;

/// The object that a figure is about, and its key.
pub type Name = (Arc<[u8]>, Arc<[u8]>);

/// Sets a figure.
pub fn set(figures: &mut Figures, object: &[u8], key: &[u8], figure: Figure) {
    figures.insert((object.into(), key.into()), figure);
}

/// Object and key of a figure, by the numbers of their texts.
type Key = (u32, u32);
/// Whether the value is a text, and the value or the number of the text.
type Value = (bool, u64);
/// Figures by the numbers of their texts.
type Numbered = BTreeMap<Key, Value>;

/// Some of the figures of a moment. No figure is in two parts.
#[derive(Clone, Copy, Debug)]
pub struct Part<'a> {
    /// They.
    pub figures: &'a Figures,
    /// Another number whenever they may have changed: what has not is not looked at. There can be very
    /// many, and most are read seldom.
    pub version: u64,
}

/// The figures of a segment that is being written: of each part, and which version of it that is.
#[derive(Debug, Default)]
pub(crate) struct Written(Vec<(u64, Numbered)>);

impl Written {
    /// Appends what has changed since the last call, which had as many parts.
    pub(crate) fn encode(&mut self, parts: &[Part<'_>], texts: &mut Interned, out: &mut Vec<u8>) {
        let mut gone: Vec<Key> = Vec::new();
        let mut changed: Vec<(Key, Value, u64)> = Vec::new();
        self.0.resize_with(parts.len().max(self.0.len()), Default::default);
        for (part, (version, before)) in parts.iter().zip(&mut self.0) {
            if part.version == *version && !before.is_empty() {
                continue;
            }
            let now = numbered(part.figures, texts);
            gone.extend(before.keys().filter(|key| !now.contains_key(key)));
            changed.extend(now.iter().filter_map(|(&key, &value)| {
                let known = before.get(&key).copied();
                (known != Some(value)).then(|| (key, value, known.unwrap_or_default().1))
            }));
            (*version, *before) = (part.version, now);
        }
        gone.sort_unstable();
        changed.sort_unstable_by_key(|&(key, ..)| key);
        let mut keys = Keys::default();
        varint::number(out, gone.len() as u64);
        gone.iter().for_each(|&key| keys.put(key, out));
        let mut keys = Keys::default();
        varint::number(out, changed.len() as u64);
        changed.iter().for_each(|&(key, ..)| keys.put(key, out));
        for (_, (is_text, value), before) in changed {
            out.push(is_text.into());
            varint::signed(out, value.wrapping_sub(before) as i64);
        }
    }
}

fn numbered(figures: &Figures, texts: &mut Interned) -> Numbered {
    let number = |((object, key), figure): (&Name, &Figure)| {
        let value = match figure {
            Figure::Number(number) => (false, *number),
            Figure::Text(text) => (true, texts.number(text).into()),
        };
        ((texts.number(object), texts.number(key)), value)
    };
    figures.iter().map(number).collect()
}

/// More figures than a sample has.
const MOST_FIGURES: usize = 1 << 20;

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
            if self.0.len() > MOST_FIGURES {
                return Err(Damage("there are more figures than any recorder writes"));
            }
        }
        Ok(())
    }

    /// The numbers of one object, with their keys.
    pub(crate) fn numbers<'t>(&self, object: &[u8], texts: &'t Texts) -> Vec<(&'t [u8], u64)> {
        let Some(object) = texts.find(object) else {
            return Vec::new();
        };
        let of_object = self.0.range((object, 0)..=(object, u32::MAX));
        of_object
            .filter(|(_, (is_text, _))| !is_text)
            .filter_map(|(&(_, key), &(_, value))| Some((texts.get(key.into()).ok()?, value)))
            .collect()
    }

    pub(crate) fn all(&self, texts: &Texts) -> Result<Figures, Damage> {
        let mut figures = Figures::new();
        let mut named = Named::default();
        for (&(object, key), &(is_text, value)) in &self.0 {
            let value = if is_text {
                Figure::Text(named.add(texts.get(value)?)?.into())
            } else {
                Figure::Number(value)
            };
            let object = named.add(texts.get(object.into())?)?;
            let key = named.add(texts.get(key.into())?)?;
            set(&mut figures, object, key, value);
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

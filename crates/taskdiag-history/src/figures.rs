//! Figures: numbers of the machine and of cgroups, and names. Each figure has an object and a key.
//!
//! The machine's own figures have an empty object; the object of a cgroup is its path. The recorder
//! decides which figures exist, and a reader looks up those that it knows.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::coder::{BitModel, Coder, NumberModel, Reader};
use crate::table::ColumnModels;
use crate::texts::{Interned, Texts};
use crate::{Damage, Named};

/// The value of a figure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Figure {
    /// A number.
    Number(u64),
    /// A text, such as the name of a user.
    Text(Arc<[u8]>),
}

/// All figures at one time, by object and key.
pub type Figures = BTreeMap<Name, Figure>;

/// The object of a figure, and its key.
pub type Name = (Arc<[u8]>, Arc<[u8]>);

/// Sets a figure.
pub fn set(figures: &mut Figures, object: &[u8], key: &[u8], figure: Figure) {
    figures.insert((object.into(), key.into()), figure);
}

/// Object and key of a figure, as numbers of texts.
type Key = (u32, u32);
/// Whether the value is a text, and the value or the text's number.
type Value = (bool, u64);
/// Figures by the numbers of their object and key.
type Numbered = BTreeMap<Key, Value>;

/// Some of the figures at one time. No figure is in two parts.
#[derive(Clone, Copy, Debug)]
pub struct Part<'a> {
    /// The figures.
    pub figures: &'a Figures,
    /// Changes whenever the figures may have changed. An unchanged part is not examined: it can
    /// have very many figures.
    pub version: u64,
}

/// The models of figures and their changes.
#[derive(Debug, Default)]
struct Habits {
    gone: Keys,
    changed: Keys,
    is_text: BitModel,
    texts: NumberModel,
    /// By key: figures with the same key behave alike. Keys beyond [`KEPT_APART`] share models.
    numbers: Vec<ColumnModels>,
}

/// The number of models for numbers.
const KEPT_APART: usize = 256;

impl Habits {
    /// Codes the value of a figure. When decoding, `value` is ignored.
    fn value<C: Coder>(&mut self, (_, key): Key, value: Value, before: Value, coder: &mut C) -> Value {
        let is_text = coder.bit(&mut self.is_text, value.0);
        let difference = value.1.wrapping_sub(before.1) as i64;
        let difference = if is_text {
            coder.signed(&mut self.texts, difference)
        } else {
            self.numbers.resize_with(KEPT_APART, ColumnModels::default);
            let mut differences = [difference];
            self.numbers[key as usize % KEPT_APART].code(&mut differences, coder);
            differences[0]
        };
        (is_text, before.1.wrapping_add(difference as u64))
    }
}

/// The state of an encoder: the figures and the version of each part.
#[derive(Debug, Default)]
pub(crate) struct Written {
    parts: Vec<(u64, Numbered)>,
    habits: Habits,
}

impl Written {
    /// Encodes what changed since the last call. The parts must be the same as then.
    pub(crate) fn encode(&mut self, parts: &[Part<'_>], texts: &mut Interned, coder: &mut impl Coder) {
        let mut gone: Vec<Key> = Vec::new();
        let mut changed: Vec<(Key, Value, Value)> = Vec::new();
        self.parts
            .resize_with(parts.len().max(self.parts.len()), Default::default);
        for (part, (version, before)) in parts.iter().zip(&mut self.parts) {
            if part.version == *version && !before.is_empty() {
                continue;
            }
            let now = numbered(part.figures, texts);
            gone.extend(before.keys().filter(|key| !now.contains_key(key)));
            changed.extend(now.iter().filter_map(|(&key, &value)| {
                let known = before.get(&key).copied();
                (known != Some(value)).then(|| (key, value, known.unwrap_or_default()))
            }));
            (*version, *before) = (part.version, now);
        }
        gone.sort_unstable();
        changed.sort_unstable_by_key(|&(key, ..)| key);
        self.habits.gone.put(gone.iter().copied(), coder);
        self.habits.changed.put(changed.iter().map(|&(key, ..)| key), coder);
        for (key, value, before) in changed {
            self.habits.value(key, value, before, coder);
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

/// No sample has this many figures.
const MOST_FIGURES: usize = 1 << 20;
const TOO_MANY: &str = "there are more figures than any recorder writes";

/// The state of a decoder.
#[derive(Debug, Default)]
pub(crate) struct Read {
    all: Numbered,
    habits: Habits,
}

impl Read {
    pub(crate) fn decode(&mut self, coder: &mut Reader<'_>) -> Result<(), Damage> {
        for key in self.habits.gone.take(coder)? {
            let gone = self.all.remove(&key);
            gone.ok_or(Damage("a figure is gone that was not there"))?;
        }
        for key in self.habits.changed.take(coder)? {
            let before = self.all.get(&key).copied().unwrap_or_default();
            let value = self.habits.value(key, Value::default(), before, coder);
            self.all.insert(key, value);
            if self.all.len() > MOST_FIGURES {
                return Err(Damage(TOO_MANY));
            }
        }
        coder.check()
    }

    /// The numbers of one object, with their keys.
    pub(crate) fn numbers<'t>(&self, object: &[u8], texts: &'t Texts) -> Vec<(&'t [u8], u64)> {
        let Some(object) = texts.find(object) else {
            return Vec::new();
        };
        let of_object = self.all.range((object, 0)..=(object, u32::MAX));
        of_object
            .filter(|(_, (is_text, _))| !is_text)
            .filter_map(|(&(_, key), &(_, value))| Some((texts.get(key.into()).ok()?, value)))
            .collect()
    }

    pub(crate) fn all(&self, texts: &Texts) -> Result<Figures, Damage> {
        let mut figures = Figures::new();
        let mut named = Named::default();
        for (&(object, key), &(is_text, value)) in &self.all {
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

/// The models of ascending keys: their count, and the steps between them.
#[derive(Debug, Default)]
struct Keys {
    count: NumberModel,
    object: NumberModel,
    /// The first key of the next object.
    first: NumberModel,
    key: NumberModel,
}

impl Keys {
    fn put(&mut self, keys: impl ExactSizeIterator<Item = Key>, coder: &mut impl Coder) {
        coder.number(&mut self.count, keys.len() as u64);
        let mut before = Key::default();
        for (object, key) in keys {
            if coder.number(&mut self.object, (object - before.0).into()) == 0 {
                coder.number(&mut self.key, (key - before.1).into());
            } else {
                coder.number(&mut self.first, key.into());
            }
            before = (object, key);
        }
    }

    fn take(&mut self, coder: &mut Reader<'_>) -> Result<Vec<Key>, Damage> {
        const FAR: Damage = Damage("a figure's name is out of range");
        let count = coder.count(&mut self.count, MOST_FIGURES, TOO_MANY)?;
        let mut keys = Vec::with_capacity(count);
        let mut before = Key::default();
        for _ in 0..count {
            let step = coder.small(&mut self.object)?;
            let object = before.0.checked_add(step).ok_or(FAR)?;
            let key = if step == 0 {
                let step = coder.small(&mut self.key)?;
                before.1.checked_add(step).ok_or(FAR)?
            } else {
                coder.small(&mut self.first)?
            };
            before = (object, key);
            keys.push(before);
        }
        coder.check()?;
        Ok(keys)
    }
}

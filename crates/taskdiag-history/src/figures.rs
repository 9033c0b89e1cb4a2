//! Figures: numbers of the machine and of cgroups, and names. Each figure has an object and a key.
//!
//! The machine's own figures have an empty object; the object of a cgroup is its path. The recorder
//! decides which figures exist, and a reader looks up those that it knows.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::coder::Coder;
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

/// Figures by the numbers of the texts of their object and key: what the value is ([`NUMBER`],
/// [`TEXT`]), and the value or the text's number.
type Numbered = BTreeMap<[u64; 2], [u64; 2]>;

const NUMBER: u64 = 1;
const TEXT: u64 = 2;
/// In a change: the figure is no longer there. It sorts before others with the same key.
const GONE: u64 = 0;

/// Changes: object, key, what the value is, and its difference from the value before.
type Changes = Vec<[u64; 4]>;

/// Object, key and kind of a change resemble those of the change before it.
const ALIKE: usize = 3;

/// Some of the figures at one time. No figure is in two parts.
#[derive(Clone, Copy, Debug)]
pub struct Part<'a> {
    /// The figures.
    pub figures: &'a Figures,
    /// Changes whenever the figures may have changed. An unchanged part is not examined: it can
    /// have very many figures.
    pub version: u64,
}

/// The state of an encoder: the version and the figures of each part.
#[derive(Debug, Default)]
pub(crate) struct FigureEncoder(Vec<(u64, Numbered)>);

impl FigureEncoder {
    /// Encodes what changed since the last call. The parts must be the same as then.
    pub(crate) fn encode(
        &mut self,
        parts: &[Part<'_>],
        texts: &mut Interned,
        coder: &mut impl Coder,
    ) -> Result<(), Damage> {
        let mut changes = Changes::new();
        self.0.resize_with(parts.len().max(self.0.len()), Default::default);
        for (part, (version, before)) in parts.iter().zip(&mut self.0) {
            if part.version == *version && !before.is_empty() {
                continue;
            }
            let now = numbered(part.figures, texts);
            let gone = before.keys().filter(|key| !now.contains_key(*key));
            changes.extend(gone.map(|&[object, key]| [object, key, GONE, 0]));
            changes.extend(now.iter().filter_map(|(of, value)| {
                let known = before.get(of);
                let difference = value[1].wrapping_sub(known.map_or(0, |known| known[1]));
                (known != Some(value)).then_some([of[0], of[1], value[0], difference])
            }));
            (*version, *before) = (part.version, now);
        }
        changes.sort_unstable();
        coder.rows(&mut changes, ALIKE, TOO_MANY)
    }
}

fn numbered(figures: &Figures, texts: &mut Interned) -> Numbered {
    let number = |((object, key), figure): (&Name, &Figure)| {
        let value = match figure {
            Figure::Number(number) => [NUMBER, *number],
            Figure::Text(text) => [TEXT, texts.number(text)],
        };
        ([texts.number(object), texts.number(key)], value)
    };
    figures.iter().map(number).collect()
}

/// No sample has this many figures.
const MAX_FIGURES: usize = 1 << 20;
const TOO_MANY: &str = "there are more figures than any recorder writes";

/// The state of a decoder.
#[derive(Debug, Default)]
pub(crate) struct FigureDecoder(Numbered);

impl FigureDecoder {
    pub(crate) fn decode(&mut self, coder: &mut impl Coder) -> Result<(), Damage> {
        let mut changes = Changes::new();
        coder.rows(&mut changes, ALIKE, TOO_MANY)?;
        for [object, key, kind, difference] in changes {
            if kind == GONE {
                self.0.remove(&[object, key]);
                continue;
            }
            let value = self.0.entry([object, key]).or_default();
            *value = [kind, value[1].wrapping_add(difference)];
            if self.0.len() > MAX_FIGURES {
                return Err(Damage(TOO_MANY));
            }
        }
        Ok(())
    }

    /// The numbers of one object, with their keys.
    pub(crate) fn numbers<'t>(&self, object: &[u8], texts: &'t Texts) -> Vec<(&'t [u8], u64)> {
        let Some(object) = texts.find(object) else {
            return Vec::new();
        };
        let of_object = self.0.range([object, 0]..=[object, u64::MAX]);
        of_object
            .filter(|(_, [kind, _])| *kind != TEXT)
            .filter_map(|(&[_, key], &[_, value])| Some((texts.get(key).ok()?, value)))
            .collect()
    }

    pub(crate) fn all(&self, texts: &Texts) -> Result<Figures, Damage> {
        let mut figures = Figures::new();
        let mut named = Named::default();
        for (&[object, key], &[kind, value]) in &self.0 {
            let value = if kind == TEXT {
                Figure::Text(named.add(texts.get(value)?)?.into())
            } else {
                Figure::Number(value)
            };
            let object = named.add(texts.get(object)?)?;
            let key = named.add(texts.get(key)?)?;
            set(&mut figures, object, key, value);
        }
        Ok(figures)
    }
}

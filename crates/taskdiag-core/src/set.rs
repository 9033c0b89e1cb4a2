//! Sets of fields, and of other enums.

use std::fmt;
use std::hash::Hash;
use std::marker::PhantomData;
use std::ops::{BitOr, BitOrAssign};

/// What a [`Set`] can hold: an enum of this project.
pub trait Member: Copy + Eq + Hash + 'static {
    /// Its place in a set: a unique number below 256.
    fn place(self) -> usize;

    /// The value with this place.
    fn at(place: usize) -> Option<Self>;
}

/// A set of values of an enum, such as fields, or kinds of files.
///
/// `|` between values makes a set, and so does [`From`] an array:
///
/// ```
/// # mod taskdiag { pub use taskdiag_core::{field::Field, set::Set}; }
/// use taskdiag::{Field, Set};
///
/// assert_eq!(Field::Pid | Field::Comm, Set::from([Field::Comm, Field::Pid]));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Set<T> {
    words: [u64; 4],
    of: PhantomData<T>,
}

impl<T> Set<T> {
    /// The empty set.
    pub const NONE: Set<T> = Set {
        words: [0; 4],
        of: PhantomData,
    };
}

impl<T: Member> Set<T> {
    /// Whether `value` is in the set.
    pub fn contains(&self, value: T) -> bool {
        let place = value.place();
        self.words[place / 64] >> (place % 64) & 1 != 0
    }

    /// The values, in the order of their numbers.
    pub fn iter(self) -> impl Iterator<Item = T> {
        // Listings call this for each row.
        (0..).zip(self.words).flat_map(|(index, mut word)| {
            std::iter::from_fn(move || {
                let bit = (word != 0).then(|| word.trailing_zeros() as usize)?;
                word &= word - 1;
                T::at(index * 64 + bit)
            })
        })
    }

    /// The set without the values of another set.
    pub fn without(self, other: impl Into<Set<T>>) -> Set<T> {
        let other: Set<T> = other.into();
        let mut words = self.words;
        words
            .iter_mut()
            .zip(other.words)
            .for_each(|(word, other)| *word &= !other);
        Set { words, ..self }
    }

    /// Adds `value`.
    pub(crate) fn insert(&mut self, value: T) {
        let place = value.place();
        self.words[place / 64] |= 1 << (place % 64);
    }
}

impl<T> Default for Set<T> {
    fn default() -> Set<T> {
        Set::NONE
    }
}

impl<T: Member + fmt::Debug> fmt::Debug for Set<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

impl<T: Member> From<T> for Set<T> {
    fn from(value: T) -> Set<T> {
        let mut set = Set::NONE;
        set.insert(value);
        set
    }
}

impl<T: Member, const N: usize> From<[T; N]> for Set<T> {
    fn from(values: [T; N]) -> Set<T> {
        values.into_iter().collect()
    }
}

impl<T: Member, U: Into<Set<T>>> FromIterator<U> for Set<T> {
    fn from_iter<I: IntoIterator<Item = U>>(parts: I) -> Set<T> {
        parts.into_iter().fold(Set::NONE, |set, part| set | part)
    }
}

impl<T: Member, U: Into<Set<T>>> Extend<U> for Set<T> {
    fn extend<I: IntoIterator<Item = U>>(&mut self, parts: I) {
        parts.into_iter().for_each(|part| *self |= part);
    }
}

impl<T: Member, U: Into<Set<T>>> BitOr<U> for Set<T> {
    type Output = Set<T>;

    fn bitor(mut self, other: U) -> Set<T> {
        self |= other;
        self
    }
}

impl<T: Member, U: Into<Set<T>>> BitOrAssign<U> for Set<T> {
    fn bitor_assign(&mut self, other: U) {
        let other: Set<T> = other.into();
        let words = self.words.iter_mut().zip(other.words);
        words.for_each(|(mine, theirs)| *mine |= theirs);
    }
}

/// Lets `|` make a [`Set`] from values of an enum: `set_by_or!(Field)`.
#[macro_export]
macro_rules! set_by_or {
    ($of:ty) => {
        impl<T: Into<$crate::set::Set<$of>>> ::std::ops::BitOr<T> for $of {
            type Output = $crate::set::Set<$of>;

            fn bitor(self, other: T) -> $crate::set::Set<$of> {
                $crate::set::Set::from(self) | other
            }
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::EventKind;
    use crate::field::Field;
    use crate::open_file::{Kind, Use};
    use crate::socket::{self, SocketField, State};

    /// Checks that each value of an enum has a unique place, and that sets are in the order of places.
    fn check<T: Member + fmt::Debug>(values: &[T]) {
        let all: Set<T> = values.iter().copied().collect();
        assert!(values.len() > 2);
        let mut in_order = values.to_vec();
        in_order.sort_by_key(|value| value.place());
        assert_eq!(all.iter().collect::<Vec<T>>(), in_order);
        for &value in values {
            let rest = all.without(value);
            assert!(!rest.contains(value) && all.contains(value), "{value:?}");
            assert_eq!(rest.iter().count() + 1, all.iter().count(), "{value:?}");
            assert_eq!(rest | value, all);
        }
        assert_eq!(all.without(all), Set::NONE);
    }

    /// Check that a set has exactly the values that were put into it.
    #[test]
    fn each_value_has_a_place() {
        check(Field::ALL);
        check(SocketField::ALL);
        check(&Kind::all().collect::<Vec<Kind>>());
        check(&Use::ALL);
        check(&State::ALL);
        check(&socket::Kind::ALL);
        check(&EventKind::ALL);
        assert_eq!(format!("{:?}", Use::Fd | Use::Cwd), "{Fd, Cwd}");
    }
}

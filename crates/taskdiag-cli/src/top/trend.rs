//! The history of rows over the last samples, for sparklines and plots.
//!
//! Most processes are idle, so only those that did something have a history. A sample without an
//! entry for a row counts as 0.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;

/// How many samples are kept: at one a second, the last two minutes.
pub const LENGTH: usize = 120;

/// Tenths of a percent of one processor; at most 6553.5 %.
pub type Tenths = u16;

/// A percentage in the stored form.
pub fn tenths(percent: f64) -> Tenths {
    (percent * 10.0).round().clamp(0.0, f64::from(Tenths::MAX)) as Tenths
}

/// The histories of all rows that did something.
#[derive(Debug)]
pub struct Trends<K, V = Tenths> {
    /// The number of the current sample; the first one is 1.
    sample: u64,
    /// For each row, the last samples with a value other than 0, and the values.
    rows: HashMap<K, VecDeque<(u64, V)>>,
}

impl<K, V> Default for Trends<K, V> {
    fn default() -> Trends<K, V> {
        Trends {
            sample: 0,
            rows: HashMap::new(),
        }
    }
}

impl<K: Eq + Hash, V: Copy + Default + PartialEq> Trends<K, V> {
    /// Begins the next sample.
    pub fn begin(&mut self) {
        self.sample += 1;
        if self.sample % (LENGTH as u64 / 2) == 0 {
            let sample = self.sample;
            let is_recent = |&(last, _): &(u64, V)| last + LENGTH as u64 > sample;
            self.rows.retain(|_, values| values.back().is_some_and(is_recent));
        }
    }

    /// Adds the value of a row to the current sample, in place of an earlier one.
    pub fn add(&mut self, row: K, value: V) {
        if value == V::default() {
            return;
        }
        let values = self.rows.entry(row).or_default();
        if values.back().is_some_and(|&(last, _)| last == self.sample) {
            values.pop_back();
        } else if values.len() == LENGTH {
            values.pop_front();
        }
        values.push_back((self.sample, value));
    }

    /// The values of the last `count` samples, the oldest first. There are fewer at the beginning.
    pub fn of(&self, row: &K, count: usize) -> Vec<V> {
        let count = (count.min(LENGTH) as u64).min(self.sample);
        let before = self.sample - count;
        let mut all = vec![V::default(); count as usize];
        for &(sample, value) in self.rows.get(row).into_iter().flatten() {
            if sample > before {
                all[(sample - before - 1) as usize] = value;
            }
        }
        all
    }

    /// The number of the last sample in which a row had a value; 0 for none.
    pub fn last(&self, row: &K) -> u64 {
        let last = self.rows.get(row).and_then(VecDeque::back);
        last.map_or(0, |&(last, _)| last)
    }
}

/// The characters of nine levels, from nothing to a whole processor.
const UTF8: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
const ASCII: [char; 9] = [' ', '.', ':', '-', '=', '+', '*', '%', '#'];

/// The characters of levels.
pub fn levels(utf8: bool) -> &'static [char; 9] {
    if utf8 {
        &UTF8
    } else {
        &ASCII
    }
}

/// Appends one character for each value. The highest character stands for `full` and more. A value
/// that is not 0 is always visible.
pub fn sparkline(out: &mut Vec<u8>, values: &[Tenths], full: Tenths, utf8: bool) {
    for &value in values {
        let level = (usize::from(value) * 8).div_ceil(usize::from(full.max(1))).min(8);
        let character = levels(utf8)[level];
        out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that samples without a value are 0, that there are none before the first, and that old
    /// ones are forgotten.
    #[test]
    fn idle_samples_are_zero() {
        let mut trends: Trends<_> = Trends::default();
        assert!(trends.of(&7, 10).is_empty());
        for value in [10, 0, 30] {
            trends.begin();
            trends.add(7, value);
        }
        trends.begin();
        assert_eq!(trends.of(&7, 10), [10, 0, 30, 0]);
        assert_eq!(trends.of(&7, 2), [30, 0]);
        assert_eq!(trends.of(&8, 3), [0, 0, 0]);
        for _ in 0..LENGTH {
            trends.begin();
        }
        trends.add(7, 5);
        let values = trends.of(&7, LENGTH);
        assert_eq!(values.len(), LENGTH);
        assert_eq!(values.iter().map(|&value| u32::from(value)).sum::<u32>(), 5);
        for _ in 0..2 * LENGTH {
            trends.begin();
        }
        assert!(trends.rows.is_empty());
    }

    /// Check that every value is where it was stored, beyond the length of a history.
    #[test]
    fn old_values_give_way() {
        let mut trends: Trends<_> = Trends::default();
        let value = |sample: usize| if sample % 3 == 0 { 0 } else { sample as Tenths };
        for sample in 1..=3 * LENGTH {
            trends.begin();
            trends.add('a', value(sample));
        }
        let expected: Vec<Tenths> = (2 * LENGTH + 1..=3 * LENGTH).map(value).collect();
        assert_eq!(trends.of(&'a', LENGTH), expected);
    }

    /// Check the levels of a sparkline, and that a value that is not 0 is visible.
    #[test]
    fn sparklines_have_levels() {
        let drawn = |values: &[Tenths], utf8| {
            let mut out = Vec::new();
            sparkline(&mut out, values, 1000, utf8);
            String::from_utf8(out).expect("characters")
        };
        assert_eq!(drawn(&[0, 1, 125, 500, 1000, 4000], true), " ▁▁▄██");
        assert_eq!(drawn(&[0, 1, 1000], false), " .#");
        assert_eq!(tenths(12.34), 123);
        assert_eq!(tenths(f64::NAN), 0);
        assert_eq!(tenths(1e9), Tenths::MAX);
    }
}

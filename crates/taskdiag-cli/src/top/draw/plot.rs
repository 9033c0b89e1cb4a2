//! Plots made of characters.

use crate::top::trend::levels;

/// A plot of values, the last one on the right: lines from top to bottom, `width` characters each.
/// The highest level stands for `full`.
pub fn plot(values: &[f64], full: f64, width: usize, height: usize, utf8: bool) -> Vec<String> {
    let values = &values[values.len().saturating_sub(width)..];
    let padding = width - values.len();
    let levels = levels(utf8);
    let steps = (height * 8) as f64;
    let filled = |value: f64| {
        let share = (value / full.max(f64::MIN_POSITIVE)).clamp(0.0, 1.0);
        // A value that is not 0 is always visible.
        (share * steps).ceil() as usize
    };
    let line = |line: usize| {
        let below = (height - 1 - line) * 8;
        let character = |&value: &f64| levels[filled(value).saturating_sub(below).min(8)];
        " ".repeat(padding) + &values.iter().map(character).collect::<String>()
    };
    (0..height).map(line).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Check the characters of a plot, and that the last values are shown if there are too many.
    #[test]
    fn plots_have_levels() {
        assert_eq!(plot(&[0.0, 0.1, 8.0, 16.0], 16.0, 5, 2, true), ["    █", "  ▁██"]);
        assert_eq!(plot(&[1.0, 2.0, 3.0], 2.0, 2, 1, false), ["##"]);
        assert_eq!(plot(&[f64::NAN, -1.0], 0.0, 2, 1, true), ["  "]);
        assert_eq!(plot(&[1.0], 1.0, 3, 0, true), [] as [String; 0]);
    }

    proptest! {
        /// Check that a plot always has the size that was asked for.
        #[test]
        fn plots_have_their_size(
            values in prop::collection::vec(any::<f64>(), 0..50),
            full in any::<f64>(),
            width in 0..40_usize,
            height in 0..10_usize,
        ) {
            let lines = plot(&values, full, width, height, true);
            prop_assert_eq!(lines.len(), height);
            for line in lines {
                prop_assert_eq!(line.chars().count(), width);
            }
        }
    }
}

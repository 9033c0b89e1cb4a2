//! Moments at which a machine was much busier than before, among many.

/// What a machine was doing at a sample: parts from 0 to 1, `None` where it is not known.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// The time of all processors that was used since the sample before.
    pub processors: Option<f64>,
    /// The memory that was in use.
    pub memory: Option<f64>,
}

/// What there is a spike of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Of {
    Processors,
    Memory,
}

impl Of {
    /// Both.
    const ALL: [Of; 2] = [Of::Processors, Of::Memory];

    /// By how much more than usual it has to be, as a part of all: less is not worth being looked at.
    fn least(self) -> f64 {
        match self {
            Of::Processors => 0.10,
            Of::Memory => 0.03,
        }
    }

    fn part(self, point: &Point) -> Option<f64> {
        match self {
            Of::Processors => point.processors,
            Of::Memory => point.memory,
        }
    }

    /// In words.
    pub fn name(self) -> &'static str {
        match self {
            Of::Processors => "processors",
            Of::Memory => "memory",
        }
    }
}

/// A spike.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spike {
    /// The sample at which it is highest.
    pub index: usize,
    /// What it is of.
    pub of: Of,
    /// How much was used.
    pub part: f64,
    /// How much is usual: the median of the samples before.
    pub usual: f64,
    /// Where the samples begin and end that are part of it.
    pub run: (usize, usize),
}

/// So many samples before one say what is usual.
pub const BEFORE: usize = 30;

/// Fewer samples than these say nothing.
const FEWEST: usize = 5;

/// How many times the usual distance from the median a spike is away from it.
const DISTANCES: f64 = 5.0;

/// The spikes in samples, in their order. A sample is part of one if it is far above the median of
/// the [`BEFORE`] samples before it, by five times the median distance of these from their median, and
/// by a tenth of all processors, or 3 % of the memory; and if it is above nine tenths of them, too: what
/// comes again and again is none. Samples one after the other are one spike, where it is highest.
pub fn spikes(points: &[Point]) -> Vec<Spike> {
    let mut spikes = Vec::new();
    for of in Of::ALL {
        let mut open: Option<Spike> = None;
        for (index, point) in points.iter().enumerate() {
            let before = &points[index.saturating_sub(BEFORE)..index];
            let high = of.part(point).and_then(|part| Some((part, above(of, part, before)?)));
            let Some((part, usual)) = high else {
                spikes.extend(open.take());
                continue;
            };
            let spike = open.get_or_insert(Spike {
                index,
                of,
                part,
                usual,
                run: (index, index),
            });
            spike.run.1 = index;
            if part > spike.part {
                (spike.index, spike.part) = (index, part);
            }
        }
        spikes.extend(open);
    }
    spikes.sort_by_key(|spike| spike.index);
    spikes
}

/// What is usual, if a part is far above it.
fn above(of: Of, part: f64, before: &[Point]) -> Option<f64> {
    let parts: Vec<f64> = before.iter().filter_map(|point| of.part(point)).collect();
    if parts.len() < FEWEST {
        return None;
    }
    let usual = median(parts.clone())?;
    let distance = median(parts.iter().map(|part| (part - usual).abs()).collect())?;
    let is_far = part - usual > of.least().max(DISTANCES * distance);
    let lower = parts.iter().filter(|before| **before < part).count();
    (is_far && lower * 10 > parts.len() * 9).then_some(usual)
}

fn median(mut values: Vec<f64>) -> Option<f64> {
    let middle = values.len() / 2;
    if values.is_empty() {
        return None;
    }
    let (_, median, _) = values.select_nth_unstable_by(middle, f64::total_cmp);
    Some(*median)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn points(processors: &[f64]) -> Vec<Point> {
        let point = |&part| Point {
            processors: Some(part),
            memory: None,
        };
        processors.iter().map(point).collect()
    }

    const NONE: [usize; 0] = [];

    fn found(processors: &[f64]) -> Vec<usize> {
        spikes(&points(processors)).iter().map(|spike| spike.index).collect()
    }

    /// Check that one high sample, and the highest of several, is a spike, and that what is as usual, or
    /// moves by little, or is low, is none.
    #[test]
    fn spikes_stand_out() {
        let quiet = [0.05, 0.06, 0.04, 0.05, 0.07, 0.05, 0.04, 0.05];
        let with = |more: &[f64]| [&quiet[..], more, &quiet[..]].concat();
        assert_eq!(found(&with(&[])), NONE);
        assert_eq!(found(&with(&[0.9])), [8]);
        assert_eq!(found(&with(&[0.5, 0.7, 0.9, 0.6])), [10]);
        assert_eq!(found(&with(&[0.9, 0.05, 0.95])), [8, 10]);
        assert_eq!(found(&with(&[0.1])), NONE);
        assert_eq!(found(&with(&[0.0])), NONE);
        let spike = spikes(&points(&with(&[0.5, 0.9])))[0];
        assert_eq!((spike.part, spike.usual, spike.run), (0.9, 0.05, (8, 9)));
    }

    /// Check that a machine that is always restless has no spikes, one that stays busy has one, and that
    /// too few samples have none.
    #[test]
    fn what_is_usual_is_none() {
        let restless: Vec<f64> = (0..100).map(|n| if n % 2 == 0 { 0.2 } else { 0.8 }).collect();
        assert_eq!(found(&restless), NONE);
        let risen: Vec<f64> = (0..100).map(|n| if n < 50 { 0.1 } else { 0.6 }).collect();
        assert_eq!(found(&risen), [50]);
        assert_eq!(found(&[0.0, 0.0, 0.0, 0.0, 0.9]), NONE);
    }

    /// Check that memory has spikes of its own, in the order of time, and that samples without a figure
    /// end one and say nothing.
    #[test]
    fn memory_has_spikes() {
        let mut all = points(&[0.1; 20]);
        all.iter_mut().for_each(|point| point.memory = Some(0.5));
        all[10].memory = Some(0.56);
        all[12].processors = Some(1.0);
        all[15].processors = None;
        let found: Vec<(usize, Of)> = spikes(&all).iter().map(|spike| (spike.index, spike.of)).collect();
        assert_eq!(found, [(10, Of::Memory), (12, Of::Processors)]);
    }
}

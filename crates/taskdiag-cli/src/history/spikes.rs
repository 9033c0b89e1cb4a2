//! Finds the times at which a machine was much busier than before.

/// The load of a machine at a sample: shares from 0 to 1, `None` where unknown.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// The share of all processor time used since the previous sample.
    pub processors: Option<f64>,
    /// The share of memory in use.
    pub memory: Option<f64>,
}

taskdiag_core::named_enum! {
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum SpikeResource {
        Processors => "processors",
        Memory => "memory",
    }
    /// All resources.
    const ALL;
    /// The name for users.
    pub fn name;
}

impl SpikeResource {
    /// The smallest rise over the usual value, as a share of the whole, that counts as a spike.
    fn least(self) -> f64 {
        match self {
            SpikeResource::Processors => 0.10,
            SpikeResource::Memory => 0.03,
        }
    }

    fn part(self, point: &Point) -> Option<f64> {
        match self {
            SpikeResource::Processors => point.processors,
            SpikeResource::Memory => point.memory,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spike {
    /// The index of the highest sample.
    pub index: usize,
    pub of: SpikeResource,
    /// The share used at the highest sample.
    pub part: f64,
    /// The usual share: the median of the samples before.
    pub usual: f64,
    /// The first and the last sample of the spike.
    pub run: (usize, usize),
}

/// How many earlier samples make up the baseline.
pub const BEFORE: usize = 30;

/// The minimum number of samples for a baseline.
const FEWEST: usize = 5;

/// The minimum distance of a spike from the median, in multiples of the usual distance.
const DISTANCES: f64 = 5.0;

/// Finds the spikes, in order of their highest sample. A sample is part of a spike if it is far
/// above the median of the [`BEFORE`] samples before it: by five times their median distance from
/// it, and by a tenth of all processors or 3 % of the memory. It must also be above nine tenths of
/// them, because a recurring peak is not a spike. Consecutive samples form one spike, at the
/// highest of them.
pub fn spikes(points: &[Point]) -> Vec<Spike> {
    let mut spikes = Vec::new();
    for of in SpikeResource::ALL {
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

/// The usual share, if this one is far above it.
fn above(of: SpikeResource, part: f64, before: &[Point]) -> Option<f64> {
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

    /// Check that one high sample, or the highest of several, is a spike, and that usual, slightly
    /// higher and low values are not.
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

    /// Check that a machine with constantly varying load has no spikes, that one that stays busy
    /// has one, and that too few samples have none.
    #[test]
    fn what_is_usual_is_none() {
        let restless: Vec<f64> = (0..100).map(|n| if n % 2 == 0 { 0.2 } else { 0.8 }).collect();
        assert_eq!(found(&restless), NONE);
        let risen: Vec<f64> = (0..100).map(|n| if n < 50 { 0.1 } else { 0.6 }).collect();
        assert_eq!(found(&risen), [50]);
        assert_eq!(found(&[0.0, 0.0, 0.0, 0.0, 0.9]), NONE);
    }

    /// Check that memory has its own spikes, that spikes are in order of time, and that a sample
    /// without a value ends a spike and is not part of the baseline.
    #[test]
    fn memory_has_spikes() {
        let mut all = points(&[0.1; 20]);
        all.iter_mut().for_each(|point| point.memory = Some(0.5));
        all[10].memory = Some(0.56);
        all[12].processors = Some(1.0);
        all[15].processors = None;
        let found: Vec<(usize, SpikeResource)> = spikes(&all).iter().map(|spike| (spike.index, spike.of)).collect();
        assert_eq!(found, [(10, SpikeResource::Memory), (12, SpikeResource::Processors)]);
    }
}

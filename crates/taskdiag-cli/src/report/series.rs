//! What groups of processes used over time. The largest groups have a series each; the rest share
//! one.

use std::collections::HashMap;

use crate::grouping::Name;

/// How many groups have their own series: as many as there are colours that can be distinguished.
pub const MAX_SERIES: usize = 11;

/// How many groups are remembered while reading. At twice this number, the smaller ones are added
/// to the rest: there can be very many units and containers that run once.
const MAX_GROUPS: usize = 4096;

taskdiag_core::named_enum! {
    /// What processes use.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Resource {
        /// Processors, on average since the previous point.
        Processors => "processors",
        /// Memory at the point, in bytes.
        Memory => "memory",
        /// Bytes read from and written to disks, per second since the previous point.
        Disk => "disk",
        /// Bytes received from and sent to other machines, per second since the previous point.
        Network => "network",
    }
    /// All, each at its index.
    pub const ALL;
    /// Its name in the page.
    pub fn name;
}

/// How much a number of processes used of each resource.
pub type Amounts = [f64; Resource::ALL.len()];

/// Adds what others used.
fn add(sum: &mut Amounts, other: Amounts) {
    sum.iter_mut().zip(other).for_each(|(part, more)| *part += more);
}

/// What is known about one group. At points that are not listed it used nothing.
type Sparse = Vec<(usize, Amounts)>;

/// All groups of one kind.
#[derive(Debug, Default)]
pub struct Groups {
    names: HashMap<Name, Sparse>,
    /// Amounts of groups that are not remembered, by point.
    rest: Vec<Amounts>,
    /// Whether groups were forgotten.
    has_forgotten: bool,
}

/// The amounts of a group at all points.
pub type Series = Vec<Amounts>;

/// The series of the largest groups.
#[derive(Debug, Default)]
pub struct LargestGroups {
    /// The largest groups, in descending order.
    pub groups: Vec<(Name, Series)>,
    /// The sum of all other groups.
    pub rest: Series,
    /// How many groups those are. `None` if not all were remembered.
    pub rest_count: Option<usize>,
}

/// The name of a process's group, and what the process used.
pub type Used<'a> = (Result<&'a [u8], &'static str>, Amounts);

impl Groups {
    /// Adds what processes used at a point. Points must come in order.
    pub fn add<'a>(&mut self, point: usize, used: impl Iterator<Item = Used<'a>>) {
        let mut sums: HashMap<Result<&[u8], &'static str>, Amounts> = HashMap::new();
        for (name, amounts) in used {
            add(sums.entry(name).or_default(), amounts);
        }
        for (name, amounts) in sums {
            let name = name.map_or_else(Name::None, |text| Name::Text(text.to_vec()));
            self.names.entry(name).or_default().push((point, amounts));
        }
        if self.names.len() > 2 * MAX_GROUPS {
            self.forget();
        }
    }

    /// Adds all groups except the largest to the rest.
    fn forget(&mut self) {
        let ranked = self.ranked();
        for name in &ranked[MAX_GROUPS..] {
            let cells = self.names.remove(name).unwrap_or_default();
            add_to(&mut self.rest, &cells);
        }
        self.has_forgotten = true;
    }

    /// The names, the largest first: the size of a group is its largest share of a resource.
    fn ranked(&self) -> Vec<Name> {
        let sum = |cells: &Sparse| {
            let mut sum = Amounts::default();
            cells.iter().for_each(|(_, amounts)| add(&mut sum, *amounts));
            sum
        };
        let mut whole = Amounts::default();
        let sums: Vec<(&Name, Amounts)> = self.names.iter().map(|(name, cells)| (name, sum(cells))).collect();
        sums.iter().for_each(|(_, amounts)| add(&mut whole, *amounts));
        let part = |(some, all): (&f64, &f64)| if *all > 0.0 { some / all } else { 0.0 };
        let rank = |amounts: &Amounts| amounts.iter().zip(&whole).map(part).fold(0.0, f64::max);
        let mut ranked = sums;
        ranked.sort_by(|(a_name, a), (b_name, b)| rank(b).total_cmp(&rank(a)).then_with(|| a_name.cmp(b_name)));
        ranked.into_iter().map(|(name, _)| name.clone()).collect()
    }

    /// The series of the `most` largest groups, at `points` points.
    pub fn choose(mut self, points: usize, most: usize) -> LargestGroups {
        let mut ranked = self.ranked();
        let others = ranked.split_off(most.min(ranked.len()));
        self.rest.resize(points, Amounts::default());
        for name in &others {
            let cells = self.names.remove(name).unwrap_or_default();
            add_to(&mut self.rest, &cells);
        }
        let groups = ranked.into_iter().map(|name| {
            let mut dense = vec![Amounts::default(); points];
            add_to(&mut dense, &self.names.remove(&name).unwrap_or_default());
            (name, dense)
        });
        LargestGroups {
            groups: groups.collect(),
            rest_count: (!self.has_forgotten).then_some(others.len()),
            rest: self.rest,
        }
    }
}

fn add_to(dense: &mut Vec<Amounts>, cells: &[(usize, Amounts)]) {
    for &(point, amounts) in cells {
        if point >= dense.len() {
            dense.resize(point + 1, Amounts::default());
        }
        add(&mut dense[point], amounts);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn amounts(processors: f64, memory: f64) -> Amounts {
        [processors, memory, 0.0, 0.0]
    }

    fn total(chosen: &LargestGroups, point: usize) -> (f64, f64) {
        let all = chosen.groups.iter().map(|(_, series)| series).chain([&chosen.rest]);
        all.fold((0.0, 0.0), |(processors, memory), series| {
            (processors + series[point][0], memory + series[point][1])
        })
    }

    /// Check that processes of the same name are summed, that either amount makes a group large,
    /// and that groups without their own series are in the rest.
    #[test]
    fn largest_groups_have_series() {
        let mut groups = Groups::default();
        let first: [Used<'_>; 5] = [
            (Ok(b"busy"), amounts(2.0, 1.0)),
            (Ok(b"busy"), amounts(1.0, 1.0)),
            (Ok(b"fat"), amounts(0.0, 100.0)),
            (Ok(b""), amounts(0.1, 2.0)),
            (Err("denied"), amounts(0.2, 3.0)),
        ];
        groups.add(0, first.into_iter());
        groups.add(2, [(Ok(&b"busy"[..]), amounts(1.0, 0.0))].into_iter());
        let chosen = groups.choose(3, 2);
        let names: Vec<Name> = chosen.groups.iter().map(|(name, _)| name.clone()).collect();
        assert_eq!(names, [Name::Text(b"fat".to_vec()), Name::Text(b"busy".to_vec())]);
        assert_eq!(
            chosen.groups[1].1.iter().map(|point| point[0]).collect::<Vec<f64>>(),
            [3.0, 0.0, 1.0]
        );
        assert_eq!(chosen.rest_count, Some(2));
        let (processors, memory) = total(&chosen, 0);
        assert!((processors - 3.3).abs() < 1e-9 && (memory - 107.0).abs() < 1e-9);
        assert_eq!(total(&chosen, 1), (0.0, 0.0));
    }

    /// Check that very many names take bounded memory, and that the sums lose nothing.
    #[test]
    fn very_many_names_are_added_up() {
        let mut groups = Groups::default();
        for point in 0..10_usize {
            let names: Vec<String> = (0..3000).map(|number| format!("run-{point}-{number}")).collect();
            let all = names.iter().map(|name| (Ok(name.as_bytes()), amounts(1.0, 1.0)));
            groups.add(point, all.chain([(Ok(&b"always"[..]), amounts(5.0, 1.0))]));
            assert!(groups.names.len() <= 2 * MAX_GROUPS + 3001);
        }
        let chosen = groups.choose(10, MAX_SERIES);
        assert_eq!((chosen.groups.len(), chosen.rest_count), (MAX_SERIES, None));
        assert_eq!(chosen.groups[0].0, Name::Text(b"always".to_vec()));
        for point in 0..10 {
            assert_eq!(total(&chosen, point), (3005.0, 3001.0));
        }
    }
}

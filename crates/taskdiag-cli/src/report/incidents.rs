//! Events that matter: kills for want of memory, bursts of forks, restarts.

use std::collections::{HashMap, HashSet};

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// The OOM killer was there: so many processes of this cgroup since the point before.
    OomInCgroup(Vec<u8>, u64),
    /// The OOM killer was there: so many processes of the machine since the point before.
    OomInMachine(u64),
    /// The kernel's log says that it killed a process.
    OomKill { pid: u32, comm: Vec<u8>, cgroup: Vec<u8> },
    /// Many processes began: so many in so many milliseconds, most of them of this unit and program.
    Forks {
        count: u64,
        ms: u64,
        unit: Vec<u8>,
        program: Vec<u8>,
        most: u64,
    },
    /// All processes of a unit were replaced.
    Restart(Vec<u8>),
    /// The machine started.
    Boot,
    /// Nothing was recorded until this time, in nanoseconds since 1970.
    Gap(i64),
}

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Incident {
    /// When, in nanoseconds since 1970; of what was counted between two points, when the later one was.
    pub wall_ns: i64,
    /// What.
    pub what: What,
}

/// Forks between two samples.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Forks {
    /// When the later sample was taken.
    pub wall_ns: i64,
    /// How long after the earlier one that was.
    pub ms: u64,
    /// Processes that began.
    pub count: u64,
    /// The unit and the program that most of them are of, and how many those are.
    pub unit: Vec<u8>,
    /// See `unit`.
    pub program: Vec<u8>,
    /// See `unit`.
    pub most: u64,
}

/// Fewer forks a second than this are no burst on any machine.
const LEAST_FORKS_A_SECOND: f64 = 20.0;

/// So many times the usual rate is a burst.
const TIMES_USUAL: f64 = 5.0;

/// The bursts: the samples before which processes began much more often than in half of all.
pub fn bursts(forks: Vec<Forks>) -> Vec<Incident> {
    let rate = |forks: &Forks| forks.count as f64 * 1e3 / forks.ms.max(1) as f64;
    let mut rates: Vec<f64> = forks.iter().map(rate).collect();
    rates.sort_by(f64::total_cmp);
    let usual = rates.get(rates.len() / 2).copied().unwrap_or(0.0);
    let least = (usual * TIMES_USUAL).max(LEAST_FORKS_A_SECOND);
    let found = forks.into_iter().filter(|forks| rate(forks) >= least);
    found
        .map(|forks| Incident {
            wall_ns: forks.wall_ns,
            what: What::Forks {
                count: forks.count,
                ms: forks.ms,
                unit: forks.unit,
                program: forks.program,
                most: forks.most,
            },
        })
        .collect()
}

/// A count of the kernel that only grows, by name.
#[derive(Debug, Default)]
pub struct Counts(HashMap<Vec<u8>, u64>);

impl Counts {
    /// How much counts have grown. Of what was not there before, that is not known.
    pub fn grown<'a>(&mut self, now: impl Iterator<Item = (&'a [u8], u64)>) -> Vec<(Vec<u8>, u64)> {
        let now: HashMap<Vec<u8>, u64> = now.map(|(name, count)| (name.to_vec(), count)).collect();
        let grown = |(name, count): (&Vec<u8>, &u64)| {
            let grown = count.checked_sub(*self.0.get(name)?)?;
            (grown > 0).then(|| (name.clone(), grown))
        };
        let mut all: Vec<(Vec<u8>, u64)> = now.iter().filter_map(grown).collect();
        all.sort();
        // A cgroup that had no processes for a while is not read then, and counts on from where it was.
        self.0.extend(now);
        all
    }
}

/// Of cgroups whose counts have grown, those that this does not follow from those below: a cgroup counts
/// what is below it, too.
pub fn innermost(grown: Vec<(Vec<u8>, u64)>) -> Vec<(Vec<u8>, u64)> {
    let own = |(path, count): &(Vec<u8>, u64)| {
        let prefix = if path == b"/" {
            path.clone()
        } else {
            [&path[..], b"/"].concat()
        };
        let is_child =
            |other: &Vec<u8>| other.starts_with(&prefix) && !other[prefix.len()..].contains(&b'/') && other != path;
        let below: u64 = grown
            .iter()
            .filter(|(other, _)| is_child(other))
            .map(|(_, count)| count)
            .sum();
        let own = count.saturating_sub(below);
        (own > 0).then(|| (path.clone(), own))
    };
    grown.iter().filter_map(own).collect()
}

/// Which process: its id, and when it started since boot, in nanoseconds.
pub type Which = (u32, u64);

/// The processes of each service.
#[derive(Debug, Default)]
pub struct Services(HashMap<Vec<u8>, HashSet<Which>>);

impl Services {
    /// The services all of whose processes were replaced, each with when the first of the new ones
    /// started.
    pub fn restarted<'a>(&mut self, now: impl Iterator<Item = (&'a [u8], Which)>) -> Vec<(Vec<u8>, u64)> {
        let mut all: HashMap<Vec<u8>, HashSet<Which>> = HashMap::new();
        for (unit, which) in now.filter(|(unit, _)| unit.ends_with(b".service")) {
            all.entry(unit.to_vec()).or_default().insert(which);
        }
        let restarted = |(unit, now): (&Vec<u8>, &HashSet<Which>)| {
            let before = self.0.get(unit)?;
            let first = now.iter().map(|(_, start_ns)| *start_ns).min()?;
            before.is_disjoint(now).then(|| (unit.clone(), first))
        };
        let mut restarted: Vec<(Vec<u8>, u64)> = all.iter().filter_map(restarted).collect();
        restarted.sort();
        self.0 = all;
        restarted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn forks(count: u64) -> Forks {
        Forks {
            ms: 1000,
            count,
            ..Forks::default()
        }
    }

    /// Check that a burst is far above the usual rate, and above what is nothing on any machine.
    #[test]
    fn bursts_are_unusual() {
        let found = |counts: &[u64]| bursts(counts.iter().map(|&count| forks(count)).collect()).len();
        assert_eq!(found(&[0, 0, 0, 19]), 0);
        assert_eq!(found(&[0, 0, 0, 20]), 1);
        assert_eq!(found(&[100, 100, 100, 499]), 0);
        assert_eq!(found(&[100, 100, 500, 100, 900]), 2);
        assert_eq!(found(&[]), 0);
    }

    /// Check that only growth is told, not what was there before, and that a count which was not read for
    /// a while goes on.
    #[test]
    fn counts_grow() {
        let mut counts = Counts::default();
        let mut grown = |now: &[(&str, u64)]| {
            let grown = counts.grown(now.iter().map(|(name, count)| (name.as_bytes(), *count)));
            grown
                .into_iter()
                .map(|(name, grown)| format!("{} {grown}", String::from_utf8_lossy(&name)))
                .collect::<Vec<_>>()
        };
        assert_eq!(grown(&[("/a", 7), ("/b", 0)]), [""; 0]);
        assert_eq!(grown(&[("/a", 7), ("/b", 2)]), ["/b 2"]);
        assert_eq!(grown(&[("/b", 2), ("/c", 5)]), [""; 0]);
        assert_eq!(grown(&[("/a", 9), ("/b", 1), ("/c", 5)]), ["/a 2"]);
    }

    /// Check that kills are those of the innermost cgroup that counts them.
    #[test]
    fn cgroups_count_what_is_below() {
        let of = |grown: &[(&str, u64)]| {
            let grown = grown.iter().map(|(path, count)| (path.as_bytes().to_vec(), *count));
            let own = innermost(grown.collect());
            own.into_iter()
                .map(|(path, count)| format!("{} {count}", String::from_utf8_lossy(&path)))
                .collect::<Vec<_>>()
        };
        assert_eq!(of(&[("/", 3), ("/a", 3), ("/a/b", 2), ("/ab", 0)]), ["/a 1", "/a/b 2"]);
        assert_eq!(of(&[("/x", 1)]), ["/x 1"]);
    }

    /// Check that a service has restarted when none of its processes is left and there are new ones, and
    /// not when it has ended, or some are new.
    #[test]
    fn services_restart() {
        let mut services = Services::default();
        let mut restarted = |now: &[(&str, u32, u64)]| {
            let now = now.iter().map(|&(unit, pid, start)| (unit.as_bytes(), (pid, start)));
            services
                .restarted(now)
                .into_iter()
                .map(|(_, start)| start)
                .collect::<Vec<_>>()
        };
        assert_eq!(restarted(&[("a.service", 1, 1), ("s.scope", 2, 2)]), [0_u64; 0]);
        assert_eq!(
            restarted(&[("a.service", 1, 1), ("a.service", 3, 3), ("s.scope", 4, 4)]),
            [0_u64; 0]
        );
        assert_eq!(restarted(&[("a.service", 1, 9), ("a.service", 5, 10)]), [9]);
        assert_eq!(restarted(&[]), [0_u64; 0]);
        assert_eq!(restarted(&[("a.service", 6, 20)]), [0_u64; 0]);
    }
}

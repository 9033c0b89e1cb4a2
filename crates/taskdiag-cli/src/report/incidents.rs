//! Important events: processes killed for lack of memory, full disks, bursts of forks, restarts.

use std::collections::{BTreeMap, HashMap, HashSet};

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IncidentKind {
    /// The OOM killer killed this many processes of this cgroup since the previous point.
    OomInCgroup(Vec<u8>, u64),
    /// The OOM killer killed this many processes on the machine since the previous point.
    OomInMachine(u64),
    /// The OOM killer killed this process.
    OomKill(Kill),
    /// Bursts of forks, most of which belong to the same unit and program.
    Forks(Vec<Forks>),
    /// All processes of a unit were replaced.
    Restart(Vec<u8>),
    /// A file system has become full: where it is mounted, how much of it is used in percent, and the
    /// bytes that users may still use.
    FullDisk(Vec<u8>, u64, u64),
    /// The machine started.
    Boot,
    /// Nothing was recorded until this time, in nanoseconds since 1970.
    Gap(i64),
}

/// A process that the OOM killer killed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kill {
    /// Its id.
    pub pid: u32,
    /// Its name.
    pub comm: Vec<u8>,
    /// Its cgroup, if that is known.
    pub cgroup: Option<Vec<u8>>,
    /// Whether this comes from the kernel's log, not from the process's exit event.
    pub is_logged: bool,
}

/// An event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Incident {
    /// When, in nanoseconds since 1970. For events counted between two points, the time of the
    /// later point.
    pub wall_ns: i64,
    /// What happened.
    pub what: IncidentKind,
}

/// Forks between two samples.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Forks {
    /// When the later sample was taken.
    pub wall_ns: i64,
    /// The time since the earlier sample, in milliseconds.
    pub ms: u64,
    /// The number of processes that started.
    pub count: u64,
    /// The unit of most of them.
    pub unit: Vec<u8>,
    /// The program of most of them.
    pub program: Vec<u8>,
    /// The number of those with that unit and program.
    pub most: u64,
}

/// Fewer forks a second than this are not a burst on any machine.
const MIN_FORKS_A_SECOND: f64 = 20.0;

/// A burst is this many times the usual rate.
const TIMES_USUAL: f64 = 5.0;

impl Forks {
    /// Forks a second.
    pub fn rate(&self) -> f64 {
        self.count as f64 * 1e3 / self.ms.max(1) as f64
    }
}

/// The bursts: samples before which the rate of forks was much higher than the median of all
/// samples. Those of a unit and program are one incident: a build has very many.
pub fn bursts(forks: Vec<Forks>) -> Vec<Incident> {
    let mut rates: Vec<f64> = forks.iter().map(Forks::rate).collect();
    rates.sort_by(f64::total_cmp);
    let usual = rates.get(rates.len() / 2).copied().unwrap_or(0.0);
    let least = (usual * TIMES_USUAL).max(MIN_FORKS_A_SECOND);
    let mut found: BTreeMap<(Vec<u8>, Vec<u8>), Vec<Forks>> = BTreeMap::new();
    for forks in forks.into_iter().filter(|forks| forks.rate() >= least) {
        let of = (forks.unit.clone(), forks.program.clone());
        found.entry(of).or_default().push(forks);
    }
    found
        .into_values()
        .map(|bursts| Incident {
            wall_ns: bursts[0].wall_ns,
            what: IncidentKind::Forks(bursts),
        })
        .collect()
}

/// The file systems that are full, by where they are mounted.
#[derive(Debug, Default)]
pub struct FullDisks(HashSet<Vec<u8>>);

impl FullDisks {
    /// A file system is full from this percentage on,
    const FULL: u64 = 95;
    /// and until less than this percentage is used, so that one at the edge is told once.
    const EMPTIER: u64 = 90;

    /// The percentage that is used, as df(1) has it, if the file system has become full.
    pub fn fills(&mut self, path: &[u8], used: u64, free: u64) -> Option<u64> {
        let all = u128::from(used) + u128::from(free);
        let percent = (u128::from(used) * 100).div_ceil(all.max(1)) as u64;
        if percent < FullDisks::EMPTIER {
            self.0.remove(path);
        }
        (percent >= FullDisks::FULL && self.0.insert(path.to_vec())).then_some(percent)
    }
}

/// Counters of the kernel, which only grow, by name.
#[derive(Debug, Default)]
pub struct Counts(HashMap<Vec<u8>, u64>);

impl Counts {
    /// How much counters have grown. Unknown for a counter that did not exist before.
    pub fn grown<'a>(&mut self, now: impl Iterator<Item = (&'a [u8], u64)>) -> Vec<(Vec<u8>, u64)> {
        let now: HashMap<Vec<u8>, u64> = now.map(|(name, count)| (name.to_vec(), count)).collect();
        let grown = |(name, count): (&Vec<u8>, &u64)| {
            let grown = count.checked_sub(*self.0.get(name)?)?;
            (grown > 0).then(|| (name.clone(), grown))
        };
        let mut all: Vec<(Vec<u8>, u64)> = now.iter().filter_map(grown).collect();
        all.sort();
        // A cgroup without processes is not read for a while, and continues counting from its last
        // value.
        self.0.extend(now);
        all
    }
}

/// The cgroups whose counters have grown for a reason of their own: a cgroup also counts everything
/// below it.
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

/// Reports each kill once. A named kill is also in the counts of its cgroup and of the machine, and
/// a count of a cgroup is also in that of the machine. So named kills are subtracted from counts,
/// and counts of cgroups from those of the machine, if they are at most `apart_ns` apart.
pub fn settle(mut incidents: Vec<Incident>, apart_ns: i64) -> Vec<Incident> {
    incidents.sort_by_key(|incident| incident.wall_ns);
    // How many kills of each incident have not yet been subtracted from a count.
    let mut of_cgroups: Vec<u64> = incidents.iter().map(|one| u64::from(one.is_named())).collect();
    let mut of_machine = of_cgroups.clone();
    let near = |incidents: &[Incident], at: usize| {
        let wall_ns = incidents[at].wall_ns;
        let from = incidents.partition_point(|other| other.wall_ns < wall_ns.saturating_sub(apart_ns));
        from..incidents.partition_point(|other| other.wall_ns <= wall_ns.saturating_add(apart_ns))
    };
    for at in 0..incidents.len() {
        let IncidentKind::OomInCgroup(path, mut count) = incidents[at].what.clone() else {
            continue;
        };
        for other in near(&incidents, at).filter(|&other| incidents[other].can_be_in(&path)) {
            count -= take(&mut of_cgroups[other], count);
        }
        of_machine[at] = count;
        incidents[at].what = IncidentKind::OomInCgroup(path, count);
    }
    for at in 0..incidents.len() {
        let IncidentKind::OomInMachine(mut count) = incidents[at].what else {
            continue;
        };
        for other in near(&incidents, at) {
            count -= take(&mut of_machine[other], count);
        }
        incidents[at].what = IncidentKind::OomInMachine(count);
    }
    let is_left = |one: &Incident| {
        !matches!(
            one.what,
            IncidentKind::OomInCgroup(_, 0) | IncidentKind::OomInMachine(0)
        )
    };
    incidents.retain(is_left);
    incidents
}

/// Takes `wanted` from `left`, or all that is left.
fn take(left: &mut u64, wanted: u64) -> u64 {
    let taken = wanted.min(*left);
    *left -= taken;
    taken
}

impl Incident {
    /// The place in a list that leads with what matters most.
    pub fn rank(&self) -> u8 {
        match self.what {
            IncidentKind::OomKill(_) | IncidentKind::OomInCgroup(..) | IncidentKind::OomInMachine(_) => 0,
            IncidentKind::Restart(_) | IncidentKind::FullDisk(..) => 1,
            IncidentKind::Boot | IncidentKind::Gap(_) => 2,
            IncidentKind::Forks(_) => 3,
        }
    }

    /// Adds what the report of the same kill in the kernel's log knows.
    pub fn learn(&mut self, logged: &Incident) {
        if let (IncidentKind::OomKill(kill), IncidentKind::OomKill(logged)) = (&mut self.what, &logged.what) {
            kill.cgroup = kill.cgroup.take().or_else(|| logged.cgroup.clone());
        }
    }

    fn is_named(&self) -> bool {
        matches!(self.what, IncidentKind::OomKill(_))
    }

    /// Whether this cgroup may count the kill.
    fn can_be_in(&self, path: &[u8]) -> bool {
        let IncidentKind::OomKill(kill) = &self.what else {
            return false;
        };
        let below = |cgroup: &Vec<u8>| {
            let rest = cgroup.strip_prefix(path);
            path == b"/" || rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
        };
        kill.cgroup.as_ref().is_none_or(below)
    }

    /// Whether two incidents report the kill of the same process.
    pub fn is_same_kill(&self, other: &Incident) -> bool {
        // The kernel log and events use different clocks, and a process may take long to end.
        const APART_NS: i64 = 10_000_000_000;
        match (&self.what, &other.what) {
            (IncidentKind::OomKill(one), IncidentKind::OomKill(two)) => {
                one.pid == two.pid && self.wall_ns.saturating_sub(other.wall_ns).saturating_abs() <= APART_NS
            }
            _ => false,
        }
    }
}

/// Identifies a process: its id and its start since boot, in nanoseconds.
pub type Which = (u32, i64);

/// The processes of each service.
#[derive(Debug, Default)]
pub struct Services {
    now: HashMap<Vec<u8>, HashSet<Which>>,
    /// The processes of each service that failed, and when that was seen.
    failed: HashMap<Vec<u8>, (i64, HashSet<Which>)>,
}

/// If a failed service comes back later than this, something else started it, such as a timer.
const MAX_DOWN_NS: i64 = 600_000_000_000;

impl Services {
    /// The services of which every process was replaced, each with the start time of its first new
    /// process. A service that failed may have had no process in between.
    pub fn restarted<'a>(
        &mut self,
        wall_ns: i64,
        now: impl Iterator<Item = (&'a [u8], Which)>,
        failed: &HashSet<Vec<u8>>,
    ) -> Vec<(Vec<u8>, i64)> {
        let mut all: HashMap<Vec<u8>, HashSet<Which>> = HashMap::new();
        for (unit, which) in now.filter(|(unit, _)| unit.ends_with(b".service")) {
            all.entry(unit.to_vec()).or_default().insert(which);
        }
        self.failed
            .retain(|_, (since_ns, _)| wall_ns.saturating_sub(*since_ns) <= MAX_DOWN_NS);
        let restarted = |(unit, now): (&Vec<u8>, &HashSet<Which>)| {
            let before = self.now.get(unit);
            let before = before.or_else(|| self.failed.get(unit).map(|(_, before)| before))?;
            let first = now.iter().map(|(_, start_ns)| *start_ns).min()?;
            before.is_disjoint(now).then(|| (unit.clone(), first))
        };
        let mut restarted: Vec<(Vec<u8>, i64)> = all.iter().filter_map(restarted).collect();
        restarted.sort();
        self.failed.retain(|unit, _| !all.contains_key(unit));
        let before = std::mem::replace(&mut self.now, all);
        let gone = before
            .into_iter()
            .filter(|(unit, _)| !self.now.contains_key(unit) && failed.contains(unit));
        self.failed
            .extend(gone.map(|(unit, processes)| (unit, (wall_ns, processes))));
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

    /// Check that a disk is told once when it becomes full, and again only after it had room.
    #[test]
    fn disks_fill_once() {
        let mut disks = FullDisks::default();
        let told = |disks: &mut FullDisks, used| disks.fills(b"/", used, 1000 - used);
        let all = [940, 941, 960, 1000, 901, 999, 890, 950].map(|used| told(&mut disks, used));
        assert_eq!(all, [None, Some(95), None, None, None, None, None, Some(95)]);
        assert_eq!(disks.fills(b"/other", u64::MAX, 0), Some(100));
        assert_eq!(disks.fills(b"/none", 0, 0), None);
    }

    /// Check that a burst is far above the usual rate, and above a rate that matters on no machine.
    #[test]
    fn bursts_are_unusual() {
        let found = |counts: &[u64]| {
            let found = bursts(counts.iter().map(|&count| forks(count)).collect());
            // One program has one incident.
            assert!(found.len() <= 1);
            found.first().map_or(0, |one| match &one.what {
                IncidentKind::Forks(bursts) => bursts.len(),
                other => panic!("{other:?}"),
            })
        };
        assert_eq!(found(&[0, 0, 0, 19]), 0);
        assert_eq!(found(&[0, 0, 0, 20]), 1);
        assert_eq!(found(&[100, 100, 100, 499]), 0);
        assert_eq!(found(&[100, 100, 500, 100, 900]), 2);
        assert_eq!(found(&[]), 0);
    }

    /// Check that only growth is reported, not the initial value, and that a counter that was not
    /// read for a while continues.
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

    /// Check that kills are attributed to the innermost cgroup that counts them.
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

    /// Check that a service has restarted if none of its processes is left and there are new ones,
    /// but not if it has ended or only some processes are new.
    #[test]
    fn services_restart() {
        let mut services = Services::default();
        let mut restarted = |now: &[(&str, u32, i64)]| {
            let now = now.iter().map(|&(unit, pid, start)| (unit.as_bytes(), (pid, start)));
            services
                .restarted(0, now, &HashSet::new())
                .into_iter()
                .map(|(_, start)| start)
                .collect::<Vec<_>>()
        };
        assert_eq!(restarted(&[("a.service", 1, 1), ("s.scope", 2, 2)]), [0_i64; 0]);
        assert_eq!(
            restarted(&[("a.service", 1, 1), ("a.service", 3, 3), ("s.scope", 4, 4)]),
            [0_i64; 0]
        );
        assert_eq!(restarted(&[("a.service", 1, 9), ("a.service", 5, 10)]), [9]);
        assert_eq!(restarted(&[]), [0_i64; 0]);
        assert_eq!(restarted(&[("a.service", 6, 20)]), [0_i64; 0]);
    }

    /// Check that a service that failed counts as restarted even if it had no process in between,
    /// but not after a long time or without a failure.
    #[test]
    fn services_restart_later() {
        let minute = 60_000_000_000;
        let (one, two): (&[Which], &[Which]) = (&[(1, 1)], &[(2, 7)]);
        for (failed, minutes, expected) in [
            (Some("a.service"), [1, 2], 1),
            (Some("a.service"), [1, 12], 0),
            (Some("b.service"), [1, 2], 0),
            (None, [1, 2], 0),
        ] {
            let mut services = Services::default();
            let failed: HashSet<Vec<u8>> = failed.iter().map(|unit| unit.as_bytes().to_vec()).collect();
            let mut at = |minutes: i64, processes: &[Which]| {
                let now = processes.iter().map(|&which| (&b"a.service"[..], which));
                services.restarted(minutes * minute, now, &failed).len()
            };
            assert_eq!(at(0, one), 0);
            assert_eq!(
                (at(minutes[0], &[]), at(minutes[1], two)),
                (0, expected),
                "{failed:?} {minutes:?}"
            );
            assert_eq!(at(minutes[1], two), 0);
        }
    }

    /// Check that a kill is reported once: by name, otherwise by cgroup, otherwise for the machine.
    #[test]
    fn kills_are_told_once() {
        let named = |wall_ns, cgroup: Option<&str>| Incident {
            wall_ns,
            what: IncidentKind::OomKill(Kill {
                pid: 7,
                comm: b"eater".to_vec(),
                cgroup: cgroup.map(|path| path.as_bytes().to_vec()),
                is_logged: false,
            }),
        };
        let in_cgroup = |wall_ns, path: &str, count| Incident {
            wall_ns,
            what: IncidentKind::OomInCgroup(path.as_bytes().to_vec(), count),
        };
        let in_machine = |wall_ns, count| Incident {
            wall_ns,
            what: IncidentKind::OomInMachine(count),
        };
        let told = |incidents: &[Incident]| settle(incidents.to_vec(), 60);
        // The machine's counter is read in each sample, cgroups are read later, and the process
        // ends shortly after.
        let kill = named(102, Some("/s/a.service"));
        assert_eq!(
            told(&[in_machine(100, 1), in_cgroup(130, "/s", 1), kill.clone()]),
            std::slice::from_ref(&kill)
        );
        // The contents of this cgroup are unknown.
        assert_eq!(told(&[named(102, None), in_cgroup(130, "/s", 1)]), [named(102, None)]);
        // Another cgroup's kill is another one, and so is a later one.
        let others = [kill.clone(), in_cgroup(130, "/sa", 1), in_cgroup(200, "/s", 1)];
        assert_eq!(told(&others), others);
        let all = [in_machine(100, 5), kill.clone(), in_cgroup(130, "/s", 3)];
        assert_eq!(told(&all), [in_machine(100, 2), kill, in_cgroup(130, "/s", 2)]);
        assert_eq!(
            told(&[in_machine(100, 1), in_cgroup(130, "/s", 1)]),
            [in_cgroup(130, "/s", 1)]
        );
        assert_eq!(told(&[in_machine(100, 1)]), [in_machine(100, 1)]);
    }
}

//! The rates of tasks since the last survey, as in `watch`, for many tasks that mostly stay the
//! same.
//!
//! Surveys are in the order of ids, so the position of a task in this survey is nearly always the
//! one after the previous match in the last survey. Nothing is hashed, and only rates whose fields
//! were asked for are kept.

use taskdiag::{Identity, Snapshot};

use crate::watch::{Rate, SampleTime, Total};

/// The rates of a task per second, each at its index. NaN where unknown.
#[derive(Clone, Copy, Debug)]
pub struct Rates([f64; Rate::ALL.len()]);

impl Rates {
    pub fn get(&self, rate: Rate) -> Option<f64> {
        let value = self.0[rate as usize];
        (!value.is_nan()).then_some(value)
    }
}

/// The totals of the last survey.
#[derive(Debug, Default)]
pub struct LastSurvey {
    /// The rates whose totals were in the survey.
    kept: Vec<Rate>,
    /// The tasks in ascending order, with their places among the totals.
    tasks: Vec<(Identity, usize)>,
    /// The totals of all tasks. Those of one task are in the order of `kept`.
    totals: Vec<Option<Total>>,
    before: Option<SampleTime>,
}

impl LastSurvey {
    /// The rates of a survey's tasks since the last one.
    pub fn add(&mut self, snapshot: &Snapshot, now: SampleTime) -> Vec<Rates> {
        let now = now.of_tasks(snapshot);
        let fields = snapshot.fields();
        let is_there = |rate: &Rate| rate.fields().iter().all(|&field| fields.contains(field));
        let kept: Vec<Rate> = Rate::ALL.into_iter().filter(is_there).collect();
        let mut this = LastSurvey {
            tasks: Vec::with_capacity(snapshot.len()),
            totals: Vec::with_capacity(snapshot.len() * kept.len()),
            before: Some(now),
            kept,
        };
        let mut next = 0;
        let rates = snapshot.tasks().map(|task| {
            let identity = Identity::of(task.record().header());
            let place = this.tasks.len();
            this.tasks.push((identity, place));
            let then = self.find(identity, next);
            next = then.map_or(next, |index| index + 1);
            let mut rates = Rates([f64::NAN; Rate::ALL.len()]);
            for &rate in &this.kept {
                let total = rate.total(&task).ok();
                this.totals.push(total);
                let rate_of = |total| self.rate(rate, total, then, identity, now);
                rates.0[rate as usize] = total.and_then(rate_of).unwrap_or(f64::NAN);
            }
            rates
        });
        let rates = rates.collect();
        if !this.tasks.is_sorted() {
            this.tasks.sort_unstable();
        }
        *self = this;
        rates
    }

    /// The position of a task, which is probably `next`.
    fn find(&self, identity: Identity, next: usize) -> Option<usize> {
        if self.tasks.get(next).is_some_and(|(other, _)| *other == identity) {
            return Some(next);
        }
        self.tasks.binary_search_by_key(&identity, |(other, _)| *other).ok()
    }

    /// The rate of a task that was at a place of the last survey, or that started since.
    fn rate(&self, rate: Rate, total: Total, then: Option<usize>, identity: Identity, now: SampleTime) -> Option<f64> {
        let before = self.before?;
        let earlier = match then {
            Some(index) => {
                let column = self.kept.iter().position(|&kept| kept == rate)?;
                self.totals[self.tasks[index].1 * self.kept.len() + column]?
            }
            None if before.precedes(identity) => Total::default(),
            None => return None,
        };
        Some(rate.of(rate.growth(earlier, total), now.since(&before)))
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command};
    use std::time::Duration;

    use taskdiag::{Field, Fields, Handle, Query};

    use super::*;
    use crate::watch::LastSamples;

    fn busy() -> Child {
        let busy = Command::new("sh").args(["-c", "while :; do :; done"]).spawn();
        busy.expect("sh exists")
    }

    fn survey(pids: &[u32], fields: Fields) -> (Snapshot, SampleTime) {
        let query = Query::these(pids.iter().copied()).fields(fields | Field::StartNs);
        SampleTime::of(|| Handle::new().query(&query).expect("an answer"))
    }

    /// Check that the rates are those of `watch`: for tasks that existed before, that are new, that
    /// were left out once, and after the fields changed.
    #[test]
    fn rates_are_those_of_watch() {
        let mut children = [busy(), busy(), busy()];
        let [a, b, c] = [0, 1, 2].map(|index: usize| children[index].id());
        let cpu: Fields = Field::UtimeNs | Field::StimeNs;
        let (mut last, mut history) = (LastSurvey::default(), LastSamples::new(false));
        let mut seen = 0;
        for (pids, fields) in [
            (vec![a, b], cpu),
            (vec![a, b, c], cpu | Field::MinFaults),
            (vec![b, c], cpu | Field::MinFaults),
            (vec![a, b, c], Field::MinFaults.into()),
            (vec![a, b, c], cpu),
        ] {
            std::thread::sleep(Duration::from_millis(300));
            let (snapshot, moment) = survey(&pids, fields);
            let rates = last.add(&snapshot, moment);
            let expected = history.add(&snapshot, moment);
            for (rates, activity) in rates.iter().zip(&expected) {
                for rate in Rate::ALL {
                    assert_eq!(rates.get(rate), activity.rates[rate as usize].ok(), "{rate:?}");
                    seen += u32::from(rates.get(rate).is_some_and(|rate| rate > 0.0));
                }
            }
        }
        assert!(seen >= 2, "{seen}");
        for child in &mut children {
            child.kill().expect("it is ours");
            child.wait().expect("it ends");
        }
    }
}

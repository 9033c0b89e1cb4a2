//! Which events are shown.

use std::collections::HashSet;

use taskdiag::{Absent, Event, EventField, EventKind, Field, Fields, Filter as Expression, Handle, Query, Value};
use taskdiag_core::filter::HasFields;

use super::cgroups::{in_cgroup, Cgroup, Cgroups};
use super::Args;
use crate::outcome::{say, Failure, Outcome};

/// Which events are shown.
#[derive(Debug)]
pub struct Filter {
    kinds: Vec<EventKind>,
    /// What has to be true of the process.
    expression: Option<Expression>,
    /// What is known of the cgroups of processes, if the expression looks at that.
    cgroups: Option<Cgroups>,
    /// The processes to watch: at first those of a query.
    query: Option<Query>,
    /// These processes and their descendants, as far as they are alive.
    family: Option<HashSet<u32>>,
    /// Whether all processes to watch existed.
    pub outcome: Outcome,
    /// Events left out because what the expression looks at is not known.
    pub undecided: u64,
}

/// What an expression can look at, of an event.
#[derive(Debug)]
struct Row<'a> {
    event: &'a Event<'a>,
    cgroup: Option<&'a Cgroup>,
}

impl HasFields for Row<'_> {
    fn value(&self, field: Field) -> Result<Value<'_>, Absent> {
        match (in_event(field), self.cgroup) {
            (Some(field), _) => self.event.value(field).unwrap_or(Err(Absent::Unsupported)),
            (None, Some(cgroup)) => cgroup.value(field),
            (None, None) => Err(Absent::Gone),
        }
    }
}

/// The field of events that is a field of tasks.
fn in_event(field: Field) -> Option<EventField> {
    field.name().parse().ok()
}

impl Filter {
    /// The filter that the options describe.
    pub fn new(args: &Args) -> Result<Filter, Failure> {
        let expression = args.selection.narrow(Query::processes())?.filter;
        let looked_at = expression.as_ref().map_or(Fields::NONE, Expression::fields);
        let in_cgroup = in_cgroup();
        for field in looked_at.iter() {
            if in_event(field).is_none() && !in_cgroup.contains(field) {
                return Err(Failure::Unanswered(format!(
                    "--where: events do not have {field}: docs/events.md has what they have"
                )));
            }
        }
        let needs_cgroup = in_cgroup.iter().any(|field| looked_at.contains(field));
        Ok(Filter {
            kinds: args.kinds.iter().map(|&kind| kind.into()).collect(),
            expression,
            cgroups: needs_cgroup.then(Cgroups::new).transpose()?,
            query: args.selection.scope(false)?.map(|query| query.fields(Field::Pid)),
            family: None,
            outcome: Outcome::Complete,
            undecided: 0,
        })
    }

    /// The kinds to ask for. A family is known only by its forks and exits, so it takes all of
    /// them.
    pub fn kinds_to_watch(&self) -> Vec<EventKind> {
        if self.kinds.is_empty() || self.query.is_some() {
            EventKind::ALL.to_vec()
        } else {
            self.kinds.clone()
        }
    }

    /// Whether it has to ask this machine about processes or cgroups.
    pub fn looks_at_machine(&self) -> bool {
        self.query.is_some() || self.cgroups.is_some()
    }

    /// Finds the processes to watch. Events have to come already: who is born while this looks is
    /// found by one of both.
    pub fn find_family(&mut self) -> Result<(), Failure> {
        let Some(query) = &self.query else { return Ok(()) };
        let found = Handle::new().one_shot().query(query)?;
        for pid in found.missing() {
            say(format_args!("pid {pid}: no such process"));
            self.outcome = Outcome::Partial;
        }
        self.family = Some(found.tasks().filter_map(|task| task.pid().ok()).collect());
        Ok(())
    }

    /// Whether no process is left to be watched.
    pub fn has_nobody(&self) -> bool {
        self.family.as_ref().is_some_and(HashSet::is_empty)
    }

    /// Whether the event is shown. The family is kept up to date with what it says.
    pub fn admits(&mut self, event: &Event<'_>) -> bool {
        if !self.is_of_family(event) || !(self.kinds.is_empty() || self.kinds.contains(&event.kind())) {
            return false;
        }
        let Some(expression) = &self.expression else {
            return true;
        };
        let cgroup = self.cgroups.as_mut().and_then(|cgroups| cgroups.of(event));
        let decided = expression.decide(&Row { event, cgroup });
        self.undecided += u64::from(decided.is_none());
        decided.unwrap_or(false)
    }

    fn is_of_family(&mut self, event: &Event<'_>) -> bool {
        let Some(family) = &mut self.family else { return true };
        let pid = event.pid();
        if event.kind() == EventKind::Fork && !event.is_thread() {
            let caller = event.caller_pid().and_then(Result::ok);
            let elders = [caller, event.ppid().ok()];
            if elders.into_iter().flatten().any(|elder| family.contains(&elder)) {
                family.insert(pid);
            }
        }
        if event.kind() == EventKind::Exit && !event.is_thread() {
            family.remove(&pid)
        } else {
            family.contains(&pid)
        }
    }
}

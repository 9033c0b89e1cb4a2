//! Which events are shown.

use std::collections::HashSet;

use taskdiag::{Absent, Event, EventField, EventKind, Field, Fields, Filter as Expression, Query, Value};
use taskdiag_core::filter::{Column, HasFields};

use super::cgroups::{in_cgroup, Cgroup, Cgroups};
use super::Args;
use crate::listing::Answers;
use crate::outcome::{Failure, Outcome};
use crate::proc;
use crate::ps::specifiers::field_of;

/// Which events are shown.
#[derive(Debug)]
pub struct Filter {
    kinds: Vec<EventKind>,
    /// The condition on the process.
    expression: Option<Expression>,
    /// The cgroups of processes, if the expression needs them.
    cgroups: Option<Cgroups>,
    /// The processes to watch: initially those that this query finds.
    query: Option<Query>,
    /// These processes and their descendants, without those that have ended.
    family: Option<HashSet<u32>>,
    /// Whether all processes to watch existed.
    pub outcome: Outcome,
    /// Events left out because a value that the expression needs is unknown.
    pub undecided: u64,
}

/// The fields of an event for an expression.
#[derive(Debug)]
struct EventRow<'a> {
    event: &'a Event<'a>,
    cgroup: Option<&'a Cgroup>,
}

impl HasFields for EventRow<'_> {
    fn value(&self, field: Field) -> Result<Value<'_>, Absent> {
        match (in_event(field), self.cgroup) {
            (Some(field), _) => self.event.value(field),
            (None, Some(cgroup)) => cgroup.value(field),
            (None, None) => Err(Absent::Gone),
        }
    }

    fn column_value(&self, index: usize) -> Result<Value<'_>, Absent> {
        self.event.value(EventField::ALL[index])
    }
}

impl EventRow<'_> {
    /// Whether a value that an expression needs is absent. An event of another kind does not have it
    /// at all, and is not meant.
    fn lacks_one_of(&self, expression: &Expression) -> bool {
        let lacks = |field| {
            self.event
                .value(field)
                .is_err_and(|reason| reason != Absent::NotApplicable)
        };
        let lacks_of_task = |field| in_event(field).map_or_else(|| self.value(field).is_err(), lacks);
        let columns = expression.columns();
        expression.fields().iter().any(lacks_of_task)
            || columns.into_iter().any(|column| lacks(EventField::ALL[column]))
    }
}

/// The column that a word names in an expression, if only events have it; an error if only tasks have.
fn own_column(word: &str) -> Option<Result<Column, String>> {
    let of_tasks = word.parse().ok().or_else(|| field_of(word)?.ok());
    if let Some(field) = of_tasks.filter(|&field| in_event(field).is_none() && !in_cgroup().contains(field)) {
        let where_else = match field {
            Field::User => "uid has names, as in uid == 'root'",
            _ => "docs/events.md lists their fields",
        };
        return Some(Err(format!("events do not have {field}: {where_else}")));
    }
    let field: EventField = word.parse().ok()?;
    word.parse::<Field>().is_err().then(|| Ok(field.into()))
}

/// The event field that corresponds to a task field.
fn in_event(field: Field) -> Option<EventField> {
    field.name().parse().ok()
}

impl Filter {
    /// The filter that the options describe.
    pub fn new(args: &Args) -> Result<Filter, Failure> {
        let expression = args
            .selection
            .narrow_rows(
                Query::processes(),
                args.past.is_given(),
                Expression::within_cgroup,
                &own_column,
            )?
            .filter;
        let looked_at = expression.as_ref().map_or(Fields::NONE, Expression::fields);
        let needs_cgroup = in_cgroup().iter().any(|field| looked_at.contains(field));
        Ok(Filter {
            kinds: args.kinds.clone(),
            expression,
            cgroups: needs_cgroup.then(Cgroups::new).transpose()?,
            query: args
                .selection
                .processes
                .scope(false)?
                .map(|query| query.fields(Field::Pid)),
            family: None,
            outcome: Outcome::Complete,
            undecided: 0,
        })
    }

    /// The kinds to ask for. Tracking a family needs its forks and exits, so this is all kinds.
    pub fn kinds_to_watch(&self) -> Vec<EventKind> {
        if self.kinds.is_empty() || self.query.is_some() {
            EventKind::ALL.to_vec()
        } else {
            self.kinds.clone()
        }
    }

    /// Whether the filter needs processes or cgroups of this machine.
    pub fn looks_at_machine(&self) -> bool {
        self.query.is_some() || self.cgroups.is_some()
    }

    /// Finds the processes to watch. Call this after events have been opened: a process that starts
    /// in between is found either by the query or by its fork event.
    pub fn find_family(&mut self) -> Result<(), Failure> {
        let Some(query) = &self.query else { return Ok(()) };
        let found = Answers::ask(&mut proc::handle().one_shot(), query)?;
        self.outcome = found.report(&[]);
        self.family = Some(found.tasks().iter().filter_map(|task| task.pid().ok()).collect());
        Ok(())
    }

    /// Whether all watched processes have ended.
    pub fn has_nobody(&self) -> bool {
        self.family.as_ref().is_some_and(HashSet::is_empty)
    }

    /// Whether the event is shown. Updates the family.
    pub fn admits(&mut self, event: &Event<'_>) -> bool {
        if !self.is_of_family(event) || !(self.kinds.is_empty() || self.kinds.contains(&event.kind())) {
            return false;
        }
        let Some(expression) = &self.expression else {
            return true;
        };
        let cgroup = self.cgroups.as_mut().and_then(|cgroups| cgroups.of(event));
        let row = EventRow { event, cgroup };
        let decided = expression.decide(&row);
        self.undecided += u64::from(decided.is_none() && row.lacks_one_of(expression));
        decided.unwrap_or(false)
    }

    fn is_of_family(&mut self, event: &Event<'_>) -> bool {
        let Some(family) = &mut self.family else { return true };
        let pid = event.pid();
        if event.kind() == EventKind::Fork && !event.is_thread() {
            let caller = event.caller_pid().ok();
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

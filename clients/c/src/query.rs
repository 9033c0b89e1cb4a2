//! What is asked: of what, which fields, which of them.

use std::time::Duration;

use taskdiag::sockets;
use taskdiag::{Budget, Field, Fields, Filter};

use crate::error::{Error, Result};
use crate::field::{self, Of, Scope};

/// Which tasks.
#[derive(Clone, Debug, Default)]
enum Tasks {
    #[default]
    All,
    These(Vec<u32>),
    ChildrenOf(u32),
    DescendantsOf(u32),
}

/// A condition.
#[derive(Clone, Debug)]
enum Condition {
    OfTasks(Filter),
    OfSockets(sockets::Filter),
}

/// A query that is being put together: `td_query`.
#[derive(Clone, Debug)]
pub struct Query {
    scope: Scope,
    fields: Vec<u32>,
    tasks: Tasks,
    conditions: Vec<Condition>,
    is_changed: bool,
    budget: Budget,
    patience: Option<Duration>,
}

/// A process id.
fn pid(pid: u32) -> Result<u32> {
    match i32::try_from(pid) {
        Ok(_) => Ok(pid),
        Err(_) => Err(Error::invalid(format!("{pid} is no process id"))),
    }
}

/// A time in seconds.
///
/// # Errors
///
/// If it is negative, not a number, or too long.
pub fn seconds(what: &str, seconds: f64) -> Result<Duration> {
    Duration::try_from_secs_f64(seconds)
        .map_err(|_| Error::invalid(format!("{what}: {seconds:?} is no time in seconds")))
}

impl Query {
    /// A query for all rows, so far without columns.
    pub fn new(scope: Scope) -> Query {
        Query {
            scope,
            fields: Vec::new(),
            tasks: Tasks::All,
            conditions: Vec::new(),
            is_changed: false,
            budget: Budget::default(),
            patience: None,
        }
    }

    /// Asks for the fields that names stand for, besides those asked for before.
    ///
    /// # Errors
    ///
    /// For names that are not known.
    pub fn add_fields(&mut self, names: &str) -> Result<()> {
        for id in field::parse(self.scope, names)? {
            self.add(id);
        }
        Ok(())
    }

    /// Asks for a field, too.
    ///
    /// # Errors
    ///
    /// For an id that is not one of these rows.
    pub fn add_field(&mut self, id: u32) -> Result<()> {
        if !field::is_in(self.scope, id) {
            return Err(Error::invalid(format!(
                "rows of this query have no field with the id {id}"
            )));
        }
        self.add(id);
        Ok(())
    }

    fn add(&mut self, id: u32) {
        if !self.fields.contains(&id) {
            self.fields.push(id);
        }
    }

    /// Lets only rows through for which an expression is true, too.
    ///
    /// # Errors
    ///
    /// For a text that is no filter.
    pub fn add_condition(&mut self, expression: &str) -> Result<()> {
        self.conditions.push(match self.scope {
            Scope::Sockets => {
                // Of sockets there is no way to join two.
                if !self.conditions.is_empty() {
                    return Err(Error::invalid(
                        "a query of sockets has one filter: join expressions with and",
                    ));
                }
                Condition::OfSockets(sockets::Filter::parse(expression)?)
            }
            Scope::Processes | Scope::Threads => Condition::OfTasks(Filter::parse(expression)?),
        });
        Ok(())
    }

    /// Asks about these processes, or their threads.
    ///
    /// # Errors
    ///
    /// For numbers that are no process ids.
    pub fn these(&mut self, pids: &[u32]) -> Result<()> {
        for &each in pids {
            pid(each)?;
        }
        self.tasks = Tasks::These(pids.to_vec());
        Ok(())
    }

    /// Asks about the children of a process.
    ///
    /// # Errors
    ///
    /// For a number that is no process id, and if the rows are threads.
    pub fn children_of(&mut self, parent: u32) -> Result<()> {
        self.check_has_children()?;
        self.tasks = Tasks::ChildrenOf(pid(parent)?);
        Ok(())
    }

    /// Asks about the children of a process, their children, and so on.
    ///
    /// # Errors
    ///
    /// As [`Query::children_of`].
    pub fn descendants_of(&mut self, ancestor: u32) -> Result<()> {
        self.check_has_children()?;
        self.tasks = Tasks::DescendantsOf(pid(ancestor)?);
        Ok(())
    }

    fn check_has_children(&self) -> Result<()> {
        match self.scope {
            Scope::Threads => Err(Error::invalid("threads have no children: ask for processes")),
            Scope::Processes | Scope::Sockets => Ok(()),
        }
    }

    /// Asks only about tasks that have changed since the handle was last asked for such.
    pub fn only_changed(&mut self) {
        self.is_changed = true;
    }

    /// How long one process may keep its reader waiting.
    pub fn set_patience(&mut self, patience: Duration) {
        self.patience = Some(patience);
    }

    /// The limits of walking page tables.
    pub fn set_budget(&mut self, budget: Budget) {
        self.budget = budget;
    }

    /// What rows are about.
    pub fn scope(&self) -> Scope {
        self.scope
    }

    /// The ids of the fields, in the order in which they were asked for.
    pub fn fields(&self) -> &[u32] {
        &self.fields
    }

    /// The query of tasks. For one of sockets: of the processes that may be owners.
    pub fn of_tasks(&self) -> taskdiag::Query {
        use taskdiag::Query;
        let query = match (&self.tasks, self.scope) {
            (Tasks::All, Scope::Threads) => Query::threads(),
            (Tasks::All, _) => Query::processes(),
            (Tasks::These(pids), Scope::Threads) => Query::threads_of_these(pids.iter().copied()),
            (Tasks::These(pids), _) => Query::these(pids.iter().copied()),
            (&Tasks::ChildrenOf(pid), _) => Query::children_of(pid),
            (&Tasks::DescendantsOf(pid), _) => Query::descendants_of(pid),
        };
        let mut query = query.fields(self.task_fields()).budget(self.budget);
        for condition in &self.conditions {
            if let Condition::OfTasks(filter) = condition {
                query = query.filter(filter.clone());
            }
        }
        if self.is_changed {
            query = query.only_changed();
        }
        match self.patience {
            Some(patience) => query.patience(patience),
            None => query,
        }
    }

    fn task_fields(&self) -> Fields {
        if self.scope == Scope::Sockets {
            return Field::StartNs | Field::Comm;
        }
        let field = |&id: &u32| match field::row(id)?.of {
            Of::Task(field) => Some(field),
            Of::Socket(_) | Of::Descriptors(..) => None,
        };
        self.fields.iter().filter_map(field).collect()
    }

    /// The request for sockets.
    pub fn of_sockets(&self) -> sockets::Request {
        let mut request = sockets::Request::default();
        let field = |&id: &u32| match field::row(id)?.of {
            Of::Socket(field) | Of::Descriptors(field, _) => Some(field),
            Of::Task(_) => None,
        };
        let fields = self.fields.iter().filter_map(field);
        request.wants = fields.map(sockets::Wants::from).collect();
        request.filter = self.conditions.iter().find_map(|condition| match condition {
            Condition::OfSockets(filter) => Some(filter.clone()),
            Condition::OfTasks(_) => None,
        });
        // Of some processes only their own.
        request.owned = !matches!(self.tasks, Tasks::All);
        request
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that what makes no sense is refused.
    #[test]
    fn nonsense_is_refused() {
        let mut query = Query::new(Scope::Threads);
        assert!(query.these(&[1, u32::MAX]).is_err());
        assert!(query.children_of(1).is_err() && query.descendants_of(1).is_err());
        assert!(query.add_field(0).is_err() && query.add_field(field::FIRST_OF_SOCKETS).is_err());
        assert!(query.add_condition("pid = 1").is_err());
        assert!(query.add_condition("pid == 1").is_ok() && query.add_condition("tid > 1").is_ok());
        let mut sockets = Query::new(Scope::Sockets);
        assert!(sockets.add_condition("local_port == 1").is_ok());
        assert!(sockets.add_condition("local_port == 1").is_err());
        for time in [-1.0, f64::NAN, f64::INFINITY, 1e300] {
            assert!(seconds("patience", time).is_err(), "{time}");
        }
    }

    /// Check that sockets are asked for what their columns need.
    #[test]
    fn sockets_are_asked_for_what_columns_need() {
        for (names, wants) in [
            ("local_port,uid", sockets::Wants::empty()),
            ("owner_pids", sockets::Wants::OWNERS),
            ("peer_comms,rtt_ns", sockets::Wants::PEERS | sockets::Wants::INFO),
        ] {
            let mut query = Query::new(Scope::Sockets);
            query.add_fields(names).expect("these are fields");
            assert_eq!(query.of_sockets().wants, wants, "{names}");
            assert!(!query.of_sockets().owned);
        }
    }
}

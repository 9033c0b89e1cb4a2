//! The queries for the current view.
//!
//! A sample has two parts. The survey is about all tasks, and has the fields that they are sorted,
//! filtered and summed by. The close look is about the rows on the screen, and has the fields that
//! they show.

use std::time::Duration;

use taskdiag::{Budget, Field, Fields, Filter, Group, Identity, Query};

use super::column::{Set, TopColumn};
use super::groups;
use super::rows::Rows;
use super::view::View;
use crate::outcome::Failure;
use crate::selection::{self, Selection};
use crate::users;
use crate::watch;

/// What to query.
#[derive(Clone, Debug, PartialEq)]
pub struct Spec {
    /// The kind of the rows.
    pub rows: Rows,
    pub survey: Fields,
    /// The fields of the close look.
    pub look: Fields,
    /// An expression; empty for all tasks.
    pub filter: String,
    /// Names of users; empty for all users.
    pub users: String,
    /// Whether kernel threads are left out.
    pub hides_kernel: bool,
    /// How long reading proportional set sizes may take.
    pub pss_budget: Duration,
    /// Whether the tasks are those of a recording.
    pub is_past: bool,
}

/// The fields of every survey: they identify the task, and show its name and what it does. All but
/// the times are in one group.
fn always() -> Fields {
    Field::StartNs | Field::Ppid | Field::State | Field::Comm | Field::UtimeNs | Field::StimeNs
}

/// What a search looks at, besides names and ids.
fn searched() -> Fields {
    Field::Cmdline | Field::User
}

impl Spec {
    /// What the view needs.
    pub fn of(view: &View) -> Spec {
        let mut survey = always() | view.order.key.fields();
        let mut look = always();
        match view.rows {
            Rows::By(by) => {
                survey |= groups::fields(by) | groups::summed();
                if view.set == Set::Memory {
                    survey |= Field::PssBytes;
                }
                let rates = view
                    .shown()
                    .into_iter()
                    .filter(|show| matches!(show, TopColumn::Rate(_)));
                survey = rates.fold(survey, |survey, rate| survey | rate.fields());
            }
            Rows::Processes | Rows::Tree | Rows::Threads => {
                for show in view.shown() {
                    match show {
                        TopColumn::Rate(_) => survey |= show.fields(),
                        show => look |= show.fields(),
                    }
                }
                if !view.search.is_empty() {
                    survey |= searched();
                }
                if !view.tags.is_empty() {
                    // Questions name the users of those that are not on the screen, too.
                    survey |= Field::User;
                }
                // Questions about a process show its user and its nice value.
                look |= Field::Nice | Field::User;
            }
        }
        if view.rows == Rows::Threads {
            // Page tables are walked for processes.
            let is_walked = |field: &Field| field.group() == Group::Rollup;
            survey = survey.iter().filter(|field| !is_walked(field)).collect();
        }
        Spec {
            rows: view.rows,
            survey,
            look,
            filter: view.filter.clone(),
            users: view.users.clone(),
            hides_kernel: view.hides_kernel(),
            pss_budget: view.pss_budget,
            is_past: view.is_past,
        }
    }

    /// Whether rows are threads.
    pub fn threads(&self) -> bool {
        self.rows == Rows::Threads
    }

    fn budget(&self) -> Budget {
        Budget::default().deadline(Some(self.pss_budget))
    }

    /// The query of the survey for the tasks that the options select, and the filter that is
    /// decided once rates are known.
    pub fn query(&self, selection: &Selection) -> Result<(Query, Option<Filter>), Failure> {
        let mut query = selection.query(self.threads(), self.is_past)?;
        if !self.users.is_empty() {
            let names: Vec<String> = self.users.split(',').map(str::to_owned).collect();
            query = query.filter(Filter::one_of(Field::Euid, &users::users(&names)?));
        }
        if !self.filter.is_empty() {
            query = selection::narrow_by(query, &self.filter, self.is_past)?;
        }
        if self.hides_kernel {
            query = selection::narrow_by(query, "not kernel_thread", self.is_past)?;
        }
        let mut fields = self.survey;
        let rated = watch::take_filter(&mut query, &mut fields);
        Ok((query.fields(fields).budget(self.budget()), rated))
    }

    /// The query for a close look at some tasks, each given with its process.
    pub fn close_look(&self, tasks: &[(u32, Identity)]) -> Query {
        let pids = tasks.iter().map(|(pid, _)| *pid);
        let query = if self.threads() {
            let tids: Vec<u32> = tasks.iter().map(|(_, identity)| identity.tid()).collect();
            Query::threads_of_these(pids).filter(Filter::one_of(Field::Tid, &tids))
        } else {
            Query::these(pids)
        };
        query.fields(self.look).budget(self.budget())
    }
}

#[cfg(test)]
mod tests {
    use taskdiag_core::field::Groups;

    use super::super::column::{Order, SortKey};
    use super::*;
    use crate::watch::Rate;

    /// Check that the survey asks only for fields that decide about rows, and the close look for
    /// those that the rows show.
    #[test]
    fn only_what_is_needed_is_asked() {
        let mut view = View::default();
        let groups = |fields: Fields| -> Vec<&str> { Groups::of(fields).iter().map(Group::name).collect() };
        let spec = Spec::of(&view);
        assert_eq!(groups(spec.survey), ["base", "cpu"]);
        assert!(spec.look.contains(Field::Cmdline) && !spec.survey.contains(Field::Cmdline));
        view.search = "x".to_owned();
        let survey = Spec::of(&view).survey;
        assert!(survey.contains(Field::Cmdline) && survey.contains(Field::User));
        view.search.clear();
        view.order = Order::by(SortKey::Field(Field::RssBytes));
        assert_eq!(groups(Spec::of(&view).survey), ["base", "cpu", "mem"]);
        view.order = Order::by(SortKey::Rate(Rate::WriteBytes));
        assert_eq!(groups(Spec::of(&view).survey), ["base", "cpu", "io"]);
        view.set = Set::Memory;
        let spec = Spec::of(&view);
        assert!(spec.look.contains(Field::PssBytes) && !spec.survey.contains(Field::PssBytes));
        view.rows = Rows::by(&[&crate::grouping::UNIT]);
        let spec = Spec::of(&view);
        assert!(spec.survey.contains(Field::PssBytes) && spec.survey.contains(Field::Unit));
    }

    /// Check that the part of a filter that reads rates is decided later.
    #[test]
    fn rates_are_decided_later() {
        let view = View {
            filter: "cpu_percent > 5 and uid == 0".to_owned(),
            users: "root".to_owned(),
            ..View::default()
        };
        let (query, rated) = Spec::of(&view).query(&Selection::default()).expect("a query");
        let (first, rated) = (query.filter.expect("a filter"), rated.expect("a filter"));
        assert!(!first.fields().contains(Field::CpuPercent) && first.fields().contains(Field::Uid));
        assert!(rated.fields().contains(Field::CpuPercent));
        assert!(query.fields.contains(Field::Uid));
        let wrong = View {
            filter: "uid =".to_owned(),
            ..view
        };
        assert!(Spec::of(&wrong).query(&Selection::default()).is_err());
    }

    /// Check that a filter that reads names does not find this program, except in a recording.
    #[test]
    fn filters_do_not_find_this_program() {
        let asked = |filter: &str, is_past: bool| {
            let view = View {
                filter: filter.to_owned(),
                is_past,
                kernel: true,
                ..View::default()
            };
            let (query, _) = Spec::of(&view).query(&Selection::default()).expect("a query");
            query.filter.expect("a filter").to_string()
        };
        let own = format!("pid not in ({})", std::process::id());
        assert_eq!(
            asked("comm == 'x'", false),
            format!("not {} and comm == 'x'", own.replace("not in", "in"))
        );
        assert_eq!(asked("comm == 'x'", true), "comm == 'x'");
        assert_eq!(asked("uid == 0", false), "uid == 0");
    }
}

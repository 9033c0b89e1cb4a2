//! The kinds of groups besides those of the configuration.

use clap::ValueEnum;
use taskdiag::{Absent, Field, Fields, Value};

use super::template::label;
use crate::output::relation::IN_NONE;

taskdiag_core::named_enum! {
    /// What processes are added up by, too.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
    pub enum By {
        /// systemd unit of the system manager
        Unit => "unit",
        /// Innermost container: its name, or its id where the name is not known
        Container => "container",
        /// Kubernetes pod, by its UID
        Pod => "pod",
        /// Effective user
        User => "user",
    }
    /// The label with the name of a group.
    pub fn label;
}

/// A group of one of these kinds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    pub name: String,
    /// Whether a part of the answer did not come in time, so that a later one may be different.
    pub is_late: bool,
}

/// The name of the group of processes whose group is unknown.
const UNKNOWN: &str = "(unknown)";

impl By {
    /// The prefix of metric names.
    pub fn prefix(self) -> &'static str {
        match self {
            By::Unit => "taskdiag_unit_",
            By::Container => "taskdiag_container_",
            By::Pod => "taskdiag_pod_",
            By::User => "taskdiag_user_",
        }
    }

    /// The fields that name the group: the first one with a text is used.
    pub fn fields(self) -> &'static [Field] {
        match self {
            By::Unit => &[Field::Unit],
            By::Container => &[Field::ContainerName, Field::ContainerId],
            By::Pod => &[Field::PodUid],
            By::User => &[Field::User],
        }
    }

    /// Whether the group follows from the cgroup.
    pub fn is_in_cgroup(self) -> bool {
        self != By::User
    }

    pub fn group<'v>(self, value: impl Fn(Field) -> Result<Value<'v>, Absent>) -> Group {
        let (mut name, mut is_late) = (UNKNOWN.to_owned(), false);
        for &field in self.fields() {
            match value(field) {
                Ok(Value::Text(text)) if !text.is_empty() => {
                    name = label(text);
                    break;
                }
                Ok(_) => IN_NONE.clone_into(&mut name),
                Err(reason) => is_late |= reason == Absent::NoAnswer,
            }
        }
        Group { name, is_late }
    }
}

/// All fields that these kinds need.
pub fn fields(kinds: &[By]) -> Fields {
    kinds.iter().flat_map(|by| by.fields()).copied().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that no group, an unknown group and a named group are distinguished.
    #[test]
    fn none_is_not_unknown() {
        let text = |text: &'static str| Ok(Value::Text(text.as_bytes()));
        let group = |name: &str, is_late| Group {
            name: name.to_owned(),
            is_late,
        };
        assert_eq!(By::Unit.group(|_| text("a.service")), group("a.service", false));
        assert_eq!(By::Unit.group(|_| text("")), group(IN_NONE, false));
        assert_eq!(By::Unit.group(|_| Err(Absent::Denied)), group(UNKNOWN, false));
        assert_eq!(By::User.group(|_| Err(Absent::NoAnswer)), group(UNKNOWN, true));
        for (reason, is_late) in [(Absent::Unsupported, false), (Absent::NoAnswer, true)] {
            let by_id = |field| match field {
                Field::ContainerName => Err(reason),
                _ => text("0123"),
            };
            assert_eq!(By::Container.group(by_id), group("0123", is_late));
        }
        assert_eq!(By::Container.group(|_| text("")), group(IN_NONE, false));
    }
}

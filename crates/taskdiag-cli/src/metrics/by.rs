//! The kinds of groups beside those of the configuration.

use clap::ValueEnum;
use taskdiag::{Absent, Field, Fields, Value};

use super::template::label;

/// What processes are added up by, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum By {
    /// systemd unit of the system manager
    Unit,
    /// Innermost container: its name, or its id where the name is not known
    Container,
    /// Kubernetes pod, by its UID
    Pod,
    /// Effective user
    User,
}

/// The name of the group of processes that are in none.
const NONE: &str = "(none)";

/// The name of the group of processes of which it is not known.
const UNKNOWN: &str = "(unknown)";

impl By {
    /// The label that has the name of a group.
    pub fn label(self) -> &'static str {
        match self {
            By::Unit => "unit",
            By::Container => "container",
            By::Pod => "pod",
            By::User => "user",
        }
    }

    /// What names of metrics begin with.
    pub fn prefix(self) -> &'static str {
        match self {
            By::Unit => "taskdiag_unit_",
            By::Container => "taskdiag_container_",
            By::Pod => "taskdiag_pod_",
            By::User => "taskdiag_user_",
        }
    }

    /// The fields that say which group it is: the first that has a text.
    pub fn fields(self) -> &'static [Field] {
        match self {
            By::Unit => &[Field::Unit],
            By::Container => &[Field::ContainerName, Field::ContainerId],
            By::Pod => &[Field::PodUid],
            By::User => &[Field::User],
        }
    }

    /// Whether it follows from the cgroup.
    pub fn is_in_cgroup(self) -> bool {
        self != By::User
    }

    /// The name of the group, from the values of its fields.
    pub fn group<'v>(self, value: impl Fn(Field) -> Result<Value<'v>, Absent>) -> String {
        let mut name = UNKNOWN;
        for &field in self.fields() {
            match value(field) {
                Ok(Value::Text(text)) if !text.is_empty() => return label(text),
                Ok(_) => name = NONE,
                Err(_) => {}
            }
        }
        name.to_owned()
    }
}

/// All fields that some kinds of groups take.
pub fn fields(kinds: &[By]) -> Fields {
    kinds.iter().flat_map(|by| by.fields()).copied().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that no group, an unknown one and one with a name are told apart.
    #[test]
    fn none_is_not_unknown() {
        let text = |text: &'static str| Ok(Value::Text(text.as_bytes()));
        assert_eq!(By::Unit.group(|_| text("a.service")), "a.service");
        assert_eq!(By::Unit.group(|_| text("")), NONE);
        assert_eq!(By::Unit.group(|_| Err(Absent::Denied)), UNKNOWN);
        let by_id = |field| match field {
            Field::ContainerName => Err(Absent::Unsupported),
            _ => text("0123"),
        };
        assert_eq!(By::Container.group(by_id), "0123");
        assert_eq!(By::Container.group(|_| text("")), NONE);
    }
}

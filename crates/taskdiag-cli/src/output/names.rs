//! Names for numbers: users, groups, capabilities, signals.
//!
//! With `--names`, tables show names in place of numbers. JSON and CSV have the names under
//! separate keys next to the numbers.

use std::borrow::Cow;
use std::collections::HashMap;
use std::time::Duration;

use taskdiag::Value;
use taskdiag_core::names::{CAPABILITIES, SIGNALS};
use taskdiag_sys::lookup::{local_name, Lookup, Worker};

use crate::history;
use crate::outcome::say;
use crate::users;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameKind {
    /// A user id.
    User,
    /// A group id.
    Group,
    /// A list of group ids.
    Groups,
    /// A set of capabilities.
    Capabilities,
    /// A set of signals.
    Signals,
}

/// The name of a number, or the names of a set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Named {
    /// One name.
    One(Vec<u8>),
    /// The names of a set's members.
    Members(Vec<Cow<'static, str>>),
}

/// How long a command waits for the user database, which may query the network. Numbers stand in
/// for names that arrive later.
const PATIENCE: Duration = Duration::from_secs(2);

/// Looks up names, each once.
#[derive(Debug, Default)]
pub struct Names {
    known: HashMap<UserOrGroup, NameOrNumber>,
    lookup: Lookup<UserOrGroup, Option<Vec<u8>>>,
}

/// The user or group that a number means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum UserOrGroup {
    User(u32),
    Group(u32),
}

/// What is known about a number.
#[derive(Debug)]
struct NameOrNumber {
    /// The name, or the number if there is none.
    text: Vec<u8>,
    is_name: bool,
}

impl NameOrNumber {
    fn new(who: UserOrGroup, name: Option<Vec<u8>>) -> NameOrNumber {
        let (UserOrGroup::User(id) | UserOrGroup::Group(id)) = who;
        NameOrNumber {
            is_name: name.is_some(),
            text: name.unwrap_or_else(|| id.to_string().into()),
        }
    }

    fn name(&self) -> Option<&[u8]> {
        self.is_name.then_some(self.text.as_slice())
    }
}

impl Names {
    /// The name of a value, or the names of its members. `None` if a number has no name.
    pub fn of(&mut self, kind: NameKind, value: &Value<'_>) -> Option<Named> {
        match (kind, value) {
            (NameKind::User, Value::Unsigned(uid)) => self.known(UserOrGroup::User(*uid as u32)).name().map(named_one),
            (NameKind::Group, Value::Unsigned(gid)) => {
                self.known(UserOrGroup::Group(*gid as u32)).name().map(named_one)
            }
            (NameKind::Groups, Value::Ids(gids)) => {
                let name = |gid| String::from_utf8_lossy(self.group(gid)).into_owned().into();
                Some(Named::Members(gids.iter().map(name).collect()))
            }
            (NameKind::Capabilities, Value::Mask(set)) => Some(members(*set, |bit| match CAPABILITIES.get(bit) {
                Some(name) => format!("cap_{name}").into(),
                None => format!("cap_{bit}").into(),
            })),
            (NameKind::Signals, Value::Mask(set)) => Some(members(*set, |bit| match SIGNALS.get(bit) {
                Some(&name) => name.into(),
                None => format!("RT{}", bit + 1).into(),
            })),
            _ => None,
        }
    }

    /// The name of a user, or the number if there is none.
    pub fn user(&mut self, uid: u32) -> &[u8] {
        &self.known(UserOrGroup::User(uid)).text
    }

    /// The name of a user, if there is one.
    pub fn user_name(&mut self, uid: u32) -> Option<&[u8]> {
        self.known(UserOrGroup::User(uid)).name()
    }

    /// The name of a group, or the number if there is none.
    pub fn group(&mut self, gid: u32) -> &[u8] {
        &self.known(UserOrGroup::Group(gid)).text
    }

    fn known(&mut self, who: UserOrGroup) -> &NameOrNumber {
        let is_known = self.known.contains_key(&who);
        let was_late = self.lookup.is_late();
        if !is_known || was_late {
            let question = if is_known { None } else { Some(who) };
            let start = || Worker::new(|&who| look_up(who));
            let answers = self.lookup.ask(question.into_iter().collect(), PATIENCE, start);
            if self.lookup.is_late() && !was_late {
                say("the user database does not answer: numbers are shown instead of names");
            }
            // Without a thread, what may wait is not asked.
            let own = question.filter(|_| self.lookup.lacks_thread());
            let answers = answers.into_iter().chain(own.map(|who| (who, in_file(who))));
            self.known
                .extend(answers.map(|(who, name)| (who, NameOrNumber::new(who, name))));
        }
        self.known.entry(who).or_insert_with(|| NameOrNumber::new(who, None))
    }
}

fn in_file(who: UserOrGroup) -> Option<Vec<u8>> {
    match who {
        _ if history::shown().is_some() => look_up(who),
        UserOrGroup::User(uid) => local_name("/etc/passwd", uid),
        UserOrGroup::Group(gid) => local_name("/etc/group", gid),
    }
}

fn look_up(who: UserOrGroup) -> Option<Vec<u8>> {
    if let Some(moment) = history::shown() {
        let name = match who {
            UserOrGroup::User(uid) => moment.name("user", uid),
            UserOrGroup::Group(gid) => moment.name("group", gid),
        };
        // A recording gives the number itself where there is no name.
        let is_name = |name: &&[u8]| !name.iter().all(u8::is_ascii_digit);
        return name.filter(is_name).map(<[u8]>::to_vec);
    }
    match who {
        UserOrGroup::User(uid) => users::user_name(uid),
        UserOrGroup::Group(gid) => users::group_name(gid),
    }
}

fn named_one(name: &[u8]) -> Named {
    Named::One(name.to_vec())
}

fn members(set: u64, name: impl Fn(usize) -> Cow<'static, str>) -> Named {
    let bits = (0..64).filter(|bit| set >> bit & 1 != 0);
    Named::Members(bits.map(name).collect())
}

#[cfg(test)]
mod tests {
    use taskdiag::Ids;

    use super::*;

    /// Check that sets become the names of their members, and that a number without a name has
    /// none.
    #[test]
    fn sets_become_names() {
        let mut names = Names::default();
        let members = |list: &[&'static str]| Some(Named::Members(list.iter().map(|&name| name.into()).collect()));
        let capabilities = Value::Mask(1 | 1 << 39 | 1 << 50);
        assert_eq!(
            names.of(NameKind::Capabilities, &capabilities),
            members(&["cap_chown", "cap_bpf", "cap_50"])
        );
        let signals = Value::Mask(1 | 1 << 14 | 1 << 63);
        assert_eq!(names.of(NameKind::Signals, &signals), members(&["HUP", "TERM", "RT64"]));
        let root = Some(Named::One(b"root".to_vec()));
        assert_eq!(names.of(NameKind::User, &Value::Unsigned(0)), root);
        assert_eq!(names.of(NameKind::Group, &Value::Unsigned(123_456_789)), None);
        let groups: Vec<u8> = [0, 123_456_789_u32].iter().flat_map(|gid| gid.to_ne_bytes()).collect();
        assert_eq!(
            names.of(NameKind::Groups, &Value::Ids(Ids::new(&groups))),
            members(&["root", "123456789"])
        );
        assert_eq!(names.user(0), b"root");
        assert_eq!(names.user(123_456_789), b"123456789");
        assert_eq!(names.user_name(123_456_789), None);
    }
}

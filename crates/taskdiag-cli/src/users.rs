//! Users and groups of this host, by name and by number. The user database may ask the network;
//! code that must not wait for it uses [`Names`](crate::output::names::Names).

use std::ffi::OsStr;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};

use crate::outcome::Failure;

/// The name of a user, if there is one.
pub fn user_name(uid: u32) -> Option<Vec<u8>> {
    Some(uzers::get_user_by_uid(uid)?.name().to_owned().into_vec())
}

/// The name of a group, if there is one.
pub fn group_name(gid: u32) -> Option<Vec<u8>> {
    Some(uzers::get_group_by_gid(gid)?.name().to_owned().into_vec())
}

/// The id of the user of this name.
pub fn user_named(name: &[u8]) -> Option<u32> {
    Some(uzers::get_user_by_name(OsStr::from_bytes(name))?.uid())
}

/// The id of the group of this name.
pub fn group_named(name: &[u8]) -> Option<u32> {
    Some(uzers::get_group_by_name(OsStr::from_bytes(name))?.gid())
}

/// The ids of users given by name or number.
pub fn users(names: &[String]) -> Result<Vec<u32>, Failure> {
    names.iter().map(|name| Ok(user(name)?)).collect()
}

/// The id of a user. A name comes before a number: a user may be called `1000`.
pub fn user(name: &str) -> Result<u32, String> {
    let id = user_named(name.as_bytes()).or_else(|| name.parse().ok());
    id.ok_or_else(|| format!("unknown user {name:?}\n`getent passwd` lists those of this host; a number also works"))
}

/// The id of a group, in the same way.
pub fn group(name: &str) -> Result<u32, String> {
    let id = group_named(name.as_bytes()).or_else(|| name.parse().ok());
    id.ok_or_else(|| format!("unknown group {name:?}\n`getent group` lists those of this host; a number also works"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that users have names and numbers.
    #[test]
    fn users_are_names_or_numbers() {
        let ids = users(&["root".to_owned(), "12345678".to_owned()]);
        assert_eq!(ids.expect("root is known"), [0, 12_345_678]);
        assert!(users(&["no such user".to_owned()]).is_err());
    }
}

//! Users and groups, from `/etc/passwd` and `/etc/group` (passwd(5), group(5)).

use std::fs;

use crate::quotas::Users;

/// The id of a group, given by its id or name.
pub fn group(name: &str) -> Option<u32> {
    if let Ok(id) = name.parse() {
        return Some(id);
    }
    let text = fs::read_to_string("/etc/group").ok()?;
    text.lines().find_map(|line| {
        let mut fields = line.split(':');
        (fields.next()? == name).then(|| fields.nth(1)?.parse().ok())?
    })
}

/// The ids of a user and its group, given by the user's name.
pub fn user(name: &str) -> Option<(u32, u32)> {
    let text = fs::read_to_string("/etc/passwd").ok()?;
    text.lines().find_map(|line| {
        let mut fields = line.split(':');
        let is_meant = fields.next()? == name;
        let (user, group) = (fields.nth(1)?.parse().ok()?, fields.next()?.parse().ok()?);
        is_meant.then_some((user, group))
    })
}

/// Whose account each id belongs to.
pub fn users() -> Users {
    let [passwd, subuid, nsswitch] = ["passwd", "subuid", "nsswitch.conf"]
        .map(|name| fs::read_to_string(format!("/etc/{name}")).unwrap_or_default());
    Users::parse(&passwd, &subuid, &nsswitch)
}

//! Lists in the options of ps(1).

use std::os::unix::fs::{FileTypeExt, MetadataExt};

use crate::users;

/// The members of a list, separated by commas or blanks.
fn members(list: &str) -> Result<impl Iterator<Item = &str>, String> {
    let is_blank = |list: &str| list.chars().all(|c| c == ',' || c.is_whitespace());
    if is_blank(list) {
        return Err("the list is empty".to_owned());
    }
    Ok(list
        .split(|c: char| c == ',' || c.is_whitespace())
        .filter(|member| !member.is_empty()))
}

/// Ids of processes or sessions.
pub(super) fn ids(list: &str) -> Result<Vec<u32>, String> {
    let id = |member: &str| match member.parse::<u32>() {
        Ok(id @ 1..) => Ok(id),
        _ => Err(format!("{member:?} is not an id: ids are numbers above 0")),
    };
    members(list)?.map(id).collect()
}

pub(super) fn users(list: &str) -> Result<Vec<u32>, String> {
    members(list)?.map(users::user).collect()
}

pub(super) fn groups(list: &str) -> Result<Vec<u32>, String> {
    members(list)?.map(users::group).collect()
}

pub(super) fn names(list: &str) -> Result<Vec<String>, String> {
    Ok(members(list)?.map(str::to_owned).collect())
}

pub(super) fn size(value: &str) -> Result<usize, String> {
    match value.parse() {
        Ok(size @ 1..) => Ok(size),
        _ => Err(format!("{value:?} is not a number above 0")),
    }
}

/// The device numbers of terminals, in the encoding of `/proc/PID/stat`.
pub(super) fn terminals(list: &str) -> Result<Vec<u32>, String> {
    members(list)?.map(terminal).collect()
}

/// The device number of a terminal, 0 for none.
pub fn terminal(name: &str) -> Result<u32, String> {
    if name == "-" || name == "?" {
        return Ok(0);
    }
    let paths = match name.strip_prefix("/dev/") {
        Some(name) => vec![format!("/dev/{name}")],
        // As in ps, `0` is pts/0 rather than tty0.
        None => vec![
            format!("/dev/pts/{name}"),
            format!("/dev/{name}"),
            format!("/dev/tty{name}"),
        ],
    };
    let device = paths.iter().find_map(|path| {
        let metadata = std::fs::metadata(path).ok()?;
        metadata.file_type().is_char_device().then(|| metadata.rdev())
    });
    match device {
        Some(device) => {
            let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
            Ok(minor & 0xff | major << 8 | (minor & !0xff) << 12)
        }
        None => Err(format!(
            "there is no terminal {name:?} here; others may be called pts/1, tty1 or /dev/ttyS0"
        )),
    }
}

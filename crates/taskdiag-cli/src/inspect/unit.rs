//! Compares the credentials that a systemd unit asks for with those that a process has.
//!
//! Pure, except for [`read`], which looks for the unit's files in the same places as systemd
//! (systemd.unit(5)).

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;

use taskdiag::{Absent, Known, Mask, Task};
use taskdiag_core::names;
use taskdiag_core::text::unit::{self, Setting};

use super::page::Cell;
use crate::file;
use crate::output::owned::OwnedValue;

/// The directories of system units, in order of precedence.
const SYSTEM: [&str; 12] = [
    "/etc/systemd/system.control",
    "/run/systemd/system.control",
    "/run/systemd/transient",
    "/run/systemd/generator.early",
    "/etc/systemd/system",
    "/run/systemd/system",
    "/run/systemd/generator",
    "/usr/local/lib/systemd/system",
    "/usr/lib/systemd/system",
    "/lib/systemd/system",
    "/run/systemd/generator.late",
    "/run/systemd/system.attached",
];

/// The directories of user units in order of precedence, without those in home directories.
const USER: [&str; 5] = [
    "/etc/systemd/user",
    "/run/systemd/user",
    "/usr/local/lib/systemd/user",
    "/usr/lib/systemd/user",
    "/usr/share/systemd/user",
];

/// A larger file is not taken for a settings file.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// The settings to compare. All are in the section `Service`, or in that of another type of unit
/// that has processes.
const SCALARS: [&str; 4] = ["User", "Group", "DynamicUser", "NoNewPrivileges"];
const LISTS: [&str; 3] = ["SupplementaryGroups", "CapabilityBoundingSet", "AmbientCapabilities"];

/// The settings of a unit and of its drop-ins, in the order in which they take effect. Absent if
/// the unit has no file.
pub fn read(name: &[u8], is_of_user: bool) -> Result<Vec<Setting>, Absent> {
    let directories: &[&str] = if is_of_user { &USER } else { &SYSTEM };
    let names: Vec<Vec<u8>> = std::iter::once(name.to_vec()).chain(unit::template(name)).collect();
    let mut settings = Vec::new();
    let main = names.iter().find_map(|name| {
        let paths = directories.iter().map(|directory| path(directory, name));
        paths.filter_map(|path| read_file(&path)).next()
    });
    let mut is_known = main.is_some();
    settings.extend(main.map(|text| unit::settings(&text)).unwrap_or_default());
    for path in drop_ins(&names, directories).into_values() {
        if let Some(text) = read_file(&path) {
            is_known = true;
            settings.extend(unit::settings(&text));
        }
    }
    if is_known {
        Ok(settings)
    } else {
        Err(Absent::Gone)
    }
}

fn path(directory: &str, name: &[u8]) -> PathBuf {
    PathBuf::from(directory).join(OsStr::from_bytes(name))
}

fn read_file(path: &PathBuf) -> Option<Vec<u8>> {
    // A masked unit is a link to /dev/null.
    let is_file = fs::metadata(path).ok()?.is_file();
    is_file.then(|| file::beginning(path, MAX_FILE_BYTES)).flatten()
}

/// The drop-ins of a unit by name, each with the path that takes precedence.
fn drop_ins(names: &[Vec<u8>], directories: &[&str]) -> BTreeMap<Vec<u8>, PathBuf> {
    let mut found = BTreeMap::new();
    for name in names.iter().flat_map(|name| unit::drop_in_names(name)) {
        for directory in directories {
            let Ok(entries) = fs::read_dir(path(directory, &name)) else {
                continue;
            };
            for entry in entries.flatten() {
                let file = entry.file_name().as_bytes().to_vec();
                if file.ends_with(b".conf") {
                    found.entry(file).or_insert_with(|| entry.path());
                }
            }
        }
    }
    found
}

/// The rows of the section. For each setting in the unit: what it asks for, what the process has,
/// and whether the two agree.
pub fn compare(settings: &[Setting], task: &Task<'_>) -> Vec<Vec<Cell>> {
    let mut rows = Vec::new();
    for key in SCALARS {
        let sections = [&b"Service"[..], b"Socket", b"Mount", b"Swap"];
        let asked = sections
            .iter()
            .find_map(|section| unit::last(settings, section, key.as_bytes()));
        if let Some(asked) = asked {
            rows.push(row(key, asked, scalar(key, asked, task)));
        }
    }
    for key in LISTS {
        if let Some(values) = unit::list(settings, b"Service", key.as_bytes()) {
            rows.push(row(key, &values.join(&b' '), list(key, &values, task)));
        }
    }
    rows
}

fn row(key: &str, asked: &[u8], compared: Known<Compared>) -> Vec<Cell> {
    let asked = [key.as_bytes(), asked].map(|text| Ok(OwnedValue::Text(text.into())));
    let (actual, agrees) = match compared {
        Ok((actual, agrees)) => (Ok(actual), agrees),
        Err(reason) => (Err(reason), Err(reason)),
    };
    let agrees = agrees.map(OwnedValue::Flag);
    let compared = [actual, agrees].map(|known| known.map_err(Absent::as_str));
    asked.into_iter().chain(compared).collect()
}

/// A value of the process, and whether it agrees with the setting.
type Compared = (OwnedValue, Known<bool>);

fn scalar(key: &str, asked: &[u8], task: &Task<'_>) -> Known<Compared> {
    let owner = |name: &[u8], id: u32| {
        let agrees = asked == name || asked == id.to_string().as_bytes();
        // Only systemd can resolve specifiers.
        let is_plain = !asked.contains(&b'%');
        Ok((
            OwnedValue::Text(name.into()),
            is_plain.then_some(agrees).ok_or(Absent::NotApplicable),
        ))
    };
    match key {
        "User" => owner(task.user()?, task.euid()?),
        "Group" => owner(task.group()?, task.egid()?),
        "NoNewPrivileges" => {
            let actual = task.no_new_privs()?;
            // Other settings may imply it.
            Ok((OwnedValue::Flag(actual), Ok(actual || !is_yes(asked))))
        }
        _ => Err(Absent::NotApplicable),
    }
}

fn is_yes(value: &[u8]) -> bool {
    [&b"1"[..], b"yes", b"y", b"true", b"t", b"on"]
        .iter()
        .any(|yes| value.eq_ignore_ascii_case(yes))
}

fn list(key: &str, asked: &[Vec<u8>], task: &Task<'_>) -> Known<Compared> {
    let Mask(actual) = match key {
        "CapabilityBoundingSet" => task.cap_bounding()?,
        "AmbientCapabilities" => task.cap_ambient()?,
        _ => return Err(Absent::NotApplicable),
    };
    // Other settings may remove capabilities, and the program may drop some. It never gains any.
    let agrees = unit::capabilities(asked)
        .map(|asked| actual & !asked == 0)
        .ok_or(Absent::NotApplicable);
    Ok((OwnedValue::Text(names_of(actual).into()), agrees))
}

/// The names of a set of capabilities, in the form that units use.
fn names_of(set: u64) -> String {
    let name = |bit: u32| match names::CAPABILITIES.get(bit as usize) {
        Some(name) => format!("CAP_{}", name.to_ascii_uppercase()),
        None => format!("CAP_{bit}"),
    };
    let members = (0..u64::BITS).filter(|bit| set >> bit & 1 != 0);
    members.map(name).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that sets have the names that units accept.
    #[test]
    fn sets_have_names() {
        assert_eq!(names_of(1 | 1 << 5), "CAP_CHOWN CAP_KILL");
        assert_eq!((names_of(0), names_of(1 << 63)), (String::new(), "CAP_63".to_owned()));
        let all = names_of(u64::MAX);
        assert_eq!(unit::capabilities(&[all.into_bytes()]), Some(u64::MAX));
    }

    /// Check which words mean yes.
    #[test]
    fn yes_has_several_words() {
        assert!(is_yes(b"yes") && is_yes(b"True") && !is_yes(b"no") && !is_yes(b""));
    }
}

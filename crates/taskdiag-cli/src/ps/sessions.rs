//! Sessions and machines of systemd, found through the path of a cgroup and files in
//! `/run/systemd`.

use std::collections::HashMap;
use std::fs;
use std::path::PathBuf;

use crate::file;

/// Reads each file once.
#[derive(Debug)]
pub struct Sessions {
    run: PathBuf,
    seats: HashMap<Vec<u8>, Option<Vec<u8>>>,
    machines: HashMap<Vec<u8>, Option<Vec<u8>>>,
}

/// The most bytes of a file to read.
const MAX_FILE_BYTES: u64 = 64 << 10;

impl Default for Sessions {
    fn default() -> Sessions {
        Sessions {
            run: "/run/systemd".into(),
            seats: HashMap::new(),
            machines: HashMap::new(),
        }
    }
}

impl Sessions {
    pub fn seat(&mut self, session: &[u8]) -> Option<&[u8]> {
        let run = &self.run;
        let seat = self.seats.entry(session.to_vec()).or_insert_with(|| {
            let path = run.join("sessions").join(std::str::from_utf8(session).ok()?);
            let text = file::beginning(&path, MAX_FILE_BYTES)?;
            let mut lines = text.split(|&byte| byte == b'\n');
            lines.find_map(|line| line.strip_prefix(b"SEAT=")).map(<[u8]>::to_vec)
        });
        seat.as_deref()
    }

    pub fn machine(&mut self, unit: &[u8]) -> Option<&[u8]> {
        let run = &self.run;
        let machine = self.machines.entry(unit.to_vec()).or_insert_with(|| {
            let unit = std::str::from_utf8(unit).ok()?;
            let target = fs::read_link(run.join("machines").join(format!("unit:{unit}"))).ok()?;
            Some(target.file_name()?.as_encoded_bytes().to_vec())
        });
        machine.as_deref()
    }
}

/// The id of the session whose scope contains a cgroup.
pub fn session(path: &[u8]) -> Option<&[u8]> {
    let mut ids = path
        .split(|&byte| byte == b'/')
        .filter_map(|name| between(name, b"session-", b".scope"));
    // The id becomes part of a file name.
    let is_id = |id: &&[u8]| id.iter().all(u8::is_ascii_alphanumeric);
    ids.next_back().filter(is_id)
}

fn between<'a>(name: &'a [u8], prefix: &[u8], suffix: &[u8]) -> Option<&'a [u8]> {
    let middle = name.strip_prefix(prefix)?.strip_suffix(suffix)?;
    (!middle.is_empty()).then_some(middle)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check which part of a path is the id of a session.
    #[test]
    fn paths_name_sessions() {
        let login = b"/user.slice/user-1000.slice/session-3.scope";
        assert_eq!(session(login), Some(b"3" as &[u8]));
        for path in [
            b"/user.slice/user-7.slice/user@7.service/app.slice/x.service" as &[u8],
            b"/",
            b"",
            b"/session-.scope",
            b"/session-..%.scope",
            b"/session-../x.scope",
        ] {
            assert_eq!(session(path), None, "{path:?}");
        }
    }

    /// Check that seats and machines are found in their files, and that missing files give none.
    #[test]
    fn files_say_the_rest() {
        let run = std::env::temp_dir().join(format!("taskdiag-sessions-{}", std::process::id()));
        fs::create_dir_all(run.join("sessions")).expect("a directory");
        fs::create_dir_all(run.join("machines")).expect("a directory");
        fs::write(run.join("sessions/c1"), "# a comment\nUID=0\nSEAT=seat0\n").expect("a file");
        fs::write(run.join("sessions/2"), "UID=0\n").expect("a file");
        let link = run.join("machines/unit:machine-a.scope");
        let _ = fs::remove_file(&link);
        std::os::unix::fs::symlink("a", &link).expect("a link");
        let mut sessions = Sessions {
            run: run.clone(),
            ..Sessions::default()
        };
        assert_eq!(sessions.seat(b"c1"), Some(b"seat0" as &[u8]));
        assert_eq!(sessions.seat(b"2"), None);
        assert_eq!(sessions.seat(b"3"), None);
        assert_eq!(sessions.machine(b"machine-a.scope"), Some(b"a" as &[u8]));
        assert_eq!(sessions.machine(b"machine-b.scope"), None);
        fs::remove_dir_all(&run).expect("it is ours");
        assert_eq!(sessions.seat(b"c1"), Some(b"seat0" as &[u8]), "it is known");
    }
}

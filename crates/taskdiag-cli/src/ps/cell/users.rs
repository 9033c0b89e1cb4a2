//! Cells of users, groups, login sessions and terminals.

use taskdiag::{Field, Kind, Value};
use taskdiag_core::cgroup;

use super::{plain, Cell};
use crate::output::people;
use crate::ps::host::Host;
use crate::ps::sessions;

impl Cell<'_> {
    /// A user by name.
    pub fn user(&mut self, field: Field) {
        self.named(field, Kind::User);
    }

    /// A group by name.
    pub fn group(&mut self, field: Field) {
        self.named(field, Kind::GroupId);
    }

    fn named(&mut self, field: Field, kind: Kind) {
        let number = self.unsigned(field);
        self.write_or_dash(number, |cell, number| cell.name_of(kind, number as u32));
    }

    pub(super) fn name_of(&mut self, kind: Kind, number: u32) {
        let Host { names, is_utf8, .. } = self.host;
        match kind {
            _ if self.host.modifiers.numeric => people::number(self.out, number),
            Kind::User => plain(self.out, names.user(number), *is_utf8),
            _ => plain(self.out, names.group(number), *is_utf8),
        }
    }

    /// The supplementary groups by number.
    pub fn group_ids(&mut self) {
        self.each_group(|cell, id| people::number(cell.out, id));
    }

    /// The supplementary groups by name.
    pub fn group_names(&mut self) {
        self.each_group(|cell, id| cell.name_of(Kind::GroupId, id));
    }

    fn each_group(&mut self, write: impl Fn(&mut Self, u32)) {
        let start = self.out.len();
        if let Ok(Value::Ids(ids)) = self.value(Field::Groups) {
            for id in ids.iter() {
                if self.out.len() > start {
                    self.out.push(b',');
                }
                write(self, id);
            }
        }
        if self.out.len() == start {
            self.dash();
        }
    }

    /// The user who logged in.
    pub fn login_user(&mut self) {
        match self.unsigned(Field::Loginuid) {
            Ok(uid) if uid != u64::from(u32::MAX) => people::number(self.out, uid),
            _ => self.dash(),
        }
    }

    /// The controlling terminal.
    pub fn terminal(&mut self) {
        match self.value(Field::Tty) {
            Ok(Value::Text(name)) if !name.is_empty() => self.plain(name),
            _ => self.out.push(b'?'),
        }
    }

    /// The controlling terminal without `pts/` or `tty`.
    pub fn short_terminal(&mut self) {
        let start = self.out.len();
        self.terminal();
        for prefix in ["pts/", "tty"] {
            if self.out[start..].starts_with(prefix.as_bytes()) {
                self.out.drain(start..start + prefix.len());
            }
        }
    }

    /// The login session, from systemd.
    pub fn login_session(&mut self) {
        let session = self.of_cgroup(sessions::session);
        self.text_or_dash(session);
    }

    /// The user of the login session.
    pub fn session_owner(&mut self) {
        match self.of_cgroup(cgroup::owner) {
            Some(uid) => people::number(self.out, uid),
            None => self.dash(),
        }
    }

    /// The seat of the login session.
    pub fn seat(&mut self) {
        let session = self.of_cgroup(sessions::session);
        let seat = session.and_then(|session| self.host.sessions.seat(session).map(<[u8]>::to_vec));
        self.text_or_dash(seat.as_deref());
    }
}

//! TCP's information about connections.
//!
//! To provide it, the kernel takes the lock of each socket, and a process holds that lock while it
//! sends from memory that a file system does not deliver. If a list with it does not end, the list is
//! requested without it, and it is requested socket by socket.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::ControlFlow;

use taskdiag_core::absent::Absent;
use taskdiag_core::socket::diag::{self, List};
use taskdiag_core::socket::{Socket, State, TcpInfo};
use taskdiag_sys::isolated::Failed;

use super::dump::{Dumper, SocketSelection};
use super::namespaces::Namespace;

/// The maximum number of sockets of a list that may block a request. Each costs a process.
const MAX_SILENT: usize = 4;

/// TCP's information about the connections of a list that does not end with it.
#[derive(Debug)]
pub(super) struct Infos {
    /// What was reported for each socket. `None`: the kernel reports nothing about a socket that is
    /// only bound, or is no full socket any more.
    by_cookie: HashMap<u64, Option<TcpInfo>>,
    /// Why the others are missing.
    missing: Absent,
}

impl Infos {
    /// Of no connection.
    pub(super) fn none(missing: Absent) -> Infos {
        Infos {
            by_cookie: HashMap::new(),
            missing,
        }
    }

    /// Asks about the sockets of a list, but for those with these cookies. Afterwards the namespace is
    /// entered again, unless it does not answer at all.
    pub(super) fn one_by_one(
        dumper: &mut Dumper,
        list: List,
        which: SocketSelection<'_>,
        namespace: &Namespace,
        seen: &HashSet<u64>,
    ) -> Infos {
        let mut infos = Infos::none(Absent::NoAnswer);
        if dumper.enter(namespace).is_err() {
            return infos;
        }
        let mut requests = BTreeMap::new();
        // If it does not end here, it does not end at all.
        let _ = dumper.dump(list, which, false, |_, socket, payload| {
            if !seen.contains(&socket.cookie) {
                requests.extend(diag::info_request(list, payload).map(|request| (socket.cookie, request)));
            }
            ControlFlow::Continue(())
        });
        let mut silent = 0;
        for request in requests.into_values() {
            let asked = dumper.ask_about_one(list, &request, |socket| infos.add(&socket));
            if asked == Err(Failed::Silent) {
                silent += 1;
                if dumper.enter(namespace).is_err() || silent == MAX_SILENT {
                    break;
                }
            }
        }
        infos
    }

    fn add(&mut self, socket: &Socket<'_>) {
        self.by_cookie.insert(socket.cookie, socket.info.ok().flatten());
    }

    /// TCP's information about a socket of the list.
    pub(super) fn of(&self, socket: &Socket<'_>) -> Result<Option<TcpInfo>, Absent> {
        match self.by_cookie.get(&socket.cookie) {
            Some(told) => Ok(*told),
            // The kernel has nothing about these, so nothing is missing.
            None if matches!(socket.state, State::Listen | State::TimeWait | State::Unconn) => Ok(None),
            None => Err(self.missing),
        }
    }
}

//! TCP's information about connections.
//!
//! To provide it, the kernel takes the lock of each socket, and a process holds that lock while it
//! sends from memory that a file system does not deliver. So this information comes in a list of
//! its own. If that list does not end, the sockets are requested one by one.

use std::collections::{BTreeMap, HashMap};
use std::ops::ControlFlow;

use taskdiag_core::absent::Absent;
use taskdiag_core::socket::diag::{self, List};
use taskdiag_core::socket::{Socket, State, TcpInfo};
use taskdiag_sys::isolated::Failed;

use super::dump::{Dumper, End, SocketSelection};
use super::namespaces::Namespace;

/// The maximum number of sockets of a list that may block a request. Each costs a process.
const MAX_SILENT: usize = 4;

/// TCP's information about the connections of a list.
#[derive(Debug, Default)]
pub(super) struct Infos {
    /// What was reported for each socket. `None`: the kernel reports nothing about a socket that is
    /// only bound, or is no full socket any more.
    by_cookie: HashMap<u64, Option<TcpInfo>>,
    /// Why some are missing.
    missing: Option<Absent>,
}

impl Infos {
    /// Reads TCP's information about the sockets of a list. Afterwards the namespace is entered
    /// again in any case, unless it does not answer at all.
    pub(super) fn read(dumper: &mut Dumper, list: List, which: SocketSelection<'_>, namespace: &Namespace) -> Infos {
        let mut infos = Infos::default();
        if dumper.errands.is_here() {
            infos.missing = Some(Absent::NoThread);
            return infos;
        }
        let end = dumper.dump(list, which, true, |_, socket, _| {
            infos.add(&socket);
            ControlFlow::Continue(())
        });
        if end == ControlFlow::Continue(End::Silent) {
            infos.missing = Some(Absent::NoAnswer);
            infos.read_one_by_one(dumper, list, which, namespace);
        }
        infos
    }

    fn read_one_by_one(&mut self, dumper: &mut Dumper, list: List, which: SocketSelection<'_>, namespace: &Namespace) {
        if dumper.enter(namespace).is_err() {
            return;
        }
        let mut requests = BTreeMap::new();
        // If it does not end here, it does not end at all.
        let _ = dumper.dump(list, which, false, |_, socket, payload| {
            if !self.by_cookie.contains_key(&socket.cookie) {
                requests.extend(diag::info_request(list, payload).map(|request| (socket.cookie, request)));
            }
            ControlFlow::Continue(())
        });
        let mut silent = 0;
        for request in requests.into_values() {
            let asked = dumper.ask_about_one(list, &request, |socket| self.add(&socket));
            if asked == Err(Failed::Silent) {
                silent += 1;
                if dumper.enter(namespace).is_err() || silent == MAX_SILENT {
                    return;
                }
            }
        }
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
            // The socket did not exist yet.
            None => Err(self.missing.unwrap_or(Absent::Gone)),
        }
    }
}

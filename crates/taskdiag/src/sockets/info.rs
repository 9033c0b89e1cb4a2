//! What TCP knows of connections.
//!
//! The kernel takes the lock of each socket to tell, and a process keeps that lock as long as it
//! sends from memory that a file system does not deliver. So this comes in a list of its own. If
//! that does not come to its end, the sockets are asked about one by one.

use std::collections::{BTreeMap, HashMap};
use std::ops::ControlFlow;

use taskdiag_core::absent::Absent;
use taskdiag_core::socket::diag::{self, List};
use taskdiag_core::socket::{Socket, TcpInfo};
use taskdiag_sys::isolated::Failed;

use super::dump::{Dumper, End, Which};
use super::namespaces::Namespace;

/// So many sockets of a list may keep who asks about them. Each of them costs a process.
const MOST_SILENT: usize = 4;

/// What TCP knows of the connections of a list.
#[derive(Debug, Default)]
pub(super) struct Infos {
    /// What was told of each socket. `None`: the kernel has nothing to tell of one that is only
    /// bound, or no whole socket any more.
    by_cookie: HashMap<u64, Option<TcpInfo>>,
    /// There was no answer about some.
    is_silent: bool,
}

impl Infos {
    /// Reads what TCP knows of the sockets of a list. Whatever happens, the namespace is entered
    /// afterwards, or does not answer at all.
    pub(super) fn read(dumper: &mut Dumper, list: List, which: Which<'_>, namespace: &Namespace) -> Infos {
        let mut infos = Infos::default();
        let end = dumper.dump(list, which, true, |_, socket, _| {
            infos.add(&socket);
            ControlFlow::Continue(())
        });
        if end == ControlFlow::Continue(End::Silent) {
            infos.is_silent = true;
            infos.read_one_by_one(dumper, list, which, namespace);
        }
        infos
    }

    fn read_one_by_one(&mut self, dumper: &mut Dumper, list: List, which: Which<'_>, namespace: &Namespace) {
        if dumper.enter(namespace).is_err() {
            return;
        }
        let mut requests = BTreeMap::new();
        // What does not come to its end here does not come at all.
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
                if dumper.enter(namespace).is_err() || silent == MOST_SILENT {
                    return;
                }
            }
        }
    }

    fn add(&mut self, socket: &Socket<'_>) {
        self.by_cookie.insert(socket.cookie, socket.info.ok().flatten());
    }

    /// What TCP knows of a socket of the list.
    pub(super) fn of(&self, socket: &Socket<'_>) -> Result<Option<TcpInfo>, Absent> {
        match self.by_cookie.get(&socket.cookie) {
            Some(told) => Ok(*told),
            None if self.is_silent => Err(Absent::NoAnswer),
            // It did not exist yet.
            None => Err(Absent::Gone),
        }
    }
}

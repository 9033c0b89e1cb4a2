//! Lists of sockets, from the kernel.

use std::ffi::{CStr, CString};
use std::ops::ControlFlow;
use std::time::Duration;

use rustix::io::Errno;
use taskdiag_core::absent::Absent;
use taskdiag_core::set::Set;
use taskdiag_core::socket::diag::{self, List, Message, Messages};
use taskdiag_core::socket::{Family, Socket, State};
use taskdiag_core::text::net;
use taskdiag_sys::host::kernel_version;
use taskdiag_sys::isolated::{Failed, Work};

use super::namespaces::Namespace;
use super::work;
use crate::errands::{self, Errands};
use crate::source::procfs::is_exhausted;

/// After this many denied ways into namespaces, no more are tried.
const MAX_DENIED: usize = 4;

/// Which sockets of a list to request from the kernel.
#[derive(Clone, Copy, Debug)]
pub(super) struct SocketSelection<'a> {
    pub(super) states: Set<State>,
    /// Ports at either end; all if there are none.
    pub(super) ports: &'a [u16],
}

/// How a list ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// It is complete.
    Whole,
    /// The kernel has no such list.
    Unsupported,
    /// The kernel refused, or the list is truncated.
    Failed,
    /// It did not answer in time.
    Silent,
}

/// The outcome of one attempt to get a list.
#[derive(Clone, Copy, Debug)]
struct Attempt {
    end: End,
    /// It came in more than one part.
    has_parts: bool,
    /// The kernel reported that the list may be incomplete.
    is_interrupted: bool,
}

/// The maximum number of attempts for a list that the kernel keeps reporting as incomplete.
const MAX_ATTEMPTS: u32 = 4;

/// Requests a list until it is complete: whatever existed all the time was in one of the attempts.
/// The closure passes on sockets, some of them again in another attempt. Returns the end, and
/// whether the kernel reported every attempt as incomplete.
fn until_whole(list: List, mut attempt: impl FnMut() -> ControlFlow<(), Attempt>) -> ControlFlow<(), (End, bool)> {
    let mut is_interrupted = true;
    for count in 1.. {
        let last = attempt()?;
        is_interrupted &= last.is_interrupted;
        // Such a list may skip sockets without a report.
        let may_skip = list.is_of_chains() && last.has_parts;
        let is_enough = count == MAX_ATTEMPTS || !is_interrupted && (count > 1 || !may_skip);
        if is_enough || last.end != End::Whole {
            return ControlFlow::Continue((last.end, is_interrupted && last.end == End::Whole));
        }
    }
    unreachable!("there is a last attempt")
}

/// Requests lists from the kernel, in one namespace after the other.
pub(super) struct Dumper {
    pub(super) errands: Errands,
    datagram: Vec<u8>,
    /// The inode number of the socket that sends requests.
    asking: Option<u64>,
    pub(super) malformed: u64,
    /// Lists that may be incomplete.
    pub(super) interrupted: u64,
    /// The kernel remembers who created a socket that has no file. Before Linux 6.17 it reports user
    /// 0 instead.
    remembers_users: bool,
    /// A list without TCP's information waits for no other (Linux 6.9).
    lists_wait_for_nobody: bool,
}

impl Dumper {
    pub(super) fn new(patience: Duration) -> Dumper {
        let is_since = |version| kernel_version().is_some_and(|own| own >= version);
        Dumper {
            errands: Errands::new(patience),
            datagram: Vec::new(),
            asking: None,
            malformed: 0,
            interrupted: 0,
            remembers_users: is_since((6, 17)),
            lists_wait_for_nobody: is_since((6, 9)),
        }
    }

    /// Enters a namespace by the first of its ways that still leads there.
    pub(super) fn enter(&mut self, namespace: &Namespace) -> Result<(), Failed> {
        if namespace.is_own {
            let entered = self.enter_by(namespace, b"", 0);
            if entered != Err(Errno::AGAIN.into()) || !self.lists_wait_for_nobody {
                return entered;
            }
            // No process can be started.
            self.errands.stay_here();
            return self.enter_by(namespace, b"", 0);
        }
        if self.errands.is_here() {
            return Err(Errno::AGAIN.into());
        }
        if let Some((pid, fd)) = namespace.socket {
            return self.enter_by(namespace, b"", work::socket_number(pid, fd));
        }
        let (mut denied, mut result) = (0, Err(Errno::SRCH.into()));
        for way in &namespace.ways {
            match self.enter_by(namespace, way, 0) {
                Err(Failed::Errno(errno)) if is_exhausted(errno) => return Err(errno.into()),
                entered @ (Ok(()) | Err(Failed::Silent)) => return entered,
                Err(Failed::Errno(errno @ (Errno::ACCESS | Errno::PERM))) => {
                    denied += 1;
                    result = Err(errno.into());
                }
                // The way does not lead there any more.
                Err(Failed::Errno(_)) => {}
            }
            if denied == MAX_DENIED {
                break;
            }
        }
        result
    }

    /// The inode number of the network namespace of a process's socket with this inode number.
    pub(super) fn namespace_of(&mut self, inode: u64, pid: u32, fd: u32) -> Result<u64, Failed> {
        let numbers = [work::socket_number(pid, fd), inode, 0];
        let found = self.errands.run(work::namespace, numbers, c"", None)?;
        let [namespace] = errands::numbers(found).ok_or(Errno::IO)?;
        Ok(namespace)
    }

    fn enter_by(&mut self, namespace: &Namespace, way: &[u8], socket: u64) -> Result<(), Failed> {
        let path = CString::new(way).map_err(|_| Errno::NOENT)?;
        let numbers = [namespace.device, namespace.inode, socket];
        let entered = self.errands.run(work::enter, numbers, &path, None)?;
        let [inode] = errands::numbers(entered).ok_or(Errno::IO)?;
        self.asking = Some(inode);
        Ok(())
    }

    /// The inode numbers of the sockets that were made for requests.
    pub(super) fn own(&self) -> Vec<u64> {
        self.asking.into_iter().chain(self.errands.own_socket()).collect()
    }

    /// Whether the kernel counts no socket in the namespace but the one that sends requests. Its own
    /// sockets of netlink(7) are in no count. Fails only if the process that had entered is lost.
    pub(super) fn is_alone(&mut self) -> Result<bool, Failed> {
        for (name, without) in [(c"sockstat", false), (c"sockstat6", true)] {
            let is_alone = match self.text(name) {
                Ok(text) => net::has_one_socket(&text),
                Err(Failed::Silent) => return Err(Failed::Silent),
                // There may be no IPv6.
                Err(Failed::Errno(errno)) => without && errno == Errno::NOENT,
            };
            if !is_alone {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The text of a file in `/proc/net` of the namespace.
    fn text(&mut self, name: &CStr) -> Result<Vec<u8>, Failed> {
        let mut text = Vec::new();
        let mut begins = 1;
        loop {
            self.take(work::text, [begins, 0, 0], name)?;
            if self.datagram.is_empty() {
                return Ok(text);
            }
            text.extend_from_slice(&self.datagram);
            begins = 0;
        }
    }

    /// Passes on the sockets of a list that exists only as text in `/proc/net`.
    pub(super) fn dump_text(
        &mut self,
        list: List,
        mut each: impl FnMut(&mut Errands, Socket<'_>) -> ControlFlow<()>,
    ) -> ControlFlow<(), End> {
        let name = match list.family {
            Family::Inet => c"raw",
            _ => c"raw6",
        };
        let text = match self.text(name) {
            Ok(text) => text,
            Err(Failed::Silent) => return ControlFlow::Continue(End::Silent),
            Err(Failed::Errno(Errno::NOENT)) => return ControlFlow::Continue(End::Unsupported),
            Err(Failed::Errno(_)) => return ControlFlow::Continue(End::Failed),
        };
        // The first line has the names of the columns.
        for line in text
            .split(|&byte| byte == b'\n')
            .skip(1)
            .filter(|line| !line.is_empty())
        {
            match net::raw(list.family, line) {
                Some(socket) => each(&mut self.errands, socket)?,
                None => self.malformed += 1,
            }
        }
        ControlFlow::Continue(End::Whole)
    }

    /// Passes on the sockets of a list, each with the bytes of its message. If the list is
    /// requested again, most of them are passed on again.
    pub(super) fn dump(
        &mut self,
        list: List,
        which: SocketSelection<'_>,
        with_info: bool,
        mut each: impl FnMut(&mut Errands, Socket<'_>, &[u8]) -> ControlFlow<()>,
    ) -> ControlFlow<(), End> {
        let (end, is_interrupted) = until_whole(list, || self.dump_once(list, which, with_info, &mut each))?;
        self.interrupted += u64::from(is_interrupted);
        ControlFlow::Continue(end)
    }

    fn dump_once(
        &mut self,
        list: List,
        which: SocketSelection<'_>,
        with_info: bool,
        each: &mut impl FnMut(&mut Errands, Socket<'_>, &[u8]) -> ControlFlow<()>,
    ) -> ControlFlow<(), Attempt> {
        let request = diag::request(list, which.states, which.ports, with_info);
        let mut received = self.take(work::ask, [0; 3], &work::in_digits(&request));
        let (mut parts, mut is_interrupted) = (0_u64, false);
        let end = loop {
            match received {
                Ok(()) => {}
                Err(Failed::Silent) => break End::Silent,
                Err(Failed::Errno(_)) => break End::Failed,
            }
            let part = self.deliver(list, each)?;
            parts += u64::from(part.has_sockets);
            is_interrupted |= part.is_interrupted;
            if let Some(end) = part.end {
                break end;
            }
            received = self.take(work::next, [0; 3], c"");
        };
        ControlFlow::Continue(Attempt {
            end,
            has_parts: parts > 1,
            is_interrupted,
        })
    }

    /// Requests one socket. `None` if it does not exist any more.
    pub(super) fn ask_about_one(
        &mut self,
        list: List,
        request: &[u8],
        mut each: impl FnMut(Socket<'_>),
    ) -> Result<(), Failed> {
        self.take(work::ask, [0; 3], &work::in_digits(request))?;
        let _ = self.deliver(list, &mut |_, socket, _| {
            each(socket);
            ControlFlow::Continue(())
        });
        Ok(())
    }

    /// Runs an errand, and keeps its result.
    fn take(&mut self, work: Work, numbers: [u64; 3], path: &CStr) -> Result<(), Failed> {
        let bytes = self.errands.run(work, numbers, path, None)?;
        self.datagram.clear();
        self.datagram.extend_from_slice(bytes);
        Ok(())
    }

    /// Passes on the sockets of the datagram.
    fn deliver(
        &mut self,
        list: List,
        each: &mut impl FnMut(&mut Errands, Socket<'_>, &[u8]) -> ControlFlow<()>,
    ) -> ControlFlow<(), Datagram> {
        let mut messages = Messages::new(&self.datagram);
        let mut part = Datagram::default();
        for message in messages.by_ref() {
            match message {
                Message::Socket(payload) => {
                    part.has_sockets = true;
                    match diag::socket(list, payload) {
                        Some(mut socket) => {
                            if !self.remembers_users && socket.inode.is_none() && socket.uid == Ok(0) {
                                socket.uid = Err(Absent::Unsupported);
                            }
                            each(&mut self.errands, socket, payload)?;
                        }
                        None => self.malformed += 1,
                    }
                }
                Message::Done(None) | Message::Error(0) => part.end = Some(End::Whole),
                Message::Done(Some(code)) | Message::Error(code) => part.end = Some(End::of(code)),
                Message::Overrun => part.is_interrupted = true,
                Message::Malformed => self.malformed += 1,
                Message::Other => {}
            }
        }
        part.is_interrupted |= messages.is_interrupted;
        // The kernel sends no empty datagram: nothing would follow.
        if self.datagram.is_empty() {
            part.end = Some(End::Failed);
        }
        ControlFlow::Continue(part)
    }
}

/// The contents of a datagram of a list.
#[derive(Clone, Copy, Debug, Default)]
struct Datagram {
    has_sockets: bool,
    is_interrupted: bool,
    /// How the list ends, if it does.
    end: Option<End>,
}

impl End {
    fn of(code: i32) -> End {
        match Errno::from_raw_os_error(code) {
            Errno::NOENT | Errno::PROTONOSUPPORT | Errno::OPNOTSUPP | Errno::AFNOSUPPORT => End::Unsupported,
            _ => End::Failed,
        }
    }
}

/// The names of the network interfaces of a namespace that were requested so far.
#[derive(Debug, Default)]
pub(super) struct Interfaces(Vec<(u32, Result<Vec<u8>, Absent>)>);

impl Interfaces {
    pub(super) fn name(&mut self, errands: &mut Errands, index: u32) -> Result<&[u8], Absent> {
        let known = self.0.iter().position(|(other, _)| *other == index);
        let at = known.unwrap_or_else(|| {
            let name = errands.run(work::interface, [index.into(), 0, 0], c"", None);
            self.0.push((index, name.map(<[u8]>::to_vec).map_err(errands::absent)));
            self.0.len() - 1
        });
        self.0[at].1.as_deref().map_err(|reason| *reason)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The outcome of attempts like these, and how many were made.
    fn until_whole_of(list: List, attempts: &[(End, bool, bool)]) -> (u32, End, bool) {
        let mut made = 0;
        let ended = until_whole(list, || {
            let (end, has_parts, is_interrupted) = attempts[(made as usize).min(attempts.len() - 1)];
            made += 1;
            ControlFlow::Continue(Attempt {
                end,
                has_parts,
                is_interrupted,
            })
        });
        let ControlFlow::Continue((end, is_interrupted)) = ended else {
            unreachable!("no attempt breaks")
        };
        (made, end, is_interrupted)
    }

    /// Check that a list is requested again while the kernel reports it as incomplete, that this
    /// ends, that one complete attempt is enough, and that lists of long chains are requested
    /// twice.
    #[test]
    fn lists_are_asked_for_until_they_are_whole() {
        let list = |protocol: i32| List {
            family: taskdiag_core::socket::Family::Inet,
            protocol: protocol as u16,
        };
        let (tcp, udp) = (list(libc::IPPROTO_TCP), list(libc::IPPROTO_UDP));
        let (whole, interrupted) = ((End::Whole, true, false), (End::Whole, true, true));
        for (list, attempts, expected) in [
            (tcp, &[whole][..], (1, End::Whole, false)),
            (tcp, &[interrupted, whole], (2, End::Whole, false)),
            (tcp, &[interrupted], (MAX_ATTEMPTS, End::Whole, true)),
            (tcp, &[interrupted, (End::Failed, false, true)], (2, End::Failed, false)),
            (tcp, &[(End::Silent, false, false)], (1, End::Silent, false)),
            (udp, &[whole], (2, End::Whole, false)),
            (udp, &[(End::Whole, false, false)], (1, End::Whole, false)),
            (udp, &[whole, interrupted], (2, End::Whole, false)),
            (udp, &[interrupted], (MAX_ATTEMPTS, End::Whole, true)),
            (udp, &[(End::Unsupported, false, false)], (1, End::Unsupported, false)),
        ] {
            assert_eq!(until_whole_of(list, attempts), expected, "{list:?} {attempts:?}");
        }
    }
}

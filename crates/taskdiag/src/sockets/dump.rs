//! Lists of sockets, from the kernel.

use std::ffi::{CStr, CString};
use std::ops::ControlFlow;
use std::time::Duration;

use rustix::io::Errno;
use taskdiag_core::absent::Absent;
use taskdiag_core::socket::diag::{self, List, Message, Messages};
use taskdiag_core::socket::{Socket, States};
use taskdiag_core::text::net;
use taskdiag_sys::isolated::{Failed, Work};

use super::namespaces::Namespace;
use super::work;
use crate::errands::{self, Errands};
use crate::source::procfs::is_exhausted;

/// So many ways to a namespace may be denied before none is tried any more.
const MOST_DENIED: usize = 4;

/// How a list ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// It is whole.
    Whole,
    /// The kernel has no such list.
    Unsupported,
    /// The kernel refused, or the list is cut off.
    Failed,
    /// It did not answer in time.
    Silent,
}

/// Asks the kernel, in one namespace after the other.
pub(super) struct Dumper {
    pub(super) errands: Errands,
    datagram: Vec<u8>,
    /// The inode number of the socket that asks.
    asking: Option<u64>,
    pub(super) malformed: u64,
    pub(super) interrupted: u64,
    /// In how many parts the last list came.
    pub(super) parts: u64,
}

impl Dumper {
    pub(super) fn new(patience: Duration) -> Dumper {
        Dumper {
            errands: Errands::new(patience),
            datagram: Vec::new(),
            asking: None,
            malformed: 0,
            interrupted: 0,
            parts: 0,
        }
    }

    /// Enters a namespace, by the first of its ways that leads there.
    pub(super) fn enter(&mut self, namespace: &Namespace) -> Result<(), Failed> {
        if namespace.is_own {
            return self.enter_by(namespace, b"");
        }
        let (mut denied, mut result) = (0, Err(Errno::SRCH.into()));
        for way in &namespace.ways {
            match self.enter_by(namespace, way) {
                Err(Failed::Errno(errno)) if is_exhausted(errno) => return Err(errno.into()),
                entered @ (Ok(()) | Err(Failed::Silent)) => return entered,
                Err(Failed::Errno(errno @ (Errno::ACCESS | Errno::PERM))) => {
                    denied += 1;
                    result = Err(errno.into());
                }
                // It does not lead there any more.
                Err(Failed::Errno(_)) => {}
            }
            if denied == MOST_DENIED {
                break;
            }
        }
        result
    }

    fn enter_by(&mut self, namespace: &Namespace, way: &[u8]) -> Result<(), Failed> {
        let path = CString::new(way).map_err(|_| Errno::NOENT)?;
        let numbers = [namespace.device, namespace.inode, 0];
        let entered = self.errands.run(work::enter, numbers, &path, None)?;
        let [inode] = errands::numbers(entered).ok_or(Errno::IO)?;
        self.asking = Some(inode);
        Ok(())
    }

    /// The inode numbers of the sockets that were made to ask.
    pub(super) fn own(&self) -> Vec<u64> {
        self.asking.into_iter().chain(self.errands.own_socket()).collect()
    }

    /// Passes on the sockets of a list that `/proc/net` has as text.
    pub(super) fn dump_text(
        &mut self,
        list: List,
        mut each: impl FnMut(&mut Errands, Socket<'_>) -> ControlFlow<()>,
    ) -> ControlFlow<(), End> {
        let mut text = Vec::new();
        let mut begins = 1;
        loop {
            match self.take(work::text, [list.family as u64, begins, 0], c"") {
                Ok(()) if self.datagram.is_empty() => break,
                Ok(()) => text.extend_from_slice(&self.datagram),
                Err(Failed::Silent) => return ControlFlow::Continue(End::Silent),
                Err(Failed::Errno(Errno::NOENT)) => return ControlFlow::Continue(End::Unsupported),
                Err(Failed::Errno(_)) => return ControlFlow::Continue(End::Failed),
            }
            begins = 0;
        }
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

    /// Passes on the sockets of a list, each with the bytes of its message.
    pub(super) fn dump(
        &mut self,
        list: List,
        states: States,
        with_info: bool,
        mut each: impl FnMut(&mut Errands, Socket<'_>, &[u8]) -> ControlFlow<()>,
    ) -> ControlFlow<(), End> {
        self.parts = 0;
        let numbers = [work::packed(list, with_info), states.bits().into(), 0];
        let mut received = self.take(work::start, numbers, c"");
        loop {
            match received {
                Ok(()) => {}
                Err(Failed::Silent) => return ControlFlow::Continue(End::Silent),
                Err(Failed::Errno(_)) => return ControlFlow::Continue(End::Failed),
            }
            if let Some(end) = self.deliver(list, &mut each)? {
                return ControlFlow::Continue(end);
            }
            received = self.take(work::next, [0; 3], c"");
        }
    }

    /// Asks about one socket, by a request. `None` if it does not exist any more.
    pub(super) fn ask_about_one(
        &mut self,
        list: List,
        request: &[u8],
        mut each: impl FnMut(Socket<'_>),
    ) -> Result<(), Failed> {
        let digits: String = request.iter().map(|byte| format!("{byte:02x}")).collect();
        let digits = CString::new(digits).map_err(|_| Failed::Errno(Errno::INVAL))?;
        self.take(work::ask_about_one, [0; 3], &digits)?;
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

    /// Passes on the sockets of the datagram. Returns how the list ends, if it does.
    fn deliver(
        &mut self,
        list: List,
        each: &mut impl FnMut(&mut Errands, Socket<'_>, &[u8]) -> ControlFlow<()>,
    ) -> ControlFlow<(), Option<End>> {
        let mut messages = Messages::new(&self.datagram);
        let (mut end, mut has_sockets) = (None, false);
        for message in messages.by_ref() {
            has_sockets |= matches!(message, Message::Socket(_));
            match message {
                Message::Socket(payload) => match diag::socket(list, payload) {
                    Some(socket) => each(&mut self.errands, socket, payload)?,
                    None => self.malformed += 1,
                },
                Message::Done(None) | Message::Error(0) => end = Some(End::Whole),
                Message::Done(Some(code)) | Message::Error(code) => end = Some(End::of(code)),
                Message::Overrun => self.interrupted += 1,
                Message::Malformed => self.malformed += 1,
                Message::Other => {}
            }
        }
        self.parts += u64::from(has_sockets);
        self.interrupted += u64::from(messages.is_interrupted);
        // The kernel sends no empty datagram: nothing would follow.
        if self.datagram.is_empty() {
            end = Some(End::Failed);
        }
        ControlFlow::Continue(end)
    }
}

impl End {
    fn of(code: i32) -> End {
        match Errno::from_raw_os_error(code) {
            Errno::NOENT | Errno::PROTONOSUPPORT | Errno::OPNOTSUPP | Errno::AFNOSUPPORT => End::Unsupported,
            _ => End::Failed,
        }
    }
}

/// The names of the network interfaces of a namespace, as far as they were asked for.
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

//! The terminal: its modes, which are always restored, and the signals about it.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::panic;
use std::sync::{Mutex, Once};
use std::thread;
use std::time::Duration;

use rustix::event::{poll, PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::process::{getpgrp, kill_process_group, Signal};
use rustix::termios::{tcflush, tcgetattr, tcgetpgrp, tcsetattr, tcsetpgrp, OptionalActions, QueueSelector, Termios};
use taskdiag_sys::signals::{let_through, signalfd, SignalsBlocked};

use crate::outcome::lock;

/// The original modes of the terminal while it has others. There is one for the process, so that a
/// panic can restore them.
static SAVED: Mutex<Option<Termios>> = Mutex::new(None);

/// Makes the terminal report clicks and turns of the wheel, in the form of numbers (xterm's modes 1000
/// and 1006), and no more.
pub const MOUSE_ON: &[u8] = b"\x1b[?1000h\x1b[?1006h";
pub const MOUSE_OFF: &[u8] = b"\x1b[?1006l\x1b[?1000l";

/// Makes the terminal mark what is pasted (xterm's mode 2004), and no more.
pub const PASTE_ON: &[u8] = b"\x1b[?2004h";
const PASTE_OFF: &[u8] = b"\x1b[?2004l";

/// Ends what pictures leave: a sequence in which one may have been cut (CAN), colours, the other screen,
/// the hidden cursor, and what waits for the rest of a picture (xterm's modes 1049 and 25, mode 2026).
const PICTURE_OFF: &[u8] = b"\x18\x1b[0m\x1b[?1049l\x1b[?25h\x1b[?2026l";

/// How long a slow terminal may take for the last output before it is restored.
const DRAIN: Duration = Duration::from_millis(500);

/// Holds the terminal. Dropping it restores everything.
#[derive(Debug)]
pub struct Guard(());

impl Guard {
    /// Takes the terminal on standard input and output.
    pub fn enter() -> io::Result<Guard> {
        restore_at_panic();
        let stdin = rustix::stdio::stdin();
        let modes = tcgetattr(stdin)?;
        let mut raw = modes.clone();
        raw.make_raw();
        *lock(&SAVED) = Some(modes);
        let guard = Guard(());
        tcsetattr(stdin, OptionalActions::Now, &raw)?;
        Ok(guard)
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        restore();
    }
}

/// Whether the terminal takes output, within this time.
fn takes_output(timeout: Duration) -> bool {
    let timeout = Timespec::try_from(timeout).unwrap_or_default();
    let stdout = rustix::stdio::stdout();
    let mut polled = [PollFd::from_borrowed_fd(stdout, PollFlags::OUT)];
    poll(&mut polled, Some(&timeout)) == Ok(1)
}

/// Writes as much as the terminal takes without waiting. Returns the number of bytes written.
///
/// Other processes often share its descriptor, so it can't be made nonblocking. But a terminal that
/// is ready for output has room for a piece of this size.
pub fn write(text: &[u8]) -> io::Result<usize> {
    const WRITE_BYTES: usize = 1024;
    let mut written = 0;
    while written < text.len() && takes_output(Duration::ZERO) {
        let piece = &text[written..text.len().min(written + WRITE_BYTES)];
        match rustix::io::write(rustix::stdio::stdout(), piece) {
            Ok(count) => written += count,
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => break,
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(written)
}

/// Restores the terminal, if this process holds it. A terminal that is gone can't be restored, and
/// nobody sees it.
fn restore() {
    let Some(modes) = lock(&SAVED).take() else { return };
    // In the background, SIGTTOU would stop this process here.
    let _blocked = SignalsBlocked::begin();
    if !takes_output(DRAIN) {
        // Nobody reads. Unread output is discarded to make room for this.
        let _ = tcflush(rustix::stdio::stdout(), QueueSelector::OFlush);
    }
    let _ = write(&[PICTURE_OFF, MOUSE_OFF, PASTE_OFF].concat());
    let _ = tcsetattr(rustix::stdio::stdin(), OptionalActions::Now, &modes);
    if let Some(message) = lock(&KEPT).take() {
        eprintln!("{message}");
    }
}

/// The message of another thread's panic, which is printed once the terminal is restored.
static KEPT: Mutex<Option<String>> = Mutex::new(None);

/// Makes a panic of this thread restore the terminal before its message is printed. A panic of
/// another one does not end the program, which goes on drawing.
fn restore_at_panic() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = panic::take_hook();
        let main = thread::current().id();
        panic::set_hook(Box::new(move |info| {
            if thread::current().id() == main {
                restore();
            } else if lock(&SAVED).is_some() {
                *lock(&KEPT) = Some(info.to_string());
                return;
            }
            before(info);
        }));
    });
}

/// Whether another job has the terminal on standard input.
pub fn is_in_background() -> bool {
    tcgetpgrp(rustix::stdio::stdin()).is_ok_and(|group| group != getpgrp())
}

/// Waits until this job has the terminal: until then, the kernel stops it, as any job in the
/// background that changes its terminal. Call this before signals are blocked.
pub fn wait_for_foreground() -> io::Result<()> {
    if is_in_background() {
        tcsetpgrp(rustix::stdio::stdin(), getpgrp())?;
    }
    Ok(())
}

/// Stops all processes of the job until it is continued, like Ctrl-Z in a program that does not
/// take the terminal. The terminal must have been restored. If the job started with the terminal,
/// no shell could continue it: then the kernel does not stop it, and this returns at once.
pub fn suspend() -> io::Result<()> {
    // This includes the other processes of the job, for example a script that started this one.
    kill_process_group(getpgrp(), Signal::TSTP)?;
    let_through(Signal::TSTP.as_raw());
    Ok(())
}

/// The meaning of a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notice {
    /// It is time to end.
    End,
    /// It is time to suspend.
    Suspend,
    /// The process was stopped and has been continued.
    Resumed,
    /// The terminal has another size.
    Resized,
}

/// The signals, blocked and read from a descriptor.
#[derive(Debug)]
pub struct Signals(OwnedFd);

impl Signals {
    /// Blocks the signals. Call this before starting other threads.
    pub fn block() -> io::Result<Signals> {
        let signals = [
            Signal::TERM,
            Signal::HUP,
            Signal::INT,
            Signal::QUIT,
            Signal::ALARM,
            Signal::USR1,
            Signal::USR2,
            Signal::TSTP,
            Signal::CONT,
            Signal::WINCH,
        ];
        Ok(Signals(signalfd(&signals.map(Signal::as_raw))?))
    }

    /// Takes a signal, if there is one.
    pub fn take(&self) -> Option<Notice> {
        /// `struct signalfd_siginfo` (signalfd(2)) begins with the number of the signal. This is
        /// its size.
        const INFO: usize = 128;
        let mut info = [0; INFO];
        loop {
            match rustix::io::read(&self.0, &mut info) {
                Ok(INFO) => {}
                Err(Errno::INTR) => continue,
                _ => return None,
            }
            let number = u32::from_ne_bytes([info[0], info[1], info[2], info[3]]) as i32;
            let is = |signal: Signal| number == signal.as_raw();
            return Some(match number {
                _ if is(Signal::WINCH) => Notice::Resized,
                _ if is(Signal::CONT) => Notice::Resumed,
                _ if is(Signal::TSTP) => Notice::Suspend,
                _ => Notice::End,
            });
        }
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// What there is to do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ready {
    /// Keys were pressed.
    pub keys: bool,
    /// There are signals.
    pub signals: bool,
    /// There are reports.
    pub reports: bool,
    /// The terminal takes output again.
    pub output: bool,
    /// The terminal is gone.
    pub lost: bool,
}

/// Waits until there is something to do or the time has passed. If `is_left`, also waits for the
/// terminal to take output.
pub fn wait(signals: &Signals, reports: BorrowedFd<'_>, is_left: bool, timeout: Option<Timespec>) -> io::Result<Ready> {
    let output = if is_left { PollFlags::OUT } else { PollFlags::empty() };
    let mut polled = [
        PollFd::from_borrowed_fd(rustix::stdio::stdout(), output),
        PollFd::from_borrowed_fd(rustix::stdio::stdin(), PollFlags::IN),
        PollFd::new(signals, PollFlags::IN),
        PollFd::from_borrowed_fd(reports, PollFlags::IN),
    ];
    match poll(&mut polled, timeout.as_ref()) {
        Ok(_) => {}
        Err(Errno::INTR) => return Ok(Ready::default()),
        Err(errno) => return Err(errno.into()),
    }
    let [output, keys, signals, reports] = polled.map(|polled| polled.revents());
    let lost = (keys | output).intersects(PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL);
    Ok(Ready {
        keys: keys.contains(PollFlags::IN) && !lost,
        signals: !signals.is_empty(),
        reports: !reports.is_empty(),
        output: output.contains(PollFlags::OUT),
        lost,
    })
}

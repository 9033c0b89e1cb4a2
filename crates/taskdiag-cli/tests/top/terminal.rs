//! A terminal in which top runs.

use std::fs::{File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{poll, PollFd, PollFlags, Timespec};
use rustix::process::Pid;
use rustix::pty::{grantpt, openpt, ptsname, unlockpt, OpenptFlags};
use rustix::termios::{tcgetattr, tcsetwinsize, Termios, Winsize};
use vt100::{MouseProtocolEncoding, MouseProtocolMode, Parser};

use crate::common;

/// The maximum time for anything on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A terminal in which top runs.
pub struct Terminal {
    /// The terminal emulator's end. `None` when it is gone.
    pub master: Option<File>,
    pub child: Child,
    pub parser: Parser,
    /// The modes before anything ran.
    pub modes: Termios,
}

pub fn winsize(columns: u16, rows: u16) -> Winsize {
    Winsize {
        ws_col: columns,
        ws_row: rows,
        ws_xpixel: 0,
        ws_ypixel: 0,
    }
}

/// The parts of the modes that can be compared.
pub fn text(modes: &Termios) -> String {
    format!(
        "{:?} {:?} {:?} {:?} {:?}",
        modes.input_modes, modes.output_modes, modes.local_modes, modes.control_modes, modes.special_codes
    )
}

impl Terminal {
    /// Starts a program in its own terminal.
    pub fn of(command: &mut Command, columns: u16, rows: u16) -> Terminal {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).expect("a terminal");
        grantpt(&master).expect("it is ours");
        unlockpt(&master).expect("it is ours");
        tcsetwinsize(&master, winsize(columns, rows)).expect("a size");
        let path = ptsname(&master, Vec::new()).expect("a name");
        let noctty = rustix::fs::OFlags::NOCTTY.bits() as i32;
        let open = || {
            let mut options = OpenOptions::new();
            let path = path.to_str().expect("a path");
            let opened = options.read(true).write(true).custom_flags(noctty).open(path);
            OwnedFd::from(opened.expect("the other end"))
        };
        // The program waits until the first process has the terminal.
        let modes = tcgetattr(open()).expect("modes");
        let child = command
            .env("TERM", "xterm")
            .env("LC_ALL", "C.UTF-8")
            .env("TZ", "UTC")
            .env_remove("NO_COLOR")
            .stdin(open())
            .stdout(open())
            .stderr(open())
            .spawn()
            .expect("setsid exists");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Terminal {
            master: Some(File::from(master)),
            child,
            parser: Parser::new(rows, columns, 0),
            modes,
        }
    }

    /// Starts top with arguments, and without settings.
    pub fn top(args: &[&str]) -> Terminal {
        Terminal::with(args, Path::new("/nonexistent"), 100, 30)
    }

    pub fn with(args: &[&str], config: &Path, columns: u16, rows: u16) -> Terminal {
        let mut command = top(Path::new(env!("CARGO_BIN_EXE_taskdiag")), args, config);
        Terminal::of(&mut command, columns, rows)
    }

    /// Sends keys.
    pub fn press(&mut self, keys: &str) {
        self.master
            .as_mut()
            .expect("it is there")
            .write_all(keys.as_bytes())
            .expect("a terminal");
    }

    /// Clicks on a text of the picture, as a terminal reports it.
    #[track_caller]
    pub fn click(&mut self, text: &str) {
        let picture = self.wait_for(text);
        let screen = self.parser.screen();
        let reports = (screen.mouse_protocol_mode(), screen.mouse_protocol_encoding());
        assert_eq!(reports, (MouseProtocolMode::PressRelease, MouseProtocolEncoding::Sgr));
        let found = picture
            .lines()
            .zip(1..)
            .find_map(|(line, y)| Some((line.find(text)?, line, y)));
        let (at, line, y) = found.unwrap_or_else(|| panic!("no {text:?} in\n{picture}"));
        let place = format!("{};{y}", line[..at].chars().count() + 1);
        self.press(&format!("\x1b[<0;{place}M\x1b[<0;{place}m"));
    }

    /// Reads the output, waiting at most this long. Returns whether there was any.
    pub fn take(&mut self, timeout: Duration) -> bool {
        let Some(master) = &mut self.master else { return false };
        let timeout = Timespec::try_from(timeout).expect("a time");
        let mut polled = [PollFd::from_borrowed_fd(master.as_fd(), PollFlags::IN)];
        if poll(&mut polled, Some(&timeout)) != Ok(1) || !polled[0].revents().contains(PollFlags::IN) {
            return false;
        }
        let mut bytes = [0; 65_536];
        match master.read(&mut bytes) {
            Ok(count) => {
                self.parser.process(&bytes[..count]);
                count > 0
            }
            Err(_) => false,
        }
    }

    pub fn picture(&self) -> String {
        self.parser.screen().contents()
    }

    /// Waits until the picture contains a text. Returns the picture.
    #[track_caller]
    pub fn wait_for(&mut self, what: &str) -> String {
        self.wait_until(what, |picture| picture.contains(what))
    }

    #[track_caller]
    pub fn wait_until(&mut self, what: &str, is_there: impl Fn(&str) -> bool) -> String {
        let end = Instant::now() + PATIENCE;
        loop {
            let picture = self.picture();
            if is_there(&picture) {
                return picture;
            }
            assert!(Instant::now() < end, "no {what:?} in\n{picture}");
            self.take(Duration::from_millis(20));
        }
    }

    /// Waits for the end, and checks that the terminal is restored.
    #[track_caller]
    pub fn end(mut self) -> (ExitStatus, String) {
        let end = Instant::now() + PATIENCE;
        let status = loop {
            let is_quiet = !self.take(Duration::from_millis(20));
            match self.child.try_wait().expect("a child") {
                Some(status) if is_quiet => break status,
                _ => assert!(Instant::now() < end, "it does not end:\n{}", self.picture()),
            }
        };
        if let Some(master) = &self.master {
            let modes = tcgetattr(master).expect("modes");
            assert_eq!(text(&modes), text(&self.modes));
        }
        let screen = self.parser.screen();
        assert!(!screen.alternate_screen() && !screen.hide_cursor());
        assert_eq!(screen.mouse_protocol_mode(), MouseProtocolMode::None);
        (status, self.picture())
    }

    pub fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The command: top in its own session, with standard input as its terminal.
pub fn top(program: &Path, args: &[&str], config: &Path) -> Command {
    let mut command = Command::new("setsid");
    command.arg("--ctty").arg(program).arg("top").args(args);
    command.env("XDG_CONFIG_HOME", config).env("TASKDIAG_PATIENCE", "5");
    common::with_usual_signals(&mut command);
    command
}

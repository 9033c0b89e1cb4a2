//! A terminal whose output is not shown.

use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::process::{Child, Command};
use std::sync::mpsc::{channel, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{open, Mode, OFlags};
use rustix::pty::{grantpt, openpt, ptsname, unlockpt, OpenptFlags};
use rustix::termios::{tcsetwinsize, Winsize};

use crate::Result;

/// A program in a terminal.
pub struct Terminal {
    child: Child,
    master: File,
    /// The times of output.
    output: Receiver<Instant>,
    /// The directory of its settings.
    settings: PathBuf,
}

impl Terminal {
    /// Starts a program, without the user's settings.
    pub fn start(argv: &[String], (columns, rows): (u16, u16)) -> Result<Terminal> {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
        grantpt(&master)?;
        unlockpt(&master)?;
        let size = Winsize {
            ws_col: columns,
            ws_row: rows,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        tcsetwinsize(&master, size)?;
        let path = ptsname(&master, Vec::new())?;
        let end = || -> Result<OwnedFd> {
            Ok(open(
                path.as_c_str(),
                OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC,
                Mode::empty(),
            )?)
        };
        let settings = std::env::temp_dir().join(format!("taskdiag-bench-top-{}", std::process::id()));
        fs::create_dir_all(settings.join("btop"))?;
        fs::write(settings.join("btop/btop.conf"), "update_ms = 1000\n")?;
        let child = Command::new(&argv[0])
            .args(&argv[1..])
            .env("TERM", "xterm-256color")
            .env("LC_ALL", "C.UTF-8")
            .env("XDG_CONFIG_HOME", &settings)
            .stdin(end()?)
            .stdout(end()?)
            .stderr(end()?)
            .spawn()
            .map_err(|error| format!("{}: {error}", argv[0]))?;
        let master = File::from(master);
        let mut reader = master.try_clone()?;
        let (tell, output) = channel();
        thread::spawn(move || {
            let mut bytes = [0; 65_536];
            while let Ok(1..) = reader.read(&mut bytes) {
                if tell.send(Instant::now()).is_err() {
                    break;
                }
            }
        });
        Ok(Terminal {
            child,
            master,
            output,
            settings,
        })
    }

    /// The process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Fails if it has ended.
    pub fn check(&mut self) -> Result<()> {
        match self.child.try_wait()? {
            None => Ok(()),
            Some(status) => Err(format!("it ended: {status}").into()),
        }
    }

    /// Presses a key. Returns the time until there is output.
    pub fn press(&mut self, key: &[u8]) -> Result<Duration> {
        const PATIENCE: Duration = Duration::from_secs(5);
        while self.output.try_recv().is_ok() {}
        let began = Instant::now();
        self.master.write_all(key)?;
        loop {
            match self.output.recv_timeout(PATIENCE) {
                Ok(at) if at >= began => return Ok(at - began),
                Ok(_) => {}
                Err(RecvTimeoutError::Timeout) => return Err("a key has no effect".into()),
                Err(RecvTimeoutError::Disconnected) => return Err("it ended".into()),
            }
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.settings);
    }
}

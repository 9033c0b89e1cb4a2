//! Processes with open files or sockets.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _};
use std::net::UdpSocket;
use std::os::unix::net::UnixStream;
use std::process::{Child, ChildStdin, Command, Stdio};

use crate::Result;

/// The number of descriptors that each process opens.
pub const EACH: usize = 14;

/// The processes, which end when this is dropped.
pub struct Holders {
    child: Child,
    _input: ChildStdin,
}

impl Holders {
    /// Starts this many processes. `option` makes this program one of them.
    pub fn start(option: &str, processes: usize) -> Result<Holders> {
        let mut child = Command::new(std::env::current_exe()?)
            .args([option, &processes.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let input = child.stdin.take().ok_or("no pipe")?;
        let mut output = BufReader::new(child.stdout.take().ok_or("no pipe")?);
        if output.read_line(&mut String::new())? == 0 {
            return Err("the processes with open files could not be started".into());
        }
        Ok(Holders { child, _input: input })
    }
}

impl Drop for Holders {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Opens [`EACH`] descriptors of the kinds that processes have: files, devices, sockets, kernel
/// objects.
pub fn open() -> Result<()> {
    for path in [
        "/etc/passwd",
        "/etc/group",
        "/proc/self/exe",
        "/dev/null",
        "/dev/urandom",
        "/usr",
    ] {
        std::mem::forget(File::open(path)?);
    }
    std::mem::forget(UnixStream::pair()?);
    for _ in 0..4 {
        std::mem::forget(UdpSocket::bind("127.0.0.1:0")?);
    }
    // SAFETY: no pointers.
    if unsafe { libc::eventfd(0, 0) < 0 || libc::epoll_create1(0) < 0 } {
        return Err(std::io::Error::last_os_error().into());
    }
    Ok(())
}

/// The factor by which [`open_many`] opens more.
pub const MANY: usize = 10;

/// Opens the same descriptors, and additional files: processes do not have that many sockets.
pub fn open_many() -> Result<()> {
    open()?;
    let paths = ["/etc/group", "/dev/null", "/dev/urandom"].into_iter().cycle();
    for path in paths.take((MANY - 1) * EACH) {
        std::mem::forget(File::open(path)?);
    }
    Ok(())
}

/// The main loop of their parent. Each process runs `open` and waits.
pub fn serve(processes: usize, open: fn() -> Result<()>) -> Result<()> {
    let parent = std::process::id();
    for _ in 0..processes {
        // SAFETY: this process has one thread.
        match unsafe { libc::fork() } {
            -1 => return Err(std::io::Error::last_os_error().into()),
            0 => {
                // SAFETY: no pointers.
                unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
                let is_orphan = std::os::unix::process::parent_id() != parent;
                let status = i32::from(is_orphan || open().is_err());
                if status == 0 {
                    loop {
                        // SAFETY: it waits for a signal.
                        unsafe { libc::pause() };
                    }
                }
                // SAFETY: it ends this process.
                unsafe { libc::_exit(status) };
            }
            _ => {}
        }
    }
    println!("ready");
    // Wait until the other end is closed.
    std::io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}

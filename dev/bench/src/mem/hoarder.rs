//! A process with much memory, which reports how long a change of its mappings had to wait.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::Result;

/// The process, as the benchmark sees it.
pub struct Hoarder {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Hoarder {
    /// Starts a process with this many bytes of resident memory.
    pub fn start(bytes: usize) -> Result<Hoarder> {
        let mut child = Command::new(std::env::current_exe()?)
            .args(["--hoarder", &bytes.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let input = child.stdin.take().ok_or("no pipe")?;
        let output = BufReader::new(child.stdout.take().ok_or("no pipe")?);
        let mut hoarder = Hoarder { child, input, output };
        hoarder.line()?;
        Ok(hoarder)
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        match self.output.read_line(&mut line)? {
            0 => Err("the process with much memory ended: is there enough?".into()),
            _ => Ok(line.trim().to_owned()),
        }
    }

    /// The longest wait since the previous call.
    pub fn longest_wait(&mut self) -> Result<Duration> {
        writeln!(self.input)?;
        Ok(Duration::from_nanos(self.line()?.parse()?))
    }
}

impl Drop for Hoarder {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn map(bytes: usize, flags: i32) -> Result<*mut libc::c_void> {
    let (protection, flags) = (
        libc::PROT_READ | libc::PROT_WRITE,
        flags | libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
    );
    // SAFETY: a new mapping, at an address that the kernel chooses.
    let at = unsafe { libc::mmap(ptr::null_mut(), bytes, protection, flags, -1, 0) };
    if at == libc::MAP_FAILED {
        Err(std::io::Error::last_os_error().into())
    } else {
        Ok(at)
    }
}

/// The main loop of the process.
pub fn serve(bytes: usize) -> Result<()> {
    const STEP: usize = 4096;
    let at = map(bytes, 0)?;
    // SAFETY: advice about our own mapping; a kernel without huge pages refuses.
    unsafe { libc::madvise(at, bytes, libc::MADV_NOHUGEPAGE) };
    for offset in (0..bytes).step_by(STEP) {
        // SAFETY: within the mapping, which is writable.
        unsafe { at.cast::<u8>().add(offset).write_volatile(1) };
    }
    static LONGEST: AtomicU64 = AtomicU64::new(0);
    std::thread::spawn(|| loop {
        let start = Instant::now();
        if let Ok(at) = map(STEP, 0) {
            // SAFETY: our own mapping, which nobody uses.
            unsafe { libc::munmap(at, STEP) };
        }
        LONGEST.fetch_max(start.elapsed().as_nanos() as u64, Ordering::Relaxed);
        std::thread::sleep(Duration::from_micros(200));
    });
    println!("ready");
    for line in std::io::stdin().lines() {
        line?;
        println!("{}", LONGEST.swap(0, Ordering::Relaxed));
    }
    Ok(())
}

//! A small process that creates short-lived ones, and reports how long that took.

use std::io::{self, BufRead as _, BufReader, Write as _};
use std::mem;
use std::ops::Add;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::ptr;
use std::time::{Duration, Instant};

use crate::Result;

/// What the short-lived processes do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Life {
    /// Nothing.
    Exit,
    /// They run `/bin/true`.
    Exec,
}

/// The time that creating processes took.
#[derive(Clone, Copy, Debug, Default)]
pub struct Took {
    pub wall: Duration,
    /// Of the forking process and its children.
    pub cpu: Duration,
}

impl Add for Took {
    type Output = Took;

    fn add(self, other: Took) -> Took {
        Took {
            wall: self.wall + other.wall,
            cpu: self.cpu + other.cpu,
        }
    }
}

/// The forking process, which waits for requests.
#[derive(Debug)]
pub struct Forker {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Forker {
    /// Starts it.
    pub fn start() -> Result<Forker> {
        let mut child = Command::new("/proc/self/exe")
            .arg0("forker")
            .arg("--forker")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let input = child.stdin.take();
        let output = BufReader::new(child.stdout.take().ok_or("no output")?);
        Ok(Forker { child, input, output })
    }

    /// Creates `count` processes, one after the other.
    pub fn make(&mut self, count: u32, life: Life) -> Result<Took> {
        let input = self.input.as_mut().ok_or("no input")?;
        writeln!(input, "{count} {}", u8::from(life == Life::Exec))?;
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        let (wall, cpu) = line.trim().split_once(' ').ok_or("the forking process ended")?;
        Ok(Took {
            wall: Duration::from_nanos(wall.parse()?),
            cpu: Duration::from_nanos(cpu.parse()?),
        })
    }
}

impl Drop for Forker {
    fn drop(&mut self) {
        drop(self.input.take());
        let _ = self.child.wait();
    }
}

/// The forking process's main loop.
pub fn serve() -> Result<()> {
    keep_to_last_processor()?;
    for line in io::stdin().lock().lines() {
        let line = line?;
        let (count, exec) = line.split_once(' ').ok_or("no count")?;
        let (count, exec): (u32, bool) = (count.parse()?, exec == "1");
        let (start, cpu) = (Instant::now(), cpu_time());
        for _ in 0..count {
            live_and_die(exec)?;
        }
        println!("{} {}", start.elapsed().as_nanos(), (cpu_time() - cpu).as_nanos());
    }
    Ok(())
}

/// Restricts this process and its children to the last of its processors: the first ones handle
/// interrupts.
fn keep_to_last_processor() -> io::Result<()> {
    // SAFETY: all zeros are a valid set of processors, which the kernel writes to or reads, knowing
    // its size; the macros stay within it.
    unsafe {
        let mut set: libc::cpu_set_t = mem::zeroed();
        if libc::sched_getaffinity(0, size_of_val(&set), &mut set) != 0 {
            return Err(io::Error::last_os_error());
        }
        let last = (0..libc::CPU_SETSIZE as usize).rfind(|&cpu| libc::CPU_ISSET(cpu, &set));
        libc::CPU_ZERO(&mut set);
        libc::CPU_SET(last.unwrap_or(0), &mut set);
        match libc::sched_setaffinity(0, size_of_val(&set), &set) {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

fn live_and_die(exec: bool) -> Result<()> {
    let args = [c"true".as_ptr(), ptr::null()];
    // SAFETY: this process has one thread. The child only makes system calls, with properly
    // terminated arguments. The status pointer may be null.
    let waited = unsafe {
        let pid = libc::fork();
        if pid == 0 {
            if exec {
                libc::execv(c"/bin/true".as_ptr(), args.as_ptr());
            }
            libc::_exit(exec.into());
        }
        libc::waitpid(pid, ptr::null_mut(), 0)
    };
    match waited {
        -1 => Err(io::Error::last_os_error().into()),
        _ => Ok(()),
    }
}

/// The processor time of this process and of the children that it has waited for.
fn cpu_time() -> Duration {
    let of = |who| {
        // SAFETY: all zeros are a valid `rusage`, a structure of numbers, and the kernel writes
        // one.
        let usage = unsafe {
            let mut usage: libc::rusage = mem::zeroed();
            libc::getrusage(who, &mut usage);
            usage
        };
        let span = |time: libc::timeval| Duration::new(time.tv_sec as u64, time.tv_usec as u32 * 1000);
        span(usage.ru_utime) + span(usage.ru_stime)
    };
    of(libc::RUSAGE_SELF) + of(libc::RUSAGE_CHILDREN)
}

//! `fork NPROC [MTHREADS [SLEEP]]`: makes processes with so many threads each, which sleep for so
//! many seconds. Ends when they do, or takes them along when its input ends.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::process::exit;

fn main() {
    let mut numbers = [1_u64, 1, 1000];
    let args = std::env::args().skip(1);
    for (place, arg) in numbers.iter_mut().zip(args) {
        *place = arg.parse().unwrap_or_else(|_| {
            eprintln!("usage: fork NPROC [MTHREADS [SLEEP]]");
            exit(2);
        });
    }
    let [processes, threads, seconds] = numbers;
    let mut children = Vec::new();
    let (ready, writer) = rustix::pipe::pipe().expect("a pipe");
    let (mut ready, writer) = (File::from(ready), File::from(writer));
    for _ in 0..processes {
        // SAFETY: this process has one thread.
        match unsafe { libc::fork() } {
            -1 => {
                eprintln!("fork: {}", io::Error::last_os_error());
                break;
            }
            0 => {
                // SAFETY: numbers only.
                unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
                for _ in 1..threads {
                    let sleep = move || std::thread::sleep(std::time::Duration::from_secs(seconds));
                    std::thread::Builder::new()
                        .stack_size(16 << 10)
                        .spawn(sleep)
                        .expect("a thread");
                }
                let _ = (&writer).write_all(&[0]);
                drop(writer);
                std::thread::sleep(std::time::Duration::from_secs(seconds));
                // SAFETY: never returns.
                unsafe { libc::_exit(0) }
            }
            child => children.push(child),
        }
    }
    drop(writer);
    let mut told = vec![0; children.len()];
    let _ = ready.read_exact(&mut told);
    println!("{}", children.len());
    let _ = io::stdout().flush();
    // Until whoever started it has seen enough.
    let _ = io::stdin().read_to_end(&mut Vec::new());
    for child in children {
        // SAFETY: numbers, and a pointer that may be null; the child has not been waited for.
        unsafe {
            libc::kill(child, libc::SIGKILL);
            libc::waitpid(child, std::ptr::null_mut(), 0);
        }
    }
}

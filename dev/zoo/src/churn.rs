//! Processes that come and go.

use std::io::{self, Write as _};
use std::time::{Duration, Instant};

use libc::c_int;

use crate::facts::Facts;
use crate::helper::Helper;
use crate::keeper::{environment, kill_descendants, say};
use crate::sys;
use crate::Role;

/// Forks and reaps short-lived processes in the background until it is dropped. Every eighth of
/// them execs.
#[derive(Debug)]
pub struct Churn {
    helper: Helper,
}

impl Churn {
    /// Starts to make `per_second` processes a second, or as many as the machine can make.
    pub fn start(per_second: u32) -> io::Result<Churn> {
        let (helper, _) = Helper::start("churn", &Role::Churn(per_second), &["churn"])?;
        Ok(Churn { helper })
    }

    /// The process whose children come and go.
    pub fn pid(&self) -> i32 {
        self.helper.pid()
    }

    /// How many processes it has made and reaped so far.
    pub fn made(&mut self) -> io::Result<u64> {
        self.helper.send("made?")?;
        let line = self.helper.line()?;
        line.trim()
            .parse()
            .map_err(|_| io::Error::other(format!("churn: {line:?} is no count")))
    }

    /// Ends it. Returns how many processes it made.
    pub fn stop(mut self) -> io::Result<u64> {
        self.made()
    }
}

pub(crate) fn run(per_second: u32) -> ! {
    let result = churn(per_second.into());
    kill_descendants();
    if let Err(error) = result {
        let _ = say(&mut io::stdout(), Err(error));
    }
    sys::exit(0)
}

fn churn(rate: f64) -> io::Result<()> {
    /// Children are made in bursts. A burst is reaped at the time of the next one.
    const TICK: Duration = Duration::from_millis(5);
    say(&mut io::stdout(), Ok(Facts::default()))?;
    let start = Instant::now();
    let (mut made, mut reaped) = (0_u64, 0_u64);
    for tick in 1_u32.. {
        let wait = (start + TICK * tick).saturating_duration_since(Instant::now());
        if sys::readable([libc::STDIN_FILENO], wait.as_millis() as c_int)?[0] {
            let mut line = String::new();
            if io::stdin().read_line(&mut line)? == 0 {
                return Ok(());
            }
            writeln!(io::stdout(), "{reaped}")?;
        }
        while reaped < made {
            sys::wait(-1, 0)?;
            reaped += 1;
        }
        // A machine that can't keep up does not have to catch up later.
        let due = (start.elapsed().as_secs_f64() * rate) as u64;
        let due = due.min(made + (2.0 * rate * TICK.as_secs_f64()) as u64 + 1);
        while made < due {
            if sys::fork()?.is_none() {
                live(made)
            }
            made += 1;
        }
    }
    Ok(())
}

fn live(number: u64) -> ! {
    if number % 8 == 0 {
        sys::exec(
            &c"/proc/self/exe".to_owned(),
            &[b"zoo".to_vec(), b"mayfly".to_vec()],
            &environment(&Role::Mayfly, &[]),
        );
        sys::exit(1);
    }
    sys::exit(0)
}

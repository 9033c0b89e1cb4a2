//! `zoo`: strange processes for people to look at. It is also the helper of the library.

use std::env;
use std::error::Error;
use std::io::{self, BufRead as _};
use std::process::ExitCode;
use std::time::Instant;

use taskdiag_zoo::{play_role_if_any, Animal, Farm, Zoo};

const USAGE: &str = "\
usage: zoo list                  the animals and what is strange about them
       zoo run NAME... | all     start some (all: those that keep nobody waiting), print what is known of them, wait for Ctrl-C or the end of input
       zoo farm N [T]            N idle processes with T threads each";

fn main() -> ExitCode {
    play_role_if_any();
    if let (None, Ok(this)) = (env::var_os("TASKDIAG_ZOO"), env::current_exe()) {
        env::set_var("TASKDIAG_ZOO", this);
    }
    let args: Vec<String> = env::args_os()
        .skip(1)
        .map(|arg| arg.to_string_lossy().into_owned())
        .collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match command(&args) {
        Ok(status) => status,
        Err(error) => {
            eprintln!("zoo: {error}");
            ExitCode::from(2)
        }
    }
}

fn command(args: &[&str]) -> Result<ExitCode, Box<dyn Error>> {
    match args {
        ["list"] => {
            for (name, about) in Zoo::list().chain(Zoo::holders()) {
                println!("{name:24}  {about}");
            }
        }
        ["run", names @ ..] if !names.is_empty() => return run(names),
        ["farm", processes] => farm(processes.parse()?, 1)?,
        ["farm", processes, threads] => farm(processes.parse()?, threads.parse()?)?,
        _ => return Err(USAGE.into()),
    }
    Ok(ExitCode::SUCCESS)
}

/// Waits until the input ends.
fn wait() -> io::Result<()> {
    io::stdin().lock().skip_until(b'\0').map(drop)
}

fn run(names: &[&str]) -> Result<ExitCode, Box<dyn Error>> {
    let zoo = Zoo::new()?;
    let (animals, refused): (Vec<Animal>, _) = if names == ["all"] {
        zoo.everything()?
    } else {
        (
            names.iter().map(|name| zoo.start(name)).collect::<io::Result<_>>()?,
            Vec::new(),
        )
    };
    for animal in &animals {
        println!("{} {} {}", animal.name, animal.pid, animal.facts.describe().join(" "));
    }
    for (name, reason) in &refused {
        eprintln!("zoo: {name} was refused: {reason}");
    }
    wait()?;
    Ok(if refused.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(1)
    })
}

fn farm(processes: usize, threads: usize) -> io::Result<()> {
    let start = Instant::now();
    let farm = Farm::start(processes, threads)?;
    println!(
        "{} processes with {threads} threads each in {:?}",
        farm.pids().len(),
        start.elapsed()
    );
    wait()?;
    let start = Instant::now();
    drop(farm);
    println!("gone in {:?}", start.elapsed());
    Ok(())
}

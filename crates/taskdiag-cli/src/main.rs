//! `taskdiag`: asks a Linux kernel about its processes, for people and for scripts.
//!
//! One file a command. A command parses its options into what they mean before it asks anything, so that wrong usage never
//! costs a query; what is common to commands that list tasks is in [`listing`], how things are written in [`output`].

#![forbid(unsafe_code)]

mod cache;
mod doctor;
mod events;
mod fields;
mod library;
mod listing;
mod maps;
mod mem;
mod normalize;
mod outcome;
mod output;
mod pin;
mod ps;
mod selection;
mod tree;
mod watch;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Ask a Linux kernel about its processes: through BPF task iterators where it can be had, through /proc where not.
#[derive(Debug, Parser)]
#[command(
    name = "taskdiag",
    version,
    arg_required_else_help = true,
    disable_help_subcommand = true,
    after_help = "Exit status: 0 all answered; 1 something asked for was not there or partly unreadable (the rest is \
                  printed, the reason is on standard error); 2 wrong usage, or nothing could be answered."
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Ps(ps::Args),
    Tree(tree::Args),
    /// Watch what tasks do: processor time, page faults, input and output per second
    ///
    /// Every two seconds, or as --watch says, a table of the tasks that used processor time since, the busiest first; those that
    /// did nothing are not even transferred from the kernel, unless there is a filter. The first table has every task. Rates are
    /// about the time between two samples: a task that was not in the sample before, or did not match then, has none yet; one that
    /// started since then has them at once, from all its life. -o and --sort also take cpu_percent, min_faults_per_s,
    /// maj_faults_per_s, read_bytes_per_s and write_bytes_per_s. Rows of --jsonl and --csv have the number of their sample in
    /// `sample`. --explain and --stats are about a single answer, and say nothing here.
    #[command(after_help = "Examples:\n  taskdiag watch --watch 1 --limit 20\n  \
        taskdiag watch -u www-data -o pid,cpu_percent,read_bytes_per_s,comm --jsonl")]
    Watch(ps::Args),
    Cache(cache::Args),
    Events(events::Args),
    Maps(maps::Args),
    Mem(mem::Args),
    Normalize(normalize::Args),
    Fields(fields::Args),
    Doctor(doctor::Args),
    Pin(pin::PinArgs),
    Unpin(pin::UnpinArgs),
}

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Ps(args) => ps::run(args),
        Command::Tree(args) => tree::run(args),
        Command::Watch(args) => watch::run(args),
        Command::Cache(args) => cache::run(args),
        Command::Events(args) => events::run(args),
        Command::Maps(args) => maps::run(args),
        Command::Mem(args) => mem::run(args),
        Command::Normalize(args) => normalize::run(args),
        Command::Fields(args) => fields::run(args),
        Command::Doctor(args) => doctor::run(args),
        Command::Pin(args) => pin::pin(args),
        Command::Unpin(args) => pin::unpin(args),
    };
    outcome::exit_code(result)
}

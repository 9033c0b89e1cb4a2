//! `task_proc_all [-R|--noread] FILE`: reads a file of every process in `/proc`, and says how many
//! there were.

use std::fs::{self, File};
use std::io::Read as _;
use std::process::exit;

fn main() {
    let mut reads = true;
    let mut name = None;
    for arg in std::env::args().skip(1) {
        match arg.as_str() {
            "-R" | "--noread" => reads = false,
            _ => name = Some(arg),
        }
    }
    let Some(name) = name else {
        eprintln!("usage: task_proc_all [-R|--noread] FILE");
        exit(2);
    };
    let entries = fs::read_dir("/proc").unwrap_or_else(|error| {
        eprintln!("/proc: {error}");
        exit(1);
    });
    let mut buffer = [0; 16 << 10];
    let mut tasks = 0;
    for entry in entries.flatten() {
        let pid = entry.file_name();
        if !pid.to_string_lossy().bytes().all(|byte| byte.is_ascii_digit()) {
            continue;
        }
        let Ok(mut file) = File::open(entry.path().join(&name)) else {
            continue;
        };
        if !reads || file.read(&mut buffer).is_ok() {
            tasks += 1;
        }
    }
    println!("tasks: {tasks}");
}

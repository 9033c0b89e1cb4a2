//! Command lines, titles and environments.

use std::io;

use super::Species;
use crate::arg_area::joined;
use crate::facts::Facts;
use crate::keeper::{environment, exec_child, roomy_environment};
use crate::{sys, Role};

pub(super) const SPECIES: &[Species] = species! {
    "args-none": "exec'd with no argument, not even a name" => |_| exec(vec![]);
    "args-one-empty": "its one argument is empty" => |_| exec(list(&[b""]));
    "args-odd": "newlines, empty arguments inside and at the end, no UTF-8" =>
        |_| exec(list(&[b"zoo", b"two\nlines", b"", b"", b"\xff\xfe", b" ", b"tab\t\x1b[31m", b"back\\slash", b""]));
    "args-4095": "a command line of 4095 bytes, one less than a page" => |_| exec(sized(4095));
    "args-4096": "a command line of 4096 bytes, a page" => |_| exec(sized(4096));
    "args-4097": "a command line of 4097 bytes, one more than a page" => |_| exec(sized(4097));
    "args-8191": "a command line of 8191 bytes" => |_| exec(sized(8191));
    "args-8192": "a command line of 8192 bytes" => |_| exec(sized(8192));
    "args-8193": "a command line of 8193 bytes" => |_| exec(sized(8193));
    "args-32k": "a command line of 32 KiB, a BPF iterator's whole buffer" => |_| exec(sized(32 << 10));
    "args-100k": "a command line of 100 KiB" => |_| exec(sized(100 << 10));
    "args-2m": "a command line of 2 MiB" => |_| exec(sized(2 << 20));
    "environment": "a known environment: newlines, empty and senseless entries, no UTF-8" =>
        |_| with_environment(list(&[b"A=1", b"", b"B=two\nlines", b"no equals sign", b"=", b"\xff=\xfe"]));
    "environment-2m": "an environment of 2 MiB" => |_| with_environment(sized(2 << 20));
    "title-short": "title rewritten in place, shorter than the arguments" => |_| title("title-short", sized(200));
    "title-into-environment": "title rewritten in place, running on into the environment" =>
        |_| title("title-into-environment", sized(20));
    "title-long": "title rewritten in place, without a NUL for more than a page" =>
        |_| title("title-long", sized(9000));
    "title-moved": "argument area moved to other memory" => |_| title("title-moved", sized(200));
    "title-nowhere": "argument area of no bytes: an empty command line" => |_| title("title-nowhere", sized(200));
    "title-moved-to-file": "argument area moved into a mapped file, which the kernel won't show" =>
        |_| title("title-moved-to-file", sized(200));
    "title-under-file": "a file mapped over a part of the arguments, which cuts the command line" =>
        |_| title("title-under-file", sized(5 * sys::page_size()));
    "title-changer": "changes its title and executable arguments on request" =>
        |keeper| keeper.exec_obedient("obey", &sized(100));
};

fn list(strings: &[&[u8]]) -> Vec<Vec<u8>> {
    strings.iter().map(|string| string.to_vec()).collect()
}

/// An argument list of exactly `total` bytes, NULs included, in which all arguments differ.
fn sized(total: usize) -> Vec<Vec<u8>> {
    const WORD: usize = 1000;
    let mut args = list(&[b"zoo"]);
    let mut left = total - 4;
    while left > 0 {
        // A remainder that is too short for a number is joined to the last word.
        let len = if left < WORD + 20 { left } else { WORD };
        let mut word = format!("{:x<width$}", args.len(), width = len - 1);
        word.truncate(len - 1);
        args.push(word.into_bytes());
        left -= len;
    }
    args
}

fn exec(args: Vec<Vec<u8>>) -> io::Result<Facts> {
    let facts = exec_child("rest", None, &args, &[])?;
    if args.is_empty() {
        // Linux 5.18 and later insert an empty argument if there is none, so the process's own
        // report counts.
        return Ok(facts);
    }
    Ok(Facts {
        cmdline_raw: Some(joined(&args)),
        cmdline: Some(args),
        ..facts
    })
}

fn with_environment(env: Vec<Vec<u8>>) -> io::Result<Facts> {
    let facts = exec_child("rest", None, &list(&[b"zoo", b"environment"]), &env)?;
    Ok(Facts {
        environ: Some(environment(&Role::Animal("rest".to_owned()), &env)),
        ..facts
    })
}

fn title(role: &str, args: Vec<Vec<u8>>) -> io::Result<Facts> {
    exec_child(role, None, &args, &roomy_environment())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sized_is_exact() {
        for total in [20, 200, 1023, 1024, 1025, 4095, 4096, 4097, 2 << 20] {
            assert_eq!(sized(total).iter().map(|arg| arg.len() + 1).sum::<usize>(), total);
        }
    }
}

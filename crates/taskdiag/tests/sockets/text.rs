//! What `/proc/net` shows about sockets, read in the simplest way.

use std::collections::BTreeMap;
use std::fs;
use std::net::{Ipv4Addr, Ipv6Addr};

/// A socket of IP: its two ends, its state as a number, user and inode number.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Line {
    pub local: String,
    pub remote: String,
    pub state: u8,
    pub uid: u32,
    pub inode: u64,
}

/// An end as text: an address of IPv6 is in brackets.
fn end(text: &str) -> String {
    let (address, port) = text.split_once(':').expect("a port");
    let port = u16::from_str_radix(port, 16).expect("a port");
    let words: Vec<u8> = (0..address.len() / 8)
        .flat_map(|word| {
            let word = &address[8 * word..][..8];
            u32::from_str_radix(word, 16).expect("a word").to_ne_bytes()
        })
        .collect();
    match <[u8; 4]>::try_from(words.as_slice()) {
        Ok(bytes) => format!("{}:{port}", Ipv4Addr::from(bytes)),
        Err(_) => {
            let bytes: [u8; 16] = words.try_into().expect("an address of IPv6");
            format!("[{}]:{port}", Ipv6Addr::from(bytes))
        }
    }
}

/// The sockets of a file of this thread's `/proc/net`, such as `tcp`.
pub fn lines(name: &str) -> Vec<Line> {
    let text = fs::read_to_string(format!("/proc/thread-self/net/{name}")).expect("the text");
    let mut lines: Vec<Line> = text
        .lines()
        .skip(1)
        .map(|line| {
            let words: Vec<&str> = line.split_ascii_whitespace().collect();
            Line {
                local: end(words[1]),
                remote: end(words[2]),
                state: u8::from_str_radix(words[3], 16).expect("a state"),
                uid: words[7].parse().expect("a user"),
                inode: words[9].parse().expect("an inode number"),
            }
        })
        .collect();
    lines.sort();
    lines
}

/// A UNIX socket: its type and state as numbers, and its name.
pub type UnixLine = (u16, u8, Option<String>);

/// The UNIX sockets of this thread's `/proc/net/unix`, by inode number.
pub fn unix() -> BTreeMap<u64, UnixLine> {
    let text = fs::read_to_string("/proc/thread-self/net/unix").expect("the text");
    let line = |line: &str| {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        let kind = u16::from_str_radix(words[4], 16).expect("a type");
        let flags = u32::from_str_radix(words[3], 16).expect("flags");
        let state = u8::from_str_radix(words[5], 16).expect("a state");
        // This state is that of the socket, not of the protocol: 1 is unconnected, 3 is connected.
        const ACCEPTS: u32 = 1 << 16;
        let state = match state {
            _ if flags & ACCEPTS != 0 => 10,
            3 => 1,
            _ => 7,
        };
        let inode = words[6].parse().expect("an inode number");
        (inode, (kind, state, words.get(7).map(|&name| name.to_owned())))
    };
    text.lines().skip(1).map(line).collect()
}

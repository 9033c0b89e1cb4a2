//! Messages about unknown names.

/// The beginning of a name from a user, which may be as long as an argument can be: enough to
/// recognise it in a message.
pub(crate) fn shortened(name: &str) -> String {
    const MAX_CHARS: usize = 40;
    match name.char_indices().nth(MAX_CHARS) {
        Some((end, _)) => format!("{}…", &name[..end]),
        None => name.to_owned(),
    }
}

/// What others call fields, and their names here.
const OTHER_NAMES: [(&str, &str); 24] = [
    ("addr", "start"),
    ("address", "start"),
    ("age", "elapsed_ns"),
    ("command", "comm"),
    ("dport", "remote_port"),
    ("foreign_address", "remote_addr"),
    ("laddr", "local_addr"),
    ("mem", "rss_bytes"),
    ("memory", "rss_bytes"),
    ("memory_info", "rss_bytes"),
    ("name", "comm"),
    ("netid", "protocol"),
    ("node", "inode"),
    ("num_threads", "threads_count"),
    ("path", "name"),
    ("process", "comm"),
    ("program", "comm"),
    ("raddr", "remote_addr"),
    ("recvq", "recv_queue_bytes"),
    ("res", "rss_bytes"),
    ("size", "size_bytes"),
    ("sport", "local_port"),
    ("users", "owners"),
    ("virt", "vsize_bytes"),
];

/// The names among `candidates` that `name` may stand for, the nearest first, at most five.
pub fn near<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    /// No name is this long, and the time for a comparison grows with the product of both lengths.
    const MAX_CHARS: usize = 100;
    if name.len() > MAX_CHARS {
        return Vec::new();
    }
    let name = name.to_ascii_lowercase();
    let characters = name.chars().count();
    let most = |candidate: &str| 1 + candidate.len() / 4;
    let distance = |candidate: &str| {
        let candidate = candidate.to_ascii_lowercase();
        let is_long = name.len() >= 3;
        if OTHER_NAMES.contains(&(&name, &candidate)) || is_long && candidate.starts_with(&name) {
            0
        } else if is_long && (candidate.contains(&name) || name.contains(&candidate)) {
            1
        } else if candidate.len().abs_diff(characters) > most(&candidate) {
            // The lengths alone differ too much: `top` calls this for each key that is typed.
            usize::MAX
        } else {
            strsim::osa_distance(&name, &candidate)
        }
    };
    let mut near: Vec<(usize, usize, &str)> = candidates
        .into_iter()
        .map(|candidate| (distance(candidate), candidate.len().abs_diff(name.len()), candidate))
        .filter(|&(distance, _, candidate)| distance <= most(candidate))
        .collect();
    near.sort();
    near.dedup();
    near.into_iter().take(5).map(|(_, _, candidate)| candidate).collect()
}

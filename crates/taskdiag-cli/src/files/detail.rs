//! What the lines of `fdinfo` say about an object of the kernel, in words for a table.

use std::time::Duration;

use taskdiag_core::names::SIGNALS;

/// The lines in words. `None` for all others, which are shown as they are.
pub fn words(detail: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(detail).ok()?;
    let members = || text.lines().filter_map(|line| line.split_once(':'));
    let all = |key: &'static str| members().filter(move |member| member.0 == key).map(|member| member.1);
    let (key, value) = members().find(|(key, _)| KEYS.contains(key))?;
    Some(match (key, value.trim()) {
        ("eventfd-count", count) => format!("count {}", u64::from_str_radix(count, 16).ok()?),
        ("tfd", _) => {
            let targets: Vec<&str> = all("tfd").filter_map(|line| line.split_whitespace().next()).collect();
            format!("targets {}: {}", targets.len(), targets.join(","))
        }
        ("inotify wd", _) => format!("watches {}", all("inotify wd").count()),
        ("sigmask", mask) => signals(u64::from_str_radix(mask, 16).ok()?),
        ("clockid", clock) => {
            let [left, interval] = ["it_value", "it_interval"].map(|key| duration(all(key).next()?));
            timer(clock, left?, interval?)
        }
        // The number is that in the pid namespace of this /proc.
        ("Pid", "0") => "pid of another namespace".to_owned(),
        ("Pid", "-1") => "gone".to_owned(),
        (_, pid) => format!("pid {pid}"),
    })
}

/// The first keys of eventfd, epoll, inotify, signalfd, timerfd and pidfd.
const KEYS: [&str; 6] = ["eventfd-count", "tfd", "inotify wd", "sigmask", "clockid", "Pid"];

fn signals(mask: u64) -> String {
    let name = |number: usize| {
        SIGNALS
            .get(number)
            .map_or((number + 1).to_string(), |name| (*name).to_owned())
    };
    let numbers = (0..64).filter(|number| mask >> number & 1 != 0);
    let names: Vec<String> = numbers.map(name).collect();
    format!(
        "signals {}",
        if names.is_empty() {
            "none".to_owned()
        } else {
            names.join(",")
        }
    )
}

/// Seconds and nanoseconds: `(100, 496621143)`.
fn duration(text: &str) -> Option<Duration> {
    let (seconds, nanoseconds) = text.trim().strip_prefix('(')?.strip_suffix(')')?.split_once(", ")?;
    Some(Duration::new(seconds.parse().ok()?, nanoseconds.parse().ok()?))
}

fn timer(clock: &str, left: Duration, interval: Duration) -> String {
    let clock = match clock {
        "0" => "realtime",
        "1" => "monotonic",
        "7" => "boottime",
        "8" => "realtime_alarm",
        "9" => "boottime_alarm",
        other => other,
    };
    let left = if left.is_zero() {
        "off".to_owned()
    } else {
        format!("{left:.1?} left")
    };
    let every = if interval.is_zero() {
        String::new()
    } else {
        format!(", every {interval:?}")
    };
    format!("{clock}, {left}{every}")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check the lines of each kind of object, and that others have no words.
    #[test]
    fn objects_have_words() {
        for (detail, expected) in [
            ("eventfd-count:               1a\neventfd-id: 1\n", Some("count 26")),
            ("eventfd-count: ffffffffffffffff\n", Some("count 18446744073709551615")),
            (
                "tfd:        3 events:       1f data:   3\ntfd:       14 events:  1\n",
                Some("targets 2: 3,14"),
            ),
            ("sigmask:\t8000000200004200\n", Some("signals USR1,TERM,34,64")),
            ("sigmask:\t0000000000000000\n", Some("signals none")),
            ("inotify wd:2 ino:13\ninotify wd:1 ino:3\n", Some("watches 2")),
            ("Pid:\t12\nNSpid:\t12\t1\n", Some("pid 12")),
            ("Pid:\t-1\nNSpid:\t-1\n", Some("gone")),
            ("Pid:\t0\n", Some("pid of another namespace")),
            ("lock:\t1: FLOCK  ADVISORY  WRITE 7 fe:00:9 0 EOF\n", None),
            ("lock:\t1: FLOCK\nsigmask:\t1\n", Some("signals HUP")),
            ("clockid: 1\nit_value: (1)\nit_interval: (5, 0)\n", None),
            ("clockid: 1\nit_value: (1, 2)\n", None),
            ("eventfd-count: x\n", None),
            ("", None),
        ] {
            assert_eq!(words(detail.as_bytes()).as_deref(), expected, "{detail}");
        }
        for (clock, left, interval, expected) in [
            ("1", "(100, 496621143)", "(5, 0)", "monotonic, 100.5s left, every 5s"),
            ("7", "(0, 1000)", "(0, 0)", "boottime, 1.0µs left"),
            ("3", "(0, 0)", "(0, 0)", "3, off"),
        ] {
            let detail =
                format!("clockid: {clock}\nticks: 0\nsettime flags: 00\nit_value: {left}\nit_interval: {interval}\n");
            assert_eq!(words(detail.as_bytes()).as_deref(), Some(expected));
        }
    }

    proptest::proptest! {
        /// Check that any lines are survived.
        #[test]
        fn any_lines_are_survived(lines in "((clockid|it_value|it_interval|sigmask|Pid|tfd):[ (),0-9]{0,30}\n){0,4}") {
            let _ = words(lines.as_bytes());
        }
    }
}

//! Words that are all values a field can have: any other is a mistake.

use super::comparison::{Column, Subject};
use super::message::or_near;
use crate::cgroup::Runtime;
use crate::field::{near, shortened, Field};
use crate::open_file::{Access, AnonKind, Kind, Use};
use crate::socket::{is_protocol, protocols, Family, Shutdown, State, TimerKind};

/// The letters of [`Field::State`].
const STATES: [&str; 9] = ["R", "S", "D", "I", "T", "t", "P", "Z", "X"];

/// The permissions of mappings: four letters each.
const PERMS: &str = "---p ---s --xp --xs -w-p -w-s -wxp -wxs r--p r--s r-xp r-xs rw-p rw-s rwxp rwxs";

/// What other programs call values: the column, the word in lower case, and what is meant.
const OTHER_WORDS: [(&str, &str, &str); 18] = [
    ("access", "r/w", "access == 'rw'"),
    ("family", "ipv4", "family == 'inet'"),
    ("family", "ipv6", "family == 'inet6'"),
    ("kind", "directory", "kind == 'dir'"),
    ("kind", "pipe", "kind == 'fifo'"),
    ("kind", "reg", "kind == 'file'"),
    ("kind", "sock", "kind == 'socket'"),
    ("protocol", "unix", "family == 'unix'"),
    ("state", "running", "state == 'R'"),
    ("state", "sleeping", "state == 'S'"),
    ("state", "stopped", "state in ('T', 't')"),
    ("state", "zombie", "state == 'Z'"),
    ("type", "tcp", "protocol == 'tcp'"),
    ("type", "udp", "protocol == 'udp'"),
    ("use", "mem", "use == 'map'"),
    ("use", "mmap", "use == 'map'"),
    ("use", "rtd", "use == 'root'"),
    ("use", "txt", "use == 'exe'"),
];

/// The value of the subject that a text stands for: words may be in other cases. Fails if it can never
/// be equal to this text.
pub(super) fn meant(subject: Subject, text: &str) -> Result<&str, String> {
    if text == "(none)" && subject.is_derived() {
        return Err(format!(
            "{text:?} is what tables show for none: write {subject} == none"
        ));
    }
    let Some(words) = of(subject) else { return Ok(text) };
    let is_number = || matches!(subject, Subject::Column(Column { name: "protocol", .. })) && is_protocol(text);
    // The case of a letter tells `t` from `T`.
    let is_meant = |word: &&&str| **word == text || text.len() > 1 && word.eq_ignore_ascii_case(text);
    let known = words.iter().find(is_meant).copied();
    if let Some(word) = known.or_else(|| is_number().then_some(text)) {
        return Ok(word);
    }
    let (name, lower) = (subject.to_string(), text.to_lowercase());
    let is_it = |(column, word, _): &&(&str, &str, &str)| *column == name && *word == lower;
    if let Some((.., meant)) = OTHER_WORDS.iter().find(is_it) {
        return Err(format!("{text:?} is not a value of {name}: here it is {meant}"));
    }
    if name == "kind" && AnonKind::ALL.map(AnonKind::name).contains(&lower.as_str()) {
        return Err(format!(
            "{text:?} is not a value of {name}: here it is anon_kind == '{lower}'"
        ));
    }
    // Any letter is near any other.
    let is_near = |word: &&str| word.len() > 1 || word.eq_ignore_ascii_case(text);
    let known = words.iter().map(|&word| if word.is_empty() { "''" } else { word });
    Err(format!(
        "{:?} is not a value of {subject}{}; known are {}",
        shortened(text),
        or_near(&near(text, words.iter().copied().filter(is_near))),
        known.collect::<Vec<_>>().join(", ")
    ))
}

/// All values of a subject. `None`: it can have others.
fn of(subject: Subject) -> Option<Vec<&'static str>> {
    let column = match subject {
        Subject::Field(Field::State) => return Some(STATES.to_vec()),
        Subject::Field(Field::ContainerRuntime) => {
            return Some([""].into_iter().chain(Runtime::ALL.map(Runtime::name)).collect())
        }
        subject => subject.column()?,
    };
    let mut words = match column.name {
        "use" => Use::ALL.map(Use::name).to_vec(),
        "kind" => Kind::all().map(Kind::name).collect(),
        "anon_kind" => AnonKind::ALL.map(AnonKind::name).to_vec(),
        "access" => Access::ALL.map(Access::name).to_vec(),
        "family" => Family::ALL.map(Family::name).to_vec(),
        "type" => "stream dgram raw seqpacket packet other".split(' ').collect(),
        "perms" => PERMS.split(' ').collect(),
        "protocol" => protocols(),
        "state" => State::ALL.map(State::name).to_vec(),
        "shutdown" => Shutdown::ALL.map(Shutdown::name).to_vec(),
        "timer" => TimerKind::ALL.map(TimerKind::name).to_vec(),
        _ => return None,
    };
    words.dedup();
    Some(words)
}

#[cfg(test)]
mod tests {
    use super::super::Filter;

    /// Check that a word that no task can have is refused, with the near one and with all, but not
    /// where it is only compared by its order.
    #[test]
    fn words_of_closed_sets_are_known() {
        let message = |text: &str| Filter::parse(text).expect_err(text).to_string();
        for (text, part) in [
            (
                "state == 'd'",
                "column 10: \"d\" is not a value of state; near it are: D",
            ),
            ("state == 'Running'", "here it is state == 'R'"),
            ("tty in ('(none)')", "write tty == none"),
            ("state != 'Q'", "known are R, S, D, I, T, t, P, Z, X"),
            ("pid == 1 or state not in ('R', 'X9')", "\"X9\" is not a value of state"),
            (
                "container_runtime == 'dokcer'",
                "near it are: docker; known are '', docker",
            ),
        ] {
            let message = message(text);
            assert!(message.contains(part), "{message}");
        }
        for text in [
            "container_runtime == ''",
            "state > 'd'",
            "container_runtime in ('Docker', 'PODMAN')",
            "state == state",
            "comm == 'X9'",
            "state ~ 'd'",
        ] {
            assert!(Filter::parse(text).is_ok(), "{text}");
        }
    }
}

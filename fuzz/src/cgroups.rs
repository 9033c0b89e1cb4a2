//! Files and paths of cgroups: any bytes can be parsed. The values parsed from a file stay the same
//! if they are printed as the kernel prints them and parsed again. The values of a path are parts
//! of it.

use taskdiag_core::cgroup::{self, Container};
use taskdiag_core::text::cgroup as file;

pub fn run(data: &[u8]) {
    numbers(data);
    lines(data);
    pressure(data);
    path(data);
}

fn limit(limit: Option<u64>) -> String {
    limit.map_or_else(|| "max".to_owned(), |limit| limit.to_string())
}

/// Files with one number, and `cpu.max`.
fn numbers(text: &[u8]) {
    if let Some(number) = file::number(text) {
        assert_eq!(file::number(format!("{number}\n").as_bytes()), Some(number));
        assert_eq!(file::limit(text), Some(Some(number)));
    }
    if let Some(known) = file::limit(text) {
        assert_eq!(file::limit(format!("{}\n", limit(known)).as_bytes()), Some(known));
    }
    if let Some((quota, period)) = file::quota(text) {
        let printed = format!("{} {period}\n", limit(quota));
        assert_eq!(file::quota(printed.as_bytes()), Some((quota, period)));
    }
}

/// Files with a word and a number on each line, and `io.stat`.
fn lines(text: &[u8]) {
    let words = text.split(|byte| b" \n=".contains(byte));
    for word in words.filter(|word| !word.is_empty()).take(8) {
        if let Some(value) = file::value(text, word) {
            let line = [word, b" ", value.to_string().as_bytes(), b"\n"].concat();
            assert_eq!(file::value(&line, word), Some(value));
        }
        if let Some(sum) = file::io_sum(text, word) {
            let line = [b"8:0 ", word, b"=", sum.to_string().as_bytes(), b"\n"].concat();
            assert_eq!(file::io_sum(&line, word), Some(sum));
        }
    }
}

fn pressure(text: &[u8]) {
    for line in ["some", "full"] {
        let Some(known) = file::pressure(text, line.as_bytes()) else {
            continue;
        };
        for average in [known.avg10, known.avg60, known.avg300] {
            assert!((0.0..=100.0).contains(&average));
        }
        let printed = format!(
            "{line} avg10={} avg60={} avg300={} total={}\n",
            known.avg10, known.avg60, known.avg300, known.total_us
        );
        assert_eq!(file::pressure(printed.as_bytes(), line.as_bytes()), Some(known));
    }
}

fn is_part(whole: &[u8], part: &[u8]) -> bool {
    part.is_empty() || whole.windows(part.len()).any(|window| window == part)
}

fn path(path: &[u8]) {
    for unit in [cgroup::unit(path), cgroup::user_unit(path)].into_iter().flatten() {
        assert!(is_part(path, unit) && !unit.is_empty() && unit.len() <= 255 && !unit.contains(&b'/'));
    }
    if let Some(slice) = cgroup::slice(path) {
        assert!(is_part(path, slice) && slice.ends_with(b".slice"));
    }
    if let Some(Container { id, .. }) = cgroup::container(path) {
        assert!(is_part(path, id) && !id.is_empty() && !id.contains(&b'/'));
    }
    if let Some(owner) = cgroup::owner(path) {
        let slice = format!("/user-{owner}.slice");
        assert_eq!(cgroup::owner(slice.as_bytes()), Some(owner));
    }
    if let Some(uid) = cgroup::pod_uid(path) {
        let mut written = Vec::new();
        cgroup::pod_uid_text(uid, &mut written);
        assert!(written.len() == uid.len() && is_part(path, uid));
        assert_eq!(cgroup::pod_uid(&[b"/pod", uid].concat()), Some(uid));
    }
    let mut plain = Vec::new();
    cgroup::unescape(path, &mut plain);
    assert!(plain.len() <= path.len());
    let escaped: Vec<u8> = plain
        .iter()
        .flat_map(|byte| format!("\\x{byte:02x}").into_bytes())
        .collect();
    let mut again = Vec::new();
    cgroup::unescape(&escaped, &mut again);
    assert_eq!(again, plain);
}

//! The texts of `maps`, `smaps` and `smaps_rollup`: a parsed line stays the same if it is printed
//! as the kernel prints it and parsed again. Sums do not depend on where the text is split.

use taskdiag_core::mapping::Usage;
use taskdiag_core::text::maps;
use taskdiag_core::text::smaps::Sum;
use zerocopy::IntoBytes as _;

/// Longer lines of smaps contain no sum. They are truncated if the text comes in parts.
const LONGEST: usize = 256;

pub fn run(data: &[u8]) {
    let (mut usage, mut page_size) = (Usage::default(), 0);
    for text in data.split(|&byte| byte == b'\n') {
        line(text);
        name(text);
        let before = usage;
        let is_detail = maps::detail(text, &mut usage, &mut page_size);
        assert!(usage.rss_bytes >= before.rss_bytes && usage.dirty_bytes >= before.dirty_bytes);
        assert!(is_detail || usage == before);
    }
    if let Some((&at, text)) = data.split_first() {
        sums(text, usize::from(at) % (text.len() + 1));
    }
}

/// `show_map_vma()` of fs/proc/task_mmu.c.
fn line(text: &[u8]) {
    let Some(line) = maps::line(text) else {
        return;
    };
    assert_eq!(
        maps::range(text).map(|(start, end, _)| (start, end)),
        Some((line.start, line.end))
    );
    let mut printed = format!(
        "{:08x}-{:08x} {} {:08x} {:02x}:{:02x} {} ",
        line.start, line.end, line.perms, line.offset_bytes, line.device.major, line.device.minor, line.inode
    )
    .into_bytes();
    printed.extend_from_slice(line.name);
    assert_eq!(maps::line(&printed), Some(line));
}

/// The kernel escapes only newlines.
fn name(escaped: &[u8]) {
    let mut name = Vec::new();
    maps::unescape(escaped, &mut name);
    assert!(name.len() <= escaped.len());
    let mut again = Vec::new();
    maps::unescape(
        &name
            .split(|&byte| byte == b'\n')
            .collect::<Vec<_>>()
            .join(&b"\\012"[..]),
        &mut again,
    );
    assert_eq!(again, name);
}

fn sums(text: &[u8], at: usize) {
    let (mut whole, mut parts) = (Sum::default(), Sum::default());
    whole.add(text);
    parts.add(&text[..at]);
    parts.add(&text[at..]);
    assert_eq!(parts.is_empty(), whole.is_empty());
    if text.split(|&byte| byte == b'\n').all(|line| line.len() <= LONGEST) {
        let bytes = |sum: &Sum| sum.rollup().map(|rollup| rollup.as_bytes().to_vec());
        assert_eq!(bytes(&parts), bytes(&whole));
    }
    whole.clear();
    assert!(whole.is_empty() && whole.rollup().is_none());
}

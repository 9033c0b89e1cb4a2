//! Where the kernel keeps the Landlock domain of a task.

use std::sync::mpsc;
use std::thread;

use crate::passes::{self, Programs};
use crate::sandbox;

/// How many words of a task's security data records carry.
const WORDS: usize = 32;

/// Finds the word of a task's security data that points to its Landlock domain. Threads enter a
/// domain, and that word changes each time. Other words may change too, since unrelated memory
/// follows the security data, but not the same way each time. `None` if no single word does.
pub fn find_domain_word(programs: &mut Programs) -> Option<usize> {
    const MIN_TRIES: usize = 4;
    const MAX_TRIES: usize = 32;
    let mut words = u64::MAX;
    for attempt in 1..=MAX_TRIES {
        words &= enter_and_compare(programs).unwrap_or(u64::MAX);
        match words.count_ones() {
            0 => return None,
            1 if attempt >= MIN_TRIES => return Some(words.trailing_zeros() as usize),
            _ => {}
        }
    }
    None
}

/// The words that changed when a new thread entered a domain, as a set of bits.
fn enter_and_compare(programs: &mut Programs) -> Option<u64> {
    let (tell, told) = mpsc::channel();
    let (go, may_go) = mpsc::channel::<()>();
    let thread = thread::Builder::new().spawn(move || {
        tell.send(rustix::thread::gettid().as_raw_nonzero().get() as u32).ok()?;
        may_go.recv().ok()?;
        // Both affect this thread alone.
        rustix::thread::set_no_new_privs(true).ok()?;
        let entered = sandbox::enter_empty_domain().unwrap_or(false);
        tell.send(u32::from(entered)).ok()?;
        may_go.recv().ok()
    });
    let thread = thread.ok()?;
    let tid = told.recv().ok()?;
    let before = security_words(programs, tid);
    go.send(()).ok()?;
    let entered = told.recv().ok()? == 1;
    let after = security_words(programs, tid);
    drop(go);
    let _ = thread.join();
    Some(pointers_that_appeared(&before.filter(|_| entered)?, &after?))
}

/// The security data of a thread of this process.
fn security_words(programs: &mut Programs, tid: u32) -> Option<[u64; WORDS]> {
    let records = programs.threads_of(std::process::id(), 0, 0, usize::MAX).ok()?;
    let own = records.each().find(|record| record.header().tid.get() == tid)?;
    Some(passes::view(own)?.security.map(|word| word.get()))
}

/// The words that were 0 and are kernel addresses now, as a set of bits.
fn pointers_that_appeared(before: &[u64; WORDS], after: &[u64; WORDS]) -> u64 {
    // The lowest kernel address on machines with the widest addresses, 57 bits.
    const LOWEST: u64 = 0xff00_0000_0000_0000;
    let words = before.iter().zip(after).enumerate();
    let appeared = words.filter(|(_, (before, after))| **before == 0 && **after >= LOWEST);
    appeared.fold(0, |set, (word, _)| set | 1 << word)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that kernel addresses are recognized at each width, and that only words that were 0
    /// before count.
    #[test]
    fn new_kernel_addresses_are_found() {
        let mut before = [0; WORDS];
        let mut after = [0; WORDS];
        after[1] = 0xffff_8880_0123_4560; // x86-64, 48 bits
        after[2] = 0xff11_cb8a_8136_7f60; // x86-64, 57 bits
        after[3] = 0xffff_0000_c012_3400; // arm64, 48 bits
        after[4] = 0xfff0_0000_c012_3400; // arm64, 52 bits
        after[5] = 0x0000_7fff_1234_5678; // not the kernel's
        before[6] = 0xffff_8880_0123_0000; // another address before
        after[6] = after[1];
        before[7] = 0xffff_8880_0123_0000; // an address that went
        assert_eq!(pointers_that_appeared(&before, &after), 0b1_1110);
    }
}

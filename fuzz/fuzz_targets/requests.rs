//! Requests to the broker: a valid request that is encoded and parsed again is the same. An invalid
//! one is refused with its sequence number.

#![no_main]

use arbitrary::{Result, Unstructured};
use libfuzzer_sys::fuzz_target;
use taskdiag_protocol::wire::{Request, Strategy, ALL_BITS};

fuzz_target!(|data: &[u8]| {
    match Request::parse(data) {
        Ok(request) => assert_eq!(Request::parse(&request.encode()), Ok(request)),
        Err(bad) => {
            let seq = data.get(8..12).filter(|_| data.len() >= 16);
            let seq = seq.map_or(0, |seq| u32::from_ne_bytes(seq.try_into().expect("four bytes")));
            assert_eq!(bad.seq, seq);
            assert!(bad.errno > 0);
        }
    }
    let request = made(&mut Unstructured::new(data)).expect("what is missing at the end is made up");
    match Request::parse(&request.encode()) {
        Ok(parsed) => {
            let is_about_all = matches!(request.strategy, Strategy::All | Strategy::AllThreads);
            let pid = if is_about_all { 0 } else { request.pid };
            assert_eq!(parsed, Request { pid, ..request });
        }
        Err(bad) => assert_eq!(bad.seq, request.seq),
    }
});

/// A request with bits and numbers that there are.
fn made(input: &mut Unstructured<'_>) -> Result<Request> {
    Ok(Request {
        seq: input.arbitrary()?,
        show: input.arbitrary::<u64>()? & ALL_BITS,
        strategy: *input.choose(&[
            Strategy::All,
            Strategy::One,
            Strategy::AllThreads,
            Strategy::Children,
            Strategy::Thread,
        ])?,
        pid: input.arbitrary()?,
    })
}

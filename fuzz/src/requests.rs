//! Requests to the broker: a valid request stays the same if it is encoded and parsed again. An
//! invalid one is refused with its sequence number.

use arbitrary::{Result, Unstructured};
use taskdiag_protocol::wire::{show, Files, Request, Strategy, ALL_BITS};
use zerocopy::FromBytes as _;

use crate::change;

pub fn run(data: &[u8]) {
    parse(data);
    // With the right length.
    let mut packet = data.to_vec();
    if let Some(len) = packet.first_chunk_mut() {
        *len = (data.len() as u32).to_ne_bytes();
    }
    parse(&packet);
    let mut input = Unstructured::new(data);
    let request = made(&mut input).expect("what is missing at the end is made up");
    about_files(&mut input, request).expect("what is missing at the end is made up");
    match Request::parse(&request.encode()) {
        Ok(parsed) => {
            let is_about_all = matches!(request.strategy, Strategy::All | Strategy::AllThreads);
            let pid = if is_about_all { 0 } else { request.pid };
            assert_eq!(parsed, Request { pid, ..request });
        }
        Err(bad) => assert_eq!(bad.seq, request.seq),
    }
}

/// Parses any bytes.
fn parse(data: &[u8]) {
    match Request::parse(data) {
        Ok(request) => {
            assert_eq!(Request::parse(&request.encode()), Ok(request));
            if request.show == show::FILES {
                let files = Files::parse(data);
                let packet = request.encode_with(&files);
                assert_eq!((Request::parse(&packet), Files::parse(&packet)), (Ok(request), files));
            }
        }
        Err(bad) => {
            let seq = data.get(8..12).filter(|_| data.len() >= 16);
            let seq = seq.map_or(0, |seq| u32::from_ne_bytes(seq.try_into().expect("four bytes")));
            assert_eq!(bad.seq, seq);
            assert!(bad.errno > 0);
        }
    }
}

/// A request about files, followed by anything: it is accepted unchanged, or refused.
fn about_files(input: &mut Unstructured<'_>, request: Request) -> Result<()> {
    let request = Request {
        show: show::FILES,
        ..request
    };
    let mut bytes = [0; size_of::<Files>()];
    input.fill_buffer(&mut bytes)?;
    let files = Files::read_from_bytes(&bytes).expect("its size");
    let mut packet = request.encode_with(&files);
    assert_eq!(Files::parse(&packet), files);
    match Request::parse(&packet) {
        Ok(parsed) => assert_eq!((parsed.show, parsed.strategy), (show::FILES, request.strategy)),
        Err(bad) => assert_eq!(bad.seq, request.seq),
    }
    change(input, &mut packet)?;
    parse(&packet);
    Ok(())
}

/// A request with valid bits and numbers.
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

//! The messages of an answer: any bytes can be read, and each part is at its offset. Written
//! messages are read back unchanged.

use arbitrary::{Result, Unstructured};
use taskdiag_protocol::wire::{self, Message, MessageWriter, Messages, TaskHeader};
use zerocopy::native_endian::U32;
use zerocopy::IntoBytes as _;

use crate::change;

/// The number of the answered request.
const SEQ: u32 = 7;

pub fn run(data: &[u8]) {
    read(data, 0);
    // The same bytes as an answer to this request.
    let mut numbered = data.to_vec();
    let packet = wire::number_packet(&mut numbered, SEQ).to_vec();
    assert!(packet.len() <= wire::PACKET.min(data.len()));
    read(&packet, SEQ);
    let mut again = packet.clone();
    assert_eq!(wire::number_packet(&mut again, SEQ), packet);
    let mut input = Unstructured::new(data);
    let mut written = write(&mut input).expect("what is missing at the end is made up");
    change(&mut input, &mut written).expect("what is missing at the end is made up");
    read(&written, SEQ);
}

/// Reads any bytes.
fn read(bytes: &[u8], seq: u32) {
    let mut end = 0;
    for message in Messages::new(bytes, seq) {
        let Ok(Message::Task { attributes, offset, .. }) = message else {
            continue;
        };
        assert!(offset >= end);
        end = offset + attributes.len();
        assert_eq!(&bytes[offset..end], attributes);
        for (_, payload, at) in wire::attributes(attributes) {
            assert_eq!(&attributes[at..at + payload.len()], payload);
        }
    }
}

/// Writes an answer about some tasks, and reads it back.
fn write(input: &mut Unstructured<'_>) -> Result<Vec<u8>> {
    let mut tasks = Vec::new();
    for _ in 0..input.int_in_range(0..=3)? {
        let mut attributes = Vec::new();
        for _ in 0..input.int_in_range(0..=4)? {
            let mut payload = vec![0; input.int_in_range(0..=99)?];
            input.fill_buffer(&mut payload)?;
            attributes.push((input.arbitrary::<u16>()?, payload));
        }
        tasks.push((input.arbitrary::<[u32; 2]>()?, input.arbitrary::<bool>()?, attributes));
    }
    // The range of error numbers of system calls: MAX_ERRNO of include/linux/err.h.
    let errno = input.int_in_range(0..=4095)?;

    let mut bytes = Vec::new();
    for ([pid, tgid], is_continued, attributes) in &tasks {
        let header = TaskHeader {
            pid: U32::new(*pid),
            tgid: U32::new(*tgid),
            flags: U32::new(0),
        };
        let mut writer = MessageWriter::task(&mut bytes, SEQ, header);
        for (kind, payload) in attributes {
            writer.attribute(*kind, |out| out.extend_from_slice(payload));
        }
        if *is_continued {
            writer.continued();
        }
        assert_eq!(writer.is_empty(), attributes.is_empty());
        writer.finish();
    }
    if errno == 0 {
        wire::put_done(&mut bytes, SEQ);
    } else {
        wire::put_error(&mut bytes, SEQ, errno);
    }

    let mut messages = Messages::new(&bytes, SEQ);
    for ([pid, tgid], is_continued, attributes) in &tasks {
        let Some(Ok(Message::Task {
            header,
            attributes: list,
            ..
        })) = messages.next()
        else {
            panic!("a message about a task is missing");
        };
        let flags = if *is_continued { wire::CONTINUED } else { 0 };
        assert_eq!(header.as_bytes(), [*pid, *tgid, flags].as_bytes());
        let list: Vec<_> = wire::attributes(list)
            .map(|(kind, payload, _)| (kind, payload.to_vec()))
            .collect();
        assert_eq!(&list, attributes);
    }
    match messages.next() {
        Some(Ok(Message::Done)) => assert_eq!(errno, 0),
        Some(Ok(Message::Error(number))) => assert_eq!(number, errno),
        other => panic!("{other:?} at the end"),
    }
    assert!(messages.next().is_none());
    Ok(bytes)
}

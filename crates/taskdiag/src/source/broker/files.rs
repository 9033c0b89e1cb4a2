//! Requests to the broker about open files.

use std::time::Instant;

use rustix::io::Errno;
use taskdiag_core::error::{Error, ErrorKind, Result};
use taskdiag_protocol::wire::{self, attribute, show, Strategy};

use super::{each_task, Broker, Refusal, RETRIES, RETRY_PAUSE};

/// The pid of a process, and records of its files.
pub(crate) type Records<'a> = (u32, &'a [u8]);

/// Receives the records of a packet. Returns whether it wants more.
type Each<'e> = dyn FnMut(&[Records<'_>]) -> Result<bool> + 'e;

type Answered<T> = std::result::Result<T, Refusal>;

impl Broker {
    /// Fails if the broker does not answer about open files.
    pub(crate) fn check_files(&self) -> Result<()> {
        if self.bits.bits.get() & show::FILES != 0 {
            return Ok(());
        }
        let message = format!(
            "the broker at {} does not answer about open files: install it in the same version as this \
             program, or use --source procfs",
            self.path.display()
        );
        Err(Error::new(ErrorKind::Unsupported, message))
    }

    /// Asks about the files of processes, and passes the process and the records of each message to
    /// `each`, packet by packet. Returns false if `each` wanted no more.
    pub(crate) fn read_files(
        &mut self,
        strategy: Strategy,
        pid: u32,
        files: &wire::Files,
        each: &mut Each<'_>,
    ) -> Result<bool> {
        self.check_files()?;
        let mut attempts = 0..RETRIES;
        loop {
            let mut has_begun = false;
            match self.ask_files(strategy, pid, files, &mut has_begun, each) {
                Ok(result) => return result,
                Err(Refusal::Errno(Errno::PIPE)) if !has_begun && attempts.next().is_some() => self.reconnect()?,
                Err(Refusal::Errno(Errno::BUSY)) if !has_begun && attempts.next().is_some() => {
                    std::thread::sleep(RETRY_PAUSE)
                }
                Err(Refusal::Errno(Errno::PIPE)) => {
                    self.is_broken = true;
                    let message = format!(
                        "the broker at {} ended the connection: it does not wait long for who does not read \
                         its answer",
                        self.path.display()
                    );
                    return Err(Error::new(ErrorKind::System, message));
                }
                Err(refusal) => return Err(self.error(refusal, pid)),
            }
        }
    }

    fn ask_files(
        &mut self,
        strategy: Strategy,
        pid: u32,
        files: &wire::Files,
        has_begun: &mut bool,
        each: &mut Each<'_>,
    ) -> Answered<Result<bool>> {
        let seq = self.send(show::FILES, strategy, pid, Some(files))?;
        match strategy {
            Strategy::One => self.busy_poll.begin(),
            _ => self.busy_poll.end(),
        }
        let (mut began, mut received) = (Instant::now(), 0);
        let mut packet = std::mem::take(&mut self.packet);
        loop {
            packet.clear();
            self.receive(&mut packet)?;
            received += packet.len();
            self.limits.check(began, received)?;
            let (records, is_last) = file_records(&packet, seq)?;
            *has_begun |= !records.is_empty();
            let passed_on = Instant::now();
            let goes_on = each(&records);
            // The time that the caller takes does not count against the broker.
            began += passed_on.elapsed();
            if !is_last && !matches!(goes_on, Ok(true)) {
                // The rest of the answer is still on its way.
                self.is_broken = true;
            } else if !is_last {
                continue;
            }
            self.packet = packet;
            return Ok(goes_on);
        }
    }
}

/// The processes and the records of files in the messages of a packet, and whether the answer ends
/// with it.
fn file_records(packet: &[u8], seq: u32) -> Answered<(Vec<Records<'_>>, bool)> {
    let mut records = Vec::new();
    let is_last = each_task(packet, seq, |header, attributes, _| {
        let files = wire::attributes(attributes).filter(|(kind, ..)| *kind == attribute::FILES);
        records.extend(files.map(|(_, payload, _)| (header.tgid.get(), payload)));
    })?;
    Ok((records, is_last))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use taskdiag_bpf::files::{decode, used_as, Record};
    use taskdiag_protocol::wire::{MessageWriter, Request, TaskHeader, ALL_BITS};
    use zerocopy::native_endian::{U32, U64};

    // proptest has a `Strategy` too.
    use super::Strategy;
    use super::*;
    use crate::source::broker::tests::broker_that;

    /// A message about the files of a process.
    fn put_message(pid: u32, seq: u32, out: &mut Vec<u8>) {
        let task = TaskHeader {
            pid: U32::new(pid),
            tgid: U32::new(pid),
            flags: U32::new(0),
        };
        let mut message = MessageWriter::task(out, seq, task);
        message.attribute(attribute::FILES, |out| {
            for used_as in [used_as::PROCESS, used_as::CWD, used_as::END] {
                let record = Record {
                    used_as,
                    ..Record::default()
                };
                record.put(b"/tmp", out);
            }
        });
        message.finish();
    }

    fn answer(seq: u32) -> Vec<u8> {
        let mut out = Vec::new();
        (1..4).for_each(|pid| put_message(pid, seq, &mut out));
        wire::put_done(&mut out, seq);
        out
    }

    fn ask(broker: &mut Broker, each: &mut Each<'_>) -> Result<bool> {
        broker.read_files(Strategy::All, 0, &wire::Files::default(), each)
    }

    /// Check that an error names an older broker, and that it is not asked.
    #[test]
    fn an_older_broker_is_named() {
        let mut broker = broker_that(|_, _| panic!("it is not asked"));
        broker.bits.bits = U64::new(ALL_BITS & !show::FILES);
        let error = ask(&mut broker, &mut |_| Ok(true)).expect_err("no answer");
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        let text = error.to_string();
        assert!(
            text.contains("/test") && text.contains("install it in the same version"),
            "{text}"
        );
    }

    /// Check that the caller gets the records packet by packet until the answer ends or the caller
    /// wants no more.
    #[test]
    fn records_come_by_packets() {
        let asked = wire::Files::default();
        let mut broker = broker_that(move |packet, send| {
            let request = Request::parse(packet).expect("a request");
            assert_eq!((request.show, wire::Files::parse(packet)), (show::FILES, asked));
            let mut first = Vec::new();
            put_message(7, request.seq, &mut first);
            send(&first);
            send(&answer(request.seq));
        });
        let mut pids = Vec::new();
        let mut each = |records: &[Records<'_>]| {
            pids.push(records.iter().map(|(pid, _)| *pid).collect::<Vec<_>>());
            Ok(true)
        };
        assert!(ask(&mut broker, &mut each).expect("an answer"));
        assert_eq!(pids, [vec![7], vec![1, 2, 3]]);
        assert!(broker.is_ours());
        assert!(!ask(&mut broker, &mut |_| Ok(false)).expect("a part of one"));
        assert!(!broker.is_ours(), "the rest is on its way");
    }

    /// Check that an endless answer is given up.
    #[test]
    fn an_answer_without_end_is_given_up() {
        let mut broker = broker_that(|packet, send| {
            let seq = Request::parse(packet).expect("a request").seq;
            let mut part = Vec::new();
            (0..100).for_each(|pid| put_message(pid, seq, &mut part));
            while send(&part) {}
        });
        broker.limits.bytes = 4 << 20;
        let error = ask(&mut broker, &mut |_| Ok(true)).expect_err("an end");
        assert!(error.to_string().contains("larger than a quarter"), "{error}");
        assert!(!broker.is_ours());
    }

    proptest! {
        /// Check that an answer with bytes changed or cut off is either read or refused.
        #[test]
        fn broken_answers_are_handled(changes in proptest::collection::vec((any::<usize>(), any::<u8>()), 0..5), cut: usize) {
            let mut bytes = answer(5);
            for (at, byte) in changes {
                let at = at % bytes.len();
                bytes[at] = byte;
            }
            bytes.truncate(cut % (bytes.len() + 1));
            if let Ok((records, _)) = file_records(&bytes, 5) {
                for (_, records) in records {
                    let _ = decode(records, |record, text| assert_eq!(record.name_len as usize, text.len()));
                }
            }
        }
    }
}

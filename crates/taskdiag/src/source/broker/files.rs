//! Questions to the broker about open files.

use std::time::Instant;

use rustix::io::Errno;
use taskdiag_core::error::{Error, ErrorKind, Result};
use taskdiag_protocol::wire::{self, attribute, show, Message, Messages, Strategy};

use super::{Broker, Refusal, RETRIES, RETRY_PAUSE};

/// Records of files of a process, and its pid.
pub(crate) type Records<'a> = (u32, &'a [u8]);

/// What receives the records of a packet. It returns whether it wants more.
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
    /// `each`, packet by packet. Returns false if `each` did: it wants no more.
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
        let seq = self.send_with(show::FILES, strategy, pid, Some(files))?;
        match strategy {
            Strategy::One => self.linger.begin(),
            _ => self.linger.end(),
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
            // The time that the caller takes is not the broker's.
            began += passed_on.elapsed();
            if !is_last && !matches!(goes_on, Ok(true)) {
                // The rest of the answer is on its way.
                self.is_broken = true;
            } else if !is_last {
                continue;
            }
            self.packet = packet;
            return Ok(goes_on);
        }
    }
}

/// The processes and the records of files in the messages of a packet, and whether the answer ends with
/// it.
fn file_records(packet: &[u8], seq: u32) -> Answered<(Vec<Records<'_>>, bool)> {
    let mut records = Vec::new();
    for message in Messages::new(packet, seq) {
        match message.map_err(|malformed| Refusal::Malformed(malformed.0))? {
            Message::Task { header, attributes, .. } => {
                let files = wire::attributes(attributes).filter(|(kind, ..)| *kind == attribute::FILES);
                records.extend(files.map(|(_, payload, _)| (header.tgid.get(), payload)));
            }
            Message::Done => return Ok((records, true)),
            Message::Error(errno) => return Err(Refusal::Errno(Errno::from_raw_os_error(errno))),
        }
    }
    Ok((records, false))
}

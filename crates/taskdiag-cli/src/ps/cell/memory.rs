//! Cells of memory: sizes, page faults, addresses, and the limit.

use taskdiag::{Absent, Field, Value};

use super::Cell;
use crate::output::people;

impl Cell<'_> {
    /// An amount of memory in bytes. Kernel threads and zombies have no memory: 0.
    pub(super) fn memory(&mut self, field: Field) -> Result<u64, &'static str> {
        match self.unsigned(field) {
            Err(reason) if reason == Absent::NoMemory.as_str() => Ok(0),
            value => value,
        }
    }

    /// An amount of memory in bytes.
    pub fn bytes(&mut self, field: Field) {
        let value = self.memory(field);
        self.number_or_dash(value);
    }

    /// An amount of memory in KiB.
    pub fn kibibytes(&mut self, field: Field) {
        let value = self.memory(field).map(|bytes| bytes / 1024);
        self.number_or_dash(value);
    }

    /// The sum of two amounts of memory, in bytes.
    pub fn sum(&mut self, a: Field, b: Field) -> Result<u64, &'static str> {
        let a = self.memory(a)?;
        Ok(a.saturating_add(self.memory(b)?))
    }

    /// The sum of two amounts of memory, in KiB.
    pub fn sum_kibibytes(&mut self, a: Field, b: Field) {
        let sum = self.sum(a, b).map(|bytes| bytes / 1024);
        self.number_or_dash(sum);
    }

    /// An amount of memory in pages.
    pub fn pages(&mut self, field: Field) {
        let value = self.memory(field).map(|bytes| bytes / self.host.page_bytes);
        self.number_or_dash(value);
    }

    /// The size of the code in bytes. Its addresses can be read only with the right to trace the
    /// task; without that, the size is known in whole pages.
    fn code_bytes(&mut self) -> Result<u64, &'static str> {
        match (
            self.task.cell(Field::StartCode as usize),
            self.task.cell(Field::EndCode as usize),
        ) {
            (Ok(Value::Mask(start)), Ok(Value::Mask(end))) => Ok(end.saturating_sub(start)),
            _ => self.memory(Field::TextBytes),
        }
    }

    /// The size of the code in KiB.
    pub fn code_size(&mut self) {
        let bytes = self.code_bytes();
        self.number_or_dash(bytes.map(|bytes| bytes / 1024));
    }

    /// The size of everything but the code, in KiB.
    pub fn data_size(&mut self) {
        let bytes = self
            .memory(Field::VsizeBytes)
            .and_then(|all| Ok(all.saturating_sub(self.code_bytes()?)));
        self.number_or_dash(bytes.map(|bytes| bytes / 1024));
    }

    /// Resident memory in percent of the machine's memory.
    pub fn percent_memory(&mut self) {
        match (self.memory(Field::RssBytes), self.host.memory_kib) {
            (Ok(_), 0) | (Err(_), _) => self.dash(),
            (Ok(bytes), total) => {
                let tenths = ((bytes / 1024).saturating_mul(1000) / total).min(999);
                self.write(format_args!("{:2}.{}", tenths / 10, tenths % 10));
            }
        }
    }

    pub fn address(&mut self, field: Field) {
        let address = self.memory(field);
        self.write_or_dash(address, |cell, address| cell.write(format_args!("{address:016x}")));
    }

    /// Page faults.
    pub fn faults(&mut self, own: Field, children: Field) {
        let mut faults = self.unsigned(own);
        if self.host.modifiers.cumulative {
            faults = faults.and_then(|own| Ok(own.saturating_add(self.unsigned(children)?)));
        }
        self.number_or_dash(faults);
    }

    /// The limit of resident memory in KiB, `xx` if there is none.
    pub fn rss_limit(&mut self) {
        match self.rss_limit_bytes() {
            None => self.dash(),
            Some(None) => self.out.extend_from_slice(b"xx"),
            Some(Some(bytes)) => people::number(self.out, bytes / 1024),
        }
    }

    /// The limit of resident memory. `None` if it is unknown, `Some(None)` if there is none.
    pub fn rss_limit_bytes(&mut self) -> Option<Option<u64>> {
        let Ok(Value::Limits(limits)) = self.value(Field::Limits) else {
            return None;
        };
        let (_, soft, _) = limits.iter().find(|(name, ..)| *name == "rss")?;
        Some(soft)
    }
}

//! Cells of processor time, and of the time since a task started.

use taskdiag::{Field, Identity};

use super::{Cell, SECOND};
use crate::history::Life;
use crate::output::people;

impl Cell<'_> {
    /// Processor time in clock ticks, with user and system time each rounded down as in the
    /// kernel's text.
    pub fn cpu_time(&mut self) -> Result<u64, &'static str> {
        self.cpu_time_with(self.host.modifiers.cumulative)
    }

    fn cpu_time_with(&mut self, dead_children: bool) -> Result<u64, &'static str> {
        let parts = [Field::UtimeNs, Field::StimeNs, Field::CutimeNs, Field::CstimeNs];
        let mut ticks = 0_u64;
        for part in &parts[..if dead_children { 4 } else { 2 }] {
            ticks = ticks.saturating_add(self.unsigned(*part)? / self.host.tick_ns);
        }
        Ok(ticks)
    }

    fn cpu_seconds(&mut self) -> Result<u64, &'static str> {
        let ticks = self.cpu_time()?;
        Ok(ticks / (SECOND / self.host.tick_ns))
    }

    /// The time since it started, in nanoseconds. The start is in whole clock ticks.
    pub fn elapsed_ns(&mut self) -> Result<u64, &'static str> {
        let start = self.start_ns()?;
        let seen_ns = self.life()?.map_or(self.host.now_ns, |life| life.last_ns);
        Ok(since(start, seen_ns))
    }

    /// What it did in the selected time of a recording, if there is one.
    fn life(&mut self) -> Result<Option<Life>, &'static str> {
        let (pid, start_ns) = (self.unsigned(Field::Pid), self.signed(Field::StartNs));
        // A process id has no more bits than this.
        self.host.life(|| Ok(Identity::new(pid? as u32, start_ns? as u64)))
    }

    fn start_ns(&mut self) -> Result<i64, &'static str> {
        let start = self.signed(Field::StartNs)?;
        // The kernel divides negative numbers as unsigned ones.
        Ok(start - (start as u64 % self.host.tick_ns) as i64)
    }

    /// Processor time divided by the time since the start, in parts of `whole`. For a time range of
    /// a recording, both are those within the range.
    pub fn cpu_share(&mut self, whole: u64) -> Result<u64, &'static str> {
        self.cpu_share_with(whole, self.host.modifiers.cumulative)
    }

    fn cpu_share_with(&mut self, whole: u64, dead_children: bool) -> Result<u64, &'static str> {
        let mut used = u128::from(self.cpu_time_with(dead_children)?) * u128::from(self.host.tick_ns);
        let mut elapsed = u128::from(self.elapsed_ns()?);
        if let Some(life) = self.life()? {
            let [own, children] = life.before_ns.map(u128::from);
            used = used.saturating_sub(own + if dead_children { children } else { 0 });
            elapsed = life.of_ns.into();
        }
        let share = (used * u128::from(whole)).checked_div(elapsed).unwrap_or(0);
        Ok(u64::try_from(share).unwrap_or(u64::MAX))
    }

    /// Processor time in percent of the time since the start. One decimal below 100 %.
    pub fn percent_cpu(&mut self) {
        match self.cpu_share(1000) {
            Ok(tenths) if tenths < 1000 => self.write(format_args!("{}.{}", tenths / 10, tenths % 10)),
            Ok(tenths) => people::number(self.out, tenths / 10),
            Err(_) => self.dash(),
        }
    }

    /// The same in whole percent, or per mille, with at most so many digits: at most 99, or 999.
    pub fn capped_cpu(&mut self, digits: u32) {
        let whole = 10_u64.pow(digits);
        let share = self.cpu_share(whole);
        self.write_or_dash(share, |cell, share| {
            cell.write(format_args!("{:1$}", share.min(whole - 1), digits as usize));
        });
    }

    /// The same in percent with three decimals, at most 99.999.
    pub fn fine_percent_cpu(&mut self, dead_children: bool) {
        let share = self.cpu_share_with(100_000, dead_children);
        self.write_or_dash(share, |cell, share| {
            let share = share.min(99_999);
            cell.write(format_args!("{}.{:03}", share / 1000, share % 1000));
        });
    }

    /// Processor time as `[D-]HH:MM:SS`.
    pub fn time(&mut self) {
        let seconds = self.cpu_seconds();
        self.write_or_dash(seconds, |cell, seconds| cell.span(seconds, true));
    }

    /// Processor time in seconds.
    pub fn seconds(&mut self) {
        let seconds = self.cpu_seconds();
        self.number_or_dash(seconds);
    }

    /// Processor time as `MMM:SS`.
    pub fn bsd_time(&mut self) {
        let seconds = self.cpu_seconds();
        self.write_or_dash(seconds, |cell, seconds| {
            cell.write(format_args!("{:3}:{:02}", seconds / 60, seconds % 60));
        });
    }

    /// The time since it started as `[[D-]HH:]MM:SS`.
    pub fn elapsed(&mut self) {
        let elapsed = self.elapsed_ns();
        self.write_or_dash(elapsed, |cell, ns| cell.span(ns / SECOND, false));
    }

    /// The time since it started in seconds.
    pub fn elapsed_seconds(&mut self) {
        let seconds = self.elapsed_ns().map(|ns| ns / SECOND);
        self.number_or_dash(seconds);
    }

    pub(super) fn span(&mut self, seconds: u64, with_hours: bool) {
        let (days, hours) = (seconds / 86_400, seconds / 3600 % 24);
        if days > 0 {
            self.write(format_args!("{days}-"));
        }
        if days > 0 || hours > 0 || with_hours {
            self.write(format_args!("{hours:02}:"));
        }
        self.write(format_args!("{:02}:{:02}", seconds / 60 % 60, seconds % 60));
    }

    /// `HH:MM` for today, `MmmDD` for this year, or the year.
    pub fn start_time(&mut self) {
        let start = self.start_ns();
        self.write_or_dash(start, |cell, ns| {
            cell.host.clock().short_date(cell.out, whole_seconds(ns));
        });
    }

    /// When it started, in the format for what started within a day, or for others.
    pub fn start(&mut self, recent: &str, old: &str) {
        let start = self.start_ns();
        self.write_or_dash(start, |cell, ns| {
            let is_recent = since(ns, cell.host.now_ns) < 86_400 * SECOND;
            let format = if is_recent { recent } else { old };
            cell.host.clock().write_as(cell.out, format, whole_seconds(ns));
        });
    }
}

fn whole_seconds(ns: i64) -> i64 {
    ns - ns.rem_euclid(SECOND as i64)
}

/// The time since a start, which may be before the zero of the clock.
fn since(start_ns: i64, now_ns: u64) -> u64 {
    u64::try_from(i128::from(now_ns) - i128::from(start_ns)).unwrap_or(0)
}

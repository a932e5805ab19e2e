//! What the processors did during a run, from `/proc/stat`: how much of their time the host gave to others.
//!
//! Measured over the whole run and over all processors. Time is counted in ticks, whose length does not matter: only shares
//! are told.

use std::fs;

use serde::Serialize;

/// Ticks of all processors together since the machine's start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessorTime {
    total: u64,
    idle: u64,
    steal: u64,
}

/// Shares of the processors' time, from 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Steal {
    /// A processor was wanted here, and the host ran something else.
    pub stolen: f64,
    /// Nothing was to be done, or the disk was waited for.
    pub idle: f64,
}

impl ProcessorTime {
    /// Until now; `None` where `/proc` does not say.
    #[must_use]
    pub fn now() -> Option<Self> {
        Self::read(&fs::read_to_string("/proc/stat").ok()?)
    }

    fn read(text: &str) -> Option<Self> {
        let line = text.lines().find_map(|line| line.strip_prefix("cpu "))?;
        // user, nice, system, idle, iowait, irq, softirq, steal; then guests, which are in user and nice already.
        let ticks: Vec<u64> =
            line.split_whitespace().take(8).map(str::parse).collect::<Result<_, _>>().ok()?;
        let [_, _, _, idle, waiting, _, _, steal] = ticks[..] else { return None };
        Some(Self { total: ticks.iter().sum(), idle: idle + waiting, steal })
    }

    /// What became of the time since then; `None` if no tick has gone by.
    #[must_use]
    pub fn since(self, before: Self) -> Option<Steal> {
        let total = self.total.checked_sub(before.total).filter(|&ticks| ticks > 0)?;
        // Waiting for the disk may count backwards.
        let share = |now: u64, before: u64| now.saturating_sub(before) as f64 / total as f64;
        Some(Steal { stolen: share(self.steal, before.steal), idle: share(self.idle, before.idle) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_those_of_the_time_between() {
        let before = ProcessorTime::read("cpu  10 0 10 100 0 0 0 5 7 0\ncpu0 1 1\n").unwrap();
        let after = ProcessorTime::read("cpu  50 0 20 130 0 0 0 25 9 0\n").unwrap();
        assert_eq!(after.since(before), Some(Steal { stolen: 0.2, idle: 0.3 }));
        assert_eq!(after.since(after), None);
        assert_eq!(before.since(after), None);
    }

    #[test]
    fn what_is_no_statistic_is_none() {
        for text in ["", "cpu 1 2 3", "cpu a b c d e f g h", "cpu0 1 2 3 4 5 6 7 8"] {
            assert_eq!(ProcessorTime::read(text), None, "{text}");
        }
        assert!(ProcessorTime::now().is_some());
    }
}

//! What a worker cost: processor time and context switches of its thread, and the memory of the process.

use std::ops::AddAssign;
use std::time::Duration;

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use serde::{Deserialize, Serialize};

/// Times and switches between two moments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Usage {
    pub(crate) user: Duration,
    pub(crate) system: Duration,
    pub(crate) voluntary_switches: u64,
    pub(crate) involuntary_switches: u64,
}

impl Usage {
    /// Of the calling thread, since it began. A worker process has only one.
    pub(crate) fn of_thread() -> Self {
        // Asking about oneself does not fail; nothing would be the honest answer.
        let Ok(usage) = getrusage(UsageWho::RUSAGE_THREAD) else { return Self::default() };
        let micros = |time: i64| Duration::from_micros(time.max(0) as u64);
        Self {
            user: micros(usage.user_time().num_microseconds()),
            system: micros(usage.system_time().num_microseconds()),
            voluntary_switches: usage.voluntary_context_switches().max(0) as u64,
            involuntary_switches: usage.involuntary_context_switches().max(0) as u64,
        }
    }

    /// What was used since `begun`.
    pub(crate) fn since(self, begun: Self) -> Self {
        Self {
            user: self.user.saturating_sub(begun.user),
            system: self.system.saturating_sub(begun.system),
            voluntary_switches: self.voluntary_switches - begun.voluntary_switches,
            involuntary_switches: self.involuntary_switches - begun.involuntary_switches,
        }
    }
}

impl AddAssign for Usage {
    fn add_assign(&mut self, other: Self) {
        self.user += other.user;
        self.system += other.system;
        self.voluntary_switches += other.voluntary_switches;
        self.involuntary_switches += other.involuntary_switches;
    }
}

/// Bytes of memory that this process has in use, to the page; `None` where /proc is not mounted.
pub(crate) fn resident_bytes() -> Option<u64> {
    // statm would be cheaper, but lags by some hundred pages on a machine with many processors.
    let rollup = std::fs::read_to_string("/proc/self/smaps_rollup").ok()?;
    let line = rollup.lines().find_map(|line| line.strip_prefix("Rss:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn working_takes_user_time_and_memory() {
        let (begun, memory) = (Usage::of_thread(), resident_bytes().unwrap());
        let mut numbers: Vec<u64> = (0..8 << 20).collect();
        for _ in 0..10 {
            numbers.iter_mut().for_each(|number| *number = std::hint::black_box(*number).wrapping_mul(3));
        }
        assert!(resident_bytes().unwrap() >= memory + (32 << 20));
        assert!(Usage::of_thread().since(begun).user > Duration::from_millis(1));
    }

    #[test]
    fn sleeping_is_a_voluntary_switch() {
        let begun = Usage::of_thread();
        std::thread::sleep(Duration::from_millis(2));
        assert!(Usage::of_thread().since(begun).voluntary_switches >= 1);
    }
}

//! Signals that the program's caller has it ignore, as a shell does for a job in the background, and nohup.
//!
//! They stay ignored: a handler is set for the others only.

use std::fs;

/// Whether the program ignores a signal, as its caller may have it do (`trap '' INT`, nohup).
pub(crate) fn is_ignored(signal: i32) -> bool {
    // Asking the system itself takes unsafe code.
    let Ok(status) = fs::read_to_string("/proc/self/status") else { return false };
    ignored_signals(&status).is_some_and(|ignored| ignored & 1 << (signal - 1) != 0)
}

/// The set of ignored signals in what the system tells of a process: bit 0 is signal 1.
fn ignored_signals(status: &str) -> Option<u64> {
    let set = status.lines().find_map(|line| line.strip_prefix("SigIgn:"))?;
    u64::from_str_radix(set.trim(), 16).ok()
}

#[cfg(test)]
mod tests {
    use super::ignored_signals;

    #[test]
    fn the_set_is_read_from_its_line() {
        assert_eq!(ignored_signals("Name:\tx\nSigIgn:\t0000000000001002\n"), Some(0x1002));
        assert_eq!((ignored_signals(""), ignored_signals("SigIgn:\tx")), (None, None));
    }
}

//! Timestamps: two words of 32 bits before bigtime, nanoseconds in 64 bits with it.

use undercroft_vfs::Timestamp;

/// Seconds that bigtime begins before 1970.
const BIGTIME_EPOCH_SECONDS: i64 = 1 << 31;

const NANOSECONDS: u64 = 1_000_000_000;

/// Reads a timestamp. Nanoseconds past a second, which the format does not allow and Linux lets through, are cut off.
pub(crate) fn decode(raw: u64, bigtime: bool) -> Timestamp {
    if bigtime {
        let seconds = (raw / NANOSECONDS) as i64 - BIGTIME_EPOCH_SECONDS;
        Timestamp { seconds, nanoseconds: (raw % NANOSECONDS) as u32 }
    } else {
        let seconds = i64::from((raw >> 32) as u32 as i32);
        Timestamp { seconds, nanoseconds: (raw as u32).min(NANOSECONDS as u32 - 1) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_reach_from_1901_on() {
        let at = |raw, bigtime| {
            let time = decode(raw, bigtime);
            (time.seconds, time.nanoseconds)
        };
        assert_eq!(at(0, true), (-(1 << 31), 0));
        assert_eq!(at((1 << 31) * NANOSECONDS + 5, true), (0, 5));
        assert_eq!(at(u64::MAX, true), (16_299_260_425, 709_551_615));
        assert_eq!(at(0xffff_ffff_0000_0007, false), (-1, 7));
        assert_eq!(at(0x8000_0000_0000_0000, false), (-(1 << 31), 0));
        assert_eq!(at(0x7fff_ffff_ffff_ffff, false), ((1 << 31) - 1, 999_999_999));
    }
}

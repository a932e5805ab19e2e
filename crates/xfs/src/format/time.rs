//! Timestamps: two words of 32 bits before bigtime, nanoseconds in 64 bits with it.

use undercroft_vfs::Timestamp;

/// Seconds that bigtime begins before 1970.
const BIGTIME_EPOCH_SECONDS: i64 = 1 << 31;

const NANOSECONDS: u64 = 1_000_000_000;

/// The last second that Linux stores with bigtime: the last multiple of four seconds that 64 bits of nanoseconds hold.
const BIGTIME_LAST: i64 = ((u64::MAX / NANOSECONDS) & !3) as i64 - BIGTIME_EPOCH_SECONDS;

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

/// The time nearest to `time` that an inode can hold. Linux cuts off the nanoseconds at both ends of what it can hold.
pub(crate) fn nearest(time: Timestamp, bigtime: bool) -> Timestamp {
    let (first, last) = (i64::from(i32::MIN), if bigtime { BIGTIME_LAST } else { i64::from(i32::MAX) });
    let seconds = time.seconds.clamp(first, last);
    let nanoseconds = if seconds == first || seconds == last { 0 } else { time.nanoseconds };
    Timestamp { seconds, nanoseconds }
}

/// Writes a timestamp: the nearest one that the form can hold.
pub(crate) fn encode(time: Timestamp, bigtime: bool) -> u64 {
    let Timestamp { seconds, nanoseconds } = nearest(time, bigtime);
    if bigtime {
        (seconds + BIGTIME_EPOCH_SECONDS) as u64 * NANOSECONDS + u64::from(nanoseconds)
    } else {
        u64::from(seconds as i32 as u32) << 32 | u64::from(nanoseconds)
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

    #[test]
    fn a_time_is_read_as_it_was_written_or_as_the_nearest_one() {
        for (seconds, nanoseconds) in [(0, 0), (-1, 7), (1_700_000_000, 999_999_999)] {
            let time = Timestamp { seconds, nanoseconds };
            for bigtime in [false, true] {
                assert_eq!(decode(encode(time, bigtime), bigtime), time);
            }
        }
        for (seconds, bigtime, nearest) in [
            (1 << 40, true, 16_299_260_424),
            (1 << 40, false, (1 << 31) - 1),
            (i64::MIN, true, -(1 << 31)),
            (i64::MIN, false, -(1 << 31)),
        ] {
            let written = encode(Timestamp { seconds, nanoseconds: 9 }, bigtime);
            assert_eq!(decode(written, bigtime), Timestamp { seconds: nearest, nanoseconds: 0 });
        }
    }
}

//! Timestamps: 32 bits of seconds, and perhaps 32 more of nanoseconds and epoch.
//!
//! Source: kernel documentation, section "Inode Timestamps". The lower two bits of the extra word extend the
//! signed seconds by multiples of 2^32, the upper thirty are nanoseconds: 1901 to 2446.

use undercroft_vfs::Timestamp;

/// Puts a timestamp together; `extra` is `None` where the inode has no room for it.
pub(crate) fn decode(seconds: u32, extra: Option<u32>) -> Timestamp {
    let signed = i64::from(seconds as i32);
    let Some(extra) = extra else {
        return Timestamp { seconds: signed, nanoseconds: 0 };
    };
    let epoch = i64::from(extra & 3) << 32;
    // Thirty bits hold a little more than a second; only a damaged disk has such a value.
    Timestamp { seconds: signed + epoch, nanoseconds: (extra >> 2).min(999_999_999) }
}

/// The latest time that a timestamp with an extra word can hold.
const LATEST_WIDE: i64 = 0x3_7fff_ffff;

/// The nearest time to `time` that an inode can hold: `wide` with an extra word, otherwise in whole seconds.
pub(crate) fn nearest(time: Timestamp, wide: bool) -> Timestamp {
    let latest = if wide { LATEST_WIDE } else { i64::from(i32::MAX) };
    let seconds = time.seconds.clamp(i64::from(i32::MIN), latest);
    let nanoseconds = if wide && seconds == time.seconds { time.nanoseconds } else { 0 };
    Timestamp { seconds, nanoseconds }
}

/// Takes a timestamp apart into its seconds and the extra word.
pub(crate) fn encode(time: Timestamp, wide: bool) -> (u32, u32) {
    let Timestamp { seconds, nanoseconds } = nearest(time, wide);
    // The upper part counts from what the sign of the lower already says.
    let epoch = (seconds - i64::from(seconds as i32)) >> 32;
    (seconds as u32, nanoseconds << 2 | (epoch & 3) as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The table in the kernel documentation: extra bits, sign bit, and the time that results.
    #[test]
    fn documented_ranges() {
        for (extra, seconds, expected) in [
            (0, 0x8000_0000, -0x8000_0000),
            (0, 0, 0),
            (1, 0x8000_0000, 0x8000_0000),
            (1, 0, 0x1_0000_0000),
            (2, 0x8000_0000, 0x1_8000_0000),
            (2, 0, 0x2_0000_0000),
            (3, 0x8000_0000, 0x2_8000_0000),
            (3, 0x7fff_ffff, 0x3_7fff_ffff),
        ] {
            assert_eq!(decode(seconds, Some(extra)).seconds, expected, "{extra} {seconds:#x}");
            assert_eq!(encode(decode(seconds, Some(extra)), true), (seconds, extra));
        }
        let with_nanoseconds = decode(5, Some(999_999_999 << 2));
        assert_eq!(with_nanoseconds, Timestamp { seconds: 5, nanoseconds: 999_999_999 });
        assert_eq!(encode(with_nanoseconds, true), (5, 999_999_999 << 2));
        assert_eq!(encode(with_nanoseconds, false), (5, 0));
        assert_eq!(decode(0xffff_ffff, None), Timestamp { seconds: -1, nanoseconds: 0 });
    }
    #[test]
    fn a_time_out_of_range_becomes_the_nearest_one() {
        let at = |seconds| Timestamp { seconds, nanoseconds: 7 };
        let whole = |seconds| Timestamp { seconds, nanoseconds: 0 };
        for wide in [false, true] {
            assert_eq!(nearest(at(i64::MIN), wide), whole(-0x8000_0000));
            assert_eq!(decode(0x8000_0000, None), whole(-0x8000_0000));
        }
        assert_eq!(nearest(at(LATEST_WIDE), true), at(LATEST_WIDE));
        assert_eq!(nearest(at(i64::MAX), true), whole(LATEST_WIDE));
        assert_eq!(nearest(at(i64::MAX), false), whole(0x7fff_ffff));
        assert_eq!(nearest(at(3), false), whole(3));
    }
}

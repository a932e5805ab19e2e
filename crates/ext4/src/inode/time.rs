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
    // Thirty bits hold a little more than a second; nobody but a damaged disk has such a value.
    Timestamp { seconds: signed + epoch, nanoseconds: (extra >> 2).min(999_999_999) }
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
        }
        let with_nanoseconds = decode(5, Some(999_999_999 << 2));
        assert_eq!(with_nanoseconds, Timestamp { seconds: 5, nanoseconds: 999_999_999 });
        assert_eq!(decode(0xffff_ffff, None), Timestamp { seconds: -1, nanoseconds: 0 });
    }
}

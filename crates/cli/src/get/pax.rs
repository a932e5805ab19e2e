//! PAX extended headers: what the fixed fields of a tar header cannot hold.
//!
//! A record is `LENGTH KEY=VALUE\n`, where LENGTH counts the whole record in decimal, its own digits included.
//! Extended attributes use the keys of star and GNU tar, `SCHILY.xattr.NAME`, with `%` and `=` of the name written
//! as `%25` and `%3D`.

use undercroft_vfs::Timestamp;

/// The records that stand before one member.
#[derive(Debug, Default)]
pub(crate) struct Records(Vec<u8>);

impl Records {
    /// Adds a record.
    pub(crate) fn add(&mut self, key: &[u8], value: &[u8]) {
        let rest = 1 + key.len() + 1 + value.len() + 1;
        let mut length = rest + 1;
        while length.to_string().len() + rest != length {
            length = length.to_string().len() + rest;
        }
        self.0.extend_from_slice(length.to_string().as_bytes());
        self.0.push(b' ');
        self.0.extend_from_slice(key);
        self.0.push(b'=');
        self.0.extend_from_slice(value);
        self.0.push(b'\n');
    }

    /// Adds a time, with the fraction that is there.
    pub(crate) fn add_time(&mut self, key: &str, time: Timestamp) {
        self.add(key.as_bytes(), decimal(time).as_bytes());
    }

    /// Adds an extended attribute.
    pub(crate) fn add_xattr(&mut self, name: &[u8], value: &[u8]) {
        let mut key = b"SCHILY.xattr.".to_vec();
        for byte in name {
            match byte {
                b'%' => key.extend_from_slice(b"%25"),
                b'=' => key.extend_from_slice(b"%3D"),
                byte => key.push(*byte),
            }
        }
        self.add(&key, value);
    }

    /// The records as bytes; empty when no header is needed.
    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// Seconds as a decimal fraction. Before 1970 the fraction counts away from zero: a half second before the epoch
/// is -0.5.
fn decimal(time: Timestamp) -> String {
    let Timestamp { seconds, nanoseconds } = time;
    if nanoseconds == 0 {
        return seconds.to_string();
    }
    let (sign, whole, fraction) = if seconds < 0 {
        ("-", (seconds + 1).unsigned_abs(), 1_000_000_000 - nanoseconds)
    } else {
        ("", seconds.unsigned_abs(), nanoseconds)
    };
    format!("{sign}{whole}.{fraction:09}").trim_end_matches('0').to_owned()
}

#[cfg(test)]
mod tests {
    use undercroft_vfs::Timestamp;

    use super::{Records, decimal};

    #[test]
    fn a_record_counts_its_own_digits() {
        let record = |value: &[u8]| {
            let mut records = Records::default();
            records.add(b"k", value);
            String::from_utf8(records.as_bytes().to_vec()).unwrap()
        };
        assert_eq!(record(b""), "5 k=\n");
        assert_eq!(record(b"abcd"), "9 k=abcd\n");
        assert_eq!(record(b"abcde"), "11 k=abcde\n");
        for length in 80..110 {
            let record = record(&vec![b'x'; length]);
            let (counted, _) = record.split_once(' ').unwrap();
            assert_eq!(counted.parse::<usize>().unwrap(), record.len());
        }
    }

    #[test]
    fn names_of_attributes_are_escaped() {
        let mut records = Records::default();
        records.add_xattr(b"user.a=b%", b"\0\n=");
        assert_eq!(records.as_bytes(), b"34 SCHILY.xattr.user.a%3Db%25=\0\n=\n");
    }

    #[test]
    fn times_are_exact_on_both_sides_of_1970() {
        let shown = |seconds, nanoseconds| decimal(Timestamp { seconds, nanoseconds });
        assert_eq!(shown(0, 0), "0");
        assert_eq!(shown(1, 1), "1.000000001");
        assert_eq!(shown(-1, 500_000_000), "-0.5");
        assert_eq!(shown(-2, 0), "-2");
        assert_eq!(shown(-2, 250_000_000), "-1.75");
    }
}

//! Records of extended headers: `LENGTH KEY=VALUE\n`, where the length counts the whole record.

use std::collections::BTreeMap;

use undercroft_vfs::Timestamp;

use super::header::no_number;
use crate::SourceErrorKind;

/// Most records that are kept: more than Linux keeps attributes of a file.
const RECORDS_MAX: usize = 1 << 17;

/// Values by key. An empty value stands for none, in spite of a global one.
#[derive(Debug, Default)]
pub(super) struct Records {
    values: BTreeMap<Box<[u8]>, Vec<u8>>,
    /// Bytes of keys and values.
    bytes: usize,
    /// `GNU.sparse.offset` and `.numbytes`, which come again for each part with data.
    pub(super) parts: Vec<(u64, u64)>,
}

impl Records {
    pub(super) fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    pub(super) fn set(&mut self, key: &[u8], value: Vec<u8>) {
        self.bytes += key.len() + value.len();
        if let Some(before) = self.values.insert(key.into(), value) {
            self.bytes -= key.len() + before.len();
        }
    }

    /// Bytes of keys and values.
    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// A value, unless it is empty.
    pub(super) fn get(&self, key: &[u8]) -> Option<&[u8]> {
        self.values.get(key).map(|value| &**value)
    }

    /// The keys that begin with `prefix`, with what follows it, and their values.
    pub(super) fn with_prefix<'a>(&'a self, prefix: &'a [u8]) -> impl Iterator<Item = (&'a [u8], &'a [u8])> {
        let from: Box<[u8]> = prefix.into();
        self.values.range(from..).map_while(move |(key, value)| Some((key.strip_prefix(prefix)?, &**value)))
    }

    /// Reads the records of one extended header.
    pub(super) fn read(&mut self, mut text: &[u8]) -> Result<(), SourceErrorKind> {
        let malformed = || SourceErrorKind::Malformed("a record of its extended header is damaged".into());
        let mut offset = None;
        // What is left of a record is NUL bytes in archives of some writers.
        while text.first().is_some_and(|&byte| byte != 0) {
            let (key, value, rest) = record(text).ok_or_else(malformed)?;
            text = rest;
            match key {
                b"GNU.sparse.offset" => offset = Some(decimal(value, "offset")?),
                b"GNU.sparse.numbytes" => {
                    self.parts.push((offset.take().ok_or_else(malformed)?, decimal(value, "size")?));
                }
                _ => self.set(key, value.to_vec()),
            }
            if self.values.len() + self.parts.len() > RECORDS_MAX {
                let what = format!("it has more than {RECORDS_MAX} records of extended headers");
                return Err(SourceErrorKind::TooLarge(what));
            }
        }
        Ok(())
    }
}

/// The records that hold for one member.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layered<'a> {
    /// Its own, which go before.
    pub(super) local: &'a Records,
    /// Those of all members.
    pub(super) global: &'a Records,
}

impl<'a> Layered<'a> {
    /// A value, which may be empty.
    pub(super) fn get(self, key: &[u8]) -> Option<&'a [u8]> {
        self.local.get(key).or_else(|| self.global.get(key))
    }

    /// As of [`Records::with_prefix`]; first the member's own.
    pub(super) fn with_prefix(self, prefix: &'a [u8]) -> impl Iterator<Item = (&'a [u8], &'a [u8])> {
        let is_global = move |(rest, _): &(&[u8], &[u8])| {
            let key = [prefix, *rest].concat();
            self.local.get(&key).is_none()
        };
        self.local.with_prefix(prefix).chain(self.global.with_prefix(prefix).filter(is_global))
    }
}

/// Key and value of the first record, and what follows it.
fn record(text: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let space = text.iter().take(20).position(|&byte| byte == b' ')?;
    let len = std::str::from_utf8(&text[..space]).ok()?.parse::<usize>().ok()?;
    let record = text.get(space + 1..len)?;
    let record = record.strip_suffix(b"\n")?;
    let equals = record.iter().position(|&byte| byte == b'=')?;
    Some((&record[..equals], &record[equals + 1..], text.get(len..)?))
}

/// A number in decimal digits.
pub(super) fn decimal(text: &[u8], what: &str) -> Result<u64, SourceErrorKind> {
    let digits = std::str::from_utf8(text).ok().filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
    digits.and_then(|digits| digits.parse().ok()).ok_or_else(|| no_number(what))
}

/// A time in seconds, with a fraction and perhaps before 1970; what is finer than nanoseconds is cut off.
pub(super) fn time(text: &[u8]) -> Result<Timestamp, SourceErrorKind> {
    let wrong = || no_number("time");
    let text = std::str::from_utf8(text).map_err(|_| wrong())?;
    if text.contains('e') {
        return small_time(text).ok_or_else(wrong);
    }
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let is_negative = whole.starts_with('-');
    let seconds: i64 = whole.parse().map_err(|_| wrong())?;
    if !fraction.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(wrong());
    }
    let digits = fraction.bytes().chain(std::iter::repeat(b'0')).take(9);
    let mut nanoseconds = digits.fold(0, |value, digit| value * 10 + u32::from(digit - b'0'));
    // What is cut off makes a time earlier.
    if is_negative && fraction.bytes().skip(9).any(|digit| digit != b'0') {
        nanoseconds += 1;
    }
    if is_negative && nanoseconds > 0 {
        let seconds = seconds.checked_sub(1).ok_or_else(wrong)?;
        return Ok(Timestamp { seconds, nanoseconds: 1_000_000_000 - nanoseconds });
    }
    Ok(Timestamp { seconds, nanoseconds })
}

/// A time close to 1970 as Python writes it: with an exponent.
fn small_time(text: &str) -> Option<Timestamp> {
    const NANOSECONDS: i64 = 1_000_000_000;
    let seconds = text.parse::<f64>().ok().filter(|seconds| seconds.abs() < 1.0)?;
    let nanoseconds = (seconds * NANOSECONDS as f64).floor() as i64;
    let within = nanoseconds.rem_euclid(NANOSECONDS) as u32;
    Some(Timestamp { seconds: nanoseconds.div_euclid(NANOSECONDS), nanoseconds: within })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_say_their_length() {
        let mut records = Records::default();
        let text = b"12 path=abc\n14 SCHILY.a=\n\n23 GNU.sparse.offset=1\n25 GNU.sparse.numbytes=2\n";
        records.read(text).unwrap();
        assert_eq!(records.get(b"path"), Some(&b"abc"[..]));
        assert_eq!(records.with_prefix(b"SCHILY.").collect::<Vec<_>>(), [(&b"a"[..], &b"\n"[..])]);
        assert_eq!(records.parts, [(1, 2)]);
    }

    #[test]
    fn damaged_records_are_refused() {
        for text in [
            "x",
            "5 a=b\n",
            "99 a=b\n",
            "4 a=\n",
            "0 a=b\n",
            "6 a=b",
            "18446744073709551616 a=b\n",
            "6 abc\n",
        ] {
            assert!(Records::default().read(text.as_bytes()).is_err(), "{text}");
        }
    }

    #[test]
    fn times_have_fractions_and_signs() {
        let at = |seconds, nanoseconds| Some(Timestamp { seconds, nanoseconds });
        for (text, expected) in [
            ("1", at(1, 0)),
            ("1.5", at(1, 500_000_000)),
            ("-1.25", at(-2, 750_000_000)),
            ("-0.25", at(-1, 750_000_000)),
            ("1.1234567899", at(1, 123_456_789)),
            ("-1.1234567890", at(-2, 876_543_211)),
            ("-1.12345678901", at(-2, 876_543_210)),
            ("-1.9999999999", at(-2, 0)),
            ("-9.999999717180685e-10", at(-1, 999_999_999)),
            ("1.5e-05", at(0, 15_000)),
            ("1e5", None),
            ("-e", None),
            ("", None),
            ("1.x", None),
            ("9223372036854775808", None),
            ("-9223372036854775808.5", None),
        ] {
            assert_eq!(time(text.as_bytes()).ok(), expected, "{text}");
        }
    }
}

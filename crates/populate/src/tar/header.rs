//! One header: 512 bytes with fields of text.

use undercroft_vfs::DeviceNumber;

use crate::SourceErrorKind;

/// Headers are as large as this, and content fills multiples of it.
pub(crate) const RECORD_BYTES: usize = 512;

/// Where the checksum is, which counts as spaces in itself.
const CHECKSUM: std::ops::Range<usize> = 148..156;

/// A header whose checksum is right.
#[derive(Clone, Debug)]
pub(super) struct Header([u8; RECORD_BYTES]);

impl Header {
    /// `None` where the checksum is wrong.
    pub(super) fn new(bytes: [u8; RECORD_BYTES]) -> Option<Self> {
        let header = Self(bytes);
        let stored = octal(header.field(CHECKSUM))?;
        let (mut unsigned, mut signed) = (0_i64, 0_i64);
        for (at, &byte) in bytes.iter().enumerate() {
            let byte = if CHECKSUM.contains(&at) { b' ' } else { byte };
            unsigned += i64::from(byte);
            // Old programs took bytes as signed.
            signed += i64::from(byte.cast_signed());
        }
        (stored == unsigned || stored == signed).then_some(header)
    }

    fn field(&self, range: std::ops::Range<usize>) -> &[u8] {
        &self.0[range]
    }

    fn text(&self, range: std::ops::Range<usize>) -> &[u8] {
        let field = self.field(range);
        let end = field.iter().position(|&byte| byte == 0).unwrap_or(field.len());
        &field[..end]
    }

    /// Whether it is of POSIX, where a long name has a first part of its own; GNU tar has other fields there.
    fn is_posix(&self) -> bool {
        self.field(257..263) == b"ustar\0"
    }

    fn is_known(&self) -> bool {
        self.field(257..262) == b"ustar"
    }

    /// The name, with its first part where there is one.
    pub(super) fn path(&self) -> Vec<u8> {
        let name = self.text(0..100);
        // star has fewer bytes there, and times behind them.
        let end = if self.field(508..512) == b"tar\0" { 476 } else { 500 };
        let prefix = if self.is_posix() { self.text(345..end) } else { &[] };
        if prefix.is_empty() { name.to_vec() } else { [prefix, name].join(&b'/') }
    }

    /// What a link leads to.
    pub(super) fn link(&self) -> &[u8] {
        self.text(157..257)
    }

    /// What the member is.
    pub(super) const fn typeflag(&self) -> u8 {
        self.0[156]
    }

    pub(super) fn user(&self) -> &[u8] {
        if self.is_known() { self.text(265..297) } else { &[] }
    }

    pub(super) fn group(&self) -> &[u8] {
        if self.is_known() { self.text(297..329) } else { &[] }
    }

    pub(super) fn permissions(&self) -> Result<u16, SourceErrorKind> {
        Ok((number(self.field(100..108), "mode")? & 0o7777) as u16)
    }

    pub(super) fn uid(&self) -> Result<u32, SourceErrorKind> {
        id(number(self.field(108..116), "owner")?, "owner")
    }

    pub(super) fn gid(&self) -> Result<u32, SourceErrorKind> {
        id(number(self.field(116..124), "group")?, "group")
    }

    /// The size of what follows.
    pub(super) fn size(&self) -> Result<u64, SourceErrorKind> {
        size(number(self.field(124..136), "size")?)
    }

    /// Seconds since 1970.
    pub(super) fn modified(&self) -> Result<i64, SourceErrorKind> {
        number(self.field(136..148), "time")
    }

    pub(super) fn device(&self) -> Result<DeviceNumber, SourceErrorKind> {
        let part = |range| {
            let number = number(self.field(range), "device number")?;
            u32::try_from(number).map_err(|_| no_number("device number"))
        };
        Ok(DeviceNumber { major: part(329..337)?, minor: part(337..345)? })
    }

    /// The parts with data that an old sparse member of GNU tar lists in its header, and whether more follow.
    pub(super) fn sparse_list(&self) -> (&[u8], bool) {
        (self.field(386..482), self.0[482] != 0)
    }

    /// The size of an old sparse member of GNU tar.
    pub(super) fn sparse_size(&self) -> Result<u64, SourceErrorKind> {
        size(number(self.field(483..495), "size")?)
    }
}

/// A number in octal digits, or where these are too few as bytes.
pub(super) fn number(field: &[u8], what: &str) -> Result<i64, SourceErrorKind> {
    let parsed = match field.split_first() {
        // In base 256, with its sign.
        Some((&first, rest)) if first & 0x80 != 0 => {
            let begin = if first & 0x40 != 0 { -1_i64 << 6 } else { 0 } | i64::from(first & 0x3f);
            rest.iter().try_fold(begin, |value, &byte| value.checked_mul(256)?.checked_add(byte.into()))
        }
        _ => octal(field),
    };
    parsed.ok_or_else(|| no_number(what))
}

/// Octal digits between spaces and NUL bytes; nothing counts as zero.
fn octal(field: &[u8]) -> Option<i64> {
    let is_filler = |byte: &u8| matches!(byte, b' ' | 0);
    let begin = field.iter().position(|byte| !is_filler(byte)).unwrap_or(field.len());
    let digits = &field[begin..];
    let digits = &digits[..digits.iter().position(is_filler).unwrap_or(digits.len())];
    digits.iter().try_fold(0_i64, |value, &digit| match digit {
        b'0'..=b'7' => value.checked_mul(8)?.checked_add(i64::from(digit - b'0')),
        _ => None,
    })
}

fn id(number: i64, what: &str) -> Result<u32, SourceErrorKind> {
    // The last one stands for none.
    u32::try_from(number).ok().filter(|&id| id != u32::MAX).ok_or_else(|| no_number(what))
}

fn size(number: i64) -> Result<u64, SourceErrorKind> {
    u64::try_from(number).map_err(|_| no_number("size"))
}

pub(super) fn no_number(what: &str) -> SourceErrorKind {
    SourceErrorKind::Malformed(format!("its {what} is no number that can be"))
}

#[cfg(test)]
mod tests {
    use super::number;

    #[test]
    fn numbers_are_octal_or_bytes() {
        let parse = |field: &[u8]| number(field, "size").ok();
        for (field, value) in [
            (&b"0000644\0"[..], Some(0o644)),
            (b"   644 \0", Some(0o644)),
            (b"        ", Some(0)),
            (b"\0\0\0\0", Some(0)),
            (b"12345678", None),
            (b"-1      ", None),
            (b"\x80\0\0\x02\0\0\0\0", Some(1 << 33)),
            (b"\xff\xff\xff\xff\xff\xff\xff\xff", Some(-1)),
            (b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x00", Some(-256)),
            (b"\x80\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", None),
            (b"\xbf\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", None),
        ] {
            assert_eq!(parse(field), value, "{field:?}");
        }
    }
}

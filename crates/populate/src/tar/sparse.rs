//! Where a sparse member has data: GNU tar's four forms.
//!
//! | form | the parts are in | the content is |
//! | --- | --- | --- |
//! | old | the header, and records that follow it | the parts |
//! | 0.0 | pairs of records `GNU.sparse.offset` and `.numbytes` | the parts |
//! | 0.1 | one record, `GNU.sparse.map` | the parts |
//! | 1.0 | the content, as lines of decimal numbers | a multiple of 512 bytes with these lines, then the parts |

use std::ops::Range;

use super::framing::Framing;
use super::header::{Header, RECORD_BYTES, number};
use super::pax::{Layered, decimal};
use crate::SourceErrorKind;

/// Most parts that a member may have.
const PARTS_MAX: usize = 1 << 20;

/// Offset and length, as an archive says them.
type Parts = Vec<(u64, u64)>;

/// Which form a member has, of those that records tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// 0.0
    Pairs,
    /// 0.1
    Map,
    /// 1.0
    InContent,
}

impl Form {
    /// `None` for a member that is not sparse.
    pub(super) fn of(records: Layered<'_>) -> Result<Option<Self>, SourceErrorKind> {
        match (records.get(b"GNU.sparse.major"), records.get(b"GNU.sparse.minor")) {
            (Some(b"1"), Some(b"0")) => Ok(Some(Self::InContent)),
            (None | Some(b"0"), _) if records.get(b"GNU.sparse.map").is_some() => Ok(Some(Self::Map)),
            (None | Some(b"0"), _) if records.get(b"GNU.sparse.size").is_some() => Ok(Some(Self::Pairs)),
            (None | Some(b"0"), _) => Ok(None),
            _ => Err(SourceErrorKind::Unsupported("it is sparse in a form that is not known".into())),
        }
    }

    /// The parts of a member whose content, of `stored` bytes, begins here; the bytes that are left are the parts'.
    pub(super) fn parts(
        self,
        records: Layered<'_>,
        framing: &mut Framing,
        stored: &mut u64,
    ) -> Result<Parts, SourceErrorKind> {
        match self {
            Self::Pairs => Ok(records.local.parts.clone()),
            Self::Map => map(records.get(b"GNU.sparse.map").unwrap_or_default()),
            Self::InContent => in_content(framing, stored),
        }
    }
}

/// The parts of the record of form 0.1.
fn map(text: &[u8]) -> Result<Parts, SourceErrorKind> {
    let mut numbers = text.split(|&byte| byte == b',').filter(|number| !number.is_empty());
    let mut parts = Vec::new();
    while let Some(offset) = numbers.next() {
        let len = numbers.next().ok_or_else(|| malformed("a part has no length"))?;
        push(&mut parts, (decimal(offset, "offset")?, decimal(len, "size")?))?;
    }
    Ok(parts)
}

/// The parts that the content of form 1.0 begins with.
fn in_content(framing: &mut Framing, stored: &mut u64) -> Result<Parts, SourceErrorKind> {
    let mut lines = Lines { framing, stored, record: [0; RECORD_BYTES], at: RECORD_BYTES };
    let count = lines.next()?;
    let mut parts = Vec::new();
    for _ in 0..count {
        let offset = lines.next()?;
        let len = lines.next()?;
        push(&mut parts, (offset, len))?;
    }
    Ok(parts)
}

/// The lines at the beginning of a member's content.
struct Lines<'a> {
    framing: &'a mut Framing,
    stored: &'a mut u64,
    record: [u8; RECORD_BYTES],
    at: usize,
}

impl Lines<'_> {
    /// The number in the next line.
    fn next(&mut self) -> Result<u64, SourceErrorKind> {
        let mut digits = Vec::new();
        loop {
            if self.at == RECORD_BYTES {
                self.framing.read_content(&mut self.record)?;
                *self.stored -= RECORD_BYTES as u64;
                self.at = 0;
            }
            let byte = self.record[self.at];
            self.at += 1;
            if byte == b'\n' {
                return decimal(&digits, "map of data");
            }
            if digits.len() == 20 {
                return Err(malformed("a line is too long"));
            }
            digits.push(byte);
        }
    }
}

/// The parts of the old form: four in the header, and more in records behind it.
pub(super) fn old(header: &Header, framing: &mut Framing) -> Result<Parts, SourceErrorKind> {
    let mut parts = Vec::new();
    let (list, mut more) = header.sparse_list();
    old_list(list, &mut parts)?;
    while more {
        let record = framing.read_record()?;
        old_list(&record[..504], &mut parts)?;
        more = record[504] != 0;
    }
    Ok(parts)
}

fn old_list(list: &[u8], parts: &mut Parts) -> Result<(), SourceErrorKind> {
    for part in list.chunks_exact(24) {
        // One without a length ends the list.
        if part[12] == 0 {
            break;
        }
        let both = (number(&part[..12], "offset")?, number(&part[12..], "size")?);
        let (Ok(offset), Ok(len)) = (u64::try_from(both.0), u64::try_from(both.1)) else {
            return Err(malformed("a part begins before the file"));
        };
        push(parts, (offset, len))?;
    }
    Ok(())
}

fn push(parts: &mut Parts, part: (u64, u64)) -> Result<(), SourceErrorKind> {
    if parts.len() == PARTS_MAX {
        let what = format!("it is sparse with more than {PARTS_MAX} parts");
        return Err(SourceErrorKind::TooLarge(what));
    }
    parts.push(part);
    Ok(())
}

/// Checks that parts are in order, within the file, and as long as what is stored.
pub(super) fn check(
    parts: &[(u64, u64)],
    size: u64,
    stored: u64,
) -> Result<Vec<Range<u64>>, SourceErrorKind> {
    let mut ranges = Vec::new();
    let (mut behind, mut sum) = (0, 0_u64);
    for &(start, len) in parts {
        let end = start.checked_add(len).filter(|&end| start >= behind && end <= size);
        let Some(end) = end else {
            return Err(malformed("a part begins before the end of the one before, or ends behind the file"));
        };
        behind = end;
        sum += len;
        if len > 0 {
            ranges.push(start..end);
        }
    }
    if sum != stored {
        return Err(malformed(&format!("its parts have {sum} bytes, and {stored} are stored")));
    }
    Ok(ranges)
}

fn malformed(what: &str) -> SourceErrorKind {
    SourceErrorKind::Malformed(format!("its map of data is damaged: {what}"))
}

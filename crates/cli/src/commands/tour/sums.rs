//! Checks every file of the tour's image against the sums that travel beside it.
//!
//! The list is in the form of sha256sum(1): 64 hexadecimal digits, two spaces, the path; with a backslash in front,
//! newlines and backslashes of the path are escaped.

use std::collections::BTreeMap;

use serde::Serialize;
use sha2::{Digest, Sha256};
use undercroft_vfs::{Credentials, Error, FileType, Vfs};

use crate::text::names::{Path, hex, join};
use crate::walk::{Event, Order, Walk};

/// What came of it.
#[derive(Debug, Serialize)]
pub(super) struct Verified {
    pub(super) files: u64,
    pub(super) bytes: u64,
    /// Files that are not as they should be: other content, missing, or not in the list.
    pub(super) wrong: Vec<Path>,
}

/// Reads every file; the list inside the image must be the one given, byte for byte.
pub(super) fn verify(vfs: &Vfs, list: &[u8], list_inside: &[u8]) -> Result<Verified, Error> {
    let mut expected: BTreeMap<Vec<u8>, &[u8]> = list
        .split(|byte| *byte == b'\n')
        .filter_map(parse)
        .map(|(path, sum)| (join(b"/", &path), sum))
        .collect();
    let own_sum = hex(&Sha256::digest(list)).into_bytes();
    expected.insert(list_inside.to_vec(), &own_sum);
    let mut verified = Verified { files: 0, bytes: 0, wrong: Vec::new() };
    let mut buffer = vec![0; 1 << 20];
    for event in Walk::new(vfs, &vfs.root()?, b"/".to_vec(), Order::Inode) {
        match event {
            Event::File(entry) if entry.node.kind() == FileType::Regular => {
                let sum = sum(vfs, &entry.path, &mut buffer)?;
                verified.files += 1;
                verified.bytes += entry.node.attr().size_bytes;
                if expected.remove(&entry.path) != Some(sum.as_bytes()) {
                    verified.wrong.push(entry.path.into());
                }
            }
            Event::File(_) | Event::Enter(_) | Event::Leave => {}
            Event::Trouble { error, .. } => return Err(error),
        }
    }
    verified.wrong.extend(expected.into_keys().map(Path::from));
    Ok(verified)
}

fn sum(vfs: &Vfs, path: &[u8], buffer: &mut [u8]) -> Result<String, Error> {
    let file = vfs.open(&Credentials::root(), path)?;
    let mut hash = Sha256::new();
    let mut offset = 0;
    loop {
        let read = file.read_at(offset, buffer)?;
        if read == 0 {
            return Ok(hex(&hash.finalize()));
        }
        hash.update(&buffer[..read]);
        offset += read as u64;
    }
}

/// One line: the path and the sum's digits.
fn parse(line: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    const DIGITS: usize = 64;
    let (escaped, line) = match line.split_first() {
        Some((b'\\', rest)) => (true, rest),
        _ => (false, line),
    };
    let (sum, path) = line.split_at_checked(DIGITS)?;
    let path = path.strip_prefix(b"  ")?;
    if !escaped {
        return Some((path.to_vec(), sum));
    }
    let mut bytes = Vec::with_capacity(path.len());
    let mut rest = path.iter();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'\\' => match rest.next()? {
                b'n' => b'\n',
                other => *other,
            },
            other => *other,
        });
    }
    Some((bytes, sum))
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn lines_of_sha256sum_are_read_with_their_escapes() {
        let sum = "0123456789abcdef".repeat(4);
        let (path, digits) = (b"a b".to_vec(), sum.as_bytes());
        assert_eq!(parse(format!("{sum}  a b").as_bytes()), Some((path, digits)));
        let escaped = format!("\\{sum}  two\\nlines\\\\");
        assert_eq!(parse(escaped.as_bytes()), Some((b"two\nlines\\".to_vec(), digits)));
        assert_eq!(parse(b"short"), None);
        assert_eq!(parse(b""), None);
    }
}

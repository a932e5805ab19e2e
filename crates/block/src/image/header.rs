//! What imago takes for granted about a qcow2 header, looked at before it sees the file, and what it leaves to chance.
//!
//! imago validates nearly all of a header by itself. Left over are the method of encryption, which it does not look
//! at, and the table of feature names, which it cuts into entries without asking whether the last one is whole.
//! Everything else that is odd here is left for it to refuse.
//!
//! Source: the description of the format in QEMU's documentation, section "Header extensions".

use std::io;

use crate::{BlockDevice, Error};

const HEADER_BYTES: usize = 104;
const VERSION_AT: usize = 4;
const CLUSTER_BITS_AT: usize = 20;
const ENCRYPTION_AT: usize = 32;
const HEADER_LENGTH_AT: usize = 100;
/// Since this version there are extensions.
const EXTENDED: u32 = 3;
const CLUSTER_BITS_MAX: u32 = 21;

const EXTENSION_BYTES: usize = 8;
const END: u32 = 0;
const FEATURE_NAMES: u32 = 0x6803_f857;
/// Kind, bit and name of a feature.
const FEATURE_NAME_BYTES: u32 = 48;

/// Refuses a header that imago would stumble over, or would not ask about.
///
/// # Errors
/// What is wrong, or why it cannot be read.
pub(super) fn check(file: &dyn BlockDevice) -> io::Result<()> {
    let head: [u8; HEADER_BYTES] = read(file, 0)?;
    if u32_at(&head, ENCRYPTION_AT) != 0 {
        return Err(io::Error::new(io::ErrorKind::Unsupported, "it is encrypted, which is not supported"));
    }
    each_extension(file, &head, |kind, _, len| {
        if kind == FEATURE_NAMES && !len.is_multiple_of(FEATURE_NAME_BYTES) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                format!(
                    "its table of feature names is {len} bytes long, not a multiple of {FEATURE_NAME_BYTES}"
                ),
            ));
        }
        Ok(())
    })
}

/// Sorts the table of feature names in a header that imago has just written in an order that differs from run to run: the
/// same arguments make the same bytes.
///
/// # Errors
/// The system's.
pub(super) fn sort_feature_names(file: &dyn BlockDevice) -> io::Result<()> {
    let head: [u8; HEADER_BYTES] = read(file, 0)?;
    each_extension(file, &head, |kind, at, len| {
        if kind != FEATURE_NAMES {
            return Ok(());
        }
        let mut table = vec![0; len as usize];
        read_or_zeroes(file, at, &mut table)?;
        let mut names: Vec<&[u8]> = table.chunks(FEATURE_NAME_BYTES as usize).collect();
        names.sort_unstable();
        file.write_at(at, &names.concat()).map_err(source)
    })
}

/// Calls `f` with the kind, the place and the length of each extension of a header.
fn each_extension(
    file: &dyn BlockDevice,
    head: &[u8; HEADER_BYTES],
    mut f: impl FnMut(u32, u64, u32) -> io::Result<()>,
) -> io::Result<()> {
    if u32_at(head, VERSION_AT) < EXTENDED {
        return Ok(());
    }
    let cluster_end = 1_u64 << u32_at(head, CLUSTER_BITS_AT).min(CLUSTER_BITS_MAX);
    let mut at = u64::from(u32_at(head, HEADER_LENGTH_AT));
    while at < cluster_end {
        let extension: [u8; EXTENSION_BYTES] = read(file, at)?;
        let (kind, len) = (u32_at(&extension, 0), u32_at(&extension, 4));
        if kind == END {
            break;
        }
        let content = at + EXTENSION_BYTES as u64;
        f(kind, content, len)?;
        at = content + u64::from(len).next_multiple_of(8);
    }
    Ok(())
}

fn read<const LEN: usize>(file: &dyn BlockDevice, offset: u64) -> io::Result<[u8; LEN]> {
    let mut bytes = [0; LEN];
    read_or_zeroes(file, offset, &mut bytes)?;
    Ok(bytes)
}

/// Fills `buf` from the file; bytes beyond its end are zero, as imago has it.
///
/// # Errors
/// The system's.
pub(super) fn read_or_zeroes(file: &dyn BlockDevice, offset: u64, buf: &mut [u8]) -> io::Result<()> {
    let len = file.size_bytes().saturating_sub(offset).min(buf.len() as u64) as usize;
    buf[len..].fill(0);
    if len == 0 {
        return Ok(());
    }
    file.read_at(offset, &mut buf[..len]).map_err(source)
}

/// What the system said.
fn source(error: Error) -> io::Error {
    match error {
        Error::Io { source, .. } => source,
        other => io::Error::other(other),
    }
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

//! What lies in blocks of its own because the inode has no room: the value of an attribute, the target of a link.
//!
//! In version 5 a header says which part of the whole follows; in version 4 there is nothing but the bytes. A value has
//! a header in each block, a target has one in each extent.

use zerocopy::byteorder::big_endian::U32;
use zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned};

use super::Layout;
use crate::error::Verdict;
use crate::format::block_header::HeaderKind;

/// Length of the header in version 5.
const HEADER_BYTES: usize = HeaderKind::Remote.bytes();

#[derive(Clone, Copy, Debug, FromBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawHeader {
    magic: [u8; 4],
    offset: U32,
    bytes: U32,
}

/// How much of the whole fits `bytes`.
pub(crate) fn room(layout: &Layout, bytes: usize) -> usize {
    if layout.self_describing { bytes.saturating_sub(HEADER_BYTES) } else { bytes }
}

/// The part of a whole of `len` bytes that `bytes` have, which begins at byte `from` of it.
pub(crate) fn part<'a>(
    bytes: &'a [u8],
    layout: &Layout,
    magic: &[u8; 4],
    from: usize,
    len: usize,
) -> Verdict<&'a [u8]> {
    let left = len.saturating_sub(from);
    if !layout.self_describing {
        return Ok(&bytes[..bytes.len().min(left)]);
    }
    let Some((header, room)) = bytes.split_at_checked(HEADER_BYTES) else {
        return Err("too short for its header".into());
    };
    let Ok((raw, _)) = RawHeader::ref_from_prefix(header) else {
        return Err("too short for its header".into());
    };
    if raw.magic != *magic {
        let (found, magic) = (raw.magic.escape_ascii(), magic.escape_ascii());
        return Err(format!("begins with \"{found}\", not \"{magic}\"").into());
    }
    let expected = room.len().min(left);
    if raw.offset.get() as usize != from || raw.bytes.get() as usize != expected {
        return Err(format!(
            "has {} bytes from byte {} of the whole on, not {expected} from byte {from} on",
            raw.bytes, raw.offset
        )
        .into());
    }
    Ok(&room[..expected])
}

#[cfg(test)]
mod tests {
    use super::*;

    const V5: Layout = Layout {
        self_describing: true,
        has_kinds: true,
        folds_case: false,
        block_bytes: 1024,
        dir_block_bytes: 4096,
    };
    const V4: Layout = Layout { self_describing: false, ..V5 };

    fn block(offset: u32, bytes: u32) -> Vec<u8> {
        let mut block = [&b"XARM"[..], &offset.to_be_bytes(), &bytes.to_be_bytes()].concat();
        block.resize(HEADER_BYTES, 0);
        block.resize(1024, b'v');
        block
    }

    #[test]
    fn parts_follow_each_other() {
        let part = |bytes: &[u8], layout, from| {
            part(bytes, layout, b"XARM", from, 1000).map(<[u8]>::to_vec).map_err(std::borrow::Cow::into_owned)
        };
        assert_eq!(part(&block(0, 968), &V5, 0), Ok(vec![b'v'; 968]));
        assert_eq!(part(&block(968, 32), &V5, 968), Ok(vec![b'v'; 32]));
        assert!(part(&block(0, 968), &V5, 968).unwrap_err().contains("not 32 from byte 968 on"));
        assert!(part(&block(968, 33), &V5, 968).unwrap_err().contains("has 33 bytes"));
        assert!(part(&[0; 1024], &V5, 0).unwrap_err().contains("XARM"));
        assert!(part(&[0; 20], &V5, 0).unwrap_err().contains("short"));
        assert_eq!(part(&[5; 512], &V4, 0), Ok(vec![5; 512]));
        assert_eq!(part(&[5; 512], &V4, 912), Ok(vec![5; 88]));
        assert_eq!((room(&V5, 1024), room(&V4, 1024), room(&V5, 10)), (968, 1024, 0));
    }
}

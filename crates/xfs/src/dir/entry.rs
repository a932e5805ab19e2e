//! One entry of a directory, and how its parts are encoded.

pub(crate) use undercroft_diskfs::entry_kind::{code_of, kind_of};

use crate::da::Layout;
use crate::error::Verdict;

/// Entries and unused space begin and end at multiples of this.
pub(super) const ALIGN: usize = 8;

/// The position of a byte in a directory: its place in the space of entries, in units of [`ALIGN`]. Linux shows it as
/// the offset of an entry, and the hash index leads to entries by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Position(pub(crate) u64);

impl Position {
    /// The position of byte `at` of block `number`.
    pub(crate) fn of(layout: &Layout, number: u64, at: usize) -> Self {
        Self((number * layout.dir_block_bytes as u64 + at as u64) / ALIGN as u64)
    }

    /// The number of the block, and the byte in it.
    pub(crate) fn split(self, layout: &Layout) -> (u64, usize) {
        let byte = self.0.saturating_mul(ALIGN as u64);
        let size = layout.dir_block_bytes as u64;
        (byte / size, (byte % size) as usize)
    }
}

/// A name and what it leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry<'a> {
    /// Never empty.
    pub(crate) name: &'a [u8],
    pub(crate) ino: u64,
    /// The code of the kind of file; 0 where the directory does not have it.
    pub(crate) kind: u8,
    /// Where it begins.
    pub(crate) position: Position,
    /// Where the next one may begin.
    pub(crate) next: Position,
}

/// The bytes that an entry takes in a block.
pub(crate) fn entry_bytes(layout: &Layout, name_bytes: usize) -> usize {
    (8 + 1 + name_bytes + usize::from(layout.has_kinds) + 2).next_multiple_of(ALIGN)
}

/// Refuses a name that no file can have.
pub(crate) fn check_name(name: &[u8]) -> Verdict<()> {
    if name.iter().any(|byte| matches!(byte, 0 | b'/')) {
        let shown = String::from_utf8_lossy(name);
        return Err(format!("name {shown:?} contains a slash or NUL").into());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_depend_on_the_kind() {
        let mut layout = super::super::testing::LAYOUT;
        assert_eq!([1, 4, 5, 12, 13, 255].map(|len| entry_bytes(&layout, len)), [16, 16, 24, 24, 32, 272]);
        layout.has_kinds = false;
        assert_eq!([1, 4, 5, 12, 13, 255].map(|len| entry_bytes(&layout, len)), [16, 16, 16, 24, 24, 272]);
    }

    #[test]
    fn positions_and_places() {
        let layout = super::super::testing::LAYOUT;
        let position = Position::of(&layout, 3, 96);
        assert_eq!(position, Position((3 * layout.dir_block_bytes as u64 + 96) / 8));
        assert_eq!(position.split(&layout), (3, 96));
        assert!(Position(u64::MAX).split(&layout).1 < layout.dir_block_bytes);
    }
}

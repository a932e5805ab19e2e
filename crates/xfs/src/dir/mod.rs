//! Directories: finding a name, listing all of them, and changing them.
//!
//! | module | what it has |
//! | --- | --- |
//! | `directory` | one directory, and which of its forms it has |
//! | `entry` | an entry, and its position |
//! | `short` | a directory in its inode |
//! | `data` | a block of entries |
//! | `leaf` | the hash index |
//! | `find`, `list` | one name, all names |
//! | `live` | both for a directory that others change |
//! | `change` | names added, removed and led elsewhere |
//!
//! A small directory lies in its inode. Then it is one block of entries that ends with its hash index, then data blocks
//! and a leaf, and at last data blocks, a tree of leaves and blocks of the free index. A directory block is as large as
//! the volume says, one filesystem block or more, and need not lie in one piece. Names are found by their hash; a
//! listing reads only the entries. Neither uses the free index, which a change does.
//!
//! Source: "XFS Algorithms & Data Structures", chapter "Directories".

pub(crate) mod change;
mod data;
mod directory;
mod entry;
mod find;
mod leaf;
mod list;
mod live;
mod short;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(all(test, feature = "oracle"))]
mod tests;

use std::ops::ControlFlow;

pub(crate) use directory::Directory;
pub(crate) use entry::code_of;
pub(crate) use live::{behind_live, is_empty, lookup_live, read_dir_live};
use undercroft_vfs::{DirEntry, DirOffset, Ino, Result};

/// The longest name, in bytes.
pub(crate) const NAME_MAX_BYTES: usize = 255;

/// The number that `name` leads to, as the directory has it: `.` and `..` included.
///
/// # Errors
/// Corruption, I/O failure.
pub(crate) fn lookup(directory: Directory<'_>, name: &[u8]) -> Result<Option<Ino>> {
    if name.is_empty() || name.len() > NAME_MAX_BYTES {
        return Ok(None);
    }
    find::Search::new(directory, name).run()
}

/// Gives `sink` the entries from `from` on, `.` and `..` included, until it breaks.
///
/// # Errors
/// Corruption, I/O failure; entries already given were good.
pub(crate) fn read_dir(
    directory: Directory<'_>,
    from: DirOffset,
    sink: &mut dyn FnMut(DirEntry<'_>) -> ControlFlow<()>,
) -> Result<()> {
    list::Listing { directory, from: entry::Position(from.0), announced: 0, sink }.run().map(drop)
}

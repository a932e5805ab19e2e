//! Extended attributes of an image, which nothing changes while it is read.

use undercroft_vfs::{Corruption, Error, Node, Result};

use crate::text::names::safe;

/// The value of an attribute that the inode lists.
///
/// # Errors
/// Corruption, also when a look-up does not find the name: its hash or its place is wrong then. I/O failure.
pub(crate) fn listed_xattr(node: &Node, name: &[u8]) -> Result<Vec<u8>> {
    node.xattr(name)?.ok_or_else(|| {
        Error::Corrupt(Box::new(Corruption {
            structure: "extended attributes",
            ino: Some(node.ino()),
            block: None,
            detail: format!("{} is listed, and a look-up does not find it", safe(name)).into(),
        }))
    })
}

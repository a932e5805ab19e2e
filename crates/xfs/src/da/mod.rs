//! What directories and extended attributes have in common: blocks that describe themselves, and a B+tree over the
//! hashes of names (XFS calls it the da B+tree).
//!
//! | module | what it has |
//! | --- | --- |
//! | `layout` | the volume's sizes and features that these blocks depend on |
//! | `fork`, `mapped` | how blocks of a fork are fetched, also those that lie in several extents |
//! | `hash` | the hash of a name |
//! | `node` | an inner block of the tree |
//! | `remote` | values and targets in blocks of their own |
//! | `descent` | from the root to the leaves that a hash may be in |
//!
//! Each block is validated as a whole when it is read. The depth of a tree is bounded, and a walk along the leaves
//! visits no block twice, so that no walk depends on the disk for its end.
//!
//! Source: "XFS Algorithms & Data Structures", chapters "Directories" and "Extended Attributes".

mod descent;
mod fork;
mod hash;
mod layout;
pub(crate) mod mapped;
#[cfg(test)]
pub(crate) mod memory;
pub(crate) mod node;
pub(crate) mod remote;
#[cfg(all(test, feature = "oracle"))]
pub(crate) mod testing;

pub(crate) use descent::{Leaves, Root};
pub(crate) use fork::{Block, Content, Fork, ForkBlocks};
pub(crate) use hash::{fold_case, hash_name, hash_name_folded};
pub(crate) use layout::Layout;
pub(crate) use node::{Links, Node};

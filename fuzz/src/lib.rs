//! What the targets share: a good image in which the fuzzer's bytes take the place of one structure, a walk that
//! asks the damaged image everything, and the seeds from which a corpus grows.

mod damage;
mod disk;
mod images;
mod member;
mod mend;
pub mod seeds;
mod walk;
pub mod xfs;

pub use damage::{
    DIRECTORY_BLOCK, EXTENT_NODE, GROUP_DESCRIPTOR, INODE, JOURNAL_BLOCK, JOURNAL_SUPERBLOCK, Kind,
    SUPERBLOCK, XATTR_BLOCK, damage_anywhere, damage_one,
};
pub use disk::disk;
pub use member::member;

//! Fills a filesystem that the kernel has mounted with one of everything: each corner that a reader of the
//! format can get wrong.
//!
//! The tree is made from what the filesystem can do ([`Features`]), never by trying and looking away: a call
//! that fails fails the test. Deterministic apart from the inodes' own times and generations. Needs root, for
//! device nodes and other owners.

mod attributes;
mod content;
mod names;
mod nodes;
mod noise;
mod xattrs;
mod xfs;

use std::path::Path;

use crate::dir::Dir;
use crate::{Features, Result};
pub use noise::noise;
pub use xfs::{XFS_FRAGMENTED, XfsPlan, populate_xfs};

/// How much of everything.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Number of files in the large directory.
    pub many: usize,
    /// Shortest name in the large directory, in bytes: long names make a deep index.
    pub many_name_bytes: usize,
    /// Number of directories in one directory; more than 65,000 make it stop counting its links.
    pub subdirectories: usize,
    /// Depth that the fragmented file's extent tree must reach (0 = all extents in the inode).
    pub extent_depth: u32,
}

impl Default for Plan {
    fn default() -> Self {
        Self { many: 100_000, many_name_bytes: 1, subdirectories: 40, extent_depth: 2 }
    }
}

/// Where [`populate`] puts the file with the deep extent tree.
pub const FRAGMENTED: &str = "content/fragmented";

/// Fills the filesystem mounted at `root`.
///
/// # Errors
/// Whatever the kernel refuses.
pub fn populate(root: &Path, features: &Features, plan: &Plan) -> Result<()> {
    let top = Dir::open(root)?;
    content::populate(&top.dir("content")?, features, plan)?;
    names::populate(&top.dir("names")?, features, plan)?;
    nodes::populate(&top.dir("nodes")?, features)?;
    if features.has("ext_attr") {
        xattrs::populate(&top.dir("xattrs")?, features)?;
    }
    attributes::populate(&top.dir("attributes")?)
}

//! How an image is written to, whatever kind of filesystem it holds.
//!
//! Options are given before the image is looked at. An option that the kind does not have is refused by name
//! when it is opened.

use undercroft_ext4::{self as ext4, OrphanForm};
use undercroft_vfs::{Error, Result};
use undercroft_xfs as xfs;

/// What the user chose; what was not chosen is as the filesystem has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Writing {
    /// `commit=`.
    pub(crate) commit_seconds: Option<u32>,
    /// `sync`.
    pub(crate) synchronous: bool,
    /// `discard`.
    pub(crate) discard: bool,
    /// `overwrite=journaled`.
    pub(crate) journaled_overwrites: bool,
    /// `orphan=`.
    pub(crate) orphans: Option<OrphanForm>,
    /// Whether it is changed as a tool does it, which counts as no mount.
    pub(crate) is_by_tool: bool,
    /// `finobt=`.
    pub(crate) search_free_inode_tree: Option<bool>,
}

impl Writing {
    /// As a tool writes that changes an image without a mount.
    pub(crate) fn by_tool() -> Self {
        Self { is_by_tool: true, ..Self::default() }
    }

    /// In terms of ext4.
    ///
    /// # Errors
    /// [`Unsupported`](Error::Unsupported) naming the option that ext4 does not have.
    pub(super) fn of_ext4(self) -> Result<ext4::WriteOptions> {
        if self.search_free_inode_tree.is_some() {
            return Err(refusal("finobt", "XFS", "ext4"));
        }
        let usual = ext4::WriteOptions::default();
        Ok(ext4::WriteOptions {
            commit_seconds: self.commit_seconds.unwrap_or(usual.commit_seconds),
            orphans: self.orphans.unwrap_or(usual.orphans),
            journaled_overwrites: self.journaled_overwrites,
            synchronous: self.synchronous,
            discard: self.discard,
            counts_mount: !self.is_by_tool,
            ..usual
        })
    }

    /// In terms of XFS.
    ///
    /// # Errors
    /// [`Unsupported`](Error::Unsupported) naming the option that XFS does not have.
    pub(super) fn of_xfs(self) -> Result<xfs::WriteOptions> {
        if self.orphans.is_some() {
            return Err(refusal("orphan", "ext4", "XFS"));
        }
        let usual = xfs::WriteOptions::default();
        Ok(xfs::WriteOptions {
            commit_seconds: self.commit_seconds.unwrap_or(usual.commit_seconds),
            journaled_overwrites: self.journaled_overwrites,
            synchronous: self.synchronous,
            discard: self.discard,
            search_free_inode_tree: self.search_free_inode_tree.unwrap_or(usual.search_free_inode_tree),
            ..usual
        })
    }
}

fn refusal(option: &str, whose: &str, here: &str) -> Error {
    Error::Unsupported(
        format!("mount option \"{option}=\" is one of {whose}, and this is {here}; leave it out").into(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_kind_has_not_is_refused_by_name() {
        let plain = Writing::default();
        assert_eq!(plain.of_ext4().unwrap(), ext4::WriteOptions::default());
        assert_eq!(plain.of_xfs().unwrap(), xfs::WriteOptions::default());
        let orphans = Writing { orphans: Some(OrphanForm::List), ..plain };
        assert_eq!(orphans.of_ext4().unwrap().orphans, OrphanForm::List);
        assert!(orphans.of_xfs().unwrap_err().to_string().contains("\"orphan=\""));
        let unsearched = Writing { search_free_inode_tree: Some(false), ..plain };
        assert!(!unsearched.of_xfs().unwrap().search_free_inode_tree);
        assert!(unsearched.of_ext4().unwrap_err().to_string().contains("\"finobt=\""));
        let discards = Writing { discard: true, ..plain };
        assert!(discards.of_ext4().unwrap().discard);
        assert!(discards.of_xfs().unwrap().discard);
    }
}

//! Fast commits: small changes that ext4 logs as operations after the last full transaction.
//!
//! Reading them ([`scan`]) yields an ordered list of [`FastCommitOp`]. Applying them is the filesystem's
//! affair. A filesystem that does not write folds them into a [`FastCommitView`], which answers what each
//! inode, mapping and directory looks like with them.
//!
//! Source: kernel documentation, section "Fast commits", and observation of logs that Linux 6.18 wrote, with
//! what it made of them at the next mount.

mod directory;
mod format;
mod inode;
mod operation;
mod ranges;
mod scan;
mod view;

pub(crate) use directory::DirectoryChange;
pub(crate) use inode::Incarnation;
pub(crate) use operation::FastCommitOp;
pub(crate) use ranges::Overridden;
pub(super) use scan::read;
pub(crate) use view::FastCommitView;

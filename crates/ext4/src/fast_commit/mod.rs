//! Fast commits: small changes that ext4 logs as operations after the last full transaction.
//!
//! Reading them ([`scan`]) yields an ordered list of [`FastCommitOp`]. A filesystem opened for reading folds them into a
//! [`FastCommitView`], which answers what each inode, mapping and directory looks like with them. A filesystem opened
//! for writing makes them one transaction ([`redo`]). They lie at the end of the log, the rest of which is read by
//! `jbd2`.
//!
//! Source: kernel documentation, section "Fast commits", and observation of logs that Linux 6.18 wrote, with
//! what it made of them at the next mount.

mod directory;
mod format;
mod inode;
mod operation;
mod ranges;
pub(crate) mod redo;
mod scan;
mod view;

pub(crate) use directory::DirectoryChange;
pub(crate) use inode::Incarnation;
pub(crate) use operation::FastCommitOp;
pub(crate) use ranges::Overridden;
pub(crate) use scan::read;
pub(crate) use view::FastCommitView;

//! Partitioned disks: where partitions lie, and what fills those that hold no filesystem of Linux.
//!
//! | module | what it is |
//! | --- | --- |
//! | [`definition`] | what a disk is to be, as files say it |
//! | [`fat`] | FAT filesystems, made and filled |
//! | [`layout`] | the places of partitions, by their sizes and weights |
//! | [`sources`] | files for filesystems, from elsewhere than directories and archives |
//! | [`swap`] | swap space |
//!
//! Tables of partitions are made and written by `undercroft_block::partition`; filesystems of Linux are made and filled by
//! their own crates.

pub mod definition;
pub mod fat;
pub mod layout;
pub mod sources;
pub mod swap;

use undercroft_block as block;
use undercroft_populate::SourceError;

/// Why a disk or a part of it cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The device failed.
    #[error(transparent)]
    Device(#[from] block::Error),
    /// A source of files failed.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// What is asked for cannot be.
    #[error("{0}")]
    Refused(String),
}

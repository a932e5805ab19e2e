//! Fills a filesystem from directories and archives, without a mount and without privileges.
//!
//! A [`Source`] gives [`Entry`]s in its own order, each with everything that it says about a file, and the content of
//! regular files. A [`Writer`] puts entries into a [`Vfs`](undercroft_vfs::Vfs). [`fill`] connects the two: a thread reads
//! while the calling thread writes.
//!
//! Everything that a source says is hostile. Its paths become [`EntryPath`]s, which never lead upwards, and a symbolic
//! link is followed only within the filesystem, and only if it is no link of the same source.
//!
//! This crate knows no format of a disk, and nothing of the program.

mod access_list;
mod archive;
mod compress;
mod directory;
mod entry;
mod error;
mod fill;
mod layers;
mod mode;
mod oci;
mod open;
mod path;
mod rules;
mod source;
mod tar;
#[cfg(test)]
mod testing;
mod verify;
mod writer;

pub use archive::{archive_from, archive_in};
pub use compress::{Compression, Stream, decompressed, failure};
pub use directory::{DirectorySource, FileId};
pub use entry::{Content, Entry, EntryKind, Metadata, Xattr};
pub use error::{Error, SourceError, SourceErrorKind};
pub use fill::{FillOptions, fill};
pub use mode::{ModeChange, NoMode};
pub use oci::{
    ArchiveKind, ImageOptions, NoPlatform, Platform, image_in_archive, image_in_layout, is_image_layout,
    split_kind,
};
pub use open::{OpenSource, open_source};
pub use path::{EntryPath, PathError};
pub use rules::{LeftOut, Ruled, Rules};
pub use source::{Piece, Source};
pub use tar::{Archive, OpenArchive, TarSource};
pub use writer::{Filled, UnkeptXattrs, Writer, WriterOptions, replace_in_one_step};

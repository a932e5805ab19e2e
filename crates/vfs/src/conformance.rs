//! The conformance suite: what every filesystem must do. Its read side is checked against a tree known as data.
//!
//! A filesystem's tests make an image that holds [`standard_tree`] by whatever means they have, for instance
//! [`populate`] in a directory where the kernel has mounted the image, or [`populate_through`] where the filesystem
//! can be written to, and then call [`check`] on their own mount of it. The checks go through the vfs, as users do, so
//! they cover both: names and directory streams with every cursor, attributes, content at odd offsets, holes, links,
//! extended attributes, permissions, path walking, the tree walk, and many threads at once.
//!
//! What a filesystem that can be written to must do is checked by [`check_writing`], and concurrent changes of names by
//! [`check_schedule`], which see.
//!
//! Built only with the feature `conformance`. Not covered: damaged images.

mod access;
mod check;
mod content;
mod linear;
mod namespace;
mod objects;
mod outcome;
mod paths;
mod populate;
mod populate_through;
mod remove;
mod standard;
mod threads;
mod tree;
mod writing;

pub use access::{AclEntry, acl_bytes, reference_acl_grants};
pub use check::check;
pub use linear::{LinearOptions, check_schedule};
pub use outcome::Outcome;
pub use populate::populate;
pub use populate_through::populate_through;
pub use standard::{Profile, standard_tree};
#[cfg(test)]
pub(crate) use tree::mix;
pub use tree::{Content, Entry, Object, Piece, Tree};
pub use writing::{WritingProfile, check_writing};

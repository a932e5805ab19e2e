//! Making corruption reports that say where.

use std::borrow::Cow;

use undercroft_vfs::{Corruption, Error, Ino};

use crate::numbers::FsBlock;

/// A corrupt structure that has no better address than its name.
pub(crate) fn corrupt(structure: &'static str, detail: impl Into<Cow<'static, str>>) -> Error {
    Corruption { structure, ino: None, block: None, detail: detail.into() }.into()
}

/// A corrupt structure in a block that belongs to no inode.
pub(crate) fn corrupt_block(
    structure: &'static str,
    block: FsBlock,
    detail: impl Into<Cow<'static, str>>,
) -> Error {
    Corruption { structure, ino: None, block: Some(block.0), detail: detail.into() }.into()
}

/// A corrupt structure of an inode; `block` where it lies outside the inode itself.
pub(crate) fn corrupt_inode(
    structure: &'static str,
    ino: u32,
    block: Option<FsBlock>,
    detail: impl Into<Cow<'static, str>>,
) -> Error {
    let ino = Some(Ino(u64::from(ino)));
    Corruption { structure, ino, block: block.map(|b| b.0), detail: detail.into() }.into()
}

/// The result of validating bytes whose location is not known there; a caller that knows it turns the error into a
/// report of corruption.
pub(crate) type Verdict<T> = std::result::Result<T, Cow<'static, str>>;

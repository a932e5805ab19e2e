//! Extended attributes: in the inode's unused bytes, then in a block.
//!
//! Attributes in the inode come first, as Linux has them. Names are stored as a number for the beginning
//! (`name`) and the rest; access control lists are stored in a compact form (`acl`); large values may have an inode of
//! their own (`value_inode`). Each list is validated as a whole before anything in it is used.
//!
//! A change (`set`) writes the lists that it touches anew (`list`), and sees to the block (`home`, `shared`) and to the
//! inodes that hold values (`uses`).

mod acl;
mod block;
mod entry;
mod home;
mod list;
mod name;
mod renumber;
mod set;
mod shared;
mod uses;
mod value_inode;

#[cfg(all(test, feature = "oracle"))]
mod change_tests;
#[cfg(all(test, feature = "oracle"))]
mod tests;

use std::borrow::Cow;

use undercroft_vfs::{Error, Result};

use crate::error::corrupt_inode;
use crate::inode::Inode;
use crate::numbers::FsBlock;
use crate::volume::Volume;
use block::AttributeBlock;
pub(crate) use block::seal_block;
use entry::Entry;
pub(crate) use entry::{Attributes, Value, entry_hashes};
pub(crate) use home::copy_block;
pub(crate) use name::INDEX_SYSTEM;
pub(crate) use renumber::{ValueNamed, for_each_value_inode, lead_value_elsewhere};
pub(crate) use set::{credits, has_value_inodes, release, remove_inline_data, replace_inline_data, set};
pub(crate) use shared::SharedBlocks;

const STRUCTURE_IN_INODE: &str = "extended attributes";
/// Begins the attributes in an inode.
const MAGIC: [u8; 4] = 0xEA02_0000_u32.to_le_bytes();

/// The value of the attribute with this full name; `None` when there is none.
///
/// # Errors
/// Corruption, naming inode and block; I/O failure.
pub(crate) fn get(volume: &Volume, inode: &Inode, full_name: &[u8]) -> Result<Option<Vec<u8>>> {
    let Some((index, name)) = name::split(full_name) else { return Ok(None) };
    let mut value = None;
    each_list(volume, inode, |attributes, home| {
        if value.is_none()
            && let Some(entry) = attributes.find(index, name)
        {
            value = Some(read_value(volume, inode, &entry, home)?);
        }
        Ok(())
    })?;
    Ok(value)
}

/// The full names of all attributes that Linux would list for the superuser.
///
/// # Errors
/// Corruption, naming inode and block; I/O failure.
pub(crate) fn list(volume: &Volume, inode: &Inode) -> Result<Vec<Vec<u8>>> {
    let mut names = Vec::new();
    each_list(volume, inode, |attributes, _| {
        names.extend(attributes.iter().filter_map(|entry| name::join_listed(entry.index, entry.name)));
        Ok(())
    })?;
    Ok(names)
}

/// The value of an attribute by its stored name, if it lies in the inode itself.
///
/// # Errors
/// Corruption, naming the inode; I/O failure.
pub(crate) fn ibody_value(volume: &Volume, inode: &Inode, index: u8, name: &[u8]) -> Result<Option<Vec<u8>>> {
    let bytes = inode.read_inline_xattrs(volume)?;
    let Some(attributes) = in_inode(inode, &bytes)? else { return Ok(None) };
    match attributes.find(index, name).map(|entry| entry.value) {
        None => Ok(None),
        Some(Value::Here(value)) => Ok(Some(value.to_vec())),
        Some(Value::Inode { number, .. }) => {
            let detail = format!("a value that must lie in the inode lies in inode {number}");
            Err(corrupt_inode(STRUCTURE_IN_INODE, inode.number, None, detail))
        }
    }
}

/// Calls `look` for the list in the inode and then for the one in a block, as far as they exist.
fn each_list(
    volume: &Volume,
    inode: &Inode,
    mut look: impl FnMut(&Attributes<'_>, Option<FsBlock>) -> Result<()>,
) -> Result<()> {
    let bytes = inode.read_inline_xattrs(volume)?;
    if let Some(attributes) = in_inode(inode, &bytes)? {
        look(&attributes, None)?;
    }
    if let Some(block) = AttributeBlock::read(volume, inode)? {
        let home = Some(inode.xattr_block);
        look(&block.attributes().map_err(|detail| corrupt(inode, home, detail))?, home)?;
    }
    Ok(())
}

/// The attributes in the bytes that the inode's fields leave; `None` where there are none.
fn in_inode<'a>(inode: &Inode, bytes: &'a [u8]) -> Result<Option<Attributes<'a>>> {
    let Some(list) = bytes.strip_prefix(&MAGIC) else { return Ok(None) };
    Attributes::validate(list, 0).map(Some).map_err(|detail| corrupt(inode, None, detail))
}

fn read_value(volume: &Volume, inode: &Inode, entry: &Entry<'_>, home: Option<FsBlock>) -> Result<Vec<u8>> {
    let value = match entry.value {
        Value::Here(value) => Cow::Borrowed(value),
        Value::Inode { number, size_bytes } => {
            Cow::Owned(value_inode::read(volume, inode, entry, number, size_bytes)?)
        }
    };
    match entry.index {
        name::INDEX_ACL_ACCESS | name::INDEX_ACL_DEFAULT => {
            acl::to_xattr(&value).map_err(|detail| corrupt(inode, home, detail))
        }
        _ => Ok(value.into_owned()),
    }
}

fn corrupt(inode: &Inode, home: Option<FsBlock>, detail: Cow<'static, str>) -> Error {
    let structure = if home.is_some() { block::STRUCTURE } else { STRUCTURE_IN_INODE };
    corrupt_inode(structure, inode.number, home, detail)
}

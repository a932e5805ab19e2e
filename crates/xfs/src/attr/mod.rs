//! Extended attributes: in the inode, in a leaf, or in a tree of leaves, with values beside their names or in blocks of
//! their own.
//!
//! | module | what it has |
//! | --- | --- |
//! | `entry` | an attribute, its name space, where its value lies |
//! | `short` | attributes in the inode |
//! | `leaf` | a leaf |
//! | `remote` | values in blocks of their own |
//! | `name` | full names, as `getxattr` takes them |
//! | `acl` | access control lists |
//! | `reserved` | names whose values must have a form |
//! | `change` | changing attributes |
//!
//! Attributes that were being written when the system stopped ("incomplete") count as not there, and parent pointers
//! have no name that a user could ask for.
//!
//! Source: "XFS Algorithms & Data Structures", chapter "Extended Attributes".

mod acl;
pub(crate) mod change;
mod entry;
mod leaf;
mod name;
mod remote;
pub(crate) mod reserved;
mod short;
#[cfg(all(test, feature = "oracle"))]
mod tests;

use std::ops::ControlFlow;

use undercroft_vfs::{Error, Ino, Result};

use crate::da::{Content, Fork, Layout, Leaves, Root, hash_name};
use crate::error::corrupt_inode;
use entry::{Attribute, Value};
use leaf::AttributeLeaf;
use short::ShortAttributes;

const STRUCTURE: &str = "attribute fork";

/// As long as Linux gives out a list of names, in bytes: each name with a NUL.
const LIST_MAX_BYTES: usize = 1 << 16;

/// An inode's attribute fork.
#[derive(Clone, Copy)]
pub(crate) struct Attributes<'a> {
    pub(crate) ino: Ino,
    pub(crate) layout: &'a Layout,
    pub(crate) content: Content<'a>,
}

/// The value of the attribute with this full name; `None` when there is none.
///
/// # Errors
/// Corruption, I/O failure.
pub(crate) fn get(attributes: Attributes<'_>, full_name: &[u8]) -> Result<Option<Vec<u8>>> {
    let Some(wanted) = name::split(full_name) else { return Ok(None) };
    let mut value = None;
    attributes.each(Some(hash_name(wanted.name)), &mut |attribute, fork| {
        if attribute.incomplete || attribute.space != wanted.space || attribute.name != wanted.name {
            return Ok(ControlFlow::Continue(()));
        }
        value = Some(match attribute.value {
            Value::Here(value) => value.to_vec(),
            Value::Remote { block, bytes } => {
                let fork = fork
                    .ok_or_else(|| attributes.corrupt("a value lies outside, all attributes in the inode"))?;
                remote::read(fork, block, bytes)?
            }
        });
        Ok(ControlFlow::Break(()))
    })?;
    match value {
        Some(value) if wanted.is_acl => {
            acl::to_xattr(&value).map(Some).map_err(|detail| attributes.corrupt(detail))
        }
        value => Ok(value),
    }
}

/// The full names of all attributes that Linux would list for the superuser.
///
/// # Errors
/// [`Error::ValueTooLarge`] for more than a list can have, as Linux answers; corruption, I/O failure.
pub(crate) fn list(attributes: Attributes<'_>) -> Result<Vec<Vec<u8>>> {
    let mut names = Vec::new();
    let mut left = LIST_MAX_BYTES;
    attributes.each(None, &mut |attribute, _| {
        if !attribute.incomplete {
            for name in name::join(attribute.space, attribute.name) {
                left = left.checked_sub(name.len() + 1).ok_or(Error::ValueTooLarge)?;
                names.push(name);
            }
        }
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(names)
}

/// Is given attributes, and the fork if they lie in its blocks.
type Look<'l> = dyn FnMut(&Attribute<'_>, Option<&Fork<'_>>) -> Result<ControlFlow<()>> + 'l;

impl<'a> Attributes<'a> {
    /// Gives `look` the attributes until it breaks: all, or those whose names have this hash and perhaps others.
    fn each(&self, hash: Option<u32>, look: &mut Look<'_>) -> Result<()> {
        let blocks = match self.content {
            Content::Inline(bytes) => {
                let short = ShortAttributes::validate(bytes).map_err(|detail| self.corrupt(detail))?;
                for attribute in short.iter() {
                    if look(&attribute, None)?.is_break() {
                        break;
                    }
                }
                return Ok(());
            }
            Content::Blocks(blocks) => blocks,
        };
        if blocks.next_present(0, u32::MAX)?.is_none() {
            return Ok(());
        }
        let fork = Fork { blocks, layout: self.layout, owner: self.ino, structure: STRUCTURE, unit: 1 };
        let mut leaves = Leaves::find(fork, Root(0), hash.unwrap_or(0))?;
        while let Some(block) = leaves.next()? {
            let leaf = fork.validated(block.home, AttributeLeaf::validate(&block.bytes, self.layout))?;
            for attribute in leaf.with_hash(hash) {
                if look(&attribute, Some(&fork))?.is_break() {
                    return Ok(());
                }
            }
            // The next leaf goes on with the hash only if this one ends with it.
            if hash.is_some_and(|hash| leaf.last_hash().is_some_and(|last| last != hash)) {
                break;
            }
        }
        Ok(())
    }

    fn corrupt(&self, detail: impl Into<std::borrow::Cow<'static, str>>) -> undercroft_vfs::Error {
        corrupt_inode(STRUCTURE, self.ino, None, detail)
    }
}

#[cfg(test)]
mod unit_tests {
    use super::leaf::tests::{LAYOUT, leaf};
    use super::*;
    use crate::da::memory::Memory;

    fn attributes(memory: &Memory) -> Attributes<'_> {
        Attributes { ino: Ino(128), layout: &LAYOUT, content: Content::Blocks(memory) }
    }

    #[test]
    fn a_list_ends_where_linux_ends_it() {
        let names: Vec<Vec<u8>> = (0..400).map(|n| format!("{n:0>200}").into_bytes()).collect();
        let entries: Vec<(u32, &[u8])> = names.iter().map(|name| (7, &name[..])).collect();
        let mut memory = Memory { unit: 1, ..Memory::default() };
        memory.blocks.insert(0, leaf([0, 0], &entries[..300], false));
        assert_eq!(list(attributes(&memory)).unwrap().len(), 300);
        memory.blocks.insert(0, leaf([1, 0], &entries[..300], false));
        memory.blocks.insert(1, leaf([0, 0], &entries[300..], false));
        assert!(matches!(list(attributes(&memory)), Err(Error::ValueTooLarge)));
    }

    #[test]
    fn a_search_ends_with_the_leaf_that_the_hash_leads_to() {
        let mut memory = Memory { unit: 1, ..Memory::default() };
        let (wanted, above) = (hash_name(b"wanted"), u32::MAX);
        for (name, end, reads) in
            [(&b"other"[..], wanted - 1, 1), (b"other", wanted, 2), (b"wanted", above, 1)]
        {
            memory.blocks.insert(0, leaf([1, 0], &[(wanted.min(end), b"other"), (end, b"last")], false));
            memory.blocks.insert(1, leaf([0, 0], &[(above, name)], false));
            memory.reads.borrow_mut().clear();
            assert_eq!(get(attributes(&memory), b"user.wanted").unwrap(), None);
            // The root is read, and of its siblings those that may have the hash.
            assert_eq!(memory.reads.borrow().len(), reads);
        }
    }
}

//! Changing extended attributes.
//!
//! | module | what it has |
//! | --- | --- |
//! | `plan` | a change, worked out before anything is changed, and carried out |
//! | `fit` | where the attribute fork begins in the inode |
//! | `short` | attributes in the inode |
//! | `leaf` | a leaf |
//! | `tree` | the tree of leaves |
//! | `remote` | values in blocks of their own |
//!
//! Attributes lie in the inode while they fit there, then in one leaf, then in a tree; they return when they fit again.
//! A change is worked out first, on copies of the blocks that it touches, and then made under one handle: all that can
//! be refused is refused before the first change, and no attribute is ever half made. Entries that Linux left
//! incomplete count as not there, and stay.
//!
//! Locks: the caller holds the inode's fields exclusively, under the handle.

mod fit;
#[cfg(all(test, feature = "oracle"))]
mod image_tests;
mod leaf;
mod plan;
mod remote;
mod short;
#[cfg(test)]
mod tests;
mod tree;

use std::borrow::Cow;

use undercroft_vfs::{Error, FileType, Result, XattrMode};

use super::entry::{Space, VALUE_MAX_BYTES};
use super::{acl, name, reserved};
use crate::da::Layout;
use crate::inode::{Fork, ForkKind, Inode, STORE_CREDITS};
use crate::map;
use crate::map::change::Progress;
use crate::transaction::Handle;
use crate::volume::Volume;

/// Blocks of the tree that a change adds or removes at most, unless the tree is high.
const TREE_STEPS: u32 = 4;

/// Blocks of the tree that a change rewrites, unless the tree is high.
const TREE_BLOCKS: u32 = 6;

/// What came of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Attempt {
    Done,
    /// Nothing has changed: the handle must have this many credits.
    Wants(u32),
    /// Nothing has changed: the data fork leaves no room for attributes, and must [make way](make_way).
    DataInTheWay,
}

/// Blocks that setting this value, or removing one, changes as a rule, with the inode.
pub(crate) fn credits(volume: &Volume, inode: &Inode, value: Option<&[u8]>) -> u32 {
    let len = value.map_or(0, <[u8]>::len);
    // A guess is enough: a change that does not fit says so.
    const USUAL_NAME_BYTES: usize = 32;
    let used = match &inode.attr {
        None => Some(0),
        Some(Fork::Local(bytes)) => bytes.first_chunk().map(|total| usize::from(u16::from_be_bytes(*total))),
        Some(_) => None,
    };
    if used.is_some_and(|used| fit::for_bytes(inode, used + USUAL_NAME_BYTES + len).is_some()) {
        return STORE_CREDITS;
    }
    let step = map::change::credits(volume, inode, ForkKind::Attr);
    STORE_CREDITS + TREE_BLOCKS + TREE_STEPS * (step + 1) + value_blocks(volume, len) + 2 * step
}

/// Blocks of space that setting this value takes as a rule. A change reserves what it takes itself.
pub(crate) fn space(volume: &Volume, inode: &Inode, value: Option<&[u8]>) -> u64 {
    let each = 1 + map::change::space(inode, ForkKind::Attr);
    each * u64::from(TREE_STEPS + value_blocks(volume, value.map_or(0, <[u8]>::len)))
}

fn value_blocks(volume: &Volume, len: usize) -> u32 {
    let layout = Layout::of(volume.superblock());
    if leaf::keeps_value(layout.block_bytes, &[0; 255], &vec![0; len.min(layout.block_bytes)]) {
        return 0;
    }
    remote::blocks(&layout, len)
}

/// Sets an extended attribute, or with `None` removes it, and stores the inode. Returns how many credits it takes where
/// the handle has fewer; nothing has changed then.
///
/// # Errors
/// [`Exists`](Error::Exists) and [`NoAttribute`](Error::NoAttribute) as `mode` asks;
/// [`ValueTooLarge`](Error::ValueTooLarge); [`NameTooLong`](Error::NameTooLong);
/// [`InvalidArgument`](Error::InvalidArgument) for a damaged access control list, also under the name that it is stored by,
/// and for what else a [reserved] name may not have; [`NoSpace`](Error::NoSpace);
/// [`Unsupported`](Error::Unsupported); corruption; I/O failure.
pub(crate) fn try_set(
    handle: &Handle<'_>,
    inode: &mut Inode,
    full_name: &[u8],
    value: Option<&[u8]>,
    mode: XattrMode,
) -> Result<Attempt> {
    let request = Request::new(full_name, value, mode)?;
    match plan::Plan::new(handle.volume(), inode, &request)? {
        Some(plan) => plan.make(handle, inode),
        None => Ok(Attempt::DataInTheWay),
    }
}

/// Blocks that [`make_way`] changes, with the inode, and those of space that it takes.
pub(crate) fn make_way_needs(volume: &Volume, inode: &Inode) -> (u32, u64) {
    let step = map::change::credits(volume, inode, ForkKind::Data);
    (STORE_CREDITS + 1 + step, 1 + map::change::space(inode, ForkKind::Data))
}

/// Moves what the data fork holds out of the inode, so that there is room for attributes, and stores the inode: extents
/// go into a tree, the entries of a tree's root into a block below it, the target of a symbolic link into a block. A
/// directory's names are moved by the directory.
///
/// # Errors
/// [`NoSpace`](Error::NoSpace); I/O failure.
pub(crate) fn make_way(handle: &Handle<'_>, inode: &mut Inode) -> Result<()> {
    if fit::for_blocks(inode).is_some() {
        return Ok(());
    }
    match (&inode.data, inode.core.kind) {
        (Fork::Local(target), FileType::Symlink) => {
            let target = std::sync::Arc::clone(target);
            remote::move_target(handle, inode, &target)?;
        }
        (Fork::Extents(_) | Fork::Btree(_), _) => {
            map::narrow::narrow(handle, inode, fit::DEFAULT_WORDS)?;
        }
        _ => return Err(Error::NoSpace),
    }
    handle.or_abort(inode.store(handle))
}

/// Blocks that a handle for [`remove_all`] must have at least, with the inode.
pub(crate) fn remove_credits(volume: &Volume, inode: &Inode) -> u32 {
    match &inode.attr {
        None | Some(Fork::Local(_)) => STORE_CREDITS,
        Some(Fork::Extents(extents)) if extents.is_empty() => STORE_CREDITS,
        Some(_) => STORE_CREDITS + 1 + map::change::credits(volume, inode, ForkKind::Attr),
    }
}

/// Removes all attributes of an inode that is being deleted, which is on an unlinked list, and stores it. As much as the
/// handle has room for; after each step a crash leaves a good fork.
///
/// # Errors
/// Corruption; I/O failure.
pub(crate) fn remove_all(handle: &Handle<'_>, inode: &mut Inode) -> Result<Progress> {
    plan::remove_all(handle, inode)
}

/// What is asked for.
struct Request<'a> {
    space: Space,
    name: &'a [u8],
    value: Option<Cow<'a, [u8]>>,
    mode: XattrMode,
}

impl<'a> Request<'a> {
    fn new(full_name: &'a [u8], value: Option<&'a [u8]>, mode: XattrMode) -> Result<Self> {
        let Some(stored) = name::split(full_name) else {
            return Err(Error::Unsupported("an attribute in a namespace that XFS does not keep".into()));
        };
        if stored.name.len() > usize::from(u8::MAX) {
            return Err(Error::NameTooLong);
        }
        let value = match value {
            Some(value) if stored.is_acl => {
                let disk = acl::from_xattr(value);
                Some(Cow::Owned(
                    disk.map_err(|_| Error::InvalidArgument("the value is no access control list"))?,
                ))
            }
            value => value.map(Cow::Borrowed),
        };
        // Linux stores what the superuser gives here, and cannot read it afterwards. A list by its usual name may name a user
        // twice, as on Linux: what Linux has stored can be changed.
        if let Some(value) = &value
            && stored.space == Space::Root
            && !stored.is_acl
            && reserved::check_new(stored.name, value).is_err()
        {
            return Err(Error::InvalidArgument("XFS reserves this name for values of another form"));
        }
        if value.as_ref().is_some_and(|value| value.len() > VALUE_MAX_BYTES as usize) {
            return Err(Error::ValueTooLarge);
        }
        Ok(Self { space: stored.space, name: stored.name, value, mode })
    }
}

#[cfg(test)]
mod unit_tests {
    use super::*;

    fn refused(name: &str, value: &[u8]) -> bool {
        match Request::new(name.as_bytes(), Some(value), XattrMode::Set) {
            Ok(_) => false,
            Err(Error::InvalidArgument(_)) => true,
            Err(error) => panic!("{error}"),
        }
    }

    #[test]
    fn names_of_xfs_take_only_values_that_xfs_repair_passes() {
        let entry = |tag: u8, id: u8, permissions: u8| [0, 0, 0, tag, 0, 0, 0, id, 0, permissions, 0, 0];
        let list = |entries: &[[u8; 12]]| [&[0, 0, 0, entries.len() as u8][..], &entries.concat()].concat();
        let (owner, owning, others) = (entry(1, 0, 7), entry(4, 0, 5), entry(0x20, 0, 0));
        let good = list(&[owner, owning, others]);
        for name in ["trusted.SGI_ACL_FILE", "trusted.SGI_ACL_DEFAULT"] {
            assert!(!refused(name, &good));
            for bad in
                [&b""[..], b"text", &good[..39], &list(&[owner, owning]), &list(&[others, owning, owner])]
            {
                assert!(refused(name, bad), "{name} {bad:x?}");
            }
            assert!(Request::new(name.as_bytes(), None, XattrMode::Set).is_ok());
        }
        for name in ["user.SGI_ACL_FILE", "security.SGI_ACL_FILE", "trusted.SGI_ACL_FILES", "trusted.other"] {
            assert!(!refused(name, b"text"), "{name}");
        }
        assert!(refused("trusted.SGI_MAC_FILE", b"text") && refused("trusted.SGI_CAP_FILE", b"text"));
        let twice: Vec<u8> = [
            &[2, 0, 0, 0][..],
            &[1, 0, 7, 0, 255, 255, 255, 255],
            &[2, 0, 7, 0, 5, 0, 0, 0],
            &[2, 0, 7, 0, 5, 0, 0, 0],
            &[4, 0, 7, 0, 255, 255, 255, 255],
            &[16, 0, 7, 0, 255, 255, 255, 255],
            &[32, 0, 7, 0, 255, 255, 255, 255],
        ]
        .concat();
        assert!(!refused("system.posix_acl_access", &twice));
    }
}

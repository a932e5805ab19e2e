//! Metadata of one file put on another of the same image.
//!
//! Owners come first, since a change of owner takes capabilities; lists come after the mode, which they complete.

use std::sync::Arc;

use undercroft_vfs::{AttrChange, FileType, NewTime, Node, Result, Vfs, XattrMode};

use super::session::CALLER;
use crate::xattrs::listed_xattr;

/// Access control lists, as extended attributes.
pub(super) const LISTS: [&[u8]; 2] = [b"system.posix_acl_access", b"system.posix_acl_default"];
/// A program's capabilities, as an extended attribute.
pub(super) const CAPABILITIES: &[u8] = b"security.capability";

/// Owner, group and mode with its lists; lists that the target has from its directory go.
pub(super) fn copy_rights(vfs: &Vfs, from: &Node, to: &Arc<Node>) -> Result<()> {
    let attr = from.attr();
    let permissions = (attr.kind != FileType::Symlink).then_some(attr.permissions);
    let change =
        AttrChange { uid: Some(attr.uid), gid: Some(attr.gid), permissions, ..AttrChange::default() };
    vfs.set_attr(&CALLER, to, &change)?;
    if attr.kind == FileType::Symlink {
        return Ok(());
    }
    for name in LISTS {
        match (from.xattr(name)?, to.xattr(name)?) {
            (Some(list), _) => vfs.set_xattr(&CALLER, to, name, &list, XattrMode::Set)?,
            (None, Some(_)) => vfs.remove_xattr(&CALLER, to, name)?,
            (None, None) => {}
        }
    }
    Ok(())
}

/// Extended attributes that are no lists. New content takes a program's capabilities, the same content keeps them.
pub(super) fn copy_xattrs(vfs: &Vfs, from: &Node, to: &Arc<Node>, is_same_content: bool) -> Result<()> {
    for name in from.list_xattrs()? {
        let is_left = LISTS.contains(&&name[..]) || (name == CAPABILITIES && !is_same_content);
        if !is_left {
            let value = listed_xattr(from, &name)?;
            vfs.set_xattr(&CALLER, to, &name, &value, XattrMode::Set)?;
        }
    }
    Ok(())
}

/// Times of access and modification.
pub(super) fn copy_times(vfs: &Vfs, from: &Node, to: &Arc<Node>) -> Result<()> {
    let attr = from.attr();
    let (accessed, modified) = (Some(NewTime::At(attr.accessed)), Some(NewTime::At(attr.modified)));
    vfs.set_attr(&CALLER, to, &AttrChange { accessed, modified, ..AttrChange::default() })
}

/// What a file keeps that gets new content by being replaced.
pub(super) fn keep_of_replaced(vfs: &Vfs, replaced: &Node, by: &Arc<Node>) -> Result<()> {
    copy_rights(vfs, replaced, by)?;
    copy_xattrs(vfs, replaced, by, false)?;
    let project = replaced.attr().project;
    if by.attr().project != project {
        vfs.set_attr(&CALLER, by, &AttrChange { project: Some(project), ..AttrChange::default() })?;
    }
    Ok(())
}

//! Changing attributes: mode, owner, times, size; extended attributes.
//!
//! While the kernel caches writes, it is the one who knows the times of a file's content, and sends them when it
//! writes back.

use std::sync::Arc;

use undercroft_vfs::{Attr, AttrChange, Error, InodeFlags, NewTime, Node, Result, SET_GROUP_ID, XattrMode};

use crate::caller::Caller;
use crate::nodes::NodeId;
use crate::server::Server;

const XATTR_CREATE: u32 = 1;
const XATTR_REPLACE: u32 = 2;

/// What `setattr` asks for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SetAttr {
    pub(crate) change: AttrChange,
    pub(crate) size_bytes: Option<u64>,
    /// With the new size, set-user-ID and set-group-ID go.
    pub(crate) drop_privileges: bool,
}

impl Server {
    /// Changes attributes and tells what came of it.
    pub(crate) fn set_attr(&self, caller: Caller, id: NodeId, set: &SetAttr) -> Result<Attr> {
        let node = self.busy_node(id)?;
        if let Some(size_bytes) = set.size_bytes {
            self.set_size(caller, &node, size_bytes, set.drop_privileges)?;
        }
        let change = as_asked(&set.change);
        // A change of nothing changes the time of change: an owner and a group that stay.
        let more = change != AttrChange::default() || set.size_bytes.is_none();
        if more && !is_late_news(&node, &change) {
            self.vfs().set_attr(&caller.credentials(), &node, &change)?;
        }
        Ok(node.attr())
    }

    fn set_size(
        &self,
        caller: Caller,
        node: &Arc<Node>,
        size_bytes: u64,
        drop_privileges: bool,
    ) -> Result<()> {
        let file = self.vfs().open_node_for_writing(node)?;
        if drop_privileges {
            self.drop_privileges(caller, &file)?;
        }
        file.truncate(size_bytes)
    }

    /// Sets an extended attribute. With `drop_group_id`, set-group-ID goes, as it does when somebody outside the
    /// group sets an access control list.
    pub(crate) fn set_xattr(
        &self,
        caller: Caller,
        id: NodeId,
        name: &[u8],
        value: &[u8],
        flags: u32,
        drop_group_id: bool,
    ) -> Result<()> {
        let mode = match flags {
            0 => XattrMode::Set,
            XATTR_CREATE => XattrMode::Create,
            XATTR_REPLACE => XattrMode::Replace,
            _ => return Err(Error::InvalidArgument("an attribute is created, replaced or either")),
        };
        let node = self.node(id)?;
        let who = caller.credentials();
        self.vfs().set_xattr(&who, &node, name, value, mode)?;
        let permissions = node.ownership().permissions;
        if drop_group_id && permissions & SET_GROUP_ID != 0 {
            let permissions = Some(permissions & !SET_GROUP_ID);
            self.vfs().set_attr(&who, &node, &AttrChange { permissions, ..AttrChange::default() })?;
        }
        Ok(())
    }

    pub(crate) fn remove_xattr(&self, caller: Caller, id: NodeId, name: &[u8]) -> Result<()> {
        self.vfs().remove_xattr(&caller.credentials(), &self.node(id)?, name)
    }
}

/// What the caller has asked for, where the kernel, which keeps the times of content, has put its own idea of now.
fn as_asked(change: &AttrChange) -> AttrChange {
    let AttrChange { accessed, modified, changed, .. } = *change;
    let touched = accessed == Some(NewTime::Now) && changed.is_some() && modified == changed.map(NewTime::At);
    if touched { AttrChange { modified: Some(NewTime::Now), changed: None, ..*change } } else { *change }
}

/// Whether these are the times of bytes that the kernel has written back to a file that takes no new times any
/// more. The write has brought times of its own, so nothing is lost.
fn is_late_news(node: &Node, change: &AttrChange) -> bool {
    let modified = change.modified.filter(|time| matches!(time, NewTime::At(_)));
    let times_of_content = AttrChange { modified, changed: change.changed, ..AttrChange::default() };
    change.changed.is_some()
        && *change == times_of_content
        && node.ownership().flags.intersects(InodeFlags::IMMUTABLE | InodeFlags::APPEND)
}

//! Changing attributes: mode, owner, times, size; extended attributes.
//!
//! While the kernel caches writes, it keeps the times at which a regular file and its content changed, shows them, and
//! sends them when it writes back. What it shows is what is stored: nothing else moves these times then (see
//! [`Server::let_kernel_keep_times`]).

use std::sync::Arc;

use undercroft_vfs::{
    Attr, AttrChange, Durable, Error, FileType, InodeFlags, NewTime, Node, Result, SET_GROUP_ID, XattrMode,
};

use crate::caller::Caller;
use crate::nodes::NodeId;
use crate::server::Server;

const XATTR_CREATE: u32 = 1;
const XATTR_REPLACE: u32 = 2;

/// What a program in a file may do beyond its caller.
const CAPABILITY: &[u8] = b"security.capability";

/// What `setattr` asks for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SetAttr {
    pub(crate) change: AttrChange,
    pub(crate) size_bytes: Option<u64>,
    /// With the new size, set-user-ID and set-group-ID go.
    pub(crate) drop_privileges: bool,
    /// Nothing is asked for: the kernel says so before a caller without privilege changes a file that may give rights,
    /// by writing to it for example, and takes the mode that the answer has.
    pub(crate) of_nothing: bool,
}

impl Server {
    /// Changes attributes and tells what came of it.
    pub(crate) fn set_attr(&self, caller: Caller, id: NodeId, set: &SetAttr) -> Result<Attr> {
        let node = self.busy_node(id)?;
        if let Some(size_bytes) = set.size_bytes {
            self.set_size(caller, &node, size_bytes, set.drop_privileges)?;
        }
        if set.of_nothing && node.kind() == FileType::Regular {
            self.drop_privileges_unless_kept(caller, &self.vfs().open_node_for_writing(&node)?)?;
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
        self.with_space(|| file.truncate(size_bytes))
    }

    /// Sets an extended attribute. With `drop_group_id`, set-group-ID goes, as it does when a caller outside the
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
        self.with_space(|| self.vfs().set_xattr(&who, &node, name, value, mode))?;
        let permissions = node.ownership().permissions;
        if drop_group_id && permissions & SET_GROUP_ID != 0 {
            let permissions = Some(permissions & !SET_GROUP_ID);
            self.vfs().set_attr(&who, &node, &AttrChange { permissions, ..AttrChange::default() })?;
        }
        Ok(())
    }

    pub(crate) fn remove_xattr(&self, caller: Caller, id: NodeId, name: &[u8]) -> Result<()> {
        let node = self.node(id)?;
        self.vfs().remove_xattr(&caller.credentials(), &node, name)?;
        if name == CAPABILITY && node.kind() == FileType::Regular {
            // The kernel takes capabilities away before it writes for a stranger; see `drop_privileges`.
            self.vfs().open_node(&node)?.sync(Durable::Everything)?;
        }
        Ok(())
    }
}

/// What the caller has asked for, where the kernel, which keeps the times of changes, has put its own idea of now. It
/// leaves the time of access to the server; the three times of a `touch` are one.
fn as_asked(change: &AttrChange) -> AttrChange {
    let (Some(NewTime::Now), Some(now)) = (change.accessed, change.changed) else { return *change };
    if change.modified == Some(NewTime::At(now)) {
        let both = Some(NewTime::NowAs(now));
        return AttrChange { accessed: both, modified: both, ..*change };
    }
    AttrChange { accessed: Some(NewTime::At(now)), ..*change }
}

/// Whether these are the times of bytes that the kernel has written back to a file that takes no new times any
/// more. Such a file's writes bring times of their own.
fn is_late_news(node: &Node, change: &AttrChange) -> bool {
    let modified = change.modified.filter(|time| matches!(time, NewTime::At(_)));
    let times_of_content = AttrChange { modified, changed: change.changed, ..AttrChange::default() };
    change.changed.is_some()
        && *change == times_of_content
        && node.ownership().flags.intersects(InodeFlags::IMMUTABLE | InodeFlags::APPEND)
}

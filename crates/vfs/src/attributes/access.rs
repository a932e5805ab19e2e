//! Times of access: updated where a reader could notice, as Linux's `relatime`, and not at each reading.

use std::sync::Arc;

use crate::{Attr, AttrChange, InodeFlags, NewTime, Node, Result, Timestamp, Vfs, clock};

/// A time of access is a day old at most, if the file is read.
const DAY_SECONDS: i64 = 24 * 60 * 60;

impl Vfs {
    /// The file, the directory or the link was read: its time of access becomes now if it is not later than the last
    /// change, or a day old. Nothing happens on a read-only filesystem, and to files with [`InodeFlags::NOATIME`].
    ///
    /// # Errors
    /// Those of the filesystem; nothing has changed then.
    pub fn note_access(&self, node: &Arc<Node>) -> Result<()> {
        if self.filesystem().is_read_only() || !is_due(&node.attr(), clock::now()) {
            return Ok(());
        }
        let _state = node.state().write();
        let attr = node.attr();
        if !is_due(&attr, clock::now()) {
            return Ok(());
        }
        let accessed = Some(NewTime::Now);
        node.inode().set_attr(&AttrChange { accessed, changed: Some(attr.changed), ..AttrChange::default() })
    }
}

fn is_due(attr: &Attr, now: Timestamp) -> bool {
    let order = |time: Timestamp| (time.seconds, time.nanoseconds);
    let accessed = order(attr.accessed);
    !attr.flags.contains(InodeFlags::NOATIME)
        && (accessed <= order(attr.modified)
            || accessed <= order(attr.changed)
            || now.seconds.saturating_sub(attr.accessed.seconds) >= DAY_SECONDS)
}

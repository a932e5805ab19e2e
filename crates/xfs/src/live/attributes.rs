//! Attributes changed: what `chmod`, `chown`, `utimensat` and `chattr` ask for, and extended attributes.

use undercroft_vfs::{AttrChange, InodeFlags, Result, XattrMode};

use super::Live;
use crate::format::dinode::{DiFlags, DiFlags2, Dinode};

/// The flags of an inode as the contract has them.
pub(super) fn shown_flags(core: &Dinode) -> InodeFlags {
    let mut shown = InodeFlags::empty();
    for (flag, means) in [
        (DiFlags::IMMUTABLE, InodeFlags::IMMUTABLE),
        (DiFlags::APPEND, InodeFlags::APPEND),
        (DiFlags::SYNC, InodeFlags::SYNC),
        (DiFlags::NOATIME, InodeFlags::NOATIME),
        (DiFlags::NODUMP, InodeFlags::NODUMP),
        (DiFlags::PROJECT_INHERIT, InodeFlags::PROJECT_INHERIT),
    ] {
        shown.set(means, core.flags.contains(flag));
    }
    shown.set(InodeFlags::DAX, core.flags2.contains(DiFlags2::DAX));
    shown
}

pub(super) fn set_attr(live: &Live, change: &AttrChange) -> Result<()> {
    let _ = (live, change);
    todo!("attributes")
}

pub(super) fn set_xattr(
    live: &Live,
    name: &[u8],
    value: Option<&[u8]>,
    mode: XattrMode,
    attributes: &AttrChange,
) -> Result<()> {
    let _ = (live, name, value, mode, attributes);
    todo!("attributes")
}

//! Attributes changed: what `chmod`, `chown`, `utimensat` and `chattr` ask for, and extended attributes.
//!
//! Each change is one handle. The fields are changed in a copy, which replaces them once it is stored, so a refused
//! change has no effect. Locks: the inode's fields, under the handle.

use undercroft_vfs::{AttrChange, Error, ExtentSizeHints, NewTime, Result, XattrMode};

use super::Live;
use crate::features::RoCompat;
use crate::inode::{self, Inode, InodeFlags};
use crate::volume::Volume;
use crate::xattr;

/// Flags that users set, as Linux has them. Setting the others is not refused: they stay as they are.
const SETTABLE: InodeFlags = InodeFlags::from_bits_retain(0xff)
    .union(InodeFlags::JOURNAL_DATA)
    .union(InodeFlags::NOTAIL)
    .union(InodeFlags::DIRSYNC)
    .union(InodeFlags::TOPDIR)
    .union(InodeFlags::EXTENTS)
    .union(InodeFlags::DAX)
    .union(InodeFlags::PROJECT_INHERIT)
    .union(InodeFlags::CASEFOLD);

/// What a file that is accessed as memory cannot be.
const NOT_WITH_DAX: InodeFlags = InodeFlags::ENCRYPTED
    .union(InodeFlags::VERITY)
    .union(InodeFlags::JOURNAL_DATA)
    .union(InodeFlags::INLINE_DATA);

/// The inode's place in the table.
const CREDITS: u32 = 1;

/// Changes attributes, all at once.
///
/// # Errors
/// [`Unsupported`](Error::Unsupported) for flags and projects that this inode cannot have; I/O failure. Nothing has
/// changed then.
pub(super) fn set_attr(live: &Live, change: &AttrChange) -> Result<()> {
    let handle = live.volume.start(CREDITS)?;
    let mut fields = live.fields.write();
    let mut changed = fields.clone();
    apply(live, &mut changed, change)?;
    changed.store(&handle, live.location)?;
    *fields = changed;
    live.permissions_cache.update(&fields);
    live.content.forget_time();
    live.lazy_times.clear();
    Ok(())
}

/// Sets an extended attribute, or with `None` removes it, together with `attributes`.
///
/// # Errors
/// As for [`xattr::set`] and [`set_attr`]. Nothing has changed then.
pub(super) fn set_xattr(
    live: &Live,
    name: &[u8],
    value: Option<&[u8]>,
    mode: XattrMode,
    attributes: &AttrChange,
) -> Result<()> {
    let handle = live.volume.start(xattr::credits(&live.volume, value))?;
    let mut fields = live.fields.write();
    let mut changed = fields.clone();
    apply(live, &mut changed, attributes)?;
    xattr::set(&handle, &mut changed, live.location, name, value, mode)?;
    *fields = changed;
    live.permissions_cache.update(&fields);
    live.content.forget_time();
    live.lazy_times.clear();
    Ok(())
}

fn apply(live: &Live, fields: &mut Inode, change: &AttrChange) -> Result<()> {
    let now = live.now();
    let AttrChange { permissions, uid, gid, accessed, modified, changed, flags, project, hints } = *change;
    if hints.is_some_and(|hints| hints != ExtentSizeHints::default()) {
        return Err(Error::Unsupported("an extent size hint".into()));
    }
    if let Some(flags) = flags {
        fields.flags = resolve_flags(fields, flags)?;
    }
    if let Some(project) = project {
        set_project(&live.volume, fields, project)?;
    }
    fields.permissions = permissions.unwrap_or(fields.permissions);
    fields.uid = uid.unwrap_or(fields.uid);
    fields.gid = gid.unwrap_or(fields.gid);
    let time = |asked: Option<NewTime>| match asked {
        Some(NewTime::Now) => Some(now),
        Some(NewTime::At(time) | NewTime::NowAs(time)) => Some(time),
        None => None,
    };
    if let Some(accessed) = time(accessed) {
        fields.accessed = fields.nearest_time(accessed);
    }
    if let Some(modified) = time(modified) {
        fields.modified = fields.nearest_time(modified);
    }
    match changed {
        Some(changed) => fields.note_change(changed),
        None => live.note_change(fields, now),
    }
    Ok(())
}

/// The flags that a request for `asked` results in.
fn resolve_flags(fields: &Inode, asked: undercroft_vfs::InodeFlags) -> Result<InodeFlags> {
    let refuse = |what: &'static str| Err(Error::Unsupported(what.into()));
    const NOT_KEPT: &str = "a flag that ext4 does not keep for such a file";
    let Some(asked) = InodeFlags::from_shown(asked) else { return refuse(NOT_KEPT) };
    let old = fields.flags;
    let wanted = asked & SETTABLE;
    let turned = (asked ^ old) & SETTABLE;
    if inode::possible_flags(fields.kind, turned) != turned {
        return refuse(NOT_KEPT);
    }
    // Each of these would require rewriting existing content in another form.
    if turned.contains(InodeFlags::EXTENTS) {
        return refuse("turning a block map into extents, or back");
    }
    if turned.contains(InodeFlags::CASEFOLD) {
        return refuse("making a directory ignore case, or not");
    }
    if (turned & wanted).contains(InodeFlags::JOURNAL_DATA) {
        return refuse("a file whose data goes through the journal");
    }
    let new = wanted | old.difference(SETTABLE);
    if turned.contains(InodeFlags::DAX) && new.contains(InodeFlags::DAX) && old.intersects(NOT_WITH_DAX) {
        return refuse("direct access to a file that is encrypted, verified, journaled or kept in its inode");
    }
    Ok(new)
}

fn set_project(volume: &Volume, fields: &mut Inode, project: u32) -> Result<()> {
    if project == fields.project {
        return Ok(());
    }
    if !volume.superblock().features().ro_compat.contains(RoCompat::PROJECT) {
        return Err(Error::Unsupported("projects, for want of the feature `project`".into()));
    }
    if !fields.has_room_for_project() {
        return Err(Error::Unsupported("a project, for which the inode has no room".into()));
    }
    fields.project = project;
    Ok(())
}

//! Attributes changed: what `chmod`, `chown`, `utimensat` and `chattr` ask for, and extended attributes.
//!
//! Each change is one handle. The fields are changed in a copy, which replaces them once it is stored, so a refused
//! change has no effect. Locks: the inode's fields, under the handle.

use undercroft_vfs::{AttrChange, Error, ExtentSizeHints, FileType, InodeFlags, NewTime, Result, XattrMode};

use super::Live;
use super::owner::{FLAGS, shown_flags};
use crate::attr::change::Attempt;
use crate::format::dinode::{DiFlags, DiFlags2};
use crate::format::extent::EXTENT_MAX_BLOCKS;
use crate::inode::{Inode, STORE_CREDITS};
use crate::volume::Volume;
use crate::{attr, dir};

/// Changes attributes, all at once.
///
/// # Errors
/// [`Unsupported`](Error::Unsupported) for flags and projects that this inode cannot have; I/O failure. Nothing has
/// changed then.
pub(super) fn set_attr(live: &Live, change: &AttrChange) -> Result<()> {
    let handle = live.volume.start(STORE_CREDITS)?;
    let mut fields = live.fields.write();
    let mut changed = fields.clone();
    apply(live, &mut changed, change)?;
    changed.store(&handle)?;
    *fields = changed;
    live.permissions_cache.update(&fields);
    live.content.forget_time();
    live.lazy_times.clear();
    Ok(())
}

/// Sets an extended attribute, or with `None` removes it, together with `attributes`.
///
/// # Errors
/// As for [`attr::change::try_set`] and [`set_attr`]. Nothing has changed then.
pub(super) fn set_xattr(
    live: &Live,
    name: &[u8],
    value: Option<&[u8]>,
    mode: XattrMode,
    attributes: &AttrChange,
) -> Result<()> {
    let mut credits = attr::change::credits(&live.volume, &live.fields.read(), value);
    let mut made_way = false;
    loop {
        {
            let handle = live.volume.start(credits)?;
            // The room for names that lie in the inode does not change while a thread counts on it.
            let _names = (live.kind == FileType::Directory).then(|| live.names.write());
            let mut fields = live.fields.write();
            let mut changed = fields.clone();
            apply(live, &mut changed, attributes)?;
            match attr::change::try_set(&handle, &mut changed, name, value, mode)? {
                Attempt::Done => {
                    *fields = changed;
                    live.permissions_cache.update(&fields);
                    live.content.forget_time();
                    live.lazy_times.clear();
                    return Ok(());
                }
                Attempt::Wants(more) => {
                    credits = more.max(credits.saturating_add(1));
                    continue;
                }
                Attempt::DataInTheWay if made_way => return Err(Error::NoSpace),
                Attempt::DataInTheWay => made_way = true,
            }
        }
        make_way(live)?;
    }
}

/// Moves what the data fork keeps in the inode out of it. A change of its own: it shows only in the space that it takes.
fn make_way(live: &Live) -> Result<()> {
    if live.kind == FileType::Directory {
        let mut credits = dir::change::usual_credits(&live.volume);
        loop {
            let handle = live.volume.start(credits)?;
            let mut change = dir::change::Change::begin(live, 0)?;
            change.leave_inode()?;
            if handle.has_room(change.credits()) {
                change.reserve(&handle, 0)?;
                return change.apply(&handle, |_| false);
            }
            credits = change.credits().max(credits.saturating_add(1));
        }
    }
    let (credits, space) = attr::change::make_way_needs(&live.volume, &live.fields.read());
    let handle = live.volume.start_with_space(credits, space)?;
    let mut fields = live.fields.write();
    let mut changed = fields.clone();
    attr::change::make_way(&handle, &mut changed)?;
    *fields = changed;
    Ok(())
}

/// Changes the fields in memory.
fn apply(live: &Live, fields: &mut Inode, change: &AttrChange) -> Result<()> {
    let now = live.now();
    let AttrChange { permissions, uid, gid, accessed, modified, changed, flags, project, hints } = *change;
    if let Some(flags) = flags {
        set_flags(fields, flags)?;
    }
    if let Some(project) = project {
        set_project(&live.volume, fields, project)?;
    }
    if let Some(hints) = hints {
        set_hints(&live.volume, fields, hints)?;
    }
    let core = &mut fields.core;
    core.permissions = permissions.unwrap_or(core.permissions);
    core.uid = uid.unwrap_or(core.uid);
    core.gid = gid.unwrap_or(core.gid);
    let time = |asked: Option<NewTime>| match asked {
        Some(NewTime::Now) => Some(now),
        Some(NewTime::At(time) | NewTime::NowAs(time)) => Some(time),
        None => None,
    };
    if let Some(accessed) = time(accessed) {
        fields.core.accessed = fields.nearest_time(accessed);
    }
    if let Some(modified) = time(modified) {
        fields.core.modified = fields.nearest_time(modified);
    }
    match changed {
        Some(changed) => fields.note_change(changed),
        None => live.note_change(fields, now),
    }
    Ok(())
}

/// Gives an inode the flags that are `asked` for; flags that users do not see stay.
fn set_flags(fields: &mut Inode, asked: InodeFlags) -> Result<()> {
    let kind = fields.core.kind;
    let settable = FLAGS.iter().fold(InodeFlags::DAX, |all, (_, flag)| all | *flag);
    if !settable.contains(asked) {
        return Err(Error::Unsupported("a flag that XFS does not keep".into()));
    }
    let turned = asked ^ shown_flags(fields.core.flags, fields.core.flags2);
    if turned.contains(InodeFlags::DAX) && !matches!(kind, FileType::Regular | FileType::Directory) {
        return Err(Error::Unsupported("direct access to what is neither file nor directory".into()));
    }
    for (flag, means) in FLAGS {
        // As on Linux: other files have nothing to hand on, and asking for it is no error.
        let possible = flag != DiFlags::PROJECT_INHERIT || kind == FileType::Directory;
        fields.core.flags.set(flag, asked.contains(means) && possible);
    }
    fields.core.flags2.set(DiFlags2::DAX, asked.contains(InodeFlags::DAX));
    Ok(())
}

fn set_project(volume: &Volume, fields: &mut Inode, project: u32) -> Result<()> {
    if project > u32::from(u16::MAX) && !volume.superblock().features().has_projid32() {
        return Err(Error::Unsupported(
            "a project above 65535, for want of the feature `projid32bit`".into(),
        ));
    }
    fields.core.project = project;
    Ok(())
}

/// Sets the extent size hints, by Linux's rules: whole blocks, an extent at most and half of a group, and
/// for a file only while it has no extents.
fn set_hints(volume: &Volume, fields: &mut Inode, hints: ExtentSizeHints) -> Result<()> {
    let geometry = volume.geometry();
    let core = &mut fields.core;
    let is_directory = core.kind == FileType::Directory;
    let in_blocks = |bytes: u32| {
        let blocks = bytes >> geometry.block_log();
        let most = EXTENT_MAX_BLOCKS.min(geometry.ag_blocks() / 2);
        if !bytes.is_multiple_of(geometry.block_bytes()) || blocks > most {
            return Err(Error::InvalidArgument("a size of extents is whole blocks, at most half of a group"));
        }
        Ok(blocks)
    };
    let (size, copy_size) = (in_blocks(hints.size)?, in_blocks(hints.copy_size)?);
    if size | copy_size != 0 && !is_directory && core.kind != FileType::Regular {
        return Err(Error::InvalidArgument("only files and directories have a size of extents"));
    }
    if size != core.extent_size && !is_directory && core.data_extents > 0 {
        return Err(Error::InvalidArgument("the size of extents of a file that has some already"));
    }
    if copy_size != 0 && !volume.superblock().features().has_reflink() {
        return Err(Error::InvalidArgument("a size of copied extents needs the feature `reflink`"));
    }
    let (own, other) = if is_directory {
        (DiFlags::EXTENT_SIZE_INHERIT, DiFlags::EXTENT_SIZE)
    } else {
        (DiFlags::EXTENT_SIZE, DiFlags::EXTENT_SIZE_INHERIT)
    };
    core.flags.set(own, size != 0);
    core.flags.remove(other);
    core.flags2.set(DiFlags2::COW_EXTENT_SIZE, copy_size != 0);
    (core.extent_size, core.cow_extent_size) = (size, copy_size);
    Ok(())
}

#[cfg(all(test, feature = "oracle"))]
mod tests {
    use undercroft_oracle::{MkfsXfs, MountMode, kernel_manifest};
    use undercroft_vfs::{Inode as _, Timestamp};

    use super::*;
    use crate::options::WriteOptions;
    use crate::testing::writable::Writable;

    #[test]
    fn the_kernel_shows_what_was_set() {
        let image = MkfsXfs::new(64, "").make().unwrap();
        let mount = image.mount(MountMode::ReadWrite, "").unwrap();
        std::fs::write(mount.path().join("file"), "content").unwrap();
        std::fs::create_dir(mount.path().join("directory")).unwrap();
        mount.unmount().unwrap();
        let writable = Writable::open(image, WriteOptions::default());
        let named = |name: &str| {
            let ino = dir::lookup_live(&writable.root(), name.as_bytes()).unwrap().unwrap();
            writable.live(ino)
        };
        let (file, directory) = (named("file"), named("directory"));
        let at = |seconds| Timestamp { seconds, nanoseconds: 5 };
        let all = InodeFlags::APPEND | InodeFlags::SYNC | InodeFlags::NOATIME | InodeFlags::NODUMP;
        let change = AttrChange {
            permissions: Some(0o4751),
            uid: Some(70_000),
            gid: Some(5),
            accessed: Some(NewTime::At(at(-1000))),
            modified: Some(NewTime::At(at(1 << 33))),
            changed: Some(at(77)),
            flags: Some(all | InodeFlags::PROJECT_INHERIT),
            project: Some(1 << 20),
            hints: None,
        };
        for live in [&file, &directory] {
            let before = live.attr();
            live.set_attr(&change).unwrap();
            let after = live.attr();
            assert_eq!(after.ownership(), live.ownership());
            assert_eq!((after.permissions, after.uid, after.gid), (0o4751, 70_000, 5));
            let count = live.fields.read().core.change_count;
            // What is refused changes nothing.
            for flag in [InodeFlags::COMPRESSED, InodeFlags::NOCOW, InodeFlags::DIRSYNC] {
                let refused = AttrChange { permissions: Some(0), flags: Some(flag), ..AttrChange::default() };
                assert!(matches!(live.set_attr(&refused), Err(Error::Unsupported(_))));
            }
            assert_eq!(live.attr(), after);
            assert_eq!(live.fields.read().core.change_count, count);
            assert_eq!(after.created, before.created);
        }
        let inherited = directory.permissions_cache.inheritance();
        assert_eq!(inherited.project, 1 << 20);
        // Now, and to the end of what a time can be.
        let change = AttrChange {
            accessed: Some(NewTime::Now),
            modified: Some(NewTime::At(at(i64::MAX))),
            ..AttrChange::default()
        };
        writable.root().set_attr(&change).unwrap();
        let root = writable.root().attr();
        assert_eq!(root.accessed, root.changed);
        assert_eq!(root.modified.seconds, 16_299_260_424);
        drop((file, directory));
        let image = writable.finish();
        let mount = image.mount(MountMode::ReadOnly, "").unwrap();
        let manifest = kernel_manifest(mount.path()).unwrap();
        for (name, flags) in [("file", all), ("directory", all | InodeFlags::PROJECT_INHERIT)] {
            let entry = &manifest.entries[name.as_bytes()];
            assert_eq!((entry.mode & 0o7777, entry.uid, entry.gid), (0o4751, 70_000, 5));
            let seconds = [entry.accessed.0, entry.modified.0, entry.changed.0];
            assert_eq!(seconds, [-1000, 1 << 33, 77]);
            assert_eq!(entry.flags, Some(flags.bits()), "{name}");
        }
        mount.unmount().unwrap();
        for name in ["file", "directory"] {
            let found = image.xfs_db(&[&format!("path /{name}"), "print core.projid_hi"]).unwrap();
            assert_eq!(found.trim(), "core.projid_hi = 16", "{name}");
        }
    }
}

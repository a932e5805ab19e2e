//! Adding, removing and moving names: the part of the contract that changes directories.
//!
//! Each operation is one handle, so a crash shows all of it or nothing. Everything that can be refused is refused
//! before the first change, except that a directory may find the disk full while it grows; the new inode is deleted
//! again then.
//!
//! Locks: the caller holds the names. Fields of two inodes are never held at once: each is changed in a step of its own
//! under the handle.

use std::sync::Arc;

use undercroft_sync::atomic::Ordering;
use undercroft_vfs::{Error, FileType, Found, Ino, NewInode, NewKind, Node, Result, Timestamp, XattrMode};

use super::{Live, release};
use crate::features::{Incompat, RoCompat};
use crate::inode::{Inode, InodeFlags, holds_device};
use crate::transaction::Handle;
use crate::volume::Volume;
use crate::{dir, orphan, symlink, xattr};

/// Most names that an inode has; a directory with an index may have more directories, and then counts none.
const LINKS_MAX: u16 = 65_000;

/// Blocks that making an inode changes at most, beside the directory: its group's bitmap and descriptor, its place in
/// the table, a block for a directory or a link and its group's bitmap, attributes with theirs, the orphan file, and
/// the parent's place in the table.
const MAKE_CREDITS: u32 = 14;
/// Removing a name: the table blocks of both inodes, an orphan's two blocks.
const REMOVE_CREDITS: u32 = 6;

/// The directory's place in the table.
const TOUCH_CREDITS: u32 = 1;

pub(super) fn create(dir: &Live, name: &[u8], new: &NewInode<'_>) -> Result<Found> {
    let is_directory = new.kind == NewKind::Directory;
    check_names_can_be_written(dir)?;
    check_kind(&new.kind).map_err(|error| unless_there(dir, name, error))?;
    if is_directory {
        check_room_for_directory(dir).map_err(|error| unless_there(dir, name, error))?;
    }
    let handle = dir.volume.start(make_credits(&dir.volume, new) + dir::ADD_CREDITS)?;
    let made = make(&handle, dir, new, 1).map_err(|error| unless_there(dir, name, error))?;
    if let Err(error) = dir::add(&handle, dir, name, made.number, made.kind) {
        take_back(&handle, &made)?;
        return Err(error);
    }
    or_abort(&handle, touch_directory(&handle, dir, dir.now(), i32::from(is_directory)))?;
    Ok(found(made))
}

pub(super) fn tmpfile(dir: &Live, new: &NewInode<'_>) -> Result<Found> {
    check_names_can_be_written(dir)?;
    let handle = dir.volume.start(make_credits(&dir.volume, new))?;
    let made = make(&handle, dir, new, 0)?;
    made.linkable.store(true, Ordering::Relaxed);
    if let Err(error) = orphan::add(&handle, &made) {
        take_back(&handle, &made)?;
        return Err(error);
    }
    Ok(found(made))
}

pub(super) fn link(dir: &Live, name: &[u8], node: &Arc<Node>) -> Result<()> {
    let target: &Live = node.inode_as()?;
    let links = target.fields.read().links;
    if links == 0 && !target.linkable.load(Ordering::Relaxed) {
        return Err(unless_there(dir, name, Error::NotFound));
    }
    if links >= LINKS_MAX {
        return Err(unless_there(dir, name, Error::TooManyLinks));
    }
    let handle = dir.volume.start(dir::ADD_CREDITS + REMOVE_CREDITS)?;
    dir::add(&handle, dir, name, target.number, target.kind)?;
    let rest = || {
        let now = dir.now();
        touch_directory(&handle, dir, now, 0)?;
        if links == 0 {
            target.linkable.store(false, Ordering::Relaxed);
            orphan::remove(&handle, target)?;
        }
        target.change_fields(&handle, |fields| {
            fields.links += 1;
            target.note_change(fields, now);
        })
    };
    or_abort(&handle, rest())
}

pub(super) fn unlink(dir: &Live, name: &[u8], victim: &Arc<Node>) -> Result<()> {
    let victim: &Live = victim.inode_as()?;
    let is_directory = victim.kind == FileType::Directory;
    if is_directory && !dir::is_empty(victim)? {
        return Err(Error::NotEmpty);
    }
    let handle = dir.volume.start(dir::REMOVE_CREDITS + REMOVE_CREDITS)?;
    dir::remove(&handle, dir, name, victim.number)?;
    let rest = || {
        let now = dir.now();
        touch_directory(&handle, dir, now, -i32::from(is_directory))?;
        lose_name(&handle, victim, now)
    };
    or_abort(&handle, rest())
}

/// As [`unlink`], for the last name of a file that is not in use: if all of it goes in one step, it is deleted under
/// the same handle, and never becomes an orphan.
pub(super) fn unlink_unused(dir: &Live, name: &[u8], victim: &Arc<Node>) -> Result<()> {
    let live: &Live = victim.inode_as()?;
    let Some(credits) = release::credits_at_once(live) else { return unlink(dir, name, victim) };
    let handle = dir.volume.start(dir::REMOVE_CREDITS + TOUCH_CREDITS + credits)?;
    dir::remove(&handle, dir, name, live.number)?;
    let rest = || {
        touch_directory(&handle, dir, dir.now(), 0)?;
        release::delete_now(&handle, live)
    };
    or_abort(&handle, rest())
}

pub(super) fn rename(
    dir: &Live,
    name: &[u8],
    moved: &Arc<Node>,
    to: &Node,
    to_name: &[u8],
    replaced: Option<&Arc<Node>>,
    whiteout: Option<&NewInode<'_>>,
) -> Result<()> {
    let (moved, to): (&Live, &Live) = (moved.inode_as()?, to.inode_as()?);
    let replaced: Option<&Live> = replaced.map(|replaced| replaced.inode_as()).transpose()?;
    let is_directory = moved.kind == FileType::Directory;
    let moves_up = is_directory && dir.number != to.number;
    if let Some(replaced) = replaced {
        if replaced.kind == FileType::Directory && !dir::is_empty(replaced)? {
            return Err(Error::NotEmpty);
        }
    } else if moves_up {
        check_room_for_directory(to)?;
    }
    for changed in [dir, to] {
        check_names_can_be_written(changed)?;
    }
    let whiteout_credits = whiteout.map_or(0, |whiteout| make_credits(&dir.volume, whiteout));
    // The old name is removed, and `..` of a directory that is moved is changed to its new parent.
    let credits = dir::ADD_CREDITS + 2 * dir::REMOVE_CREDITS + 2 * REMOVE_CREDITS + whiteout_credits;
    let handle = dir.volume.start(credits)?;
    if moves_up {
        dir::check_parent(&handle, moved)?;
    }
    // Replaces one name by another in the same directory in one step, where nothing else changes.
    let is_in_place = dir.number == to.number
        && replaced.is_none()
        && whiteout.is_none()
        && dir::move_in_block(&handle, dir, name, to_name, moved.number, moved.kind)?;
    let whiteout = whiteout.map(|whiteout| make(&handle, dir, whiteout, 1)).transpose()?;
    match replaced {
        Some(_) => {
            let replaced = dir::replace(&handle, to, to_name, moved.number, moved.kind);
            if whiteout.is_some() { or_abort(&handle, replaced)? } else { replaced? }
        }
        None if is_in_place => {}
        None => {
            if let Err(error) = dir::add(&handle, to, to_name, moved.number, moved.kind) {
                if let Some(whiteout) = whiteout {
                    take_back(&handle, &whiteout)?;
                }
                return Err(error);
            }
        }
    }
    let rest = || {
        match &whiteout {
            Some(whiteout) => dir::replace(&handle, dir, name, whiteout.number, whiteout.kind)?,
            None if is_in_place => {}
            None => dir::remove(&handle, dir, name, moved.number)?,
        }
        if moves_up {
            dir::set_parent(&handle, moved, to.number)?;
        }
        let now = dir.now();
        let replaced_directory = replaced.is_some_and(|replaced| replaced.kind == FileType::Directory);
        let gained = i32::from(moves_up) - i32::from(replaced_directory);
        if dir.number == to.number {
            touch_directory(&handle, dir, now, gained)?;
        } else {
            touch_directory(&handle, dir, now, -i32::from(moves_up))?;
            touch_directory(&handle, to, now, gained)?;
        }
        moved.change_fields(&handle, |fields| moved.note_change(fields, now))?;
        replaced.map_or(Ok(()), |replaced| lose_name(&handle, replaced, now))
    };
    or_abort(&handle, rest())
}

pub(super) fn exchange(
    dir: &Live,
    name: &[u8],
    one: &Arc<Node>,
    to: &Node,
    to_name: &[u8],
    other: &Arc<Node>,
) -> Result<()> {
    let (one, to, other): (&Live, &Live, &Live) = (one.inode_as()?, to.inode_as()?, other.inode_as()?);
    let is_directory = |live: &Live| live.kind == FileType::Directory;
    let between = dir.number != to.number;
    // One parent gains a subdirectory and the other loses one, unless both or neither of the inodes are directories.
    let gained = if between { i32::from(is_directory(other)) - i32::from(is_directory(one)) } else { 0 };
    if gained != 0 {
        check_room_for_directory(if gained > 0 { dir } else { to })?;
    }
    for changed in [dir, to] {
        check_names_can_be_written(changed)?;
    }
    let handle = dir.volume.start(4 * dir::REMOVE_CREDITS + 2 * REMOVE_CREDITS)?;
    for live in [one, other] {
        if between && is_directory(live) {
            dir::check_parent(&handle, live)?;
        }
    }
    dir::replace(&handle, dir, name, other.number, other.kind)?;
    let rest = || {
        dir::replace(&handle, to, to_name, one.number, one.kind)?;
        let now = dir.now();
        for (live, parent) in [(one, to), (other, dir)] {
            if between && is_directory(live) {
                dir::set_parent(&handle, live, parent.number)?;
            }
            live.change_fields(&handle, |fields| live.note_change(fields, now))?;
        }
        touch_directory(&handle, dir, now, gained)?;
        if between {
            touch_directory(&handle, to, now, -gained)?;
        }
        Ok(())
    };
    or_abort(&handle, rest())
}

/// Refuses device numbers of more bits than an inode keeps.
fn check_kind(kind: &NewKind<'_>) -> Result<()> {
    match kind {
        NewKind::CharDevice(number) | NewKind::BlockDevice(number) if !holds_device(*number) => Err(
            Error::InvalidArgument("ext4 keeps 12 bits of a device's major number and 20 of its minor one"),
        ),
        _ => Ok(()),
    }
}

/// Refuses a directory whose names mean more than their bytes, before anything is made that would inherit that.
fn check_names_can_be_written(dir: &Live) -> Result<()> {
    let features = dir.volume.superblock().features().incompat;
    if features.intersects(Incompat::ENCRYPT | Incompat::CASEFOLD) {
        dir::check_changeable(&dir.volume, &dir.fields.read())?;
    }
    Ok(())
}

/// Returns `Exists` for a name that exists before any other error.
fn unless_there(dir: &Live, name: &[u8], refusal: Error) -> Error {
    match dir::lookup_live(dir, name) {
        Ok(Some(_)) => Error::Exists,
        _ => refusal,
    }
}

/// Blocks that [`make`] changes at most, and [`take_back`] after it.
fn make_credits(volume: &Volume, new: &NewInode<'_>) -> u32 {
    let attributes = new.xattrs.iter().map(|(_, value)| xattr::credits(volume, Some(value)));
    MAKE_CREDITS + attributes.sum::<u32>()
}

/// Makes an inode with everything that belongs to it, but no name.
fn make(handle: &Handle<'_>, parent: &Live, new: &NewInode<'_>, links: u16) -> Result<Arc<Live>> {
    let volume = &parent.volume;
    let writer = handle.writer();
    let kind = new.kind.file_type();
    let number = writer.allocator.new_inode(handle, parent.number, kind)?;
    new.announce.number(Ino(u64::from(number.number)));
    let links = if kind == FileType::Directory { 2 } else { links };
    let inode = Inode::fresh(volume, parent.permissions_cache.inheritance(), number.number, new, links);
    let made = Live::shared(Arc::clone(volume), inode, number.location);
    if let Err(error) = fill(handle, &made, parent, new) {
        // Bytes that its slot held before must not be taken for a part of it.
        or_abort(handle, made.fields.read().store_new(handle, made.location))?;
        take_back(handle, &made)?;
        return Err(error);
    }
    if let Err(error) = give_attributes(handle, &made, new) {
        // The inode is deleted again, with the attributes that it has by now.
        take_back(handle, &made)?;
        return Err(error);
    }
    Ok(made)
}

/// What a new inode has from the beginning: names, a target.
fn fill(handle: &Handle<'_>, made: &Live, parent: &Live, new: &NewInode<'_>) -> Result<()> {
    let mut fields = made.fields.write();
    match new.kind {
        NewKind::Directory => dir::make_first(handle, &mut fields, parent.number)?,
        NewKind::Symlink(target) => symlink::fill(handle, &mut fields, target)?,
        _ => {}
    }
    fields.store_new(handle, made.location)
}

fn give_attributes(handle: &Handle<'_>, made: &Live, new: &NewInode<'_>) -> Result<()> {
    let mut fields = made.fields.write();
    for (name, value) in new.xattrs {
        xattr::set(handle, &mut fields, made.location, name, Some(value), XattrMode::Set)?;
    }
    Ok(())
}

/// Undoes [`make`].
fn take_back(handle: &Handle<'_>, made: &Live) -> Result<()> {
    or_abort(handle, release::delete_now(handle, made))
}

/// Passes on the outcome of the rest of an operation that has begun to change blocks. That cannot be undone, so a
/// failure aborts the changes, and nothing of the transaction reaches the disk.
fn or_abort<T>(handle: &Handle<'_>, rest: Result<T>) -> Result<T> {
    if let Err(error) = &rest {
        handle.writer().transactions.abort_because(error);
    }
    rest
}

fn found(made: Arc<Live>) -> Found {
    Found::Made(Ino(u64::from(made.number)), made)
}

/// Counts one name of `victim` less.
fn lose_name(handle: &Handle<'_>, victim: &Live, now: Timestamp) -> Result<()> {
    let last = {
        let mut fields = victim.fields.write();
        fields.links = if victim.kind == FileType::Directory { 0 } else { fields.links.saturating_sub(1) };
        victim.note_change(&mut fields, now);
        fields.links == 0
    };
    if last {
        orphan::add(handle, victim)?;
    }
    victim.change_fields(handle, |_| ())
}

/// Notes a change of a directory's names, and `gained` more subdirectories.
///
/// Of the changes within one tick of the coarse clock only the first is stored: the others would store the same time.
/// If the times were read since, the clock is precise and the next change is stored.
fn touch_directory(handle: &Handle<'_>, dir: &Live, now: Timestamp, gained: i32) -> Result<()> {
    if gained == 0 && !dir.lazy_times.is_set() {
        if dir.content.has_time(now) {
            return Ok(());
        }
        let fields = dir.fields.read();
        let nearest = fields.nearest_time(now);
        if fields.modified == nearest && fields.changed == nearest {
            dir.content.note_time(now);
            return Ok(());
        }
    }
    dir.change_fields(handle, |fields| {
        fields.note_modification(now);
        dir.content.note_time(now);
        match gained {
            1.. => count_directory(&dir.volume, fields),
            // A directory whose count overflowed once stays uncounted.
            ..=-1 if fields.links > 2 => fields.links -= 1,
            _ => {}
        }
    })
}

/// Counts one more directory in this one, or stops counting.
fn count_directory(volume: &Volume, fields: &mut Inode) {
    if fields.links == 1 {
        return;
    }
    // The number on the disk is arbitrary.
    fields.links = fields.links.saturating_add(1);
    if fields.links > LINKS_MAX && may_stop_counting(volume, fields) {
        fields.links = 1;
    }
}

/// Refuses one more directory where the count is full.
fn check_room_for_directory(dir: &Live) -> Result<()> {
    let fields = dir.fields.read();
    if fields.links >= LINKS_MAX && !may_stop_counting(&dir.volume, &fields) {
        return Err(Error::TooManyLinks);
    }
    Ok(())
}

fn may_stop_counting(volume: &Volume, fields: &Inode) -> bool {
    volume.superblock().features().ro_compat.contains(RoCompat::DIR_NLINK)
        && fields.flags.contains(InodeFlags::INDEXED)
}

#[cfg(test)]
mod tests {
    use undercroft_block::{Access, MemoryDevice};
    #[cfg(feature = "oracle")]
    use undercroft_oracle::MountMode;
    use undercroft_vfs::{
        Announce, Credentials, DeviceNumber, FileSystem, HashedName, NewObject, RenameFlags, Vfs, VfsOptions,
        WriteKind,
    };

    use super::*;
    use crate::inode::ROOT_INODE;
    use crate::testing::images::{Image, Mke2fs, Scratch};
    use crate::testing::writable::Writable;
    use crate::{Ext4, OpenOptions, WriteOptions};

    /// A directory `dir` in a filesystem that is full, of which a file has been cut a moment ago.
    fn just_freed(features: &'static str) -> (Arc<Ext4>, Arc<dyn undercroft_vfs::Inode>) {
        let source = Scratch::new("tree").unwrap();
        std::fs::create_dir(source.path().join("dir")).unwrap();
        let source = source.path().to_str().unwrap().to_owned();
        let mke2fs = Mke2fs::new("ext4", 8).block_bytes(1024).inodes(2048).features(features);
        let bytes = std::fs::read(mke2fs.args(["-m", "0", "-d", &source]).make().unwrap().path()).unwrap();
        let device = MemoryDevice::from_bytes(bytes, Access::ReadWrite);
        let write_options = WriteOptions { commit_seconds: 3600, ..WriteOptions::default() };
        let fs = Ext4::open(Arc::new(device), OpenOptions::default(), write_options).unwrap();
        let root = fs.read_inode(fs.root()).unwrap();
        let Some(Found::Ino(dir)) = root.lookup(&HashedName::new(b"dir")).unwrap() else {
            panic!("no directory")
        };
        let dir = fs.read_inode(dir).unwrap();
        assert_eq!(
            dir.attr().flags.contains(undercroft_vfs::InodeFlags::INLINE_DATA),
            features == "inline_data"
        );
        let file = fill(&*root);
        // So that there is room in the running transaction, and nothing commits it.
        fs.sync().unwrap();
        file.set_size(0).unwrap();
        (fs, dir)
    }

    /// Takes every block that data gets, for this file.
    fn fill_with_data(root: &dyn undercroft_vfs::Inode) -> Arc<dyn undercroft_vfs::Inode> {
        let file = make_in(root, "file", NewKind::Regular).unwrap();
        let mut size = 0;
        while let Ok(extent) = file.prepare_write(size, 1 << 20) {
            let len = extent.start + extent.len - size;
            file.finish_write(size, len, size + len, WriteKind::Allocating).unwrap();
            size += len;
        }
        file
    }

    /// Takes every block that anything but a map gets; most are this file's.
    fn fill(root: &dyn undercroft_vfs::Inode) -> Arc<dyn undercroft_vfs::Inode> {
        let file = fill_with_data(root);
        // What data does not get, if anything.
        let long = [b'x'; 1000];
        let link = |number: u32| make_in(root, &format!("link {number}"), NewKind::Symlink(&long));
        let refusal = (0..).find_map(|number| link(number).err()).unwrap();
        assert!(matches!(refusal, Error::NoSpace), "{refusal}");
        file
    }

    /// The kernel lets a directory go on in an attribute of its inode, of which nothing but the kernel makes names.
    #[cfg(feature = "oracle")]
    #[test]
    fn names_go_from_an_attribute_on_a_full_disk() {
        const NAMES: u32 = 6;
        let mke2fs = Mke2fs::new("ext4", 8).block_bytes(1024).inode_bytes(256).features("inline_data");
        let image = mke2fs.args(["-m", "0"]).make().unwrap();
        let mount = image.mount(MountMode::ReadWrite, "").unwrap();
        for dir in ["one", "other"] {
            std::fs::create_dir(mount.path().join(dir)).unwrap();
        }
        for number in 0..NAMES {
            std::fs::write(mount.path().join(format!("one/name{number}")), "").unwrap();
        }
        mount.unmount().unwrap();
        let device = MemoryDevice::from_bytes(std::fs::read(image.path()).unwrap(), Access::ReadWrite);
        let device = Arc::new(device);
        let fs = Ext4::open(device.clone(), OpenOptions::default(), WriteOptions::default()).unwrap();
        let root = fs.read_inode(fs.root()).unwrap();
        drop(fill(&*root));
        let vfs = Vfs::new(fs.clone(), VfsOptions::default());
        let (who, root) = (Credentials::root(), vfs.root().unwrap());
        let (one, other) = (vfs.lookup(&root, b"one").unwrap(), vfs.lookup(&root, b"other").unwrap());
        vfs.rename(&who, (&one, b"name5"), (&other, b"moved"), RenameFlags::empty()).unwrap();
        vfs.rename(&who, (&one, b"name4"), (&other, b"moved"), RenameFlags::EXCHANGE).unwrap();
        vfs.unlink(&who, &one, b"name3").unwrap();
        assert!(one.attr().flags.contains(undercroft_vfs::InodeFlags::INLINE_DATA));
        drop((one, other, root, vfs));
        fs.close().unwrap();
        let image = Image::of_device("ext4", &*device).unwrap();
        image.check().unwrap();
        let mount = image.mount(MountMode::ReadOnly, "").unwrap();
        let listed = |dir: &str| {
            let entries = std::fs::read_dir(mount.path().join(dir)).unwrap();
            let mut names: Vec<_> =
                entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
            names.sort_unstable();
            names
        };
        assert_eq!(listed("one"), ["name0", "name1", "name2", "name4"]);
        assert_eq!(listed("other"), ["moved"]);
        mount.unmount().unwrap();
    }

    fn make_in(
        dir: &dyn undercroft_vfs::Inode,
        name: &str,
        kind: NewKind<'_>,
    ) -> Result<Arc<dyn undercroft_vfs::Inode>> {
        let new =
            NewInode { kind, permissions: 0o755, uid: 0, gid: 0, xattrs: &[], announce: Announce::default() };
        match dir.create(&HashedName::new(name.as_bytes()), &new, None)? {
            Found::Made(_, inode) => Ok(inode),
            other => panic!("{other:?}"),
        }
    }

    /// Making it a node must not look at its times: the next change would take the precise clock, and all changes after
    /// that a time of their own.
    #[test]
    fn creating_a_file_does_not_mark_its_times_as_read() {
        let image = Mke2fs::new("ext4", 8).make().unwrap();
        let device = MemoryDevice::from_bytes(std::fs::read(image.path()).unwrap(), Access::ReadWrite);
        let fs = Ext4::open(Arc::new(device), OpenOptions::default(), WriteOptions::default()).unwrap();
        let vfs = Vfs::new(fs, VfsOptions::default());
        let (root, who) = (vfs.root().unwrap(), Credentials::root());
        let object = NewObject { kind: NewKind::Regular, permissions: 0o644, umask: 0 };
        let file = vfs.create(&who, &root, b"file", &object).unwrap();
        let seen = || file.inode_as::<Live>().unwrap().times.are_seen();
        assert!(!seen());
        let _ = file.attr();
        assert!(seen());
    }

    /// By one handle, which is never an orphan's.
    #[test]
    fn an_unused_file_is_deleted_with_its_name_and_one_in_use_with_its_last_user() {
        for features in ["orphan_file", "^orphan_file", "inline_data", "^has_journal"] {
            let image = Mke2fs::new("ext4", 8).features(features).make().unwrap();
            let device = MemoryDevice::from_bytes(std::fs::read(image.path()).unwrap(), Access::ReadWrite);
            let device = Arc::new(device);
            let fs = Ext4::open(device.clone(), OpenOptions::default(), WriteOptions::default()).unwrap();
            let vfs = Vfs::new(fs.clone(), VfsOptions::default());
            let (who, root) = (Credentials::root(), vfs.root().unwrap());
            let make = |name: &[u8], kind| {
                vfs.create(&who, &root, name, &NewObject { kind, permissions: 0o644, umask: 0 }).unwrap()
            };
            // How many handles it takes.
            let unlink = |name: &[u8]| {
                let before = fs.write_stats().handles_started;
                vfs.unlink(&who, &root, name).unwrap();
                fs.write_stats().handles_started - before
            };
            let free = fs.statfs().unwrap().inodes_free;

            for kind in [NewKind::Regular, NewKind::Symlink(b"somewhere"), NewKind::Fifo] {
                drop(make(b"file", kind));
                assert_eq!(unlink(b"file"), 1, "{features}: {kind:?}");
                assert_eq!(fs.statfs().unwrap().inodes_free, free);
            }

            let file = make(b"file", NewKind::Regular);
            vfs.link(&who, &file, &root, b"other").unwrap();
            let number = file.ino();
            drop(file);
            assert_eq!(unlink(b"file"), 1);
            let file = vfs.lookup(&root, b"other").unwrap();
            assert_eq!((file.ino(), file.attr().links), (number, 1));
            assert_eq!(unlink(b"other"), 1);
            assert!(orphan::is_member(file.inode_as::<Live>().unwrap()));
            assert_eq!(file.attr().links, 0);
            drop(file);
            assert_eq!(fs.statfs().unwrap().inodes_free, free);

            // In so many pieces: the inode knows of four.
            for (pieces, is_one_step) in [(1, true), (4, true), (30, false)] {
                let file = make(b"content", NewKind::Regular);
                let open = vfs.open_node_for_writing(&file).unwrap();
                (0..pieces).for_each(|n| assert_eq!(open.write_at(n * 9000, &[1; 500]).unwrap(), 500));
                drop((open, file));
                assert_eq!(unlink(b"content") == 1, is_one_step, "{features}: {pieces} pieces");
                assert_eq!(fs.statfs().unwrap().inodes_free, free);
            }
            drop((root, vfs));
            fs.close().unwrap();
            Image::of_device("ext4", &*device).unwrap().check().unwrap();
        }
    }

    #[test]
    fn device_numbers_that_no_inode_holds_are_refused() {
        let image = Mke2fs::new("ext4", 8).make().unwrap();
        let device = MemoryDevice::from_bytes(std::fs::read(image.path()).unwrap(), Access::ReadWrite);
        let fs = Ext4::open(Arc::new(device), OpenOptions::default(), WriteOptions::default()).unwrap();
        let root = fs.read_inode(fs.root()).unwrap();
        let node =
            |major, minor| make_in(&*root, "device", NewKind::BlockDevice(DeviceNumber { major, minor }));
        for (major, minor) in [(4096, 0), (0, 1 << 20)] {
            assert!(matches!(node(major, minor), Err(Error::InvalidArgument(_))), "{major}:{minor}");
        }
        let most = DeviceNumber { major: 4095, minor: (1 << 20) - 1 };
        assert_eq!(node(most.major, most.minor).unwrap().attr().rdev, most);
        assert!(matches!(node(4096, 0), Err(Error::Exists)));
    }

    /// Nothing is known of the names that files are moved to, so the filesystem is asked first and then it is looked.
    #[test]
    fn a_file_moves_to_names_that_are_not_cached() {
        let source = Scratch::new("tree").unwrap();
        for file in ["one", "two", "three", "four"] {
            std::fs::write(source.path().join(file), file).unwrap();
        }
        std::fs::create_dir(source.path().join("dir")).unwrap();
        let source = source.path().to_str().unwrap().to_owned();
        for features in ["^inline_data", "inline_data"] {
            let image = Mke2fs::new("ext4", 8).features(features).args(["-d", &source]).make().unwrap();
            let device = MemoryDevice::from_bytes(std::fs::read(image.path()).unwrap(), Access::ReadWrite);
            let device = Arc::new(device);
            let fs = Ext4::open(device.clone(), OpenOptions::default(), WriteOptions::default()).unwrap();
            let vfs = Vfs::new(fs.clone(), VfsOptions::default());
            let (who, root) = (Credentials::root(), vfs.root().unwrap());
            let rename = |from: &[u8], to: &[u8], flags| vfs.rename(&who, (&root, from), (&root, to), flags);
            let read = |name: &[u8]| {
                let mut bytes = [0; 8];
                let file = vfs.open_node(&vfs.lookup(&root, name)?)?;
                let len = file.read_at(0, &mut bytes)?;
                Ok::<_, Error>(String::from_utf8_lossy(&bytes[..len]).into_owned())
            };

            let kept = rename(b"one", b"two", RenameFlags::NO_REPLACE);
            assert!(matches!(kept, Err(Error::Exists)), "{features}: {kept:?}");
            rename(b"one", b"three", RenameFlags::empty()).unwrap();
            assert!(matches!(read(b"one"), Err(Error::NotFound)));
            assert_eq!(read(b"three").unwrap(), "one");
            let onto_directory = rename(b"three", b"dir", RenameFlags::empty());
            assert!(matches!(onto_directory, Err(Error::IsDirectory)), "{features}: {onto_directory:?}");
            let too_long = rename(b"three", &[b'x'; 256], RenameFlags::empty());
            assert!(matches!(too_long, Err(Error::NameTooLong)), "{features}: {too_long:?}");
            rename(b"three", b"new", RenameFlags::empty()).unwrap();
            rename(b"four", b"another", RenameFlags::NO_REPLACE).unwrap();
            assert_eq!((read(b"new").unwrap(), read(b"another").unwrap()), ("one".into(), "four".into()));
            assert_eq!(read(b"two").unwrap(), "two");
            drop((root, vfs));
            fs.close().unwrap();
            Image::of_device("ext4", &*device).unwrap().check().unwrap();
        }
    }

    /// A filesystem with a tree, of which the first block of one directory is damaged.
    #[cfg(feature = "oracle")]
    fn with_damaged(tree: &[&str], damaged: &str) -> Arc<Vfs> {
        let source = Scratch::new("tree").unwrap();
        for dir in tree {
            std::fs::create_dir_all(source.path().join(dir)).unwrap();
        }
        let source = source.path().to_str().unwrap().to_owned();
        let image = Mke2fs::new("ext4", 8).block_bytes(1024).args(["-d", &source]).make().unwrap();
        let block: usize = image.debugfs(&format!("blocks {damaged}")).unwrap().trim().parse().unwrap();
        let mut bytes = std::fs::read(image.path()).unwrap();
        bytes[block * 1024 + 1000] ^= 1;
        let device = MemoryDevice::from_bytes(bytes, Access::ReadWrite);
        let fs = Ext4::open(Arc::new(device), OpenOptions::default(), WriteOptions::default()).unwrap();
        Vfs::new(fs, VfsOptions::default())
    }

    #[cfg(feature = "oracle")]
    #[test]
    fn moving_a_damaged_directory_is_refused_without_a_change() {
        let vfs = with_damaged(&["from/damaged", "to/good"], "/from/damaged");
        let who = Credentials::root();
        let root = vfs.root().unwrap();
        let (from, to) = (vfs.lookup(&root, b"from").unwrap(), vfs.lookup(&root, b"to").unwrap());
        let rename = |from: (&Arc<Node>, &[u8]), to: (&Arc<Node>, &[u8]), flags| {
            let refusal = vfs.rename(&who, from, to, flags).unwrap_err();
            assert!(matches!(refusal, Error::Corrupt(_)), "{refusal}");
        };
        rename((&from, b"damaged"), (&to, b"new"), RenameFlags::empty());
        rename((&from, b"damaged"), (&to, b"good"), RenameFlags::EXCHANGE);
        rename((&to, b"good"), (&from, b"damaged"), RenameFlags::EXCHANGE);
        // Where it belongs cannot be read, so nothing leads into it.
        assert!(matches!(vfs.lookup(&from, b"damaged"), Err(Error::Corrupt(_))));
        assert!(vfs.lookup(&to, b"good").is_ok());
        assert!(matches!(vfs.lookup(&to, b"new"), Err(Error::NotFound)));
        let object = NewObject { kind: NewKind::Regular, permissions: 0o644, umask: 0 };
        vfs.create(&who, &to, b"file", &object).unwrap();
        vfs.filesystem().sync().unwrap();
    }

    /// Of the lists that a directory inherits the first may have space, in an inode of its own, and the second none.
    #[test]
    fn a_directory_whose_attributes_find_no_space_leaves_nothing_behind() {
        let mke2fs = Mke2fs::new("ext4", 8).block_bytes(1024).inode_bytes(256).features("ea_inode");
        let image = mke2fs.args(["-m", "0"]).make().unwrap();
        let device = MemoryDevice::from_bytes(std::fs::read(image.path()).unwrap(), Access::ReadWrite);
        let device = Arc::new(device);
        let fs = Ext4::open(device.clone(), OpenOptions::default(), WriteOptions::default()).unwrap();
        let vfs = Vfs::new(fs.clone(), VfsOptions::default());
        let (who, root) = (Credentials::root(), vfs.root().unwrap());
        let directory = NewObject { kind: NewKind::Directory, permissions: 0o755, umask: 0 };
        let dir = vfs.create(&who, &root, b"dir", &directory).unwrap();
        let mut list = 2_u32.to_le_bytes().to_vec();
        let users = (1000..1125).map(|user| (2, user));
        for (tag, id) in
            [(1, u32::MAX)].into_iter().chain(users).chain([(4, u32::MAX), (16, u32::MAX), (32, u32::MAX)])
        {
            list.extend_from_slice(&u16::to_le_bytes(tag));
            list.extend_from_slice(&[7, 0]);
            list.extend_from_slice(&id.to_le_bytes());
        }
        vfs.set_xattr(&who, &dir, b"system.posix_acl_default", &list, XattrMode::Set).unwrap();
        // They take a block each, and are removed one by one.
        let spare = |number: u32| format!("spare {number}").into_bytes();
        let link = NewObject { kind: NewKind::Symlink(&[b'x'; 1000]), permissions: 0o777, umask: 0 };
        for number in 0..12 {
            vfs.create(&who, &root, &spare(number), &link).unwrap();
        }
        drop(fill_with_data(root.inode_as::<Live>().unwrap()));
        let mut refused = 0;
        for number in 0.. {
            vfs.unlink(&who, &root, &spare(number)).unwrap();
            fs.sync().unwrap();
            match vfs.create(&who, &dir, b"new", &directory) {
                Ok(_) => break,
                Err(error) => assert!(matches!(error, Error::NoSpace), "{error}"),
            }
            refused += 1;
        }
        assert!(refused > 1, "refused {refused} times");
        drop((dir, root, vfs));
        fs.close().unwrap();
        Image::of_device("ext4", &*device).unwrap().check().unwrap();
    }

    /// As Linux does, which waits for a commit and tries again.
    #[test]
    fn a_directory_finds_the_space_that_was_freed_a_moment_ago() {
        let (fs, dir) = just_freed("^inline_data");
        make_in(&*dir, "another", NewKind::Directory).unwrap();
        fs.close().unwrap();
    }

    /// What it needs it asks for before it takes its names out of its inode.
    #[cfg(feature = "oracle")]
    #[test]
    fn a_directory_that_leaves_its_inode_finds_space_or_stays() {
        let (fs, dir) = just_freed("inline_data");
        for number in 0..20 {
            make_in(&*dir, &format!("a name that takes some room {number}"), NewKind::Regular).unwrap();
        }
        fs.close().unwrap();
    }

    #[test]
    fn a_directory_with_too_many_links_stops_counting_whatever_the_disk_has() {
        let writable = Writable::make(&Mke2fs::new("ext4", 8).features("^has_journal"));
        for (links, after) in [(1, 1), (2, 3), (LINKS_MAX - 1, LINKS_MAX), (LINKS_MAX, 1), (u16::MAX, 1)] {
            let mut fields = writable.live(ROOT_INODE).fields.read().clone();
            fields.flags.insert(InodeFlags::INDEXED);
            fields.links = links;
            count_directory(&writable.volume, &mut fields);
            assert_eq!(fields.links, after, "{links}");
        }
        writable.finish();
    }
}

//! Attributes changed by us, on images that the kernel made and filled, and shown by the kernel afterwards.

use std::collections::BTreeMap;
use std::sync::Arc;

use undercroft_block::testing::Rng;
use undercroft_block::{Access, Device, MemoryDevice, Overlay};
use undercroft_oracle::{Image, Mke2fs, MountMode};
use undercroft_vfs::{
    Announce, AttrChange, Error, FileType, Inode as _, NewInode, NewKind, Result, XattrMode, clock,
};

use super::block;
use crate::dir;
use crate::inode::{Inode, ROOT_INODE, mark_deleted};
use crate::live::Live;
use crate::numbers::FsBlock;
use crate::options::WriteOptions;
use crate::superblock::Superblock;
use crate::testing::writable::Writable;
use crate::transaction::Tid;
use crate::volume::Volume;
use crate::writer::{Mounted, Transactions, Writer};
use crate::{inode, symlink};

/// Attributes by name.
type Model = BTreeMap<Vec<u8>, Vec<u8>>;

/// An image with these many files, `f0` and so on; every other one has attributes from the kernel.
fn image(mke2fs: &Mke2fs, files: usize) -> Image {
    let image = mke2fs.make().unwrap();
    let mount = image.mount(MountMode::ReadWrite, "").unwrap();
    for n in 0..files {
        let file = mount.path().join(format!("f{n}"));
        std::fs::write(&file, "").unwrap();
        if n % 2 == 1 {
            for (name, len) in [("user.small", 3), ("user.of the kernel", 200), ("trusted.t", 0)] {
                let value = vec![b'k'; len];
                rustix::fs::setxattr(&file, name, &value, rustix::fs::XattrFlags::empty()).unwrap();
            }
        }
    }
    mount.unmount().unwrap();
    image
}

fn number(volume: &Volume, name: &str) -> u32 {
    let root = Inode::read(volume, ROOT_INODE).unwrap();
    dir::lookup(volume, &root, name.as_bytes()).unwrap().unwrap()
}

fn set(live: &Live, name: &str, value: &[u8]) -> Result<()> {
    live.set_xattr(name.as_bytes(), Some(value), XattrMode::Set, &AttrChange::default())
}

fn shown(live: &Live) -> Model {
    let names = live.list_xattrs().unwrap();
    names.into_iter().map(|name| (name.clone(), live.xattr(&name).unwrap().unwrap())).collect()
}

fn shown_by_kernel(file: &std::path::Path) -> Model {
    let mut names = vec![0; 65536];
    let len = rustix::fs::listxattr(file, &mut names[..]).unwrap();
    let names = names[..len].split(|&byte| byte == 0).filter(|name| !name.is_empty());
    let value = |name: &[u8]| {
        let mut value = vec![0; 65536];
        let len = rustix::fs::getxattr(file, name, &mut value[..]).unwrap();
        value.truncate(len);
        value
    };
    names.map(|name| (name.to_vec(), value(name))).collect()
}

/// `getxattr`'s form of a list with an entry for one user.
fn acl(user: u32) -> Vec<u8> {
    let entry = |tag: u16, permissions: u16, id: u32| {
        [&tag.to_le_bytes()[..], &permissions.to_le_bytes(), &id.to_le_bytes()].concat()
    };
    let none = u32::MAX;
    [
        2_u32.to_le_bytes().to_vec(),
        entry(1, 6, none),
        entry(2, 7, user),
        entry(4, 4, none),
        entry(0x10, 7, none),
        entry(0x20, 4, none),
    ]
    .concat()
}

/// Sets and removes at random and compares with the model, then lets e2fsck and the kernel check.
fn random_changes(mke2fs: &Mke2fs, longest: usize, seed: u64) {
    const FILES: usize = 6;
    const NAMES: [&str; 8] = [
        "user.small",
        "user.of the kernel",
        "trusted.t",
        "user.a",
        "security.something longer than others",
        "user.zz",
        "system.posix_acl_access",
        "trusted.\u{e4}\u{f6}\u{fc}",
    ];
    let image = image(mke2fs, FILES);
    let writable = Writable::open(image, WriteOptions::default());
    let files: Vec<Arc<Live>> =
        (0..FILES).map(|n| writable.live(number(&writable.volume, &format!("f{n}")))).collect();
    let mut models: Vec<Model> = files.iter().map(|file| shown(file)).collect();
    assert_eq!(models[1].len(), 3);
    let mut random = Rng::new(seed);
    let (mut refused, mut kept) = (0, 0);
    for round in 0..1500 {
        let n = random.index(FILES);
        let (file, model) = (&files[n], &mut models[n]);
        let name = NAMES[random.index(NAMES.len())];
        let len = [0, 1, 7, 30, 80, 200, 600, longest][random.index(8)] + random.index(4);
        let value = match name {
            "system.posix_acl_access" => acl(random.index(3) as u32),
            _ => vec![b'a' + random.index(2) as u8; len],
        };
        let value = (random.index(3) != 0).then_some(value);
        let mode = [XattrMode::Set, XattrMode::Set, XattrMode::Create, XattrMode::Replace][random.index(4)];
        let there = model.contains_key(name.as_bytes());
        let result = file.set_xattr(name.as_bytes(), value.as_deref(), mode, &AttrChange::default());
        match result {
            Ok(()) => {
                kept += 1;
                match value {
                    Some(value) => model.insert(name.into(), value),
                    None => model.remove(name.as_bytes()),
                };
            }
            Err(Error::Exists) => assert!(there && mode == XattrMode::Create),
            Err(Error::NoAttribute) => assert!(!there && (mode == XattrMode::Replace || value.is_none())),
            Err(Error::NoSpace) => {
                assert!(value.is_some());
                refused += 1;
            }
            Err(error) => panic!("round {round}: {error}"),
        }
        assert_eq!(shown(file), *model, "round {round}, file {n}, {name}");
        if round % 300 == 0 {
            writable.commit();
        }
    }
    assert!(kept > 500, "{kept} changes");
    assert!(refused < 500, "{refused} changes had no room");
    drop(files);
    let image = writable.finish();
    let mount = image.mount(MountMode::ReadWrite, "").unwrap();
    for (n, model) in models.iter().enumerate() {
        let file = mount.path().join(format!("f{n}"));
        assert_eq!(shown_by_kernel(&file), *model, "file {n}");
        // The kernel goes on where we stopped.
        rustix::fs::setxattr(&file, "user.more", b"of the kernel", rustix::fs::XattrFlags::empty()).ok();
        std::fs::remove_file(&file).unwrap();
    }
    mount.unmount().unwrap();
    image.check().unwrap();
}

#[test]
fn changes_are_what_a_map_would_say_and_the_kernel_sees() {
    let small = |features| Mke2fs::new("ext4", 8).block_bytes(1024).features(features);
    random_changes(&small("^has_journal"), 900, 1);
    random_changes(&small("^has_journal,^metadata_csum,^64bit").inode_bytes(128), 900, 2);
    random_changes(&Mke2fs::new("ext4", 8).block_bytes(4096).features("^has_journal"), 3000, 3);
    random_changes(&Mke2fs::new("ext2", 8).block_bytes(1024).features("^ext_attr"), 900, 4);
}

#[test]
fn large_values_get_inodes_of_their_own() {
    let mke2fs = Mke2fs::new("ext4", 16).block_bytes(1024).features("^has_journal,ea_inode");
    random_changes(&mke2fs, 9000, 5);
    random_changes(&mke2fs.inode_bytes(128), 60_000, 6);
}

fn users_of(file: &Live) -> (FsBlock, u32) {
    let home = file.fields.read().xattr_block;
    (home, block::users(&file.volume.read_block(home).unwrap()))
}

#[test]
fn equal_attributes_share_a_block_until_one_changes() {
    let mke2fs = Mke2fs::new("ext4", 8).block_bytes(1024).features("^has_journal");
    let writable = Writable::open(image(&mke2fs, 7), WriteOptions::default());
    let files: Vec<_> =
        (0..7).step_by(2).map(|n| writable.live(number(&writable.volume, &format!("f{n}")))).collect();
    let long = [b'x'; 300];
    for file in &files {
        set(file, "user.long", &long).unwrap();
    }
    let (home, users) = users_of(&files[0]);
    assert_eq!(users, 4);
    assert!(files.iter().all(|file| users_of(file) == (home, 4)));
    set(&files[1], "user.long", &[b'y'; 300]).unwrap();
    assert_eq!(users_of(&files[0]), (home, 3));
    assert_eq!(users_of(&files[1]).1, 1);
    assert_ne!(users_of(&files[1]).0, home);
    set(&files[1], "user.long", &long).unwrap();
    assert_eq!(users_of(&files[1]), (home, 4));
    for file in &files {
        file.set_xattr(b"user.long", None, XattrMode::Set, &AttrChange::default()).unwrap();
        assert_eq!(file.fields.read().xattr_block, FsBlock(0));
        assert_eq!(file.fields.read().sectors, 0);
    }
    drop(files);
    writable.finish();
}

/// Its checksum is not in the cached bytes, so a block that was read again must be validated before it is changed.
#[test]
fn a_block_that_left_the_cache_is_shared_given_up_and_still_right() {
    let mke2fs = Mke2fs::new("ext4", 8).block_bytes(1024).features("^has_journal");
    let writable = Writable::open(image(&mke2fs, 6), WriteOptions::default());
    let files: Vec<_> =
        (0..6).step_by(2).map(|n| writable.live(number(&writable.volume, &format!("f{n}")))).collect();
    let long = [b'x'; 300];
    let forget = |home: FsBlock| {
        writable.commit();
        writable.volume.buffers().forget(home.0);
    };
    set(&files[0], "user.long", &long).unwrap();
    let (home, _) = users_of(&files[0]);
    forget(home);
    set(&files[1], "user.long", &long).unwrap();
    assert_eq!(users_of(&files[1]), (home, 2));
    forget(home);
    set(&files[2], "user.long", &long).unwrap();
    assert!(files.iter().all(|file| users_of(file) == (home, 3) && shown(file)[&b"user.long"[..]] == long));
    forget(home);
    for file in &files[1..] {
        file.set_xattr(b"user.long", None, XattrMode::Set, &AttrChange::default()).unwrap();
    }
    forget(home);
    // Alone, it changes where it is.
    set(&files[0], "user.long", &[b'y'; 300]).unwrap();
    assert_eq!(users_of(&files[0]), (home, 1));
    forget(home);
    assert_eq!(shown(&files[0])[&b"user.long"[..]], [b'y'; 300]);
    drop(files);
    writable.finish();
}

#[test]
fn a_block_has_no_more_users_than_linux_gives_it() {
    const FILES: usize = 1030;
    let mke2fs = Mke2fs::new("ext4", 16).block_bytes(1024).inodes(4000).features("^has_journal");
    let writable = Writable::open(image(&mke2fs, 2 * FILES - 1), WriteOptions::default());
    let files: Vec<_> =
        (0..FILES).map(|n| writable.live(number(&writable.volume, &format!("f{}", 2 * n)))).collect();
    for file in &files {
        set(file, "user.long", &[b'x'; 300]).unwrap();
    }
    assert_eq!(users_of(&files[0]).1, 1024);
    assert_eq!(users_of(&files[FILES - 1]).1, 6);
    drop(files);
    writable.finish();
}

/// Deletes an empty file, as far as attributes have a part in it.
fn delete(writable: &Writable, name: &str) {
    let root = writable.live(ROOT_INODE);
    let file = writable.live(number(&writable.volume, name));
    let handle = writable.volume.start(100).unwrap();
    dir::remove(&handle, &root, name.as_bytes(), file.number).unwrap();
    let mut fields = file.fields.write();
    super::release(&handle, &mut fields, file.location).unwrap();
    assert_eq!(fields.sectors, 0);
    mark_deleted(&handle, &mut fields, file.location, clock::now()).unwrap();
    writable.volume.writer().unwrap().allocator.free_inode(&handle, file.number, false).unwrap();
}

#[test]
fn the_attributes_of_a_deleted_file_leave_nothing_behind() {
    for features in ["^has_journal", "^has_journal,ea_inode"] {
        let mke2fs = Mke2fs::new("ext4", 16).block_bytes(1024).features(features);
        let image = image(&mke2fs, 6);
        let mount = image.mount(MountMode::ReadWrite, "").unwrap();
        if features.contains("ea_inode") {
            // The kernel lets equal values share an inode.
            for file in ["f1", "f3"] {
                let (file, value) = (mount.path().join(file), [b'v'; 5000]);
                rustix::fs::setxattr(&file, "user.huge", &value, rustix::fs::XattrFlags::empty()).unwrap();
            }
        }
        mount.unmount().unwrap();
        let writable = Writable::open(image, WriteOptions::default());
        for file in [0, 1, 5] {
            delete(&writable, &format!("f{file}"));
        }
        let left = writable.live(number(&writable.volume, "f3"));
        assert_eq!(left.xattr(b"user.of the kernel").unwrap().unwrap(), [b'k'; 200]);
        drop(left);
        writable.finish();
    }
}

#[test]
fn links_have_their_targets_where_linux_looks_for_them() {
    for mke2fs in [
        Mke2fs::new("ext4", 8).block_bytes(1024).features("^has_journal"),
        Mke2fs::new("ext4", 8).block_bytes(4096).features("^has_journal,ea_inode,^metadata_csum"),
        Mke2fs::new("ext2", 8).block_bytes(1024),
    ] {
        let writable = Writable::make(&mke2fs);
        let volume = &writable.volume;
        let most = (volume.block_bytes() as usize).min(4096) - 1;
        let lengths = [1, 59, 60, 61, 300, most];
        let root = writable.live(ROOT_INODE);
        for len in lengths {
            let target = vec![b't'; len];
            let handle = volume.start(100).unwrap();
            let place =
                volume.writer().unwrap().allocator.new_inode(&handle, ROOT_INODE, FileType::Symlink).unwrap();
            let new = NewInode {
                kind: NewKind::Symlink(&target),
                permissions: 0o777,
                uid: 0,
                gid: 0,
                xattrs: &[],
                announce: Announce::default(),
            };
            let mut link = Inode::fresh(volume, root.fields.read().inheritance(), place.number, &new, 1);
            if len == most {
                let longer = vec![b't'; len + 1];
                assert!(matches!(symlink::fill(&handle, &mut link, &longer), Err(Error::NameTooLong)));
            }
            symlink::fill(&handle, &mut link, &target).unwrap();
            link.store_new(&handle, place.location).unwrap();
            dir::add(&handle, &root, format!("l{len}").as_bytes(), place.number, FileType::Symlink).unwrap();
            root.change_fields(&handle, |_| ()).unwrap();
            assert_eq!(symlink::read(volume, &link).unwrap(), target);
        }
        drop(root);
        let image = writable.finish();
        let mount = image.mount(MountMode::ReadOnly, "").unwrap();
        for len in lengths {
            let target = std::fs::read_link(mount.path().join(format!("l{len}"))).unwrap();
            assert_eq!(target.as_os_str().len(), len);
        }
        mount.unmount().unwrap();
    }
}

/// Whatever the lists contain: a result or an error, and no panic.
#[test]
fn changes_of_damaged_attributes_end_in_an_answer() {
    let mke2fs = Mke2fs::new("ext4", 8).block_bytes(1024).features("^has_journal,^metadata_csum,^uninit_bg");
    let image = image(&mke2fs, 4);
    let base: Device =
        Arc::new(MemoryDevice::from_bytes(std::fs::read(image.path()).unwrap(), Access::ReadOnly));
    let mut random = Rng::new(7);
    let (mut changed, mut corrupt) = (0, 0);
    for _ in 0..1500 {
        let device: Device = Arc::new(Overlay::new(Arc::clone(&base)));
        let superblock = Superblock::read(&*device).unwrap();
        let volume = Arc::new(Mounted::new(Volume::new(Arc::clone(&device), superblock, 1 << 20)));
        let number = number(&volume, "f1");
        let location = inode::locate(&volume, number).unwrap();
        let block = Inode::read(&volume, number).unwrap().xattr_block;
        let places = [location.block.0 * 1024 + location.byte as u64 + 160, block.0 * 1024];
        for _ in 0..=random.index(3) {
            let among = [40, 96][random.index(2)];
            let at = places[random.index(2)] + random.index(among) as u64;
            let byte = [0, 1, 0xff, random.index(256) as u8][random.index(4)];
            device.write_at(at, &[byte]).unwrap();
        }
        let superblock = Superblock::read(&*device).unwrap();
        let volume = Arc::new(Mounted::new(Volume::new(device, superblock, 1 << 20)));
        let transactions = Transactions::unlogged(Tid(1), 1000, Arc::default());
        volume.set_writer(Writer::new(&volume, transactions, WriteOptions::default()).unwrap());
        let fields = Inode::read(&volume, number).unwrap();
        let live = Live::new(Arc::clone(&volume), fields, location);
        for (name, len) in
            [("user.small", 50), ("user.of the kernel", 10), ("user.new", 300), ("trusted.t", 0)]
        {
            let value = vec![b'v'; len];
            let value = (name != "trusted.t").then_some(&value[..]);
            match live.set_xattr(name.as_bytes(), value, XattrMode::Set, &AttrChange::default()) {
                Ok(()) => {
                    changed += 1;
                    assert_eq!(live.xattr(name.as_bytes()).unwrap().as_deref(), value);
                }
                Err(Error::Corrupt(_)) => corrupt += 1,
                Err(Error::NoAttribute | Error::NoSpace | Error::TurnedReadOnly(_)) => {}
                Err(error) => panic!("{error}"),
            }
        }
    }
    assert!(changed > 1000 && corrupt > 500, "{changed} changes, {corrupt} met the damage");
}

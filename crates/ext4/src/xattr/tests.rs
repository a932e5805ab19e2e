//! Extended attributes of images that the kernel filled, whole and damaged.
//!
//! These are tests of damage; that every value is what Linux shows is tested by comparing whole trees.

use std::sync::Arc;

use undercroft_block::testing::Rng;
use undercroft_block::{Access, BlockDevice, Device, MemoryDevice, Overlay};
use undercroft_oracle::{Image, Mke2fs, MountMode};
use undercroft_vfs::{Error, Result};

use super::{get, list};
use crate::dir;
use crate::inode::{Inode, Location, ROOT_INODE};
use crate::superblock::Superblock;
use crate::volume::Volume;

/// A file `f` with these attributes.
fn image(features: &str, attributes: &[(&str, String)]) -> Image {
    let image = Mke2fs::new("ext4", 8).block_bytes(1024).inodes(64).features(features).make().unwrap();
    let mount = image.mount(MountMode::ReadWrite, "").unwrap();
    let file = mount.path().join("f");
    std::fs::write(&file, "data").unwrap();
    for (name, value) in attributes {
        rustix::fs::setxattr(&file, *name, value.as_bytes(), rustix::fs::XattrFlags::empty()).unwrap();
    }
    mount.unmount().unwrap();
    image
}

fn load(image: &Image) -> Device {
    Arc::new(MemoryDevice::from_bytes(std::fs::read(image.path()).unwrap(), Access::ReadOnly))
}

/// The volume with changes, and the file.
fn open(base: &Device, change: impl FnOnce(&dyn BlockDevice)) -> (Volume, Result<Inode>) {
    let device: Device = Arc::new(Overlay::new(Arc::clone(base)));
    change(&*device);
    let superblock = Superblock::read(&*device).unwrap();
    let volume = Volume::new(device, superblock, 1 << 20);
    let root = Inode::read(&volume, ROOT_INODE).unwrap();
    let number = dir::lookup(&volume, &root, b"f").unwrap().unwrap();
    let inode = Inode::read(&volume, number);
    (volume, inode)
}

fn attributes() -> Vec<(&'static str, String)> {
    vec![
        ("user.small", "1".to_owned()),
        ("user.large", "large".repeat(60)),
        ("user.another", "y".repeat(200)),
        ("trusted.t", "trust".to_owned()),
        ("security.s", "s".repeat(70)),
    ]
}

/// Changes bytes of the attribute block and of the inode's tail, and looks at everything afterwards.
fn scribble_and_look(
    features: &str,
    rounds: u64,
    mut check: impl FnMut(&[u8], &str, Result<Option<Vec<u8>>>),
) {
    let image = image(features, &attributes());
    let base = load(&image);
    let (volume, inode) = open(&base, |_| {});
    let inode = inode.unwrap();
    let block = inode.xattr_block.0 * 1024;
    let Location { block: home, byte, .. } = crate::inode::locate(&volume, inode.number).unwrap();
    let tail_at = 128 + u64::from(inode.extra_bytes);
    let tail = home.0 * 1024 + byte as u64 + tail_at;
    let tail_bytes = 256 - tail_at;
    let mut names: Vec<_> = list(&volume, &inode).unwrap();
    names.sort_unstable();
    let mut expected: Vec<_> = attributes().iter().map(|(name, _)| name.as_bytes().to_vec()).collect();
    expected.sort_unstable();
    assert_eq!(names, expected);

    let mut random = Rng::new(0xA77);
    for _ in 0..rounds {
        let (start, len) = if random.below(3) == 0 { (tail, tail_bytes) } else { (block, 1024) };
        let (volume, inode) = open(&base, |device| {
            for _ in 0..=random.below(3) {
                // Entries lie at the beginning, values at the end.
                let among = if random.below(2) == 0 { len } else { len.min(160) };
                let value = [0, 1, 0xff, random.below(256) as u8][random.below(4) as usize];
                device.write_at(start + random.below(among), &[value]).unwrap();
            }
        });
        let Ok(inode) = inode else { continue };
        for (name, value) in attributes() {
            check(name.as_bytes(), &value, get(&volume, &inode, name.as_bytes()));
        }
        if let Err(error) = list(&volume, &inode) {
            assert!(matches!(error, Error::Corrupt(_)), "{error}");
        }
    }
}

#[test]
fn with_checksums_every_value_is_right_or_corrupt() {
    let mut corrupt = 0;
    scribble_and_look("metadata_csum", 1500, |name, value, got| match got {
        Ok(got) => assert_eq!(got.as_deref(), Some(value.as_bytes()), "{}", name.escape_ascii()),
        Err(Error::Corrupt(_)) => corrupt += 1,
        Err(error) => panic!("{error}"),
    });
    assert!(corrupt > 500, "only {corrupt} values met the damage");
}

#[test]
fn without_checksums_damage_ends_in_an_answer() {
    let (mut right, mut corrupt) = (0, 0);
    scribble_and_look("^metadata_csum,^uninit_bg", 2000, |_, value, got| match got {
        Ok(got) => right += u32::from(got.as_deref() == Some(value.as_bytes())),
        Err(Error::Corrupt(_)) => corrupt += 1,
        Err(error) => panic!("{error}"),
    });
    assert!(right > 1000 && corrupt > 500, "{right} values were right, {corrupt} met the damage");
}

#[test]
fn a_block_that_is_no_attribute_block_is_named() {
    let image = image("^metadata_csum,^uninit_bg", &attributes());
    let base = load(&image);
    let (volume, inode) = open(&base, |_| {});
    let block = inode.unwrap().xattr_block;
    drop(volume);
    for (at, what) in [(0, "magic"), (8, "blocks long")] {
        let (volume, inode) = open(&base, |device| device.write_at(block.0 * 1024 + at, &[9]).unwrap());
        let inode = inode.unwrap();
        let Err(Error::Corrupt(corruption)) = list(&volume, &inode) else { panic!("{what}: no error") };
        assert_eq!(corruption.ino.map(|ino| ino.0), Some(u64::from(inode.number)));
        assert_eq!(corruption.block, Some(block.0));
        assert!(corruption.detail.contains(what), "{corruption}");
    }
    image.debugfs_write(&["set_inode_field /f file_acl 4000000000"]).unwrap();
    let (volume, inode) = open(&load(&image), |_| {});
    assert!(matches!(list(&volume, &inode.unwrap()), Err(Error::Corrupt(_))));
}

/// The number of the inode that holds the large value: the only one with the flag.
fn value_inode(image: &Image) -> u32 {
    (12..64)
        .find(|number| image.debugfs(&format!("stat <{number}>")).unwrap().contains("Flags: 0x280000"))
        .expect("an inode that is a value")
}

#[test]
fn damaged_value_inodes_are_named() {
    let value = "value".repeat(2000);
    let made = image("ea_inode", &[("user.huge", value.clone())]);
    let number = value_inode(&made);
    let look = |image: &Image| {
        let (volume, inode) = open(&load(image), |_| {});
        get(&volume, &inode.unwrap(), b"user.huge")
    };
    assert_eq!(look(&made).unwrap().as_deref(), Some(value.as_bytes()));
    for (field, damage) in [("atime", "@1"), ("flags", "0x80000"), ("size", "9999"), ("links_count", "0")] {
        let damaged = made.copy().unwrap();
        damaged.debugfs_write(&[&format!("set_inode_field <{number}> {field} {damage}")]).unwrap();
        let Err(Error::Corrupt(corruption)) = look(&damaged) else { panic!("{field}: no error") };
        assert_eq!(corruption.ino.map(|ino| ino.0), Some(u64::from(number)), "{field}");
    }
    // One byte of the content.
    let first: u64 = made
        .debugfs(&format!("blocks <{number}>"))
        .unwrap()
        .split_whitespace()
        .next()
        .unwrap()
        .parse()
        .unwrap();
    let (volume, inode) = open(&load(&made), |device| device.write_at(first * 1024 + 5, b"X").unwrap());
    let Err(Error::Corrupt(corruption)) = get(&volume, &inode.unwrap(), b"user.huge") else {
        panic!("no error")
    };
    assert!(corruption.detail.contains("hash"), "{corruption}");
}

/// The entry's hash is of its name too, so another attribute's value is not taken for this one's.
#[test]
fn an_entry_and_its_value_inode_belong_together() {
    let made = image("ea_inode,^metadata_csum", &[("user.huge", "value".repeat(2000))]);
    let base = load(&made);
    let (volume, inode) = open(&base, |_| {});
    let inode = inode.unwrap();
    let Location { block: home, byte, .. } = crate::inode::locate(&volume, inode.number).unwrap();
    let start = home.0 * 1024 + byte as u64;
    let mut bytes = [0; 256];
    base.read_at(start, &mut bytes).unwrap();
    let at = bytes.windows(4).position(|window| window == b"huge").unwrap();
    let (volume, inode) = open(&base, |device| device.write_at(start + at as u64, b"hush").unwrap());
    let Err(Error::Corrupt(corruption)) = get(&volume, &inode.unwrap(), b"user.hush") else {
        panic!("no error")
    };
    assert!(corruption.detail.contains("entry of inode"), "{corruption}");
}

/// Lustre's inodes have no hash; the owner's number and generation stand for it.
#[test]
fn values_from_lustre_are_read() {
    let value = "value".repeat(2000);
    let image = image("ea_inode", &[("user.huge", value.clone())]);
    let number = value_inode(&image);
    let (_, owner) = open(&load(&image), |_| {});
    let owner = owner.unwrap();
    image
        .debugfs_write(&[
            &format!("set_inode_field <{number}> atime @0"),
            &format!("set_inode_field <{number}> mtime @{}", owner.number),
            &format!("set_inode_field <{number}> generation {}", owner.generation),
        ])
        .unwrap();
    // The generation seeds the checksum of the extent tree only where that has nodes of its own.
    let (volume, inode) = open(&load(&image), |_| {});
    assert_eq!(get(&volume, &inode.unwrap(), b"user.huge").unwrap().as_deref(), Some(value.as_bytes()));
}

//! Attributes that the matrix does not have: names that all have one hash, in as many leaves as that takes, and lists of
//! access control of every length.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;

use rustix::fs::XattrFlags;
use undercroft_oracle::{MkfsXfs, MountMode};

use super::{VOLUMES, colliding, open};

/// Entries for named users that a list has, beside the four that every list with such has.
const USERS: [u32; 5] = [0, 1, 20, 21, 400];

#[test]
fn attributes_of_one_hash_and_long_lists_are_those_of_the_kernel() {
    for (size_mib, args) in VOLUMES {
        let image = MkfsXfs::new(size_mib, args).make().unwrap();
        let mount = image.mount(MountMode::ReadWrite, "noatime").unwrap();
        for (file, count) in [("few", 3), ("some", 30), ("many", 900)] {
            let path = mount.path().join(file);
            let opened = File::create(&path).unwrap();
            for number in 0..count {
                for prefix in [&b"user."[..], b"trusted.", b"security."] {
                    let full = [prefix, &colliding(number)].concat();
                    let value = vec![number as u8; number % 50];
                    rustix::fs::fsetxattr(&opened, full, &value, XattrFlags::empty()).unwrap();
                }
            }
        }
        for users in USERS {
            let path = mount.path().join(format!("list-{users}"));
            std::fs::create_dir(&path).unwrap();
            for list in ["system.posix_acl_access", "system.posix_acl_default"] {
                rustix::fs::setxattr(&path, list, &access_list(users), XattrFlags::empty()).unwrap();
            }
        }
        mount.unmount().unwrap();

        let vfs = open(&image);
        let root = vfs.root().unwrap();
        let mount = image.mount(MountMode::ReadOnly, "noatime").unwrap();
        let lists = USERS.map(|users| format!("list-{users}"));
        for name in ["few", "some", "many"].into_iter().chain(lists.iter().map(String::as_str)) {
            let node = vfs.lookup(&root, name.as_bytes()).unwrap();
            let mut ours = BTreeMap::new();
            for full in node.list_xattrs().unwrap() {
                let value = node.xattr(&full).unwrap().expect("it is listed");
                assert!(ours.insert(full, value).is_none(), "{name} of mkfs.xfs {args}: one is listed twice");
            }
            let expected = by_kernel(&mount.path().join(name));
            assert!(expected.len() >= 2, "{name}");
            assert_eq!(ours, expected, "{name} of mkfs.xfs {args}");
            assert_eq!(node.xattr(b"user.absent").unwrap(), None);
            assert_eq!(node.xattr(&[b"user.", &colliding(16_000)[..]].concat()).unwrap(), None);
        }
        mount.unmount().unwrap();
    }
}

/// A list in the form that `setxattr` takes.
fn access_list(users: u32) -> Vec<u8> {
    const NO_ID: u32 = u32::MAX;
    let mut list = 2_u32.to_le_bytes().to_vec();
    let mut add = |tag: u16, permissions: u16, id: u32| {
        list.extend([tag.to_le_bytes(), permissions.to_le_bytes()].concat());
        list.extend(id.to_le_bytes());
    };
    add(0x01, 7, NO_ID);
    for user in 0..users {
        add(0x02, (user % 8) as u16, 1000 + user);
    }
    add(0x04, 5, NO_ID);
    add(0x10, 5, NO_ID);
    add(0x20, 1, NO_ID);
    list
}

fn by_kernel(path: &Path) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut names = vec![0; 1 << 20];
    let len = rustix::fs::llistxattr(path, &mut names[..]).unwrap();
    let mut attributes = BTreeMap::new();
    for name in names[..len].split(|&byte| byte == 0).filter(|name| !name.is_empty()) {
        let mut value = vec![0; 1 << 16];
        let len = rustix::fs::lgetxattr(path, name, &mut value[..]).unwrap();
        value.truncate(len);
        attributes.insert(name.to_vec(), value);
    }
    attributes
}

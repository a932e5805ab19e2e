//! Values that Linux takes as they are and xfs_repair does not: how inodes are aligned, and attributes whose names belong
//! to XFS. Our verdict is that of `xfs_repair -n`, or the kernel cannot mount or read what we find besides.

use std::path::Path;

use rustix::fs::{XattrFlags, getxattr, setxattr};
use undercroft_oracle::{Image, MkfsXfs, MountMode, open_xfs};

use crate::compare::{our_check, told};

/// Whether both call an image clean. `may_differ` for what the kernel refuses and xfs_repair does not look at.
#[track_caller]
fn is_clean(image: &Image, may_differ: bool, what: &str) -> bool {
    let theirs = image.xfs_repair_check();
    let report = our_check(image.path()).unwrap();
    let is_clean = report.is_clean();
    assert!(
        is_clean == theirs.is_ok() || may_differ && theirs.is_ok(),
        "{what}: ours\n{}\nxfs_repair: {theirs:?}",
        told(&report)
    );
    is_clean
}

#[test]
fn inodes_are_aligned_as_xfs_repair_expects() {
    for (args, is_sparse) in [
        ("", true),
        ("-b size=1024", true),
        ("-i size=2048", true),
        ("-b size=32768", true),
        ("-b size=65536", true),
        ("-i sparse=0", false),
        ("-i sparse=0,size=1024", false),
        ("-m crc=0", false),
        ("-m crc=0 -i align=0", false),
    ] {
        let image = MkfsXfs::new(300, args).make().unwrap();
        for field in ["inoalignmt", "spino_align"] {
            let right = image.xfs_number(&["sb 0", &format!("print {field}")], field).unwrap();
            for value in [0, 1, 2, 3, 4, 8, 16, 32, right, 2 * right, 1 << 30] {
                let copy = image.copy().unwrap();
                copy.xfs_db_write(&["sb 0", &format!("write -d {field} {value}")]).unwrap();
                assert_eq!(copy.xfs_number(&["sb 0", &format!("print {field}")], field).unwrap(), value);
                let what = format!("mkfs.xfs {args}, {field} {value}");
                // Linux refuses to mount these.
                let is_refused = is_sparse && field == "inoalignmt" && value != right;
                assert_eq!(open_xfs(copy.path()).is_err(), is_refused, "{what}");
                // xfs_repair passes some values of the field that is not used.
                let may_differ = is_refused || field == "spino_align";
                assert_eq!(is_clean(&copy, may_differ, &what), value == right, "{what}");
            }
        }
    }
}

/// An entry of a list of access control on disk.
fn entry(tag: u32, id: u32, permissions: u16) -> Vec<u8> {
    [&tag.to_be_bytes()[..], &id.to_be_bytes(), &permissions.to_be_bytes(), &[0; 2]].concat()
}

#[test]
fn values_of_names_that_belong_to_xfs_have_their_form() {
    const NONE: u32 = u32::MAX;
    let (owner, owning, mask, others) =
        (entry(1, NONE, 7), entry(4, NONE, 5), entry(0x10, NONE, 7), entry(0x20, NONE, 0));
    let list = |count: u32, entries: &[&[u8]]| [&count.to_be_bytes()[..], &entries.concat()].concat();
    let five = entry(2, 5, 7);
    let (access, default) = ("trusted.SGI_ACL_FILE", "trusted.SGI_ACL_DEFAULT");
    let cases: Vec<(&str, Vec<u8>)> = vec![
        (access, list(3, &[&owner, &owning, &others])),
        (access, list(3, &[&others, &owning, &owner])),
        (access, list(5, &[&owner, &five, &owning, &mask, &others])),
        (access, list(6, &[&owner, &five, &five, &owning, &mask, &others])),
        (access, list(4, &[&owner, &five, &owning, &others])),
        (access, list(2, &[&owner, &owning])),
        (access, list(3, &[&owner, &owning, &entry(0x20, NONE, 8)])),
        (access, list(4, &[&owner, &owning, &others, &entry(3, NONE, 0)])),
        (access, list(4, &[&owner, &owner, &owning, &others])),
        (access, list(2, &[&owner, &owning, &others])),
        (access, list(3, &[&owner, &owning, &others, b"x"])),
        (access, list(1 << 31, &[&owner, &owning, &others])),
        (access, list(0, &[])),
        (default, list(3, &[&owner, &owning, &others])),
        (default, list(2, &[&owner, &owning])),
        ("trusted.SGI_ACL_FILES", b"anything".to_vec()),
        ("user.SGI_ACL_FILE", b"anything".to_vec()),
        ("trusted.SGI_CAP_FILE", vec![1; 24]),
        ("trusted.SGI_CAP_FILES", vec![1; 23]),
        ("trusted.SGI_MAC_FILE", b"Ae".to_vec()),
        ("trusted.SGI_MAC_FILE", b"Tb\0\0\x02\0\0\0\x01\0\x02\0".to_vec()),
        ("trusted.SGI_MAC_FILE", b"Tb\0\0\x02\0\0\0\x02\0\x01\0".to_vec()),
        ("trusted.SGI_MAC_FILES", b"x".to_vec()),
    ];
    let empty = MkfsXfs::new(300, "").make().unwrap();
    // Beside the name in the inode, in a leaf, and in blocks of its own, where it is long enough.
    for beside in [0, 3000] {
        for (name, value) in &cases {
            let image = empty.copy().unwrap();
            let mount = image.mount(MountMode::ReadWrite, "").unwrap();
            let path = mount.path().join("one");
            std::fs::create_dir(&path).unwrap();
            if beside > 0 {
                setxattr(&path, "user.beside", &vec![b'x'; beside], XattrFlags::empty()).unwrap();
            }
            setxattr(&path, *name, value, XattrFlags::empty()).unwrap();
            let is_unreadable = *name == access && !is_readable(&path);
            mount.unmount().unwrap();
            let what = format!("{name} {value:x?} beside {beside} bytes");
            is_clean(&image, is_unreadable, &what);
        }
    }
    let users = |count: u32, last: u32| {
        let users =
            (0..count).map(|id| entry(2, id, 7)).chain([entry(2, last, 7)]).flatten().collect::<Vec<_>>();
        list(count + 5, &[&owner, &users, &owning, &mask, &others])
    };
    for (last, expected) in [(900, true), (7, false)] {
        let image = empty.copy().unwrap();
        let mount = image.mount(MountMode::ReadWrite, "").unwrap();
        let path = mount.path().join("one");
        std::fs::write(&path, "").unwrap();
        setxattr(&path, access, &users(800, last), XattrFlags::empty()).unwrap();
        mount.unmount().unwrap();
        assert_eq!(is_clean(&image, false, "in blocks of its own"), expected, "{last}");
    }
}

/// Whether the kernel makes a list of what is stored.
fn is_readable(path: &Path) -> bool {
    getxattr(path, "system.posix_acl_access", &mut [0; 4096][..]).is_ok()
}

/// Linux writes a stripe that a mount option gives into the first superblock only.
#[test]
fn a_stripe_may_change_at_mount() {
    let image = MkfsXfs::new(300, "-d su=64k,sw=4,agcount=4").make().unwrap();
    image.mount(MountMode::ReadWrite, "sunit=128,swidth=256").unwrap().unmount().unwrap();
    assert_eq!(image.xfs_number(&["sb 0", "print width"], "width").unwrap(), 32);
    assert_eq!(image.xfs_number(&["sb 1", "print width"], "width").unwrap(), 64);
    assert!(is_clean(&image, false, "another stripe"));
}

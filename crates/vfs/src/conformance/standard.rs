//! The standard tree: everything that a filesystem's read side can get wrong, in about 3 MiB.

use super::access::{AclEntry, acl_bytes};
use super::tree::{Content, Object, Piece, Tree};
use crate::{DeviceNumber, Timestamp};

/// What the filesystem under test can hold, so that the tree asks for no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Profile {
    /// The unit of allocation in bytes: sizes around it are tried.
    pub block_bytes: u64,
    /// The longest target of a symbolic link in bytes.
    pub link_max_bytes: usize,
    /// A directory that an exchange moves to another directory counts as modified, not only as changed.
    pub exchanged_directories_are_modified: bool,
    /// It keeps nanoseconds and years from 1901 to 2446; otherwise whole seconds until 2038.
    pub wide_times: bool,
    /// It keeps extended attributes.
    pub xattrs: bool,
    /// It keeps access control lists.
    pub acls: bool,
    /// How many names the largest directory has.
    pub many: usize,
}

impl Default for Profile {
    fn default() -> Self {
        Self {
            block_bytes: 4096,
            link_max_bytes: 4095,
            exchanged_directories_are_modified: false,
            wide_times: true,
            xattrs: true,
            acls: true,
            many: 3000,
        }
    }
}

/// Holes in the tree are aligned to this, so that every block size can hold them.
const HOLE_ALIGN: u64 = 64 * 1024;

/// The tree that a filesystem with this profile must hold.
#[must_use]
pub fn standard_tree(profile: &Profile) -> Tree {
    let mut tree = Tree::new();
    add_names(&mut tree);
    add_directories(&mut tree, profile);
    add_contents(&mut tree, profile);
    add_symlinks(&mut tree);
    add_special_files(&mut tree);
    add_times(&mut tree, profile);
    add_permissions(&mut tree, profile);
    if profile.xattrs {
        add_xattrs(&mut tree);
    }
    tree
}

fn small(seed: u64) -> Object {
    Object::File(Content::full(11, seed))
}

fn path(parts: &[&[u8]]) -> Vec<u8> {
    parts.join(&b'/')
}

fn add_names(tree: &mut Tree) {
    tree.add("names", Object::Directory);
    let names: [&[u8]; 14] = [
        b"a",
        b"-",
        b" ",
        b"...",
        b".hidden",
        b"..two",
        b"with space and \ttab\nnewline",
        b"\\back\\slash\"quote'*?",
        b"~$(x)`y`&;|<>",
        b"\xff\xfe\x80 not UTF-8",
        b"\x01\x7f",
        "Grüße, 世界, \u{1f98a}".as_bytes(),
        // The same name to people, composed and decomposed: two names to a filesystem that does not fold.
        "caf\u{e9}".as_bytes(),
        "cafe\u{301}".as_bytes(),
    ];
    for (seed, name) in (1..).zip(names) {
        tree.add(path(&[b"names", name]), small(seed));
    }
    tree.add("names/Case", small(20));
    tree.add("names/case", small(21));
    for len in [3, 4, 5, 127, 128, 254, 255] {
        tree.add(path(&[b"names", &vec![b'n'; len]]), small(100 + len as u64));
    }
    tree.add(path(&[b"names", &[b"x".repeat(254), b"\xff".to_vec()].concat()]), Object::Directory);
}

fn add_directories(tree: &mut Tree, profile: &Profile) {
    tree.add("empty", Object::Directory);
    let mut deep = b"deep".to_vec();
    tree.add(&deep, Object::Directory);
    for level in 0..40 {
        deep.extend_from_slice(format!("/level {level}").as_bytes());
        tree.add(&deep, Object::Directory);
    }
    deep.extend_from_slice(b"/bottom");
    tree.add(&deep, small(30));

    tree.add("wide", Object::Directory);
    for number in 0..60 {
        tree.add(format!("wide/{number:02}"), Object::Directory);
        tree.add(format!("wide/{number:02}/file"), small(1000 + number));
    }

    // Most of its names are links, so that a small image has inodes enough.
    tree.add("many", Object::Directory);
    tree.add("many/0", small(31)).owned(0o600, 1, 2);
    for number in 1..profile.many {
        let name = format!("many/{number:x}{}", "-".repeat(number * 7 % 60));
        match number % 100 {
            50 => tree.add(name, Object::Symlink(b"0".to_vec())),
            99 => tree.add(name, Object::Directory),
            _ => tree.add(name, Object::HardLink(b"many/0".to_vec())),
        };
    }
}

fn add_contents(tree: &mut Tree, profile: &Profile) {
    tree.add("content", Object::Directory);
    let block = profile.block_bytes;
    let mut sizes = vec![0, 1, 7, 8, 59, 60, 61, 100, 160, 255, 511, 512, 513, 3000];
    for blocks in [1, 2, 11, 12, 13, 64] {
        sizes.extend([block * blocks - 1, block * blocks, block * blocks + 1]);
    }
    sizes.sort_unstable();
    sizes.dedup();
    for size in sizes {
        tree.add(format!("content/{size}"), Object::File(Content::full(size, size)));
    }
    tree.add("content/hard link", Object::HardLink(b"content/100".to_vec()));
    tree.add("wide/00/another", Object::HardLink(b"content/100".to_vec()));

    tree.add("sparse", Object::Directory);
    let mut sparse = |name: &str, size_bytes: u64, pieces: &[(u64, u64)]| {
        let pieces = pieces
            .iter()
            .map(|&(offset, len)| Piece { offset: offset * HOLE_ALIGN, len, seed: 77 + offset })
            .collect();
        tree.add(format!("sparse/{name}"), Object::File(Content { size_bytes, pieces }));
    };
    sparse("hole only", 5 * HOLE_ALIGN + 3, &[]);
    sparse("hole first", 3 * HOLE_ALIGN, &[(1, 2 * HOLE_ALIGN)]);
    sparse("hole last", 4 * HOLE_ALIGN + 5, &[(0, HOLE_ALIGN)]);
    sparse("stripes", 12 * HOLE_ALIGN, &[0, 2, 4, 6, 8, 10].map(|at| (at, HOLE_ALIGN)));
    sparse("far", (1 << 30) + HOLE_ALIGN, &[(0, HOLE_ALIGN), (1 << 14, HOLE_ALIGN)]);
    sparse("very far", (1 << 33) + HOLE_ALIGN, &[(1 << 17, HOLE_ALIGN)]);
}

fn add_symlinks(tree: &mut Tree) {
    tree.add("links", Object::Directory);
    let mut link = |name: &str, target: &[u8]| {
        tree.add(format!("links/{name}"), Object::Symlink(target.to_vec()));
    };
    link("file", b"../content/100");
    link("directory", b"../content");
    link("directory slash", b"../content/");
    link("file slash", b"../content/100/");
    link("through", b"directory/../content/100");
    link("dangling", b"no/such/target");
    link("self", b"self");
    link("ping", b"pong");
    link("pong", b"ping");
    link("dot", b".");
    link("up", b"..");
    link("not UTF-8", b"\xff\xfe");
    // Around the longest target that ext4 keeps in the inode, and targets that need a block.
    for len in [58, 59, 60, 61, 500, 1000] {
        let mut target = b"./".repeat(len / 2 - 2);
        target.resize(len - 4, b'/');
        target.extend_from_slice(b"file");
        link(&format!("{len} bytes"), &target);
    }
    link("chain 0", b"file");
    for number in 1..=40 {
        link(&format!("chain {number}"), format!("chain {}", number - 1).as_bytes());
    }
}

fn add_special_files(tree: &mut Tree) {
    tree.add("special", Object::Directory);
    tree.add("special/fifo", Object::Fifo).owned(0o600, 5, 6);
    tree.add("special/socket", Object::Socket).owned(0o755, 7, 8);
    let mut node = |name: &str, major, minor| {
        let number = DeviceNumber { major, minor };
        tree.add(format!("special/char {name}"), Object::CharDevice(number));
        tree.add(format!("special/block {name}"), Object::BlockDevice(number));
    };
    node("small", 1, 3);
    node("eight bits", 255, 255);
    node("large", 259, 300);
    node("largest", 4095, 0xf_ffff);
}

fn add_times(tree: &mut Tree, profile: &Profile) {
    tree.add("times", Object::Directory);
    let mut times = vec![(0, 0), (1, 0), (-1, 0), (i64::from(i32::MIN), 0), (i64::from(i32::MAX), 0)];
    if profile.wide_times {
        times.extend([
            (-1, 999_999_999),
            (1_700_000_000, 123_456_789),
            (1 << 31, 1),
            (1 << 32, 0),
            (1 << 33, 500_000_000),
            (15_032_385_535, 0),
        ]);
    }
    for (seconds, nanoseconds) in times {
        let modified = Timestamp { seconds, nanoseconds };
        let accessed = Timestamp { seconds: 1_600_000_000, nanoseconds: nanoseconds / 2 };
        tree.add(format!("times/{seconds}.{nanoseconds}"), small(40)).at(accessed, modified);
    }
    let early = Timestamp { seconds: 86_400, nanoseconds: 0 };
    tree.add("times/directory", Object::Directory).at(early, early);
    tree.add("times/link", Object::Symlink(b"nowhere".to_vec())).at(early, early);
}

fn add_permissions(tree: &mut Tree, profile: &Profile) {
    tree.add("modes", Object::Directory);
    for permissions in [
        0o000, 0o777, 0o400, 0o040, 0o004, 0o200, 0o020, 0o002, 0o100, 0o010, 0o001, 0o640, 0o4755, 0o2755,
        0o1777, 0o7777, 0o070, 0o705,
    ] {
        tree.add(format!("modes/{permissions:04o}"), small(50)).owned(permissions, 1000, 2000);
        tree.add(format!("modes/{permissions:04o}.d"), Object::Directory).owned(permissions, 1000, 2000);
        tree.add(format!("modes/{permissions:04o}.d/inside"), small(51)).owned(0o644, 1000, 2000);
    }
    for (name, uid, gid) in [("wide ids", 70_000, 80_000), ("widest ids", u32::MAX - 1, u32::MAX - 1)] {
        tree.add(format!("modes/{name}"), small(52)).owned(0o640, uid, gid);
    }
    if profile.acls {
        add_acls(tree);
    }
}

fn add_acls(tree: &mut Tree) {
    use AclEntry::{Group, Mask, Other, Owner, OwningGroup, User};
    tree.add("acls", Object::Directory);
    let lists: [(&str, u16, &[AclEntry]); 7] = [
        ("named user", 0o664, &[Owner(0o6), User(1001, 0o6), OwningGroup(0o4), Mask(0o6), Other(0o4)]),
        (
            "user shut out",
            0o664,
            &[Owner(0o6), User(1001, 0), User(1002, 0o7), OwningGroup(0o6), Mask(0o6), Other(0o4)],
        ),
        (
            "named groups",
            0o670,
            &[Owner(0o6), OwningGroup(0o4), Group(2001, 0o2), Group(2002, 0o7), Mask(0o7), Other(0)],
        ),
        (
            "masked",
            0o644,
            &[Owner(0o6), User(1001, 0o7), OwningGroup(0o7), Group(2001, 0o7), Mask(0o4), Other(0o4)],
        ),
        ("masked out", 0o604, &[Owner(0o6), User(1001, 0o7), OwningGroup(0o7), Mask(0), Other(0o4)]),
        ("many", 0o670, &[]),
        (
            "directory",
            0o750,
            &[Owner(0o7), User(1001, 0o5), OwningGroup(0), Group(2001, 0o1), Mask(0o5), Other(0)],
        ),
    ];
    for (name, permissions, entries) in lists {
        let mut entries = entries.to_vec();
        let object = if name == "directory" { Object::Directory } else { small(60) };
        if name == "many" {
            entries.push(Owner(0o6));
            entries.extend((0..20).map(|number| User(1000 + number, (number % 8) as u16)));
            entries.extend([OwningGroup(0o5), Group(2001, 0o3), Mask(0o7), Other(0)]);
        }
        tree.add(format!("acls/{name}"), object)
            .owned(permissions, 1000, 2000)
            .xattr("system.posix_acl_access", acl_bytes(&entries));
    }
    tree.add("acls/directory/inside", small(61)).owned(0o644, 1000, 2000);
    let default = acl_bytes(&[Owner(0o7), User(1001, 0o7), OwningGroup(0o5), Mask(0o7), Other(0)]);
    tree.add("acls/default", Object::Directory)
        .owned(0o755, 1000, 2000)
        .xattr("system.posix_acl_default", default);
}

fn add_xattrs(tree: &mut Tree) {
    tree.add("xattrs", Object::Directory).xattr("user.of a directory", "here");
    tree.add("xattrs/empty value", small(70)).xattr("user.empty", "");
    tree.add("xattrs/bytes", small(71)).xattr("user.bytes", [0, 0xff, b'\n', 0]);
    tree.add("xattrs/odd name", small(72)).xattr(b"user.\xff \n", "odd");
    tree.add("xattrs/long name", small(73)).xattr(format!("user.{}", "n".repeat(250)), "long");
    tree.add("xattrs/large", small(74)).xattr("user.large", vec![0x5a; 700]);
    tree.add("xattrs/trusted", small(75)).xattr("trusted.note", "for root");
    tree.add("xattrs/link", Object::Symlink(b"trusted".to_vec())).xattr("trusted.note", "of the link");
    let several = tree.add("xattrs/several", small(76));
    for number in 0..12 {
        several.xattr(format!("user.{number}"), vec![b'v'; number * 3]);
    }
    several.xattr("trusted.12", "thirteenth");
    several.xattr("user.1 longer", "another that begins like the second");
}

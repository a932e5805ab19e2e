//! Directories: every form, grown name by name and shrunk again; the order of names and their positions are the
//! kernel's.

use std::fs::File;
use std::mem::MaybeUninit;
use std::ops::ControlFlow;
use std::path::Path;

use rustix::fs::RawDir;
use undercroft_oracle::{MkfsXfs, MountMode};
use undercroft_vfs::{DirOffset, Error, FileType, Node, Vfs};

use super::{VOLUMES, colliding, in_dir, open};

/// How many names are put into a directory, and of how many that come then one is kept.
const SHAPES: [(usize, usize); 12] = [
    (0, 1),
    (1, 1),
    (6, 1),
    (6, 3),
    (60, 1),
    (60, 10),
    (300, 1),
    (300, 7),
    (2500, 1),
    (2500, 5),
    (2500, 400),
    (9000, 1),
];

/// A name, its inode, its kind, and the position after it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Listed {
    name: Vec<u8>,
    ino: u64,
    kind: Option<FileType>,
    next: u64,
}

#[test]
fn directories_of_every_shape_are_listed_as_by_the_kernel() {
    for (size_mib, args) in VOLUMES {
        let image = MkfsXfs::new(size_mib, args).make().unwrap();
        let mount = image.mount(MountMode::ReadWrite, "noatime").unwrap();
        for (count, kept) in SHAPES {
            fill(&mount.path().join(format!("{count}-{kept}")), count, kept, name);
        }
        fill(&mount.path().join("one-hash"), 3000, 1, colliding);
        fill(&mount.path().join("one-hash-left"), 3000, 9, colliding);
        mount.unmount().unwrap();

        let vfs = open(&image);
        let root = vfs.root().unwrap();
        let mount = image.mount(MountMode::ReadOnly, "noatime").unwrap();
        for (count, kept) in SHAPES {
            let dir = format!("{count}-{kept}");
            compare(&vfs, &root, mount.path(), &dir, &format!("{dir} of mkfs.xfs {args}"));
        }
        for dir in ["one-hash", "one-hash-left"] {
            compare(&vfs, &root, mount.path(), dir, &format!("{dir} of mkfs.xfs {args}"));
        }
        mount.unmount().unwrap();
    }
}

/// A name of this number: of any length and, here and there, of bytes that are no UTF-8.
fn name(number: usize) -> Vec<u8> {
    let mut name = format!("{number:04}-").into_bytes();
    name.resize(5 + number * 7 % 60, b'n');
    if number.is_multiple_of(11) {
        name.extend([0xff, 0x80 + (number % 100) as u8, 1, b'\n']);
    }
    if number.is_multiple_of(97) {
        name.resize(255, b'l');
    }
    name
}

fn fill(dir: &Path, count: usize, kept: usize, name: fn(usize) -> Vec<u8>) {
    std::fs::create_dir(dir).unwrap();
    for number in 0..count {
        let path = in_dir(dir, &name(number));
        match number % 5 {
            3 => std::os::unix::fs::symlink("target", path).unwrap(),
            4 if number < 100 => std::fs::create_dir(path).unwrap(),
            _ => drop(File::create(path).unwrap()),
        }
    }
    for number in (0..count).filter(|number| number % kept != 0) {
        let path = in_dir(dir, &name(number));
        let removed = std::fs::remove_file(&path).or_else(|_| std::fs::remove_dir(&path));
        removed.unwrap();
    }
}

fn compare(vfs: &Vfs, root: &Node, mount: &Path, dir: &str, what: &str) {
    let node = vfs.lookup(root, dir.as_bytes()).unwrap();
    let ours = list(&node, 0, usize::MAX);
    let kernel = list_by_kernel(&mount.join(dir), 0);
    let shown = |listed: &[Listed]| -> Vec<(Vec<u8>, u64, Option<FileType>)> {
        listed.iter().map(|entry| (entry.name.clone(), entry.ino, entry.kind)).collect()
    };
    assert_eq!(shown(&ours), shown(&kernel), "{what}");
    for pair in kernel.windows(2).step_by(1 + kernel.len() / 150) {
        let after = list(&node, pair[0].next, 1);
        assert_eq!(after[0].name, pair[1].name, "{what}: after the kernel's position {}", pair[0].next);
    }
    for pair in ours.windows(2).step_by(1 + ours.len() / 40) {
        let after = list_by_kernel(&mount.join(dir), pair[0].next);
        assert_eq!(after[0].name, pair[1].name, "{what}: the kernel after our position {}", pair[0].next);
    }
    for entry in &ours {
        if !matches!(&entry.name[..], b"." | b"..") {
            let found = vfs.lookup(&node, &entry.name).unwrap();
            assert_eq!(found.ino().0, entry.ino, "{what}: {:?}", entry.name.escape_ascii().to_string());
        }
    }
    for absent in [&b"absent"[..], &colliding(16_000), &[0xff; 255]] {
        assert!(matches!(vfs.lookup(&node, absent), Err(Error::NotFound)), "{what}");
    }
}

fn list(node: &Node, from: u64, most: usize) -> Vec<Listed> {
    let mut listed = Vec::new();
    node.read_dir(DirOffset(from), &mut |entry| {
        let (name, ino) = (entry.name.to_vec(), entry.ino.0);
        listed.push(Listed { name, ino, kind: entry.kind, next: entry.next.0 });
        if listed.len() == most { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })
    .unwrap();
    listed
}

fn list_by_kernel(dir: &Path, from: u64) -> Vec<Listed> {
    let dir = File::open(dir).unwrap();
    rustix::fs::seek(&dir, rustix::fs::SeekFrom::Start(from)).unwrap();
    let mut buffer = [MaybeUninit::uninit(); 32 << 10];
    let mut entries = RawDir::new(&dir, &mut buffer);
    let mut listed = Vec::new();
    while let Some(entry) = entries.next() {
        let entry = entry.unwrap();
        let kind = match entry.file_type() {
            rustix::fs::FileType::RegularFile => Some(FileType::Regular),
            rustix::fs::FileType::Directory => Some(FileType::Directory),
            rustix::fs::FileType::Symlink => Some(FileType::Symlink),
            _ => None,
        };
        let name = entry.file_name().to_bytes().to_vec();
        listed.push(Listed { name, ino: entry.ino(), kind, next: entry.next_entry_cookie() });
    }
    listed
}

//! What the mounted example holds.

use undercroft_vfs::{DeviceNumber, FileType, Ino, InodeFlags, Timestamp};

use super::memory::{Content, Memory};

/// The user `nobody`, the owner of some things.
pub(crate) const NOBODY: u32 = 65534;

/// Contents of `hello`.
pub(crate) const HELLO: &[u8] = b"hello from memory\n";

/// Size of the piece that `big` repeats.
pub(crate) const PIECE_BYTES: usize = 1 << 20;

/// Of `sparse`: a hole, one page of data, a hole.
pub(crate) const SPARSE_DATA: std::ops::Range<u64> = (1 << 20)..(1 << 20) + 4096;
/// Size of `sparse`.
pub(crate) const SPARSE_BYTES: u64 = 3 << 20;

/// `user::rw-, user:nobody:r--, group::---, mask::r--, other::---` as `getxattr` gives it.
pub(crate) const ACL: [u8; 44] = {
    let mut acl = [0; 44];
    acl[0] = 2;
    let entries: [(u8, u8, u32); 5] =
        [(1, 6, u32::MAX), (2, 4, NOBODY), (4, 0, u32::MAX), (16, 4, u32::MAX), (32, 0, u32::MAX)];
    let mut index = 0;
    while index < entries.len() {
        let at = 4 + 8 * index;
        let (tag, permissions, id) = entries[index];
        acl[at] = tag;
        acl[at + 2] = permissions;
        let id = id.to_le_bytes();
        acl[at + 4] = id[0];
        acl[at + 5] = id[1];
        acl[at + 6] = id[2];
        acl[at + 7] = id[3];
        index += 1;
    }
    acl
};

/// The byte of `big` at an offset.
pub(crate) fn big_byte(offset: u64) -> u8 {
    let within = offset % PIECE_BYTES as u64;
    (within ^ (within >> 8) ^ (within >> 16)) as u8
}

/// A filesystem with one of everything, `files` files in the directory `many`, and a file of `big_bytes`.
pub(crate) fn sample(files: usize, big_bytes: u64) -> Memory {
    let mut memory = Memory::new();
    let root = memory.root();
    let hello = memory.add(root, "hello", 0o644, Content::bytes(HELLO));
    memory.link(root, "also-hello", hello);
    memory.change(hello, |attr| attr.links = 2);
    memory.add(root, "link", 0o777, Content::Symlink(b"hello".to_vec()));
    let sparse = Content::Bytes { data: [b's'; 4096].into(), at: SPARSE_DATA, size_bytes: SPARSE_BYTES };
    memory.add(root, "sparse", 0o644, sparse);
    let piece = (0..PIECE_BYTES as u64).map(big_byte).collect();
    memory.add(root, "big", 0o644, Content::Repeated { piece, size_bytes: big_bytes });
    memory.add(root, "defect", 0o644, Content::Defective);
    add_attributes(&mut memory, root);
    add_damage(&mut memory, root);
    let many = memory.add(root, "many", 0o755, Content::Directory(Vec::new()));
    for number in 0..files {
        memory.add(many, &format!("{number:06}"), 0o644, Content::bytes(b""));
    }
    memory
}

fn add_attributes(memory: &mut Memory, root: Ino) {
    let pipe = Content::Special(FileType::Fifo, DeviceNumber::default());
    memory.add(root, "pipe", 0o600, pipe);
    let device = Content::Special(FileType::CharDevice, DeviceNumber { major: 1, minor: 0x12345 });
    memory.add(root, "device", 0o600, device);
    let odd = memory.add(root, "odd", 0o4751, Content::bytes(b"odd"));
    memory.change(odd, |attr| {
        attr.generation = 0xdead_beef;
        attr.uid = 70_000;
        attr.gid = 80_000;
        attr.modified = Timestamp { seconds: -2, nanoseconds: 500_000_000 };
        attr.changed = Timestamp { seconds: 1 << 33, nanoseconds: 1 };
        attr.flags = InodeFlags::IMMUTABLE | InodeFlags::NODUMP | InodeFlags::EXTENTS;
        attr.project = 42;
    });
    let noted = memory.add(root, "noted", 0o644, Content::bytes(b"noted"));
    memory.set_xattr(noted, "user.note", b"remember this");
    memory.set_xattr(noted, "user.empty", b"");
    memory.set_xattr(noted, "trusted.secret", b"for root");
    let shared = memory.add(root, "shared", 0o640, Content::bytes(b"shared by acl"));
    memory.set_xattr(shared, "system.posix_acl_access", &ACL);
    memory.add(root, "private", 0o600, Content::bytes(b"for root alone"));
}

fn add_damage(memory: &mut Memory, root: Ino) {
    let damaged = memory.add(root, "damage", 0o755, Content::Directory(Vec::new()));
    memory.add(damaged, "bytes", 0o644, Content::DamagedBytes);
    memory.add(damaged, "inode", 0o644, Content::Damaged);
    memory.add(damaged, "locked", 0o644, Content::Locked);
    memory.link(damaged, "nothing", Ino(9_999_999));
    memory.link(damaged, "reserved", Ino(1));
    memory.link(damaged, "root", root);
}

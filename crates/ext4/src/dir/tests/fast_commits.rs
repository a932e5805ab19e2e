//! Names that fast commits added or took away, laid over directories of every form.

use super::*;
use crate::fast_commit::{FastCommitOp, FastCommitView};
use crate::inode::incarnation_on_disk;

fn link(parent: u32, ino: u32, name: &str) -> FastCommitOp {
    FastCommitOp::Link { parent, ino, name: name.as_bytes().into() }
}

fn unlink(parent: u32, ino: u32, name: &str) -> FastCommitOp {
    FastCommitOp::Unlink { parent, ino, name: name.as_bytes().into() }
}

#[test]
fn changes_show_in_lookups_and_listings() {
    let mke2fs = Mke2fs::new("ext4", 16).block_bytes(1024).features("inline_data");
    let image = image_by_kernel(&mke2fs, |root| {
        touch(&root.join("inline"), ["keep", "gone", "moved"]);
        touch(&root.join("indexed"), long_names(60).chain(["keep", "gone", "moved"].map(str::to_owned)));
    });
    let loaded = Loaded::new(&image);
    for path in ["inline", "indexed"] {
        let plain = loaded.open();
        let directory = inode(&plain, path);
        // This crate reads and changes directories in inodes, and makes none.
        assert_eq!(directory.has_inline_data(), path == "inline" && cfg!(feature = "oracle"));
        let before = names(&plain, &directory);
        let (keep, gone, moved) = (before[&b"keep"[..]], before[&b"gone"[..]], before[&b"moved"[..]]);
        let number = directory.number;
        let operations = [
            unlink(number, gone, "gone"),
            link(number, moved, "arrived"),
            unlink(number, moved, "moved"),
            link(number, keep, "second"),
            link(number, gone, "moved"),
        ];
        let view = FastCommitView::fold(&operations, |ino| incarnation_on_disk(&plain, ino)).unwrap();
        let volume = loaded.open().with_fast_commits(view);

        let mut expected = before.clone();
        expected.remove(&b"gone"[..]);
        expected.insert(b"arrived".to_vec(), moved);
        expected.insert(b"second".to_vec(), keep);
        expected.insert(b"moved".to_vec(), gone);
        let all = list(&volume, &directory, 0);
        assert_eq!(names(&volume, &directory), expected, "{path}");
        assert_eq!(all.len(), expected.len(), "{path}: a name is listed twice");
        for (name, ino) in &expected {
            assert_eq!(lookup(&volume, &directory, name).unwrap(), Some(*ino), "{path}");
        }
        assert_eq!(lookup(&volume, &directory, b"gone").unwrap(), None, "{path}");
        for (index, listed) in all.iter().enumerate() {
            assert_eq!(list(&volume, &directory, listed.next.0), all[index + 1..], "{path}");
        }
    }
}

#[test]
fn a_directory_from_a_fast_commit_has_no_blocks_to_read() {
    let image = image(Mke2fs::new("ext4", 16).block_bytes(1024), |root| touch(&root.join("d"), ["a", "b"]));
    let loaded = Loaded::new(&image);
    let plain = loaded.open();
    let directory = inode(&plain, "d");
    let a = names(&plain, &directory)[&b"a"[..]];
    let mut raw = vec![0; 160];
    raw[0..2].copy_from_slice(&0o040_755_u16.to_le_bytes());
    raw[0x64..0x68].copy_from_slice(&(directory.generation ^ 1).to_le_bytes());
    let operations = [
        FastCommitOp::Inode { ino: directory.number, raw: raw.into() },
        FastCommitOp::Create { parent: ROOT_INODE, ino: directory.number, name: (*b"d").into() },
        link(directory.number, a, "only"),
    ];
    let view = FastCommitView::fold(&operations, |ino| incarnation_on_disk(&plain, ino)).unwrap();
    let volume = loaded.open().with_fast_commits(view);
    let all = list(&volume, &directory, 0);
    let found: Vec<_> = all.iter().map(|listed| (&*listed.name, listed.ino)).collect();
    assert_eq!(found, [(&b"."[..], directory.number), (b"..", ROOT_INODE), (b"only", a)]);
    for (name, ino) in found {
        assert_eq!(lookup(&volume, &directory, name).unwrap(), Some(ino));
    }
    assert_eq!(lookup(&volume, &directory, b"a").unwrap(), None);
}

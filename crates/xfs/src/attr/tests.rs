//! Attributes that xfs_db made, in every form.

use std::fmt::Write as _;

use undercroft_vfs::Error;

use super::*;
use crate::da::testing::{Image, Opening};
use crate::format::block_header::HeaderKind;

const VOLUMES: [&str; 6] = [
    "",
    "-b size=1024",
    "-b size=65536",
    "-i size=2048",
    "-m crc=0 -i size=512",
    "-m crc=0 -b size=1024 -i size=512",
];

/// How many attributes a file has, and how long their values are.
const FILES: [(usize, usize); 6] = [(0, 0), (2, 3), (12, 40), (3, 5000), (60, 200), (900, 30)];

fn with_attributes<T>(inode: &Opening<'_>, look: impl FnOnce(Attributes<'_>) -> T) -> T {
    inode.with_attributes(|content| look(Attributes { ino: inode.ino, layout: &inode.layout, content }))
}

/// A name, how xfs_db is told its name space, and the length of its value.
fn attribute(number: usize, len: usize) -> (String, &'static str, &'static str, usize) {
    let (option, prefix) = [("-u", "user."), ("-r", "trusted."), ("-s", "security.")][number % 3];
    // The same names in all name spaces: they have the same hash.
    (format!("name{}", number / 3), option, prefix, len + number % 5)
}

fn image(args: &str) -> Image {
    // xfs_db crashes in version 4 over empty files, and over inodes of 256 bytes.
    let mut list = "/dev/null\n0 0\nd--755 0 0\n".to_owned();
    for number in 0..FILES.len() {
        writeln!(list, "file{number} ---644 0 0 CONTENT").unwrap();
    }
    let image = Image::make(args, &(list + "$\n"));
    let mut commands = String::new();
    for (file, (count, len)) in FILES.into_iter().enumerate() {
        writeln!(commands, "path /file{file}").unwrap();
        for number in 0..count {
            let (name, option, _, len) = attribute(number, len);
            writeln!(commands, "attr_set {option} -v {len} {name}").unwrap();
        }
    }
    image.change(&(commands + "quit\n"));
    image
}

#[test]
fn every_form_is_read() {
    for args in VOLUMES {
        let image = image(args);
        let image = image.open();
        for (file, (count, len)) in FILES.into_iter().enumerate() {
            let what = format!("/file{file} of mkfs.xfs {args}");
            let inode = image.inode(&format!("/file{file}"));
            with_attributes(&inode, |attributes| {
                let mut expected: Vec<Vec<u8>> = Vec::new();
                for number in 0..count {
                    let (name, _, prefix, len) = attribute(number, len);
                    let full = format!("{prefix}{name}").into_bytes();
                    let value = get(attributes, &full).unwrap().expect(&what);
                    assert_eq!(value.len(), len, "{} of {what}", full.escape_ascii());
                    assert!(value.iter().all(|byte| *byte == value[0]), "{} of {what}", full.escape_ascii());
                    expected.push(full);
                }
                let mut listed = list(attributes).unwrap();
                listed.sort_unstable();
                expected.sort_unstable();
                assert_eq!(listed, expected, "{what}");
                for absent in ["user.name", "user.name999999", "trusted.x", "system.posix_acl_access", "x"] {
                    assert_eq!(get(attributes, absent.as_bytes()).unwrap(), None, "{absent} of {what}");
                }
            });
        }
    }
}

#[test]
fn damaged_leaves_are_answered() {
    let image = image("-b size=1024");
    let image = image.open();
    let layout = image.layout;
    let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
    let mut below = |end: usize| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        (seed % end as u64) as usize
    };
    let inode = image.inode("/file4");
    with_attributes(&inode, |attributes| {
        let Content::Blocks(blocks) = attributes.content else { panic!("in the inode") };
        for at in 0..64 {
            let Ok(Some(block)) = blocks.read(at, 1, HeaderKind::DaBlock) else { continue };
            for _ in 0..500 {
                let mut bytes = block.bytes.to_vec();
                for _ in 0..=below(3) {
                    let end = if below(2) == 0 { 160 } else { bytes.len() };
                    bytes[below(end)] = below(256) as u8;
                }
                if let Ok(leaf) = AttributeLeaf::validate(&bytes, &layout) {
                    for attribute in leaf.with_hash(None) {
                        assert!(!attribute.name.is_empty());
                    }
                }
            }
        }
    });
    let inode = image.inode("/file1");
    with_attributes(&inode, |attributes| {
        let Content::Inline(bytes) = attributes.content else { panic!("not in the inode") };
        for _ in 0..2000 {
            let mut bytes = bytes.to_vec();
            let at = below(24);
            bytes[at] = below(256) as u8;
            let damaged = Attributes { content: Content::Inline(&bytes), ..attributes };
            assert!(matches!(list(damaged), Ok(_) | Err(Error::Corrupt(_))));
        }
    });
}

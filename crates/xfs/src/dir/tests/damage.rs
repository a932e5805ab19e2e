//! Directories with damaged bytes: a result or an error each time, and never a panic.

use std::collections::HashMap;
use std::ops::ControlFlow;

use undercroft_vfs::{DirOffset, Error, Ino};

use super::super::{Directory, lookup, read_dir};
use super::{list, prototype, with_directory};
use crate::da::Content;
use crate::da::memory::Memory;
use crate::da::testing::Image;
use crate::format::block_header::HeaderKind;

/// A sequence of numbers that looks random and is the same each time.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % end as u64) as usize
    }
}

/// Lists the directory and looks names up; what it says of itself must end.
fn ask_everything(directory: Directory<'_>, names: &[String]) {
    let mut count = 0_u64;
    let outcome = read_dir(directory, DirOffset(0), &mut |entry| {
        assert!(!entry.name.is_empty());
        count += 1;
        ControlFlow::Continue(())
    });
    assert!(count < 1 << 20);
    assert!(matches!(outcome, Ok(()) | Err(Error::Corrupt(_))), "{outcome:?}");
    for name in names {
        let found = lookup(directory, name.as_bytes());
        assert!(matches!(found, Ok(_) | Err(Error::Corrupt(_))), "{found:?}");
    }
}

#[test]
fn damaged_bytes_are_answered() {
    let image = Image::make("-b size=1024", &prototype(&[8, 20, 300, 1500]));
    let image = image.open();
    let mut numbers = Numbers(0x9e37_79b9_7f4a_7c15);
    for path in ["/dir8", "/dir20", "/dir300", "/dir1500"] {
        let inode = image.inode(path);
        with_directory(&inode, |directory| {
            let names: Vec<String> = list(directory, 0, usize::MAX)
                .unwrap()
                .into_iter()
                .map(|(name, ..)| name)
                .step_by(97)
                .collect();
            let source = match directory.content {
                Content::Inline(bytes) => {
                    for _ in 0..2000 {
                        let mut bytes = bytes.to_vec();
                        for _ in 0..=numbers.below(3) {
                            let at = numbers.below(bytes.len());
                            bytes[at] = numbers.below(256) as u8;
                        }
                        ask_everything(Directory { content: Content::Inline(&bytes), ..directory }, &names);
                    }
                    return;
                }
                Content::Blocks(blocks) => blocks,
            };
            let unit = inode.layout.dir_block_count();
            let mut whole = Memory { unit, ..Memory::default() };
            let mut at = 0;
            while let Some(present) = source.next_present(at, u32::MAX).unwrap() {
                // Only the kind that it has verifies.
                for kind in [HeaderKind::DirBlock, HeaderKind::DaBlock] {
                    if let Ok(Some(block)) = source.read(present, unit, kind) {
                        whole.blocks.insert(present, block.bytes.to_vec());
                    }
                }
                at = present + unit;
            }
            let present: Vec<u32> = whole.blocks.keys().copied().collect();
            for _ in 0..600 {
                let mut damaged = whole.clone();
                for _ in 0..=numbers.below(3) {
                    let block = present[numbers.below(present.len())];
                    let bytes = damaged.blocks.get_mut(&block).unwrap();
                    // Headers and the first entries steer most.
                    let end = if numbers.below(2) == 0 { 96 } else { bytes.len() };
                    let at = numbers.below(end);
                    bytes[at] = numbers.below(256) as u8;
                }
                ask_everything(Directory { content: Content::Blocks(&damaged), ..directory }, &names);
            }
        });
    }
}

#[test]
fn leaves_in_a_ring_are_corruption() {
    // Two leaves that lead to each other and hold nothing but one hash, so that a search goes on and on.
    let leaf = |forward: u32, back: u32| {
        let mut bytes = vec![0; 4096];
        bytes[..4].copy_from_slice(&forward.to_be_bytes());
        bytes[4..8].copy_from_slice(&back.to_be_bytes());
        bytes[8..10].copy_from_slice(&0x3dff_u16.to_be_bytes());
        bytes[57] = 1;
        bytes[59] = 1;
        bytes[67] = b'a';
        bytes
    };
    let root = (32_u64 << 30 >> 12) as u32;
    let blocks = HashMap::from([(root, leaf(root + 1, root + 1)), (root + 1, leaf(root, root))]);
    let memory = Memory { unit: 1, blocks, ..Memory::default() };
    let image = Image::make("", &prototype(&[]));
    let image = image.open();
    let directory = Directory {
        ino: Ino(128),
        layout: &image.layout,
        superblock: image.volume.superblock(),
        content: Content::Blocks(&memory),
    };
    let error = lookup(directory, b"a").unwrap_err();
    assert!(error.to_string().contains("form a ring"), "{error}");
    assert_eq!(lookup(directory, b"0").unwrap(), None);
}

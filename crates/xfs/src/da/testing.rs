//! Images by mkfs.xfs, whose forks are found with xfs_db: so that directories and attributes are tested without what
//! reads inodes and maps.

use std::collections::HashMap;
use std::ops::Deref;
use std::path::PathBuf;
use std::sync::Arc;

use undercroft_block::{FileDevice, FileOptions};
use undercroft_oracle::{Scratch, Tool};
use undercroft_vfs::{Ino, Result};

use super::mapped::{MappedFork, Piece};
use super::{Content, Layout};
use crate::format::dinode::{self, Dinode, ForkFormat};
use crate::format::{FileBlock, FsBlock, Superblock};
use crate::volume::Volume;

/// An image on the disk.
pub(crate) struct Image {
    scratch: Scratch,
}

/// An image that has been opened, and no longer changes.
pub(crate) struct Opened {
    path: PathBuf,
    pub(crate) volume: Volume,
    pub(crate) layout: Layout,
}

/// One inode of an image.
pub(crate) struct Opening<'a> {
    pub(crate) ino: Ino,
    pub(crate) dinode: Dinode,
    image: &'a Opened,
    bytes: Vec<u8>,
    data: HashMap<u64, FsBlock>,
    attributes: HashMap<u64, FsBlock>,
}

impl Image {
    /// Has mkfs.xfs make an image with these arguments and these files, as mkfs.xfs(8) describes a prototype. CONTENT
    /// stands for a file that is not empty.
    pub(crate) fn make(args: &str, prototype: &str) -> Self {
        let scratch = Scratch::new("xfs").unwrap();
        let image = Self { scratch };
        let list = image.scratch.path().join("prototype");
        let content = image.scratch.path().join("content");
        std::fs::write(&content, "content").unwrap();
        std::fs::write(&list, prototype.replace("CONTENT", &content.to_string_lossy())).unwrap();
        std::fs::File::create(image.path()).unwrap().set_len(400 << 20).unwrap();
        Tool::new("mkfs.xfs")
            .args(["-q", "-f"])
            .args(args.split_whitespace())
            .arg("-p")
            .arg(&list)
            .arg(image.path())
            .run()
            .unwrap();
        image
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.scratch.path().join("image")
    }

    /// Has xfs_db carry out commands that change the image.
    pub(crate) fn change(&self, commands: &str) {
        Tool::new("xfs_db").arg("-x").arg(self.path()).input(commands.as_bytes()).run().unwrap();
    }

    pub(crate) fn open(&self) -> Opened {
        let path = self.path();
        let device = Arc::new(FileDevice::open(&path, FileOptions::read_only()).unwrap());
        let superblock = Superblock::read(&*device).unwrap();
        let layout = Layout::of(&superblock);
        Opened { volume: Volume::new(device, superblock, 8 << 20), layout, path }
    }
}

impl Opened {
    /// What xfs_db answers to commands.
    pub(crate) fn ask(&self, commands: &[&str]) -> String {
        let commands = commands.iter().flat_map(|command| ["-c", command]);
        Tool::new("xfs_db").arg("-r").args(commands).arg(&self.path).run_text().unwrap()
    }

    pub(crate) fn inode(&self, path: &str) -> Opening<'_> {
        let found = self.ask(&[&format!("path {path}"), "inode", "bmap -d", "bmap -a"]);
        let number = found.lines().find_map(|line| line.strip_prefix("current inode number is "));
        let ino = Ino(number.unwrap().trim().parse().unwrap());
        let (block, at) = self.volume.geometry().inode_place(ino).unwrap();
        let bytes = self.volume.read_block(block).unwrap();
        let bytes = bytes[at..at + self.volume.geometry().inode_bytes() as usize].to_vec();
        let dinode = dinode::validate(&bytes, self.volume.superblock(), ino).unwrap().unwrap();
        let fork = |prefix: &str| {
            let mut blocks = HashMap::new();
            // "data offset 0 startblock 2057 (1/9) count 1 flag 0"
            for line in found.lines().filter(|line| line.starts_with(prefix)) {
                let words: Vec<&str> = line.split_whitespace().collect();
                let number = |at: usize| words[at].parse::<u64>().unwrap();
                blocks.extend((0..number(7)).map(|n| (number(2) + n, FsBlock(number(4) + n))));
            }
            blocks
        };
        Opening { ino, dinode, image: self, data: fork("data"), attributes: fork("attr"), bytes }
    }
}

impl Opening<'_> {
    /// Calls `look` with the content of the data fork.
    pub(crate) fn with_data<T>(&self, look: impl FnOnce(Content<'_>) -> T) -> T {
        let size = self.dinode.size_bytes as usize;
        match self.dinode.data_format {
            ForkFormat::Local => look(Content::Inline(&self.bytes[self.dinode.data_fork.clone()][..size])),
            _ => self.with_blocks(&self.data, look),
        }
    }

    /// Calls `look` with the content of the attribute fork.
    pub(crate) fn with_attributes<T>(&self, look: impl FnOnce(Content<'_>) -> T) -> T {
        match self.dinode.attr_format {
            ForkFormat::Local => look(Content::Inline(&self.bytes[self.dinode.attr_fork.clone()])),
            _ => self.with_blocks(&self.attributes, look),
        }
    }

    fn with_blocks<T>(&self, blocks: &HashMap<u64, FsBlock>, look: impl FnOnce(Content<'_>) -> T) -> T {
        let mut present: Vec<u64> = blocks.keys().copied().collect();
        present.sort_unstable();
        let map = |at: FileBlock| -> Result<Piece> {
            let home = blocks.get(&at.0).copied();
            let next = present[present.partition_point(|&present| present <= at.0)..].first();
            let hole = next.map_or(u64::MAX - at.0, |next| next - at.0);
            Ok(Piece { len: if home.is_some() { 1 } else { hole }, home })
        };
        let (volume, owner) = (&self.image.volume, self.ino);
        look(Content::Blocks(&MappedFork { volume, owner, structure: "fork", map }))
    }
}

impl Deref for Opening<'_> {
    type Target = Opened;
    fn deref(&self) -> &Opened {
        self.image
    }
}

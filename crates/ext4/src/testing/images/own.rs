//! Images by this crate's own mkfs, which takes the arguments that the tests give mke2fs, filled by its own writer and
//! checked by its own check.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use undercroft_block::{BlockDevice, FileDevice, FileOptions, Locking};
use undercroft_oracle::{Error, Result};
use undercroft_vfs::{Credentials, Vfs, VfsOptions};
use uuid::Uuid;

use crate::check::{CheckOptions, check};
use crate::{Ext4, Family, MkfsOptions, OpenOptions, WriteOptions, mkfs};

/// The seed of names' hashes: directories have the same shape in every run.
const HASH_SEED: Uuid = Uuid::from_u128(0xa3c1_f0de_5b7e_4c0b_9d55_0c6b_2e9c_7d11);

fn unfit<E: ToString>(error: E) -> Error {
    Error::Unfit(error.to_string())
}

/// How to make a filesystem: what the oracle's type of this name offers, as far as tests use it.
#[derive(Clone, Debug)]
pub(crate) struct Mke2fs {
    kind: &'static str,
    size_bytes: u64,
    options: MkfsOptions,
    /// The directory whose content the root gets.
    source: Option<PathBuf>,
}

impl Mke2fs {
    pub(crate) fn new(kind: &'static str, size_mib: u64) -> Self {
        let family = match kind {
            "ext2" => Family::Ext2,
            "ext3" => Family::Ext3,
            "ext4" => Family::Ext4,
            other => panic!("there is no family {other}"),
        };
        let options = MkfsOptions { hash_seed: Some(HASH_SEED), ..MkfsOptions::new(family) };
        Self { kind, size_bytes: size_mib << 20, options, source: None }
    }

    fn with(mut self, change: impl FnOnce(&mut MkfsOptions)) -> Self {
        change(&mut self.options);
        self
    }

    pub(crate) fn block_bytes(self, bytes: u32) -> Self {
        self.with(|options| options.block_bytes = Some(bytes))
    }

    pub(crate) fn inode_bytes(self, bytes: u16) -> Self {
        self.with(|options| options.inode_bytes = Some(bytes))
    }

    pub(crate) fn inodes(self, count: u32) -> Self {
        self.with(|options| options.inodes = Some(count))
    }

    pub(crate) fn features(self, list: &str) -> Self {
        self.with(|options| list.clone_into(&mut options.features))
    }

    /// Backups of a `sparse_super2` filesystem: this mkfs makes the default number of them.
    pub(crate) fn extended(self, list: &str) -> Self {
        assert_eq!(list, "num_backup_sb=0");
        self
    }

    pub(crate) fn args<'a>(mut self, args: impl IntoIterator<Item = &'a str>) -> Self {
        let args: Vec<&str> = args.into_iter().collect();
        for pair in args.chunks(2) {
            match *pair {
                ["-d", source] => self.source = Some(source.into()),
                ["-m", percent] => self.options.reserved_percent = Some(percent.parse().unwrap()),
                ["-J", size] => {
                    let mib: u64 = size.strip_prefix("size=").unwrap().parse().unwrap();
                    self.options.journal_bytes = Some(mib << 20);
                }
                ref other => panic!("no argument of mke2fs that is known here: {other:?}"),
            }
        }
        self
    }

    pub(crate) fn make(&self) -> Result<Image> {
        let image = Image(undercroft_oracle::Image::empty(self.kind, self.size_bytes)?);
        let device = FileDevice::open(image.path(), FileOptions::read_write()).map_err(unfit)?;
        mkfs(&device, &self.options).map_err(unfit)?;
        if let Some(source) = &self.source {
            let fs = Ext4::open(Arc::new(device), OpenOptions::default(), WriteOptions::default());
            let vfs = Vfs::new(fs.map_err(unfit)?, VfsOptions::default());
            fill(&vfs, source, b"/")?;
            vfs.close().map_err(unfit)?;
        }
        Ok(image)
    }
}

/// Copies the directories and files of a directory, in the order of their names.
fn fill(vfs: &Vfs, source: &Path, target: &[u8]) -> Result<()> {
    let root = Credentials::root();
    let entries = std::fs::read_dir(source).map_err(unfit)?;
    let mut names = entries
        .map(|entry| entry.map(|entry| entry.file_name()))
        .collect::<std::io::Result<Vec<_>>>()
        .map_err(unfit)?;
    names.sort();
    for name in names {
        let source = source.join(&name);
        let target = [target, b"/", name.as_encoded_bytes()].concat();
        if source.is_dir() {
            vfs.create_dir(&root, &target).map_err(unfit)?;
            fill(vfs, &source, &target)?;
        } else {
            vfs.write(&root, &target, std::fs::read(&source).map_err(unfit)?).map_err(unfit)?;
        }
    }
    Ok(())
}

/// An image file in a scratch directory of its own.
#[derive(Debug)]
pub(crate) struct Image(undercroft_oracle::Image);

impl Image {
    pub(crate) fn of_device(kind: &'static str, device: &dyn BlockDevice) -> Result<Self> {
        undercroft_oracle::Image::of_device(kind, device).map(Self)
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    pub(crate) fn copy(&self) -> Result<Self> {
        self.0.copy().map(Self)
    }

    /// Checks everything, without changing anything.
    pub(crate) fn check(&self) -> Result<()> {
        let options = FileOptions { locking: Locking::None, ..FileOptions::read_only() };
        let device = FileDevice::open(self.path(), options).map_err(unfit)?;
        let report = check(Arc::new(device), &CheckOptions::default()).map_err(unfit)?;
        if report.is_clean() { Ok(()) } else { Err(Error::Unfit(format!("{:?}", report.findings))) }
    }
}

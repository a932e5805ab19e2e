//! ext4 or XFS: how an image is made, opened, checked, and read again.

use std::path::Path;
use std::sync::Arc;

use undercroft_block::Device;
use undercroft_oracle::{Image, Mke2fs, MkfsXfs, Tool};
use undercroft_vfs::{FileSystem, Result, Vfs};
use undercroft_xfs::Xfs;

/// How an image is made.
#[derive(Clone, Debug)]
pub(crate) enum Make {
    Ext4(Mke2fs),
    Xfs(MkfsXfs),
}

/// How it is written to.
#[derive(Clone, Copy, Debug)]
pub(crate) enum How {
    Ext4(undercroft_ext4::WriteOptions),
    Xfs(undercroft_xfs::WriteOptions),
}

impl Make {
    pub(crate) fn make(&self) -> undercroft_oracle::Result<Image> {
        match self {
            Self::Ext4(mke2fs) => mke2fs.make(),
            Self::Xfs(mkfs) => mkfs.make(),
        }
    }
}

impl How {
    /// As each is opened when nothing is said.
    pub(crate) fn usual(make: &Make) -> Self {
        match make {
            Make::Ext4(_) => Self::Ext4(undercroft_ext4::WriteOptions::default()),
            Make::Xfs(_) => Self::Xfs(undercroft_xfs::WriteOptions::default()),
        }
    }

    /// With commits only when a thread asks for them, so that a seed leads to the same requests.
    pub(crate) fn without_clock(self) -> Self {
        match self {
            Self::Ext4(how) => Self::Ext4(undercroft_ext4::WriteOptions { commit_seconds: 3600, ..how }),
            Self::Xfs(how) => Self::Xfs(undercroft_xfs::WriteOptions { commit_seconds: 3600, ..how }),
        }
    }

    pub(crate) fn open(self, device: Device) -> Result<Arc<dyn FileSystem>> {
        Ok(match self {
            Self::Ext4(how) => {
                undercroft_ext4::Ext4::open(device, undercroft_ext4::OpenOptions::default(), how)?
            }
            Self::Xfs(how) => Xfs::open(device, undercroft_xfs::OpenOptions::default(), how)?,
        })
    }

    /// The kernel's name of the filesystem.
    pub(crate) const fn kind(self) -> &'static str {
        match self {
            Self::Ext4(_) => "ext4",
            Self::Xfs(_) => "xfs",
        }
    }

    /// Options with which the kernel mounts several copies of one image at once.
    pub(crate) const fn mounted(self) -> &'static str {
        match self {
            Self::Ext4(_) => "noatime",
            Self::Xfs(_) => "noatime,nouuid",
        }
    }

    /// What Linux's own checker finds wrong.
    pub(crate) fn check(self, image: &Path) -> std::result::Result<(), String> {
        let tool = match self {
            Self::Ext4(_) => Tool::new("e2fsck").args(["-f", "-n"]),
            // Of a single group there is no copy that the geometry could be compared with.
            Self::Xfs(_) => Tool::new("xfs_repair").args(["-n", "-o", "force_geometry"]),
        };
        tool.arg(image).run().map(drop).map_err(|error| error.to_string())
    }

    /// The filesystem in a file, read-only.
    pub(crate) fn read(self, image: &Path) -> Arc<Vfs> {
        match self {
            Self::Ext4(_) => undercroft_oracle::open_ext4(image).unwrap().1,
            Self::Xfs(_) => undercroft_oracle::open_xfs(image).unwrap().1,
        }
    }
}

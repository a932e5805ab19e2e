//! ext4 or XFS: how an image is made, opened, checked, and read again.

use std::path::Path;
use std::sync::Arc;

use undercroft_block::{Device, FileDevice, FileOptions};
use undercroft_ext4::Ext4;
use undercroft_vfs::{FileSystem, Vfs};
use undercroft_xfs::Xfs;

use crate::{Error, Image, Mke2fs, MkfsXfs, Result, Tool, open_ext4, open_xfs};

/// How an image is made.
#[derive(Clone, Debug)]
pub enum Make {
    /// By mke2fs.
    Ext4(Mke2fs),
    /// By mkfs.xfs.
    Xfs(MkfsXfs),
}

/// How it is written to.
#[derive(Clone, Copy, Debug)]
pub enum How {
    /// As ext2, ext3 or ext4.
    Ext4(undercroft_ext4::WriteOptions),
    /// As XFS.
    Xfs(undercroft_xfs::WriteOptions),
}

impl Make {
    /// Makes the image.
    ///
    /// # Errors
    /// What mke2fs or mkfs.xfs said.
    pub fn make(&self) -> Result<Image> {
        match self {
            Self::Ext4(mke2fs) => mke2fs.make(),
            Self::Xfs(mkfs) => mkfs.make(),
        }
    }
}

impl How {
    /// As each is opened when nothing is said.
    #[must_use]
    pub fn usual(make: &Make) -> Self {
        match make {
            Make::Ext4(_) => Self::Ext4(undercroft_ext4::WriteOptions::default()),
            Make::Xfs(_) => Self::Xfs(undercroft_xfs::WriteOptions::default()),
        }
    }

    /// The same for what an image holds, by its kind.
    #[must_use]
    pub fn of(image: &Image) -> Self {
        match image.kind() {
            "xfs" => Self::Xfs(undercroft_xfs::WriteOptions::default()),
            _ => Self::Ext4(undercroft_ext4::WriteOptions::default()),
        }
    }

    /// With commits only when a thread asks for them, so that a seed leads to the same requests.
    #[must_use]
    pub fn without_clock(self) -> Self {
        match self {
            Self::Ext4(how) => Self::Ext4(undercroft_ext4::WriteOptions { commit_seconds: 3600, ..how }),
            Self::Xfs(how) => Self::Xfs(undercroft_xfs::WriteOptions { commit_seconds: 3600, ..how }),
        }
    }

    /// Opens the filesystem on a device for writing.
    ///
    /// # Errors
    /// What our side said.
    pub fn open(self, device: Device) -> undercroft_vfs::Result<Arc<dyn FileSystem>> {
        Ok(match self {
            Self::Ext4(how) => Ext4::open(device, undercroft_ext4::OpenOptions::default(), how)?,
            Self::Xfs(how) => Xfs::open(device, undercroft_xfs::OpenOptions::default(), how)?,
        })
    }

    /// The same in a file.
    ///
    /// # Errors
    /// The file is in use; what our side said.
    pub fn open_file(self, image: &Path) -> Result<Arc<dyn FileSystem>> {
        let device = FileDevice::open(image, FileOptions::read_write())
            .map_err(|error| Error::Unfit(format!("our side cannot open the image: {error}")))?;
        let failed = |source| Error::Undercroft { action: "open", path: image.display().to_string(), source };
        self.open(Arc::new(device)).map_err(failed)
    }

    /// The kernel's name of the filesystem.
    #[must_use]
    pub const fn kind(self) -> &'static str {
        match self {
            Self::Ext4(_) => "ext4",
            Self::Xfs(_) => "xfs",
        }
    }

    /// Options with which the kernel mounts several copies of one image at once.
    #[must_use]
    pub const fn mounted(self) -> &'static str {
        match self {
            Self::Ext4(_) => "noatime",
            Self::Xfs(_) => "noatime,nouuid",
        }
    }

    /// Asks Linux's own checker whether everything is in order, without changing anything.
    ///
    /// # Errors
    /// What it finds wrong.
    pub fn check(self, image: &Path) -> Result<()> {
        let tool = match self {
            Self::Ext4(_) => Tool::new("e2fsck").args(["-f", "-n"]),
            // Of a single group there is no copy that the geometry could be compared with.
            Self::Xfs(_) => Tool::new("xfs_repair").args(["-n", "-o", "force_geometry"]),
        };
        tool.arg(image).run().map(drop)
    }

    /// The filesystem in a file, read-only.
    ///
    /// # Panics
    /// It cannot be opened.
    #[must_use]
    pub fn read(self, image: &Path) -> Arc<Vfs> {
        match self {
            Self::Ext4(_) => open_ext4(image).unwrap().1,
            Self::Xfs(_) => open_xfs(image).unwrap().1,
        }
    }
}

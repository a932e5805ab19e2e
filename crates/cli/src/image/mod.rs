//! Opens an IMAGE argument: file or device, partition, filesystem.
//!
//! A filesystem on the whole device comes first, whatever the first sector says: a partition can always be named,
//! the whole device cannot. Otherwise the partition that was named, or the only one that can be meant.

mod partition;
mod recognise;

use std::io::{self, IsTerminal};
use std::sync::Arc;

use undercroft_block::{Device, FileOptions, ImageOptions, Locking, OpenError, open_image};
use undercroft_ext4::{Ext4, MmpWait, OpenOptions, Superblock};
use undercroft_vfs::{self as vfs, Credentials, Follow, Node, Vfs, VfsOptions};

use crate::exit::Kind;
use crate::failure::Failure;
use crate::plan::ImageSpec;
use crate::text::names::safe;

/// An open filesystem.
pub(crate) struct Opened {
    /// The filesystem with its caches.
    pub(crate) vfs: Arc<Vfs>,
    /// The filesystem by its own type, for `info`.
    pub(crate) ext4: Arc<Ext4>,
    /// The partition it lies in.
    pub(crate) partition: Option<u32>,
}

/// Opens what the user named.
pub(crate) fn open(spec: &ImageSpec) -> Result<Opened, Failure> {
    let device = open_device(spec)?;
    let (device, partition) = partition::choose(spec, device)?;
    let shown = match partition {
        Some(number) if spec.partition.is_none() => format!("{} (partition {number})", spec.shown()),
        Some(number) => format!("{}?part={number}", spec.shown()),
        None => spec.shown(),
    };
    open_filesystem(device, partition, &shown)
}

/// Opens the filesystem on a device.
pub(crate) fn open_filesystem(
    device: Device,
    partition: Option<u32>,
    shown: &str,
) -> Result<Opened, Failure> {
    let device_failed =
        |error: vfs::Error| Failure::new(Kind::of(&error), format!("cannot read {shown}")).because(&error);
    if !Superblock::is_present(&*device).map_err(device_failed)? {
        let found = recognise::content(&*device).map_err(|error| device_failed(error.into()))?;
        return Err(match found {
            Some(name) => Failure::new(
                Kind::Unsupported,
                format!("{shown} holds {name}, which this version cannot open"),
            )
            .advise("it opens ext2, ext3 and ext4"),
            None => Failure::new(
                Kind::Unsupported,
                format!("{shown} holds no filesystem that this program knows"),
            )
            .advise("it opens ext2, ext3 and ext4, on a whole disk or in a partition"),
        });
    }
    let options = OpenOptions { on_mmp_wait: tell_of_wait, ..OpenOptions::default() };
    let ext4 = Ext4::open_read_only(device, options).map_err(|error| {
        let failure =
            Failure::new(Kind::of(&error), format!("cannot open the filesystem on {shown}")).because(&error);
        match error {
            vfs::Error::Corrupt(_) => failure.advise("work on a copy, and let e2fsck look at it"),
            _ => failure,
        }
    })?;
    let vfs = Vfs::new(Arc::clone(&ext4) as Arc<dyn vfs::FileSystem>, VfsOptions::default());
    Ok(Opened { vfs, ext4, partition })
}

/// Whoever sits at a terminal should know why nothing happens.
fn tell_of_wait(wait: &MmpWait) {
    if io::stderr().is_terminal() {
        let (seconds, host) = (wait.at_most.as_secs(), safe(wait.host.as_bytes()));
        eprintln!("waiting {seconds} s to see whether host \"{host}\" is using the image");
    }
}

/// What a path inside the image names. Whoever holds the image may read all of it.
pub(crate) fn resolve(vfs: &Vfs, path: &[u8], follow: bool) -> Result<Arc<Node>, Failure> {
    let follow = if follow { Follow::Last } else { Follow::NoFollow };
    vfs.resolve(&Credentials::root(), path, follow).map_err(|error| Failure::inside(path, &error))
}

/// The disk that the file or block device holds.
fn open_device(spec: &ImageSpec) -> Result<Device, Failure> {
    let locking = if spec.lock { Locking::Advisory } else { Locking::None };
    let file = FileOptions { direct: spec.direct, locking, ..FileOptions::read_only() };
    let options = ImageOptions { file, allow_backing: spec.allow_backing, ..ImageOptions::read_only() };
    open_image(&spec.path, options).map_err(|error| open_failure(&error))
}

fn open_failure(error: &OpenError) -> Failure {
    let kind = match error {
        OpenError::UnsupportedFormat { .. } => Kind::Unsupported,
        _ => Kind::CannotOpen,
    };
    let failure = Failure::of(kind, error);
    match error {
        OpenError::System { source, .. } => match source.kind() {
            io::ErrorKind::NotFound => failure.advise("check the path"),
            io::ErrorKind::PermissionDenied => {
                failure.advise("run as a user who may read it; disks usually belong to root")
            }
            _ => failure,
        },
        OpenError::NotADevice { .. } => failure.advise("name a disk image or a block device"),
        OpenError::InUse { .. } => failure.advise("`--no-lock` opens it without locking"),
        OpenError::DirectUnsupported { .. } => failure.advise("leave `--direct` off"),
        OpenError::OtherFileDenied { .. } => failure.advise("`--allow-backing` allows it"),
        _ => failure,
    }
}

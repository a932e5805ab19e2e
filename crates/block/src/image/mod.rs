//! Disk images of any format: what a file holds is found out by its first bytes and opened accordingly.
//!
//! A raw image has no mark, so everything that is not recognised is raw. Formats that are recognised and cannot be
//! opened are refused by name: read as raw they would look like a disk with rubbish on it.
//!
//! An image that a stranger may have written decides by its first bytes what it is taken for. That is harmless as
//! long as it cannot name other files, which is therefore not allowed unless asked for.

mod counts;
mod gate;
mod header;
mod magic;
#[cfg(feature = "test-devices")]
mod on_device;
mod ordered;
mod qcow2;
mod tables;

use std::path::Path;
use std::sync::Arc;

pub use qcow2::Qcow2Device;

use self::magic::Found;
use crate::{Device, FileDevice, FileOptions, OpenError};

/// The image formats that can be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImageFormat {
    /// The bytes of the disk, one after the other; also any block device.
    Raw,
    /// The format of QEMU.
    Qcow2,
}

/// How an image is to be opened.
#[derive(Clone, Copy, Debug)]
pub struct ImageOptions {
    /// How its file is to be opened.
    pub file: FileOptions,
    /// Its format; `None` to go by its first bytes.
    pub format: Option<ImageFormat>,
    /// Whether other files that the image names are opened as well: backing files and external data files.
    pub allow_backing: bool,
}

impl ImageOptions {
    /// To be read, by its first bytes, without other files.
    #[must_use]
    pub const fn read_only() -> Self {
        Self { file: FileOptions::read_only(), format: None, allow_backing: false }
    }

    /// To be read and written, by its first bytes, without other files.
    #[must_use]
    pub const fn read_write() -> Self {
        Self { file: FileOptions::read_write(), ..Self::read_only() }
    }
}

/// Opens a disk image or a block device.
///
/// # Errors
/// [`OpenError`]: as for [`FileDevice::open`], or the format is not supported, the image is damaged, or it needs
/// files that were not allowed.
pub fn open_image(path: impl AsRef<Path>, options: ImageOptions) -> Result<Device, OpenError> {
    let file = FileDevice::open(path, options.file)?;
    let format = match options.format {
        Some(format) => format,
        None => match magic::look(&file)? {
            Found::Format(format) => format,
            Found::Unsupported { format, advice } => {
                return Err(OpenError::UnsupportedFormat { path: file.path().to_owned(), format, advice });
            }
        },
    };
    Ok(match format {
        ImageFormat::Raw => Arc::new(file),
        ImageFormat::Qcow2 => Arc::new(Qcow2Device::open(file, options)?),
    })
}

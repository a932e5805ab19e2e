//! A qcow2 image as a device. The format is imago's affair; here are ranges, refusals and errors.
//!
//! Compressed clusters, backing files and external data files are read; writes allocate clusters as they need
//! them. Discards give nothing back: imago does that only for a sole owner.
//! Left out: encryption, and the features that imago does not know, which it refuses by name.
//!
//! Locks: imago's own, inside its calls. It calls no device of ours, so they never meet ours.

use std::io;
use std::rc::Rc;

use imago::file::File;
use imago::qcow2::Qcow2;
use imago::{FormatAccess, StorageOpenOptions};

use super::gate::Gate;
use super::{ImageOptions, header};
use crate::device::{check_range, check_write};
use crate::{Access, BlockDevice, Error, FileDevice, OpenError, Operation, Result};

/// A qcow2 image, opened.
#[derive(Debug)]
pub struct Qcow2Device {
    /// Before the files: it writes what it still holds when it is dropped, and only then may locks be given back.
    image: FormatAccess<File>,
    file: FileDevice,
    /// Keep the locks of backing files and external data files.
    _others: Vec<FileDevice>,
    size_bytes: u64,
}

impl Qcow2Device {
    /// Opens the image in a file. Other files that it needs are opened if `options` allow it.
    ///
    /// # Errors
    /// [`OpenError::OtherFileDenied`], or [`OpenError::Image`] if the image is damaged or needs what is not
    /// supported.
    pub fn open(file: FileDevice, options: ImageOptions) -> std::result::Result<Self, OpenError> {
        let path = file.path().to_owned();
        let failed = |source| OpenError::Image { path: path.clone(), format: "qcow2", source };
        header::check(&file).map_err(failed)?;
        let writable = file.access() == Access::ReadWrite;
        let storage_options =
            StorageOpenOptions::new().filename(&path).write(writable).direct(options.file.direct);
        let storage =
            file.duplicate().and_then(|file| File::from_open_file(file, storage_options)).map_err(failed)?;
        let mut image: Qcow2<File> = Qcow2::open_image(storage, writable).map_err(failed)?;
        let others = Rc::default();
        let named = if image.requires_external_data_file() {
            Some(image.implicit_external_data_file().cloned().unwrap_or_default())
        } else {
            image.implicit_backing_file().cloned()
        };
        match named {
            Some(named) if !options.allow_backing => return Err(OpenError::OtherFileDenied { path, named }),
            _ => image
                .open_implicit_dependencies_gated(Gate::new(options.file, Rc::clone(&others)))
                .map_err(failed)?,
        }
        let image = FormatAccess::new(image);
        Ok(Self { size_bytes: image.size(), image, file, _others: others.take() })
    }

    fn error(&self, operation: Operation, offset: u64, len: u64, source: io::Error) -> Error {
        Error::Io { operation, offset, len, device: self.name(), source }
    }
}

impl BlockDevice for Qcow2Device {
    fn name(&self) -> String {
        self.file.name()
    }

    fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    fn access(&self) -> Access {
        self.file.access()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        let len = buf.len() as u64;
        check_range(self, Operation::Read, offset, len)?;
        self.image.read(buf, offset).map_err(|source| self.error(Operation::Read, offset, len, source))
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> Result<()> {
        let len = data.len() as u64;
        check_write(self, Operation::Write, offset, len)?;
        self.image.write(data, offset).map_err(|source| self.error(Operation::Write, offset, len, source))
    }

    fn flush(&self) -> Result<()> {
        if self.access() == Access::ReadOnly {
            return Ok(());
        }
        let done = self.image.flush().and_then(|()| self.image.sync());
        done.map_err(|source| self.error(Operation::Flush, 0, self.size_bytes, source))
    }

    fn write_zeroes(&self, offset: u64, len: u64) -> Result<()> {
        check_write(self, Operation::WriteZeroes, offset, len)?;
        let done = self.image.write_zeroes(offset, len);
        done.map_err(|source| self.error(Operation::WriteZeroes, offset, len, source))
    }
}

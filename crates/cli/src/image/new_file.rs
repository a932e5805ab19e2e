//! New image files: raw, or qcow2 where the name says so.
//!
//! A file that is empty is as good as one that is not there. A name that stands for a format that is not made here is
//! refused: a raw image of that name would be taken for something else by other programs.

use std::fs::{self, File};
use std::io;
use std::path::Path;

use undercroft_block::{FileDevice, FileOptions, ImageFormat, Qcow2Device};

use super::open_failure;
use crate::exit::Kind;
use crate::failure::Failure;
use crate::plan::ImageSpec;

/// Ends of names that stand for formats of disk images.
const NAMED: [(&str, Option<ImageFormat>); 8] = [
    ("qcow2", Some(ImageFormat::Qcow2)),
    ("qcow", None),
    ("qed", None),
    ("vdi", None),
    ("vhd", None),
    ("vhdx", None),
    ("vmdk", None),
    ("vpc", None),
];

/// The format of a new file: the one that was asked for, or the one that its name stands for, or raw.
pub(crate) fn format_of(path: &Path, asked: Option<ImageFormat>) -> Result<ImageFormat, Failure> {
    if let Some(format) = asked {
        return Ok(format);
    }
    let end = path.extension().and_then(|end| end.to_str()).unwrap_or_default();
    match NAMED.iter().find(|(known, _)| end.eq_ignore_ascii_case(known)) {
        None => Ok(ImageFormat::Raw),
        Some((_, Some(format))) => Ok(*format),
        Some((end, None)) => {
            let shown = ImageSpec::plain(path.to_owned()).shown();
            Err(Failure::new(Kind::Unsupported, format!("{shown}: images of the format {end} are not made"))
                .advise("take a name that ends in .qcow2, or one of another ending for a raw image"))
        }
    }
}

/// Makes a file that is not there.
pub(crate) fn make(spec: &ImageSpec, size_bytes: u64, format: ImageFormat) -> Result<(), Failure> {
    File::create_new(&spec.path)
        .map_err(|error| Failure::host(format!("cannot make {}", spec.shown()), &error))?;
    fill(spec, size_bytes, format).inspect_err(|_| {
        let _ = fs::remove_file(&spec.path);
    })
}

/// Makes an image of a file that is empty.
pub(crate) fn fill(spec: &ImageSpec, size_bytes: u64, format: ImageFormat) -> Result<(), Failure> {
    match format {
        ImageFormat::Raw => resize(spec, size_bytes),
        ImageFormat::Qcow2 => {
            let file = FileDevice::open(&spec.path, FileOptions::read_write());
            file.and_then(|file| Qcow2Device::create(&file, size_bytes)).map_err(|error| open_failure(&error))
        }
    }
}

/// Gives a raw image another size.
pub(crate) fn resize(spec: &ImageSpec, size_bytes: u64) -> Result<(), Failure> {
    let done = File::options().write(true).open(&spec.path).and_then(|file| file.set_len(size_bytes));
    done.map_err(|error| not_so_large(&spec.shown(), size_bytes, &error))
}

/// Why a file, as the user knows it, cannot be so large.
pub(crate) fn not_so_large(shown: &str, size_bytes: u64, error: &io::Error) -> Failure {
    let failure = Failure::host(format!("cannot make {shown} {size_bytes} bytes large"), error);
    match error.kind() {
        // The standard library refuses what the system has no number for.
        io::ErrorKind::FileTooLarge | io::ErrorKind::InvalidInput => {
            failure.advise("its filesystem takes no file of this size: put it on another, or make it qcow2")
        }
        _ => failure,
    }
}

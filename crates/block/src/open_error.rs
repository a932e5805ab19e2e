//! Why a device or an image could not be opened: one sentence with the file, the reason and a way out.

use std::io;
use std::path::PathBuf;

use crate::Access;
use crate::file::{Holder, Shown};

/// An opening that did not succeed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// A system call failed.
    #[error("cannot {action} {}: {source}", path.display())]
    System {
        /// What was being done, as a verb.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The file is neither a regular file nor a block device.
    #[error("{} is a {kind}, not an image file or a block device", path.display())]
    NotADevice {
        /// The file.
        path: PathBuf,
        /// What it is instead.
        kind: &'static str,
    },
    /// Something else uses the file, and excludes this opener.
    #[error(
        "cannot open {} for {}: it is in use: {}; {}", path.display(), use_of(*wanted), Shown(holders),
        way_out(*wanted)
    )]
    InUse {
        /// The file.
        path: PathBuf,
        /// What was asked for.
        wanted: Access,
        /// What uses it.
        holders: Vec<Holder>,
    },
    /// The filesystem the file lies on has no locks.
    #[error("cannot lock {}: {source}; {}", path.display(), without_locks(*wanted))]
    LockUnsupported {
        /// The file.
        path: PathBuf,
        /// What was asked for.
        wanted: Access,
        /// What the system said.
        source: io::Error,
    },
    /// The filesystem the file lies on has no direct I/O.
    #[error("{} does not allow direct I/O; open it through the page cache", path.display())]
    DirectUnsupported {
        /// The file.
        path: PathBuf,
    },
    /// Direct writes cannot reach the last bytes of the file.
    #[error(
        "cannot write to {} with direct I/O: its size of {size} bytes is not a multiple of {align}; open it \
         through the page cache", path.display()
    )]
    DirectSize {
        /// The file.
        path: PathBuf,
        /// Its size in bytes.
        size: u64,
        /// What direct I/O needs, in bytes.
        align: u64,
    },
    /// The file is of a format that is recognised and not supported.
    #[error("{} is {format}, which cannot be opened; {advice}", path.display())]
    UnsupportedFormat {
        /// The file.
        path: PathBuf,
        /// What it is, with its article.
        format: &'static str,
        /// What to do instead.
        advice: &'static str,
    },
    /// The image wants other files opened, and that has not been allowed.
    #[error(
        "{} needs another file, {named:?}, which has not been opened because the image comes from elsewhere and may \
         name any file; allow it if you trust the image", path.display()
    )]
    OtherFileDenied {
        /// The image.
        path: PathBuf,
        /// The file that the image names, as it names it.
        named: String,
    },
    /// The image can be read, and writing to it would destroy what is in it.
    #[error(
        "cannot open {} for writing, as that would destroy what is in it: {finding}; repair it first: qemu-img check \
         -f {format} -r all IMAGE (it can be read as it is)", path.display()
    )]
    Inconsistent {
        /// The file.
        path: PathBuf,
        /// Its format.
        format: &'static str,
        /// What is wrong.
        finding: String,
    },
    /// The image is damaged, or uses features that are not supported.
    #[error("cannot open {} as a {format} image: {source}", path.display())]
    Image {
        /// The file.
        path: PathBuf,
        /// Which format it was taken for.
        format: &'static str,
        /// What is wrong.
        source: io::Error,
    },
    /// A new image cannot be made in the file.
    #[error("cannot make {} a {format} image: {source}", path.display())]
    NewImage {
        /// The file.
        path: PathBuf,
        /// Which format it was to have.
        format: &'static str,
        /// What is in the way.
        source: io::Error,
    },
}

fn use_of(access: Access) -> &'static str {
    match access {
        Access::ReadOnly => "reading",
        Access::ReadWrite => "writing",
    }
}

fn way_out(wanted: Access) -> &'static str {
    match wanted {
        Access::ReadOnly => {
            "wait until that is done, or open without locking to look at content that may change meanwhile"
        }
        Access::ReadWrite => "end that first, as two writers would destroy what is on it",
    }
}

fn without_locks(wanted: Access) -> &'static str {
    match wanted {
        Access::ReadOnly => "open it without locking if nothing else writes to it",
        Access::ReadWrite => "copy it to a filesystem that has locks",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sentences_that_span_lines_have_single_spaces() {
        let path = || PathBuf::from("disk.img");
        for error in [
            OpenError::OtherFileDenied { path: path(), named: "base.img".to_owned() },
            OpenError::Inconsistent { path: path(), format: "qcow2", finding: "a finding".to_owned() },
            OpenError::DirectSize { path: path(), size: 513, align: 512 },
            OpenError::InUse { path: path(), wanted: Access::ReadWrite, holders: vec![Holder::ThisProgram] },
        ] {
            let told = error.to_string();
            assert!(!told.contains("  "), "{told}");
        }
    }
}

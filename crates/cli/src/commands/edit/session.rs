//! An image that is open for edits.

use std::fs;

use undercroft_populate::FileId;
use undercroft_vfs::{Credentials, Vfs, VfsOptions};

use crate::control::client;
use crate::exit::Kind;
use crate::failure::Failure;
use crate::image::writing::Writing;
use crate::image::{self, Opened, Use};
use crate::plan::ImageSpec;

/// With what rights edits are made: the image's user may change all of it.
pub(super) const CALLER: Credentials = Credentials::root();

/// What new files do not get, unless their directory hands on an access control list.
pub(super) const UMASK: u16 = 0o022;

/// An image that is open for edits.
pub(crate) struct Session {
    pub(crate) opened: Opened,
    shown: String,
    /// The file that the image is in, where it is one.
    pub(super) file: Option<FileId>,
    writes: bool,
}

impl Session {
    /// Opens an image, to change it or only to look.
    ///
    /// # Errors
    /// It is mounted or used otherwise; it cannot be opened.
    pub(crate) fn open(spec: &ImageSpec, writes: bool) -> Result<Self, Failure> {
        let opened = if writes {
            refuse_mounted(spec)?;
            image::open_for(spec, Use::Write(Writing::by_tool()), VfsOptions::default())?
        } else {
            image::open(spec)?
        };
        Ok(Self { opened, shown: spec.shown(), file: file_of(spec), writes })
    }

    /// The filesystem with its caches.
    pub(super) fn vfs(&self) -> &Vfs {
        &self.opened.vfs
    }

    /// Makes everything durable that was done.
    ///
    /// # Errors
    /// The filesystem's first failure.
    pub(crate) fn sync(&self) -> Result<(), Failure> {
        if !self.writes {
            return Ok(());
        }
        self.vfs().sync().map_err(|error| {
            Failure::new(Kind::of(&error), format!("cannot make changes of {} durable", self.shown))
                .because(&error)
        })
    }

    /// The same, and ends the use of the image.
    ///
    /// # Errors
    /// As for [`sync`](Self::sync); when an array could not be left clean.
    pub(crate) fn close(self) -> Result<(), Failure> {
        let Self { opened, shown, writes, file: _ } = self;
        if !writes {
            return Ok(());
        }
        opened.close(|error| {
            Failure::new(Kind::of(error), format!("cannot make changes of {shown} durable")).because(error)
        })
    }
}

fn file_of(spec: &ImageSpec) -> Option<FileId> {
    let found = fs::metadata(&spec.path).ok().filter(|_| spec.array.is_none())?;
    Some(FileId::of(&found))
}

/// Refuses an image that a process of ours has mounted for writing: its kernel would not see the changes.
fn refuse_mounted(spec: &ImageSpec) -> Result<(), Failure> {
    let Some(live) = client::find(spec)? else {
        return client::refuse_directory(spec);
    };
    let point = live.point();
    Err(live.is_mounted("").advise(format!("make the change there, or `undercroft unmount {point}` first")))
}

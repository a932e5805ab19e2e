//! Edits of an image that is not mounted.
//!
//! A [`Session`] is one open image; each edit is a function on it, so that `shell` makes many in one session. Nothing
//! here knows the format of a filesystem: all goes through the vfs, with the rights of root.
//!
//! **Crashes.** Each edit of a name or of a file's metadata is one operation of the vfs, which a crash leaves undone or
//! done. New content is written to a file without a name, which gets the name when the content is complete (`place`).
//! Edits of trees are sequences of such steps. When the session is closed without a failure, all is durable.
//!
//! | module | what it holds |
//! | --- | --- |
//! | `place` | where a name goes, and how it is replaced |
//! | `metadata` | owner, mode, lists, attributes and times of one file put on another |
//! | `names` | users and groups by the image's own files |
//! | `tree` | what an edit does to a path, and to all that is below it |
//! | `put` | `put` and `tar-in`: entries of a source, put by the writer of `undercroft-populate` |
//! | all others | the edit of that name |

mod acl;
mod acl_list;
mod chmod;
mod chown;
mod cp;
mod ln;
mod metadata;
mod mkdir;
mod mknod;
mod mv;
pub(super) mod names;
mod place;
mod put;
mod rm;
mod touch;
mod tree;
mod truncate;
mod write;
mod xattr;

use std::fs;
use std::os::unix::fs::MetadataExt;

use undercroft_populate::FileId;
use undercroft_vfs::{Credentials, Vfs, VfsOptions};

pub(crate) use put::{source_failure, tar_source};

use crate::control::client;
use crate::exit::Kind;
use crate::failure::Failure;
use crate::image::writing::Writing;
use crate::image::{self, Opened, Use};
use crate::plan::ImageSpec;
use crate::plan::edit::Edit;
use crate::text::names::safe;

/// With what rights edits are made: the image's user may change all of it.
const CALLER: Credentials = Credentials::root();

/// An image that is open for edits.
pub(crate) struct Session {
    pub(crate) opened: Opened,
    shown: String,
    /// The file that the image is in, where it is one.
    file: Option<FileId>,
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
            image::open_for(spec, Use::Write(Writing::default()), VfsOptions::default())?
        } else {
            image::open(spec)?
        };
        Ok(Self { opened, shown: spec.shown(), file: file_of(spec), writes })
    }

    fn vfs(&self) -> &Vfs {
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
    Some(FileId { device: found.dev(), inode: found.ino() })
}

/// Refuses an image that a process of ours has mounted for writing: its kernel would not see the changes.
fn refuse_mounted(spec: &ImageSpec) -> Result<(), Failure> {
    let Some(live) = client::find(spec)? else {
        return client::refuse_directory(spec);
    };
    let (image, point) = (safe(live.served.image.as_bytes()), live.point());
    let what = format!("{image} is mounted on {point}");
    Err(Failure::new(Kind::CannotOpen, what)
        .advise(format!("make the change there, or `undercroft unmount {point}` first")))
}

/// Opens an image, makes one edit and closes it.
pub(crate) fn run(spec: &ImageSpec, edit: &Edit) -> Result<Option<Kind>, Failure> {
    let session = Session::open(spec, edit.changes())?;
    let done = perform(&session, edit);
    let closed = session.close();
    let outcome = done?;
    closed.map(|()| outcome)
}

/// Makes an edit in an image that is open.
pub(crate) fn perform(session: &Session, edit: &Edit) -> Result<Option<Kind>, Failure> {
    let vfs = session.vfs();
    match edit {
        Edit::Put(plan) => put::run(session, plan),
        Edit::TarIn(plan) => put::tar_in(session, plan).map(|()| None),
        Edit::Write(plan) => write::run(vfs, plan).map(|()| None),
        Edit::Mkdir(plan) => mkdir::run(vfs, plan),
        Edit::Rm(plan) => rm::run(vfs, plan),
        Edit::Mv(plan) => mv::run(vfs, plan),
        Edit::Cp(plan) => cp::run(vfs, plan),
        Edit::Ln(plan) => ln::run(vfs, plan),
        Edit::Chmod(plan) => chmod::run(vfs, plan),
        Edit::Chown(plan) => chown::run(vfs, plan),
        Edit::Touch(plan) => touch::run(vfs, plan),
        Edit::Truncate(plan) => truncate::run(vfs, plan),
        Edit::Xattr(plan) => xattr::run(vfs, plan),
        Edit::Acl(plan) => acl::run(vfs, plan),
        Edit::Mknod(plan) => mknod::run(vfs, plan).map(|()| None),
    }
}

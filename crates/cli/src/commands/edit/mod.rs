//! Edits of an image that is not mounted.
//!
//! A `Session` is one open image; each edit is a function on it, so that `shell` makes many in one session. Nothing
//! here knows the format of a filesystem: all goes through the vfs, with the rights of root.
//!
//! **Crashes.** Each edit of a name or of a file's metadata is one operation of the vfs, which a crash leaves undone or
//! done. New content is written to a file without a name, which gets the name when the content is complete (`place`).
//! Edits of trees are sequences of such steps. When the session is closed without a failure, all is durable.
//!
//! | module | what it holds |
//! | --- | --- |
//! | `session` | an open image, and its end |
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
pub(super) mod put;
mod rm;
pub(super) mod session;
mod touch;
mod tree;
mod truncate;
mod typing;
mod write;
mod xattr;

use self::session::Session;
use crate::exit::Kind;
use crate::failure::Failure;
use crate::plan::ImageSpec;
use crate::plan::edit::Edit;

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

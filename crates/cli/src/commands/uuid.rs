//! `uuid`: shows or changes the UUID of a filesystem. It changes while the filesystem is not mounted.

use std::io::Write;

use serde::Serialize;
use undercroft_diskfs::making::random_uuid;
use undercroft_vfs::{Error, VfsOptions};
use undercroft_xfs::NewUuid;
use uuid::Uuid;

use crate::control::client;
use crate::control::protocol::{Answer, Request, no_answer};
use crate::exit::Kind;
use crate::failure::Failure;
use crate::image::writing::Writing;
use crate::image::{self, Filesystem, FilesystemKind, Use};
use crate::plan::{Format, ImageSpec, UuidChange};
use crate::text::out::Out;

/// A filesystem's UUID.
#[derive(Debug, Serialize)]
struct UuidReport {
    uuid: String,
    /// The one that it had before the command changed it.
    #[serde(skip_serializing_if = "Option::is_none")]
    uuid_before: Option<String>,
    changed: bool,
}

/// Shows the UUID, or gives the filesystem another one.
pub(crate) fn run(spec: &ImageSpec, change: Option<UuidChange>, format: Format) -> Result<(), Failure> {
    let live = client::find(spec)?;
    let (before, uuid) = match (live, change) {
        (Some(live), None) => match live.ask(&Request::Uuid, &mut |_| ())? {
            Answer::Uuid { uuid } => (None, uuid),
            _ => return Err(no_answer()),
        },
        (Some(live), Some(_)) => {
            let point = live.served.point.to_path();
            let what = format!(
                "{} is mounted on {}, and its UUID changes only while it is not",
                spec.shown(),
                point.display()
            );
            let advice = format!("`undercroft unmount {}` first", point.display());
            return Err(Failure::new(Kind::Unsupported, what).advise(advice));
        }
        (None, None) => {
            client::refuse_directory(spec)?;
            (None, uuid_of(&image::open(spec)?.filesystem).to_string())
        }
        (None, Some(change)) => {
            client::refuse_directory(spec)?;
            let (before, uuid) = change_unmounted(spec, change)?;
            (Some(before.to_string()), uuid.to_string())
        }
    };
    let mut out = Out::stdout();
    match (format, &before) {
        (Format::Json, _) => {
            let changed = before.as_ref().is_some_and(|before| *before != uuid);
            out.json(&UuidReport { uuid, uuid_before: before, changed })?;
        }
        (Format::Text, None) => writeln!(out, "{uuid}")?,
        (Format::Text, Some(_)) => {
            writeln!(out, "the filesystem on {} has the UUID {uuid} now", spec.shown())?;
        }
    }
    out.finish()
}

/// The UUID of a filesystem that is open.
pub(crate) fn uuid_of(filesystem: &Filesystem) -> Uuid {
    match filesystem {
        Filesystem::Ext4(ext4) => ext4.superblock().uuid(),
        Filesystem::Xfs(xfs) => xfs.superblock().uuid(),
    }
}

/// The one that it had, and the one that it has.
fn change_unmounted(spec: &ImageSpec, change: UuidChange) -> Result<(Uuid, Uuid), Failure> {
    let shown = spec.shown();
    let located = image::locate(spec)?;
    let kind = image::require_filesystem(&located.device, &located.shown)?;
    drop(located);
    let given = match change {
        UuidChange::To(uuid) => Some(uuid),
        UuidChange::Random => {
            Some(random_uuid().map_err(|error| Failure::of(Kind::of_mkfs(&error), &error))?)
        }
        UuidChange::Original => None,
    };
    match (kind, given) {
        (FilesystemKind::Xfs, given) => {
            let located = image::locate_to_write(spec)?;
            let new = given.map_or(NewUuid::Original, NewUuid::Uuid);
            let changed = undercroft_xfs::set_uuid(located.device.clone(), new);
            let closed = located.close();
            let changed = changed.map_err(|error| failure(&shown, &error))?;
            closed.map(|()| changed)
        }
        (FilesystemKind::Ext4, None) => {
            let what = format!("{shown} holds no XFS, and nothing else keeps the UUID that it was made with");
            Err(Failure::new(Kind::Unsupported, what).advise("name the UUID"))
        }
        (FilesystemKind::Ext4, Some(uuid)) => {
            let opened = image::open_for(spec, Use::Write(Writing::default()), VfsOptions::default())?;
            let before = uuid_of(&opened.filesystem);
            let changed = match &opened.filesystem {
                Filesystem::Ext4(ext4) => ext4.set_uuid(uuid),
                Filesystem::Xfs(_) => Err(Error::Unsupported("another filesystem than a moment ago".into())),
            };
            let closed = opened.close(|error| failure(&shown, error));
            changed.map_err(|error| failure(&shown, &error))?;
            closed.map(|()| (before, uuid))
        }
    }
}

fn failure(shown: &str, error: &Error) -> Failure {
    Failure::new(Kind::of(error), format!("cannot change the UUID of {shown}")).because(error)
}

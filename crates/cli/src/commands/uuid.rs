//! `uuid`: shows or changes the UUID of a filesystem. It changes while the filesystem is not mounted.

use std::io::Write;

use serde::Serialize;
use undercroft_diskfs::mkfs::random_uuid;
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
    /// The feature that the filesystem got with it.
    #[serde(skip_serializing_if = "Option::is_none")]
    got_feature: Option<&'static str>,
}

/// What has changed.
pub(super) struct Changed {
    before: Uuid,
    pub(super) now: Uuid,
    pub(super) got_feature: Option<&'static str>,
}

/// Shows the UUID, or gives the filesystem another one.
pub(crate) fn run(spec: &ImageSpec, change: Option<UuidChange>, format: Format) -> Result<(), Failure> {
    let live = client::find(spec)?;
    let (before, uuid, got_feature) = match (live, change) {
        (Some(live), None) => match live.ask(&Request::Uuid, &mut |_| ())? {
            Answer::Uuid { uuid } => (None, uuid, None),
            _ => return Err(no_answer()),
        },
        (Some(live), Some(_)) => {
            return Err(live.is_mounted(", and its UUID changes only while it is not"));
        }
        (None, None) => {
            client::refuse_directory(spec)?;
            (None, uuid_of(&image::open(spec)?.filesystem).to_string(), None)
        }
        (None, Some(change)) => {
            client::refuse_directory(spec)?;
            let Changed { before, now, got_feature } = change_unmounted(spec, change)?;
            (Some(before.to_string()), now.to_string(), got_feature)
        }
    };
    let mut out = Out::stdout();
    match (format, &before) {
        (Format::Json, _) => {
            let changed = before.as_ref().is_some_and(|before| *before != uuid);
            out.json(&UuidReport { uuid, uuid_before: before, changed, got_feature })?;
        }
        (Format::Text, None) => writeln!(out, "{uuid}")?,
        (Format::Text, Some(_)) => {
            writeln!(out, "the filesystem on {} has the UUID {uuid} now", spec.shown())?;
            if let Some(feature) = got_feature {
                writeln!(
                    out,
                    "it has the feature {feature} now, which goes with another UUID than its blocks have"
                )?;
            }
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

pub(super) fn change_unmounted(spec: &ImageSpec, change: UuidChange) -> Result<Changed, Failure> {
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
            let device = located.device.clone();
            let has_feature = || {
                let superblock = undercroft_xfs::Superblock::read(&*device)?;
                Ok::<_, Error>(superblock.features().incompat().contains(undercroft_xfs::Incompat::META_UUID))
            };
            let changed = has_feature().and_then(|had| {
                let (before, now) = undercroft_xfs::set_uuid(device.clone(), new)?;
                let got_feature = (!had && has_feature()?).then_some("META_UUID");
                Ok(Changed { before, now, got_feature })
            });
            let closed = located.close();
            let changed = changed.map_err(|error| failure(&shown, &error))?;
            closed.map(|()| changed)
        }
        (FilesystemKind::Ext4, None) => {
            let what = format!("{shown} holds no XFS, and nothing else keeps the UUID that it was made with");
            Err(Failure::new(Kind::Unsupported, what).advise("name the UUID"))
        }
        (FilesystemKind::Ext4, Some(uuid)) => {
            // Refused before the image is opened for writing, which changes it.
            if let Filesystem::Ext4(ext4) = &image::open(spec)?.filesystem {
                if ext4.superblock().uuid() == uuid {
                    return Ok(Changed { before: uuid, now: uuid, got_feature: None });
                }
                ext4.check_new_uuid().map_err(|error| failure(&shown, &error))?;
            }
            let opened = image::open_for(spec, Use::Write(Writing::by_tool()), VfsOptions::default())?;
            let before = uuid_of(&opened.filesystem);
            let changed = match &opened.filesystem {
                Filesystem::Ext4(ext4) => {
                    let has_feature = || {
                        ext4.superblock().features().incompat.contains(undercroft_ext4::Incompat::CSUM_SEED)
                    };
                    let had = has_feature();
                    let changed = ext4.set_uuid(uuid);
                    changed.map(|()| (!had && has_feature()).then_some("metadata_csum_seed"))
                }
                Filesystem::Xfs(_) => Err(Error::Unsupported("another filesystem than a moment ago".into())),
            };
            let closed = opened.close(|error| failure(&shown, error));
            let got_feature = changed.map_err(|error| failure(&shown, &error))?;
            closed.map(|()| Changed { before, now: uuid, got_feature })
        }
    }
}

fn failure(shown: &str, error: &Error) -> Failure {
    Failure::new(Kind::of(error), format!("cannot change the UUID of {shown}")).because(error)
}

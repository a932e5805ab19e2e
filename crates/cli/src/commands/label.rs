//! `label`: shows or changes the label of a filesystem, whether or not it is mounted.

use std::io::Write;

use serde::Serialize;
use undercroft_vfs::{Error, Result as VfsResult, VfsOptions};

use crate::control::client;
use crate::control::protocol::{Answer, Bytes, Request, no_answer};
use crate::exit::Kind;
use crate::failure::Failure;
use crate::image::writing::Writing;
use crate::image::{self, Filesystem, FilesystemKind, Use};
use crate::plan::{Format, ImageSpec};
use crate::text::names::{Label, safe};
use crate::text::out::Out;

/// A filesystem's label, and whether the command has changed it.
#[derive(Debug, Serialize)]
struct LabelReport {
    #[serde(flatten)]
    label: Label,
    changed: bool,
}

/// Shows the label, or gives the filesystem another one, by the process that has it mounted if it is.
pub(crate) fn run(spec: &ImageSpec, label: Option<Vec<u8>>, format: Format) -> Result<(), Failure> {
    let is_set = label.is_some();
    let (before, label, shown) = match client::find(spec)? {
        Some(live) => {
            let ask = |change_to| match live.ask(&Request::Label { change_to }, &mut |_| ())? {
                Answer::Labelled { label } => Ok(label.0),
                _ => Err(no_answer()),
            };
            let before = ask(None)?;
            let label = label.map_or_else(|| Ok(before.clone()), |label| ask(Some(Bytes(label))))?;
            (before, label, safe(live.served.image.as_bytes()))
        }
        None => {
            client::refuse_directory(spec)?;
            let (before, label) = of_unmounted(spec, label)?;
            (before, label, spec.shown())
        }
    };
    let changed = before != label;
    let mut out = Out::stdout();
    match format {
        Format::Json => out.json(&LabelReport { label: label.into(), changed })?,
        Format::Text if is_set && label.is_empty() => {
            writeln!(out, "the filesystem on {shown} has no label now")?;
        }
        Format::Text if is_set => {
            writeln!(out, "the filesystem on {shown} has the label {} now", safe(&label))?;
        }
        Format::Text => {
            let label = out.name(&label).into_owned();
            out.write_all(&label)?;
            writeln!(out)?;
        }
    }
    out.finish()
}

/// The label before, and now.
pub(super) fn of_unmounted(
    spec: &ImageSpec,
    change_to: Option<Vec<u8>>,
) -> Result<(Vec<u8>, Vec<u8>), Failure> {
    let Some(label) = change_to else {
        let label = label_of(&image::open(spec)?.filesystem);
        return Ok((label.clone(), label));
    };
    let shown = spec.shown();
    // Refused before the image is opened for writing, which changes it.
    let located = image::locate(spec)?;
    let can_be = match image::require_filesystem(&located.device, &located.shown)? {
        FilesystemKind::Ext4 => undercroft_ext4::check_label(&label),
        FilesystemKind::Xfs => undercroft_xfs::check_label(&label),
    };
    drop(located);
    can_be.map_err(|error| failure(&shown, &error))?;
    let opened = image::open_for(spec, Use::Write(Writing::by_tool()), VfsOptions::default())?;
    let before = label_of(&opened.filesystem);
    let changed = change(&opened.filesystem, &label, &shown);
    let closed = opened.close(|error| failure(&shown, error));
    let label = changed?;
    closed.map(|()| (before, label))
}

/// The label of a filesystem that is open.
pub(crate) fn label_of(filesystem: &Filesystem) -> Vec<u8> {
    match filesystem {
        Filesystem::Ext4(ext4) => ext4.superblock().label().to_vec(),
        Filesystem::Xfs(xfs) => xfs.superblock().label().to_vec(),
    }
}

/// Changes the label of a filesystem that is open, in use or not, and returns the new one.
pub(crate) fn change(filesystem: &Filesystem, label: &[u8], shown: &str) -> Result<Vec<u8>, Failure> {
    let changed: VfsResult<()> = match filesystem {
        Filesystem::Ext4(ext4) => ext4.set_label(label),
        Filesystem::Xfs(xfs) => xfs.set_label(label),
    };
    changed.map_err(|error| failure(shown, &error))?;
    Ok(label_of(filesystem))
}

fn failure(shown: &str, error: &Error) -> Failure {
    Failure::new(Kind::of_change(error), format!("cannot change the label of {shown}")).because(error)
}

//! `label`: shows or changes the label of a filesystem, whether or not it is mounted.

use std::io::Write;

use serde::Serialize;
use undercroft_vfs::{Error, Result as VfsResult, VfsOptions};

use crate::control::client;
use crate::control::protocol::{Answer, Bytes, Request, no_answer};
use crate::exit::Kind;
use crate::failure::Failure;
use crate::image::writing::Writing;
use crate::image::{self, Filesystem, Use};
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
    let changed = label.is_some();
    let (label, shown) = match client::find(spec)? {
        Some(live) => {
            let answer = live.ask(&Request::Label { change_to: label.map(Bytes) }, &mut |_| ())?;
            let Answer::Labelled { label } = answer else { return Err(no_answer()) };
            (label.0, safe(live.served.image.as_bytes()))
        }
        None => {
            client::refuse_directory(spec)?;
            (of_unmounted(spec, label)?, spec.shown())
        }
    };
    let mut out = Out::stdout();
    match format {
        Format::Json => out.json(&LabelReport { label: label.into(), changed })?,
        Format::Text if changed && label.is_empty() => {
            writeln!(out, "the filesystem on {shown} has no label now")?;
        }
        Format::Text if changed => {
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

fn of_unmounted(spec: &ImageSpec, change_to: Option<Vec<u8>>) -> Result<Vec<u8>, Failure> {
    let Some(label) = change_to else { return Ok(label_of(&image::open(spec)?.filesystem)) };
    let opened = image::open_for(spec, Use::Write(Writing::default()), VfsOptions::default())?;
    let shown = spec.shown();
    let changed = change(&opened.filesystem, &label, &shown);
    let closed = opened.close(|error| failure(&shown, error));
    let label = changed?;
    closed.map(|()| label)
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
    Failure::new(Kind::of(error), format!("cannot change the label of {shown}")).because(error)
}

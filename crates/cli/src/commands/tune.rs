//! `tune`: changes how a filesystem is used, and features that can be switched, while it is not mounted.

use std::io::Write;

use serde::Serialize;
use undercroft_ext4::{FeatureChange, Features, OpenOptions, RoCompat, Superblock, Tuning};
use undercroft_vfs::Error;

use super::{info, label, uuid};
use crate::control::client;
use crate::exit::Kind;
use crate::failure::Failure;
use crate::image::{self, FilesystemKind};
use crate::plan::{Format, ImageSpec, TunePlan};
use crate::text::names::safe;
use crate::text::out::Out;

/// What a filesystem has now.
#[derive(Debug, Serialize)]
struct TuneReport {
    tuned: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    features: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    label: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    uuid: Option<String>,
    /// The feature that the filesystem got with its UUID.
    #[serde(skip_serializing_if = "Option::is_none")]
    got_feature: Option<&'static str>,
}

/// Tunes a filesystem, or prints what `info` prints.
pub(crate) fn run(spec: &ImageSpec, plan: &TunePlan, format: Format) -> Result<(), Failure> {
    if plan.list {
        return info::run(spec, format);
    }
    if let Some(live) = client::find(spec)? {
        return Err(live.is_mounted(", and is tuned only while it is not"));
    }
    client::refuse_directory(spec)?;
    let shown = spec.shown();
    check(spec, plan, &shown)?;
    if let Some(tuning) = &plan.tuning {
        let located = image::locate_to_write(spec)?;
        let options = OpenOptions { on_mmp_wait: image::tell_of_wait, ..OpenOptions::default() };
        let done = undercroft_ext4::tune(&located.device, options, tuning);
        let closed = located.close();
        done.map_err(|error| failure(&shown, &error))?;
        closed?;
    }
    if let Some(name) = &plan.label {
        label::of_unmounted(spec, Some(name.clone()))?;
    }
    let new_uuid = plan.uuid.map(|change| uuid::change_unmounted(spec, change)).transpose()?;
    let got_feature = new_uuid.as_ref().and_then(|changed| changed.got_feature);
    let mut out = Out::stdout();
    match format {
        Format::Json => {
            let located = image::locate(spec)?;
            let superblock = Superblock::read(&*located.device).ok();
            out.json(&TuneReport {
                tuned: true,
                features: superblock.map(|superblock| superblock.features().names()),
                label: plan.label.as_ref().map(|label| safe(label)),
                got_feature,
                uuid: new_uuid.map(|changed| changed.now.to_string()),
            })?;
        }
        Format::Text => {
            writeln!(out, "the filesystem on {shown} has been tuned")?;
            if let Some(feature) = got_feature {
                writeln!(out, "it has the feature {feature} now, which goes with another UUID")?;
            }
        }
    }
    out.finish()
}

/// Refuses what cannot be done before the image is opened for writing.
fn check(spec: &ImageSpec, plan: &TunePlan, shown: &str) -> Result<(), Failure> {
    let located = image::locate(spec)?;
    match image::require_filesystem(&located.device, &located.shown)? {
        FilesystemKind::Ext4 => {
            let found = Superblock::read(&*located.device);
            let superblock = found.map_err(|error| failure(shown, &error))?;
            let named = plan.label.as_ref().map_or(Ok(()), |label| undercroft_ext4::check_label(label));
            let tuned = plan
                .tuning
                .as_ref()
                .map_or_else(|| Ok(()), |tuning: &Tuning| undercroft_ext4::check_tuning(&superblock, tuning));
            named.and(tuned).map_err(|error| failure(shown, &error))?;
            refuse_uuid_without_checksums(&superblock, plan)?;
        }
        FilesystemKind::Xfs if plan.tuning.is_some() => {
            let what = format!("{shown} is XFS, of which the label (-L) and the UUID (-U) can be changed");
            return Err(Failure::new(Kind::Unsupported, what));
        }
        FilesystemKind::Xfs => {
            let named = plan.label.as_ref().map_or(Ok(()), |label| undercroft_xfs::check_label(label));
            named.map_err(|error| failure(shown, &error))?;
        }
    }
    located.close()
}

/// Descriptors have checksums that begin with the UUID when those of all metadata are switched off.
fn refuse_uuid_without_checksums(superblock: &Superblock, plan: &TunePlan) -> Result<(), Failure> {
    let features = plan.tuning.as_ref().map_or("", |tuning| &tuning.features);
    let checksums = Features::by_name("metadata_csum");
    let has_them = superblock.features().ro_compat.contains(RoCompat::METADATA_CSUM);
    let has_them_after = |has_them: bool, change: FeatureChange| match change {
        FeatureChange::Clear => false,
        FeatureChange::On(feature) => has_them || Some(feature) == checksums,
        FeatureChange::Off(feature) => has_them && Some(feature) != checksums,
    };
    let loses_them = |all: Vec<FeatureChange>| has_them && !all.into_iter().fold(true, has_them_after);
    if plan.uuid.is_some() && FeatureChange::list(features).is_ok_and(loses_them) {
        return Err(Failure::new(Kind::Usage, "the UUID cannot change after metadata_csum is switched off")
            .advise("change it first, with a `tune -U` of its own"));
    }
    Ok(())
}

fn failure(shown: &str, error: &Error) -> Failure {
    Failure::new(Kind::of_change(error), format!("cannot tune the filesystem on {shown}")).because(error)
}

//! Images of which a part is missing: cut short, or without their first superblock or partition table.
//!
//! Such an image is only read, through what is left: its end is missing by name, and a copy stands in for what was
//! destroyed at the beginning when a hint says so (`?sb=BLOCK`, `?gpt=backup`). Which copies are good is part of the
//! message that refuses the image without a hint.

use std::sync::Arc;

use undercroft_block::{CutShortDevice, Device};
use undercroft_ext4::BackupSuperblock;
use undercroft_vfs as vfs;

use super::filesystem::FilesystemKind;
use crate::exit::Kind;
use crate::failure::Failure;
use crate::lost_gpt;
use crate::plan::ImageSpec;
use crate::text::human;
use crate::text::note::note;

/// As many copies as a message names.
const COPIES_NAMED: usize = 3;

/// Refuses to write to an image that only copies make readable.
pub(crate) fn refuse_copies(spec: &ImageSpec) -> Result<(), Failure> {
    let (hint, remedy) = if spec.superblock.is_some() {
        ("sb=", "`e2fsck -b` puts a copy in the place of the first superblock")
    } else if spec.lost_gpt {
        ("gpt=backup", lost_gpt::WRITE_ANEW)
    } else {
        return Ok(());
    };
    let what = format!("{} is to be written, and `?{hint}` is for reading", spec.shown());
    Err(Failure::new(Kind::Usage, what).advise(remedy))
}

/// Refuses to read a partition through copies while its disk is written to.
pub(super) fn refuse_copies_of_source(from: &ImageSpec) -> Result<(), Failure> {
    let shown = from.shown();
    let (what, remedy) = if from.superblock.is_some() {
        let what = format!("{shown} is copied from as it is, and `?sb=` is for reading a filesystem");
        (what, "leave `?sb=` off")
    } else if from.lost_gpt {
        let what = format!("{shown} is copied from and written to, and `?gpt=backup` is for reading alone");
        (what, lost_gpt::WRITE_ANEW)
    } else {
        return Ok(());
    };
    Err(Failure::new(Kind::Usage, what).advise(remedy))
}

/// The device with a copy of the superblock in the place of the first one.
pub(super) fn through_copy(device: Device, shown: &str, block: u64) -> Result<Device, Failure> {
    let copy = BackupSuperblock::read(&*device, block).map_err(|error| {
        let failure = Failure::new(Kind::of(&error), format!("cannot read {shown} through block {block}"));
        let failure = failure.because(&error);
        match copies(&device) {
            Some(copies) => failure.advise(copies),
            None => failure,
        }
    })?;
    copy.laid_over(device).map_err(|error| {
        Failure::new(Kind::of(&error), format!("cannot read {shown} through block {block}")).because(&error)
    })
}

/// The device, as large as the filesystem on it says that it was.
pub(super) fn as_large_as_declared(device: Device, shown: &str) -> Device {
    let there = device.size_bytes();
    match FilesystemKind::declared_on(&device) {
        Some(declared) if declared > there => {
            tell_cut_short(shown, declared, there);
            Arc::new(CutShortDevice::new(device, declared))
        }
        // What is wrong with it is told when it is opened.
        _ => device,
    }
}

/// The user should know why some of it cannot be read.
pub(super) fn tell_cut_short(shown: &str, expected: u64, there: u64) {
    let (expected, there) = (human::size(expected), human::size(there));
    note(format_args!(
        "{shown} is cut short: of {expected} there are {there}; what lies behind cannot be read"
    ));
}

/// Opens for reading what is there of a filesystem: without its journal, if that lies past the end. `open` is told whether
/// to replay that.
pub(super) fn open_what_is_there<T>(
    device: &Device,
    shown: &str,
    open: impl Fn(bool) -> Result<T, vfs::Error>,
) -> Result<T, vfs::Error> {
    let last = device.size_bytes().saturating_sub(1);
    match open(true) {
        Err(vfs::Error::Io(_)) if device.read_at(last, &mut [0]).is_err() => {
            let opened = open(false)?;
            note(format_args!("{shown}: the journal cannot be read, and changes in it are missing"));
            Ok(opened)
        }
        opened => opened,
    }
}

/// By what a device can be read on which no filesystem was found.
pub(super) fn advice(device: &Device) -> Option<String> {
    if let Some(copies) = copies(device) {
        return Some(copies);
    }
    lost_gpt::advice(&**device)
}

/// What helps with a filesystem that contradicts itself or its device.
pub(super) fn advice_on_damage(kind: FilesystemKind, device: &Device) -> String {
    let checker = match kind {
        FilesystemKind::Ext4 => "e2fsck",
        FilesystemKind::Xfs => "xfs_repair",
    };
    let check = || format!("work on a copy, and let {checker} look at it");
    match kind.declared_bytes(device) {
        Some(declared) if declared > device.size_bytes() => {
            "for reading it can be opened as far as it goes".to_owned()
        }
        None if kind == FilesystemKind::Ext4 => copies(device).unwrap_or_else(check),
        _ => check(),
    }
}

/// Which copies of a superblock are good.
fn copies(device: &Device) -> Option<String> {
    let found = BackupSuperblock::find(&**device).ok()?;
    let first = found.first()?;
    let family = first.superblock().family();
    let blocks: Vec<String> = found.iter().map(|copy| copy.block().to_string()).take(COPIES_NAMED).collect();
    let more = if found.len() > COPIES_NAMED { " and more" } else { "" };
    Some(format!(
        "good copies of the superblock of an {family} lie at block {}{more}: put `?sb={}` behind its name to read it",
        blocks.join(", "),
        first.block()
    ))
}

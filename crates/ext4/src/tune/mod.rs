//! Changing what the superblock says of how a filesystem is used, and features that can be switched.
//!
//! | module | what it does |
//! | --- | --- |
//! | `fields` | fields of the superblock, in tune2fs's words |
//! | `features` | which features are switched, and which are refused |
//! | `journal` | adds a journal, and removes it |
//! | `orphan_file` | adds an orphan file, and removes it |
//! | `own_file` | what the journal and the orphan file have in common |
//! | `checksums` | switches the checksums of all metadata |
//!
//! Fields and features that nothing but the superblock shows change in one transaction, and in its copies afterwards. A
//! journal is added to a filesystem that has none, and so without one: it is made first, and then the superblock leads to it.
//! Everything else comes after that, in transactions. To remove a journal, the superblock forgets it first, of a filesystem that
//! is clean; then its blocks are freed. A crash in between leaves the filesystem as it was or as it becomes, perhaps with blocks in
//! use that no file has, which `e2fsck -p` frees. An orphan file is added and removed in the transaction that changes the
//! superblock. The checksums of all metadata are switched after everything else but the removal of a journal.
//!
//! Everything that can be refused is refused before the first change.
//!
//! Locks: class `resize`. Source: what tune2fs 1.47 makes of images.

mod checksums;
mod features;
mod fields;
mod journal;
mod orphan_file;
mod own_file;

use std::cell::Cell;

use undercroft_block::Device;
use undercroft_vfs::{Error, Result};

use crate::Ext4;
use crate::features::Compat;
use crate::grow::copies;
use crate::identity;
use crate::open::OpenOptions;
use crate::options::WriteOptions;
use crate::orphan;
use crate::superblock::{HashAlgorithm, MountDefault, OnError, Superblock};
use crate::transaction::Handle;
use features::Switches;
pub use fields::Reserved;

/// What changes. What is `None` or empty stays as it is.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tuning {
    /// Features by their names, those with `^` in front switched off: `dir_index,^has_journal`.
    pub features: String,
    /// Size of a journal that is added, in bytes; as mke2fs has it unless said.
    pub journal_bytes: Option<u64>,
    /// Blocks kept for the superuser.
    pub reserved: Option<Reserved>,
    /// The user and the group that reserved blocks are for.
    pub reserved_user: Option<u16>,
    /// See `reserved_user`.
    pub reserved_group: Option<u16>,
    /// What the kernel does when it finds damage.
    pub on_error: Option<OnError>,
    /// Mounts after which the filesystem is to be checked; 0 for never.
    pub mounts_most: Option<u16>,
    /// Mounts since the last check.
    pub mounts: Option<u16>,
    /// Seconds after which it is to be checked; 0 for never.
    pub check_interval_s: Option<u32>,
    /// Options that a mount has unless it says otherwise, and whether they are set.
    pub mount_defaults: Vec<(MountDefault, bool)>,
    /// Further options of that kind, as text.
    pub mount_options: Option<Vec<u8>>,
    /// Blocks of a chunk of the array below.
    pub stride: Option<u16>,
    /// Blocks of a stripe of it.
    pub stripe_width: Option<u32>,
    /// How names are hashed in directories that get an index.
    pub hash_algorithm: Option<HashAlgorithm>,
}

/// Whether a filesystem can be tuned in this way.
///
/// # Errors
/// [`Error::Unsupported`] says what cannot be done, and what does it; [`Error::InvalidArgument`], what makes no sense.
pub fn check_tuning(superblock: &Superblock, tuning: &Tuning) -> Result<()> {
    superblock.refuse_faults()?;
    Switches::decide(superblock, &tuning.features)?.check(superblock, tuning)?;
    fields::check(superblock, tuning)
}

/// Tunes the filesystem on a device, which is not in use. It is durable on return.
///
/// # Errors
/// As [`check_tuning`]: nothing has changed then. [`Error::NoSpace`] for a journal; corruption; I/O failure.
pub fn tune(device: &Device, options: OpenOptions, tuning: &Tuning) -> Result<()> {
    let found = Superblock::read(&**device)?;
    check_tuning(&found, tuning)?;
    checksums::check(device, options, &found, tuning)?;
    let how = WriteOptions { counts_mount: false, ..WriteOptions::default() };
    let open = || Ext4::open(std::sync::Arc::clone(device), options, how);
    let mut tuning = tuning.clone();
    if Switches::decide(&found, &tuning.features)?.on.compat.contains(Compat::HAS_JOURNAL) {
        let ext4 = open()?;
        let added = check_tuning(ext4.superblock(), &tuning).and_then(|()| add_journal(&ext4, &tuning));
        let closed = ext4.close();
        added?;
        closed?;
        tuning.journal_bytes = None;
    }
    let tuning = &tuning;
    let ext4 = open()?;
    let superblock = ext4.superblock().clone();
    let switches = Switches::decide(&superblock, &tuning.features)?;
    // What was in the journal may say otherwise, or that there are errors.
    let tuned = check_tuning(&superblock, tuning).and_then(|()| {
        // A crash of an earlier call may have come before they were written, and others may have recovered the rest.
        copies::refresh(ext4.volume())?;
        tune_open(&ext4, &switches, tuning)
    });
    let closed = ext4.close();
    drop(ext4);
    tuned?;
    closed?;
    if switches.checksums().is_some() {
        let ext4 = open()?;
        let switched = checksums::switch(ext4.volume(), &switches);
        let closed = ext4.close();
        switched?;
        closed?;
    }
    if !switches.off.compat.contains(Compat::HAS_JOURNAL) {
        return Ok(());
    }
    journal::forget(&**device)?;
    let ext4 = open()?;
    let removed = journal::remove(ext4.volume(), &superblock);
    let closed = ext4.close();
    removed?;
    closed
}

/// Makes a journal, and lets the superblock lead to it.
fn add_journal(ext4: &Ext4, tuning: &Tuning) -> Result<()> {
    let volume = ext4.volume();
    copies::refresh(volume)?;
    let added = journal::add(volume, tuning.journal_bytes)?;
    identity::change(volume, &|raw| added.put(raw))
}

/// All but adding and removing a journal.
fn tune_open(ext4: &Ext4, switches: &Switches, tuning: &Tuning) -> Result<()> {
    let volume = ext4.volume();
    let old = volume.superblock().clone();
    let seed = fields::HashSeed::new();
    let is_on = |feature| switches.on.compat.contains(feature);
    let mut places = if is_on(Compat::ORPHAN_FILE) { Some(orphan_file::reserve(volume)?) } else { None };
    let removed = old.orphan_file_inode().filter(|_| switches.off.compat.contains(Compat::ORPHAN_FILE));
    let credits = places.as_deref().map_or(0, orphan_file::credits_to_add)
        + removed.map_or(0, |_| orphan_file::CREDITS_TO_REMOVE);
    let orphan_file = Cell::new(None);
    let mut change_orphan_file = |handle: &Handle<'_>| {
        if let Some(places) = places.take() {
            orphan_file.set(Some(orphan_file::add(handle, places)?));
        }
        removed.map_or(Ok(()), |number| orphan_file::remove(handle, number))
    };
    identity::change_with(volume, credits, &mut change_orphan_file, &|raw| {
        fields::put(&old, tuning, &seed, raw);
        switches.put(&old, &seed, raw);
        if removed.is_some() || is_on(Compat::ORPHAN_FILE) {
            raw.s_orphan_file_inum.set(orphan_file.get().unwrap_or(0));
        }
    })?;
    if removed.is_some() {
        orphan::finish_list(volume)?;
    }
    volume.writer()?.allocator.hold_back(volume);
    Ok(())
}

fn refuse<T>(what: impl Into<String>) -> Result<T> {
    Err(Error::Unsupported(what.into().into()))
}

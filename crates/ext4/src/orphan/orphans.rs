//! The orphans of a filesystem as they are kept in memory, and the place among them that each in-memory inode records.

use undercroft_sync::atomic::AtomicU64;
use undercroft_vfs::Result;

use super::file::OrphanFile;
use super::list::OrphanList;
use crate::options::{OrphanForm, WriteOptions};
use crate::volume::Volume;

/// The place of an in-memory inode among the orphans.
///
/// | value | meaning |
/// | --- | --- |
/// | 0 | it is no orphan |
/// | 1 | it is being entered |
/// | 2 | in the list |
/// | 3 + n | in slot n of the file |
#[derive(Debug, Default)]
pub(crate) struct Membership(pub(super) AtomicU64);

pub(super) const NONE: u64 = 0;
pub(super) const BEING_ENTERED: u64 = 1;
pub(super) const IN_LIST: u64 = 2;
pub(super) const IN_FILE: u64 = 3;

/// The orphans of a writable filesystem.
#[derive(Debug)]
pub(crate) struct Orphans {
    pub(super) form: OrphanForm,
    pub(super) file: Option<OrphanFile>,
    pub(super) list: OrphanList,
}

impl Orphans {
    /// Begins with what the disk has.
    ///
    /// # Errors
    /// Corruption of the orphan file; I/O failure.
    pub(crate) fn new(volume: &Volume, options: &WriteOptions) -> Result<Self> {
        let list = OrphanList::new(volume.superblock().first_orphan());
        Ok(Self { form: options.orphans, file: OrphanFile::new(volume)?, list })
    }

    /// Whether the orphan file, if there is one, has no entry: then the superblock may say so.
    pub(crate) fn file_is_empty(&self) -> bool {
        self.file.as_ref().is_none_or(OrphanFile::is_empty)
    }

    /// In the plain form every query takes the list's lock.
    pub(super) fn lock_as_plain_form(&self) {
        if self.form == OrphanForm::Locked {
            self.list.ask();
        }
    }
}

//! ext4 on a device in memory, in the forms that are compared.

use std::sync::Arc;

use undercroft_block::Device;
use undercroft_ext4::{Ext4, Family, MkfsOptions, OpenOptions, OrphanForm, WriteOptions, mkfs};

use crate::BenchError;

/// What is chosen when the filesystem is made and opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ext4Form {
    /// Where inodes are remembered while they are truncated.
    pub orphans: OrphanForm,
    /// Whether overwriting starts a handle.
    pub journaled_overwrites: bool,
    /// Whether there is a journal.
    pub journal: bool,
}

const ORPHAN_LIST: &str = "orphan=list";
const ORPHAN_LOCKED: &str = "orphan=locked";
const OVERWRITE_JOURNALED: &str = "overwrite=journaled";
const NO_JOURNAL: &str = "no-journal";

impl Ext4Form {
    /// This form with what a word chooses; `None` if there is no such word.
    pub(crate) fn with(self, word: &str) -> Option<Self> {
        match word {
            ORPHAN_LIST => Some(Self { orphans: OrphanForm::List, ..self }),
            ORPHAN_LOCKED => Some(Self { orphans: OrphanForm::Locked, ..self }),
            OVERWRITE_JOURNALED => Some(Self { journaled_overwrites: true, ..self }),
            NO_JOURNAL => Some(Self { journal: false, ..self }),
            _ => None,
        }
    }

    /// The words that choose it.
    pub(crate) fn words(self) -> impl Iterator<Item = &'static str> {
        let orphans = match self.orphans {
            OrphanForm::Best => None,
            OrphanForm::List => Some(ORPHAN_LIST),
            OrphanForm::Locked => Some(ORPHAN_LOCKED),
        };
        let overwrites = self.journaled_overwrites.then_some(OVERWRITE_JOURNALED);
        let journal = (!self.journal).then_some(NO_JOURNAL);
        [orphans, overwrites, journal].into_iter().flatten()
    }

    /// Makes a new, empty one on a device that is all zero.
    pub(crate) fn make_on(self, device: &Device) -> Result<(), BenchError> {
        let mut made = MkfsOptions::new(Family::Ext4);
        made.device_is_zeroed = true;
        if !self.journal {
            // The orphan file is part of what a journal protects.
            "^has_journal,^orphan_file".clone_into(&mut made.features);
        }
        mkfs(&**device, &made).map(drop).map_err(BenchError::Mkfs)
    }

    /// Opens what is on a device.
    pub(crate) fn open_on(self, device: Device) -> Result<Arc<Ext4>, BenchError> {
        let written = WriteOptions {
            orphans: self.orphans,
            journaled_overwrites: self.journaled_overwrites,
            ..WriteOptions::default()
        };
        Ext4::open(device, OpenOptions::default(), written)
            .map_err(|source| BenchError::Vfs { what: "open what was made", source })
    }
}

/// The best.
impl Default for Ext4Form {
    fn default() -> Self {
        Self { orphans: OrphanForm::Best, journaled_overwrites: false, journal: true }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_form_is_read_as_it_is_written() {
        let orphans = [OrphanForm::Best, OrphanForm::List, OrphanForm::Locked];
        for (orphans, number) in orphans.into_iter().flat_map(|form| (0..4).map(move |number| (form, number)))
        {
            let form = Ext4Form { orphans, journaled_overwrites: number & 1 != 0, journal: number & 2 != 0 };
            let read = form.words().try_fold(Ext4Form::default(), Ext4Form::with);
            assert_eq!(read, Some(form));
        }
        assert_eq!(Ext4Form::default().words().count(), 0);
        assert_eq!(Ext4Form::default().with("orphan"), None);
    }
}

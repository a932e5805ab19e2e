//! XFS on a device in memory, in the forms that are compared.

use std::fmt;
use std::num::NonZeroU32;
use std::sync::Arc;

use undercroft_block::Device;
use undercroft_xfs::{Groups, MkfsOptions, OpenOptions, WriteOptions, Xfs, mkfs};

use crate::BenchError;

/// More allocation groups than Linux makes of a device of that size by itself, and each has 64 MiB.
const GROUPS_MAX: u32 = 1024;

/// What the free inode B+tree is to an allocation of an inode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FreeInodeTree {
    /// It is there and searched.
    #[default]
    Searched,
    /// It is there and kept; all chunks are searched.
    Kept,
    /// There is none.
    None,
}

/// What is chosen when the filesystem is made and opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct XfsForm {
    /// The free inode B+tree.
    pub finobt: FreeInodeTree,
    /// Whether overwriting starts a handle.
    pub journaled_overwrites: bool,
    /// How many allocation groups; as mkfs has it by default.
    pub groups: Option<NonZeroU32>,
}

const FINOBT_NONE: &str = "finobt=0";
const FINOBT_OFF: &str = "finobt=off";
const OVERWRITE_JOURNALED: &str = "overwrite=journaled";
const GROUPS: &str = "agcount=";

/// A word that chooses a part of a form.
pub(crate) struct Word(XfsForm);

impl XfsForm {
    /// This form with what a word chooses; `None` if there is no such word.
    pub(crate) fn with(self, word: &str) -> Option<Self> {
        match word {
            FINOBT_NONE => Some(Self { finobt: FreeInodeTree::None, ..self }),
            FINOBT_OFF => Some(Self { finobt: FreeInodeTree::Kept, ..self }),
            OVERWRITE_JOURNALED => Some(Self { journaled_overwrites: true, ..self }),
            _ => {
                let groups = word.strip_prefix(GROUPS)?.parse::<NonZeroU32>().ok()?;
                (groups.get() <= GROUPS_MAX).then_some(Self { groups: Some(groups), ..self })
            }
        }
    }

    /// The words that choose it.
    pub(crate) fn words(self) -> impl Iterator<Item = Word> {
        let plain = Self::default();
        let finobt = (self.finobt != plain.finobt).then_some(Self { finobt: self.finobt, ..plain });
        let overwrites = self.journaled_overwrites.then_some(Self { journaled_overwrites: true, ..plain });
        let groups = self.groups.map(|groups| Self { groups: Some(groups), ..plain });
        [finobt, overwrites, groups].into_iter().flatten().map(Word)
    }

    /// Makes a new, empty one on a device that is all zero.
    pub(crate) fn make_on(self, device: &Device) -> Result<(), BenchError> {
        let made = MkfsOptions {
            finobt: self.finobt != FreeInodeTree::None,
            groups: self.groups.map_or(Groups::Usual, |groups| Groups::Count(groups.get().into())),
            small: true,
            device_is_zeroed: true,
            ..MkfsOptions::default()
        };
        mkfs(&**device, &made).map(drop).map_err(BenchError::Mkfs)
    }

    /// Opens what is on a device.
    pub(crate) fn open_on(self, device: Device) -> Result<Arc<Xfs>, BenchError> {
        let written = WriteOptions {
            journaled_overwrites: self.journaled_overwrites,
            search_free_inode_tree: self.finobt != FreeInodeTree::Kept,
            ..WriteOptions::default()
        };
        Xfs::open(device, OpenOptions::default(), written)
            .map_err(|source| BenchError::Vfs { what: "open what was made", source })
    }
}

impl fmt::Display for Word {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let form = self.0;
        match form.finobt {
            FreeInodeTree::Searched => {}
            FreeInodeTree::Kept => return f.write_str(FINOBT_OFF),
            FreeInodeTree::None => return f.write_str(FINOBT_NONE),
        }
        if form.journaled_overwrites {
            return f.write_str(OVERWRITE_JOURNALED);
        }
        form.groups.map_or(Ok(()), |groups| write!(f, "{GROUPS}{groups}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_form_is_read_as_it_is_written() {
        for finobt in [FreeInodeTree::Searched, FreeInodeTree::Kept, FreeInodeTree::None] {
            for (journaled_overwrites, groups) in [(false, None), (true, NonZeroU32::new(7))] {
                let form = XfsForm { finobt, journaled_overwrites, groups };
                let words = form.words().map(|word| word.to_string()).collect::<Vec<_>>();
                let read = words.iter().try_fold(XfsForm::default(), |form, word| form.with(word));
                assert_eq!(read, Some(form), "{words:?}");
            }
        }
        assert_eq!(XfsForm::default().words().count(), 0);
        for wrong in ["finobt", "finobt=1", "agcount=0", "agcount=", "agcount=100000", "orphan=list"] {
            assert_eq!(XfsForm::default().with(wrong), None, "{wrong}");
        }
    }
}

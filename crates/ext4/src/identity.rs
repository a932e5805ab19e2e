//! Changing what a filesystem is known by: its label, and its UUID.
//!
//! One transaction changes the superblock; its copies are written when that is durable. A crash before leaves old ones, which
//! are written when the filesystem is opened for changes again.
//!
//! Checksums of metadata begin with the UUID, unless the feature `metadata_csum_seed` stores what they begin with. A
//! filesystem with checksums gets that feature with a new UUID, so that all checksums stay right: Linux knows it since
//! version 4.4. What depends on the UUID otherwise is refused.
//!
//! A journal inside the filesystem has a UUID of its own, which stays.
//!
//! Locks: class `resize`. Source: what tune2fs makes of images.

use undercroft_vfs::{Error, Result};
use uuid::Uuid;

use crate::Ext4;
use crate::checksum::crc32c;
use crate::features::{Compat, Incompat, RoCompat};
use crate::grow::{copies, size};
use crate::superblock::{self, RawSuperblock, Superblock};
use crate::transaction::Handle;
use crate::writer::Mounted;

/// The longest label in bytes.
pub const LABEL_MAX_BYTES: usize = 16;

/// Whether a filesystem can have that label.
///
/// # Errors
/// [`Error::Unsupported`] when it cannot.
pub fn check_label(label: &[u8]) -> Result<()> {
    if label.len() > LABEL_MAX_BYTES || label.contains(&0) {
        return Err(Error::InvalidArgument("a label of ext4 has at most 16 bytes, none of them zero"));
    }
    Ok(())
}

impl Ext4 {
    /// Changes the label. The filesystem may be in use; the label is durable on return.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a label that it cannot have, [`Error::ReadOnly`]; I/O failure.
    pub fn set_label(&self, label: &[u8]) -> Result<()> {
        check_label(label)?;
        self.volume().superblock().refuse_faults()?;
        let mut name = [0; LABEL_MAX_BYTES];
        name[..label.len()].copy_from_slice(label);
        change(self.volume(), &|raw| raw.s_volume_name = name)
    }

    /// Whether the UUID can be changed, which a filesystem that was opened for reading can tell too.
    ///
    /// # Errors
    /// [`Error::Unsupported`] naming what depends on the UUID.
    pub fn check_new_uuid(&self) -> Result<()> {
        let superblock = self.volume().superblock();
        superblock.refuse_faults()?;
        let features = superblock.features();
        let refuse = |why: &str| {
            let what = format!("changing the UUID of a filesystem with the feature {why}");
            Err(Error::Unsupported(what.into()))
        };
        if features.compat.contains(Compat::STABLE_INODES) {
            return refuse("stable_inodes, whose files are encrypted by it");
        }
        let has_seed = features.incompat.contains(Incompat::CSUM_SEED);
        let has_checksums = superblock.has_metadata_checksums();
        if !has_checksums && features.ro_compat.contains(RoCompat::GDT_CSUM) {
            return refuse("uninit_bg, whose checksums begin with it: use tune2fs -U");
        }
        if !has_checksums && !has_seed && features.incompat.contains(Incompat::EA_INODE) {
            return refuse("ea_inode, whose attributes have checksums that begin with it: use tune2fs -U");
        }
        Ok(())
    }

    /// Changes the UUID; none at all is possible. It is durable on return.
    ///
    /// # Errors
    /// As [`check_new_uuid`](Self::check_new_uuid); [`Error::ReadOnly`]; I/O failure.
    pub fn set_uuid(&self, uuid: Uuid) -> Result<()> {
        let superblock = self.volume().superblock();
        if superblock.uuid() == uuid {
            return self.volume().writer().map(drop);
        }
        self.check_new_uuid()?;
        let has_seed = superblock.features().incompat.contains(Incompat::CSUM_SEED);
        let has_checksums = superblock.has_metadata_checksums();
        let seed = (has_checksums && !has_seed).then(|| crc32c(!0, superblock.uuid().as_bytes()));
        change(self.volume(), &|raw| {
            raw.s_uuid = uuid.into_bytes();
            if let Some(seed) = seed {
                raw.s_feature_incompat.set(raw.s_feature_incompat.get() | Incompat::CSUM_SEED.bits());
                raw.s_checksum_seed.set(seed);
            }
        })
    }
}

/// Changes the superblock, on the disk and in memory, and then its copies.
pub(crate) fn change(volume: &Mounted, change: &dyn Fn(&mut RawSuperblock)) -> Result<()> {
    change_with(volume, 0, &mut |_| Ok(()), change)
}

/// The same, and in the same transaction what `first` changes: `credits` blocks. `change` is called once before that, to
/// see whether the superblock can be changed so.
pub(crate) fn change_with(
    volume: &Mounted,
    credits: u32,
    first: &mut dyn FnMut(&Handle<'_>) -> Result<()>,
    change: &dyn Fn(&mut RawSuperblock),
) -> Result<()> {
    let writer = volume.writer()?;
    let _resizing = writer.resizing.lock();
    let old = volume.superblock();
    let changed = || {
        let mut raw = old.raw().clone();
        change(&mut raw);
        size::seal(old, &mut raw);
        Superblock::from_raw(raw, volume.device().size_bytes())
    };
    changed()?;
    {
        let handle = volume.start(credits + 1)?;
        let done = first(&handle).and_then(|()| {
            let new = changed()?;
            superblock::change(&handle, change)?;
            volume.grow(new, std::iter::empty());
            Ok(())
        });
        handle.or_abort("changing the superblock failed half way", done)?;
    }
    writer.transactions.commit_everything(volume)?;
    copies::write_superblocks(volume).and_then(|()| volume.flush()).or_else(|error| {
        let what = format!("the superblock has changed, but not all of its copies: {error}");
        writer.transactions.abort_with(&what, &error);
        writer.transactions.check()
    })
}

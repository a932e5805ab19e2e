//! Writing inodes: core and forks go into the inode's place.
//!
//! The forks are written from what is in memory, format and number of extents among it; the core says where they lie.
//! What no field stands for stays as it is, and the link of the unlinked list is changed by the allocator alone. What a
//! fork has room for beyond its content is zero. The position in the log is put in, and the checksum made, when the block is
//! written (see `checksum`).

use undercroft_vfs::Result;
use zerocopy::{FromBytes, IntoBytes};

use super::{Fork, Inode, STRUCTURE, change_bytes};
use crate::error::{Verdict, corrupt_inode};
use crate::format::dinode::{self, DiFlags2, Dinode, ForkFormat, RawDinode};
use crate::format::extent::{EXTENT_BYTES, RawExtent};
use crate::format::{AgIno, Incompat};
use crate::transaction::Handle;
use crate::volume::Volume;

/// The most extents that the narrow counters hold, as Linux bounds them.
const NARROW_DATA_EXTENTS: u64 = i32::MAX as u64;
const NARROW_ATTR_EXTENTS: u32 = i16::MAX as u32;

impl Inode {
    /// Writes the core and both forks into the inode's place. One block changes.
    ///
    /// # Errors
    /// I/O failure; corruption: the place holds another inode, or what is in memory does not fit. Nothing has changed
    /// then.
    pub(crate) fn store(&self, handle: &Handle<'_>) -> Result<()> {
        self.store_over(handle, false)
    }

    /// Writes a new inode into its place: nothing of what was there stays, but for the unlinked list's link, which is
    /// empty.
    ///
    /// # Errors
    /// I/O failure. Nothing has changed then.
    pub(crate) fn store_new(&self, handle: &Handle<'_>) -> Result<()> {
        self.store_over(handle, true)
    }

    fn store_over(&self, handle: &Handle<'_>, is_new: bool) -> Result<()> {
        let volume = handle.volume();
        let core = self.core_to_store(volume);
        self.check_fits(&core).map_err(|detail| corrupt_inode(STRUCTURE, self.ino, None, detail))?;
        change_bytes(handle, self.ino, |slot| {
            if is_new {
                clear(slot, volume, self);
            }
            self.write(&core, slot)
        })
    }

    /// The core as it is written: formats and counts are those of the forks, and the forms of times and counts are those
    /// that Linux gives an inode when it changes it.
    fn core_to_store(&self, volume: &Volume) -> Dinode {
        let incompat = volume.superblock().features().incompat();
        let mut core = self.core.clone();
        (core.data_format, core.data_extents) = described(&self.data);
        let (attr_format, attr_extents) = self.attr.as_ref().map_or((ForkFormat::Extents, 0), described);
        (core.attr_format, core.attr_extents) =
            (attr_format, u32::try_from(attr_extents).unwrap_or(u32::MAX));
        if incompat.contains(Incompat::BIGTIME) {
            core.flags2 |= DiFlags2::BIGTIME;
        }
        if incompat.contains(Incompat::NREXT64) && !fits_narrow_counters(&core) {
            core.flags2 |= DiFlags2::NREXT64;
        }
        core
    }

    /// Checks that the forks fit where the core has them. Their being too long is a mistake of the code that made them.
    fn check_fits(&self, core: &Dinode) -> Verdict<()> {
        let verdict = check_fits(&self.data, core.data_fork.len())
            .and_then(|()| match &self.attr {
                Some(fork) => check_fits(fork, core.attr_fork.len()),
                None if core.attr_fork.is_empty() => Ok(()),
                None => Err("lacks the attribute fork that it has room for".into()),
            })
            .and_then(|()| {
                if core.flags2.contains(DiFlags2::NREXT64) || fits_narrow_counters(core) {
                    return Ok(());
                }
                let (data, attr) = (core.data_extents, core.attr_extents);
                Err(format!("has {data} extents and {attr} of attributes, more than its counters hold")
                    .into())
            });
        debug_assert_eq!(verdict, Ok(()), "inode {} is not as it can be stored: {:?}", self.ino, self.core);
        verdict
    }

    /// Writes everything into the inode's bytes, unless they are those of another inode.
    fn write(&self, core: &Dinode, slot: &mut [u8]) -> Verdict<()> {
        let Ok((raw, _)) = RawDinode::mut_from_prefix(slot) else {
            return Err(format!("has only {} bytes", slot.len()).into());
        };
        if raw.di_magic.get() != dinode::MAGIC || raw.di_ino.get() != self.ino.0 {
            return Err("another structure has taken its place".into());
        }
        core.write(raw);
        write_fork(&self.data, &mut slot[core.data_fork.clone()]);
        if let Some(attr) = &self.attr {
            write_fork(attr, &mut slot[core.attr_fork.clone()]);
        }
        Ok(())
    }

    /// The inode keeps times in the form that the volume's inodes have. One that was written before the volume had that
    /// form gets it with its next change, as in Linux.
    pub(crate) fn use_form_of_times(&mut self, volume: &Volume) {
        if self.core.version == 3 && volume.superblock().features().incompat().contains(Incompat::BIGTIME) {
            self.core.flags2 |= DiFlags2::BIGTIME;
        }
    }
}

/// A slot with nothing in it but what says which inode it is of.
fn clear(slot: &mut [u8], volume: &Volume, inode: &Inode) {
    slot.fill(0);
    write_identity(slot, volume, inode.ino);
}

/// Writes what an inode has in every state: magic number, version, number, UUID, and that it is on no unlinked list.
pub(crate) fn write_identity(slot: &mut [u8], volume: &Volume, ino: undercroft_vfs::Ino) {
    if let Ok((raw, _)) = RawDinode::mut_from_prefix(slot) {
        raw.di_magic.set(dinode::MAGIC);
        raw.di_version = 3;
        raw.di_next_unlinked.set(AgIno::NULL.0);
        raw.di_ino.set(ino.0);
        raw.di_uuid = *volume.superblock().meta_uuid().as_bytes();
    }
}

fn fits_narrow_counters(core: &Dinode) -> bool {
    core.data_extents <= NARROW_DATA_EXTENTS && core.attr_extents <= NARROW_ATTR_EXTENTS
}

/// A fork's format and how many extents it counts.
pub(super) fn described(fork: &Fork) -> (ForkFormat, u64) {
    match fork {
        Fork::Device(_) => (ForkFormat::Device, 0),
        Fork::Local(_) => (ForkFormat::Local, 0),
        Fork::Extents(extents) => (ForkFormat::Extents, extents.len() as u64),
        Fork::Btree(tree) => (ForkFormat::Btree, tree.extents),
    }
}

pub(super) fn check_fits(fork: &Fork, room: usize) -> Verdict<()> {
    let (fits, what, count) = match fork {
        Fork::Device(_) => (room >= 4, "device number", 1),
        Fork::Local(bytes) => (bytes.len() <= room, "bytes", bytes.len()),
        Fork::Extents(extents) => (extents.len() <= room / EXTENT_BYTES, "extents", extents.len()),
        Fork::Btree(tree) => (tree.root.len() == room, "bytes of a root", tree.root.len()),
    };
    if fits { Ok(()) } else { Err(format!("{count} {what} do not fit a fork of {room} bytes").into()) }
}

/// Writes a fork that fits.
fn write_fork(fork: &Fork, bytes: &mut [u8]) {
    let used = match fork {
        Fork::Device(number) => {
            // A new inode with a number that does not fit is refused before it is made.
            let raw = (number.major & 0x3fff) << 18 | number.minor & 0x3_ffff;
            bytes[..4].copy_from_slice(&raw.to_be_bytes());
            4
        }
        Fork::Local(content) => {
            bytes[..content.len()].copy_from_slice(content);
            content.len()
        }
        Fork::Extents(extents) => {
            for (bytes, extent) in bytes.chunks_exact_mut(EXTENT_BYTES).zip(extents.iter()) {
                bytes.copy_from_slice(RawExtent::pack(extent).as_bytes());
            }
            extents.len() * EXTENT_BYTES
        }
        Fork::Btree(tree) => {
            bytes.copy_from_slice(&tree.root);
            tree.root.len()
        }
    };
    bytes[used..].fill(0);
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, OnceLock};

    use undercroft_block::MemoryDevice;
    use undercroft_vfs::{Announce, DeviceNumber, FileType, Ino, NewInode, NewKind, Timestamp};

    use super::*;
    use crate::format::extent::Extent;
    use crate::format::{FileBlock, Superblock, testing};
    use crate::inode::ExtentTree;

    fn volume(incompat: u32) -> Volume {
        let sector = testing::superblock_sector(|raw| raw.sb_features_incompat.set(incompat));
        let superblock = Superblock::from_sector(&sector).unwrap();
        Volume::new(Arc::new(MemoryDevice::new(1 << 20)), superblock, 1 << 20)
    }

    fn directory(volume: &Volume, change: impl FnOnce(&mut RawDinode)) -> Inode {
        let bytes = testing::dinode(volume.superblock(), Ino(128), |raw| {
            raw.di_mode.set(0o040_755);
            raw.di_size.set(6);
            raw.di_format = 1;
            change(raw);
        });
        decode(volume, Ino(128), &bytes)
    }

    fn decode(volume: &Volume, ino: Ino, bytes: &[u8]) -> Inode {
        let core = dinode::validate(bytes, volume.superblock(), ino).unwrap().unwrap();
        let fork = |range: &std::ops::Range<usize>, format, extents, size| {
            Fork::new(&bytes[range.clone()], format, extents, size, volume.geometry()).unwrap()
        };
        let data = fork(&core.data_fork, core.data_format, core.data_extents, core.size_bytes);
        let attr = (!core.attr_fork.is_empty())
            .then(|| fork(&core.attr_fork, core.attr_format, core.attr_extents.into(), u64::MAX));
        Inode { ino, core, data, attr }
    }

    /// Written into a slot that is full of something, as a new inode or over itself, and read again.
    fn stored(volume: &Volume, inode: &Inode, is_new: bool) -> (Vec<u8>, Inode) {
        let mut slot = testing::dinode(volume.superblock(), inode.ino, |raw| {
            raw.di_dmevmask.set(0x0bad_cafe);
            raw.di_pad2 = [7; 12];
            raw.di_next_unlinked.set(900);
            raw.di_lsn.set(77);
        });
        slot[dinode::CORE_V3_BYTES..].fill(0xee);
        if is_new {
            clear(&mut slot, volume, inode);
        }
        let core = inode.core_to_store(volume);
        inode.check_fits(&core).unwrap();
        inode.write(&core, &mut slot).unwrap();
        crate::format::crc::seal(&mut slot, dinode::CRC_OFFSET);
        let again = decode(volume, inode.ino, &slot);
        (slot, again)
    }

    fn new(kind: NewKind<'_>) -> NewInode<'_> {
        NewInode {
            kind,
            permissions: 0o640,
            uid: 70_000,
            gid: 80_000,
            xattrs: &[],
            announce: Announce::default(),
        }
    }

    #[test]
    fn a_new_inode_is_read_as_it_was_made_and_nothing_of_the_old_one_stays() {
        for incompat in [0xb, 0x2b, 0x3] {
            let volume = volume(incompat);
            let parent = directory(&volume, |raw| raw.di_flags2.set(0)).inheritance();
            let device = DeviceNumber { major: 259, minor: 70_001 };
            for kind in [NewKind::Regular, NewKind::Fifo, NewKind::BlockDevice(device)] {
                let inode = Inode::fresh(&volume, &parent, Ino(131), 5, &new(kind), 1);
                let (slot, again) = stored(&volume, &inode, true);
                assert_eq!(format!("{again:?}"), format!("{inode:?}"));
                let (raw, forks) = RawDinode::ref_from_prefix(&slot).unwrap();
                assert_eq!(raw.di_next_unlinked.get(), u32::MAX);
                assert_eq!((raw.di_lsn.get(), raw.di_dmevmask.get(), raw.di_pad2), (0, 0, [0; 12]));
                let content = if kind == NewKind::BlockDevice(device) { 4 } else { 0 };
                assert!(forks[content..].iter().all(|&byte| byte == 0));
                let mut flags2 = DiFlags2::empty();
                flags2.set(DiFlags2::BIGTIME, incompat & 0x8 != 0);
                flags2.set(DiFlags2::NREXT64, incompat & 0x20 != 0);
                assert_eq!(raw.di_flags2.get(), flags2.bits());
            }
        }
    }

    #[test]
    fn what_no_field_stands_for_stays() {
        let volume = volume(0xb);
        let mut inode = directory(&volume, |raw| {
            raw.di_flags2.set(0);
            raw.di_mtime.set(5 << 32 | 6);
        });
        inode.note_change(Timestamp { seconds: 1 << 33, nanoseconds: 1 });
        assert_eq!(inode.core.changed.seconds, i64::from(i32::MAX));
        inode.use_form_of_times(&volume);
        inode.note_modification(Timestamp { seconds: 1 << 33, nanoseconds: 1 });
        let (slot, again) = stored(&volume, &inode, false);
        let (raw, _) = RawDinode::ref_from_prefix(&slot).unwrap();
        assert_eq!((raw.di_next_unlinked.get(), raw.di_dmevmask.get()), (900, 0x0bad_cafe));
        assert_eq!((raw.di_pad2, raw.di_lsn.get()), ([7; 12], 77));
        assert_eq!(again.core.modified, Timestamp { seconds: 1 << 33, nanoseconds: 1 });
        assert_eq!((again.core.change_count, again.core.flags2), (2, DiFlags2::BIGTIME));
    }

    #[test]
    fn every_form_of_a_fork_is_read_as_it_was_written() {
        let volume = volume(0x2b);
        let extents: Arc<[Extent]> = (0..17)
            .map(|n| Extent {
                file: FileBlock(n * 9),
                block: crate::format::FsBlock(50 + n),
                count: 1,
                unwritten: n == 3,
            })
            .collect();
        let mut root = vec![0; 280];
        root[..4].copy_from_slice(&[0, 1, 0, 1]);
        let tree = ExtentTree { root: root.into(), extents: 40, found: OnceLock::new() };
        for (kind, fork, size, blocks) in [
            (FileType::Directory, Fork::Local(b"xyzxyz".as_slice().into()), 6, 0),
            (FileType::Regular, Fork::Extents(extents), 4000, 17),
            (FileType::Regular, Fork::Btree(Arc::new(tree)), 4000, 41),
        ] {
            let mut inode = directory(&volume, |raw| raw.di_flags2.set(0x18));
            inode.core.kind = kind;
            (inode.data, inode.core.size_bytes, inode.core.blocks) = (fork, size, blocks);
            let (_, again) = stored(&volume, &inode, false);
            assert_eq!(format!("{:?}", again.data), format!("{:?}", inode.data));
            assert_eq!(
                (again.core.data_extents, again.core.flags2),
                (described(&inode.data).1, inode.core.flags2)
            );
        }
    }

    #[test]
    fn counters_widen_when_they_must_and_can() {
        let volume = volume(0x2b);
        let mut inode = directory(&volume, |raw| raw.di_flags2.set(0x8));
        let count = |inode: &mut Inode, extents| {
            let tree = ExtentTree { root: vec![0; 280].into(), extents, found: OnceLock::new() };
            inode.data = Fork::Btree(Arc::new(tree));
            inode.core_to_store(&volume).flags2
        };
        assert_eq!(count(&mut inode, i32::MAX as u64), DiFlags2::BIGTIME);
        assert_eq!(count(&mut inode, 1 << 31), DiFlags2::BIGTIME | DiFlags2::NREXT64);
    }
}

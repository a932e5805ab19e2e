//! A filesystem made in memory, as our own reader sees it. What Linux says stands in `crates/oracle/tests/mkfs`.

use std::sync::Arc;

use undercroft_block::{Device, MemoryDevice};
use undercroft_vfs::{Vfs, VfsOptions};

use super::*;
use crate::{Ext4, OpenOptions, Present};

fn options(features: &str) -> MkfsOptions {
    MkfsOptions { features: features.into(), ..MkfsOptions::new(Family::Ext4) }
}

fn made(size_bytes: u64, options: &MkfsOptions) -> (Device, NewFilesystem) {
    let device: Device = Arc::new(MemoryDevice::new(size_bytes));
    let filesystem = mkfs(&*device, options).unwrap();
    (device, filesystem)
}

fn refusal(size_bytes: u64, options: &MkfsOptions) -> String {
    mkfs(&MemoryDevice::new(size_bytes), options).unwrap_err().to_string()
}

#[test]
fn our_own_reader_opens_it() {
    for features in
        ["", "^has_journal,^extent,^64bit,^metadata_csum", "bigalloc", "meta_bg,^resize_inode", "mmp"]
    {
        let (device, _) = made(64 << 20, &MkfsOptions { label: b"new".into(), ..options(features) });
        let fs = Ext4::open_read_only(device, OpenOptions::default()).unwrap();
        assert_eq!(fs.superblock().label(), b"new");
        assert!(fs.orphans().unwrap().is_empty());
        let vfs = Vfs::new(fs, VfsOptions::default());
        let found = vfs.lookup(&vfs.root().unwrap(), b"lost+found").unwrap().attr();
        assert_eq!((found.ino.0, found.permissions, found.links), (11, 0o700, 2), "{features}");
    }
}

#[test]
fn memory_is_taken_for_what_is_written_only() {
    let device = MemoryDevice::new(1 << 40);
    mkfs(&device, &options("")).unwrap();
    assert!(device.allocated_bytes() < 64 << 20, "{}", device.allocated_bytes());
}

#[test]
fn what_is_there_is_overwritten_on_demand_only() {
    let device = MemoryDevice::new(8 << 20);
    mkfs(&device, &options("")).unwrap();
    let again = mkfs(&device, &options(""));
    let ext4 = Present::Known("an ext4 filesystem");
    assert!(matches!(again, Err(MkfsError::Present { what, .. }) if what == ext4));
    mkfs(&device, &MkfsOptions { overwrite: true, ..options("") }).unwrap();
    let gpt = MemoryDevice::new(8 << 20);
    gpt.write_at(512, b"EFI PART").unwrap();
    assert!(mkfs(&gpt, &options("")).unwrap_err().to_string().contains("GPT"));
}

#[test]
fn data_without_a_name_is_something_that_is_there() {
    for offset in [0, 1 << 19, (1 << 20) - 1, 7 << 20, (8 << 20) - 1] {
        let device = MemoryDevice::new(8 << 20);
        device.write_at(offset, &[1]).unwrap();
        let refusal = mkfs(&device, &options("")).unwrap_err();
        assert!(
            matches!(refusal, MkfsError::Present { what: Present::Unknown { offset: at }, .. } if at == offset),
            "{refusal}"
        );
        let shown = format!("data that is not known, from byte {offset} on");
        assert!(refusal.to_string().contains(&shown), "{refusal}");
        mkfs(&device, &MkfsOptions { overwrite: true, ..options("") }).unwrap();
    }
    // Of a device that keeps no account of its data the ends are looked at.
    let device = MemoryDevice::new(8 << 20);
    device.write_at(4 << 20, &[1]).unwrap();
    let mut seen = 0;
    assert_eq!(what_is_on(&device, &mut |at| seen = seen.max(at)).unwrap(), None);
    assert_eq!(seen, 8 << 20);
}

#[test]
fn what_cannot_be_made_is_refused_before_anything_is_written() {
    let with = |change: fn(&mut MkfsOptions)| {
        let mut options = options("");
        change(&mut options);
        options
    };
    type Change = fn(&mut MkfsOptions);
    let cases: [(Change, &str); 12] = [
        (|o| o.block_bytes = Some(3000), "power of two"),
        (|o| o.block_bytes = Some(1 << 17), "65536"),
        (|o| o.inode_bytes = Some(2048), "block size"),
        (|o| o.inodes = Some(u32::MAX), "too many"),
        (|o| o.label = vec![b'x'; 17], "16"),
        (|o| o.journal_bytes = Some(1 << 10), "journal of 1 blocks"),
        (|o| o.journal_bytes = Some(60 << 20), "does not fit"),
        (|o| o.reserved_percent = Some(51.0), "51%"),
        (|o| o.reserved_percent = Some(f64::NAN), "NaN%"),
        (|o| o.size_bytes = Some(1 << 40), "does not fit"),
        (|o| o.cluster_bytes = Some(65536), "bigalloc"),
        (|o| o.groups_per_flex = Some(3), "flex"),
    ];
    for (change, word) in cases {
        let answer = refusal(32 << 20, &with(change));
        assert!(answer.contains(word), "{word}: {answer}");
    }
    let small_groups = with(|o| (o.block_bytes, o.per_group) = (Some(1024), Some(256)));
    let answer = refusal(1 << 47, &small_groups);
    assert!(answer.contains("536870912 groups of 8 inodes") && answer.contains("-g"), "{answer}");
    for tiny in [0, 1024, 4096] {
        let device = MemoryDevice::new(tiny);
        assert!(mkfs(&device, &options("")).is_err(), "{tiny}");
        assert_eq!(device.allocated_bytes(), 0);
    }
}

/// Until the last write there is nothing to recognise, whatever the device held.
#[test]
fn the_superblock_comes_last() {
    use undercroft_block::Request;
    use undercroft_sync::{Mutex, order};

    #[derive(Debug)]
    struct Watched {
        device: MemoryDevice,
        recognised: Mutex<Vec<bool>>,
    }

    impl Watched {
        fn look(&self) {
            let recognised = Superblock::is_present(&self.device).unwrap();
            self.recognised.lock().push(recognised);
        }
    }

    impl BlockDevice for Watched {
        fn name(&self) -> String {
            self.device.name()
        }
        fn size_bytes(&self) -> u64 {
            self.device.size_bytes()
        }
        fn access(&self) -> undercroft_block::Access {
            self.device.access()
        }
        fn read_at(&self, offset: u64, buf: &mut [u8]) -> undercroft_block::Result<()> {
            self.device.read_at(offset, buf)
        }
        fn write_at(&self, offset: u64, data: &[u8]) -> undercroft_block::Result<()> {
            self.device.write_at(offset, data)?;
            self.look();
            Ok(())
        }
        fn run_batch(&self, batch: &mut [Request<'_>]) -> undercroft_block::Result<()> {
            self.device.run_batch(batch)?;
            self.look();
            Ok(())
        }
        fn flush(&self) -> undercroft_block::Result<()> {
            Ok(())
        }
    }

    let device =
        Watched { device: MemoryDevice::new(64 << 20), recognised: Mutex::new(&order::DEVICE, Vec::new()) };
    mkfs(&device, &options("")).unwrap();
    device.recognised.lock().clear();
    mkfs(&device, &MkfsOptions { overwrite: true, discard: Some(false), ..options("") }).unwrap();
    let seen = device.recognised.lock();
    let (last, before) = seen.split_last().unwrap();
    assert!(*last && before.len() > 5);
    // The first write of zeroes takes the old one away.
    assert!(before.iter().all(|&recognised| !recognised), "{seen:?}");
}

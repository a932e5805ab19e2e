//! Changes of a file's content against a vector of bytes, checked on the disk by e2fsck and the kernel.

use std::sync::Arc;

use undercroft_block::testing::Rng;
use undercroft_block::{FileDevice, FileOptions};
#[cfg(feature = "oracle")]
use undercroft_oracle::MountMode;
use undercroft_vfs::{Durable, FallocateMode, WriteKind, clock};

use super::*;
use crate::dir;
use crate::inode::ROOT_INODE;
use crate::options::WriteOptions;
use crate::testing::images::{Image, Mke2fs, Scratch};
use crate::testing::writable::Writable;

/// The largest offset, in blocks.
const BLOCKS: u64 = 64;

struct Subject {
    writable: Writable,
    live: Arc<Live>,
    model: Vec<u8>,
    random: Rng,
}

impl Subject {
    fn new(mke2fs: Mke2fs, content: &[u8], seed: u64) -> Self {
        let source = Scratch::new("tree").unwrap();
        std::fs::write(source.path().join("f"), content).unwrap();
        let image = mke2fs.args(["-d", source.path().to_str().unwrap()]).make().unwrap();
        Self::open(image, content.to_vec(), seed, WriteOptions::default())
    }

    fn open(image: Image, model: Vec<u8>, seed: u64, options: WriteOptions) -> Self {
        let writable = Writable::open(image, options);
        let root = Inode::read(&writable.volume, ROOT_INODE).unwrap();
        let number = dir::lookup(&writable.volume, &root, b"f").unwrap().unwrap();
        let live = writable.live(number);
        Self { writable, live, model, random: Rng::new(seed) }
    }

    fn random(&mut self, below: u64) -> u64 {
        self.random.below(below)
    }

    fn block(&self) -> u64 {
        u64::from(self.live.volume.block_bytes())
    }

    /// An offset or a length: anywhere, or at a block's edge.
    fn place(&mut self) -> u64 {
        let block = self.block();
        match self.random(3) {
            0 => self.random(BLOCKS) * block,
            1 => (self.random(BLOCKS) * block + self.random(5)).saturating_sub(2),
            _ => self.random(BLOCKS * block),
        }
    }

    /// As the vfs writes: whole blocks where nothing was written, with zeroes around.
    fn write(&mut self, offset: u64, data: &[u8]) -> Result<()> {
        self.clear_tail(offset);
        let block = self.block();
        let mut done = 0;
        while done < data.len() {
            let at = offset + done as u64;
            let rest = &data[done..];
            let (extent, written) = match map(&self.live, at)? {
                known @ Extent { mapping: Mapping::Device { .. }, .. } => (known, WriteKind::Overwrite),
                _ => (prepare_write(&self.live, at, rest.len() as u64)?, WriteKind::Allocating),
            };
            let into = at - extent.start;
            let len = (extent.len - into).min(rest.len() as u64);
            let piece = &rest[..len as usize];
            let device = self.live.volume.device();
            match extent.mapping {
                Mapping::Device { offset } => device.write_at(offset + into, piece).unwrap(),
                Mapping::Unwritten { offset } => {
                    let head = into % block;
                    let mut whole = vec![0; head as usize];
                    whole.extend_from_slice(piece);
                    whole.resize(whole.len().next_multiple_of(block as usize), 0);
                    device.write_at(offset + into - head, &whole).unwrap();
                }
                other => panic!("prepared, and {other:?}"),
            }
            finish_write(&self.live, at, len, at + len, written)?;
            done += len as usize;
            let end = (at + len) as usize;
            self.model.resize(self.model.len().max(end), 0);
            self.model[at as usize..end].copy_from_slice(piece);
        }
        Ok(())
    }

    /// As the vfs does before it moves the end.
    fn clear_tail(&self, until: u64) {
        let (size, block) = (size(&self.live), self.block());
        let len = (block - size % block) % block;
        if until <= size || len == 0 {
            return;
        }
        if let Extent { start, mapping: Mapping::Device { offset }, .. } = map(&self.live, size).unwrap() {
            let device = self.live.volume.device();
            device.write_at(offset + (size - start), &vec![0; len as usize]).unwrap();
        }
    }

    fn set_size(&mut self, size: u64) {
        self.clear_tail(size);
        set_size(&self.live, size).unwrap();
        self.model.resize(size as usize, 0);
    }

    fn fallocate(&mut self, change: FallocateMode, offset: u64, len: u64) {
        let old = self.model.len() as u64;
        let size = match change {
            FallocateMode::Allocate | FallocateMode::Zero => old.max(offset + len),
            FallocateMode::PunchHole => old,
            FallocateMode::Collapse => old - len,
            FallocateMode::Insert => old + len,
        };
        if change != FallocateMode::Insert {
            self.clear_tail(size);
        }
        fallocate(&self.live, change, offset, len, size).unwrap();
        let (from, to) = (offset as usize, (offset + len) as usize);
        match change {
            FallocateMode::Allocate => self.model.resize(size as usize, 0),
            FallocateMode::Zero | FallocateMode::PunchHole => {
                self.model.resize(size as usize, 0);
                let len = self.model.len();
                self.model[from.min(len)..to.min(len)].fill(0);
            }
            FallocateMode::Collapse => drop(self.model.drain(from..to)),
            FallocateMode::Insert => drop(self.model.splice(from..from, vec![0; len as usize])),
        }
    }

    fn read(&self) -> Vec<u8> {
        let mut bytes = vec![0; size(&self.live) as usize];
        let mut at = 0;
        while at < bytes.len() {
            let extent = map(&self.live, at as u64).unwrap();
            assert!(extent.start <= at as u64 && at as u64 - extent.start < extent.len);
            let into = at as u64 - extent.start;
            let len = (extent.len - into).min((bytes.len() - at) as u64) as usize;
            match extent.mapping {
                Mapping::Device { offset } => {
                    self.live.volume.device().read_at(offset + into, &mut bytes[at..at + len]).unwrap();
                }
                Mapping::Inline(inline) => bytes[..inline.len()].copy_from_slice(&inline),
                _ => {}
            }
            at += len;
        }
        bytes
    }

    fn step(&mut self, extents: bool) {
        let (offset, len) = (self.place(), 1 + self.place() / 3);
        let salt = self.random.bits();
        let data: Vec<u8> = (0..len).map(|n| (n * 7).wrapping_add(salt) as u8 | 1).collect();
        let (block, size) = (self.block(), self.model.len() as u64);
        match self.random(if extents { 14 } else { 9 }) {
            0..4 => self.write(offset, &data).unwrap(),
            4 | 5 => self.write(size, &data).unwrap(),
            6 => self.set_size(offset),
            7 => self.fallocate(FallocateMode::PunchHole, offset, len),
            8 => self.writable.commit(),
            9 | 10 => self.fallocate(FallocateMode::Allocate, offset, len),
            11 => self.fallocate(FallocateMode::Zero, offset, len),
            12 => {
                let (offset, len) = (offset / block * block, len.next_multiple_of(block));
                if offset + len < size {
                    self.fallocate(FallocateMode::Collapse, offset, len);
                }
            }
            _ => {
                let (offset, len) = (offset / block * block, len.next_multiple_of(block));
                if offset < size && size < 4 * BLOCKS * block {
                    self.fallocate(FallocateMode::Insert, offset, len);
                }
            }
        }
    }

    fn work(&mut self, steps: usize, extents: bool) {
        for step in 0..steps {
            self.step(extents);
            assert!(self.read() == self.model, "differs after step {step}");
        }
    }

    /// Asks e2fsck and the kernel.
    #[cfg(feature = "oracle")]
    fn verify(self) {
        give_back_reserved(&self.live);
        drop(self.live);
        let image = self.writable.finish();
        let mount = image.mount(MountMode::ReadOnly, "").unwrap();
        let read = std::fs::read(mount.path().join("f")).unwrap();
        assert!(read == self.model, "the kernel reads something else");
        mount.unmount().unwrap();
    }

    /// Checks the image, and opens it anew.
    #[cfg(not(feature = "oracle"))]
    fn verify(self) {
        give_back_reserved(&self.live);
        drop(self.live);
        let image = self.writable.finish();
        let device = FileDevice::open(image.path(), FileOptions::read_only()).unwrap();
        let fs = crate::Ext4::open_read_only(Arc::new(device), Default::default()).unwrap();
        let vfs = undercroft_vfs::Vfs::new(fs, Default::default());
        let read = vfs.read(&undercroft_vfs::Credentials::root(), "/f").unwrap();
        assert!(read == self.model, "something else is read after a new start");
    }
}

fn ext4(block: u32) -> Mke2fs {
    Mke2fs::new("ext4", 32).block_bytes(block).features("^has_journal")
}

#[test]
fn bytes_are_what_was_written() {
    for (mke2fs, extents) in [(ext4(4096), true), (ext4(1024), true), (Mke2fs::new("ext2", 32), false)] {
        for seed in 1..4 {
            let mut subject = Subject::new(mke2fs.clone(), b"", seed);
            subject.work(400, extents);
            subject.verify();
        }
    }
}

#[cfg(feature = "oracle")]
#[test]
fn what_lay_in_the_inode_moves_to_a_block() {
    let inline = || Mke2fs::new("ext4", 32).inode_bytes(256).features("inline_data,^has_journal");
    for content in [&b"short"[..], &[7; 100]] {
        let mut subject = Subject::new(inline(), content, 1);
        assert!(subject.live.fields.read().has_inline_data());
        subject.write(3, b"abc").unwrap();
        assert!(subject.read() == subject.model);
        subject.verify();
        for size in [0, 2, 99, 5000] {
            let mut subject = Subject::new(inline(), content, 1);
            subject.set_size(size);
            assert!(subject.read() == subject.model);
            subject.verify();
        }
    }
}

#[test]
fn small_writes_at_the_end_lie_together() {
    let mut subject = Subject::new(ext4(4096), b"", 1);
    let mut other = 0;
    for n in 0..1000 {
        subject.write(n * 4096, &[n as u8; 4096]).unwrap();
        // Another file takes blocks where this one would go on.
        let handle = subject.live.volume.start(10).unwrap();
        let allocator = &subject.live.volume.writer().unwrap().allocator;
        let Mapping::Device { offset } = map(&subject.live, n * 4096).unwrap().mapping else { panic!() };
        let goal = FsBlock(offset / 4096 + 1);
        let (block, _) = allocator.allocate(&handle, goal, 1, crate::alloc::Purpose::Data).unwrap();
        allocator.free(&handle, block, 1).unwrap();
        other += 1;
    }
    let (mut at, mut pieces) = (0, 0);
    while at < 4096 * other {
        let extent = map(&subject.live, at).unwrap();
        at = extent.start + extent.len;
        pieces += 1;
    }
    assert!(pieces < 20, "a file of {other} blocks is in {pieces} pieces");
    subject.verify();
}

#[test]
fn a_write_over_what_is_there_starts_no_handle() {
    let mut subject = Subject::new(ext4(4096), b"", 1);
    subject.write(0, &[1; 100_000]).unwrap();
    subject.writable.commit();
    let started = || subject.live.volume.writer().unwrap().transactions.handles_started();
    let before = started();
    let old = subject.live.fields.read().modified;
    while clock::now() <= old {
        std::thread::yield_now();
    }
    finish_write(&subject.live, 4096, 8192, 12_288, WriteKind::Overwrite).unwrap();
    assert_eq!(started(), before);
    assert!(subject.live.fields.read().modified > old);
    subject.live.store_lazy_times().unwrap();
    assert_eq!(started(), before + 1);
    subject.verify();
}

#[test]
fn what_is_durable_costs_a_flush() {
    let mut subject = Subject::new(ext4(4096), b"", 1);
    subject.write(0, &[1; 4096]).unwrap();
    subject.writable.commit();
    sync(&subject.live, Durable::Data).unwrap();
    subject.live.store_lazy_times().unwrap();
    subject.writable.commit();
    sync(&subject.live, Durable::Everything).unwrap();
    subject.verify();
}

#[test]
fn a_full_filesystem_is_full_to_the_last_block() {
    let mut subject = Subject::new(Mke2fs::new("ext4", 8).features("^has_journal").args(["-m", "0"]), b"", 1);
    let block = subject.block();
    let mut at = 0;
    while subject.write(at * block, &vec![1; block as usize]).is_ok() {
        at += 1;
    }
    let writer = subject.live.volume.writer().unwrap();
    give_back_reserved(&subject.live);
    let left = writer.allocator.free_blocks().saturating_sub(writer.allocator.held_back());
    assert!(left <= 1, "{left} blocks are left");
    subject.set_size(block);
    subject.writable.commit();
    subject.write(10 * block, &[2; 100]).unwrap();
    subject.verify();
}

#[test]
fn a_file_that_becomes_large_says_so_in_the_superblock() {
    let mut subject = Subject::new(ext4(4096).features("^has_journal,^large_file,^huge_file"), b"", 1);
    set_size(&subject.live, 3 << 30).unwrap();
    subject.model.clear();
    give_back_reserved(&subject.live);
    drop(subject.live);
    let image = subject.writable.finish();
    let device = FileDevice::open(image.path(), FileOptions::read_only()).unwrap();
    let superblock = crate::superblock::Superblock::read(&device).unwrap();
    assert!(superblock.features().ro_compat.contains(crate::features::RoCompat::LARGE_FILE));
}

/// Threads write whole blocks within the size of a file of holes, some of them the same ones, while transactions are
/// committed.
#[test]
fn threads_fill_the_holes_of_one_file_at_once() {
    const THREADS: u64 = 4;
    const BLOCKS: u64 = 600;
    let mut subject = Subject::new(ext4(1024), b"", 1);
    subject.set_size(BLOCKS * 1024);
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (live, writable) = (&subject.live, &subject.writable);
        let writers: Vec<_> = (0..THREADS)
            .map(|thread| {
                scope.spawn(move || {
                    for n in 0..BLOCKS {
                        // Each block by two threads, in an order of their own, and with the same bytes.
                        let block = n * [7, 11, 13, 17][thread as usize] % BLOCKS;
                        if block % THREADS / 2 == thread / 2 {
                            continue;
                        }
                        let at = block * 1024;
                        let known = map(live, at).unwrap();
                        let (extent, written) = match known.mapping {
                            Mapping::Device { .. } => (known, WriteKind::Overwrite),
                            _ => (prepare_write(live, at, 1024).unwrap(), WriteKind::Allocating),
                        };
                        let (Mapping::Device { offset } | Mapping::Unwritten { offset }) = extent.mapping
                        else {
                            panic!("{extent:?}");
                        };
                        let bytes = [block as u8 | 1; 1024];
                        live.volume.device().write_at(offset + (at - extent.start), &bytes).unwrap();
                        finish_write(live, at, 1024, at + 1024, written).unwrap();
                    }
                })
            })
            .collect();
        let committer = scope.spawn(|| {
            while !done.load(std::sync::atomic::Ordering::Relaxed) {
                writable.commit();
            }
        });
        for writer in writers {
            writer.join().unwrap();
        }
        done.store(true, std::sync::atomic::Ordering::Relaxed);
        committer.join().unwrap();
    });
    subject.model = (0..BLOCKS).flat_map(|block| [block as u8 | 1; 1024]).collect();
    assert!(subject.read() == subject.model);
    subject.verify();
}

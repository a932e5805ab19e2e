//! Changes of a file's content against a vector of bytes, checked on the disk by xfs_repair and the kernel.

use std::sync::Arc;

use undercroft_block::testing::Rng;
use undercroft_oracle::{Image, MkfsXfs, MountMode};
use undercroft_vfs::{Durable, Extent, FallocateMode, Ino, Mapping, WriteKind, clock};

use super::*;
use crate::inode::{Fork, ForkKind};
use crate::map::change;
use crate::options::WriteOptions;
use crate::testing::writable::Writable;

/// The largest offset, in blocks.
const BLOCKS: u64 = 64;

/// Small images of the usual kinds.
const KINDS: [&str; 3] = [
    "-m crc=1,reflink=1,rmapbt=1",
    "-m crc=1,reflink=0,rmapbt=0 -b size=1024",
    "-m crc=1,reflink=1,rmapbt=1,finobt=1 -i nrext64=1 -b size=1024 -d agcount=3",
];

struct Subject {
    writable: Writable,
    live: Arc<Live>,
    model: Vec<u8>,
    /// Other files, which must stay as they are.
    others: Vec<(&'static str, Vec<u8>)>,
    random: Rng,
}

/// An image with a file `f`, and the number of that file.
fn image(mib: u64, args: &str, fill: impl FnOnce(&std::path::Path)) -> (Image, Ino) {
    let image = MkfsXfs::new(mib, args).make().unwrap();
    let mount = image.mount(MountMode::ReadWrite, "").unwrap();
    let file = mount.path().join("f");
    fill(mount.path());
    if !file.exists() {
        std::fs::write(&file, b"").unwrap();
    }
    let ino = std::os::unix::fs::MetadataExt::ino(&std::fs::metadata(&file).unwrap());
    mount.unmount().unwrap();
    (image, Ino(ino))
}

fn run(program: &str, args: &[&str]) {
    let status = std::process::Command::new(program).args(args).status().unwrap();
    assert!(status.success(), "{program} {args:?}: {status}");
}

impl Subject {
    fn new(args: &str, seed: u64) -> Self {
        let (image, ino) = image(64, args, |_| {});
        Self::open(image, ino, Vec::new(), seed)
    }

    fn open(image: Image, ino: Ino, model: Vec<u8>, seed: u64) -> Self {
        let writable = Writable::open(image, WriteOptions::default());
        let live = writable.live(ino);
        Self { writable, live, model, others: Vec::new(), random: Rng::new(seed) }
    }

    /// A file of `blocks` blocks that shares all of them, or but for every third, with the file `g`.
    fn sharing(args: &str, blocks: u64, seed: u64) -> Self {
        let mut content = Vec::new();
        let (image, ino) = image(64, args, |root| {
            let block = std::os::unix::fs::MetadataExt::blksize(&std::fs::metadata(root).unwrap());
            content = (0..blocks * block).map(|n| (n / 64 + seed) as u8 | 1).collect();
            std::fs::write(root.join("g"), &content).unwrap();
            let paths = [root.join("g"), root.join("f")].map(|path| path.display().to_string());
            run("cp", &["--reflink=always", &paths[0], &paths[1]]);
        });
        let mut subject = Self::open(image, ino, content.clone(), seed);
        subject.others.push(("g", content));
        subject
    }

    fn random(&mut self, below: u64) -> u64 {
        self.random.below(below)
    }

    fn block(&self) -> u64 {
        u64::from(self.live.volume.geometry().block_bytes())
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

    /// As the vfs writes: whole blocks where nothing was written, with what was there around.
    fn write(&mut self, offset: u64, data: &[u8]) -> Result<()> {
        self.clear_tail(offset)?;
        let mut done = 0;
        while done < data.len() {
            let at = offset + done as u64;
            let len = self.write_some(at, &data[done..])?;
            done += len;
            let end = at as usize + len;
            self.model.resize(self.model.len().max(end), 0);
            self.model[at as usize..end].copy_from_slice(&data[done - len..done]);
        }
        Ok(())
    }

    fn write_some(&self, at: u64, rest: &[u8]) -> Result<usize> {
        let block = self.block();
        let device = self.live.volume.device();
        let known = map(&self.live, at)?;
        let rest = &rest[..(known.len - (at - known.start)).min(rest.len() as u64) as usize];
        let (extent, written) = match known.mapping {
            Mapping::Device { .. } => (known.clone(), WriteKind::Overwrite),
            _ => (prepare_write(&self.live, at, rest.len() as u64)?, WriteKind::Allocating),
        };
        let into = at - extent.start;
        let piece = &rest[..(extent.len - into).min(rest.len() as u64) as usize];
        match extent.mapping {
            Mapping::Device { offset } => device.write_at(offset + into, piece).unwrap(),
            Mapping::Unwritten { offset } => {
                let head = into % block;
                let mut whole = vec![0; (head + piece.len() as u64).next_multiple_of(block) as usize];
                if let Mapping::Shared { offset } = known.mapping {
                    device.read_at(offset + (at - head - known.start), &mut whole).unwrap();
                }
                whole[head as usize..][..piece.len()].copy_from_slice(piece);
                device.write_at(offset + into - head, &whole).unwrap();
            }
            other => panic!("prepared, and {other:?}"),
        }
        let end = at + piece.len() as u64;
        finish_write(&self.live, at, piece.len() as u64, end, written)?;
        Ok(piece.len())
    }

    /// As the vfs does before it moves the end.
    fn clear_tail(&self, until: u64) -> Result<()> {
        let (size, block) = (size(&self.live), self.block());
        let len = (block - size % block) % block;
        if until <= size || len == 0 {
            return Ok(());
        }
        clear::clear(&self.live, size, size + len)
    }

    fn set_size(&mut self, size: u64) {
        self.clear_tail(size).unwrap();
        set_size(&self.live, size).unwrap();
        self.model.resize(size as usize, 0);
    }

    fn fallocate(&mut self, change: FallocateMode, offset: u64, len: u64, keep_size: bool) {
        let old = self.model.len() as u64;
        let size = match change {
            FallocateMode::Allocate | FallocateMode::Zero if !keep_size => old.max(offset + len),
            FallocateMode::Allocate | FallocateMode::Zero | FallocateMode::PunchHole => old,
            FallocateMode::Collapse => old - len,
            FallocateMode::Insert => old + len,
        };
        if change != FallocateMode::Insert {
            self.clear_tail(size).unwrap();
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
            if let Mapping::Device { offset } | Mapping::Shared { offset } = extent.mapping {
                self.live.volume.device().read_at(offset + into, &mut bytes[at..at + len]).unwrap();
            }
            at += len;
        }
        bytes
    }

    fn step(&mut self, moves: bool) {
        let (offset, len) = (self.place(), 1 + self.place() / 3);
        let salt = self.random.bits();
        let data: Vec<u8> = (0..len).map(|n| (n * 7).wrapping_add(salt) as u8 | 1).collect();
        let (block, size) = (self.block(), self.model.len() as u64);
        let keep_size = self.random(3) == 0;
        match self.random(if moves { 15 } else { 13 }) {
            0..4 => self.write(offset, &data).unwrap(),
            4 | 5 => self.write(size, &data).unwrap(),
            6 => self.set_size(offset),
            7 | 8 => self.fallocate(FallocateMode::PunchHole, offset, len / 4 + 1, false),
            9 => self.writable.commit(),
            10 | 11 => self.fallocate(FallocateMode::Allocate, offset, len, keep_size),
            12 => self.fallocate(FallocateMode::Zero, offset, len, keep_size),
            13 => {
                let (offset, len) = (offset / block * block, len.next_multiple_of(block));
                if offset + len < size {
                    self.fallocate(FallocateMode::Collapse, offset, len, false);
                }
            }
            _ => {
                let (offset, len) = (offset / block * block, len.next_multiple_of(block));
                if offset < size && size < 4 * BLOCKS * block {
                    self.fallocate(FallocateMode::Insert, offset, len, false);
                }
            }
        }
    }

    fn work(&mut self, steps: usize, moves: bool) {
        for step in 0..steps {
            self.step(moves);
            assert!(self.read() == self.model, "differs after step {step}");
        }
    }

    /// Works while another thread commits, as the commit thread does in use.
    fn with_commits<T>(&mut self, work: impl FnOnce(&mut Self) -> T) -> T {
        let volume = Arc::clone(&self.writable.volume);
        let done = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(std::sync::atomic::Ordering::Relaxed) {
                    volume.writer().unwrap().transactions.commit_running(&volume).unwrap();
                    std::thread::sleep(std::time::Duration::from_micros(200));
                }
            });
            // Also when `work` panics.
            let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| work(self)));
            done.store(true, std::sync::atomic::Ordering::Relaxed);
            outcome.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    fn allocator(&self) -> &Arc<crate::alloc::Allocator> {
        &self.live.volume.writer().unwrap().allocator
    }

    /// Everything that is free, held.
    fn hold_everything(&self) -> (Vec<crate::alloc::Held>, u64) {
        let (mut held, mut reserved) = (Vec::new(), 0);
        while let Ok(more) = self.allocator().hold(&self.live.volume, crate::format::FsBlock(0), 1 << 20) {
            held.push(more);
        }
        while self.allocator().reserve(1) {
            reserved += 1;
        }
        (held, reserved)
    }

    /// Asks xfs_repair, our own check and the kernel.
    fn verify(self) {
        give_back_reserved(&self.live);
        drop(self.live);
        let image = self.writable.finish();
        let mount = image.mount(MountMode::ReadOnly, "").unwrap();
        for (name, content) in [("f", self.model)].into_iter().chain(self.others) {
            let read = std::fs::read(mount.path().join(name)).unwrap();
            assert!(read == content, "the kernel reads something else in {name}");
        }
        mount.unmount().unwrap();
    }
}

#[test]
fn bytes_are_what_was_written() {
    for args in KINDS {
        for seed in 1..4 {
            let mut subject = Subject::new(args, seed);
            subject.work(400, true);
            subject.verify();
        }
    }
}

#[test]
fn shared_blocks_are_replaced_and_other_files_stay() {
    for args in [KINDS[0], KINDS[2]] {
        for seed in 1..4 {
            let mut subject = Subject::sharing(args, 40, seed);
            subject.work(120, false);
            subject.verify();
        }
    }
}

/// Every second block, then the others: from the inode to a tree and back.
#[test]
fn a_map_goes_from_the_inode_to_a_tree_and_back() {
    for args in KINDS {
        let mut subject = Subject::new(args, 1);
        let block = subject.block();
        let data = vec![5; block as usize];
        for n in 0..600 {
            subject.write(2 * n * block, &data).unwrap();
        }
        assert!(matches!(subject.live.fields.read().data, Fork::Btree(_)));
        subject.writable.check();
        for n in (0..600).rev() {
            subject.write((2 * n + 1) * block, &data).unwrap();
        }
        assert!(subject.read() == subject.model);
        for n in 0..598 {
            subject.fallocate(FallocateMode::PunchHole, 2 * n * block, block, true);
        }
        assert!(matches!(subject.live.fields.read().data, Fork::Btree(_)));
        subject.writable.check();
        subject.set_size(9 * block);
        assert!(matches!(subject.live.fields.read().data, Fork::Extents(_)));
        subject.verify();
    }
}

#[test]
fn small_writes_at_the_end_lie_together() {
    let mut subject = Subject::new(KINDS[0], 1);
    let mut at = 0;
    for n in 0..300_u64 {
        let data = vec![n as u8 | 1; 4096];
        subject.write(at, &data).unwrap();
        at += 4096;
    }
    assert!(subject.live.fields.read().core.data_extents < 4);
    subject.verify();
}

#[test]
fn a_write_over_what_is_there_starts_no_handle() {
    let mut subject = Subject::new(KINDS[0], 1);
    subject.write(0, &[1; 100_000]).unwrap();
    subject.writable.commit();
    let started = || subject.live.volume.writer().unwrap().transactions.handles_started();
    let before = started();
    let old = subject.live.fields.read().core.modified;
    while clock::now() <= old {
        std::thread::yield_now();
    }
    finish_write(&subject.live, 4096, 8192, 12_288, WriteKind::Overwrite).unwrap();
    assert_eq!(started(), before);
    assert!(subject.live.fields.read().core.modified > old);
    subject.live.store_lazy_times().unwrap();
    assert_eq!(started(), before + 1);
    subject.verify();
}

#[test]
fn what_is_durable_costs_a_flush() {
    let mut subject = Subject::new(KINDS[0], 1);
    subject.write(0, &[1; 4096]).unwrap();
    subject.writable.commit();
    sync(&subject.live, Durable::Data).unwrap();
    subject.live.store_lazy_times().unwrap();
    subject.writable.commit();
    sync(&subject.live, Durable::Everything).unwrap();
    subject.verify();
}

/// Post-EOF blocks that were written, as Linux's allocation ahead and an interrupted truncation leave them.
#[test]
fn old_bytes_behind_the_end_never_show() {
    let changes: [fn(&mut Subject); 6] = [
        |subject| subject.set_size(40_000),
        |subject| subject.write(30_000, &[9; 100]).unwrap(),
        |subject| subject.write(5000, &[9; 10_000]).unwrap(),
        |subject| subject.fallocate(FallocateMode::Allocate, 3000, 50_000, false),
        |subject| {
            subject.fallocate(FallocateMode::Allocate, 3000, 50_000, true);
            subject.set_size(60_000);
        },
        |subject| {
            subject.fallocate(FallocateMode::Insert, 0, 8192, false);
            subject.set_size(60_000);
        },
    ];
    for change in changes {
        let mut subject = Subject::new(KINDS[0], 1);
        subject.write(0, &[0xee; 100_000]).unwrap();
        {
            // The size alone.
            let handle = subject.live.volume.start(1).unwrap();
            let mut fields = subject.live.fields.write();
            store_keeping_times(&subject.live, &handle, &mut fields, Some(5000)).unwrap();
            subject.model.truncate(5000);
        }
        // As after a crash the inode is read anew.
        subject.live = subject.writable.live(subject.live.ino);
        subject.writable.check();
        change(&mut subject);
        assert!(subject.read() == subject.model);
        subject.verify();
    }
}

#[test]
fn a_write_that_fails_leaves_nothing_behind() {
    let mut subject = Subject::sharing(KINDS[0], 8, 1);
    let free = || subject.live.volume.writer().unwrap().allocator.free_blocks();
    let before = free();
    prepare_write(&subject.live, 4096, 4096).unwrap();
    assert!(free() < before);
    cancel_write(&subject.live);
    assert_eq!(free(), before);
    // One that is neither finished nor cancelled.
    prepare_write(&subject.live, 4096, 8192).unwrap();
    subject.write(4096, &[7; 4096]).unwrap();
    assert!(subject.read() == subject.model);
    subject.verify();
}

/// Two writes that begin with the same block: the end of one leaves the other's blocks protected.
#[test]
fn a_write_in_flight_keeps_its_blocks() {
    let mut subject = Subject::new(KINDS[0], 1);
    subject.set_size(40 * 4096);
    let live = &subject.live;
    let device = live.volume.device();
    let long = prepare_write(live, 0, 8 * 4096).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let short = prepare_write(live, 0, 4096).unwrap();
            let Mapping::Unwritten { offset } = short.mapping else { panic!("{short:?}") };
            device.write_at(offset, &[3; 4096]).unwrap();
            finish_write(live, 0, 4096, 4096, WriteKind::Allocating).unwrap();
        });
    });
    live.content.free_window();
    let Extent { len, mapping: Mapping::Unwritten { offset }, .. } = long else { panic!("{long:?}") };
    assert_eq!(len, 8 * 4096);
    device.write_at(offset, &[4; 8 * 4096]).unwrap();
    finish_write(live, 0, len, len, WriteKind::Allocating).unwrap();
    subject.model[..8 * 4096].fill(4);
    assert!(subject.read() == subject.model);
    subject.verify();
}

#[test]
fn a_full_filesystem_refuses_and_goes_on() {
    for args in KINDS {
        let mut subject = Subject::new(args, 1);
        let block = subject.block();
        subject.with_commits(|subject| {
            let mut at = 0;
            // Large pieces first, then single blocks with holes between.
            while subject.write(at * block, &vec![1; 64 * block as usize]).is_ok() {
                at += 64;
            }
            at = subject.model.len() as u64 / block + 1;
            while subject.write(at * block, &vec![2; block as usize]).is_ok() {
                at += 2;
            }
            assert!(subject.allocator().free_blocks() < 8, "{} are left", subject.allocator().free_blocks());
            assert!(subject.read() == subject.model);
            subject.set_size(3 * block);
            subject.write(10 * block, &[2; 100]).unwrap();
            assert!(subject.read() == subject.model);
        });
        subject.verify();
    }
}

#[test]
fn a_file_may_begin_where_others_end() {
    let mut subject = Subject::new(KINDS[0], 1);
    let far = (i64::MAX as u64 / 4096 - 2) * 4096;
    let extent = prepare_write(&subject.live, far, 4096).unwrap();
    let Mapping::Unwritten { offset } = extent.mapping else { panic!("{extent:?}") };
    subject.live.volume.device().write_at(offset, &[1; 4096]).unwrap();
    finish_write(&subject.live, far, 4096, far + 4096, WriteKind::Allocating).unwrap();
    assert!(matches!(map(&subject.live, far).unwrap().mapping, Mapping::Device { .. }));
    assert!(matches!(prepare_write(&subject.live, 1 << 63, 1), Err(Error::FileTooLarge)));
    let insert = fallocate(&subject.live, FallocateMode::Insert, 0, 1 << 20, far + 4096 + (1 << 20));
    assert!(matches!(insert, Err(Error::FileTooLarge)));
    subject.set_size(0);
    subject.verify();
}

#[test]
fn everything_is_removed_at_once_or_in_steps() {
    for blocks in [1, 3, 500] {
        let mut subject = Subject::new(KINDS[0], 1);
        let free = subject.live.volume.writer().unwrap().allocator.free_blocks();
        for n in 0..blocks {
            subject.write(2 * n * 4096, &[1; 4096]).unwrap();
        }
        subject.writable.commit();
        let credits = remove_all_credits(&subject.live, &subject.live.fields.read());
        assert_eq!(credits.is_some(), blocks < 5);
        match credits {
            Some(credits) => {
                let handle = subject.live.volume.start(credits).unwrap();
                truncate_now(&handle, &subject.live).unwrap();
            }
            None => truncate_all(&subject.live).unwrap(),
        }
        subject.writable.commit();
        subject.model.clear();
        assert_eq!(subject.live.fields.read().core.blocks, 0);
        assert_eq!(subject.live.volume.writer().unwrap().allocator.free_blocks(), free);
        subject.verify();
    }
}

/// Threads write whole blocks within the size of a file of holes, some of them the same ones, while transactions are
/// committed.
#[test]
fn threads_fill_the_holes_of_one_file_at_once() {
    const THREADS: u64 = 4;
    const BLOCKS: u64 = 600;
    let mut subject = Subject::new(KINDS[2], 1);
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

/// The leaf of the file's tree is full, so that one more extent takes a block for the tree.
#[test]
fn a_prepared_write_is_finished_although_space_ran_out() {
    for unwritten in [false, true] {
        let mut subject = Subject::new(KINDS[2], 1);
        let data = [1; 1024];
        subject.set_size(1 << 20);
        let mut last = 0;
        while subject.live.fields.read().core.data_extents < 59 {
            last += 2;
            subject.write(last * 1024, &data).unwrap();
        }
        if unwritten {
            // In the place of the last extent: a write to the middle of it makes three.
            subject.fallocate(FallocateMode::PunchHole, last * 1024, 1024, true);
            subject.fallocate(FallocateMode::Allocate, (last + 2) * 1024, 20 * 1024, true);
        }
        let at = (last + 10) * 1024;
        let extent = prepare_write(&subject.live, at, 1024).unwrap();
        let (held, reserved) = subject.hold_everything();
        let Mapping::Unwritten { offset } = extent.mapping else { panic!("{extent:?}") };
        subject.live.volume.device().write_at(offset + (at - extent.start), &[9; 1024]).unwrap();
        finish_write(&subject.live, at, 1024, at + 1024, WriteKind::Allocating).unwrap();
        subject.model[at as usize..][..1024].fill(9);
        drop(held);
        subject.allocator().unreserve(reserved);
        assert!(subject.read() == subject.model);
        subject.verify();
    }
}

#[test]
fn space_ahead_of_one_file_is_given_to_another() {
    let mut other = Ino(0);
    let (image, ino) = image(64, KINDS[0], |root| {
        std::fs::write(root.join("g"), b"").unwrap();
        other = Ino(std::os::unix::fs::MetadataExt::ino(&std::fs::metadata(root.join("g")).unwrap()));
    });
    let mut subject = Subject::open(image, ino, Vec::new(), 1);
    for n in 0..20 {
        subject.write(n * 4096, &[1; 4096]).unwrap();
    }
    assert!(subject.live.content.window.lock().has_surplus());
    let other = subject.writable.live(other);
    let (held, reserved) = subject.hold_everything();
    prepare_write(&other, 0, 4096).unwrap();
    assert!(!subject.live.content.window.lock().has_surplus());
    cancel_write(&other);
    give_back_reserved(&other);
    drop((held, other));
    subject.allocator().unreserve(reserved);
    subject.write(20 * 4096, &[1; 4096]).unwrap();
    subject.others.push(("g", Vec::new()));
    subject.verify();
}

#[test]
fn a_sync_commits_what_made_or_changed_a_file_before_it_was_read() {
    let mut subject = Subject::new(KINDS[0], 1);
    let handle = subject.live.volume.start(1).unwrap();
    let tid = handle.tid();
    subject.live.change_fields(&handle, |fields| fields.core.permissions = 0o600).unwrap();
    drop(handle);
    let again = subject.writable.live(subject.live.ino);
    let is_durable = |subject: &Subject| subject.live.volume.writer().unwrap().transactions.is_durable(tid);
    assert!(!is_durable(&subject));
    let volume = Arc::clone(&subject.writable.volume);
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let syncer = scope.spawn(|| {
            sync(&again, Durable::Data).unwrap();
            assert!(is_durable(&subject));
            done.store(true, std::sync::atomic::Ordering::Relaxed);
        });
        std::thread::sleep(std::time::Duration::from_millis(50));
        assert!(!done.load(std::sync::atomic::Ordering::Relaxed), "before any commit");
        volume.writer().unwrap().transactions.commit_running(&volume).unwrap();
        syncer.join().unwrap();
    });
    drop(again);
    subject.write(0, &[1; 10]).unwrap();
    subject.verify();
}

/// Another writer fills the hole around a write in flight, as for a hint: the write keeps the blocks that it has written to.
#[test]
fn a_hole_is_filled_around_a_write_in_flight() {
    let mut subject = Subject::new(KINDS[0], 1);
    let block = subject.block();
    subject.set_size(BLOCKS * block);
    let at = 10 * block;
    let extent = prepare_write(&subject.live, at, 2 * block).unwrap();
    let Mapping::Unwritten { offset } = extent.mapping else { panic!("{extent:?}") };
    let live = &subject.live;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut next = 0;
            while next < BLOCKS {
                next = space::allocate_some(live, next, BLOCKS).unwrap();
            }
        });
    });
    assert_eq!(live.fields.read().core.blocks, BLOCKS - 2);
    let data = vec![9; 2 * block as usize];
    live.volume.device().write_at(offset + (at - extent.start), &data).unwrap();
    finish_write(live, at, 2 * block, at + 2 * block, WriteKind::Allocating).unwrap();
    subject.model[at as usize..][..data.len()].copy_from_slice(&data);
    assert!(subject.read() == subject.model);
    subject.verify();
}

/// A damaged file has blocks that are free: they are found before anything of the file changes.
#[test]
fn free_blocks_of_a_file_are_refused_before_the_first_change() {
    let mut subject = Subject::new(KINDS[1], 1);
    subject.write(0, &[1; 8192]).unwrap();
    let live = Arc::clone(&subject.live);
    let Fork::Extents(extents) = live.fields.read().data.clone() else { panic!("a list") };
    let credits = change::credits(&live.volume, &live.fields.read(), ForkKind::Data);
    let handle = live.volume.start(credits).unwrap();
    subject.allocator().free_data(&handle, extents[0].block, extents[0].count.into()).unwrap();
    drop(handle);
    assert!(matches!(set_size(&live, 0), Err(Error::Corrupt(_))));
    assert!(matches!(remove_unreserved(&live), Err(Error::Corrupt(_))));
    live.volume.writer().unwrap().transactions.check().unwrap();
    assert_eq!(live.fields.read().core.data_extents, extents.len() as u64);
}

/// The records fit the inode no more, and there is no block for a tree.
#[test]
fn a_clone_that_ends_early_is_as_long_as_what_is_done() {
    let mut other = Ino(0);
    let content: Vec<u8> = (0..60).flat_map(|block| [if block % 2 == 0 { 5 } else { 0 }; 4096]).collect();
    let (image, ino) = image(64, KINDS[0], |root| {
        use std::os::unix::fs::FileExt;
        let file = std::fs::File::create(root.join("g")).unwrap();
        file.set_len(content.len() as u64).unwrap();
        for block in (0..60).step_by(2) {
            file.write_all_at(&[5; 4096], block * 4096).unwrap();
        }
        other = Ino(std::os::unix::fs::MetadataExt::ino(&file.metadata().unwrap()));
    });
    let mut subject = Subject::open(image, ino, Vec::new(), 1);
    let (target, source) = (Arc::clone(&subject.live), subject.writable.live(other));
    let mut reserved = 0;
    while subject.allocator().reserve(1) {
        reserved += 1;
    }
    let before = target.fields.read().core.modified;
    let done = clone_range(&target, &source, 0, 0, content.len() as u64).unwrap();
    assert!(done > 0 && done < content.len() as u64);
    assert_eq!(size(&target), done);
    assert!(target.fields.read().core.modified > before);
    let far = clone_range(&target, &source, 0, 1 << 20, content.len() as u64);
    assert!(matches!(far, Err(Error::NoSpace)));
    assert_eq!(size(&target), done);
    subject.allocator().unreserve(reserved);
    subject.model = content[..done as usize].to_vec();
    subject.others.push(("g", content));
    drop((target, source));
    assert!(subject.read() == subject.model);
    subject.verify();
}

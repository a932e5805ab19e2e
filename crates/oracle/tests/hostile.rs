//! Damaged images: every answer must be data or a clear error, soon, and in little memory.
//!
//! Fault model: real images, filled by the kernel, in which bits, bytes or whole blocks of metadata (found by
//! surveying the good image) are changed; in half of them the damaged structures' checksums are mended
//! afterwards, so that the damage gets past them. Each damaged image is opened, and everything in it is walked:
//! names, attributes, extended attributes, link targets, the map and the first bytes of every file. Out of
//! scope: a device that fails, or changes under the reader.
//!
//! `UNDERCROFT_SEED` replays one damage (the failure prints it), `UNDERCROFT_HOSTILE_IMAGES` sets how many
//! damaged images are made in all (10,000).

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use undercroft_block::{Access, BlockDevice, Device, Operation, check_range};
use undercroft_ext4::testing::{Site, sites};
use undercroft_ext4::{Ext4, OpenOptions};
use undercroft_oracle::{Image, Mke2fs, MountMode, Recipe};
use undercroft_vfs::{FileType, Vfs, VfsOptions, WalkEvent, WalkFlow, WalkOptions};

const IMAGES: u64 = 10_000;
const MEMORY_LIMIT_KIB: u64 = 256 * 1024;
/// One damaged image is walked in some milliseconds; this only tells a hang from a slow machine.
const HANG: Duration = Duration::from_secs(120);
/// A damaged directory or map can make a small image look vast: this much of each file is read.
const READ_BYTES: usize = 16 * 1024;
/// And so many entries of a walk are looked at.
const MOST_ENTRIES: u64 = 20_000;

#[test]
fn damaged_images_are_answered_with_data_or_a_clear_error() {
    let victims: Vec<Victim> = recipes()
        .into_iter()
        .map(|(name, recipe, state)| {
            let image = recipe.make().unwrap();
            Victim::survey(name, &if state == State::Dirty { in_use(&image) } else { image })
        })
        .collect();
    // From here on the peak is counted anew: making the images does not belong to it.
    std::fs::write("/proc/self/clear_refs", "5").unwrap();
    let before_kib = peak_memory_kib();
    let tally = Tally::default();
    if let Some(seed) = number_from_environment("UNDERCROFT_SEED") {
        try_one(&victims, seed, &tally);
    } else {
        let images = number_from_environment("UNDERCROFT_HOSTILE_IMAGES").unwrap_or(IMAGES);
        let next = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
                scope.spawn(|| {
                    while let Some(seed) = Some(next.fetch_add(1, Ordering::Relaxed)).filter(|&n| n < images)
                    {
                        try_one(&victims, seed, &tally);
                    }
                });
            }
        });
        tally.report(images);
        // The damage must have got through to something, or this test shows nothing.
        let (refused, hurt, unhurt) = tally.get();
        assert!(refused > images / 100, "only {refused} of {images} images were refused at once");
        assert!(hurt > images / 10, "only {hurt} of {images} images showed an error in the walk");
        assert!(unhurt > images / 100, "only {unhurt} of {images} images were walked without an error");
    }
    let grown_kib = peak_memory_kib() - before_kib;
    assert!(grown_kib < MEMORY_LIMIT_KIB, "walking damaged images took {grown_kib} KiB of memory");
}

/// How the kernel left an image.
#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Clean,
    /// With a journal that must be replayed.
    Dirty,
}

/// Images that between them have every structure.
fn recipes() -> Vec<(&'static str, Recipe, State)> {
    use State::{Clean, Dirty};
    let small = |mke2fs: Mke2fs| {
        Recipe::new(mke2fs).plan(|plan| {
            plan.many = 400;
            plan.many_name_bytes = 60;
            plan.subdirectories = 5;
            plan.extent_depth = 1;
        })
    };
    let new = |kind, block_bytes| Mke2fs::new(kind, 32).inodes(2048).block_bytes(block_bytes);
    let ext4 = |list| small(new("ext4", 1024).features(list));
    vec![
        ("ext2, 1 KiB", small(new("ext2", 1024)), Clean),
        ("ext3, 4 KiB", small(new("ext3", 4096)), Clean),
        ("ext4, 4 KiB", small(new("ext4", 4096)), Clean),
        ("inline data, value inodes", ext4("inline_data,ea_inode"), Clean),
        ("meta_bg, bigalloc", ext4("meta_bg,^resize_inode,bigalloc"), Clean),
        ("CRC-16", ext4("^metadata_csum,uninit_bg"), Clean),
        ("large_dir, stored seed", ext4("large_dir,metadata_csum_seed"), Clean),
        ("dirty", ext4("64bit"), Dirty),
        ("dirty, no checksums", ext4("^metadata_csum,^64bit"), Dirty),
        ("dirty, orphan file, fast commits", ext4("orphan_file,fast_commit"), Dirty),
    ]
}

/// A copy of the image as it is on the device while the kernel has it mounted: changes stand in the journal.
fn in_use(image: &Image) -> Image {
    let mount = image.mount(MountMode::ReadWrite, "noatime").unwrap();
    for n in 0..40 {
        let path = mount.path().join(format!("fresh{n}"));
        std::fs::write(&path, vec![n; 3000]).unwrap();
        // Each sync of one file is a transaction, or a fast commit, of its own.
        std::fs::File::open(&path).unwrap().sync_all().unwrap();
        if n % 3 == 0 {
            std::fs::remove_file(&path).unwrap();
        }
    }
    let copy = image.copy_between_writes(&mount).unwrap();
    mount.unmount().unwrap();
    copy
}

/// A good image, and where its metadata lies.
struct Victim {
    name: &'static str,
    bytes: Arc<[u8]>,
    sites: Vec<Site>,
    block_bytes: usize,
}

impl Victim {
    fn survey(name: &'static str, image: &Image) -> Self {
        let bytes: Arc<[u8]> = std::fs::read(image.path()).unwrap().into();
        let device = Arc::new(Damaged { base: Arc::clone(&bytes), patches: Vec::new() });
        let fs = Ext4::open_read_only(device, OpenOptions::default()).unwrap();
        let sites = sites(&fs).unwrap();
        assert!(sites.len() > 500, "{name}: only {} structures found", sites.len());
        let block_bytes = fs.superblock().geometry().block_bytes() as usize;
        Self { name, bytes, sites, block_bytes }
    }

    /// One to four structures changed. Journals are as large as everything else together, so the superblock and
    /// the group descriptors get more than their share.
    fn damage(&self, random: &mut Random) -> Damaged {
        let mend = random.below(2) == 0;
        let mut patches = Vec::new();
        for _ in 0..=random.below(4) {
            let among = if random.below(8) == 0 { self.sites.len().min(8) } else { self.sites.len() };
            let site = &self.sites[random.below(among as u64) as usize];
            let range = site.range.start as usize..site.range.end as usize;
            let mut bytes = self.bytes[range].to_vec();
            self.change(&mut bytes, random);
            if mend {
                site.mend(&mut bytes);
            }
            patches.push((site.range.start, bytes));
        }
        Damaged { base: Arc::clone(&self.bytes), patches }
    }

    fn change(&self, bytes: &mut [u8], random: &mut Random) {
        let len = bytes.len() as u64;
        match random.below(6) {
            0 => {
                let bit = random.below(len * 8);
                bytes[(bit / 8) as usize] ^= 1 << (bit % 8);
            }
            1 => bytes[random.below(len) as usize] = random.below(256) as u8,
            // A field with a value that fields go wrong at.
            2 | 3 => {
                let values: [u64; 12] = [
                    0,
                    1,
                    2,
                    0x7f,
                    0xff,
                    0x7fff,
                    0x8000,
                    0xffff,
                    0x7fff_ffff,
                    0x8000_0000,
                    0xffff_ffff,
                    u64::MAX,
                ];
                let value = values[random.below(12) as usize].to_le_bytes();
                let width = [1, 2, 4, 8][random.below(4) as usize];
                let at = (random.below(len) as usize / width * width).min(bytes.len() - width);
                bytes[at..at + width].copy_from_slice(&value[..width]);
            }
            4 => bytes.iter_mut().for_each(|byte| *byte = random.below(256) as u8),
            // Another block of the image in this one's place: right in form, wrong in every number.
            _ => {
                let blocks = self.bytes.len() / self.block_bytes;
                let from = random.below(blocks as u64) as usize * self.block_bytes;
                let len = bytes.len().min(self.block_bytes);
                bytes[..len].copy_from_slice(&self.bytes[from..from + len]);
            }
        }
    }
}

/// Damages one image, walks it, and fails with the seed if that panics or never ends.
fn try_one(victims: &[Victim], seed: u64, tally: &Tally) {
    let mut random = Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
    let victim = &victims[random.below(victims.len() as u64) as usize];
    let damaged: Device = Arc::new(victim.damage(&mut random));
    let (done, watchdog) = mpsc::channel::<()>();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            if watchdog.recv_timeout(HANG) == Err(mpsc::RecvTimeoutError::Timeout) {
                eprintln!("UNDERCROFT_SEED={seed} ({}) did not end within {HANG:?}", victim.name);
                std::process::abort();
            }
        });
        let outcome = catch_unwind(AssertUnwindSafe(|| walk(damaged)));
        drop(done);
        match outcome {
            Ok(outcome) => tally.add(&outcome),
            Err(_) => panic!("UNDERCROFT_SEED={seed} ({}) panicked; see above", victim.name),
        }
    });
}

enum Outcome {
    Refused,
    Walked { errors: u64 },
}

fn walk(device: Device) -> Outcome {
    let options = OpenOptions { buffer_bytes: 4 << 20, ..OpenOptions::default() };
    let fs = match Ext4::open_read_only(device, options) {
        Ok(fs) => fs,
        Err(error) => {
            check_sentence(&error.to_string());
            return Outcome::Refused;
        }
    };
    let errors = AtomicU64::new(0);
    let entries = AtomicU64::new(0);
    let note = |error: undercroft_vfs::Error| {
        check_sentence(&error.to_string());
        errors.fetch_add(1, Ordering::Relaxed);
    };
    if let Err(error) = fs.orphans() {
        note(error);
    }
    let vfs = Vfs::new(fs, VfsOptions::default());
    if let Err(error) = vfs.filesystem().statfs() {
        note(error);
    }
    let mut buf = vec![0; READ_BYTES];
    match vfs.root() {
        Ok(root) => vfs.walk_sorted(&root, WalkOptions::default(), &mut |event| {
            match event {
                WalkEvent::Failure { error, .. } => note(error),
                WalkEvent::Entry(entry) => {
                    if entries.fetch_add(1, Ordering::Relaxed) == MOST_ENTRIES {
                        return WalkFlow::Stop;
                    }
                    match entry.node() {
                        Ok(node) => look_at(&vfs, &node, &mut buf, &note),
                        Err(error) => note(error),
                    }
                }
            }
            WalkFlow::Continue
        }),
        Err(error) => note(error),
    }
    Outcome::Walked { errors: errors.into_inner() }
}

/// Asks an inode everything.
fn look_at(
    vfs: &Vfs,
    node: &Arc<undercroft_vfs::Node>,
    buf: &mut [u8],
    note: &dyn Fn(undercroft_vfs::Error),
) {
    match node.list_xattrs() {
        Ok(names) => {
            for name in names {
                if let Err(error) = node.xattr(&name) {
                    note(error);
                }
            }
        }
        Err(error) => note(error),
    }
    match node.kind() {
        FileType::Symlink => {
            if let Err(error) = node.read_link() {
                note(error);
            }
        }
        FileType::Directory => {
            if let Err(error) = vfs.lookup(node, b"no such name, but long enough to be hashed")
                && !matches!(error, undercroft_vfs::Error::NotFound)
            {
                note(error);
            }
        }
        FileType::Regular => {
            let read = vfs.open_node(node).and_then(|file| {
                file.read_at(0, buf)?;
                let size = node.attr().size_bytes;
                file.read_at(size.saturating_sub(buf.len() as u64), buf)
            });
            if let Err(error) = read {
                note(error);
            }
        }
        _ => {}
    }
}

/// An error is a sentence for people, not a dump.
fn check_sentence(text: &str) {
    assert!(!text.is_empty() && text.len() < 1000 && !text.contains('\n'), "not a sentence: {text:?}");
}

/// A device that shows an image with patches over it. Memory for the patches only.
#[derive(Debug)]
struct Damaged {
    base: Arc<[u8]>,
    patches: Vec<(u64, Vec<u8>)>,
}

impl BlockDevice for Damaged {
    fn name(&self) -> String {
        "damaged image".to_owned()
    }

    fn size_bytes(&self) -> u64 {
        self.base.len() as u64
    }

    fn access(&self) -> Access {
        Access::ReadOnly
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> undercroft_block::Result<()> {
        check_range(self, Operation::Read, offset, buf.len() as u64)?;
        let end = offset + buf.len() as u64;
        buf.copy_from_slice(&self.base[offset as usize..end as usize]);
        for (start, bytes) in &self.patches {
            let (from, to) = (offset.max(*start), end.min(start + bytes.len() as u64));
            if from < to {
                buf[(from - offset) as usize..(to - offset) as usize]
                    .copy_from_slice(&bytes[(from - start) as usize..(to - start) as usize]);
            }
        }
        Ok(())
    }

    fn write_at(&self, _offset: u64, _data: &[u8]) -> undercroft_block::Result<()> {
        Err(undercroft_block::Error::ReadOnly { operation: Operation::Write, device: self.name() })
    }

    fn flush(&self) -> undercroft_block::Result<()> {
        Ok(())
    }
}

#[derive(Default)]
struct Tally {
    refused: AtomicU64,
    hurt: AtomicU64,
    unhurt: AtomicU64,
}

impl Tally {
    fn add(&self, outcome: &Outcome) {
        let counter = match outcome {
            Outcome::Refused => &self.refused,
            Outcome::Walked { errors: 0 } => &self.unhurt,
            Outcome::Walked { .. } => &self.hurt,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    fn get(&self) -> (u64, u64, u64) {
        let [refused, hurt, unhurt] =
            [&self.refused, &self.hurt, &self.unhurt].map(|counter| counter.load(Ordering::Relaxed));
        (refused, hurt, unhurt)
    }

    fn report(&self, images: u64) {
        let (refused, hurt, unhurt) = self.get();
        println!("{images} damaged images: {refused} refused, {hurt} walked with errors, {unhurt} without");
    }
}

/// xorshift64*: small, and the same everywhere.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 16) % end
    }
}

fn number_from_environment(name: &str) -> Option<u64> {
    std::env::var(name)
        .ok()
        .map(|text| text.parse().unwrap_or_else(|_| panic!("{name} is no number: {text}")))
}

/// The most memory that this process has had since the count began, in KiB.
fn peak_memory_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

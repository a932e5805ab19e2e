//! Damaged images, for the tests that read them and the tests that write to them.
//!
//! Fault model: real images, filled by the kernel, in which bits, bytes or whole blocks of metadata (found by surveying
//! the good image) are changed; in half of them the damaged structures' checksums are recomputed afterwards, so that the
//! damage gets past them. One image of eight has a tangled directory graph instead (see `tangle`).

pub(crate) mod changes;
mod tangle;
pub(crate) mod walk;

use std::io::{self, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use undercroft_block::testing::Rng;
use undercroft_block::{Access, BlockDevice, Device, Operation, check_range};
use undercroft_ext4::testing::{Site, sites};
use undercroft_ext4::{Ext4, OpenOptions};
use undercroft_oracle::{Image, Mke2fs, MountMode, Recipe};
use undercroft_vfs::{FileSystem, Vfs, VfsOptions, WalkEvent, WalkFlow, WalkOptions};

/// One damaged image takes some milliseconds; this only tells a hang from a slow machine.
const HANG: Duration = Duration::from_secs(120);

/// Longer paths are not used: they all belong to one deep tree.
const PATH_MAX_BYTES: usize = 1000;

/// How much is damaged.
#[derive(Clone, Copy)]
pub(crate) struct Extent {
    /// So many structures, or fewer.
    pub(crate) structures: u64,
    /// One of so many is the superblock or a group descriptor. Journals are as large as everything else together, so
    /// those get more than their share.
    pub(crate) one_in_is_first: u64,
}

/// The good images, which are made anew.
pub(crate) fn victims() -> Vec<Victim> {
    let make = |(name, recipe, state): (_, Recipe, _)| {
        let image = recipe.make().unwrap();
        Victim::survey(name, &if state == State::Dirty { in_use(&image) } else { image })
    };
    recipes().into_iter().map(make).collect()
}

/// Damages the image that belongs to a seed and works with it; fails with the seed if that panics or never ends.
pub(crate) fn one<T>(
    victims: &[Victim],
    seed: u64,
    extent: Extent,
    work: impl FnOnce(&Victim, Device, &mut Rng) -> T,
) -> T {
    let mut random = Rng::new(seed);
    let victim = &victims[random.below(victims.len() as u64) as usize];
    let damaged = Arc::new(match random.below(8) {
        0 => victim.tangled(&mut random),
        _ => victim.damage(extent, &mut random),
    });
    let damaged: Device = damaged;
    watched(victim.name, seed, || work(victim, damaged, &mut random))
}

/// Does `work`; fails with the seed if that panics or never ends.
pub(crate) fn watched<T>(name: &str, seed: u64, work: impl FnOnce() -> T) -> T {
    let (done, watchdog) = mpsc::channel::<()>();
    thread::scope(|scope| {
        scope.spawn(move || {
            if watchdog.recv_timeout(HANG) == Err(mpsc::RecvTimeoutError::Timeout) {
                // Past the test's own output, which is lost with the process.
                let _ = writeln!(io::stderr(), "UNDERCROFT_SEED={seed} ({name}) did not end within {HANG:?}");
                std::process::abort();
            }
        });
        let outcome = catch_unwind(AssertUnwindSafe(work));
        drop(done);
        outcome.unwrap_or_else(|_| panic!("UNDERCROFT_SEED={seed} ({name}) panicked; see above"))
    })
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
pub(crate) struct Victim {
    pub(crate) name: &'static str,
    /// What the good tree has, as far as the paths are text and not overlong.
    pub(crate) paths: Vec<String>,
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
        let paths = paths(Arc::clone(&fs) as Arc<dyn FileSystem>);
        assert!(sites.len() > 500, "{name}: only {} structures found", sites.len());
        let block_bytes = fs.superblock().geometry().block_bytes() as usize;
        Self { name, paths, bytes, sites, block_bytes }
    }

    /// One structure changed, or more.
    pub(crate) fn damage(&self, extent: Extent, random: &mut Rng) -> Damaged {
        let mend = random.below(2) == 0;
        let mut patches = Vec::new();
        for _ in 0..=random.below(extent.structures) {
            let among = if random.below(extent.one_in_is_first) == 0 {
                self.sites.len().min(8)
            } else {
                self.sites.len()
            };
            let site = &self.sites[random.below(among as u64) as usize];
            let range = site.range.start as usize..site.range.end as usize;
            let mut bytes = self.bytes[range].to_vec();
            change(&mut bytes, &self.bytes, self.block_bytes, random);
            if mend {
                site.mend(&mut bytes);
            }
            patches.push((site.range.start, bytes));
        }
        Damaged { base: Arc::clone(&self.bytes), patches }
    }
}

/// Changes a structure of the image `whole`: a bit, a byte, a field, all of it, or for another block of the image.
pub(crate) fn change(bytes: &mut [u8], whole: &[u8], block_bytes: usize, random: &mut Rng) {
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
            let blocks = whole.len() / block_bytes;
            let from = random.below(blocks as u64) as usize * block_bytes;
            let len = bytes.len().min(block_bytes);
            bytes[..len].copy_from_slice(&whole[from..from + len]);
        }
    }
}

/// What a good tree has, as far as the paths are text and not overlong.
pub(crate) fn paths(fs: Arc<dyn FileSystem>) -> Vec<String> {
    let vfs = Vfs::new(fs, VfsOptions::default());
    let mut paths = Vec::new();
    let options = WalkOptions { inodes: false, ..WalkOptions::default() };
    vfs.walk_sorted(&vfs.root().unwrap(), options, &mut |event| {
        let WalkEvent::Entry(entry) = event else { panic!("a good image: {event:?}") };
        if let Ok(path) = std::str::from_utf8(entry.path())
            && path.len() < PATH_MAX_BYTES
        {
            paths.push(path.to_owned());
        }
        WalkFlow::Continue
    });
    paths
}

/// An error is a sentence for people, not a dump.
pub(crate) fn check_sentence(text: &str) {
    assert!(!text.is_empty() && text.len() < 1000 && !text.contains('\n'), "not a sentence: {text:?}");
}

/// A device that shows an image with patches over it. Memory for the patches only.
#[derive(Debug)]
pub(crate) struct Damaged {
    pub(crate) base: Arc<[u8]>,
    /// Where bytes lie that are not the good image's.
    pub(crate) patches: Vec<(u64, Vec<u8>)>,
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

pub(crate) fn number_from_environment(name: &str) -> Option<u64> {
    std::env::var(name)
        .ok()
        .map(|text| text.parse().unwrap_or_else(|_| panic!("{name} is no number: {text}")))
}

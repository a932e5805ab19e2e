//! Random damage: our check comes to an end with it, says what it found in sentences, and panics never.
//!
//! Fault model: real images, filled by the kernel, in which bits, bytes, fields or whole structures of metadata (found by
//! their magic numbers) are changed; in half of them the checksums of the damaged structures are mended. Out of scope: a
//! device that fails.
//!
//! `UNDERCROFT_XFS_IMAGES` sets how many damaged images there are (400), `UNDERCROFT_SEED` replays one.

use std::io::Write;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use undercroft_block::{Access, BlockDevice, Device, Operation, check_range};
use undercroft_oracle::{MkfsXfs, XfsRecipe};
use undercroft_xfs::{CheckOptions, check};

const IMAGES: u64 = 400;
const HANG: Duration = Duration::from_secs(120);
const MEMORY_LIMIT_KIB: u64 = 256 * 1024;

/// A structure in an image: where it lies, and where in it its checksum.
struct Site {
    range: Range<usize>,
    crc: usize,
}

struct Victim {
    name: &'static str,
    bytes: Arc<[u8]>,
    sites: Vec<Site>,
}

impl Victim {
    fn new(name: &'static str, args: &str, block: usize, inode: usize) -> Self {
        let recipe = XfsRecipe::new(MkfsXfs::new(64, args)).plan(|plan| {
            plan.many = 400;
            plan.attributes = 100;
        });
        let bytes: Arc<[u8]> = std::fs::read(recipe.make().unwrap().path()).unwrap().into();
        let sites = sites(&bytes, block, inode);
        assert!(sites.len() > 500, "{name}: only {} structures found", sites.len());
        Self { name, bytes, sites }
    }

    fn damage(&self, random: &mut Random) -> Damaged {
        let mend = random.below(2) == 0;
        let mut patches = Vec::new();
        for _ in 0..=random.below(4) {
            // Inodes are most of the structures, and headers few.
            let site = match random.below(8) {
                0 => &self.sites[random.below(16) as usize],
                _ => &self.sites[random.below(self.sites.len() as u64) as usize],
            };
            let mut bytes = self.bytes[site.range.clone()].to_vec();
            self.change(&mut bytes, random);
            if mend {
                bytes[site.crc..site.crc + 4].fill(0);
                let crc = crc32c::crc32c(&bytes);
                bytes[site.crc..site.crc + 4].copy_from_slice(&crc.to_le_bytes());
            }
            patches.push((site.range.start as u64, bytes));
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
            1 => bytes[random.below(len.min(256)) as usize] = random.below(256) as u8,
            2 | 3 => {
                const VALUES: [u64; 10] =
                    [0, 1, 2, 0x7f, 0xff, 0x7fff, 0xffff, 0x7fff_ffff, 0xffff_ffff, u64::MAX];
                let value = VALUES[random.below(10) as usize].to_be_bytes();
                let width = [1, 2, 4, 8][random.below(4) as usize];
                let within = if random.below(2) == 0 { len.min(192) } else { len };
                let at = (random.below(within) as usize / width * width).min(bytes.len() - width);
                bytes[at..at + width].copy_from_slice(&value[8 - width..]);
            }
            4 => {
                let from = random.below(len) as usize;
                bytes[from..].iter_mut().for_each(|byte| *byte = random.below(256) as u8);
            }
            // Another structure in this one's place: right in form, wrong in every number.
            _ => {
                let other = &self.sites[random.below(self.sites.len() as u64) as usize];
                let source = &self.bytes[other.range.clone()];
                let len = bytes.len().min(source.len());
                bytes[..len].copy_from_slice(&source[..len]);
            }
        }
    }
}

/// Structures with a checksum, headers of groups first.
fn sites(bytes: &[u8], block: usize, inode: usize) -> Vec<Site> {
    const SECTOR: usize = 512;
    let mut headers = Vec::new();
    let mut others = Vec::new();
    for at in (0..bytes.len()).step_by(SECTOR) {
        let crc = match bytes[at..at + 4] {
            [b'X', b'F', b'S', b'B'] => 224,
            [b'X', b'A', b'G', b'F'] => 216,
            [b'X', b'A', b'G', b'I'] => 312,
            [b'X', b'A', b'F', b'L'] => 32,
            _ => continue,
        };
        headers.push(Site { range: at..at + SECTOR, crc });
    }
    for at in (0..bytes.len()).step_by(block) {
        let found = match &bytes[at..at + 4] {
            b"AB3B" | b"AB3C" | b"IAB3" | b"FIB3" | b"RMB3" | b"R3FC" => Some(52),
            b"BMA3" => Some(64),
            b"XDB3" | b"XDD3" | b"XDF3" => Some(4),
            b"XARM" | b"XSLM" => Some(12),
            [b'I', b'N', ..] => {
                for at in (at..at + block).step_by(inode) {
                    others.push(Site { range: at..at + inode, crc: 100 });
                }
                None
            }
            _ => match bytes[at + 8..at + 10] {
                [0x3d, 0xf1 | 0xff] | [0x3e, 0xbe] | [0x3b, 0xee] => Some(12),
                _ => None,
            },
        };
        if let Some(crc) = found {
            others.push(Site { range: at..at + block, crc });
        }
    }
    headers.extend(others);
    headers
}

#[test]
fn random_damage_is_answered() {
    let victims = [
        Victim::new("4 KiB", "-m rmapbt=1", 4096, 512),
        Victim::new("1 KiB", "-b size=1024 -i nrext64=1", 1024, 512),
        Victim::new("4 KiB, inodes of 1 KiB", "-i size=1024 -m finobt=0,inobtcount=0,reflink=0", 4096, 1024),
    ];
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    let seeds = match number("UNDERCROFT_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("UNDERCROFT_XFS_IMAGES").unwrap_or(IMAGES),
    };
    // From here on the peak is recounted: making the images does not belong to it.
    std::fs::write("/proc/self/clear_refs", "5").unwrap();
    let before_kib = peak_memory_kib();
    let (refused, damaged, unhurt) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
    let next = AtomicU64::new(seeds.start);
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds.end {
                        return;
                    }
                    let counter = match try_one(&victims, seed) {
                        None => &refused,
                        Some(0) => &unhurt,
                        Some(_) => &damaged,
                    };
                    counter.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
    let [refused, damaged, unhurt] = [refused, damaged, unhurt].map(AtomicU64::into_inner);
    let images = seeds.end - seeds.start;
    println!("{images} damaged images: {refused} refused, {damaged} with findings, {unhurt} without");
    let grown_kib = peak_memory_kib() - before_kib;
    assert!(grown_kib < MEMORY_LIMIT_KIB, "checking damaged images took {grown_kib} KiB of memory");
    if images > 100 {
        assert!(damaged > images / 2, "only {damaged} of {images} images had findings");
    }
}

/// Checks one damaged image: how many findings there are, `None` where it could not be checked at all.
fn try_one(victims: &[Victim], seed: u64) -> Option<usize> {
    let mut random = Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
    let victim = &victims[random.below(victims.len() as u64) as usize];
    let device: Device = Arc::new(victim.damage(&mut random));
    let (done, watchdog) = mpsc::channel::<()>();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            if watchdog.recv_timeout(HANG) == Err(mpsc::RecvTimeoutError::Timeout) {
                // Past the test's own output, which is lost with the process.
                let _ = writeln!(std::io::stderr(), "UNDERCROFT_SEED={seed} did not end within {HANG:?}");
                std::process::abort();
            }
        });
        let options = CheckOptions { threads: 1 + (seed % 2) as usize, ..CheckOptions::default() };
        let outcome = catch_unwind(AssertUnwindSafe(|| check(&device, &options)));
        drop(done);
        let Ok(outcome) = outcome else {
            panic!("UNDERCROFT_SEED={seed} ({}) panicked; see above", victim.name)
        };
        match outcome {
            Ok(report) => {
                report.findings.iter().for_each(|finding| sentence(&finding.to_string()));
                Some(report.findings.len())
            }
            Err(error) => {
                sentence(&error.to_string());
                None
            }
        }
    })
}

fn sentence(text: &str) {
    assert!(!text.is_empty() && text.len() < 1500 && !text.contains('\n'), "not a sentence: {text:?}");
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

/// xorshift64*.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 16) % end
    }
}

/// The most memory that this process has had since the count began, in KiB.
fn peak_memory_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

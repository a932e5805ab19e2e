//! Our check of logs that end in fast commits which the kernel wrote: as they are, damaged in known ways, and at
//! random.
//!
//! Known damage is checked by e2fsck, on a log that it can replay: it cannot where names are removed or directories
//! made. Of random damage that checksums hide, whatever our check lets pass a mount must make a filesystem of in which
//! e2fsck finds nothing wrong. Nothing is ever written to a checked image.
//!
//! `UNDERCROFT_SEED` replays one random damage.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use crc32c::crc32c_append;
use undercroft_block::testing::Rng;
use undercroft_block::{FileDevice, FileOptions};
use undercroft_ext4::{CheckOptions, CheckReport, Ext4, OpenOptions, WriteOptions, check};
use undercroft_oracle::{Image, Tool};

use crate::{Way, dirty_after, ext4, setup, work_for_fast_commits};

const BLOCK: usize = 4096;
/// Blocks of the area that are looked at.
const BLOCKS: usize = 16;
const IMAGES: u64 = 60;

const ADD_RANGE: u16 = 1;
const DEL_RANGE: u16 = 2;
const CREATE: u16 = 3;
const INODE: u16 = 6;
const TAIL: u16 = 8;
const HEAD: u16 = 9;

/// The beginning of a log's fast-commit area.
struct Area {
    offset: u64,
    bytes: Vec<u8>,
}

/// Where an element's value lies, and how long it is.
#[derive(Clone, Copy)]
struct Element {
    tag: u16,
    value: usize,
    len: usize,
}

impl Area {
    fn of(image: &Image) -> Self {
        let block =
            |at: u32| image.debugfs(&format!("bmap <8> {at}")).unwrap().trim().parse::<u64>().unwrap();
        let file = File::open(image.path()).unwrap();
        let mut superblock = [0; 0x58];
        file.read_exact_at(&mut superblock, block(0) * BLOCK as u64).unwrap();
        let word = |at: usize| u32::from_be_bytes(superblock[at..at + 4].try_into().unwrap());
        let (length, reserved) = (word(0x10), word(0x54));
        let reserved = if reserved == 0 { 256 } else { reserved };
        let offset = block(length - reserved + 1) * BLOCK as u64;
        let mut bytes = vec![0; BLOCK * BLOCKS];
        file.read_exact_at(&mut bytes, offset).unwrap();
        let area = Self { offset, bytes };
        assert_eq!(area.elements().first().map(|first| first.tag), Some(HEAD), "no area is there");
        area
    }

    fn store(&self, image: &Image) {
        let file = File::options().write(true).open(image.path()).unwrap();
        file.write_all_at(&self.bytes, self.offset).unwrap();
    }

    fn elements(&self) -> Vec<Element> {
        let half = |at: usize| u16::from_le_bytes([self.bytes[at], self.bytes[at + 1]]);
        let mut elements = Vec::new();
        let mut at = 0;
        while at + 4 <= self.bytes.len() && (1..=9).contains(&half(at)) {
            let (tag, len) = (half(at), usize::from(half(at + 2)));
            if at + 4 + len > self.bytes.len() {
                break;
            }
            elements.push(Element { tag, value: at + 4, len });
            at += 4 + len;
        }
        elements
    }

    /// The `n`th element of a kind.
    fn nth(&self, tag: u16, n: usize) -> Element {
        self.elements().into_iter().filter(|element| element.tag == tag).nth(n).unwrap()
    }

    fn put(&mut self, element: Element, at: usize, bytes: &[u8]) {
        self.bytes[element.value + at..][..bytes.len()].copy_from_slice(bytes);
    }

    /// Makes the checksums right.
    fn mend(&mut self) {
        // The sum is kept as it is within the log, where nothing is inverted.
        let mut sum = !0;
        for Element { tag, value, len } in self.elements() {
            if tag == TAIL {
                sum = crc32c_append(sum, &self.bytes[value - 4..value + 4]);
                self.bytes[value + 4..value + 8].copy_from_slice(&(!sum).to_le_bytes());
                sum = !0;
            } else {
                sum = crc32c_append(sum, &self.bytes[value - 4..value + len]);
            }
        }
    }
}

fn our_check(image: &Image) -> undercroft_vfs::Result<CheckReport> {
    let before = image.sha256().unwrap();
    let device = FileDevice::open(image.path(), FileOptions::read_only()).unwrap();
    let report = check(Arc::new(device), &CheckOptions::default());
    assert_eq!(image.sha256().unwrap(), before, "a check wrote to the image");
    report
}

fn told(report: &CheckReport) -> String {
    report.findings.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

/// What e2fsck can replay: files that are made, grow, are cut and get more names.
fn work_for_e2fsck(root: &Path) {
    // Where the first transaction of all is in the log, it takes the superblock for damaged.
    fs::create_dir(root.join("dir")).unwrap();
    Tool::new("sync").arg("-f").arg(root).run().unwrap();
    let sync = |name: &str| File::open(root.join(name)).unwrap().sync_all().unwrap();
    for number in 0..8_u8 {
        let name = format!("file-{number}");
        fs::write(root.join(&name), vec![number; 3000 * (1 + usize::from(number))]).unwrap();
        sync(&name);
    }
    fs::hard_link(root.join("file-4"), root.join("linked")).unwrap();
    sync("linked");
    File::options().write(true).open(root.join("file-6")).unwrap().set_len(100).unwrap();
    sync("file-6");
}

fn dirty(work: fn(&Path)) -> Image {
    let mke2fs = ext4("fast_commit").args(["-J", "size=6,fast_commit_size=256"]);
    dirty_after(&setup(mke2fs, "commit=300"), Way::UnderLoad, work)
}

#[test]
fn what_the_kernel_wrote_is_clean_and_counted() {
    let image = dirty(work_for_fast_commits);
    let report = our_check(&image).unwrap();
    assert!(report.is_clean(), "{}", told(&report));
    assert_eq!(report.fast_commits_left_out, None);
    assert!(report.recovery.unwrap().fast_commits > 20, "{report:?}");
    // Not only replayed but looked at: the files that only fast commits have made are counted.
    let without = image.copy().unwrap();
    let mut area = Area::of(&without);
    area.bytes.fill(0);
    area.store(&without);
    let before = our_check(&without).unwrap();
    assert!(before.is_clean() && before.inodes + 15 < report.inodes, "{before:?} and {report:?}");
}

/// Whether e2fsck replays a copy and finds nothing wrong, and what it said.
fn e2fsck(image: &Image) -> (bool, String) {
    let copy = image.copy().unwrap();
    match Tool::new("e2fsck").args(["-f", "-y"]).arg(copy.path()).run_text() {
        Ok(said) => (true, said),
        Err(error) => (false, error.to_string()),
    }
}

type Damage = (&'static str, fn(&mut Area));

#[test]
fn known_damage_is_found_where_e2fsck_finds_it() {
    let image = dirty(work_for_e2fsck);
    let number = |n: u32| n.to_le_bytes();
    let (clean, said) = e2fsck(&image);
    assert!(clean, "{said}");
    assert!(our_check(&image).unwrap().is_clean());
    // With right checksums, except where that is the damage.
    let cases: [Damage; 13] = [
        ("an inode that cannot be", |area| area.put(area.nth(INODE, 0), 0, &[0xff; 4])),
        ("inode 0", |area| area.put(area.nth(INODE, 0), 0, &[0; 4])),
        ("blocks of an inode that cannot be", |area| area.put(area.nth(ADD_RANGE, 0), 0, &[0xff; 4])),
        ("blocks past the end", |area| area.put(area.nth(ADD_RANGE, 0), 12, &[0xff, 0xff, 0xff, 0x7f])),
        ("a hole past what a file can have", |area| {
            area.put(area.nth(DEL_RANGE, 0), 4, &[0xf0, 0xff, 0xff, 0xff]);
        }),
        ("blocks of the groups", |area| area.put(area.nth(ADD_RANGE, 0), 12, &[1, 0, 0, 0])),
        ("a name in a file", |area| {
            let other = area.bytes[area.nth(CREATE, 0).value + 4..][..4].to_vec();
            area.put(area.nth(CREATE, 1), 0, &other);
        }),
        ("a name in nothing", |area| area.put(area.nth(CREATE, 1), 0, &[0xd0, 7, 0, 0])),
        ("the journal's own inode", |area| area.put(area.nth(INODE, 0), 0, &[8, 0, 0, 0])),
        ("the root directory turned into a file", |area| area.put(area.nth(INODE, 0), 0, &[2, 0, 0, 0])),
        ("a first checksum", |area| {
            let tail = area.nth(TAIL, 0);
            area.bytes[tail.value + 4] ^= 1;
        }),
        ("a first length", |area| {
            let range = area.nth(ADD_RANGE, 0);
            area.bytes[range.value - 2] = 15;
        }),
        ("a first tail of another transaction", |area| area.put(area.nth(TAIL, 0), 0, &[77, 0, 0, 0])),
    ];
    for (name, damage) in cases {
        let copy = image.copy().unwrap();
        let mut area = Area::of(&copy);
        damage(&mut area);
        if !name.starts_with("a first") {
            area.mend();
        }
        area.store(&copy);
        let (clean, said) = e2fsck(&copy);
        assert!(!clean, "{name}: e2fsck finds nothing: {said}");
        let report = our_check(&copy).unwrap();
        let found = report.findings.iter().any(|finding| finding.code == "fast-commit");
        assert!(found, "{name}: no fast commit is among\n{}\ne2fsck: {said}", told(&report));
    }
    // What a crash leaves of a later one is not damage.
    let copy = image.copy().unwrap();
    let mut area = Area::of(&copy);
    let tail = area.nth(TAIL, 3);
    area.put(tail, 4, &number(7));
    area.store(&copy);
    assert!(e2fsck(&copy).0 && our_check(&copy).unwrap().is_clean());
}

#[test]
fn what_is_let_pass_of_random_damage_makes_a_sound_filesystem() {
    let images = [dirty(work_for_fast_commits), dirty(work_for_e2fsck)];
    let seed = std::env::var("UNDERCROFT_SEED").ok().map(|seed| seed.parse::<u64>().unwrap());
    let (mut passed, mut found) = (0, 0);
    for seed in seed.map_or(0..IMAGES, |seed| seed..seed + 1) {
        let mut random = Rng::new(seed);
        let copy = images[random.below(2) as usize].copy().unwrap();
        let mut area = Area::of(&copy);
        for _ in 0..=random.below(2) {
            let elements: Vec<_> = area.elements().into_iter().filter(|element| element.tag < 7).collect();
            let Element { value, len, .. } = elements[random.below(elements.len() as u64) as usize];
            // Fields of inodes are as many as all others together; their first ones matter most.
            let at = value + random.below(len.min(8 + 0x28) as u64) as usize;
            area.bytes[at] = match random.below(4) {
                0 => 0,
                1 => area.bytes[at].wrapping_add(1),
                2 => area.bytes[at] ^ 1 << random.below(8),
                _ => random.below(256) as u8,
            };
        }
        area.mend();
        area.store(&copy);
        let report = our_check(&copy).unwrap();
        if !report.is_clean() || report.fast_commits_left_out.is_some() {
            found += 1;
            continue;
        }
        passed += 1;
        let device = FileDevice::open(copy.path(), FileOptions::read_write()).unwrap();
        let fs = Ext4::open(Arc::new(device), OpenOptions::default(), WriteOptions::default());
        fs.unwrap_or_else(|error| panic!("seed {seed}: {error}")).close().unwrap();
        copy.check().unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    }
    assert!(seed.is_some() || passed > 8 && found > 8, "{passed} passed, {found} found");
}

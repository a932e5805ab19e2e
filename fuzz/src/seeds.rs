//! What the fuzzer starts from: for each target inputs that change nothing, so that every change it makes to one is
//! a small change to something good.
//!
//! Structures come out of the images; partition tables and qcow2 images are made on the spot by the tools that
//! people make them with.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use undercroft_block::partition;

use crate::damage::{CHANGE_BYTES, KINDS, Kind};
use crate::disk::{DISK_BYTES, MEND_ENTRIES, MEND_HEADER, disk};
use crate::images::{Victim, image, unpacked};
use crate::member::{INPUT_BYTES, MEND, PLACES};
use crate::xfs;

/// How many structures of a kind the target `anywhere` is shown.
const SHOWN_PER_KIND: usize = 8;
/// How many words of each.
const WORDS_SHOWN: usize = 32;

/// A partition table lies within so many bytes, but for the copy at the end of a disk.
const TABLE_BYTES: usize = 32 << 10;

/// Scripts for sfdisk.
const TABLES: [&str; 4] = [
    "label: dos\nstart=1, size=8, type=83, bootable\nstart=16, size=1000, type=7\n",
    "label: dos\nstart=4, size=8, type=83\nstart=16, size=1000, type=f\nstart=18, size=4, type=83\n\
     start=24, size=4, type=8e\nstart=32, size=4, type=fd\n",
    "label: gpt\ntable-length: 4\nstart=40, size=16, type=S\n",
    GPT,
];

const GPT: &str = "label: gpt\nstart=64, size=16, type=U, name=boot\n\
    4: start=100, size=100, type=L, attrs=LegacyBIOSBootable\n";

/// Members of arrays with and without bitmap and log.
const MEMBERS: [&[u8]; 7] = [
    include_bytes!("../../crates/md/tests/fixtures/raid0/d0.img.zst"),
    include_bytes!("../../crates/md/tests/fixtures/raid1/d0.img.zst"),
    include_bytes!("../../crates/md/tests/fixtures/raid10/d1.img.zst"),
    include_bytes!("../../crates/md/tests/fixtures/raid6/d2.img.zst"),
    include_bytes!("../../crates/md/tests/fixtures/raid5-numbered/d3.img.zst"),
    include_bytes!("../../crates/md/tests/fixtures/raid5-bitmap-unclean/d0.img.zst"),
    include_bytes!("../../crates/md/tests/fixtures/raid5-ppl-unclean/d0.img.zst"),
];

/// Options for `qemu-img convert`, which takes a small disk with data and holes.
const QCOW2: [&str; 6] = [
    "cluster_size=512,compat=0.10",
    "cluster_size=512",
    "cluster_size=512,lazy_refcounts=on,refcount_bits=1",
    "cluster_size=512,preallocation=metadata",
    "cluster_size=1024,refcount_bits=64",
    "cluster_size=512,data_file=elsewhere",
];

/// The seeds of a target; `None` if there is no such target.
///
/// # Panics
/// A tool is missing or fails.
#[must_use]
pub fn of(target: &str) -> Option<Vec<Vec<u8>>> {
    match target {
        "anywhere" => Some(Victim::ALL.into_iter().flat_map(places).collect()),
        "partition_table" => Some(tables()),
        "qcow2" => Some(qcow2_images()),
        "md_superblock" => Some(members()),
        "xfs_log" => Some(xfs::log()),
        _ => {
            let of_xfs = xfs::KINDS.into_iter().find(|kind| kind.target == target).map(xfs::structures);
            of_xfs.or_else(|| KINDS.into_iter().find(|kind| kind.target == target).map(structures))
        }
    }
}

/// Members of arrays that Linux made, from the superblock on.
fn members() -> Vec<Vec<u8>> {
    MEMBERS
        .iter()
        .map(|packed| {
            let bytes = unpacked(packed);
            let from = PLACES[0] as usize;
            [&[MEND], &bytes[from..from + INPUT_BYTES]].concat()
        })
        .collect()
}

/// Every structure of the kind as it is in the image.
fn structures(kind: &Kind) -> Vec<Vec<u8>> {
    let image = image(kind.victim);
    let sites = image.sites_of(kind.structure).into_iter();
    (0..=u8::MAX).zip(sites).map(|(pick, site)| [&[pick], image.bytes_of(site)].concat()).collect()
}

/// Words of some structures of every kind, written to where they lie already.
fn places(victim: Victim) -> Vec<Vec<u8>> {
    let image = image(victim);
    let mut inputs = Vec::new();
    for kind in KINDS.into_iter().filter(|kind| kind.victim == victim) {
        for site in image.sites_of(kind.structure).into_iter().take(SHOWN_PER_KIND) {
            let mut input = vec![victim as u8];
            let words = image.bytes_of(site).chunks_exact(2).take(WORDS_SHOWN);
            for (offset, word) in (site.range.start..).step_by(2).zip(words) {
                input.extend_from_slice(&(offset as u32).to_le_bytes());
                input.extend_from_slice(word);
            }
            assert_eq!((input.len() - 1) % CHANGE_BYTES, 0);
            inputs.push(input);
        }
    }
    inputs
}

fn tables() -> Vec<Vec<u8>> {
    let mut tables = Vec::from(TABLES.map(table));
    tables.push(table_of_large_sectors());
    tables
}

/// The start of a disk that sfdisk has partitioned, to the last byte that is not zero.
fn table(script: &str) -> Vec<u8> {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("disk");
    File::create(&path).and_then(|file| file.set_len(DISK_BYTES as u64)).expect("room for a disk");
    let mut sfdisk = Command::new("sfdisk")
        .args(["--quiet", "--no-reread"])
        .arg(&path)
        .stdin(Stdio::piped())
        .spawn()
        .expect("sfdisk is needed");
    sfdisk.stdin.take().expect("a pipe").write_all(script.as_bytes()).expect("sfdisk reads its script");
    assert!(sfdisk.wait().expect("sfdisk ends").success(), "sfdisk refuses {script:?}");
    let mut bytes = fs::read(&path).expect("the disk");
    bytes.truncate(TABLE_BYTES);
    bytes.truncate(bytes.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1));
    tables_input(&bytes, 512)
}

/// The same table in sectors of 4096 bytes: its header and its entries lie elsewhere.
fn table_of_large_sectors() -> Vec<u8> {
    let small = table(GPT);
    let (header, entries) = small[1 + 512..].split_at(512);
    let mut bytes = small[1..513].to_vec();
    bytes.resize(4096, 0);
    bytes.extend_from_slice(header);
    bytes.resize(2 * 4096, 0);
    bytes.extend_from_slice(entries);
    tables_input(&bytes, 4096)
}

/// An input whose checksums are recomputed, and which holds a good table.
fn tables_input(bytes: &[u8], sector_bytes: u32) -> Vec<u8> {
    let input = [&[MEND_ENTRIES | MEND_HEADER], bytes].concat();
    let table = partition::parse(&disk(&input), &[sector_bytes]).expect("a good table");
    assert!(!table.partitions.is_empty() && table.damage.is_empty(), "{table:?}");
    input
}

fn qcow2_images() -> Vec<Vec<u8>> {
    let dir = tempfile::tempdir().expect("a directory");
    let mut disk = vec![0; 8 << 10];
    disk[..600].fill(b'a');
    disk[5000..5100].fill(b'b');
    fs::write(dir.path().join("raw"), disk).expect("room for a disk");
    let mut images: Vec<Vec<u8>> =
        QCOW2.into_iter().map(|options| convert(dir.path(), &["-o", options])).collect();
    images.push(convert(dir.path(), &["-c", "-o", "cluster_size=512"]));
    images.push(convert(dir.path(), &["-c", "-o", "cluster_size=4096,compression_type=zstd"]));
    qemu_img(dir.path(), &["snapshot", "-c", "before", "made"]);
    images.push(fs::read(dir.path().join("made")).expect("the image"));
    images
}

fn convert(dir: &Path, options: &[&str]) -> Vec<u8> {
    qemu_img(dir, &[&["convert", "-f", "raw", "-O", "qcow2"], options, &["raw", "made"]].concat());
    fs::read(dir.join("made")).expect("the image")
}

fn qemu_img(dir: &Path, args: &[&str]) {
    let status = Command::new("qemu-img").args(args).current_dir(dir).status().expect("qemu-img is needed");
    assert!(status.success(), "qemu-img {args:?} failed");
}

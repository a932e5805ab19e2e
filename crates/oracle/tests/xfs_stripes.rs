//! Alignment of XFS to a stripe: where files begin that we make, and those that Linux makes. Chunks of inodes begin at
//! multiples of `sb_inoalignmt` with both.
//!
//! Needs root for the loop mounts.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use undercroft_block::{FileDevice, FileOptions};
use undercroft_oracle::operations::{Done, Hand, Operation, OurHand};
use undercroft_oracle::{Image, MkfsXfs, MountMode, Tool};
use undercroft_vfs::{FallocateMode, FileSystem, Vfs, VfsOptions};
use undercroft_xfs::{OpenOptions, WriteOptions, Xfs};

/// Options of mkfs.xfs, and the stripe unit in KiB.
const VOLUMES: [(&str, u64); 3] = [
    ("-d su=64k,sw=4", 64),
    ("-d su=256k,sw=2,agcount=8 -m rmapbt=1", 256),
    ("-d su=128k,sw=3 -m finobt=0,reflink=0 -i sparse=0", 128),
];

const SIZE_MIB: u64 = 600;

const FILE_BYTES: usize = 1 << 20;

const FILES: usize = 6;

/// An extent: where it begins in its group, in units of 512 bytes, and how many of them it has.
type Extent = (u64, u64);

fn extents(path: &Path) -> Vec<Extent> {
    let told = Tool::new("xfs_bmap").arg("-v").arg(path).run_text().unwrap();
    let lines = told.lines().skip(2).filter(|line| !line.contains("hole"));
    let extent = |line: &str| {
        let inside = line.split_once('(')?.1;
        let (range, rest) = inside.split_once(')')?;
        let total = rest.split_whitespace().next()?.parse().ok()?;
        Some((range.split_once("..")?.0.parse().ok()?, total))
    };
    lines.map(|line| extent(line).unwrap_or_else(|| panic!("a line of xfs_bmap: {line}"))).collect()
}

/// What is made: large files written at once and piece by piece, allocated ones, and small ones between them. `act` makes
/// it.
fn make(mut act: impl FnMut(Operation)) {
    for n in 0..FILES {
        act(Operation::Mkdir { path: format!("dir-{n}") });
        for (kind, pieces) in [("whole", 1), ("grown", 4)] {
            let path = format!("dir-{n}/{kind}");
            act(Operation::Create { path: path.clone() });
            for _ in 0..pieces {
                act(Operation::Append { path: path.clone(), len: FILE_BYTES / pieces, seed: n as u64 });
            }
            let small = format!("dir-{n}/{kind}-small");
            act(Operation::Create { path: small.clone() });
            act(Operation::Append { path: small, len: 5000, seed: 1 });
        }
        let path = format!("dir-{n}/allocated");
        act(Operation::Create { path: path.clone() });
        act(Operation::Space {
            path,
            change: FallocateMode::Allocate,
            offset: 0,
            len: FILE_BYTES as u64,
            keep_size: false,
        });
    }
}

fn make_by_us(image: &Image) {
    let device = Arc::new(FileDevice::open(image.path(), FileOptions::read_write()).unwrap());
    let fs = Xfs::open(device, OpenOptions::default(), WriteOptions::default()).unwrap();
    let vfs = Vfs::new(Arc::clone(&fs) as Arc<dyn FileSystem>, VfsOptions::default());
    let hand = OurHand::new(&vfs);
    make(|operation| assert!(matches!(hand.act(&operation), Ok(Done::Yes)), "{operation:?}"));
    drop((hand, vfs));
    fs.close().unwrap();
}

fn make_by_linux(image: &Image) {
    let mount = image.mount(MountMode::ReadWrite, "").unwrap();
    make(|operation| {
        let at = |path: &str| mount.path().join(path);
        match operation {
            Operation::Mkdir { path } => fs::create_dir(at(&path)).unwrap(),
            Operation::Create { path } => drop(fs::File::create(at(&path)).unwrap()),
            Operation::Append { path, len, .. } => {
                use std::io::Write;
                let mut file = fs::File::options().append(true).open(at(&path)).unwrap();
                file.write_all(&vec![1; len]).unwrap();
                file.sync_data().unwrap();
            }
            Operation::Space { path, len, .. } => {
                Tool::new("xfs_io").args(["-c", &format!("falloc 0 {len}")]).arg(at(&path)).run().unwrap();
            }
            other => panic!("{other:?}"),
        }
    });
    mount.unmount().unwrap();
}

/// Checks where the large files begin, and returns how many extents the large files have.
fn check(image: &Image, unit_kib: u64, what: &str) -> BTreeMap<String, usize> {
    image.xfs_repair_check().unwrap_or_else(|error| panic!("{what}: {error}"));
    let mount = image.mount(MountMode::ReadOnly, "").unwrap();
    let mut counts = BTreeMap::new();
    for n in 0..FILES {
        let dir = mount.path().join(format!("dir-{n}"));
        for name in ["whole", "grown", "allocated"] {
            let found = extents(&dir.join(name));
            assert_eq!(
                found[0].0 % (unit_kib * 2),
                0,
                "{what}: dir-{n}/{name} begins off a stripe: {found:?}"
            );
            *counts.entry(name.to_owned()).or_default() += found.len();
        }
    }
    mount.unmount().unwrap();
    counts
}

#[test]
fn files_begin_at_stripes_as_those_of_linux_do() {
    for (args, unit_kib) in VOLUMES {
        let [ours, theirs] = [(); 2].map(|()| MkfsXfs::new(SIZE_MIB, args).make().unwrap());
        make_by_us(&ours);
        make_by_linux(&theirs);
        let theirs = check(&theirs, unit_kib, &format!("Linux's, {args}"));
        let ours = check(&ours, unit_kib, &format!("ours, {args}"));
        println!("{args}: extents of ours {ours:?}, of Linux's {theirs:?}");
        assert!(
            ours.iter().all(|(name, count)| *count <= theirs[name] + FILES),
            "{args}: {ours:?}, {theirs:?}"
        );
    }
}

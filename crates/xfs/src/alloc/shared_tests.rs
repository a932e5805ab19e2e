//! Files that share blocks, as Linux has made them, changed by us: what each file then has, and what the trees of
//! reference counts and of reverse mappings have, by the kernel and by xfs_repair.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use undercroft_block::testing::Rng;
use undercroft_block::{FileDevice, FileOptions};
use undercroft_oracle::{Image, MkfsXfs, MountMode};
use undercroft_vfs::{Credentials, FallocateMode, FileSystem, Vfs, VfsOptions};

use crate::ag::Agf;
use crate::format::Superblock;
use crate::options::WriteOptions;
use crate::testing::writable::check_image;
use crate::volume::Volume;
use crate::{OpenOptions, Xfs};

/// Size of a file.
const BYTES: usize = 1 << 20;

/// What each file has.
type Content = BTreeMap<String, Vec<u8>>;

/// Lets `to` share a range of `from`, at another place.
fn share(dir: &Path, content: &mut Content, from: &str, to: &str, at: usize, to_at: usize, len: usize) {
    let output = Command::new("xfs_io")
        .arg("-f")
        .arg("-c")
        .arg(format!("reflink {} {at} {to_at} {len}", dir.join(from).display()))
        .arg(dir.join(to))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let bytes = content[from][at..at + len].to_vec();
    let file = content.entry(to.to_owned()).or_default();
    if file.len() < to_at + len {
        file.resize(to_at + len, 0);
    }
    file[to_at..to_at + len].copy_from_slice(&bytes);
}

/// An image on which files share blocks with others and with themselves.
fn image(args: &str, seed: u64) -> (Image, Content) {
    let image = MkfsXfs::new(64, args).make().unwrap();
    let mut rng = Rng::new(seed);
    let mut content = Content::new();
    let mount = image.mount(MountMode::ReadWrite, "").unwrap();
    let dir = mount.path().to_owned();
    for name in ["a", "b"] {
        let bytes: Vec<u8> = (0..BYTES).map(|_| rng.below(256) as u8).collect();
        fs::write(dir.join(name), &bytes).unwrap();
        content.insert(name.to_owned(), bytes);
    }
    // Whole copies, and many parts.
    share(&dir, &mut content, "a", "whole", 0, 0, BYTES);
    let names = ["a", "b", "c", "d", "e", "whole"];
    for _ in 0..150 {
        let from = ["a", "b", "whole"][rng.below(3) as usize];
        let to = names[rng.below(6) as usize];
        let block = |rng: &mut Rng| rng.below(BYTES as u64 / 4096) as usize * 4096;
        let (at, to_at) = (block(&mut rng), block(&mut rng));
        let len = (4096 * (1 + rng.below(40) as usize)).min(BYTES - at).min(BYTES - to_at);
        if from == to && at.abs_diff(to_at) < len {
            continue;
        }
        share(&dir, &mut content, from, to, at, to_at, len);
    }
    mount.unmount().unwrap();
    image.xfs_repair_check().unwrap();
    (image, content)
}

/// What the kernel reads.
#[track_caller]
fn compare(image: &Image, content: &Content) {
    let mount = image.mount(MountMode::ReadOnly, "norecovery").unwrap();
    for (name, bytes) in content {
        let found = fs::read(mount.path().join(name)).unwrap();
        let differs = found.iter().zip(bytes).position(|(found, known)| found != known);
        assert!(found.len() == bytes.len() && differs.is_none(), "{name} differs at {differs:?}");
    }
    assert!(fs::read_dir(mount.path()).unwrap().count() == content.len());
    mount.unmount().unwrap();
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Work {
    Write,
    Punch,
    /// Every second block.
    Comb,
    Zero,
    Truncate,
    Remove,
}

fn change(image: &Image, content: &mut Content, rng: &mut Rng, work: &[Work], rounds: u32) {
    let root = Credentials::root();
    let device = FileDevice::open(image.path(), FileOptions::read_write()).unwrap();
    let options = WriteOptions { commit_seconds: 3600, ..WriteOptions::default() };
    let xfs = Xfs::open(Arc::new(device), OpenOptions::default(), options).unwrap();
    let vfs = Vfs::new(Arc::clone(&xfs) as Arc<dyn FileSystem>, VfsOptions::default());
    for _ in 0..rounds {
        let names: Vec<String> = content.keys().cloned().collect();
        let name = &names[rng.below(names.len() as u64) as usize];
        let what = work[rng.below(work.len() as u64) as usize];
        if what == Work::Remove {
            if names.len() > 1 {
                vfs.remove_file(&root, format!("/{name}")).unwrap();
                content.remove(name);
            }
            continue;
        }
        let node = vfs.lookup(&vfs.root().unwrap(), name.as_bytes()).unwrap();
        let file = vfs.open_node_for_writing(&node).unwrap();
        let bytes = content.get_mut(name).unwrap();
        let at = rng.below(bytes.len().max(1) as u64) as usize;
        let len = (1 + rng.below(60_000) as usize).min(bytes.len() - at);
        match what {
            _ if len == 0 => {}
            Work::Write => {
                let fresh: Vec<u8> = (0..len).map(|_| rng.below(256) as u8).collect();
                file.write_all_at(at as u64, &fresh).unwrap();
                bytes[at..at + len].copy_from_slice(&fresh);
            }
            Work::Punch | Work::Zero => {
                let mode = if what == Work::Punch { FallocateMode::PunchHole } else { FallocateMode::Zero };
                file.fallocate(mode, at as u64, len as u64, true).unwrap();
                bytes[at..at + len].fill(0);
            }
            Work::Comb => {
                for (n, block) in bytes.chunks_mut(4096).enumerate().filter(|(n, _)| n % 2 == 0) {
                    file.fallocate(FallocateMode::PunchHole, n as u64 * 4096, block.len() as u64, true)
                        .unwrap();
                    block.fill(0);
                }
            }
            Work::Truncate => {
                let size = bytes.len() - len / 4;
                file.truncate(size as u64).unwrap();
                bytes.truncate(size);
            }
            Work::Remove => {}
        }
    }
    vfs.close().unwrap();
    drop(vfs);
    drop(xfs);
}

/// Levels of the deepest of the groups' trees of reverse mappings, or of free space where there are none.
fn levels(image: &Image) -> u32 {
    let device = FileDevice::open(image.path(), FileOptions::read_only()).unwrap();
    let superblock = Superblock::read(&device).unwrap();
    let volume = Volume::new(Arc::new(device), superblock, 1 << 20);
    let of = |ag| {
        let agf = *Agf::read(&volume, ag).unwrap().raw();
        agf.agf_rmap_level.get().max(agf.agf_bno_level.get())
    };
    volume.geometry().ags().map(of).max().unwrap()
}

fn changed_in_rounds(args: &str, seed: u64) {
    let (image, mut content) = image(args, seed);
    let mut rng = Rng::new(seed + 100);
    let mut deepest = 0;
    for work in [
        &[Work::Punch][..],
        &[Work::Comb],
        &[Work::Write],
        &[Work::Write, Work::Punch, Work::Zero, Work::Truncate],
        &[Work::Remove, Work::Write],
    ] {
        change(&image, &mut content, &mut rng, work, 40);
        check_image(&image);
        compare(&image, &content);
        deepest = deepest.max(levels(&image));
    }
    change(&image, &mut content, &mut rng, &[Work::Remove], 40);
    check_image(&image);
    compare(&image, &content);
    assert!(levels(&image) <= deepest);
    assert!(deepest > 1 || !args.contains("rmapbt=1"), "{args}: no tree became deep");
}

#[test]
fn shared_blocks_with_a_reverse_map() {
    changed_in_rounds("-m rmapbt=1,reflink=1 -d agcount=2", 1);
    changed_in_rounds("-m rmapbt=1,reflink=1 -d agcount=4 -s size=4096", 2);
}

#[test]
fn shared_blocks_without_a_reverse_map() {
    changed_in_rounds("-m rmapbt=0,reflink=1", 3);
    changed_in_rounds("-m rmapbt=0,reflink=1 -i size=2048 -d agcount=2", 4);
}

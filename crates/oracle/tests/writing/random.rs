//! Random work by several threads on ours, and by one after the other on the kernel's: both end with the same tree,
//! Linux's checkers find nothing, and each goes on where the other has stopped.

use std::thread;

use undercroft_oracle::operations::{Abilities, Done, Hand, KernelHand, Operation, OurHand, Worker};
use undercroft_oracle::{
    Differences, How, Image, Make, Mke2fs, MkfsXfs, MountMode, kernel_manifest, our_manifest,
};

use crate::{Opened, comparable, number};

const WORKERS: u64 = 3;

/// Changes each worker makes; in CI there are some thousand an image.
fn operations() -> usize {
    number("UNDERCROFT_OPERATIONS").unwrap_or(1500) as usize
}

fn ground() -> impl Iterator<Item = Operation> {
    [Operation::Mkdir { path: "shared".to_owned() }].into_iter().chain((0..WORKERS).map(Worker::ground))
}

fn work(hand: &dyn Hand, worker: &mut Worker, count: usize) -> Vec<Done> {
    worker
        .take(count)
        .map(|operation| hand.act(&operation).unwrap_or_else(|error| panic!("{error}")))
        .collect()
}

/// All workers at once, above our vfs.
fn work_on_ours(image: &Image, workers: &mut [Worker], first: bool, how: How) -> Vec<Vec<Done>> {
    let opened = Opened::new(image.path(), how, true);
    let hand = OurHand::new(&opened.vfs);
    if first {
        for operation in ground() {
            assert_eq!(hand.act(&operation), Ok(Done::Yes), "{operation}");
        }
    }
    let done = thread::scope(|scope| {
        let started: Vec<_> = workers
            .iter_mut()
            .map(|worker| {
                let hand = hand.clone();
                scope.spawn(move || work(&hand, worker, operations()))
            })
            .collect();
        started.into_iter().map(|started| started.join().expect("a worker panicked")).collect()
    });
    drop(hand);
    opened.close();
    how.check(image.path()).unwrap();
    done
}

/// One worker after the other, below a mount of the kernel's.
fn work_on_the_kernels(
    image: &Image,
    workers: &mut [Worker],
    first: bool,
    how: How,
    mounted: &str,
) -> Vec<Vec<Done>> {
    let mount = image.mount(MountMode::ReadWrite, mounted).unwrap();
    let hand = KernelHand::new(mount.path());
    if first {
        for operation in ground() {
            assert_eq!(hand.act(&operation), Ok(Done::Yes), "{operation}");
        }
    }
    let done = workers.iter_mut().map(|worker| work(&hand, worker, operations())).collect();
    mount.unmount().unwrap();
    how.check(image.path()).unwrap();
    done
}

fn assert_alike(ours: &Image, kernels: &Image, how: How, what: &str) {
    let tree = |image: &Image| {
        let mount = image.mount(MountMode::ReadOnly, "noatime").unwrap();
        let manifest = kernel_manifest(mount.path()).unwrap();
        mount.unmount().unwrap();
        manifest
    };
    let (by_us, by_kernel) = (tree(ours), tree(kernels));
    Differences::between(&comparable(by_kernel), &comparable(by_us.clone())).assert_none(what);
    // What the kernel sees in our image we see as well, to the last time and number.
    let mut seen = our_manifest(&how.read(ours.path())).unwrap();
    if let (Some(space), Some(of_kernel), How::Xfs(_)) = (&mut seen.space, &by_us.space, how) {
        // The kernel makes it from the device's number, which says nothing of the image.
        space.fsid = of_kernel.fsid;
    }
    Differences::between(&by_us, &seen).assert_none("our image, seen by the kernel and by us");
}

/// Names the first operation that only one of the two refused. `of_number` is a worker as it was before the operations.
fn assert_same_refused(by_us: &[Vec<Done>], by_kernel: &[Vec<Done>], of_number: impl Fn(u64) -> Worker) {
    for (number, (us, kernel)) in (0..).zip(by_us.iter().zip(by_kernel)) {
        if let Some(at) = us.iter().zip(kernel).position(|(us, kernel)| us != kernel) {
            let operation = of_number(number).nth(at);
            panic!(
                "worker {number}, operation {at}: ours {:?}, the kernel's {:?}: {operation:?}",
                us[at], kernel[at]
            );
        }
    }
}

fn both_agree(mke2fs: Mke2fs, abilities: Abilities) {
    both_agree_mounted(&Make::Ext4(mke2fs), abilities, "noatime");
}

/// As [`both_agree`], with the kernel's mount of these options.
fn both_agree_mounted(make: &Make, abilities: Abilities, mounted: &str) {
    let how = How::usual(make);
    let seed = number("UNDERCROFT_SEED").unwrap_or(1);
    eprintln!("UNDERCROFT_SEED={seed} UNDERCROFT_OPERATIONS={}", operations());
    let ours = make.make().unwrap();
    let kernels = ours.copy().unwrap();
    let crew = || (0..WORKERS).map(|number| Worker::new(seed, number, abilities)).collect::<Vec<_>>();
    let (mut our_workers, mut kernel_workers) = (crew(), crew());

    let by_us = work_on_ours(&ours, &mut our_workers, true, how);
    let by_kernel = work_on_the_kernels(&kernels, &mut kernel_workers, true, how, mounted);
    assert_same_refused(&by_us, &by_kernel, |number| Worker::new(seed, number, abilities));
    assert_alike(&ours, &kernels, how, "the same changes on ours and on the kernel's");

    // Each goes on with what the other has left.
    let by_us = work_on_ours(&kernels, &mut kernel_workers, false, how);
    let by_kernel = work_on_the_kernels(&ours, &mut our_workers, false, how, mounted);
    assert_same_refused(&by_us, &by_kernel, |number| {
        let mut worker = Worker::new(seed, number, abilities);
        worker.by_ref().take(operations()).for_each(drop);
        worker
    });
    assert_alike(&ours, &kernels, how, "each has gone on with the other's image");
}

fn mke2fs(kind: &'static str, block_bytes: u32) -> Mke2fs {
    Mke2fs::new(kind, 512).block_bytes(block_bytes).inodes(16_384)
}

fn extents(block_bytes: u32) -> Abilities {
    Abilities {
        extents: true,
        shares: false,
        block_bytes: u64::from(block_bytes),
        value_max_bytes: 3000,
        reach_bytes: 300_000,
    }
}

#[test]
fn ext4_as_it_is_made_today() {
    both_agree(mke2fs("ext4", 4096), extents(4096));
}

#[test]
fn ext4_with_small_blocks() {
    let abilities = Abilities { value_max_bytes: 700, ..extents(1024) };
    both_agree(mke2fs("ext4", 1024), abilities);
}

#[test]
fn ext4_without_a_journal() {
    both_agree(mke2fs("ext4", 4096).features("^has_journal"), extents(4096));
}

#[test]
fn ext4_without_checksums_and_groups_of_groups() {
    let features = "^metadata_csum,uninit_bg,^flex_bg,^64bit,^orphan_file,^dir_index";
    both_agree(mke2fs("ext4", 4096).features(features), extents(4096));
}

#[test]
fn ext4_with_meta_groups() {
    let abilities = Abilities { value_max_bytes: 1500, ..extents(2048) };
    let mke2fs = mke2fs("ext4", 2048).features("meta_bg,^resize_inode,sparse_super2,large_dir");
    both_agree(mke2fs, abilities);
}

#[test]
fn ext4_with_inline_data() {
    // All of an inode's attributes have room together: how much there is depends on whether the kernel made the
    // inode, which keeps small directories in it.
    let abilities = Abilities { value_max_bytes: 160, ..extents(1024) };
    // With ordered data and a small journal Linux waits for itself for ever. Where it does not log all data, a block
    // to which bytes of an inode had moved was seen to come home over what another file had there by then.
    let mke2fs = mke2fs("ext4", 1024).features("inline_data").args(["-J", "size=32"]);
    both_agree_mounted(&Make::Ext4(mke2fs), abilities, "noatime,data=journal");
}

#[test]
fn ext3() {
    let abilities = Abilities { extents: false, ..extents(4096) };
    both_agree(mke2fs("ext3", 4096), abilities);
}

#[test]
fn ext2_with_small_blocks_and_inodes() {
    let abilities = Abilities { extents: false, value_max_bytes: 700, ..extents(1024) };
    both_agree(mke2fs("ext2", 1024).inode_bytes(128), abilities);
}

/// An XFS of so many MiB that these arguments of mkfs.xfs make.
fn both_agree_on_xfs(size_mib: u64, args: &str) {
    both_agree_mounted(&Make::Xfs(MkfsXfs::new(size_mib, args)), xfs_abilities(4096, args), "noatime");
}

/// The same with blocks of another size than 4 KiB, each directory block one of them.
fn both_agree_on_xfs_with_blocks(size_mib: u64, block_bytes: u64, args: &str) {
    let mkfs = MkfsXfs::new(size_mib, &format!("-b size={block_bytes} -n size={block_bytes} {args}"));
    both_agree_mounted(&Make::Xfs(mkfs), xfs_abilities(block_bytes, args), "noatime");
}

fn xfs_abilities(block_bytes: u64, args: &str) -> Abilities {
    // Files have several blocks, however large those are.
    let reach_bytes = 300_000.max(block_bytes * 8);
    let shares = !args.contains("reflink=0");
    Abilities { extents: true, shares, block_bytes, value_max_bytes: 3000, reach_bytes }
}

#[test]
fn xfs_as_it_is_made_today() {
    both_agree_on_xfs(512, "");
}

#[test]
fn xfs_with_a_reverse_map() {
    both_agree_on_xfs(512, "-m rmapbt=1 -i nrext64=1");
}

#[test]
fn xfs_without_a_tree_of_free_inodes() {
    both_agree_on_xfs(512, "-m finobt=0,reflink=0,bigtime=0,inobtcount=0 -i sparse=0");
}

#[test]
fn xfs_with_one_group_and_large_inodes() {
    both_agree_on_xfs(400, "-d agcount=1 -i size=2048");
}

#[test]
fn xfs_with_many_groups_and_large_sectors() {
    both_agree_on_xfs(512, "-d agcount=16 -s size=4096 -i size=1024");
}

#[test]
fn xfs_without_reference_counts() {
    both_agree_on_xfs(512, "-m reflink=0,rmapbt=1 -i nrext64=1");
}

#[test]
fn xfs_with_whole_chunks_and_short_times() {
    both_agree_on_xfs(512, "-m rmapbt=1,bigtime=0,inobtcount=0 -i sparse=0");
}

#[test]
fn xfs_with_a_reverse_map_and_without_a_tree_of_free_inodes() {
    both_agree_on_xfs(512, "-m rmapbt=1,finobt=0,inobtcount=0 -i size=2048");
}

#[test]
fn xfs_with_stripes() {
    both_agree_on_xfs(768, "-d su=64k,sw=4 -l su=64k -m rmapbt=1");
}

#[test]
fn xfs_with_many_small_groups() {
    both_agree_on_xfs(512, "-d agsize=16m -m rmapbt=1 -i size=1024");
}

#[test]
fn xfs_with_the_least_log() {
    both_agree_on_xfs(512, "-d agcount=1 -l size=10m -m reflink=0");
}

#[test]
fn xfs_with_large_blocks() {
    both_agree_on_xfs_with_blocks(1024, 8192, "-m rmapbt=1");
}

#[test]
fn xfs_with_the_largest_blocks() {
    both_agree_on_xfs_with_blocks(2048, 65_536, "");
}

/// The same with blocks of this size and directory blocks of several of them.
fn both_agree_on_xfs_with_dir_blocks(block_bytes: u64, args: &str) {
    let mkfs = MkfsXfs::new(512, &format!("-b size={block_bytes} {args}"));
    both_agree_mounted(&Make::Xfs(mkfs), xfs_abilities(block_bytes, args), "noatime");
}

#[test]
fn xfs_with_small_blocks() {
    both_agree_on_xfs_with_dir_blocks(1024, "");
}

#[test]
fn xfs_with_small_blocks_and_a_reverse_map() {
    both_agree_on_xfs_with_dir_blocks(1024, "-m rmapbt=1 -i nrext64=1,sparse=0");
}

#[test]
fn xfs_with_blocks_of_half_the_size() {
    both_agree_on_xfs_with_dir_blocks(2048, "-i size=1024 -d agcount=9");
}

#[test]
fn xfs_with_directory_blocks_of_two_blocks() {
    both_agree_on_xfs_with_dir_blocks(4096, "-n size=8192");
}

#[test]
fn xfs_with_the_largest_directory_blocks() {
    both_agree_on_xfs_with_dir_blocks(1024, "-n size=65536 -m rmapbt=1");
    both_agree_on_xfs_with_dir_blocks(4096, "-n size=65536");
}

#[test]
fn xfs_whose_uuid_was_changed() {
    let mkfs = MkfsXfs::new(512, "-m rmapbt=1").new_uuid();
    both_agree_mounted(&Make::Xfs(mkfs), xfs_abilities(4096, ""), "noatime");
}

//! Inodes allocated and freed on images of mkfs.xfs, against a model and the checks.
//!
//! Unlinked inodes are on the unlinked lists, so that this crate's check has nothing to say of them; what
//! xfs_repair says of them is known.

use std::collections::BTreeSet;

use undercroft_oracle::MkfsXfs;
use undercroft_vfs::{Announce, Error, NewInode, NewKind};

use super::*;
use crate::WriteOptions;
use crate::ag::agi::RawAgi;
use crate::btree::{Btree, Finobt, Inobt, InodeChunk, Kind};
use crate::format::{AgBlock, AgIno, AgNumber};
use crate::inode::{Inheritance, Inode};
use crate::testing::writable::Writable;

/// A generator of numbers that are the same each time (splitmix64).
struct Numbers(u64);

impl Numbers {
    fn next(&mut self, below: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ z >> 31) % below as u64) as usize
    }
}

/// Makes an unlinked inode, with a chunk's space reserved if it may make one.
fn create(image: &Writable, parent: Ino, is_directory: bool, may_make: bool) -> Result<Ino> {
    let geometry = image.volume.geometry();
    let credits = new_inode_credits(geometry, may_make) + 4;
    let space = if may_make { chunk_space(geometry) } else { 0 };
    let handle = image.volume.start_with_space(credits, space)?;
    let allocator = &image.writer().allocator;
    let NewNumber { ino, generation } = allocator.new_inode(&handle, parent, is_directory, may_make)?;
    let new = NewInode {
        kind: NewKind::Regular,
        permissions: 0o600,
        uid: 1,
        gid: 2,
        xattrs: &[],
        announce: Announce::default(),
    };
    let inode = Inode::fresh(&image.volume, &Inheritance::none(), ino, generation, &new, 0);
    inode.store_new(&handle)?;
    allocator.add_unlinked(&handle, ino)?;
    Ok(ino)
}

fn delete(image: &Writable, ino: Ino) -> Result<()> {
    let handle = image.volume.start(FREE_INODE_CREDITS + 4)?;
    let allocator = &image.writer().allocator;
    allocator.remove_unlinked(&handle, ino)?;
    allocator.free_inode(&handle, ino)
}

fn records<K: Kind<Record = InodeChunk>>(
    image: &Writable,
    ag: AgNumber,
    root: u32,
    levels: u32,
) -> Vec<InodeChunk> {
    let mut chunks = Vec::new();
    let tree = Btree::<K>::in_ag(&image.volume, ag, AgBlock(root), levels).unwrap();
    tree.for_each(|chunk| {
        chunks.push(chunk);
        Ok(())
    })
    .unwrap();
    chunks
}

fn agi(image: &Writable, ag: AgNumber) -> RawAgi {
    image.writer().allocator.group(ag).unwrap().state.lock().agi
}

fn chunks(image: &Writable, ag: AgNumber) -> Vec<InodeChunk> {
    let agi = agi(image, ag);
    records::<Inobt>(image, ag, agi.agi_root.get(), agi.agi_level.get())
}

/// Compares both trees, the headers and the inodes' places with the inodes that are to be in use, beside those that
/// mkfs.xfs made.
fn verify(image: &Writable, model: &BTreeSet<Ino>, own: &BTreeSet<Ino>) {
    // Before a commit the records in memory are newer.
    image.commit();
    let geometry = image.volume.geometry();
    let (mut in_use, mut sums) = (BTreeSet::new(), (0, 0));
    for ag in geometry.ags() {
        let agi = agi(image, ag);
        let chunks = chunks(image, ag);
        if image.volume.superblock().features().has_finobt() {
            let free = records::<Finobt>(image, ag, agi.agi_free_root.get(), agi.agi_free_level.get());
            let with_free: Vec<_> = chunks.iter().filter(|chunk| chunk.free_count > 0).copied().collect();
            assert_eq!(free, with_free, "group {ag}");
        }
        let count: u64 = chunks.iter().map(|chunk| u64::from(chunk.count)).sum();
        let free: u64 = chunks.iter().map(|chunk| u64::from(chunk.free_count)).sum();
        assert_eq!((u64::from(agi.agi_count.get()), u64::from(agi.agi_freecount.get())), (count, free));
        sums = (sums.0 + count, sums.1 + free);
        for chunk in &chunks {
            for bit in (0..64).filter(|bit| chunk.existing() >> bit & 1 == 1) {
                let ino = geometry.join_ino(ag, AgIno(chunk.start.0 + bit)).unwrap();
                let is_used = chunk.used() >> bit & 1 == 1;
                match Inode::read(&image.volume, ino) {
                    Ok(_) => assert!(is_used, "{ino}"),
                    Err(Error::Stale) => assert!(!is_used, "{ino}"),
                    Err(error) => panic!("{ino}: {error}"),
                }
                if is_used {
                    in_use.insert(ino);
                }
            }
        }
    }
    assert_eq!(image.writer().allocator.inode_counts(), sums);
    let expected: BTreeSet<Ino> = model.union(own).copied().collect();
    assert_eq!(in_use, expected);
}

/// What mkfs.xfs has made.
fn own_inodes(image: &Writable) -> BTreeSet<Ino> {
    let root = image.volume.superblock().root();
    (root.0..root.0 + 3).map(Ino).collect()
}

/// Commits and has this crate's check look: the only thing to say is that these inodes have no names.
fn check_with_unlinked(image: &Writable, unlinked: usize) {
    let report = image.own_check();
    assert!(report.is_clean(), "{:?}", report.findings);
    assert_eq!(report.orphans, unlinked as u64);
}

fn random_work(size_mib: u64, args: &str, options: WriteOptions, steps: usize) {
    let image = Writable::open(MkfsXfs::new(size_mib, args).make().unwrap(), options);
    let own = own_inodes(&image);
    let mut numbers = Numbers(args.len() as u64);
    let mut model = BTreeSet::new();
    let root = image.volume.superblock().root();
    for phase in 0..4 {
        for _ in 0..steps {
            // More are made than deleted, then the other way round.
            let creates = numbers.next(10) < if phase % 2 == 0 { 8 } else { 1 };
            let any = |numbers: &mut Numbers, model: &BTreeSet<Ino>| {
                (!model.is_empty()).then(|| *model.iter().nth(numbers.next(model.len())).unwrap())
            };
            if creates {
                let parent = if numbers.next(3) == 0 { None } else { any(&mut numbers, &model) };
                let is_directory = numbers.next(20) == 0;
                let ino = create(&image, parent.unwrap_or(root), is_directory, true).unwrap();
                assert!(model.insert(ino) && !own.contains(&ino), "{ino} was in use");
            } else if let Some(ino) = any(&mut numbers, &model) {
                delete(&image, ino).unwrap();
                model.remove(&ino);
            }
            if numbers.next(50) == 0 {
                image.commit();
            }
        }
        verify(&image, &model, &own);
        check_with_unlinked(&image, model.len());
    }
    let mut rest: Vec<Ino> = model.into_iter().collect();
    while !rest.is_empty() {
        delete(&image, rest.swap_remove(numbers.next(rest.len()))).unwrap();
    }
    verify(&image, &BTreeSet::new(), &own);
    image.finish();
}

#[test]
fn inodes_come_and_go_as_in_a_model() {
    for args in [
        "-d agcount=4",
        "-d agcount=4 -m finobt=0,reflink=0,bigtime=0,inobtcount=0 -i sparse=0",
        "-d agcount=3 -b size=1024 -i size=512",
        "-d agcount=2 -b size=16384",
    ] {
        random_work(64, args, WriteOptions::default(), 600);
    }
    let plain = WriteOptions { search_free_inode_tree: false, ..WriteOptions::default() };
    random_work(64, "-d agcount=4", plain, 600);
}

/// A search through all chunks remembers which of them are full; it must not remember it for too long.
#[test]
fn a_search_through_all_chunks_finds_what_one_of_the_free_ones_finds() {
    let [by_free_tree, by_all] = [true, false].map(|search_free_inode_tree| {
        let options = WriteOptions { search_free_inode_tree, ..WriteOptions::default() };
        let image = Writable::open(MkfsXfs::new(64, "-d agcount=1").make().unwrap(), options);
        let root = image.volume.superblock().root();
        let mut numbers = Numbers(11);
        let mut files: Vec<_> = (0..1500).map(|_| create(&image, root, false, true).unwrap()).collect();
        let mut made = Vec::new();
        for _ in 0..1500 {
            if numbers.next(5) < 2 {
                delete(&image, files.swap_remove(numbers.next(files.len()))).unwrap();
            } else {
                let parent = if numbers.next(4) == 0 { root } else { files[numbers.next(files.len())] };
                let ino = create(&image, parent, false, true).unwrap();
                files.push(ino);
                made.push(ino);
            }
        }
        verify(&image, &files.iter().copied().collect(), &own_inodes(&image));
        check_with_unlinked(&image, files.len());
        made
    });
    assert_eq!(by_free_tree, by_all);
}

#[test]
fn a_number_that_is_given_back_is_free_as_before() {
    let image = Writable::open(MkfsXfs::new(64, "-d agcount=1").make().unwrap(), WriteOptions::default());
    let (root, own) = (image.volume.superblock().root(), own_inodes(&image));
    let allocator = &image.writer().allocator;
    let geometry = image.volume.geometry();
    let mut model = BTreeSet::new();
    // Also the last free inode of a chunk, and the first one of a new chunk.
    for n in 0..150 {
        let before = allocator.inode_counts();
        {
            let credits = new_inode_credits(geometry, true) + GIVE_BACK_CREDITS;
            let handle = image.volume.start_with_space(credits, chunk_space(geometry)).unwrap();
            let new = allocator.new_inode(&handle, root, false, true).unwrap();
            allocator.give_back_inode(&handle, new.ino).unwrap();
            assert!(allocator.give_back_inode(&handle, new.ino).is_err(), "it is not in use any more");
        }
        let after = allocator.inode_counts();
        assert_eq!(after.0 - before.0, after.1 - before.1);
        if n % 50 == 49 {
            verify(&image, &model, &own);
        }
        model.insert(create(&image, root, false, true).unwrap());
    }
    verify(&image, &model, &own);
    check_with_unlinked(&image, model.len());
}

#[test]
fn inodes_come_and_go_as_in_a_model_with_a_reverse_map() {
    for args in ["-d agcount=3 -m rmapbt=1 -b size=1024", "-d agcount=2 -i size=2048,nrext64=1 -m rmapbt=1"] {
        random_work(64, args, WriteOptions::default(), 600);
    }
}

#[test]
fn blocks_of_more_inodes_than_a_chunk_has_are_made_and_stay() {
    random_work(256, "-d agcount=2 -b size=65536", WriteOptions::default(), 600);
}

#[test]
fn threads_make_and_delete_inodes_together() {
    let image = Writable::make(64, "-d agcount=3 -m rmapbt=1");
    let own = own_inodes(&image);
    let root = image.volume.superblock().root();
    let models: Vec<BTreeSet<Ino>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|thread| {
                let image = &image;
                scope.spawn(move || {
                    let mut numbers = Numbers(thread);
                    let mut model: Vec<Ino> = Vec::new();
                    for step in 0..1500 {
                        if model.is_empty() || numbers.next(10) < 6 {
                            model.push(create(image, root, numbers.next(4) == 0, true).unwrap());
                        } else {
                            delete(image, model.swap_remove(numbers.next(model.len()))).unwrap();
                        }
                        // One thread commits, as the filesystem's own does.
                        if thread == 0 && step % 50 == 49 {
                            image.commit();
                        }
                    }
                    model.into_iter().collect()
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let all: BTreeSet<Ino> = models.iter().flatten().copied().collect();
    assert_eq!(all.len(), models.iter().map(BTreeSet::len).sum::<usize>(), "an inode was given out twice");
    verify(&image, &all, &own);
    check_with_unlinked(&image, all.len());
    for ino in all {
        delete(&image, ino).unwrap();
    }
    verify(&image, &BTreeSet::new(), &own);
    image.finish();
}

#[test]
fn files_stay_near_their_directory_and_directories_spread() {
    let image = Writable::make(64, "-d agcount=4");
    let geometry = *image.volume.geometry();
    let root = image.volume.superblock().root();
    let ag_of = |ino| geometry.split_ino(ino).unwrap().0;
    let directories: Vec<Ino> = (0..4).map(|_| create(&image, root, true, true).unwrap()).collect();
    let groups: BTreeSet<AgNumber> = directories.iter().map(|&ino| ag_of(ino)).collect();
    assert_eq!(groups.len(), 4);
    for _ in 0..100 {
        for &directory in &directories {
            assert_eq!(ag_of(create(&image, directory, false, true).unwrap()), ag_of(directory));
        }
    }
    // The freed inode nearest to the directory is taken first.
    let near = directories[1];
    let files: Vec<Ino> = (0..64).map(|_| create(&image, near, false, true).unwrap()).collect();
    for file in [files[60], Ino(near.0 + 1), files[30]] {
        delete(&image, file).unwrap();
    }
    assert_eq!(create(&image, near, false, true).unwrap(), Ino(near.0 + 1));
    check_with_unlinked(&image, 4 + 400 + 64 - 2);
}

/// Takes all blocks that can be had, in pieces of one group each.
fn fill(image: &Writable) -> Vec<(FsBlock, u64)> {
    let allocator = &image.writer().allocator;
    let mut taken = Vec::new();
    for want in [1000, 100, 10, 1] {
        while let Ok(handle) = image.volume.start_with_space(200, want) {
            let (first, count) = allocator.take(&handle, FsBlock(0), want).unwrap();
            taken.push((first, count));
        }
    }
    taken
}

#[test]
fn a_full_filesystem_gives_out_the_inodes_that_it_has() {
    let image = Writable::make(64, "-d agcount=2");
    let root = image.volume.superblock().root();
    let taken = fill(&image);
    let (_, free) = image.writer().allocator.inode_counts();
    assert!(image.writer().allocator.needs_chunk(&image.volume, root, false) == (free == 0));
    let mut made = Vec::new();
    loop {
        match create(&image, root, false, false) {
            Ok(ino) => made.push(ino),
            Err(Error::NoSpace) => break,
            Err(error) => panic!("{error}"),
        }
    }
    assert_eq!(made.len() as u64, free);
    assert!(matches!(create(&image, root, false, true), Err(Error::NoSpace)), "cannot be reserved");
    for ino in made {
        delete(&image, ino).unwrap();
    }
    for (first, count) in taken {
        let handle = image.volume.start(200).unwrap();
        image.writer().allocator.free(&handle, first, count).unwrap();
    }
    image.finish();
}

#[test]
fn no_more_inodes_are_made_than_may_be() {
    let image = Writable::make(64, "-d agcount=2 -i maxpct=1");
    let root = image.volume.superblock().root();
    let most = crate::statfs::most_inodes(&image.volume).unwrap();
    let mut made = 0;
    while create(&image, root, made % 7 == 0, true).is_ok() {
        made += 1;
    }
    let (inodes, free) = image.writer().allocator.inode_counts();
    assert_eq!((inodes, free), (most / 64 * 64, 0));
    assert_eq!(made + 3, inodes);
    check_with_unlinked(&image, made as usize);
}

/// Parts of chunks that become free: more than what is set aside in a group holds as whole chunks.
const PARTS: usize = 150;

#[test]
fn where_no_whole_chunk_fits_parts_are_made_and_join() {
    for args in ["-d agcount=2", "-d agcount=2 -m finobt=0,reflink=0 -b size=1024"] {
        make_parts(args);
    }
}

#[test]
fn parts_of_chunks_are_in_the_reverse_map() {
    make_parts("-d agcount=2 -m rmapbt=1");
}

fn make_parts(args: &str) {
    let image = Writable::make(64, args);
    let geometry = *image.volume.geometry();
    let (chunk, part) = (geometry.chunk_blocks(), geometry.sparse_alignment());
    assert!(part > 0 && part < chunk);
    let own = own_inodes(&image);
    let root = image.volume.superblock().root();
    let taken = fill(&image);
    let free = |first: FsBlock, count: u64| {
        let handle = image.volume.start(200).unwrap();
        image.writer().allocator.free(&handle, first, count).unwrap();
    };
    // The first part of every chunk becomes free, then the second.
    let mut parts = [Vec::new(), Vec::new()];
    let mut rest = Vec::new();
    for &(first, count) in &taken {
        let mut block = first.0;
        while block < first.0 + count {
            let within = geometry.split(FsBlock(block)).unwrap().1.0 % chunk;
            let piece = u64::from(part - within % part).min(first.0 + count - block);
            let piece_of =
                if piece < u64::from(part) { &mut rest } else { &mut parts[(within / part) as usize] };
            piece_of.push((FsBlock(block), piece));
            block += piece;
        }
    }
    for &(first, count) in parts[0].iter().take(PARTS) {
        free(first, count);
    }
    image.commit();
    let mut model = BTreeSet::new();
    let make = |model: &mut BTreeSet<Ino>| {
        while let Ok(ino) = create(&image, root, false, true) {
            assert!(model.insert(ino));
        }
    };
    make(&mut model);
    let sparse = || geometry.ags().flat_map(|ag| chunks(&image, ag)).filter(|chunk| chunk.holes != 0).count();
    let parts_made = sparse();
    assert!(parts_made > 0, "mkfs.xfs {args}");
    verify(&image, &model, &own);
    for &(first, count) in parts[1].iter().take(PARTS) {
        free(first, count);
    }
    image.commit();
    make(&mut model);
    assert!(sparse() < parts_made, "no parts joined");
    verify(&image, &model, &own);
    // A chunk with holes is freed as far as it is there.
    for ino in model {
        delete(&image, ino).unwrap();
    }
    image.commit();
    verify(&image, &BTreeSet::new(), &own);
    for (first, count) in parts.iter().flat_map(|parts| parts.iter().skip(PARTS)).chain(&rest) {
        free(*first, *count);
    }
    image.finish();
}

#[test]
fn an_inode_that_is_free_in_the_tree_and_in_use_in_its_place_is_not_given_out() {
    let image = Writable::make(64, "-d agcount=2");
    let root = image.volume.superblock().root();
    let ino = create(&image, root, false, true).unwrap();
    let before = image.writer().allocator.inode_counts();
    delete(&image, ino).unwrap();
    {
        // The place says again that it is in use.
        let handle = image.volume.start(1).unwrap();
        let group = image.writer().allocator.change_group(&handle, AgNumber(0)).unwrap();
        group.change_slot(ino, |raw, _| raw.di_mode.set(0o100_600)).unwrap();
    }
    let error = create(&image, root, false, true).unwrap_err();
    assert!(matches!(error, Error::Corrupt(_)), "{error}");
    assert_eq!(image.writer().allocator.inode_counts(), (before.0, before.1 + 1));
}

#[test]
fn freeing_what_is_not_in_use_is_corruption() {
    let image = Writable::make(64, "-d agcount=2");
    let root = image.volume.superblock().root();
    let handle = image.volume.start(FREE_INODE_CREDITS).unwrap();
    for ino in [Ino(root.0 + 3), Ino(root.0 + 6400), Ino(u64::MAX)] {
        let error = image.writer().allocator.free_inode(&handle, ino).unwrap_err();
        assert!(matches!(error, Error::Corrupt(_)), "{error}");
    }
    drop(handle);
    image.finish();
}

/// What the lists of a group have, from first to last.
fn lists(image: &Writable) -> Vec<Ino> {
    image.writer().allocator.collect_unlinked(&image.volume).0
}

#[test]
fn unlinked_lists_are_as_in_a_model_whether_their_links_are_known_or_not() {
    for knows in [true, false] {
        let image = Writable::make(64, "-d agcount=2");
        let root = image.volume.superblock().root();
        let mut numbers = Numbers(7);
        let mut model = BTreeSet::new();
        for _ in 0..1000 {
            assert!(model.insert(create(&image, root, numbers.next(100) == 0, true).unwrap()));
        }
        let image = if knows { image } else { Writable::open(image.close(), WriteOptions::default()) };
        while !model.is_empty() {
            let ino = *model.iter().nth(numbers.next(model.len())).unwrap();
            model.remove(&ino);
            delete(&image, ino).unwrap();
            if model.len() % 100 == 0 && knows {
                assert_eq!(lists(&image).into_iter().collect::<BTreeSet<_>>(), model);
            }
        }
        image.finish();
    }
}

#[test]
fn broken_lists_end_and_are_reported() {
    let image = Writable::make(64, "-d agcount=1 -l size=8m");
    let root = image.volume.superblock().root();
    let inos: Vec<Ino> = (0..64 * 4).map(|_| create(&image, root, false, true).unwrap()).collect();
    // Four inodes to a list; one list leads back to its first inode, one to another list's inode, one to nowhere.
    let of = |list: u64, n: usize| *inos.iter().rev().filter(|ino| ino.0 % 64 == list).nth(n).unwrap();
    for (list, next) in [(5, of(5, 0).0 as u32), (6, of(7, 1).0 as u32), (9, u32::MAX - 1)] {
        let handle = image.volume.start(1).unwrap();
        let group = image.writer().allocator.change_group(&handle, AgNumber(0)).unwrap();
        group.change_slot(of(list, 2), |raw, _| raw.di_next_unlinked.set(next)).unwrap();
    }
    let image = Writable::open(image.close(), WriteOptions::default());
    let (left, broken) = image.writer().allocator.collect_unlinked(&image.volume);
    assert_eq!((left.len(), broken), (61 * 4, 3));
    assert!(left.iter().all(|ino| ![5, 6, 9].contains(&(ino.0 % 64))));
    for &ino in left.iter().rev() {
        delete(&image, ino).unwrap();
    }
    // Lists that are broken take new inodes, and let go of them.
    let new: Vec<Ino> = (0..61 * 4 + 100).map(|_| create(&image, root, false, true).unwrap()).collect();
    for &ino in &new {
        delete(&image, ino).unwrap();
    }
    // What lies behind a break is not found on its list.
    let handle = image.volume.start(4).unwrap();
    let error = image.writer().allocator.remove_unlinked(&handle, of(9, 3)).unwrap_err();
    assert!(matches!(error, Error::Corrupt(_)), "{error}");
}

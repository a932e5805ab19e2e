//! Blocks taken, held and freed against a model; full filesystems; damaged ones.

use undercroft_oracle::MkfsXfs;
use undercroft_vfs::{Error, Result};

use super::*;
use crate::WriteOptions;
use crate::ag::Agf;
use crate::btree::FreeExtent;
use crate::format::{AgBlock, AgNumber, FileBlock};
use crate::testing::writable::Writable;

/// A generator of numbers that is the same in each run.
struct Random(u64);

impl Random {
    fn next(&mut self, below: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % below.max(1)
    }
}

/// The volumes that tests work on: arguments of mkfs.xfs.
const VOLUMES: [&str; 4] = [
    "-m rmapbt=0,reflink=0 -d agcount=4",
    "-m rmapbt=0,reflink=1,finobt=1 -d agcount=3 -b size=1024",
    "-m rmapbt=1,reflink=1,finobt=1 -d agcount=4",
    "-m rmapbt=1,reflink=1,finobt=1 -d agcount=2 -s size=4096",
];

/// A volume, and the blocks that a test has taken from it.
struct Bench {
    writable: Writable,
    /// By linear number.
    taken: Vec<(FsBlock, u64)>,
    is_taken: Vec<bool>,
    random: Random,
}

impl Bench {
    fn new(mib: u64, args: &str) -> Self {
        let writable = Writable::make(mib, args);
        let is_taken = vec![false; writable.volume.geometry().blocks() as usize];
        Self { writable, taken: Vec::new(), is_taken, random: Random(0x1234_5678_9abc) }
    }

    fn allocator(&self) -> &Arc<Allocator> {
        &self.writable.writer().allocator
    }

    fn credits(&self) -> u32 {
        2 * self.allocator().extent_credits()
    }

    fn goal(&mut self) -> FsBlock {
        let blocks = self.writable.volume.geometry().blocks();
        let linear = self.random.next(blocks);
        self.writable.volume.geometry().block_at_linear(linear).unwrap()
    }

    fn mark(&mut self, first: FsBlock, count: u64, taken: bool) {
        assert!(count > 0);
        self.writable.volume.geometry().check_run(first, count).expect("in one group");
        let linear = self.writable.volume.geometry().linear(first).unwrap();
        for n in linear..linear + count {
            let is_taken = &mut self.is_taken[n as usize];
            assert_ne!(*is_taken, taken, "block {n}");
            *is_taken = taken;
        }
    }

    /// What a test takes belongs to the root, each block at a place of its own in the file.
    fn owner(&self, first: FsBlock) -> Owner {
        let linear = self.writable.volume.geometry().linear(first).unwrap();
        let ino = self.writable.volume.superblock().root();
        Owner::Fork { ino, attr: false, at: FileBlock(1 << 20 | linear), unwritten: false }
    }

    fn take(&mut self, most: u64) -> Result<(FsBlock, u64)> {
        let goal = self.goal();
        let (first, count) = {
            let handle = self.writable.volume.start_with_space(self.credits(), most)?;
            let (first, count) = self.allocator().take(&handle, goal, most)?;
            self.allocator().note_owner(&handle, first, count, self.owner(first))?;
            (first, count)
        };
        assert!(count <= most);
        self.mark(first, count, true);
        self.taken.push((first, count));
        Ok((first, count))
    }

    fn hold(&mut self, most: u64) -> Result<Held> {
        let goal = self.goal();
        let held = self.allocator().hold(&self.writable.volume, goal, most)?;
        self.mark(held.first(), held.len(), true);
        Ok(held)
    }

    fn let_go(&mut self, held: Held) {
        self.mark(held.first(), held.len(), false);
        drop(held);
    }

    fn take_held(&mut self, held: &mut Held, count: u64) {
        let handle = self.writable.volume.start(self.credits()).unwrap();
        let first = self.allocator().take_held(&handle, held, count).unwrap();
        self.allocator().note_owner(&handle, first, count, self.owner(first)).unwrap();
        drop(handle);
        self.taken.push((first, count));
    }

    /// Frees a part of a run that was taken.
    fn free_some(&mut self) {
        if self.taken.is_empty() {
            return;
        }
        let n = self.random.next(self.taken.len() as u64) as usize;
        let (first, count) = self.taken.swap_remove(n);
        let at = self.random.next(count);
        let len = 1 + self.random.next(count - at);
        if at > 0 {
            self.taken.push((first, at));
        }
        if at + len < count {
            self.taken.push((FsBlock(first.0 + at + len), count - at - len));
        }
        let was_data = self.random.next(2) == 0;
        self.free(FsBlock(first.0 + at), len, was_data);
    }

    fn free(&mut self, first: FsBlock, count: u64, was_data: bool) {
        let handle = self.writable.volume.start(self.credits()).unwrap();
        self.allocator().note_no_owner(&handle, first, count, self.owner(first)).unwrap();
        if was_data {
            self.allocator().free_data(&handle, first, count).unwrap();
        } else {
            self.allocator().free(&handle, first, count).unwrap();
        }
        drop(handle);
        self.mark(first, count, false);
    }

    fn free_all(&mut self) {
        for (first, count) in std::mem::take(&mut self.taken) {
            self.free(first, count, true);
        }
    }

    /// The trees, the headers and what is in memory agree, and have nothing that is taken.
    fn check(&self) {
        let volume = &self.writable.volume;
        let mut reservable = 0;
        for group in self.allocator().groups.iter() {
            let agf = Agf::read(volume, group.number).unwrap();
            let mut by_space = Vec::new();
            agf.by_space(volume)
                .unwrap()
                .for_each(|extent| {
                    by_space.push(extent);
                    Ok(())
                })
                .unwrap();
            let mut by_size = Vec::new();
            agf.by_size(volume)
                .unwrap()
                .for_each(|extent| {
                    by_size.push(extent);
                    Ok(())
                })
                .unwrap();
            let sum: u32 = by_space.iter().map(|extent| extent.count).sum();
            assert_eq!((sum, agf.longest()), (agf.free_blocks(), by_size.last().map_or(0, |e| e.count)));
            for extent in &by_space {
                let first = volume.geometry().join(group.number, extent.start).unwrap();
                let linear = volume.geometry().linear(first).unwrap() as usize;
                let of_extent = &self.is_taken[linear..linear + extent.count as usize];
                let is_held = group.state.lock().blocks.as_ref().is_some_and(|blocks| blocks.space.held > 0);
                assert!(is_held || !of_extent.contains(&true), "{extent:?} of group {}", group.number);
            }
            by_size.sort_by_key(|extent| extent.start);
            assert_eq!(by_size, by_space);
            let mut state = group.state.lock();
            reservable += state.reservable();
            assert_eq!(state.counted, state.reservable());
            if state.blocks.is_some() {
                let space = &state.blocks().space;
                let in_memory: Vec<_> = space
                    .disk
                    .from(0)
                    .map(|run| FreeExtent { start: AgBlock(run.start), count: run.count })
                    .collect();
                assert_eq!(in_memory, by_space);
                let available = space.available.blocks();
                assert_eq!(available + space.busy + space.held, u64::from(sum));
            }
        }
        let held: u64 = self
            .allocator()
            .groups
            .iter()
            .map(|group| group.state.lock().blocks.as_ref().map_or(0, |blocks| blocks.space.held))
            .sum();
        assert_eq!(self.allocator().free_blocks() + held, reservable);
    }
}

#[test]
fn blocks_are_taken_held_and_freed_as_in_a_model() {
    for args in VOLUMES {
        let mut bench = Bench::new(64, args);
        let mut held: Vec<Held> = Vec::new();
        for round in 0..3000 {
            match bench.random.next(12) {
                0..4 => {
                    let most = 1 + bench.random.next(30);
                    match bench.take(most) {
                        Ok(_) | Err(Error::NoSpace) => {}
                        Err(error) => panic!("{args}: {error}"),
                    }
                }
                4..6 => {
                    let most = 1 + bench.random.next(200);
                    if let Ok(more) = bench.hold(most) {
                        held.push(more);
                    }
                }
                6..8 if !held.is_empty() => {
                    let n = bench.random.next(held.len() as u64) as usize;
                    let mut some = held.swap_remove(n);
                    let at = bench.random.next(some.len() + 1);
                    let rest = some.split_off(at);
                    if some.len() > 0 {
                        let count = some.len();
                        bench.take_held(&mut some, count);
                    }
                    if bench.random.next(2) == 0 {
                        held.push(rest);
                    } else if rest.len() > 0 {
                        bench.let_go(rest);
                    }
                    held.retain(|held| held.len() > 0);
                }
                8..11 => bench.free_some(),
                _ if bench.random.next(8) == 0 => bench.writable.commit(),
                _ => {}
            }
            if round % 500 == 0 {
                bench.check();
            }
        }
        bench.check();
        for some in held {
            bench.let_go(some);
        }
        bench.free_all();
        bench.writable.commit();
        bench.check();
        bench.writable.finish();
    }
}

#[test]
fn a_full_filesystem_gives_all_it_promised_and_gets_it_back() {
    for args in VOLUMES {
        let mut bench = Bench::new(64, args);
        let before = bench.allocator().free_blocks();
        // Fragments first.
        for _ in 0..400 {
            bench.take(7).unwrap();
        }
        for _ in 0..300 {
            bench.free_some();
        }
        bench.writable.commit();
        let mut taken: u64 = bench.taken.iter().map(|&(_, count)| count).sum();
        loop {
            match bench.take(50) {
                Ok((_, count)) => taken += count,
                Err(Error::NoSpace) => match bench.take(1) {
                    Ok((_, count)) => taken += count,
                    Err(Error::NoSpace) => break,
                    Err(error) => panic!("{args}: {error}"),
                },
                Err(error) => panic!("{args}: {error}"),
            }
        }
        assert_eq!(bench.allocator().free_blocks(), 0);
        assert!(taken <= before && taken + before / 50 >= before, "{args}: {taken} of {before}");
        bench.check();
        // Nothing is reserved for what is freed now.
        while !bench.taken.is_empty() {
            bench.free_some();
        }
        assert!(bench.allocator().busy_blocks() > 0);
        bench.writable.commit();
        assert_eq!(bench.allocator().busy_blocks(), 0);
        bench.check();
        let after = bench.allocator().free_blocks();
        assert!(after.abs_diff(before) < 30, "{args}: {before} before, {after} after");
        bench.writable.finish();
    }
}

#[test]
fn freed_blocks_are_given_out_after_the_commit() {
    let mut bench = Bench::new(64, VOLUMES[0]);
    let all = bench.allocator().free_blocks();
    while bench.take(1000).is_ok() {}
    while bench.take(1).is_ok() {}
    assert!(!bench.allocator().reserve(1));
    bench.free_all();
    assert!(bench.allocator().busy_blocks() + 30 > all);
    assert!(bench.allocator().free_blocks() < 10);
    bench.writable.commit();
    assert!(bench.allocator().free_blocks() + 30 > all);
    bench.take(10).unwrap();
    bench.free_all();
    bench.writable.finish();
}

/// Free blocks are discarded and stay free; blocks in use and those that a transaction freed a moment ago keep their content.
#[test]
fn trimming_discards_free_blocks_only() {
    for args in [VOLUMES[0], "-d agcount=4"] {
        let mut bench = Bench::new(64, args);
        let (volume, allocator) = (Arc::clone(&bench.writable.volume), Arc::clone(bench.allocator()));
        let geometry = *volume.geometry();
        let mut used = Vec::new();
        for _ in 0..20 {
            used.push(bench.take(50).unwrap());
        }
        for block in &used {
            let data = vec![7; (block.1 << geometry.block_log()) as usize];
            volume.device().write_at(geometry.byte(block.0).unwrap(), &data).unwrap();
        }
        bench.writable.commit();
        let free = allocator.free_blocks();
        let available = |allocator: &Allocator| -> u64 {
            let of = |group: &super::group::Group| {
                u64::from(group.lock_blocks(&volume).unwrap().blocks().space.available.blocks() as u32)
            };
            allocator.groups.iter().map(of).sum()
        };
        let all = available(&allocator);
        // What is set aside for the groups' trees is theirs at any moment, but a piece at a time it may be held.
        let trimmed = allocator.trim(&volume, 0..u64::MAX, 0).unwrap() >> geometry.block_log();
        assert!(trimmed <= all && trimmed >= free - 16, "{args}: {trimmed} of {all}, {free} free");
        assert_eq!((allocator.free_blocks(), allocator.busy_blocks(), available(&allocator)), (free, 0, all));
        let (first, count) = used[0];
        let place = geometry.byte(first).unwrap();
        let bytes = count << geometry.block_log();
        assert_eq!(allocator.trim(&volume, place..place + bytes, 0).unwrap(), 0);
        let long = allocator.trim(&volume, 0..u64::MAX, 4 << 20).unwrap() >> geometry.block_log();
        assert!(long <= trimmed && long > 0);
        bench.taken.retain(|taken| taken.0 != first);
        bench.free(first, count, true);
        assert_eq!(allocator.trim(&volume, place..place + bytes, 0).unwrap(), 0);
        for (first, count) in used {
            let mut found = vec![0; (count << geometry.block_log()) as usize];
            volume.device().read_at(geometry.byte(first).unwrap(), &mut found).unwrap();
            assert!(found.iter().all(|byte| *byte == 7));
        }
        bench.writable.commit();
        assert_eq!(allocator.trim(&volume, place..place + bytes, 0).unwrap(), bytes);
        bench.free_all();
        bench.writable.finish();
    }
}

#[test]
fn what_is_not_in_use_is_not_freed() {
    let mut bench = Bench::new(64, VOLUMES[0]);
    let (first, count) = bench.take(10).unwrap();
    let geometry = *bench.writable.volume.geometry();
    let handle = bench.writable.volume.start(100).unwrap();
    let refused = |first: FsBlock, count: u64, word: &str| {
        let error = bench.allocator().free(&handle, first, count).unwrap_err().to_string();
        assert!(error.contains(word), "{error}");
    };
    let at = |block: u32| geometry.join(AgNumber(0), AgBlock(block)).unwrap();
    refused(at(0), 1, "the filesystem's own");
    let log = bench.writable.volume.superblock().log_start().unwrap();
    refused(FsBlock(log.0 + 3), 2, "the filesystem's own");
    let agf = Agf::read(&bench.writable.volume, AgNumber(1)).unwrap();
    let root = geometry.join(AgNumber(1), AgBlock(agf.raw().agf_cnt_root.get())).unwrap();
    refused(root, 1, "the root of a tree");
    refused(FsBlock(first.0 - 1), count + 2, "are free");
    refused(at(geometry.ag_blocks() - 1), 2, "lie in no group");
    bench.allocator().free(&handle, first, count).unwrap();
    refused(first, count, "are free");
    drop(handle);
    bench.taken.clear();
    bench.writable.finish();
}

#[test]
fn blocks_are_taken_near_the_goal() {
    let mut bench = Bench::new(64, VOLUMES[0]);
    let geometry = *bench.writable.volume.geometry();
    let goal = geometry.join(AgNumber(2), AgBlock(2000)).unwrap();
    let held = bench.allocator().hold(&bench.writable.volume, goal, 100).unwrap();
    assert_eq!((held.first(), held.len()), (goal, 100));
    let next = bench.allocator().hold(&bench.writable.volume, goal, 10).unwrap();
    assert_eq!(next.first(), FsBlock(goal.0 + 100));
    drop(held);
    drop(next);
    let handle = bench.writable.volume.start_with_space(bench.credits(), 8).unwrap();
    let mut group = bench.allocator().change_group(&handle, AgNumber(1)).unwrap();
    let first = group.take_aligned(AgBlock(1001), 8, 8, 0..4000).unwrap().unwrap();
    assert_eq!(first, AgBlock(1008));
    assert_eq!(group.take_aligned(AgBlock(1001), 8, 8, 0..4000).unwrap(), None, "none is reserved");
    group.free(first, 8, Was::Metadata).unwrap();
    drop(group);
    drop(handle);
    bench.taken.clear();
    bench.writable.finish();
}

/// Every second block is free: each tree of free space has more than two levels, and the free list has been emptied into
/// them and filled again many times.
#[test]
fn trees_grow_and_shrink_with_the_fragments() {
    for args in
        ["-m rmapbt=0,reflink=0 -d agcount=1 -b size=1024", "-m rmapbt=1,reflink=1 -d agcount=1 -b size=1024"]
    {
        let mut bench = Bench::new(32, args);
        let before = bench.allocator().free_blocks();
        let mut singles = Vec::new();
        loop {
            match bench.take(2) {
                Ok((first, count)) => {
                    bench.taken.pop();
                    bench.taken.push((first, 1));
                    if count == 2 {
                        singles.push(FsBlock(first.0 + 1));
                    }
                }
                Err(Error::NoSpace) => break,
                Err(error) => panic!("{args}: {error}"),
            }
        }
        // On a full filesystem, without a reservation.
        for block in singles {
            bench.free(block, 1, true);
        }
        bench.writable.commit();
        bench.check();
        let agf = Agf::read(&bench.writable.volume, AgNumber(0)).unwrap();
        assert!(agf.raw().agf_bno_level.get() >= 2 && agf.raw().agf_cnt_level.get() >= 2);
        bench.free_all();
        bench.writable.commit();
        bench.check();
        let after = bench.allocator().free_blocks();
        assert!(after.abs_diff(before) < 30, "{args}: {before} before, {after} after");
        bench.writable.finish();
    }
}

#[test]
fn threads_share_the_groups() {
    let writable = Writable::make(64, "-m rmapbt=1,reflink=0 -d agcount=3");
    let credits = 2 * writable.writer().allocator.extent_credits();
    let (volume, allocator) = (&writable.volume, &writable.writer().allocator);
    let ino = volume.superblock().root();
    let owner = |first: FsBlock| {
        let at = FileBlock(1 << 20 | volume.geometry().linear(first).unwrap());
        Owner::Fork { ino, attr: false, at, unwritten: false }
    };
    let before = allocator.free_blocks();
    std::thread::scope(|scope| {
        let start = |thread: u64| {
            scope.spawn(move || {
                let mut random = Random(0x9876_5432 + thread * 7919);
                let mut mine = Vec::new();
                for _ in 0..1500 {
                    let goal = volume.geometry().block_at_linear(random.next(12_000)).unwrap();
                    match random.next(5) {
                        0 => {
                            let most = 1 + random.next(64);
                            // What other threads freed may wait for a commit.
                            let Ok(handle) = volume.start_with_space(credits, most) else { continue };
                            let (first, count) = allocator.take(&handle, goal, most).unwrap();
                            allocator.note_owner(&handle, first, count, owner(first)).unwrap();
                            mine.push((first, count));
                        }
                        1 | 2 => {
                            let most = 1 + random.next(64);
                            let Ok(mut held) = allocator.hold(volume, goal, most) else { continue };
                            if random.next(4) > 0 {
                                let handle = volume.start(credits).unwrap();
                                let count = held.len().div_ceil(2);
                                let first = allocator.take_held(&handle, &mut held, count).unwrap();
                                allocator.note_owner(&handle, first, count, owner(first)).unwrap();
                                mine.push((first, count));
                            }
                        }
                        _ if mine.len() > 20 => {
                            let n = random.next(mine.len() as u64) as usize;
                            let (first, count) = mine.swap_remove(n);
                            let handle = volume.start(credits).unwrap();
                            allocator.note_no_owner(&handle, first, count, owner(first)).unwrap();
                            allocator.free_data(&handle, first, count).unwrap();
                        }
                        _ => {}
                    }
                }
                for (first, count) in mine {
                    let handle = volume.start(credits).unwrap();
                    allocator.note_no_owner(&handle, first, count, owner(first)).unwrap();
                    allocator.free_data(&handle, first, count).unwrap();
                }
            })
        };
        let threads: Vec<_> = (0..4).map(start).collect();
        while threads.iter().any(|thread| !thread.is_finished()) {
            std::thread::sleep(std::time::Duration::from_millis(5));
            writable.commit();
        }
    });
    writable.commit();
    assert!(allocator.free_blocks().abs_diff(before) < 60);
    writable.finish();
}

#[test]
fn damaged_free_space_is_refused_before_it_is_used() {
    let cases: [(&str, &[&str], &str); 6] = [
        ("count", &["agf 0", "write freeblks 8170"], "the group's header says 8170"),
        ("headers", &["agf 0", "addr bnoroot", "write recs[1].startblock 0"], "the filesystem's own"),
        ("longest", &["agf 0", "write longest 5"], "and 5"),
        ("list of headers", &["agfl 0", "write bno[1] 0"], "one of the filesystem's own"),
        ("list twice", &["agfl 0", "write bno[1] 7"], "twice"),
        ("list of free blocks", &["agfl 0", "write bno[1] 1000"], "in use"),
    ];
    for (what, commands, word) in cases {
        let image = MkfsXfs::new(64, "-m rmapbt=0,reflink=0 -d agcount=2").make().unwrap();
        image.xfs_db_write(commands).unwrap();
        let writable = Writable::open(image, WriteOptions::default());
        let volume = &writable.volume;
        let goal = volume.geometry().join(AgNumber(0), AgBlock(3000)).unwrap();
        let allocator = &writable.writer().allocator;
        // The second time too.
        for _ in 0..2 {
            match allocator.hold(volume, goal, 10) {
                Err(Error::Corrupt(corruption)) => {
                    let said = corruption.to_string();
                    assert!(said.contains(word) || said.contains("run xfs_repair"), "{what}: {said}");
                }
                other => panic!("{what}: {other:?}"),
            }
        }
        let other = volume.geometry().join(AgNumber(1), AgBlock(3000)).unwrap();
        assert_eq!(allocator.hold(volume, other, 10).unwrap().first(), other);
    }
}

impl Bench {
    /// Shortens the list of the first group to `len` blocks, as another writer may have left it.
    fn shorten_list(&self, len: usize) {
        let handle = self.writable.volume.start(1000).unwrap();
        let mut group = self.allocator().change_group(&handle, AgNumber(0)).unwrap();
        group.loaded().unwrap().blocks().list.is_adjusting = true;
        while group.state().blocks().list.entries.len() > len {
            let (agf, list) = group.state_and_agf_changed().agf_and_list();
            let block = list.pop(agf, |_| true).unwrap().block;
            group.note_no_owner(AgBlock(block), 1, Owner::FreeSpace).unwrap();
            group.insert_extent(runs::Run::new(block, 1)).unwrap();
            group.state().blocks().space.available.give(runs::Run::new(block, 1));
        }
        group.state().blocks().list.is_adjusting = false;
    }

    fn free_extents(&self) -> usize {
        let mut state = self.allocator().groups[0].state.lock();
        state.blocks().space.disk.from(0).count()
    }
}

#[test]
fn a_short_free_list_is_filled_before_trees_that_are_full_grow() {
    // Records of a leaf of 1024 bytes.
    const ROOM: usize = (1024 - 56) / 8;
    for (has_rmap, len, below) in
        [false, true].into_iter().flat_map(|rmap| (0..9).map(move |n| (rmap, 1 + n / 3, n % 3)))
    {
        let args = format!("-m rmapbt={},reflink=0 -d agcount=1 -b size=1024", u8::from(has_rmap));
        let mut bench = Bench::new(32, &args);
        while bench.take(1 << 20).is_ok() {}
        while bench.take(1).is_ok() {}
        let (first, count) = bench.taken.swap_remove(0);
        let list = bench.allocator().groups[0].state.lock().blocks().list.entries.len();
        let mut at = 0;
        while bench.free_extents() + list - len + below < ROOM {
            bench.free(FsBlock(first.0 + at), 3, true);
            bench.taken.push((FsBlock(first.0 + at + 3), 7));
            at += 10;
        }
        bench.taken.push((FsBlock(first.0 + at), count - at));
        bench.shorten_list(len);
        // Nothing of what is free now is used but for the trees.
        let Bench { writable, taken, is_taken, random } = bench;
        let writable = Writable::open(writable.close(), WriteOptions::default());
        let mut bench = Bench { writable, taken, is_taken, random };
        let mut held = Vec::new();
        while let Ok(more) = bench.hold(1000) {
            held.push(more);
        }
        for _ in 0..300 {
            bench.free_some();
        }
        bench.writable.writer().transactions.check().unwrap();
        held.into_iter().for_each(|held| bench.let_go(held));
        for _ in 0..30 {
            bench.take(1).unwrap();
        }
        bench.free_all();
        bench.writable.commit();
        bench.check();
        bench.writable.finish();
    }
}

//! Changes of a file's map against a model of it, and e2fsck checks what is left on the disk.

mod hostile;

use std::collections::BTreeMap;

use undercroft_block::testing::Rng;

use super::*;
use crate::alloc::Purpose;
use crate::dir;
use crate::inode::{Inode, ROOT_INODE};
use crate::testing::images::{Mke2fs, Scratch};
use crate::testing::writable::Writable;

/// File blocks that the model's file uses.
const SPAN: u64 = 40_000;

/// What lies under each file block, and whether it was written.
type Blocks = BTreeMap<u64, (u64, bool)>;

/// A file whose map is changed together with a model of it.
struct Subject {
    writable: Writable,
    number: u32,
    model: Blocks,
    random: Rng,
}

impl Subject {
    fn new(mke2fs: &Mke2fs, seed: u64) -> Self {
        let source = Scratch::new("tree").unwrap();
        std::fs::write(source.path().join("f"), "").unwrap();
        let mke2fs = mke2fs.clone().args(["-d", source.path().to_str().unwrap()]);
        let writable = Writable::make(&mke2fs);
        let root = Inode::read(&writable.volume, ROOT_INODE).unwrap();
        let number = dir::lookup(&writable.volume, &root, b"f").unwrap().unwrap();
        Self { writable, number, model: Blocks::new(), random: Rng::new(seed) }
    }

    fn random(&mut self, below: u64) -> u64 {
        self.random.below(below)
    }

    /// Changes the map under one handle, and stores the inode.
    fn change<R>(
        &self,
        live: &crate::live::Live,
        change: impl FnOnce(&Handle<'_>, &mut Inode) -> Result<R>,
    ) -> Result<R> {
        let volume = &self.writable.volume;
        let handle = volume.start(20)?;
        let mut fields = live.fields.write();
        let result = change(&handle, &mut fields);
        fields.store(&handle, live.location)?;
        result
    }

    /// Inserts blocks at a place where there is a hole, as many as fit.
    fn insert(&mut self, live: &crate::live::Live, at: u64, want: u64, written: bool) {
        let room = self.model.range(at..).next().map_or(SPAN, |(&next, _)| next) - at;
        if room == 0 || at >= SPAN {
            return;
        }
        let goal = self.model.range(..at).next_back().map_or(0, |(_, &(block, _))| block + 1);
        let (first, count) = self
            .change(live, |handle, inode| {
                let allocator = &handle.writer().allocator;
                let (first, count) =
                    allocator.allocate(handle, FsBlock(goal), want.min(room), Purpose::Data)?;
                insert(handle, inode, FileBlock(at as u32), first, count, written)?;
                Ok((first.0, count))
            })
            .unwrap();
        self.model.extend((0..count).map(|n| (at + n, (first + n, written))));
    }

    /// Repeats a change until it is done.
    fn until_done(
        &self,
        live: &crate::live::Live,
        mut change: impl FnMut(&Handle<'_>, &mut Inode, Option<u64>) -> Result<Progress>,
    ) {
        let mut place = None;
        while let Progress::From(next) =
            self.change(live, |handle, inode| change(handle, inode, place)).unwrap()
        {
            place = Some(next);
        }
    }

    fn remove(&mut self, live: &crate::live::Live, from: u64, to: u64) {
        self.until_done(live, |handle, inode, place| {
            remove(handle, inode, place.unwrap_or(from), to, Removed::Data)
        });
        self.model.retain(|at, _| !(from..to).contains(at));
    }

    fn mark(&mut self, live: &crate::live::Live, from: u64, to: u64, written: bool) {
        self.until_done(live, |handle, inode, place| mark(handle, inode, place.unwrap_or(from), to, written));
        self.model.range_mut(from..to).for_each(|(_, block)| block.1 = written);
    }

    fn collapse(&mut self, live: &crate::live::Live, from: u64, by: u64) {
        self.remove(live, from, from + by);
        self.until_done(live, |handle, inode, place| {
            shift_down(handle, inode, place.unwrap_or(from + by), by)
        });
        let behind = self.model.split_off(&from);
        self.model.extend(behind.into_iter().map(|(at, block)| (at - by, block)));
    }

    fn open(&mut self, live: &crate::live::Live, from: u64, by: u64) {
        self.change(live, |handle, inode| split_at(handle, inode, from)).unwrap();
        self.until_done(live, |handle, inode, place| {
            shift_up(handle, inode, from, place.unwrap_or(FILE_BLOCKS), by)
        });
        let behind = self.model.split_off(&from);
        self.model.extend(behind.into_iter().map(|(at, block)| (at + by, block)));
    }

    /// Compares all that the map says with the model.
    fn compare(&self, live: &crate::live::Live) {
        let inode = &*live.fields.read();
        let mut found = Blocks::new();
        let mut at = 0;
        while at < FILE_BLOCKS {
            let run = lookup(&self.writable.volume, inode, FileBlock(at as u32)).unwrap();
            let mut take = |first: FsBlock, written| {
                found.extend((0..run.len).map(|n| (at + n, (first.0 + n, written))));
            };
            match run.state {
                RunState::Hole => {}
                RunState::Mapped(first) => take(first, true),
                RunState::Unwritten(first) => take(first, false),
            }
            at += run.len;
        }
        assert_eq!(found, self.model);
    }

    fn is_mapped(&self, at: u64) -> bool {
        self.model.contains_key(&at)
    }

    fn work(&mut self, steps: u64, extents: bool) {
        let live = self.writable.live(self.number);
        for step in 0..steps {
            let at = self.random(SPAN);
            let len = {
                let order = self.random(9);
                1 + self.random(1 << order)
            };
            let end = (at + len).min(SPAN);
            match self.random(if extents { 24 } else { 18 }) {
                0..8 => {
                    // Every other block, so that the tree becomes large.
                    for at in (at..end).step_by(2).filter(|&at| !self.is_mapped(at)).collect::<Vec<_>>() {
                        self.insert(&live, at, 1, true);
                    }
                }
                8..14 => self.insert(&live, at, len, true),
                14 => self.remove(&live, at, end),
                15 => self.remove(&live, at, (at + 40 * len).min(SPAN)),
                16 if self.random(20) == 0 => self.remove(&live, at, SPAN),
                16 | 17 => {
                    let next = self.model.keys().next_back().map_or(0, |last| last + 1);
                    self.insert(&live, next, len, true);
                }
                18 | 19 => self.insert(&live, at, len, false),
                20 => self.mark(&live, at, (at + 8 * len).min(SPAN), true),
                21 => self.mark(&live, at, end, false),
                22 => self.collapse(&live, at, len),
                _ => {
                    let last = self.model.keys().next_back().copied().unwrap_or(0);
                    if last + len < SPAN {
                        self.open(&live, at, len);
                    }
                }
            }
            if step % 16 == 0 {
                self.compare(&live);
            }
            if step % 100 == 0 {
                self.writable.commit();
            }
        }
        self.compare(&live);
        let end = self.model.keys().next_back().map_or(0, |last| last + 1);
        let block_bytes = u64::from(self.writable.volume.block_bytes());
        self.change(&live, |_, inode| {
            inode.size_bytes = end * block_bytes;
            Ok(())
        })
        .unwrap();
    }
}

/// Blocks of 1 KiB and a bit of room: a tree soon has three levels.
fn small(kind: &'static str, features: &str) -> Mke2fs {
    Mke2fs::new(kind, 64).block_bytes(1024).inodes(64).args(["-m", "0"]).features(features)
}

#[test]
fn a_tree_that_is_changed_at_random_is_as_the_model_says() {
    for seed in 1..4 {
        let mut subject = Subject::new(&small("ext4", "^has_journal"), seed);
        subject.work(1500, true);
        let deepest = extent::depth(&subject.writable.live(subject.number).fields.read());
        assert!(deepest >= 2, "the tree was only {deepest} levels deep");
        subject.writable.finish();
    }
}

#[test]
fn a_block_map_that_is_changed_at_random_is_as_the_model_says() {
    for seed in 1..4 {
        let mut subject = Subject::new(&small("ext2", "large_file"), seed);
        subject.work(1500, false);
        subject.writable.finish();
    }
}

#[test]
fn what_is_removed_leaves_nothing() {
    for (kind, features) in [("ext4", "^has_journal"), ("ext2", "large_file")] {
        let mut subject = Subject::new(&small(kind, features), 7);
        subject.work(300, kind == "ext4");
        let live = subject.writable.live(subject.number);
        subject.remove(&live, 0, FILE_BLOCKS);
        subject.compare(&live);
        assert_eq!(live.fields.read().sectors, 0);
        let extents = has_extents(&live.fields.read());
        assert_eq!(live.fields.read().i_block[..12], empty(extents)[..12]);
        subject
            .change(&live, |_, inode| {
                inode.size_bytes = 0;
                Ok(())
            })
            .unwrap();
        drop(live);
        subject.writable.finish();
    }
}

//! Checking a filesystem: every structure against every other, and nothing is ever written.
//!
//! | pass | module | what it looks at |
//! | --- | --- | --- |
//! | 1 | `groups`, `superblocks`, `trees`, `chunks`, `interrupted` | headers of groups, their trees and free lists, copies of the superblock |
//! | 2 | `announce`, `inodes`, `forks`, `directories`, `hash_index`, `attributes` | every inode in every chunk, and every block of its forks |
//! | 3 | `links` | names against inodes, the unlinked inodes, the way to the root, counts, and blocks without an owner |
//!
//! Threads share the groups in the first pass and the chunks of inodes in the second, where the groups take turns. Each
//! group's `space` has a lock of its own, held for one run of blocks; the state of an inode is atomic.
//!
//! Nothing on the disk is trusted except a validated superblock. A block is followed once, by the first walk that
//! claims it, so every walk ends. Memory: a bit for a block, where a part of the blocks around it is in use or free,
//! four bytes for an inode, some words for a directory.
//!
//! The report does not depend on the threads, with one exception: of two owners of a block, the one that claims it
//! second is named.
//!
//! Not compared, though xfs_repair or the kernel does: what quota files say of usage; parent pointers against names;
//! positions in the log (LSN) that blocks have, against the log's end; high keys of the rmapbt against what lies below
//! them.

mod announce;
mod attributes;
mod chunks;
mod directories;
mod forks;
mod groups;
mod hash_index;
mod inodes;
mod interrupted;
mod links;
mod raw;
mod report;
mod space;
mod superblocks;
#[cfg(test)]
pub(crate) mod testing;
mod trees;

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use undercroft_block::{BlockDevice, Device};
use undercroft_diskfs::{At, Findings};
use undercroft_sync::{Mutex, order};
use undercroft_vfs::{Error, Ino, Result};

use crate::format::superblock::MAGIC;
use crate::format::{FsBlock, Geometry, Superblock};
use crate::inode::Remapped;
use crate::log::{self, Recovered, Recovery};
use announce::CHUNKS_AHEAD;
use chunks::{Chunks, Known};
use groups::Group;
use interrupted::Interrupted;
use links::Parent;
pub use report::CheckReport;
use space::Space;

/// How to check.
#[derive(Clone, Copy, Debug)]
pub struct CheckOptions {
    /// Threads that work; 0 for as many as there are processors.
    pub threads: usize,
    /// How many findings are kept; the others are counted.
    pub findings_max: usize,
}

impl Default for CheckOptions {
    fn default() -> Self {
        Self { threads: 0, findings_max: 10_000 }
    }
}

/// Checks a filesystem, and changes nothing. The log is not looked at: `device` shows the filesystem as its recovery
/// leaves it.
///
/// # Errors
/// What keeps it from being checked at all: no superblock of XFS, a feature that is unknown, I/O failure. Damage is no
/// error: it is in the report.
pub fn check(device: &Device, options: &CheckOptions) -> Result<CheckReport> {
    check_recovered(device, options, None)
}

/// The same after a log that holds changes was replayed in memory, which then lies on `log_device` if it does not lie
/// inside. A log that cannot be replayed is a finding, and the rest is checked as it is without it.
///
/// # Errors
/// As for [`check`], and what keeps the log from being replayed: its device is missing or needless, or it holds
/// something unknown.
pub fn check_with_log(
    device: &Device,
    log_device: Option<&Device>,
    options: &CheckOptions,
) -> Result<CheckReport> {
    let superblock = match Superblock::read(&**device) {
        Ok(superblock) => superblock,
        // The check reports it.
        Err(Error::Corrupt(_)) => return check(device, options),
        Err(error) => return Err(error),
    };
    match log::recover(device, log_device, &superblock) {
        Ok(Recovered { device, remapped, recovery, .. }) => {
            let report = check_recovered(&device, options, recovery.as_ref().map(|r| (r, &remapped)))?;
            Ok(CheckReport { recovery, ..report })
        }
        Err(Error::Corrupt(corruption)) => {
            let findings = Findings::new(options.findings_max);
            let detail = format!("{corruption}; the rest is checked as it is without the log");
            findings.add("log", At::filesystem(), detail);
            check_with(device, options, None, findings)
        }
        Err(error) => Err(error),
    }
}

/// The same of a filesystem whose log was replayed: as it will be when the work is finished in whose middle the log ends.
pub(crate) fn check_recovered(
    device: &Device,
    options: &CheckOptions,
    recovered: Option<(&Recovery, &Remapped)>,
) -> Result<CheckReport> {
    check_with(device, options, recovered, Findings::new(options.findings_max))
}

fn check_with(
    device: &Device,
    options: &CheckOptions,
    recovered: Option<(&Recovery, &Remapped)>,
    findings: Findings,
) -> Result<CheckReport> {
    let superblock = match Superblock::read(&**device) {
        Ok(superblock) => superblock,
        // A superblock so wrong that nothing else can be looked at is a finding too.
        Err(Error::Corrupt(corruption)) if is_present(&**device)? => {
            findings.add("unusable", At::filesystem(), corruption.to_string());
            let (findings, findings_left_out) = findings.finish();
            return Ok(CheckReport { findings, findings_left_out, ..CheckReport::default() });
        }
        Err(error) => return Err(error),
    };
    superblock.features().check_checkable()?;
    let mut checker = Checker::new(&**device, &superblock, options.threads, findings);
    if let Some((recovery, remapped)) = recovered {
        checker.recovered = true;
        checker.interrupted = Interrupted::new(superblock.geometry(), &recovery.unfinished, remapped);
    }
    checker.run()?;
    let orphans = checker.check_links();
    let used =
        checker.geometry.blocks().saturating_sub(checker.groups.iter().map(|g| g.counts.free_blocks).sum());
    let (inodes, directories) = (checker.inodes.into_inner(), checker.directory_count.into_inner());
    let (mut findings, findings_left_out) = checker.findings.finish();
    report::sort(&mut findings);
    Ok(CheckReport {
        findings,
        findings_left_out,
        recovery: None,
        orphans,
        inodes,
        directories,
        blocks: used,
    })
}

/// Whether a device begins as XFS does.
fn is_present(device: &dyn BlockDevice) -> Result<bool> {
    let mut magic = [0; 4];
    if device.size_bytes() < 512 {
        return Ok(false);
    }
    device.read_at(0, &mut magic)?;
    Ok(u32::from_be_bytes(magic) == MAGIC)
}

/// Sums over a group.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    inodes: u64,
    free_inodes: u64,
    free_blocks: u64,
}

/// A group after the first pass.
#[derive(Debug)]
struct GroupState {
    space: Mutex<Space>,
    chunks: Chunks,
    counts: Counts,
    unlinked: Vec<(u32, u32)>,
}

/// A check under way: what has been seen so far.
struct Checker<'a> {
    device: &'a dyn BlockDevice,
    superblock: &'a Superblock,
    geometry: Geometry,
    findings: Findings,
    /// Whether a log was replayed before. The superblock's counts are then those of the filesystem as it will be, and
    /// attributes that a program was setting may be half made: neither is reported.
    recovered: bool,
    interrupted: Interrupted<'a>,
    threads: usize,
    groups: Vec<GroupState>,
    /// Links of inodes that have more than a byte counts: those beyond it that were found, and those stored.
    many_found: Mutex<HashMap<u64, u32>>,
    many_stored: Mutex<HashMap<u64, u32>>,
    directories: Mutex<HashMap<u64, Parent>>,
    /// Inodes without links, and what each names as the next of its list.
    next_unlinked: Mutex<HashMap<u64, u32>>,
    inodes: AtomicU64,
    directory_count: AtomicU64,
}

impl<'a> Checker<'a> {
    /// `threads` is 0 for as many as there are processors.
    fn new(
        device: &'a dyn BlockDevice,
        superblock: &'a Superblock,
        threads: usize,
        findings: Findings,
    ) -> Self {
        let threads = match threads {
            0 => std::thread::available_parallelism().map_or(1, usize::from),
            threads => threads,
        };
        Self {
            device,
            superblock,
            geometry: *superblock.geometry(),
            findings,
            recovered: false,
            interrupted: Interrupted::default(),
            threads,
            groups: Vec::new(),
            many_found: Mutex::new(&order::COLLECTED, HashMap::new()),
            many_stored: Mutex::new(&order::COLLECTED, HashMap::new()),
            directories: Mutex::new(&order::COLLECTED, HashMap::new()),
            next_unlinked: Mutex::new(&order::COLLECTED, HashMap::new()),
            inodes: AtomicU64::new(0),
            directory_count: AtomicU64::new(0),
        }
    }
}

impl Checker<'_> {
    fn run(&mut self) -> Result<()> {
        self.check_superblock();
        let count = self.geometry.ag_count();
        let done: Vec<Mutex<Option<Group>>> =
            (0..count).map(|_| Mutex::new(&order::COLLECTED, None)).collect();
        self.share_out(done.len(), &|checker, number| {
            *done[number].lock() = Some(checker.check_group(number as u32)?);
            Ok(())
        })?;
        self.groups = done
            .into_iter()
            .filter_map(Mutex::into_inner)
            .map(|Group { space, chunks, counts, unlinked }| GroupState {
                space: Mutex::new(&order::GROUP, space),
                chunks,
                counts,
                unlinked,
            })
            .collect();
        // The groups take turns, so that threads seldom meet at the lock of one.
        let most = self.groups.iter().map(|state| state.chunks.chunks.len()).max().unwrap_or(0);
        let has = |&(group, chunk): &(usize, usize)| chunk < self.groups[group].chunks.chunks.len();
        let in_turn = |chunk| (0..self.groups.len()).map(move |group| (group, chunk)).filter(has);
        let work: Vec<(usize, usize)> = (0..most).flat_map(in_turn).collect();
        work.iter().take(CHUNKS_AHEAD).for_each(|&(group, chunk)| self.announce_chunk(group, chunk));
        self.share_out(work.len(), &|checker, number| {
            let (group, chunk) = work[number];
            if let Some(&(group, chunk)) = work.get(number + CHUNKS_AHEAD) {
                checker.announce_chunk(group, chunk);
            }
            checker.check_chunk(group, chunk)
        })
    }

    /// Distributes pieces of work, by their numbers and in order, to the threads; the first failure ends it.
    fn share_out(&self, count: usize, work: &(dyn Fn(&Self, usize) -> Result<()> + Sync)) -> Result<()> {
        let next = AtomicUsize::new(0);
        let failure = Mutex::new(&order::COLLECTED, None);
        let one = || {
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= count || failure.lock().is_some() {
                    return;
                }
                if let Err(error) = work(self, number) {
                    failure.lock().get_or_insert(error);
                }
            }
        };
        std::thread::scope(|scope| {
            for _ in 1..self.threads.min(count) {
                scope.spawn(one);
            }
            one();
        });
        failure.into_inner().map_or(Ok(()), Err)
    }

    /// Fields that readers ignore.
    fn check_superblock(&self) {
        let raw = self.superblock.raw();
        let report = |detail: String| self.findings.add("superblock-field", At::filesystem(), detail);
        if self.superblock.uuid().is_nil() {
            report("the filesystem has no UUID".to_owned());
        }
        if raw.sb_shared_vn != 0 {
            report(format!("the version of the shared format is {}", raw.sb_shared_vn));
        }
        if self.geometry.has_crc() && raw.sb_features2.get() != raw.sb_bad_features2.get() {
            report(format!("sb_features2 is {:#x}, its copy {:#x}", raw.sb_features2, raw.sb_bad_features2));
        }
        if raw.sb_icount.get() < raw.sb_ifree.get() {
            report(format!("{} of {} inodes are free", raw.sb_ifree, raw.sb_icount));
        }
        self.wrong_inode_alignment().into_iter().for_each(&report);
        self.wrong_sparse_alignment().into_iter().for_each(&report);
        let root = raw.sb_rootino.get();
        for (name, number) in [("bitmap", raw.sb_rbmino.get()), ("summary", raw.sb_rsumino.get())] {
            let distance = if name == "bitmap" { 1 } else { 2 };
            if number != root.wrapping_add(distance) {
                report(format!(
                    "the real-time {name} is inode {number}, and {} is wanted",
                    root.wrapping_add(distance)
                ));
            }
        }
        if raw.sb_unit.get() > 0 && !raw.sb_width.get().is_multiple_of(raw.sb_unit.get())
            || (raw.sb_unit.get() == 0) != (raw.sb_width.get() == 0)
        {
            report(format!("the stripe's unit is {} blocks, its width {}", raw.sb_unit, raw.sb_width));
        }
    }

    /// Reads blocks that lie together in a group. The caller has checked the place.
    fn read(&self, block: FsBlock, count: u32) -> Result<Vec<u8>> {
        let mut bytes = vec![0; count as usize * self.geometry.block_bytes() as usize];
        self.read_into(block, &mut bytes)?;
        Ok(bytes)
    }

    fn read_into(&self, block: FsBlock, bytes: &mut [u8]) -> Result<()> {
        let byte = self.geometry.byte(block).ok_or_else(|| {
            crate::error::corrupt_block("block number", block, "lies in no allocation group")
        })?;
        Ok(self.device.read_at(byte, bytes)?)
    }

    /// What is known of an inode, if it exists.
    fn known(&self, ino: u64) -> Option<&Known> {
        let (ag, within) = self.geometry.split_ino(Ino(ino))?;
        self.groups.get(ag.0 as usize)?.chunks.find(within.0).map(|(_, _, known)| known)
    }
}

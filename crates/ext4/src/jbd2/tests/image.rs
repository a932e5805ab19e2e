//! Images with dirty logs, in memory, and what recovery makes of them.

use std::fs;

use undercroft_block::{Access, BlockDevice, MemoryDevice};
use undercroft_oracle::Image;

use super::super::{Log, LogBlock, LogLocation, LogRun, RecoveryReport, Volume};
use crate::fast_commit::FastCommitOp;
use crate::numbers::FsBlock;

/// A whole image in memory, and what recovery must know of it.
pub(super) struct Loaded {
    pub(super) bytes: Vec<u8>,
    pub(super) volume: Volume,
    pub(super) location: LogLocation,
}

impl Loaded {
    pub(super) fn new(image: &Image) -> Self {
        let bytes = fs::read(image.path()).unwrap();
        let word = |at: usize| u32::from_le_bytes(bytes[1024 + at..][..4].try_into().unwrap());
        let volume = Volume {
            block_bytes: 1024 << word(24),
            blocks: u64::from(word(4)),
            device_blocks: u64::from(word(4)),
            inodes: word(0),
            inode_bytes: word(88) as u16,
        };
        let location = LogLocation::new(journal_runs(image), &volume).unwrap();
        Self { bytes, volume, location }
    }

    pub(super) fn block(&self, block: u64) -> &[u8] {
        let size = self.volume.block_bytes as usize;
        &self.bytes[block as usize * size..][..size]
    }

    /// Where the journal superblock lies.
    pub(super) fn journal(&self) -> u64 {
        self.location.home(LogBlock(0)).unwrap().0
    }

    /// An inode's bytes, found through its group's descriptor.
    pub(super) fn inode(&self, ino: u32) -> &[u8] {
        let word = |at: usize| u32::from_le_bytes(self.bytes[at..][..4].try_into().unwrap());
        let per_group = word(1024 + 40);
        let wide = word(1024 + 96) & 0x80 != 0;
        let descriptor_bytes = if wide { 64 } else { 32 };
        let size = self.volume.block_bytes as usize;
        let descriptors = if size == 1024 { 2048 } else { size };
        let (group, index) = ((ino - 1) / per_group, (ino - 1) % per_group);
        let table = word(descriptors + group as usize * descriptor_bytes + 8) as usize;
        let inode_bytes = usize::from(self.volume.inode_bytes);
        &self.bytes[table * size + index as usize * inode_bytes..][..inode_bytes]
    }
}

/// The journal inode's mapping, as debugfs prints it: "(0-2347):8322-10669, (2348):9".
fn journal_runs(image: &Image) -> Vec<LogRun> {
    let text = image.debugfs("stat <8>").unwrap();
    let mut runs = Vec::new();
    for part in text.split([',', ' ', '\n']) {
        let Some((logical, physical)) = part.strip_prefix('(').and_then(|part| part.split_once("):")) else {
            continue;
        };
        let numbers = |text: &str| -> Option<(u64, u64)> {
            let (first, last) = text.split_once('-').unwrap_or((text, text));
            Some((first.parse().ok()?, last.parse().ok()?))
        };
        // Blocks of the mapping itself have letters for a logical number.
        let Some((first, last)) = numbers(logical) else { continue };
        let (home, _) = numbers(physical).unwrap();
        runs.push(LogRun {
            log: LogBlock(first as u32),
            home: FsBlock(home),
            count: (last - first + 1) as u32,
        });
    }
    runs
}

/// What recovery made of an image.
pub(super) struct Recovered {
    pub(super) bytes: Vec<u8>,
    pub(super) report: RecoveryReport,
    pub(super) operations: Vec<FastCommitOp>,
}

pub(super) fn recover(loaded: &Loaded) -> Recovered {
    let device = MemoryDevice::from_bytes(loaded.bytes.clone(), Access::ReadWrite);
    let Log::Dirty(log) = Log::open(&device, loaded.location.clone(), loaded.volume).unwrap() else {
        panic!("the kernel left no dirty log")
    };
    let replayed = log.recover(&device).unwrap();
    let (report, operations) = (*replayed.report(), replayed.fast_commits().to_vec());
    replayed.finish(&device).unwrap();
    let mut bytes = vec![0; loaded.bytes.len()];
    device.read_at(0, &mut bytes).unwrap();
    Recovered { bytes, report, operations }
}

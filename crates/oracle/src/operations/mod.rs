//! Random work that two filesystems do alike: ours through its vfs, the kernel's through system calls.
//!
//! A worker's operations depend on its seed and number only, and touch names of its own only, in its own directories
//! and in one that all share. So each worker's outcome is the same whatever the order in which workers meet, and what
//! ours does with many threads the kernel can repeat with one after the other.

mod kernel;
mod ours;

use std::fmt;

use undercroft_block::testing::Rng;
use undercroft_vfs::FallocateMode;

pub use kernel::KernelHand;
pub use ours::OurHand;

use crate::populate::noise;

/// One change.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields are what the system call of the name takes")]
pub enum Operation {
    Create { path: String },
    Mkdir { path: String },
    Symlink { path: String, target: String },
    Fifo { path: String },
    Link { path: String, to: String },
    Unlink { path: String },
    Rmdir { path: String },
    Rename { path: String, to: String, exchange: bool },
    Write { path: String, offset: u64, len: usize, seed: u64 },
    Append { path: String, len: usize, seed: u64 },
    Truncate { path: String, size: u64 },
    Space { path: String, change: FallocateMode, offset: u64, len: u64, keep_size: bool },
    Share { path: String, offset: u64, to: String, to_offset: u64, len: u64 },
    SetXattr { path: String, name: String, value: Vec<u8> },
    RemoveXattr { path: String, name: String },
    Chmod { path: String, mode: u16 },
    Chown { path: String, uid: u32, gid: u32 },
    Sync { path: String },
}

/// Whether an operation was done or refused. Which refusal is another test's business.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Done {
    /// It was.
    Yes,
    /// It was not, and nothing changed.
    Refused,
}

/// Does operations.
pub trait Hand {
    /// Does one.
    ///
    /// # Errors
    /// What is no refusal: corruption, failures of the device.
    fn act(&self, operation: &Operation) -> Result<Done, String>;
}

/// What a filesystem can do, as far as operations depend on it.
#[derive(Clone, Copy, Debug)]
pub struct Abilities {
    /// Changes of space other than holes.
    pub extents: bool,
    /// Files with blocks in common.
    pub shares: bool,
    /// The block size in bytes, to which ranges that are taken out or put in are aligned.
    pub block_bytes: u64,
    /// Longest attribute value in bytes.
    pub value_max_bytes: usize,
    /// Longest file that is made, about: tens of thousands of operations are to fit on a small image.
    pub reach_bytes: u64,
}

/// One worker's operations, without end.
#[derive(Debug)]
pub struct Worker {
    number: u64,
    abilities: Abilities,
    random: Rng,
}

impl Worker {
    /// The worker `number` of those that share `seed`.
    #[must_use]
    pub fn new(seed: u64, number: u64, abilities: Abilities) -> Self {
        Self { number, abilities, random: Rng::new(seed.wrapping_mul(0x1_0001) ^ number << 48) }
    }

    /// What is made for it before the workers begin.
    #[must_use]
    pub fn ground(number: u64) -> Operation {
        Operation::Mkdir { path: format!("worker-{number}") }
    }

    fn random(&mut self) -> u64 {
        self.random.bits()
    }

    /// A number below `bound`.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.random.below(bound)
    }

    /// A name of this worker: in the directory that all share, in its own, or below.
    fn path(&mut self) -> String {
        let number = self.number;
        let (place, name) = (self.below(8), self.below(60));
        let long = if name.is_multiple_of(7) { "-with-a-rather-long-name-that-fills-blocks" } else { "" };
        match place {
            0 | 1 => format!("shared/of-{number}-{name}{long}"),
            2..=4 => format!("worker-{number}/{name}{long}"),
            _ => format!("worker-{number}/d{}/{name}{long}", place % 3),
        }
    }

    fn directory(&mut self) -> String {
        let number = self.number;
        match self.below(4) {
            0 => self.path(),
            place => format!("worker-{number}/d{}", place % 3),
        }
    }

    fn range(&mut self) -> (u64, u64) {
        let offset = self.below(self.abilities.reach_bytes);
        let magnitude = 1 + self.below(16);
        let len = 1 + self.below(1 << magnitude);
        (offset, len)
    }
}

impl Iterator for Worker {
    type Item = Operation;

    fn next(&mut self) -> Option<Operation> {
        let path = self.path();
        Some(match self.below(100) {
            0..=17 => Operation::Create { path },
            18..=21 => Operation::Mkdir { path: self.directory() },
            22..=24 => {
                let bound = if self.below(4) == 0 { 900 } else { 50 };
                let len = 1 + self.below(bound) as usize;
                let target = "0123456789/".chars().cycle().take(len).collect();
                Operation::Symlink { path, target }
            }
            25 => Operation::Fifo { path },
            26..=28 => Operation::Link { to: self.path(), path },
            29..=38 => Operation::Unlink { path },
            39..=40 => Operation::Rmdir { path: self.directory() },
            41..=48 => {
                let exchange = self.below(6) == 0;
                let (path, to) = if self.below(5) == 0 {
                    (self.directory(), self.directory())
                } else {
                    (path, self.path())
                };
                Operation::Rename { path, to, exchange }
            }
            49..=64 => {
                let (offset, len) = self.range();
                Operation::Write { path, offset, len: len as usize, seed: self.random() }
            }
            65..=72 => {
                let len = 1 + self.below(20_000) as usize;
                Operation::Append { path, len, seed: self.random() }
            }
            73..=77 => {
                Operation::Truncate { path, size: self.below(self.abilities.reach_bytes) >> self.below(10) }
            }
            78..=85 => {
                let ((offset, len), keep_size) = (self.range(), self.below(2) == 0);
                let choice = if self.abilities.extents { self.below(6) } else { 0 };
                let block = self.abilities.block_bytes;
                let (change, offset, len) = match choice {
                    0 | 1 => (FallocateMode::PunchHole, offset, len),
                    2 => (FallocateMode::Allocate, offset, len),
                    3 => (FallocateMode::Zero, offset, len),
                    4 => (FallocateMode::Collapse, offset / block * block, len.next_multiple_of(block)),
                    _ => (FallocateMode::Insert, offset / block * block, len.next_multiple_of(block)),
                };
                let keep_size = change == FallocateMode::PunchHole || keep_size;
                Operation::Space { path, change, offset, len, keep_size }
            }
            86..=89 if self.abilities.shares => {
                let ((offset, len), to) = (self.range(), self.path());
                let to = if self.below(6) == 0 { path.clone() } else { to };
                let to_offset = self.below(self.abilities.reach_bytes);
                let block = self.abilities.block_bytes;
                // Whole blocks, the rest of the source, and now and then what cannot be shared.
                let (align, len) = match self.below(12) {
                    0..=6 => (block, len.next_multiple_of(block)),
                    7..=10 => (block, 0),
                    _ => (1, len),
                };
                Operation::Share {
                    path,
                    offset: (offset / align * align) >> self.below(2),
                    to,
                    to_offset: to_offset / align * align,
                    len,
                }
            }
            86..=91 => {
                let name = format!("user.{}", self.below(5));
                let bound = if self.below(3) == 0 { self.abilities.value_max_bytes as u64 } else { 60 };
                let (len, byte) = (self.below(bound) as usize, self.random() as u8);
                Operation::SetXattr { path, name, value: vec![byte; len] }
            }
            92..=93 => Operation::RemoveXattr { path, name: format!("user.{}", self.below(5)) },
            94..=95 => Operation::Chmod { path, mode: (self.random() & 0o777) as u16 },
            96..=97 => {
                let (uid, gid) = (self.below(70_000) as u32, self.below(70_000) as u32);
                Operation::Chown { path, uid, gid }
            }
            _ => Operation::Sync { path },
        })
    }
}

/// The bytes that a write writes.
fn bytes(seed: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    noise(seed, &mut bytes);
    bytes
}

/// The directory and the name in it.
fn split(path: &str) -> (&str, &str) {
    path.rsplit_once('/').unwrap_or(("", path))
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SetXattr { path, name, value } => {
                write!(f, "SetXattr {{ {path} {name} = {} bytes }}", value.len())
            }
            operation => write!(f, "{operation:?}"),
        }
    }
}

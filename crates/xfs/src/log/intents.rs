//! Intents: what a chain of transactions had announced and not finished when the log ended.
//!
//! Work that needs several transactions is announced by an intent, and each step's transaction says that the intent is
//! done, together with the intent of the next step. An intent without its done item is what the crash interrupted; Linux
//! finishes it when it mounts.

use std::collections::HashMap;

use undercroft_vfs::{Error, Ino, Result};

use super::format::{le32, le64};
use super::transactions::Item;
use crate::error::{Verdict, corrupt};
use crate::format::{FileBlock, FsBlock, Superblock};

const STRUCTURE: &str = "logged intent";

/// Work that was interrupted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unfinished {
    /// Blocks that belong to nothing any more are to become free.
    Free { start: FsBlock, blocks: u32 },
    /// The owner of blocks is to be recorded, or no longer (`RUI`).
    Owner(OwnerChange),
    /// The count of users of blocks is to change (`CUI`).
    Users { start: FsBlock, blocks: u32, change: UsersChange },
    /// Blocks are to be mapped into a file, or out of it (`BUI`).
    Map(MapChange),
}

/// A change of the count of users.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UsersChange {
    Increase,
    Decrease,
    /// Blocks are set aside for a copy on write.
    Reserve,
    /// Such blocks are given back.
    Release,
}

/// A change of what the reverse map says of blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OwnerChange {
    pub(crate) start: FsBlock,
    pub(crate) blocks: u32,
    pub(crate) kind: OwnerChangeKind,
    /// The owner's number as the reverse map has it.
    pub(crate) owner: u64,
    /// The first block in the owner's fork.
    pub(crate) at: FileBlock,
    pub(crate) attribute_fork: bool,
    pub(crate) map_block: bool,
    pub(crate) unwritten: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OwnerChangeKind {
    /// The blocks get the owner.
    Add,
    /// The owner leaves them.
    Remove,
    /// The owner stays, and they become unwritten or written.
    Convert,
}

/// A change of a file's map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MapChange {
    pub(crate) ino: Ino,
    pub(crate) attribute_fork: bool,
    pub(crate) map: bool,
    pub(crate) unwritten: bool,
    pub(crate) at: FileBlock,
    pub(crate) start: FsBlock,
    pub(crate) blocks: u32,
}

/// Kinds of intents.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum IntentKind {
    Free,
    Owner,
    Users,
    Map,
    Attribute,
    Exchange,
}

/// Bytes that intents without their done items hold, at most, with what describes them.
const MAX_OPEN_BYTES: usize = 64 << 20;

/// What an intent takes in memory beside its list, with room for growth.
const INTENT_BYTES: usize = 128;

/// Bytes of an intent in memory, not less than there are.
fn held(work: &[Unfinished]) -> usize {
    INTENT_BYTES + 2 * size_of_val(work)
}

/// Announced work, by what announced it and the number that its done item will name.
#[derive(Debug, Default)]
pub(super) struct Intents {
    open: HashMap<(IntentKind, u64), (u64, Vec<Unfinished>)>,
    /// Bytes in all of them.
    held: usize,
    /// Intents so far, for their order.
    seen: u64,
}

impl Intents {
    /// An intent was logged.
    ///
    /// # Errors
    /// `Corrupt` when it announces something that cannot be; `Unsupported` when too much is open.
    pub(super) fn announce(
        &mut self,
        kind: IntentKind,
        item: Item<'_>,
        superblock: &Superblock,
    ) -> Result<()> {
        let description = item.description();
        let work = read(kind, description, superblock).map_err(|what| corrupt(STRUCTURE, what))?;
        self.seen += 1;
        self.held += held(&work);
        let replaced = self.open.insert((kind, le64(description, 8)), (self.seen, work));
        self.release(replaced);
        if self.held > MAX_OPEN_BYTES {
            let what = format!(
                "a log with more than {} MiB of interrupted work: mount the filesystem once",
                MAX_OPEN_BYTES >> 20
            );
            return Err(Error::Unsupported(what.into()));
        }
        Ok(())
    }

    /// A done item was logged.
    pub(super) fn done(&mut self, kind: IntentKind, item: Item<'_>) {
        let finished = self.open.remove(&(kind, le64(item.description(), 8)));
        self.release(finished);
    }

    fn release(&mut self, intent: Option<(u64, Vec<Unfinished>)>) {
        if let Some((_, work)) = intent {
            self.held -= held(&work);
        }
    }

    /// What was not finished, in the order in which it was announced.
    ///
    /// # Errors
    /// `Unsupported` for changes of attributes and exchanges of ranges.
    pub(super) fn unfinished(self) -> Result<Vec<Unfinished>> {
        let mut left: Vec<_> = self.open.into_iter().collect();
        left.sort_unstable_by_key(|(_, (order, _))| *order);
        if let Some(((kind, _), _)) = left.iter().find(|((kind, _), _)| *kind >= IntentKind::Attribute) {
            let what = if *kind == IntentKind::Attribute {
                "an extended attribute"
            } else {
                "an exchange of file ranges"
            };
            let what = format!(
                "a log that was interrupted in the middle of a change of {what}: mount the filesystem once"
            );
            return Err(Error::Unsupported(what.into()));
        }
        Ok(left.into_iter().flat_map(|(_, (_, work))| work).collect())
    }
}

/// Bytes before the list of an intent's extents.
const LIST: usize = 16;

fn read(kind: IntentKind, description: &[u8], superblock: &Superblock) -> Verdict<Vec<Unfinished>> {
    if description.len() < LIST {
        return Err(format!("has {} bytes", description.len()).into());
    }
    let count = le32(description, 4) as usize;
    let list = &description[LIST..];
    let entry_bytes = match kind {
        // 32-bit hosts do not pad.
        IntentKind::Free if count > 0 && list.len() / count == 12 => 12,
        IntentKind::Free | IntentKind::Users => 16,
        IntentKind::Owner | IntentKind::Map => 32,
        IntentKind::Attribute | IntentKind::Exchange => return Ok(Vec::new()),
    };
    if count.checked_mul(entry_bytes).is_none_or(|bytes| bytes > list.len()) {
        return Err(format!("has {count} extents in {} bytes", list.len()).into());
    }
    list.chunks_exact(entry_bytes).take(count).map(|entry| read_one(kind, entry, superblock)).collect()
}

fn read_one(kind: IntentKind, entry: &[u8], superblock: &Superblock) -> Verdict<Unfinished> {
    let geometry = superblock.geometry();
    let run = |start: u64, blocks: u32| {
        let start = FsBlock(start);
        match geometry.check_run(start, u64::from(blocks)) {
            Some(_) => Ok((start, blocks)),
            None => Err(format!("names {blocks} blocks from {start} on, which lie in no allocation group")),
        }
    };
    Ok(match kind {
        IntentKind::Owner => {
            const ATTRIBUTE_FORK: u32 = 1 << 31;
            const MAP_BLOCK: u32 = 1 << 30;
            const UNWRITTEN: u32 = 1 << 29;
            let (start, blocks) = run(le64(entry, 8), le32(entry, 24))?;
            let flags = le32(entry, 28);
            let kind = match flags & 0xFF {
                1 | 2 | 7 => OwnerChangeKind::Add,
                3 | 4 | 8 => OwnerChangeKind::Remove,
                5 | 6 => OwnerChangeKind::Convert,
                other => return Err(format!("changes the owner of blocks in the unknown way {other}").into()),
            };
            Unfinished::Owner(OwnerChange {
                start,
                blocks,
                kind,
                owner: le64(entry, 0),
                at: FileBlock(le64(entry, 16)),
                attribute_fork: flags & ATTRIBUTE_FORK != 0,
                map_block: flags & MAP_BLOCK != 0,
                unwritten: flags & UNWRITTEN != 0,
            })
        }
        IntentKind::Users => {
            let (start, blocks) = run(le64(entry, 0), le32(entry, 8))?;
            let change = match le32(entry, 12) & 0xFF {
                1 => UsersChange::Increase,
                2 => UsersChange::Decrease,
                3 => UsersChange::Reserve,
                4 => UsersChange::Release,
                other => return Err(format!("changes the users of blocks in the unknown way {other}").into()),
            };
            Unfinished::Users { start, blocks, change }
        }
        IntentKind::Map => {
            const ATTRIBUTE_FORK: u32 = 1 << 31;
            const UNWRITTEN: u32 = 1 << 30;
            let (start, blocks) = run(le64(entry, 8), le32(entry, 24))?;
            let flags = le32(entry, 28);
            let map = match flags & 0xFF {
                1 => true,
                2 => false,
                other => return Err(format!("changes a map in the unknown way {other}").into()),
            };
            let ino = Ino(le64(entry, 0));
            if geometry.split_ino(ino).is_none() {
                return Err(format!("changes the map of inode {}, which cannot exist", ino.0).into());
            }
            Unfinished::Map(MapChange {
                ino,
                attribute_fork: flags & ATTRIBUTE_FORK != 0,
                map,
                unwritten: flags & UNWRITTEN != 0,
                at: FileBlock(le64(entry, 16)),
                start,
                blocks,
            })
        }
        _ => {
            let (start, blocks) = run(le64(entry, 0), le32(entry, 8))?;
            Unfinished::Free { start, blocks }
        }
    })
}

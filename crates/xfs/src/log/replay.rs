//! The two passes over the committed transactions.
//!
//! The first collects what was freed later on, and refuses unknown items before anything is changed. It also finds out
//! whether each buffer is logged as a whole, which decides the position that buffers get: see `target`. The second makes
//! the changes. Within a transaction buffers come first, for inodes may lie in them; then inodes and intents in their
//! order; then the pointers between unlinked inodes; what was freed comes last. Directory blocks that lie in several extents are
//! sealed at the end: see `parts`.

use undercroft_vfs::{Error, Result};

use super::area::LogArea;
use super::buffer::{self, BufferItem, Role};
use super::cancelled::Cancelled;
use super::ends::{LogEnds, damaged};
use super::intents::{IntentKind, Intents};
use super::parts::Parts;
use super::record::Checksum;
use super::report::Recovery;
use super::target::Target;
use super::transactions::{Assembler, Item, TakeError, Transaction};
use super::walk::{Records, WalkError};
use super::{icreate, inode};
use crate::error::corrupt;

const STRUCTURE: &str = "log";

/// The order in which the changes of a transaction are made.
const TURNS: u8 = 4;

/// What an item changes.
#[derive(Clone, Copy)]
enum Change<'a> {
    Buffer(BufferItem<'a>),
    Inode(Item<'a>),
    NewInodes(Item<'a>),
    /// A quota record, or the end of accounting.
    Quota,
    Intent(IntentKind, Item<'a>),
    Done(IntentKind, Item<'a>),
}

impl<'a> Change<'a> {
    fn of(item: Item<'a>) -> Result<Self> {
        Ok(match item.kind() {
            0x1236 => Self::Intent(IntentKind::Free, item), // XFS_LI_EFI
            0x1237 => Self::Done(IntentKind::Free, item),   // XFS_LI_EFD
            0x123B => Self::Inode(item),                    // XFS_LI_INODE
            buffer::KIND => {
                Self::Buffer(BufferItem::of(item).map_err(|what| corrupt("logged buffer", what))?)
            }
            0x123D | 0x123E => Self::Quota,  // XFS_LI_DQUOT, XFS_LI_QUOTAOFF
            0x123F => Self::NewInodes(item), // XFS_LI_ICREATE
            0x1240 => Self::Intent(IntentKind::Owner, item), // XFS_LI_RUI
            0x1241 => Self::Done(IntentKind::Owner, item), // XFS_LI_RUD
            0x1242 => Self::Intent(IntentKind::Users, item), // XFS_LI_CUI
            0x1243 => Self::Done(IntentKind::Users, item), // XFS_LI_CUD
            0x1244 => Self::Intent(IntentKind::Map, item), // XFS_LI_BUI
            0x1245 => Self::Done(IntentKind::Map, item), // XFS_LI_BUD
            0x1246 => Self::Intent(IntentKind::Attribute, item), // XFS_LI_ATTRI
            0x1247 => Self::Done(IntentKind::Attribute, item), // XFS_LI_ATTRD
            0x1248 => Self::Intent(IntentKind::Exchange, item), // XFS_LI_XMI
            0x1249 => Self::Done(IntentKind::Exchange, item), // XFS_LI_XMD
            0x124A..=0x124F => {
                return Err(Error::Unsupported("a log with changes of a real-time section".into()));
            }
            other => {
                let what = format!(
                    "a log with changes of the unknown kind {other:#06x}: let the Linux that wrote it mount it"
                );
                return Err(Error::Unsupported(what.into()));
            }
        })
    }

    /// Its turn within the transaction.
    fn turn(&self) -> u8 {
        match self {
            Self::Buffer(buffer) if buffer.is_cancelled() => 3,
            Self::Buffer(buffer) if buffer.has_inodes() => 2,
            Self::Buffer(_) | Self::NewInodes(_) => 0,
            Self::Inode(_) | Self::Quota | Self::Intent(..) | Self::Done(..) => 1,
        }
    }
}

/// Replays what lies between the log's ends.
///
/// # Errors
/// `Corrupt`, `Unsupported`, `Io`; the target is not to be used then.
pub(super) fn replay(area: &LogArea, ends: LogEnds, target: &mut Target) -> Result<Recovery> {
    let mut cancelled = Cancelled::default();
    let (mut all_whole, mut has_parts) = (true, false);
    each_transaction(area, ends, |transaction| {
        for item in transaction.items() {
            match Change::of(item)? {
                Change::Buffer(buffer) if buffer.is_cancelled() => cancelled.add(buffer.key())?,
                Change::Buffer(buffer) => {
                    all_whole &= buffer.is_whole();
                    has_parts |= buffer.role(&target.superblock) != Role::Whole;
                }
                _ => {}
            }
        }
        Ok(())
    })?;
    if all_whole {
        target.expect_whole_buffers();
    }
    let mut recovery = Recovery::default();
    let mut intents = Intents::default();
    let mut parts = Parts::default();
    let unfinished_transactions = each_transaction(area, ends, |transaction| {
        recovery.transactions += 1;
        let lsn = transaction.lsn();
        target.go_to(lsn)?;
        // Going through them once for each turn takes no memory.
        for (turn, item) in (0..TURNS).flat_map(|turn| transaction.items().map(move |item| (turn, item))) {
            let change = Change::of(item)?;
            if change.turn() != turn {
                continue;
            }
            match change {
                Change::Buffer(buffer) if buffer.is_cancelled() => cancelled.pass(buffer.key()),
                Change::Buffer(buffer) if cancelled.holds(buffer.key()) => recovery.freed += 1,
                Change::Buffer(buffer) => match buffer.replay(target, lsn)? {
                    buffer::Outcome::Replayed => {
                        recovery.buffers += 1;
                        parts.note(&buffer, &target.superblock)?;
                    }
                    buffer::Outcome::Newer => recovery.newer += 1,
                    buffer::Outcome::Quota => recovery.quota = true,
                },
                Change::Inode(item) => {
                    if let Some(ino) = inode::directory(item).filter(|_| has_parts) {
                        parts.note_directory(ino)?;
                    }
                    match inode::replay(item, target, &cancelled, lsn)? {
                        inode::Outcome::Replayed => recovery.inodes += 1,
                        inode::Outcome::Newer => recovery.newer += 1,
                        inode::Outcome::Freed => recovery.freed += 1,
                    }
                }
                Change::NewInodes(item) => match icreate::replay(item, target, &cancelled)? {
                    true => recovery.chunks += 1,
                    false => recovery.freed += 1,
                },
                Change::Quota => recovery.quota = true,
                Change::Intent(kind, item) => intents.announce(kind, item, &target.superblock)?,
                Change::Done(kind, item) => intents.done(kind, item),
            }
        }
        Ok(())
    })?;
    target.seal()?;
    parts.seal(target)?;
    recovery.uncommitted = unfinished_transactions as u64;
    recovery.unfinished = intents.unfinished()?;
    Ok(recovery)
}

/// Hands over each committed transaction in order. Returns how many were never committed.
fn each_transaction(
    area: &LogArea,
    ends: LogEnds,
    mut commit: impl FnMut(Transaction) -> Result<()>,
) -> Result<usize> {
    let refuse = |error| match error {
        WalkError::Bad { block, what } => damaged(block, &what),
        WalkError::Failed(error) => error,
    };
    let mut assembler = Assembler::default();
    let mut records = Records::new(area, ends.tail, ends.head).map_err(refuse)?;
    while let Some(record) = records.next().map_err(refuse)? {
        let (block, header) = (record.block, record.header);
        let bytes = header.data_bytes() as usize;
        match header.checksum(record.headers, &record.data[..bytes]) {
            Checksum::Right => {}
            // Old kernels wrote none; version 5 is younger than they are.
            Checksum::Absent | Checksum::Wrong if !area.checksums => {}
            Checksum::Absent | Checksum::Wrong => return Err(damaged(block, "has a wrong checksum")),
        }
        if !super::format::unpack(record.headers, record.data) {
            return Err(damaged(block, "has too few header blocks"));
        }
        header
            .check_format(area)
            .map_err(|what| corrupt(STRUCTURE, format!("the record in block {block} {what}")))?;
        let taken = assembler.take(header.lsn(), header.operations(), &record.data[..bytes], &mut commit);
        match taken {
            Ok(()) => {}
            Err(TakeError::Bad(what)) => return Err(damaged(block, &what)),
            Err(TakeError::Failed(error)) => return Err(error),
        }
    }
    Ok(assembler.open())
}

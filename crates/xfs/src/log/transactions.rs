//! Transactions, put together from the operations that the records carry.
//!
//! Operations of several transactions may alternate, and a transaction may lie in many records. Its regions follow the
//! transaction's header; a region that did not fit in a record goes on in the next one. Some regions after one another
//! are an item: the first of them says how many. A transaction counts when its commit operation is found; those that
//! have none are dropped at the end.
//!
//! What is open at once is bounded ([`MAX_OPEN_BYTES`]); Linux' own transactions reach 64 MiB. A transaction, an item and
//! a region count also when they hold no bytes.

use std::borrow::Cow;
use std::collections::HashMap;

use undercroft_vfs::Result;
use zerocopy::FromBytes;

use super::format::{
    Lsn, RawOperationHeader, RawTransactionHeader, TRANSACTION_MAGIC, client, flags, le16, le32,
};

/// Bytes that all transactions hold together that are open at one time, with what describes them.
const MAX_OPEN_BYTES: usize = 256 << 20;

/// What an open transaction, an item and a region take in memory beside their bytes, with room for growth.
const TRANSACTION_BYTES: usize = 512;
const ITEM_BYTES: usize = 2 * size_of::<ItemRegions>();
const REGION_BYTES: usize = 2 * size_of::<u32>();

/// Regions of an item, at most: half of the chunks of the largest buffer, and its description.
const MAX_REGIONS: u16 = 257;

const TRANSACTION_HEADER: usize = size_of::<RawTransactionHeader>();

/// A committed transaction.
#[derive(Debug, Default)]
pub(super) struct Transaction {
    lsn: u64,
    /// The header, as far as it is known.
    header: Vec<u8>,
    bytes: Vec<u8>,
    /// Where each region ends in `bytes`.
    ends: Vec<u32>,
    items: Vec<ItemRegions>,
}

#[derive(Clone, Copy, Debug)]
struct ItemRegions {
    first: u32,
    /// The regions so far; the item is complete when it has as many as announced.
    count: u16,
    announced: u16,
}

/// A changed object of a transaction: its description and what belongs to it.
#[derive(Clone, Copy)]
pub(super) struct Item<'a> {
    transaction: &'a Transaction,
    regions: ItemRegions,
}

impl<'a> Item<'a> {
    /// The item's kind: the first number of each description.
    pub(super) fn kind(&self) -> u16 {
        le16(self.description(), 0)
    }

    pub(super) fn description(&self) -> &'a [u8] {
        self.region(0).unwrap_or_default()
    }

    /// The region with this number; 0 is the description.
    pub(super) fn region(&self, index: usize) -> Option<&'a [u8]> {
        (index < usize::from(self.regions.count))
            .then(|| self.transaction.region(self.regions.first as usize + index))
    }
}

impl Transaction {
    /// The position by which the changes are ordered: that of the record in which the transaction began.
    pub(super) fn lsn(&self) -> Lsn {
        Lsn(self.lsn)
    }

    /// Its items, as they were logged.
    pub(super) fn items(&self) -> impl Iterator<Item = Item<'_>> {
        self.items.iter().map(|regions| Item { transaction: self, regions: *regions })
    }

    /// Bytes in memory, not less than there are.
    fn held(&self) -> usize {
        TRANSACTION_BYTES + self.bytes.len() + self.items.len() * ITEM_BYTES + self.ends.len() * REGION_BYTES
    }

    fn region(&self, index: usize) -> &[u8] {
        let start = index.checked_sub(1).map_or(0, |before| self.ends[before] as usize);
        &self.bytes[start..self.ends[index] as usize]
    }

    fn add(&mut self, data: &[u8]) -> Verdict {
        if data.is_empty() {
            return Ok(());
        }
        if self.header.len() < TRANSACTION_HEADER {
            if !self.header.is_empty() {
                return Err("has a region before the end of a transaction's header".into());
            }
            if le32(data, 0) != TRANSACTION_MAGIC || data.len() < 4 {
                return Err("has a transaction that begins with something else than its header".into());
            }
            return self.continue_header(data);
        }
        if self.items.last().is_none_or(|item| item.count == item.announced) {
            // All descriptions begin with their kind and the number of regions.
            let announced = le16(data, 2);
            if announced == 0 || announced > MAX_REGIONS {
                return Err(format!("has an item of {announced} regions").into());
            }
            self.items.push(ItemRegions { first: self.ends.len() as u32, count: 0, announced });
        }
        let item = self.items.last_mut().expect("there is one now");
        item.count += 1;
        self.bytes.extend_from_slice(data);
        self.ends.push(self.bytes.len() as u32);
        Ok(())
    }

    /// Adds to the region that was added last.
    fn go_on(&mut self, data: &[u8]) -> Verdict {
        if self.header.len() < TRANSACTION_HEADER {
            return self.continue_header(data);
        }
        let Some(end) = self.ends.last_mut() else {
            return Err("goes on with a region that never began".into());
        };
        self.bytes.extend_from_slice(data);
        *end = self.bytes.len() as u32;
        Ok(())
    }

    fn continue_header(&mut self, data: &[u8]) -> Verdict {
        if self.header.len() + data.len() > TRANSACTION_HEADER {
            return Err("has a transaction's header that is too long".into());
        }
        self.header.extend_from_slice(data);
        Ok(())
    }

    fn check_complete(&self) -> Verdict {
        if self.items.last().is_some_and(|item| item.count != item.announced) {
            return Err("commits a transaction whose last item lacks regions".into());
        }
        Ok(())
    }
}

type Verdict = crate::error::Verdict<()>;

/// Why a record was not taken.
pub(super) enum TakeError {
    /// The record is damaged, or holds something unknown.
    Bad(Cow<'static, str>),
    /// The caller's own.
    Failed(undercroft_vfs::Error),
}

/// Transactions whose commit has not been found yet.
#[derive(Debug, Default)]
pub(super) struct Assembler {
    open: HashMap<u32, Transaction>,
    /// Bytes in all of them.
    held: usize,
}

impl Assembler {
    /// Takes the operations of a record that begins at `lsn`, and hands over each transaction that it commits.
    pub(super) fn take(
        &mut self,
        lsn: Lsn,
        operations: u32,
        data: &[u8],
        mut commit: impl FnMut(Transaction) -> Result<()>,
    ) -> std::result::Result<(), TakeError> {
        let mut rest = data;
        for _ in 0..operations {
            if rest.is_empty() {
                break;
            }
            let Ok((header, after)) = RawOperationHeader::read_from_prefix(rest) else {
                return Err(TakeError::Bad("ends within the header of an operation".into()));
            };
            if header.oh_clientid != client::TRANSACTION && header.oh_clientid != client::LOG {
                let what = format!("has an operation of the unknown client {:#x}", header.oh_clientid);
                return Err(TakeError::Bad(what.into()));
            }
            let len = header.oh_len.get() as usize;
            let Some((bytes, after)) = after.split_at_checked(len) else {
                return Err(TakeError::Bad(format!("has an operation of {len} bytes, past its end").into()));
            };
            rest = after;
            if let Some(transaction) = self.operation(lsn, &header, bytes).map_err(TakeError::Bad)? {
                commit(transaction).map_err(TakeError::Failed)?;
            }
        }
        Ok(())
    }

    /// Transactions that are open.
    pub(super) fn open(&self) -> usize {
        self.open.len()
    }

    fn operation(
        &mut self,
        lsn: Lsn,
        header: &RawOperationHeader,
        data: &[u8],
    ) -> crate::error::Verdict<Option<Transaction>> {
        let id = header.oh_tid.get();
        let Some(transaction) = self.open.get_mut(&id) else {
            if header.oh_flags & flags::START != 0 {
                let transaction = Transaction { lsn: lsn.0, ..Transaction::default() };
                self.hold(transaction.held())?;
                self.open.insert(id, transaction);
            }
            // Otherwise it is the rest of a transaction that began before the tail.
            return Ok(None);
        };
        let mut what = header.oh_flags & !flags::END;
        if what & flags::WAS_CONTINUED != 0 {
            what &= !flags::CONTINUE;
        }
        let before = transaction.held();
        match what {
            0 | flags::CONTINUE => transaction.add(data)?,
            flags::WAS_CONTINUED => transaction.go_on(data)?,
            flags::COMMIT => {
                transaction.check_complete()?;
                return Ok(self.close(id));
            }
            flags::UNMOUNT => {
                self.close(id);
                return Ok(None);
            }
            unknown => return Err(format!("has an operation with the unknown flags {unknown:#x}").into()),
        }
        let more = transaction.held() - before;
        self.hold(more)?;
        Ok(None)
    }

    /// Counts bytes that were added to what is open.
    fn hold(&mut self, more: usize) -> Verdict {
        self.held += more;
        if self.held > MAX_OPEN_BYTES {
            return Err(format!(
                "has more than {} MiB in transactions that are not committed yet",
                MAX_OPEN_BYTES >> 20
            )
            .into());
        }
        Ok(())
    }

    fn close(&mut self, id: u32) -> Option<Transaction> {
        let transaction = self.open.remove(&id)?;
        self.held -= transaction.held();
        Some(transaction)
    }
}

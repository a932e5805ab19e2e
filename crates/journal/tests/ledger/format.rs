//! The ledger's format on a device of 512-byte sectors.
//!
//! ```text
//! sector 0         superblock: clean or not, and where recovery begins
//! sectors 1 to 6   accounts: 7 records of 64 bytes each, sealed with the log position that they were written back from
//! sectors 7 on     the log, a ring of bytes; positions in it rise for ever
//! ```
//!
//! A transaction in the log is a header with a checksum over all of it, then entries of a few bytes: a range of an
//! account, an intent to pay, an intent that is done. It fills whole sectors.

use std::collections::BTreeMap;
use std::ops::Range;

pub(crate) const SECTOR: usize = 512;
pub(crate) const ACCOUNTS: usize = 42;
/// Bytes of an account that transactions change: its balance, then 40 bytes of text.
pub(crate) const ACCOUNT: usize = 48;
const RECORD: usize = 64;
const PER_SECTOR: usize = 7;
pub(crate) const LOG_START: usize = 7 * SECTOR;
/// Bytes of the log's ring.
pub(crate) const LOG: u64 = 40 * SECTOR as u64;
pub(crate) const DEVICE: usize = LOG_START + LOG as usize;
const MAGIC: u64 = 0x4C45_4447_4552_0001;
const HEADER: usize = 40;

/// An account's bytes.
pub(crate) type Account = [u8; ACCOUNT];

/// A payment that has left one account and must reach another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Payment {
    pub(crate) to: u8,
    pub(crate) amount: u64,
}

/// What a transaction says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Entry {
    Range { account: u8, at: u8, bytes: Vec<u8> },
    Intent { id: u64, payment: Payment },
    Done { id: u64 },
}

impl Entry {
    /// What an account takes of a transaction at most: one range.
    pub(crate) const ACCOUNT_BYTES: u32 = 4 + ACCOUNT as u32;
    pub(crate) const INTENT_BYTES: u32 = 18;
    pub(crate) const DONE_BYTES: u32 = 9;

    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Range { account, at, bytes } => {
                out.extend([1, *account, *at, bytes.len() as u8]);
                out.extend(bytes);
            }
            Self::Intent { id, payment } => {
                out.push(2);
                out.extend(id.to_le_bytes());
                out.push(payment.to);
                out.extend(payment.amount.to_le_bytes());
            }
            Self::Done { id } => {
                out.push(3);
                out.extend(id.to_le_bytes());
            }
        }
    }

    /// `None` at the end of a transaction.
    fn decode(bytes: &mut &[u8]) -> Option<Self> {
        let mut take = |count: usize| {
            let (taken, rest) = bytes.split_at(count);
            *bytes = rest;
            taken
        };
        Some(match take(1)[0] {
            1 => {
                let &[account, at, len] = take(3) else { unreachable!("three bytes") };
                Self::Range { account, at, bytes: take(len.into()).to_vec() }
            }
            2 => {
                let id = u64_at(take(8), 0);
                let to = take(1)[0];
                Self::Intent { id, payment: Payment { to, amount: u64_at(take(8), 0) } }
            }
            3 => Self::Done { id: u64_at(take(8), 0) },
            _ => return None,
        })
    }
}

/// Bytes of the log that a transaction with these entries takes.
pub(crate) fn space(entries: &[Entry]) -> u64 {
    encode(0, 0, entries).len() as u64
}

/// A transaction as it stands in the log at `position`.
pub(crate) fn encode(tid: u64, position: u64, entries: &[Entry]) -> Vec<u8> {
    let mut bytes = vec![0; HEADER];
    entries.iter().for_each(|entry| entry.encode(&mut bytes));
    bytes.push(0);
    bytes.resize(bytes.len().next_multiple_of(SECTOR), 0);
    let header = [MAGIC, tid, position, bytes.len() as u64, 0].map(u64::to_le_bytes).concat();
    bytes[..HEADER].copy_from_slice(&header);
    let sum = checksum(&bytes);
    bytes[32..HEADER].copy_from_slice(&sum.to_le_bytes());
    bytes
}

/// The pieces of the ring that `len` bytes at `position` lie in, as offsets on the device.
pub(crate) fn pieces(position: u64, len: u64) -> Vec<Range<usize>> {
    let at = position % LOG;
    let first = len.min(LOG - at);
    let place = |at: u64, len: u64| LOG_START + at as usize..LOG_START + (at + len) as usize;
    let mut pieces = vec![place(at, first)];
    if len > first {
        pieces.push(place(0, len - first));
    }
    pieces
}

/// Where recovery begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Superblock {
    pub(crate) is_clean: bool,
    pub(crate) tail: u64,
    pub(crate) tid: u64,
}

impl Superblock {
    pub(crate) fn encode(self) -> [u8; SECTOR] {
        let mut sector = [0; SECTOR];
        let fields = [MAGIC, self.is_clean.into(), self.tail, self.tid].map(u64::to_le_bytes).concat();
        sector[..32].copy_from_slice(&fields);
        let sum = checksum(&sector);
        sector[32..40].copy_from_slice(&sum.to_le_bytes());
        sector
    }

    fn decode(sector: &[u8]) -> Self {
        let found =
            Self { is_clean: u64_at(sector, 8) == 1, tail: u64_at(sector, 16), tid: u64_at(sector, 24) };
        assert_eq!(found.encode(), sector, "the superblock is damaged");
        found
    }
}

/// The offset of the sector on the device that has an account, and the account's place in it.
pub(crate) fn home(account: u8) -> (usize, Range<usize>) {
    let (sector, slot) = (usize::from(account) / PER_SECTOR, usize::from(account) % PER_SECTOR);
    ((1 + sector) * SECTOR, slot * RECORD..(slot + 1) * RECORD)
}

/// The record of an account at home: its bytes, sealed with a position of the log.
pub(crate) fn seal(account: &Account, position: u64) -> [u8; RECORD] {
    let mut record = [0; RECORD];
    record[..ACCOUNT].copy_from_slice(account);
    record[48..56].copy_from_slice(&position.to_le_bytes());
    let sum = checksum(&record);
    record[56..].copy_from_slice(&sum.to_le_bytes());
    record
}

/// A new ledger, in which every account has `balance`.
pub(crate) fn make(balance: u64) -> Vec<u8> {
    let mut device = vec![0; DEVICE];
    device[..SECTOR].copy_from_slice(&Superblock { is_clean: true, tail: 0, tid: 1 }.encode());
    for account in 0..ACCOUNTS as u8 {
        let mut bytes = [0; ACCOUNT];
        bytes[..8].copy_from_slice(&balance.to_le_bytes());
        let (sector, place) = home(account);
        device[sector..][place].copy_from_slice(&seal(&bytes, 0));
    }
    device
}

/// A ledger as recovery finds it.
#[derive(Debug)]
pub(crate) struct Recovered {
    pub(crate) superblock: Superblock,
    pub(crate) accounts: Vec<Account>,
    /// Payments that have yet to arrive.
    pub(crate) intents: BTreeMap<u64, Payment>,
    /// The transaction that comes next, and its place in the log.
    pub(crate) next: u64,
    pub(crate) head: u64,
}

/// Reads a ledger and replays its log, in memory.
pub(crate) fn recover(device: &[u8]) -> Recovered {
    let superblock = Superblock::decode(&device[..SECTOR]);
    let mut positions = Vec::new();
    let mut accounts = Vec::new();
    for account in 0..ACCOUNTS as u8 {
        let (sector, place) = home(account);
        let record = &device[sector..][place];
        let (bytes, position) = (record[..ACCOUNT].try_into().unwrap(), u64_at(record, 48));
        assert_eq!(seal(&bytes, position), record, "account {account} is damaged");
        accounts.push(bytes);
        positions.push(position);
    }
    let (mut next, mut head) = (superblock.tid, superblock.tail);
    let mut intents = BTreeMap::new();
    while let Some((entries, len)) = read(device, next, head) {
        // What follows the first transaction has higher positions than what was written back before.
        let position = head + 1;
        for entry in entries {
            match entry {
                Entry::Range { account, at, bytes } if position > positions[usize::from(account)] => {
                    accounts[usize::from(account)][at.into()..][..bytes.len()].copy_from_slice(&bytes);
                }
                Entry::Range { .. } => {}
                Entry::Intent { id, payment } => drop(intents.insert(id, payment)),
                Entry::Done { id } => drop(intents.remove(&id)),
            }
        }
        (next, head) = (next + 1, head + len);
    }
    Recovered { superblock, accounts, intents, next, head }
}

/// The transaction at a place of the log, if it is there.
fn read(device: &[u8], tid: u64, position: u64) -> Option<(Vec<Entry>, u64)> {
    let bytes = |len| pieces(position, len).into_iter().flat_map(|piece| device[piece].to_vec()).collect();
    let first: Vec<u8> = bytes(SECTOR as u64);
    let len = u64_at(&first, 24);
    let is_it = [u64_at(&first, 0), u64_at(&first, 8), u64_at(&first, 16)] == [MAGIC, tid, position];
    if !is_it || len > LOG || !len.is_multiple_of(SECTOR as u64) {
        return None;
    }
    let mut all: Vec<u8> = bytes(len);
    let sum = u64_at(&all, 32);
    all[32..HEADER].fill(0);
    if checksum(&all) != sum {
        return None;
    }
    let mut rest = &all[HEADER..];
    Some((std::iter::from_fn(|| Entry::decode(&mut rest)).collect(), len))
}

pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap())
}

/// FNV-1a.
fn checksum(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xCBF2_9CE4_8422_2325, |sum, &byte| (sum ^ u64::from(byte)).wrapping_mul(0x100_0000_01B3))
}

//! A ledger as a client of the journal.
//!
//! Its items are smaller than a block: accounts, of which the log has ranges of bytes, and intents. Space and reservations
//! are counted in bytes. The copy in the log carries no seal; the one at home carries the log position.

use std::collections::{BTreeMap, btree_map};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use undercroft_block::Device;
use undercroft_journal::{
    Cause, Client, Frozen, Handle, Item, ItemGuard, ItemState, Limits, LogHead, LogTail, Position, Service,
    Stop, StoppableDevice, Tid, Transaction, Transactions, WriteBack,
};
use undercroft_sync::{Mutex, MutexGuard, order};
use undercroft_vfs::Result;

use crate::format::{self, ACCOUNT, ACCOUNTS, Account, Entry, LOG, Payment, SECTOR, Superblock};

/// Intents that the ledger has at a time: each commit logs all of them again.
const INTENTS: u64 = 4;

/// Something that transactions change.
#[derive(Clone, Debug)]
pub(crate) struct Thing(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    home: Home,
    state: Mutex<State>,
}

/// Intents are at home nowhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Home {
    Account(u8),
    Intent(u64),
}

#[derive(Debug)]
pub(crate) struct State {
    engine: ItemState<Version>,
    now: Version,
}

/// An account's bytes, and which of them the log needs; or an intent.
#[derive(Clone, Debug)]
pub(crate) enum Version {
    Account { bytes: Account, dirty: u64 },
    Intent(Payment),
}

impl Thing {
    fn new(home: Home, now: Version) -> Self {
        Self(Arc::new(Inner {
            home,
            state: Mutex::new(&order::BLOCK, State { engine: ItemState::default(), now }),
        }))
    }
}

impl Item for Thing {
    type Version = Version;
    type Home = Home;
    type Guard<'a> = MutexGuard<'a, State>;
    const CAN_PIN: bool = true;

    fn home(&self) -> Home {
        self.0.home
    }

    fn lock(&self) -> Self::Guard<'_> {
        self.0.state.lock()
    }

    /// Until it is done, which cancels it.
    fn is_pinned(&self) -> bool {
        matches!(self.0.home, Home::Intent(_))
    }
}

impl ItemGuard<Version> for MutexGuard<'_, State> {
    fn state(&self) -> &ItemState<Version> {
        &self.engine
    }

    fn state_mut(&mut self) -> &mut ItemState<Version> {
        &mut self.engine
    }

    fn freeze(&mut self) -> Version {
        let logged = match self.engine.committed() {
            Some(Version::Account { dirty, .. }) => *dirty,
            _ => 0,
        };
        let mut version = self.now.clone();
        if let (Version::Account { dirty, .. }, Version::Account { dirty: now, .. }) =
            (&mut version, &mut self.now)
        {
            *dirty |= logged;
            *now = 0;
        }
        version
    }
}

/// What the log says of a transaction.
fn entries(transaction: &Transaction<Thing>) -> Vec<Entry> {
    let mut entries = Vec::new();
    for Frozen { item, version } in &transaction.items {
        match (item.home(), version) {
            (Home::Account(account), Version::Account { bytes, dirty }) => {
                entries.extend(ranges(account, bytes, *dirty));
            }
            (Home::Intent(id), Version::Intent(payment)) => {
                entries.push(Entry::Intent { id, payment: *payment });
            }
            other => panic!("an item changed its kind: {other:?}"),
        }
    }
    for home in &transaction.cancelled {
        let Home::Intent(id) = *home else { panic!("only intents are cancelled") };
        entries.push(Entry::Done { id });
    }
    entries
}

/// The dirty ranges of an account; all of them as one where that takes less of the log.
fn ranges(account: u8, bytes: &Account, dirty: u64) -> Vec<Entry> {
    let range =
        |at: usize, end: usize| Entry::Range { account, at: at as u8, bytes: bytes[at..end].to_vec() };
    let is_dirty = |at: &usize| dirty >> at & 1 == 1;
    let mut ranges = Vec::new();
    let mut at = 0;
    while let Some(begin) = (at..ACCOUNT).find(is_dirty) {
        at = (begin..ACCOUNT).find(|at| !is_dirty(at)).unwrap_or(ACCOUNT);
        ranges.push((begin, at));
    }
    let taken: usize = ranges.iter().map(|(begin, end)| 4 + end - begin).sum();
    if taken > Entry::ACCOUNT_BYTES as usize {
        return vec![range(0, ACCOUNT)];
    }
    ranges.into_iter().map(|(begin, end)| range(begin, end)).collect()
}

/// Writes accounts to their records, a sector at a time.
fn write_home<'a>(device: &Device, accounts: impl IntoIterator<Item = (u8, &'a Account, u64)>) -> Result<()> {
    let mut sectors: BTreeMap<usize, [u8; SECTOR]> = BTreeMap::new();
    for (account, bytes, position) in accounts {
        let (offset, place) = format::home(account);
        let sector = match sectors.entry(offset) {
            btree_map::Entry::Occupied(sector) => sector.into_mut(),
            btree_map::Entry::Vacant(vacant) => {
                let mut sector = [0; SECTOR];
                device.read_at(offset as u64, &mut sector)?;
                vacant.insert(sector)
            }
        };
        sector[place].copy_from_slice(&format::seal(bytes, position));
    }
    for (offset, sector) in sectors {
        device.write_at(offset as u64, &sector)?;
    }
    Ok(())
}

/// An open ledger.
#[derive(Debug)]
pub(crate) struct Ledger {
    device: Device,
    below: Device,
    accounts: Vec<Thing>,
    intents: Mutex<BTreeMap<u64, Intent>>,
    transactions: OnceLock<Transactions<Self>>,
    /// Where the log ends; for the superblock of a ledger that was closed.
    end: Arc<Mutex<(u64, u64)>>,
}

#[derive(Clone, Debug)]
struct Intent {
    item: Thing,
    payment: Payment,
    /// The transaction that says so is not durable yet.
    is_done: bool,
}

impl Intent {
    fn new(id: u64, payment: Payment) -> Self {
        Self { item: Thing::new(Home::Intent(id), Version::Intent(payment)), payment, is_done: false }
    }
}

struct Head {
    position: u64,
    end: Arc<Mutex<(u64, u64)>>,
}

struct Tail {
    superblock: Superblock,
    /// Bytes of the transaction that the log began anew with, as long as it is there.
    first: u64,
}

impl Ledger {
    /// Opens a ledger for changes: what recovery finds is written home first. Intents wait to be carried out.
    pub(crate) fn open(base: Device) -> Result<(Arc<Self>, Service<Self>)> {
        let mut bytes = vec![0; base.size_bytes() as usize];
        base.read_at(0, &mut bytes)?;
        let found = format::recover(&bytes);
        let accounts = (0..).zip(&found.accounts);
        write_home(&base, accounts.map(|(account, bytes)| (account, bytes, found.head)))?;
        base.flush()?;
        // The log begins anew, with the intents: one sector of it is always free for them, see `Limits::space` below.
        let intents = found.intents.iter().map(|(&id, &payment)| Entry::Intent { id, payment });
        let first = format::encode(found.next, found.head, &intents.collect::<Vec<_>>());
        assert_eq!(first.len(), SECTOR);
        let [piece] = &format::pieces(found.head, SECTOR as u64)[..] else {
            panic!("a sector lies in one piece")
        };
        base.write_at(piece.start as u64, &first)?;
        base.flush()?;
        let superblock = Superblock { is_clean: false, tail: found.head, tid: found.next };
        base.write_at(0, &superblock.encode())?;
        base.flush()?;
        let (next, head) = (found.next + 1, found.head + SECTOR as u64);

        let stop = Arc::<Stop>::default();
        let device: Device = Arc::new(StoppableDevice::new(Arc::clone(&base), Arc::clone(&stop)));
        let account = |(account, bytes): (u8, &Account)| {
            Thing::new(Home::Account(account), Version::Account { bytes: *bytes, dirty: 0 })
        };
        let intents = found.intents.iter();
        let intents = intents.map(|(&id, &payment)| (id, Intent::new(id, payment)));
        let end = Arc::new(Mutex::new(&order::BUFFER, (next, head)));
        let ledger = Arc::new(Self {
            accounts: (0..).zip(&found.accounts).map(account).collect(),
            intents: Mutex::new(&order::COLLECTED, intents.collect()),
            transactions: OnceLock::new(),
            end: Arc::clone(&end),
            below: base,
            device,
        });
        // The first transaction takes space until the tail first moves; see `Tail::advance`.
        let space = LOG - 2 * SECTOR as u64;
        let limits = Limits {
            space,
            checkpoint_at: space / 2,
            // Rounding up to a sector, the header, and intents that are logged again.
            room: (space / 4) as u32 - SECTOR as u32 - INTENTS as u32 * Entry::INTENT_BYTES,
            cancelled_per_unit: usize::MAX,
            batch_items: 10,
        };
        let head = Head { position: head, end };
        let transactions =
            Transactions::logged(Tid(next), head, Tail { superblock, first: SECTOR as u64 }, &limits, stop);
        ledger.transactions.set(transactions).expect("set once");
        let service = Service::start(Arc::clone(&ledger), Duration::from_secs(3600));
        Ok((ledger, service))
    }

    pub(crate) fn start(&self, bytes: u32) -> Result<Handle<'_, Self>> {
        self.transactions().start(self, bytes)
    }

    /// Changes bytes of an account.
    pub(crate) fn change(&self, handle: &Handle<'_, Self>, account: u8, at: usize, new: &[u8]) {
        handle.change(&self.accounts[usize::from(account)], Entry::ACCOUNT_BYTES, |state| {
            let Version::Account { bytes, dirty } = &mut state.now else { panic!("an account") };
            bytes[at..at + new.len()].copy_from_slice(new);
            *dirty |= ((1 << new.len()) - 1) << at;
        });
    }

    /// Notes a payment that the caller has taken from an account.
    pub(crate) fn intend(&self, handle: &Handle<'_, Self>, id: u64, payment: Payment) {
        let intent = Intent::new(id, payment);
        handle.change(&intent.item, Entry::INTENT_BYTES, |_| ());
        self.intents.lock().insert(id, intent);
        assert!(self.intents().len() as u64 <= INTENTS);
    }

    /// The oldest payment that has to arrive.
    pub(crate) fn oldest_intent(&self) -> Option<(u64, Payment)> {
        self.intents().pop_first()
    }

    /// Payments that have to arrive.
    pub(crate) fn intents(&self) -> BTreeMap<u64, Payment> {
        let intents = self.intents.lock();
        intents
            .iter()
            .filter(|(_, intent)| !intent.is_done)
            .map(|(&id, intent)| (id, intent.payment))
            .collect()
    }

    pub(crate) const fn intents_max() -> u64 {
        INTENTS
    }

    /// A payment has arrived.
    pub(crate) fn done(&self, handle: &Handle<'_, Self>, id: u64) {
        handle.cancel(Home::Intent(id));
        handle.charge(Entry::DONE_BYTES);
        self.intents.lock().get_mut(&id).expect("it is under way").is_done = true;
    }

    pub(crate) fn account(&self, account: u8) -> Account {
        match self.accounts[usize::from(account)].lock().now {
            Version::Account { bytes, .. } => bytes,
            Version::Intent(_) => panic!("an account"),
        }
    }

    pub(crate) fn accounts(&self) -> Vec<Account> {
        (0..ACCOUNTS as u8).map(|account| self.account(account)).collect()
    }
}

impl Client for Ledger {
    type Item = Thing;

    fn transactions(&self) -> &Transactions<Self> {
        self.transactions.get().expect("set when it was opened")
    }

    fn flush(&self) -> Result<()> {
        Ok(self.device.flush()?)
    }

    fn cached(&self, home: Home) -> Option<Thing> {
        match home {
            Home::Account(account) => Some(self.accounts[usize::from(account)].clone()),
            Home::Intent(id) => self.intents.lock().get(&id).map(|intent| intent.item.clone()),
        }
    }

    fn evict(&self, home: Home) {
        if let Home::Intent(id) = home {
            self.intents.lock().remove(&id);
        }
    }

    fn prepare_commit(&self, handle: Handle<'_, Self>) -> Result<()> {
        for intent in self.intents.lock().values().filter(|intent| !intent.is_done) {
            handle.change(&intent.item, 0, |_| ());
        }
        Ok(())
    }

    fn write_back(&self, batch: &[WriteBack<'_, Thing>]) -> Result<()> {
        let accounts = batch.iter().map(|write| match (write.item.home(), &write.version) {
            (Home::Account(account), Version::Account { bytes, .. }) => (account, bytes, write.position.0),
            other => panic!("an intent has no home: {other:?}"),
        });
        write_home(&self.device, accounts)
    }

    fn write_unlogged(&self, _items: &[Frozen<Thing>]) -> Result<()> {
        unreachable!("a ledger has a log")
    }

    fn mark_clean(&self) -> Result<()> {
        let (tid, tail) = *self.end.lock();
        self.device.write_at(0, &Superblock { is_clean: true, tail, tid }.encode())?;
        self.flush()
    }

    fn record_abort(&self, _cause: &Cause) {
        let _ = self.below.flush();
    }
}

impl LogHead<Ledger> for Head {
    fn space(&self, transaction: &Transaction<Thing>) -> u64 {
        format::space(&entries(transaction))
    }

    /// Sector by sector, so that a crash tears it anywhere.
    fn append(&mut self, ledger: &Ledger, transaction: &Transaction<Thing>) -> Result<Position> {
        let bytes = format::encode(transaction.tid.0, self.position, &entries(transaction));
        let mut rest = &bytes[..];
        for piece in format::pieces(self.position, bytes.len() as u64) {
            let (now, later) = rest.split_at(piece.len());
            for (at, sector) in piece.step_by(SECTOR).zip(now.chunks(SECTOR)) {
                ledger.device.write_at(at as u64, sector)?;
            }
            rest = later;
        }
        ledger.flush()?;
        let position = Position(self.position + 1);
        self.position += bytes.len() as u64;
        *self.end.lock() = (transaction.tid.0 + 1, self.position);
        Ok(position)
    }
}

impl LogTail<Ledger> for Tail {
    fn advance(&mut self, ledger: &Ledger, space: u64, next: Tid) -> Result<()> {
        let tail = self.superblock.tail + std::mem::take(&mut self.first) + space;
        self.superblock = Superblock { is_clean: false, tail, tid: next.0 };
        ledger.device.write_at(0, &self.superblock.encode())?;
        ledger.flush()
    }

    fn make_empty(&mut self, _ledger: &Ledger, _next: Tid) -> Result<()> {
        Ok(())
    }

    fn record_abort(&mut self, _ledger: &Ledger) -> Result<()> {
        Ok(())
    }
}

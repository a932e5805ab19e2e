//! Random schedules of an inode that is released while other threads store its lazy times.
//!
//!     RUSTFLAGS="--cfg shuttle" cargo test -p undercroft-ext4 --lib model_tests
//!
//! One user writes over the file, leaves, loads the inode anew and changes it, as often as the inode cache may drop
//! it; the committing thread and a thread that syncs the filesystem store lazy times meanwhile. What the user reads
//! after a load is what it left there: no old handle is stored over a newer inode, and no time is lost. A failure
//! prints its schedule; `shuttle::replay` runs it again.

use std::sync::{Arc, OnceLock};

use shuttle::scheduler::{PctScheduler, RandomScheduler};
use undercroft_block::{Access, MemoryDevice};
use undercroft_oracle::{Mke2fs, Scratch};
use undercroft_sync::thread;
use undercroft_vfs::{Inode as VfsInode, WriteKind};

use super::Live;
use crate::inode::{self, Inode};
use crate::options::WriteOptions;
use crate::superblock::Superblock;
use crate::transaction::Tid;
use crate::volume::Volume;
use crate::writer::{Mounted, Transactions, Writer};

const SCHEDULES: usize = 1000;
/// Switches of priority that PCT places in a schedule.
const PCT_DEPTH: usize = 3;
/// The first file that mke2fs makes behind `lost+found`.
const FILE: u32 = 12;
/// How often the user leaves and comes back.
const ROUNDS: u16 = 3;
/// Of each modelled thread: the filesystem is opened in one.
const STACK_BYTES: usize = 256 << 10;
/// Blocks that a transaction has room for.
const ROOM: u32 = 100;

fn image() -> Vec<u8> {
    static IMAGE: OnceLock<Vec<u8>> = OnceLock::new();
    let make = || {
        let source = Scratch::new("tree").unwrap();
        std::fs::write(source.path().join("f"), "content").unwrap();
        let source = source.path().to_str().unwrap().to_owned();
        let mke2fs = Mke2fs::new("ext4", 1).block_bytes(1024).features("^has_journal").args(["-d", &source]);
        std::fs::read(mke2fs.make().unwrap().path()).unwrap()
    };
    IMAGE.get_or_init(make).clone()
}

fn open() -> Arc<Mounted> {
    let device = Arc::new(MemoryDevice::from_bytes(image(), Access::ReadWrite));
    let superblock = Superblock::read(&*device).unwrap();
    let volume = Arc::new(Mounted::new(Volume::new(device, superblock, 1 << 20)));
    let writer =
        Writer::new(&volume, Transactions::unlogged(Tid(1), ROOM, Arc::default()), WriteOptions::default())
            .unwrap();
    volume.set_writer(writer);
    volume
}

fn load(volume: &Arc<Mounted>) -> Arc<Live> {
    let location = inode::locate(volume, FILE).unwrap();
    let inode = Inode::read_located(volume, FILE, location).unwrap();
    Live::shared(Arc::clone(volume), inode, location)
}

/// The user: each time the inode is loaded, it is as the user left it.
fn come_and_go(volume: &Arc<Mounted>) {
    let mut left = None;
    for round in 1..=ROUNDS {
        let live = load(volume);
        let found = live.attr();
        if let Some((permissions, modified)) = left {
            assert_eq!(
                found.permissions, permissions,
                "round {round}: an old inode was stored over a newer one"
            );
            assert_eq!(found.modified, modified, "round {round}: a time was lost");
        }
        {
            let handle = volume.start(1).unwrap();
            live.change_fields(&handle, |fields| fields.permissions = round).unwrap();
        }
        live.finish_write(0, 7, 7, WriteKind::Overwrite).unwrap();
        left = Some((round, live.attr().modified));
        live.release();
    }
}

#[test]
fn no_released_inode_is_stored_over_a_newer_one() {
    image();
    let property = || {
        let volume = open();
        let stores: [fn(&Mounted); 2] = [
            |volume| assert!(volume.writer().unwrap().lazy_times.store_what_fits().unwrap()),
            |volume| volume.writer().unwrap().lazy_times.store_all().unwrap(),
        ];
        let threads = stores.map(|store| {
            let volume = Arc::clone(&volume);
            thread::spawn(move || (0..ROUNDS).for_each(|_| store(&volume)))
        });
        come_and_go(&volume);
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(load(&volume).attr().permissions, ROUNDS, "an old inode was stored over a newer one");
    };
    let mut config = shuttle::Config::new();
    config.stack_size = STACK_BYTES;
    shuttle::Runner::new(RandomScheduler::new(SCHEDULES), config.clone()).run(property);
    shuttle::Runner::new(PctScheduler::new(PCT_DEPTH, SCHEDULES), config).run(property);
}

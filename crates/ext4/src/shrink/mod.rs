//! Making a filesystem smaller, while it is not in use.
//!
//! | module | what it does |
//! | --- | --- |
//! | `size` | decides how small it becomes, and what its superblock says then |
//! | `survey` | finds what lies past the new end |
//! | `blocks` | moves files' blocks and those of their maps |
//! | `attributes` | moves blocks of extended attributes |
//! | `journal` | moves the journal |
//! | `numbers` | gives inodes of groups that go other numbers |
//! | `switch` | the transaction that makes the filesystem smaller |
//!
//! In this order:
//!
//! 1. The filesystem is checked, the size and the superblock are decided, and all that can be refused is. Nothing has
//!    changed by then.
//! 2. It is opened for changes, and its allocator gives out no block past the new end.
//! 3. What lies there is moved, file by file: data is copied and made durable, then a transaction changes the map. The journal
//!    goes first, and the filesystem is opened anew with it. Inodes of groups that go get other numbers.
//! 4. One transaction changes the superblock, the last group's bitmap, the descriptors and the resize inode, and frees
//!    structures of groups that go where they lie in groups that stay (`flex_bg`).
//! 5. When that is durable, copies of the superblock and the descriptors are written.
//!
//! A crash before step 4 leaves the filesystem as large as it was, with some files' blocks elsewhere; after it, as small as
//! it becomes. Without a journal, a crash may leave what `e2fsck -y` repairs.
//!
//! Structures of groups that go may take room in groups that stay, and are freed in step 4. Where files need that room,
//! the filesystem becomes smaller in several passes, each of them whole.
//!
//! The device is not cut: that is for the caller, when the filesystem has been closed.
//!
//! Left out, and refused: `sparse_super2`, whose copies would move, and what no filesystem is opened for writing with.
//!
//! Locks: none of its own; the filesystem is opened here and known to no other thread.
//!
//! Sources: kernel documentation, "Super Block", "Block Group Descriptors", "Meta Block Groups" and "Special inodes"; what
//! resize2fs makes of images.

mod attributes;
mod blocks;
mod journal;
mod numbers;
mod size;
mod survey;
mod switch;

use std::ops::Range;
use std::sync::Arc;

use undercroft_block::Device;
use undercroft_vfs::{Error, Result};

use crate::Ext4;
use crate::check::refuse_damage;
use crate::features::{Compat, Incompat};
use crate::inode::InodeBytes;
use crate::numbers::FsBlock;
use crate::open::{OpenOptions, Probed, Ready};
use crate::options::WriteOptions;
use crate::superblock::{State, Superblock};
use crate::volume::Volume;
use crate::writer::{Mounted, Writer};
use size::Usage;
use survey::Survey;
pub(crate) use survey::for_each_inode;

/// Passes that are made at most: each frees structures, and few of them suffice.
const PASSES_MAX: u32 = 32;

/// How a filesystem has become smaller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shrunk {
    /// Size of a block in bytes.
    pub block_bytes: u32,
    /// Blocks before and now; the same if there was nothing to do.
    pub blocks: (u64, u64),
    /// Block groups before and now.
    pub groups: (u32, u32),
    /// Inodes before and now.
    pub inodes: (u32, u32),
}

/// How far a pass came.
enum Pass {
    /// The filesystem is smaller.
    Smaller(Box<Superblock>),
    /// Something was moved after which it must be opened again.
    Again,
    AsSmallAsCanBe,
}

/// How small a filesystem can become.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Minimum {
    /// Size of a block in bytes.
    pub block_bytes: u32,
    /// Blocks that it has.
    pub blocks: u64,
    /// Blocks that it needs at least, by an estimate that leaves some room for maps.
    pub least: u64,
}

/// How small the filesystem on a device can become. Nothing changes.
///
/// # Errors
/// [`Error::Unsupported`] for one that cannot become smaller; corruption; I/O failure.
pub fn minimum(device: &Device, options: OpenOptions) -> Result<Minimum> {
    let Ready { volume, .. } = Probed::probe(Arc::clone(device), options)?.recover_in_memory()?;
    let superblock = volume.superblock();
    superblock.refuse_faults()?;
    refuse_features(superblock)?;
    refuse_bad_blocks(&volume)?;
    let least = Usage::read(&volume)?.minimum(superblock)?;
    let geometry = superblock.geometry();
    Ok(Minimum { block_bytes: geometry.block_bytes(), blocks: geometry.blocks(), least: least.blocks })
}

/// Makes the filesystem on a device, which is not in use, as small as `size_bytes`, or as small as it can be. It fills whole
/// blocks, and a last group that would have no room for more than its own structures is left out, as by resize2fs. `progress`
/// is called with the blocks that have been moved and how many have to be.
///
/// # Errors
/// [`Error::Unsupported`] says what cannot be done: nothing has changed then, unless it says how small the filesystem has
/// become. [`Error::Corrupt`]: the check finds damage, and nothing has changed. I/O failure: the filesystem is whole, of the
/// old size or of a smaller one.
pub fn shrink(
    device: &Device,
    options: OpenOptions,
    size_bytes: Option<u64>,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Shrunk> {
    let first = Superblock::read(&**device)?;
    refuse_features(&first)?;
    first.features().check_writable()?;
    refuse_damage(device, options, "does not become smaller")?;
    let (wanted, with_room, before) = {
        let Ready { volume, .. } = Probed::probe(Arc::clone(device), options)?.recover_in_memory()?;
        refuse_bad_blocks(&volume)?;
        let usage = Usage::read(&volume)?;
        let least = usage.minimum(volume.superblock())?;
        let wanted = wanted_blocks(&usage, least.blocks, volume.superblock(), size_bytes)?;
        (wanted, least.with_room, volume.superblock().clone())
    };
    let mut now = before.clone();
    let mut least = wanted;
    let mut has_room = wanted >= with_room;
    for _ in 0..PASSES_MAX {
        if now.geometry().blocks() <= wanted {
            break;
        }
        let mut tried = least;
        match pass(device, options, &mut tried, has_room, progress) {
            Ok(Pass::Again) => {}
            Ok(Pass::Smaller(smaller)) => (now, least) = (*smaller, wanted),
            Ok(Pass::AsSmallAsCanBe) => break,
            Err(Error::NoSpace) => {
                // Maps of files got larger than was allowed for, or free space lies in too many pieces.
                let blocks = now.geometry().blocks();
                least = if has_room { tried + (blocks / 100).max(16) } else { with_room };
                has_room = true;
                if least >= blocks {
                    break;
                }
            }
            Err(error) => return Err(error),
        }
    }
    let reached = now.geometry().blocks();
    if size_bytes.is_some() && reached > wanted {
        let what = format!("what is in it does not fit {wanted} blocks; the filesystem has {reached} now");
        return Err(Error::Unsupported(what.into()));
    }
    let (old, new) = (before.geometry(), now.geometry());
    Ok(Shrunk {
        block_bytes: new.block_bytes(),
        blocks: (old.blocks(), reached),
        groups: (old.groups(), new.groups()),
        inodes: (old.inodes(), new.inodes()),
    })
}

fn refuse_features(superblock: &Superblock) -> Result<()> {
    let features = superblock.features();
    let refuse = |what: &str| Err(Error::Unsupported(format!("making a filesystem smaller {what}").into()));
    if features.compat.contains(Compat::SPARSE_SUPER2) {
        return refuse(
            "whose copies of the superblock lie in named groups (feature sparse_super2); use resize2fs",
        );
    }
    if features.compat.contains(Compat::RESIZE_INODE) && features.incompat.contains(Incompat::META_BG) {
        return refuse("that has both features meta_bg and resize_inode; run e2fsck -f");
    }
    if superblock.external_journal().is_some() {
        return refuse("whose journal is on another device; use resize2fs");
    }
    Ok(())
}

/// The inode that lists them has no kind, so its bytes are looked at.
fn refuse_bad_blocks(volume: &Volume) -> Result<()> {
    const NUMBER: u32 = 1;
    const BLOCK_COUNT: Range<usize> = 0x1C..0x20;
    if InodeBytes::read(volume, NUMBER)?[BLOCK_COUNT].iter().all(|&byte| byte == 0) {
        return Ok(());
    }
    Err(Error::Unsupported("making a filesystem smaller that has a list of bad blocks; use resize2fs".into()))
}

/// The blocks that the filesystem is to have.
fn wanted_blocks(usage: &Usage, least: u64, superblock: &Superblock, size_bytes: Option<u64>) -> Result<u64> {
    let geometry = superblock.geometry();
    if superblock.state().contains(State::ERRORS) {
        let what =
            "the superblock says that the filesystem has errors; run e2fsck -f before it becomes smaller";
        return Err(Error::Unsupported(what.into()));
    }
    let Some(size_bytes) = size_bytes else { return Ok(least) };
    let wanted = size_bytes >> geometry.block_bits();
    if wanted >= geometry.blocks() {
        let what = format!("the filesystem has {} bytes, no more than is asked for", geometry.size_bytes());
        return Err(Error::Unsupported(what.into()));
    }
    let too_small = || {
        let bytes = least << geometry.block_bits();
        let what = format!("what is in it needs {bytes} bytes ({least} blocks) at least");
        Error::Unsupported(what.into())
    };
    if wanted < least {
        return Err(too_small());
    }
    let blocks = size::rounded(superblock, wanted).map_err(|_| too_small())?;
    if blocks < least || !usage.fits(size::smaller(superblock, blocks)?.geometry()) {
        return Err(too_small());
    }
    Ok(blocks)
}

/// Makes the filesystem as small as it can become now, `wanted` blocks at least, which is set to what is tried. `has_room`:
/// there is room for maps that get larger.
fn pass(
    device: &Device,
    options: OpenOptions,
    wanted: &mut u64,
    has_room: bool,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Pass> {
    let how = WriteOptions { counts_mount: false, ..WriteOptions::default() };
    let ext4 = Ext4::open(Arc::clone(device), options, how)?;
    let done = Mover::new(ext4.volume(), wanted, has_room, progress).and_then(|mover| match mover {
        Some((mover, new)) => mover.run(&new),
        None => Ok(Pass::AsSmallAsCanBe),
    });
    let closed = ext4.close();
    let done = done?;
    closed?;
    Ok(done)
}

/// What moves everything before the end.
struct Mover<'a> {
    volume: &'a Mounted,
    writer: &'a Writer,
    end: FsBlock,
    survey: Survey,
    /// Blocks that move, and how many have.
    blocks: u64,
    moved: u64,
    buffer: Vec<u8>,
    progress: &'a mut dyn FnMut(u64, u64),
}

impl<'a> Mover<'a> {
    /// With the superblock that it works towards; `None` if the filesystem cannot become smaller now.
    fn new(
        volume: &'a Mounted,
        wanted: &mut u64,
        has_room: bool,
        progress: &'a mut dyn FnMut(u64, u64),
    ) -> Result<Option<(Self, Superblock)>> {
        let writer = volume.writer()?;
        // What opening changed, orphans that it deleted, is counted where the survey looks.
        writer.transactions.write_everything_back(volume)?;
        let old = volume.superblock();
        let usage = Usage::read(volume)?;
        let usage = if has_room { usage } else { usage.without_room() };
        let blocks = usage.reachable(old, *wanted)?;
        *wanted = blocks;
        if blocks >= old.geometry().blocks() {
            return Ok(None);
        }
        let new = size::smaller(old, blocks)?;
        let survey = Survey::take(volume, new.geometry())?;
        let end = FsBlock(blocks);
        Ok(Some((
            Self { volume, writer, end, survey, blocks: 0, moved: 0, buffer: Vec::new(), progress },
            new,
        )))
    }

    fn run(mut self, new: &Superblock) -> Result<Pass> {
        let last = new.geometry().inodes();
        // Refuses what cannot move. Where names lie is found again when blocks have been moved.
        self.find_names(last)?;
        self.refuse_shared_values()?;
        self.writer.allocator.fence(self.volume, self.end)?;
        let survey = std::mem::take(&mut self.survey);
        self.blocks = survey.blocks;
        let journal = self.volume.superblock().journal_inode();
        if let Some(number) = journal.filter(|number| survey.files.contains(number)) {
            self.move_journal(number)?;
            return Ok(Pass::Again);
        }
        for &number in &survey.files {
            self.move_file(number)?;
        }
        for (&block, users) in &survey.attributes {
            self.move_attributes(FsBlock(block), users)?;
        }
        self.move_resize_inode()?;
        self.survey = survey;
        let mut names = self.find_names(last)?;
        for &number in &self.survey.numbers {
            self.move_number(&mut names, number, last)?;
        }
        self.switch(new)?;
        Ok(Pass::Smaller(Box::new(new.clone())))
    }

    /// So many blocks more have been moved.
    fn note(&mut self, blocks: u64) {
        self.moved += blocks;
        (self.progress)(self.moved, self.blocks.max(self.moved));
    }
}

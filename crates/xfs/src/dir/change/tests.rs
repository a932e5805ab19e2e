//! Random changes of directories against a model. Plans are applied to a device in memory, without a journal and an
//! allocator, and each directory is checked as `check` does it.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use undercroft_block::{BlockDevice, MemoryDevice};
use undercroft_vfs::{DirOffset, Error, FileType, Ino};

use super::edit::Form;
use super::plan::{Change, TreeBlock};
use crate::check::testing::directory_findings;
use crate::format::block_header::HeaderKind;
use crate::format::dinode::{self, ForkFormat};
use crate::format::extent::Extent;
use crate::format::{FileBlock, FsBlock, Superblock, crc, testing};
use crate::inode::{Fork, Inode, InodeState};
use crate::volume::Volume;
use crate::writer::Mounted;
use crate::{dir, transaction};

/// The directory.
const INO: Ino = Ino(131);

/// Its parent.
const PARENT: u64 = 128;

/// A change that is planned.
type Plan<'p> = dyn Fn(&mut Change<'_>) -> Result<(), Error> + 'p;

/// A directory on a device, and what should be in it.
struct World {
    device: Arc<MemoryDevice>,
    dir: InodeState,
    blocks: BTreeMap<u32, FsBlock>,
    next: u64,
    model: BTreeMap<Vec<u8>, u64>,
    random: u64,
    /// One change in so many keeps the directory's blocks.
    keeps_one_in: u64,
    forms: [u32; 4],
}

impl World {
    fn new(block_log: u8, cache_bytes: usize) -> Self {
        Self::with_dir_blocks(block_log, block_log, cache_bytes)
    }

    fn with_dir_blocks(block_log: u8, dir_block_log: u8, cache_bytes: usize) -> Self {
        let device = Arc::new(MemoryDevice::new(512 << 20));
        let sector = testing::superblock_sector(|raw| {
            let more = 12 - block_log;
            raw.sb_blocksize.set(1 << block_log);
            raw.sb_blocklog = block_log;
            raw.sb_dirblklog = dir_block_log - block_log;
            raw.sb_inopblog = 3 - more;
            raw.sb_inopblock.set(8 >> more);
            raw.sb_agblklog = 15 + more;
            raw.sb_dblocks.set(131_072 << more);
            raw.sb_agblocks.set(32_768 << more);
            raw.sb_rootino.set(PARENT);
            raw.sb_logstart.set((2 << raw.sb_agblklog) + 100);
            raw.sb_inoalignmt.set(8 << more);
            raw.sb_spino_align.set(4 << more);
        });
        device.write_at(0, &sector).unwrap();
        let superblock = Superblock::read(&*device).unwrap();
        let mut inode = Inode::read_from(&superblock);
        super::make_first(&mut inode, Ino(PARENT));
        let volume = Volume::new(device.clone(), superblock, cache_bytes);
        let dir = InodeState::new(Arc::new(Mounted::new(volume)), inode);
        let (blocks, model) = (BTreeMap::new(), BTreeMap::new());
        Self { device, dir, blocks, next: 1000, model, random: 1, keeps_one_in: u64::MAX, forms: [0; 4] }
    }

    fn random(&mut self, below: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random % below
    }

    /// Makes a plan true.
    fn apply(&mut self, plan: impl FnOnce(&mut Change<'_>) -> Result<(), Error>) -> Result<(), Error> {
        let mut change = Change::begin(&self.dir, 0).unwrap();
        if self.random.is_multiple_of(self.keeps_one_in) {
            change.keep_blocks();
        }
        plan(&mut change)?;
        assert!(!change.keeps_blocks || change.slots.values().all(|slot| !slot.gone));
        let superblock = self.dir.volume.superblock();
        let unit = change.unit();
        for (&at, slot) in &mut change.slots {
            assert!(at.is_multiple_of(unit));
            if slot.gone {
                let home = self.blocks.remove(&at).unwrap();
                self.dir.volume.buffers().forget(self.dir.volume.span(home, unit).unwrap().name());
                continue;
            }
            let Some(mut new) = slot.new.take() else { continue };
            assert_eq!(new.len(), superblock.geometry().dir_block_bytes() as usize);
            let kind = slot.seal.header().unwrap();
            let home = slot.home.unwrap_or_else(|| {
                self.next += u64::from(unit) + 1;
                let home = FsBlock(self.next);
                let place = if kind == HeaderKind::DaBlock { 16 } else { 8 };
                let address = superblock.geometry().daddr(home).unwrap().0;
                new[place..place + 8].copy_from_slice(&address.to_be_bytes());
                assert_eq!(self.blocks.insert(at, home), None);
                home
            });
            check_seal(slot.seal, &new);
            crc::seal(&mut new, kind.crc_offset());
            self.device.write_at(superblock.geometry().byte(home).unwrap(), &new).unwrap();
            slot.old = None;
            let block = self.dir.volume.make_structure(home, unit).unwrap();
            let mut guard = block.lock();
            guard.mark_all_validated();
            guard.bytes_mut().copy_from_slice(&new);
        }
        let mut fields = self.dir.fields.write();
        fields.core.size_bytes = change.inode.core.size_bytes;
        fields.core.blocks = self.blocks.len() as u64 * u64::from(unit);
        if let Fork::Local(bytes) = &change.inode.data {
            assert!(bytes.len() <= fields.core.data_fork.len());
            assert_eq!(self.blocks.len(), 0);
            fields.data = Fork::Local(Arc::clone(bytes));
            fields.core.data_format = ForkFormat::Local;
        } else {
            fields.data = Fork::Extents(extents(&self.blocks, unit).into());
            fields.core.data_format = ForkFormat::Extents;
        }
        Ok(())
    }

    fn add(&mut self, name: &[u8]) {
        let ino = 132 + self.random(50);
        let added = self.apply(|change| change.add(name, Some(Ino(ino)), FileType::Regular));
        let before = self.model.contains_key(name);
        assert_eq!(matches!(added, Err(Error::Exists)), before, "{added:?}");
        if !before {
            added.unwrap();
            self.model.insert(name.to_vec(), ino);
        }
    }

    fn remove(&mut self, name: &[u8]) {
        let Some(&ino) = self.model.get(name) else {
            let removed = self.apply(|change| change.remove(name, Ino(140)));
            return assert!(matches!(removed, Err(Error::NotFound)), "{removed:?}");
        };
        self.apply(|change| change.remove(name, Ino(ino))).unwrap();
        self.model.remove(name);
    }

    fn replace(&mut self, name: &[u8]) {
        let new = 132 + self.random(50);
        let Some(ino) = self.model.get_mut(name) else { return };
        let old = std::mem::replace(ino, new);
        self.apply(|change| change.replace(name, Ino(old), Some(Ino(new)), FileType::Regular)).unwrap();
    }

    /// As a rename does it.
    fn rename(&mut self, from: &[u8], to: &[u8]) {
        let Some(&ino) = self.model.get(from) else { return };
        if self.model.contains_key(to) {
            return;
        }
        self.apply(|change| {
            change.add(to, None, FileType::Regular)?;
            change.lead_to(to, Ino(ino), FileType::Regular)?;
            change.remove(from, Ino(ino))
        })
        .unwrap();
        self.model.remove(from);
        self.model.insert(to.to_vec(), ino);
    }

    /// The level of the root of the hash tree.
    fn level(&self) -> u16 {
        let mut change = Change::begin(&self.dir, 0).unwrap();
        let root = change.layout.index_start();
        match change.load_tree(root).unwrap() {
            TreeBlock::Node(level) => level,
            _ => 0,
        }
    }

    fn check(&mut self) {
        let mut listed = BTreeMap::new();
        dir::read_dir_live(&self.dir, DirOffset(0), &mut |entry| {
            if !matches!(entry.name, b"." | b"..") {
                assert_eq!(listed.insert(entry.name.to_vec(), entry.ino.0), None);
            }
            ControlFlow::Continue(())
        })
        .unwrap();
        assert!(listed == self.model, "{} names are listed, not {}", listed.len(), self.model.len());
        for (name, &ino) in &self.model {
            assert_eq!(dir::lookup_live(&self.dir, name).unwrap(), Some(Ino(ino)));
        }
        assert_eq!(dir::lookup_live(&self.dir, b"..").unwrap(), Some(Ino(PARENT)));
        let form = Change::begin(&self.dir, 0).unwrap().form().unwrap();
        self.forms[match form {
            Form::Short => 0,
            Form::Block => 1,
            Form::Leaf => 2,
            Form::Tree => 3,
        }] += 1;
        let fields = self.dir.fields.read();
        let superblock = self.dir.volume.superblock();
        let bytes = testing::dinode(superblock, INO, |raw| {
            raw.di_mode.set(0o040_755);
            raw.di_forkoff = 0;
            raw.di_format = if form == Form::Short { 1 } else { 2 };
            raw.di_size.set(fields.core.size_bytes);
        });
        let mut bytes = bytes;
        if let Fork::Local(content) = &fields.data {
            bytes[dinode::CORE_V3_BYTES..][..content.len()].copy_from_slice(content);
        }
        let extents = extents(&self.blocks, superblock.geometry().dir_block_fsblocks());
        let findings = directory_findings(self.device.clone(), superblock, INO, &bytes, extents);
        assert_eq!(findings, [""; 0]);
    }
}

/// The kind of block that the log calls it must be the one that it is.
fn check_seal(seal: transaction::Seal, bytes: &[u8]) {
    use transaction::Seal;
    let expected: &[u8] = match seal {
        Seal::DirBlock => b"XDB3",
        Seal::DirData => b"XDD3",
        Seal::DirFree => b"XDF3",
        Seal::DirLeaf1 => &[0x3d, 0xf1],
        Seal::DirLeafN => &[0x3d, 0xff],
        Seal::DaNode => &[0x3e, 0xbe],
        _ => panic!("{seal:?}"),
    };
    assert!(bytes.starts_with(expected) || bytes[8..].starts_with(expected), "{seal:?}");
}

fn extents(blocks: &BTreeMap<u32, FsBlock>, count: u32) -> Vec<Extent> {
    let extent = |(&at, &block)| Extent { file: FileBlock(u64::from(at)), block, count, unwritten: false };
    blocks.iter().map(extent).collect()
}

impl Inode {
    /// The directory before it has anything.
    fn read_from(superblock: &Superblock) -> Self {
        let bytes = testing::dinode(superblock, INO, |raw| {
            raw.di_mode.set(0o040_755);
            raw.di_forkoff = 0;
            raw.di_format = 1;
            raw.di_size.set(6);
            raw.di_nlink.set(2);
        });
        let core = dinode::validate(&bytes, superblock, INO).unwrap().unwrap();
        Self { ino: INO, core, data: Fork::Local(Arc::from([])), attr: None }
    }
}

/// Two names of one hash for each number.
fn colliding(number: u64) -> [Vec<u8>; 2] {
    let end = format!("{number}");
    [[b"x\x41\x01", end.as_bytes()].concat(), [b"x\x40\x81", end.as_bytes()].concat()]
}

fn name(world: &mut World, most: u64) -> Vec<u8> {
    let number = world.random(most);
    match number % 5 {
        0 => colliding(number)[(number / 5 % 2) as usize].clone(),
        // Names of one hash for as many numbers: each pair of bytes makes up for the other.
        1 => {
            let mut name = b"same".to_vec();
            for bit in 0..11 {
                let pair: &[u8] = if number >> bit & 1 == 0 { b"\x41\x01" } else { b"\x40\x81" };
                name.extend_from_slice(pair);
            }
            name
        }
        2 => format!("{number}").into_bytes(),
        3 => format!("{number:0>40}").into_bytes(),
        _ => format!("{number:0>width$}", width = 10 + (number % 240) as usize).into_bytes(),
    }
}

/// Grows to about `most` names and shrinks to none, with names removed and added all the while.
fn grow_and_shrink(world: World, most: u64, steps: u64, seed: u64) -> World {
    let mut world = world;
    world.random = seed;
    world.check();
    for step in 0..steps {
        let name = name(&mut world, most);
        let grows = step < steps / 2;
        match world.random(10) {
            0 => world.replace(&name),
            1 => {
                let to = self::name(&mut world, most);
                world.rename(&name, &to);
            }
            2..4 if grows => world.remove(&name),
            2..4 => world.add(&name),
            _ if grows => world.add(&name),
            _ => {
                let next = world.model.range(name..).next().or_else(|| world.model.iter().next());
                if let Some(name) = next.map(|(name, _)| name.clone()) {
                    world.remove(&name);
                }
            }
        }
        if step % (steps / 100) == 0 {
            world.check();
        }
    }
    while let Some(name) = world.model.keys().next().cloned() {
        world.remove(&name);
        if world.model.len() % 100 < 2 || world.model.len() < 20 {
            world.check();
        }
    }
    assert_eq!(world.blocks.len(), 0);
    world
}

#[test]
fn names_come_and_go_in_every_form() {
    let mut forms = [0; 4];
    for (block_log, most, steps, seed) in
        [(10, 30, 1000, 7), (10, 3000, 5000, 99), (12, 300, 2000, 7), (12, 6000, 8000, 7)]
    {
        let world = grow_and_shrink(World::new(block_log, 1 << 20), most, steps, seed);
        forms.iter_mut().zip(world.forms).for_each(|(sum, seen)| *sum += seen);
    }
    assert!(forms.iter().all(|&seen| seen > 0), "{forms:?}");
}

#[test]
fn a_cache_that_holds_less_than_the_directory_is_enough() {
    grow_and_shrink(World::new(10, 1), 3000, 3000, 5);
    grow_and_shrink(World::with_dir_blocks(10, 12, 1), 3000, 3000, 5);
}

/// The tree counts filesystem blocks, the index of free space directory blocks.
#[test]
fn directory_blocks_of_several_blocks_are_right_too() {
    let mut forms = [0; 4];
    for (block_log, dir_block_log, most, steps, seed) in [
        (10, 12, 300, 2000, 3),
        (10, 12, 6000, 8000, 7),
        (12, 13, 8000, 8000, 9),
        (10, 16, 30_000, 30_000, 11),
    ] {
        let world = World::with_dir_blocks(block_log, dir_block_log, 1 << 20);
        let world = grow_and_shrink(world, most, steps, seed);
        forms.iter_mut().zip(world.forms).for_each(|(sum, seen)| *sum += seen);
    }
    assert!(forms.iter().all(|&seen| seen > 0), "{forms:?}");
}

/// Blocks without a name in them stay, and get names again or are removed later.
#[test]
fn directories_that_keep_their_blocks_are_right_too() {
    for (one_in, seed) in [(1, 3), (2, 4)] {
        let mut world = World::new(10, 1 << 20);
        (world.random, world.keeps_one_in) = (seed, one_in);
        for step in 0..6000 {
            let name = name(&mut world, 2000);
            if world.random(10) < if step / 1500 % 2 == 0 { 7 } else { 2 } {
                world.add(&name);
            } else if let Some((name, _)) = world.model.range(name..).next() {
                let name = name.clone();
                world.remove(&name);
            }
            if step % 200 == 0 {
                world.check();
            }
        }
        world.check();
    }
}

/// So many that nodes are split, and joined again.
#[test]
fn a_tree_grows_to_two_levels_of_nodes_and_back() {
    const NAMES: u64 = 12_000;
    let mut world = World::new(10, 1 << 20);
    let name = |number: u64| {
        format!("{number}-{}", number.wrapping_mul(0x9E37_79B9_7F4A_7C15) % 1_000_003).into_bytes()
    };
    (0..NAMES).for_each(|number| world.add(&name(number)));
    assert_eq!(world.level(), 2);
    world.check();
    // From one end, then from all over.
    (0..NAMES / 2).for_each(|number| world.remove(&name(number)));
    world.check();
    let mut rest: Vec<_> = world.model.keys().cloned().collect();
    rest.sort_by_key(|name| crate::da::hash_name(name));
    rest.iter().step_by(2).chain(rest.iter().skip(1).step_by(2)).for_each(|name| world.remove(name));
    world.check();
    assert_eq!(world.blocks.len(), 0);
}

/// Whatever a block has in it, a plan ends, and says what is wrong if it finds that.
#[test]
fn damaged_blocks_are_answered() {
    let mut refused = 0;
    for (names, rounds) in [(60_u64, 300_u64), (300, 1000), (1500, 1500)] {
        let mut world = World::new(12, 1 << 20);
        for number in 0..names {
            world.add(&format!("{number:0>width$}", width = 5 + number as usize % 60).into_bytes());
        }
        let superblock = world.dir.volume.superblock().clone();
        let homes: Vec<_> = world.blocks.iter().map(|(&at, &home)| (at, home)).collect();
        for round in 0..rounds {
            let (at, home) = homes[(round % homes.len() as u64) as usize];
            let byte = superblock.geometry().byte(home).unwrap();
            let kind =
                if (8 << 20..16 << 20).contains(&at) { HeaderKind::DaBlock } else { HeaderKind::DirBlock };
            let mut good = vec![0; 4096];
            world.device.read_at(byte, &mut good).unwrap();
            let mut bad = good.clone();
            for _ in 0..=world.random(4) {
                // The header and the end are where most depends on each byte.
                let place = match world.random(3) {
                    0 => 48 + world.random(32),
                    1 => 4095 - world.random(40),
                    _ => world.random(4096),
                };
                bad[place as usize] = match world.random(3) {
                    0 => 0xff,
                    1 => 0,
                    _ => world.random(256) as u8,
                };
            }
            // What says whose block it is is validated with the checksum.
            bad[12..48].copy_from_slice(&good[12..48]);
            crc::seal(&mut bad, kind.crc_offset());
            let put = |bytes: &[u8]| {
                world.device.write_at(byte, bytes).unwrap();
                world.dir.volume.buffers().forget(superblock.geometry().linear(home).unwrap());
            };
            put(&bad);
            let name = world.model.keys().nth(round as usize % world.model.len()).unwrap();
            let ino = Ino(world.model[name]);
            let plans: [&Plan<'_>; 5] = [
                &|change| change.add(b"another", Some(ino), FileType::Regular),
                &|change| change.add(&[b'x'; 200], Some(ino), FileType::Regular),
                &|change| change.remove(name, ino),
                &|change| change.replace(name, ino, Some(Ino(140)), FileType::Regular),
                &|change| change.set_parent(Ino(140)),
            ];
            for plan in plans {
                let outcome = plan(&mut Change::begin(&world.dir, 0).unwrap());
                match outcome {
                    Ok(()) | Err(Error::NotFound | Error::Exists | Error::NoSpace) => {}
                    Err(Error::Corrupt(_)) => refused += 1,
                    Err(error) => panic!("{error}"),
                }
            }
            put(&good);
        }
        world.check();
    }
    assert!(refused > 300, "{refused}");
}

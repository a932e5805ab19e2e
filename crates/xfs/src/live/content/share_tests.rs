//! Files that share blocks because we let them.

use std::os::unix::fs::FileExt;
use std::process::Command;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};

use undercroft_block::testing::Rng;
use undercroft_oracle::{Image, MountMode};
use undercroft_vfs::{Credentials, Durable, Error, FallocateMode, File, FileSystem};

use super::whole_tests::{World, read};

const KINDS: [&str; 3] = ["-m rmapbt=1", "-d agcount=3 -i size=1024,nrext64=1", "-d agcount=1 -m finobt=0"];

/// The largest offset of a change.
const REACH: u64 = 600_000;

fn bytes(len: u64, salt: u8) -> Vec<u8> {
    (0..len).map(|n| (n / 512) as u8 ^ salt | 1).collect()
}

/// Extents of a file that the kernel calls shared, and all others with blocks.
fn shared_extents(image: &Image, name: &str) -> (usize, usize) {
    let mount = image.mount(MountMode::ReadOnly, "").unwrap();
    let output = Command::new("filefrag").arg("-v").arg(mount.path().join(name)).output().unwrap();
    mount.unmount().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    let extents: Vec<_> =
        said.lines().filter(|line| line.trim_start().starts_with(|c: char| c.is_ascii_digit())).collect();
    let shared = extents.iter().filter(|line| line.contains("shared")).count();
    (shared, extents.len() - shared)
}

#[test]
fn a_clone_takes_no_space_until_it_is_written_to() {
    for args in KINDS {
        let world = World::new(args, |root| std::fs::write(root.join("g"), bytes(3_000_001, 0)).unwrap());
        let free = || world.fs.statfs().unwrap().blocks_free;
        let before = free();
        world.vfs.clone_file(&Credentials::root(), "/g", "/f").unwrap();
        world.vfs.clone_file(&Credentials::root(), "/g", "/whole").unwrap();
        assert!(before - free() < 80, "{args}: {before} blocks free before, {} after", free());
        let (file, source) = (world.file("/f"), world.file("/g"));
        let (mut one, mut other) = (bytes(3_000_001, 0), bytes(3_000_001, 0));
        assert!(read(&file) == one);
        let sectors = |file: &File| file.node().attr().sectors;
        assert_eq!(sectors(&file), sectors(&source));
        let write = |file: &File, model: &mut Vec<u8>, offset: usize, len: usize| {
            let data = bytes(len as u64, 0x40);
            file.write_all_at(offset as u64, &data).unwrap();
            model.resize(model.len().max(offset + len), 0);
            model[offset..offset + len].copy_from_slice(&data);
        };
        write(&file, &mut one, 5000, 9000);
        write(&source, &mut other, 2_000_000, 4096);
        write(&file, &mut one, 2_990_000, 20_000);
        assert!(read(&file) == one && read(&source) == other, "{args}");
        assert!(matches!(source.clone_range(0, &source, 8192, 8193), Err(Error::InvalidArgument(_))));
        drop((file, source));
        let whole = bytes(3_000_001, 0);
        let image = world.verify(&[("f", &one), ("g", &other), ("whole", &whole)]);
        for name in ["f", "g"] {
            let (shared, own) = shared_extents(&image, name);
            assert!(shared > 0 && own > 0, "{args}: {name} has {shared} extents shared and {own} of its own");
        }
        assert_eq!(shared_extents(&image, "whole").1, 0, "{args}");
    }
}

#[test]
fn what_cannot_be_shared_is_refused_and_copied() {
    let world = World::new("-m reflink=0", |root| std::fs::write(root.join("g"), bytes(20_000, 0)).unwrap());
    let caller = Credentials::root();
    assert!(matches!(world.vfs.clone_file(&caller, "/g", "/f"), Err(Error::Unsupported(_))));
    assert!(matches!(world.vfs.open(&caller, "/f"), Err(Error::NotFound)));
    let (file, source) = (world.vfs.create_file(&caller, "/f").unwrap(), world.file("/g"));
    assert!(matches!(source.clone_range(0, &file, 0, 0), Err(Error::Unsupported(_))));
    assert_eq!(source.copy_range(0, &file, 0, u64::MAX / 2).unwrap(), 20_000);
    drop((file, source));
    let _ = world.verify(&[("f", &bytes(20_000, 0))]);

    let world = World::new("", |root| std::fs::write(root.join("g"), bytes(20_000, 0)).unwrap());
    let (file, source) = (world.vfs.create_file(&caller, "/f").unwrap(), world.file("/g"));
    file.write_all_at(0, &bytes(30_000, 7)).unwrap();
    let refused =
        |from, to, len| matches!(source.clone_range(from, &file, to, len), Err(Error::InvalidArgument(_)));
    assert!(refused(1, 0, 4096) && refused(0, 1, 4096) && refused(0, 0, 4097));
    // The source's end would come to lie within the target.
    assert!(refused(0, 0, 0) && refused(16_384, 0, 20_000 - 16_384));
    assert!(refused(16_384, 0, 8192) && refused(20_001, 0, 0));
    let same = |from, to, len| source.clone_range(from, &source, to, len);
    assert!(matches!(same(0, 4096, 8192), Err(Error::InvalidArgument(_))));
    assert!(matches!(world.vfs.clone_file(&caller, "/g", "/g"), Err(Error::InvalidArgument(_))));
    assert!(matches!(source.clone_range(0, &file, 1 << 62, 0), Ok(())));
    assert_eq!(file.size_bytes(), (1 << 62) + 20_000);
    assert!(matches!(source.clone_range(0, &file, i64::MAX as u64 & !4095, 0), Err(Error::FileTooLarge)));
    file.truncate(30_000).unwrap();
    // The rest of a copy is what cannot be shared.
    assert_eq!(source.copy_range(4096, &file, 8192, 10_000).unwrap(), 10_000);
    assert_eq!(source.copy_range(1, &file, 0, 3).unwrap(), 3);
    let (mut model, content) = (bytes(30_000, 7), bytes(20_000, 0));
    model[8192..18_192].copy_from_slice(&content[4096..14_096]);
    model[..3].copy_from_slice(&content[1..4]);
    assert!(read(&file) == model);
    drop((file, source));
    let _ = world.verify(&[("f", &model), ("g", &content)]);
}

/// Says so when it is dropped.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// A clone of many extents takes long. Its source can be read meanwhile, and is written to before or after all of it.
#[test]
fn the_source_of_a_clone_is_read_meanwhile_and_not_written_to() {
    const EXTENTS: u64 = 1500;
    const APART: u64 = 8192;
    const ROUNDS: u64 = 40;
    let place = |number: u64| number * APART;
    let world = World::new("", |root| {
        let file = std::fs::File::create(root.join("g")).unwrap();
        for number in 0..EXTENTS {
            file.write_all_at(&[0; 4096], place(number)).unwrap();
        }
    });
    let (source, file) = (world.file("/g"), world.vfs.create_file(&Credentials::root(), "/f").unwrap());
    let (is_cloning, is_done, read_meanwhile) =
        (AtomicBool::new(false), AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let (source, is_cloning, is_done, read_meanwhile) = (&source, &is_cloning, &is_done, &read_meanwhile);
        scope.spawn(move || {
            let mut block = [1; 4096];
            while !is_done.load(Relaxed) {
                let before = is_cloning.load(Relaxed);
                assert_eq!(source.read_at(place(EXTENTS / 2), &mut block).unwrap(), 4096);
                assert!(block == [0; 4096]);
                read_meanwhile.fetch_add(u64::from(before && is_cloning.load(Relaxed)), Relaxed);
            }
        });
        // The first block has always as high a number as the last, or a higher one.
        scope.spawn(move || {
            for number in (0_u64..).take_while(|_| !is_done.load(Relaxed)) {
                for block in [0, EXTENTS - 1] {
                    source.write_all_at(place(block), &number.to_le_bytes()).unwrap();
                }
            }
        });
        let _ends = Ends(is_done);
        for round in 0..ROUNDS {
            is_cloning.store(true, Relaxed);
            source.clone_range(0, &file, 0, 0).unwrap();
            is_cloning.store(false, Relaxed);
            let number_at = |block: u64| {
                let mut number = [0; 8];
                assert_eq!(file.read_at(place(block), &mut number).unwrap(), 8);
                u64::from_le_bytes(number)
            };
            let (first, last) = (number_at(0), number_at(EXTENTS - 1));
            assert!(first == last || first == last + 1, "{first} and {last} in one clone");
            if round >= 3 && read_meanwhile.load(Relaxed) >= 20 {
                break;
            }
        }
    });
    assert!(read_meanwhile.into_inner() >= 20);
    let (one, other) = (read(&file), read(&source));
    drop((file, source));
    let _ = world.verify(&[("f", &one), ("g", &other)]);
}

/// The cut lies in the middle of an extent, in a fork that may need a block for every extent more.
#[test]
fn a_file_is_cut_before_a_part_that_is_shared() {
    const BLOCK: u64 = 4096;
    for args in KINDS {
        let world = World::new(args, |_| {});
        let caller = Credentials::root();
        let file = world.vfs.create_file(&caller, "/f").unwrap();
        let mut model = bytes(1000 * BLOCK, 1);
        file.write_all_at(0, &model).unwrap();
        for n in 0..60 {
            file.write_all_at((2000 + 2 * n) * BLOCK, &[7; 4096]).unwrap();
        }
        let part = world.vfs.create_file(&caller, "/part").unwrap();
        file.clone_range(600 * BLOCK, &part, 0, 100 * BLOCK).unwrap();
        file.truncate(500 * BLOCK).unwrap();
        assert_eq!(file.node().attr().sectors, 500 * 8, "{args}");
        let shared = model[600 * BLOCK as usize..700 * BLOCK as usize].to_vec();
        model.truncate(500 * BLOCK as usize);
        model.extend([3; 4096]);
        file.write_all_at(500 * BLOCK, &[3; 4096]).unwrap();
        assert!(read(&file) == model && read(&part) == shared, "{args}");
        drop((file, part));
        let _ = world.verify(&[("f", &model), ("part", &shared)]);
    }
}

#[test]
fn another_name_of_a_file_is_no_clone_of_it() {
    let world = World::new("", |root| {
        std::fs::write(root.join("g"), bytes(20_000, 0)).unwrap();
        std::fs::hard_link(root.join("g"), root.join("h")).unwrap();
    });
    let cloned = world.vfs.clone_file(&Credentials::root(), "/g", "/h");
    assert!(matches!(cloned, Err(Error::InvalidArgument(_))));
    let _ = world.verify(&[("g", &bytes(20_000, 0))]);
}

/// One change of one of the files, and of what should be in them. A clone is as likely as any write.
fn change(files: &[File], models: &mut [Vec<u8>], random: &mut Rng) {
    let (at, to) = (random.below(3) as usize, random.below(3) as usize);
    let (file, size) = (&files[at], models[at].len() as u64);
    let magnitude = 1 + random.below(17);
    let (offset, len) = (random.below(REACH), 1 + random.below(1 << magnitude));
    let blocks = |bytes: u64| bytes / 4096 * 4096;
    match random.below(10) {
        0..3 => {
            let data = bytes(len, random.bits() as u8);
            file.write_all_at(offset, &data).unwrap();
            let end = (offset + len) as usize;
            models[at].resize(models[at].len().max(end), 0);
            models[at][offset as usize..end].copy_from_slice(&data);
        }
        3 => {
            file.truncate(offset).unwrap();
            models[at].resize(offset as usize, 0);
        }
        4 => {
            file.fallocate(FallocateMode::PunchHole, offset, len, true).unwrap();
            let end = models[at].len().min((offset + len) as usize);
            models[at][end.min(offset as usize)..end].fill(0);
        }
        5 => file.fallocate(FallocateMode::Allocate, offset, len, true).unwrap(),
        6 if blocks(offset) + blocks(len + 4095) < size => {
            let (from, len) = (blocks(offset), blocks(len + 4095));
            file.fallocate(FallocateMode::Collapse, from, len, false).unwrap();
            models[at].drain(from as usize..(from + len) as usize);
        }
        7 if blocks(offset) < size && size < 2 * REACH => {
            let (from, len) = (blocks(offset), blocks(len + 4095));
            file.fallocate(FallocateMode::Insert, from, len, false).unwrap();
            models[at].splice(from as usize..from as usize, vec![0; len as usize]);
        }
        _ => {
            let from = blocks(offset);
            let whole = random.below(2) == 0;
            let to_offset = if whole { blocks(random.below(REACH)) } else { random.below(REACH) };
            let copied = file.copy_range(from, &files[to], to_offset, if whole { 1 << 40 } else { len });
            let Ok(copied) = copied else {
                assert!(at == to, "{copied:?}");
                return;
            };
            let data = models[at][(from as usize).min(size as usize)..][..copied as usize].to_vec();
            if copied > 0 {
                let end = to_offset as usize + data.len();
                models[to].resize(models[to].len().max(end), 0);
                models[to][to_offset as usize..end].copy_from_slice(&data);
            }
        }
    }
}

#[test]
fn files_that_share_hold_what_was_written_to_each() {
    for args in KINDS {
        for seed in 1..3 {
            let world = World::new(args, |root| {
                for (salt, name) in ["a", "b", "c"].into_iter().enumerate() {
                    std::fs::write(root.join(name), bytes(300_000 + 5000 * salt as u64, salt as u8)).unwrap();
                }
            });
            let files = ["/a", "/b", "/c"].map(|path| world.file(path));
            let mut models: Vec<_> = files.iter().map(read).collect();
            let mut random = Rng::new(seed);
            for step in 0..400 {
                change(&files, &mut models, &mut random);
                for (file, model) in files.iter().zip(&models) {
                    assert!(read(file) == *model, "{args}, seed {seed}: differs after step {step}");
                }
                if step % 50 == 0 {
                    files[0].sync(Durable::Data).unwrap();
                }
            }
            drop(files);
            let _ = world.verify(&[("a", &models[0]), ("b", &models[1]), ("c", &models[2])]);
        }
    }
}

/// Threads clone files to and fro while others write parts of them. Each file's bytes are those of one writer, a block each.
#[test]
fn threads_clone_files_that_others_write() {
    const BLOCKS: u64 = 64;
    let world = World::new("-m rmapbt=1", |root| {
        for name in ["a", "b"] {
            std::fs::write(root.join(name), vec![1; BLOCKS as usize * 4096]).unwrap();
        }
    });
    std::thread::scope(|scope| {
        let world = &world;
        for thread in 0..4_u64 {
            scope.spawn(move || {
                let mut random = Rng::new(thread + 1);
                let (a, b) = (world.file("/a"), world.file("/b"));
                let (from, to) = if thread % 2 == 0 { (&a, &b) } else { (&b, &a) };
                for _ in 0..300 {
                    let block = random.below(BLOCKS);
                    let count = 1 + random.below(BLOCKS - block);
                    if thread < 2 {
                        from.clone_range(block * 4096, to, block * 4096, count * 4096).unwrap();
                    } else {
                        let byte = random.bits() as u8;
                        from.write_all_at(block * 4096, &[byte; 4096]).unwrap();
                        let mut found = [0; 4096];
                        assert_eq!(to.read_at(block * 4096, &mut found).unwrap(), 4096);
                        assert!(found.iter().all(|byte| *byte == found[0]));
                    }
                }
            });
        }
    });
    let found = ["/a", "/b"].map(|path| read(&world.file(path)));
    let _ = world.verify(&[("a", &found[0]), ("b", &found[1])]);
}

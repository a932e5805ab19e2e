//! The write side, against a filesystem that asserts the contract and a model that is a vector of bytes.

mod strict_fs;

use std::sync::Arc;
use std::thread;

use proptest::prelude::*;

use self::strict_fs::{BLOCK, Home, LIMIT, StrictFs};
use crate::{Durable, Error, FallocateMode, File, Ino, InodeFlags, Vfs, VfsOptions};

/// The largest offset or length that tests use, in bytes.
const SPACE: u64 = 20 * BLOCK;

struct Mounted {
    fs: Arc<StrictFs>,
    vfs: Arc<Vfs>,
    files: [File; 2],
}

fn mount(fs: StrictFs) -> Mounted {
    let fs = Arc::new(fs);
    let vfs = Vfs::new(Arc::clone(&fs) as _, VfsOptions::default());
    let files = [10, 11].map(|ino| vfs.open_node_for_writing(&vfs.node(Ino(ino)).unwrap()).unwrap());
    Mounted { fs, vfs, files }
}

fn content(file: &File) -> Vec<u8> {
    let mut bytes = vec![0xa5; file.node().attr().size_bytes as usize];
    assert_eq!(file.read_at(0, &mut bytes).unwrap(), bytes.len());
    bytes
}

#[derive(Clone, Copy, Debug)]
enum Change {
    Write(u64, u64),
    Append(u64),
    Truncate(u64),
    Space(FallocateMode, u64, u64, bool),
    /// From the file to itself or to the other.
    Copy(u64, bool, u64, u64),
    /// Blocks from the file to the other, as far as both go.
    Share(u64, u64, u64),
}

fn change() -> impl Strategy<Value = (usize, Change)> {
    let place = || prop_oneof![0..SPACE, (0..SPACE / BLOCK).prop_map(|block| block * BLOCK)];
    let len = || prop_oneof![1..50_u64, 1..SPACE / 2, (1..8_u64).prop_map(|blocks| blocks * BLOCK)];
    let space = prop::sample::select(vec![
        FallocateMode::Allocate,
        FallocateMode::PunchHole,
        FallocateMode::Zero,
        FallocateMode::Collapse,
        FallocateMode::Insert,
    ]);
    let change = prop_oneof![
        5 => (place(), len()).prop_map(|(offset, len)| Change::Write(offset, len)),
        2 => len().prop_map(Change::Append),
        2 => place().prop_map(Change::Truncate),
        4 => (space, place(), len(), any::<bool>())
            .prop_map(|(change, offset, len, keep_size)| Change::Space(change, offset, len, keep_size)),
        3 => (place(), any::<bool>(), place(), len())
            .prop_map(|(from, same, to, len)| Change::Copy(from, same, to, len)),
        3 => (0..SPACE / BLOCK, 0..SPACE / BLOCK, 1..8_u64)
            .prop_map(|(first, at, count)| Change::Share(first, at, count)),
    ];
    (0..2_usize, change)
}

/// Bytes that are like no others, and none of them zero or litter.
fn bytes(round: usize, len: u64) -> Vec<u8> {
    (0..len).map(|at| 1 + ((round as u64 * 37 + at) % 200) as u8).collect()
}

/// Stores bytes at a place, growing the vector with zeroes.
fn store(model: &mut Vec<u8>, offset: u64, bytes: &[u8]) {
    let end = offset as usize + bytes.len();
    if model.len() < end {
        model.resize(end, 0);
    }
    model[offset as usize..end].copy_from_slice(bytes);
}

/// What a change of space makes of a file; `None` for one that is refused.
fn change_model(
    model: &mut Vec<u8>,
    change: FallocateMode,
    offset: u64,
    len: u64,
    keep_size: bool,
) -> Option<()> {
    let (size, end) = (model.len(), (offset + len) as usize);
    let (from, inside) = ((offset as usize).min(size), end.min(size));
    let aligned = offset.is_multiple_of(BLOCK) && len.is_multiple_of(BLOCK);
    match change {
        FallocateMode::Allocate => {}
        FallocateMode::Zero | FallocateMode::PunchHole => model[from..inside].fill(0),
        FallocateMode::Collapse if aligned && end < size => drop(model.drain(from..end)),
        FallocateMode::Insert if aligned && (offset as usize) < size => {
            drop(model.splice(from..from, vec![0; len as usize]));
        }
        FallocateMode::Collapse | FallocateMode::Insert => return None,
    }
    if matches!(change, FallocateMode::Allocate | FallocateMode::Zero) && !keep_size && end > model.len() {
        model.resize(end, 0);
    }
    Some(())
}

/// Does the same to the files and the models, and compares the answers.
fn apply(mounted: &Mounted, models: &mut [Vec<u8>; 2], round: usize, number: usize, change: Change) {
    let file = &mounted.files[number];
    match change {
        Change::Write(offset, len) => {
            let data = bytes(round, len);
            let written = short_only_without_space(mounted, file.write_at(offset, &data), len as usize);
            if written > 0 {
                store(&mut models[number], offset, &data[..written]);
            }
        }
        Change::Append(len) => {
            let data = bytes(round, len);
            let end = models[number].len() as u64;
            let written = file.append(&data).map(|(offset, written)| {
                assert_eq!(offset, end);
                written
            });
            let written = short_only_without_space(mounted, written, data.len());
            store(&mut models[number], end, &data[..written]);
        }
        Change::Truncate(size) => {
            match file.truncate(size) {
                // Bytes may have to move out of the inode.
                Err(Error::NoSpace) => assert_eq!(mounted.fs.free_blocks(), 0),
                truncated => {
                    truncated.unwrap();
                    models[number].resize(size as usize, 0);
                }
            }
        }
        Change::Space(change, offset, len, keep_size) => {
            let mut changed = models[number].clone();
            let expected = change_model(&mut changed, change, offset, len, keep_size);
            match (file.fallocate(change, offset, len, keep_size), expected) {
                (Ok(()), Some(())) => models[number] = changed,
                (Err(Error::InvalidArgument(_)), None) => {}
                (Err(Error::NoSpace), Some(())) => assert_eq!(mounted.fs.free_blocks(), 0),
                (got, expected) => panic!("{got:?}, expected {expected:?}"),
            }
        }
        Change::Share(first, at, count) => share(mounted, models, number, first, at, count),
        Change::Copy(from, same, to, len) => {
            let other = if same { number } else { 1 - number };
            let size = models[number].len() as u64;
            let len = len.min(size.saturating_sub(from));
            let copied =
                file.copy_range(from, &mounted.files[other], to, len + SPACE * u64::from(from + len == size));
            if len > 0 && same && from.abs_diff(to) < len {
                assert!(matches!(copied, Err(Error::InvalidArgument(_))), "{copied:?}");
                return;
            }
            let copied =
                short_only_without_space(mounted, copied.map(|copied| copied as usize), len as usize);
            if copied > 0 {
                let bytes = models[number][from as usize..][..copied].to_vec();
                store(&mut models[other], to, &bytes);
            }
        }
    }
}

/// Shares blocks that lie within the sizes of both files, where they are on a device.
fn share(mounted: &Mounted, models: &mut [Vec<u8>; 2], from: usize, first: u64, at: u64, count: u64) {
    let blocks = |model: &[u8]| model.len() as u64 / BLOCK;
    let count = count
        .min(blocks(&models[from]).saturating_sub(first))
        .min(blocks(&models[1 - from]).saturating_sub(at));
    if mounted.fs.can_share() && count > 0 {
        mounted.fs.share(from, first, at, count);
        let range = |block: u64| (block * BLOCK) as usize..((block + count) * BLOCK) as usize;
        let bytes = models[from][range(first)].to_vec();
        models[1 - from][range(at)].copy_from_slice(&bytes);
    }
}

/// How many bytes were moved: all, or fewer because there is no space.
fn short_only_without_space(mounted: &Mounted, moved: crate::Result<usize>, len: usize) -> usize {
    let moved = match moved {
        Err(Error::NoSpace) => 0,
        moved => moved.unwrap(),
    };
    assert!(moved == len || (moved < len && mounted.fs.free_blocks() == 0), "{moved} of {len}");
    moved
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]
    #[test]
    fn agrees_with_the_model(
        home in prop::sample::select(vec![Home::Device, Home::Memory]),
        blocks in prop_oneof![4 => Just(400_u64), 1 => 1..30_u64],
        inline in prop::option::of(1..40_u64),
        changes in prop::collection::vec(change(), 1..40),
    ) {
        let mounted = mount(StrictFs::new(home, blocks));
        let mut models = [Vec::new(), Vec::new()];
        if let Some(len) = inline {
            models[0] = bytes(99, len);
            mounted.fs.file(0).set_inline(&models[0]);
        }
        for (round, (number, change)) in changes.into_iter().enumerate() {
            apply(&mounted, &mut models, round, number, change);
            for (file, model) in mounted.files.iter().zip(&models) {
                prop_assert_eq!(&content(file), model);
            }
        }
    }
}

#[test]
fn what_was_written_before_is_overwritten_in_place() {
    for home in [Home::Device, Home::Memory] {
        let Mounted { fs, files: [file, _], .. } = mount(StrictFs::new(home, 400));
        file.write_at(0, &bytes(1, SPACE)).unwrap();
        let (prepared, finished) = fs.file(0).calls();
        assert!(prepared > 0 && finished > 0);
        for (offset, len) in [(0, SPACE), (3, 10), (BLOCK - 1, 2), (100, SPACE - 100)] {
            assert_eq!(file.write_at(offset, &bytes(2, len)).unwrap(), len as usize);
        }
        let after = fs.file(0).calls();
        assert_eq!(after.0, prepared, "an overwrite was prepared");
        assert!(after.1 >= finished + 4);
    }
}

#[test]
fn a_copy_keeps_holes() {
    let Mounted { files: [one, two], .. } = mount(StrictFs::new(Home::Device, 400));
    one.write_at(5 * BLOCK, &[7; 10]).unwrap();
    one.truncate(1 << 35).unwrap();
    two.write_at(0, &[9; 100]).unwrap();
    assert_eq!(one.copy_range(0, &two, 50, u64::MAX).unwrap(), 1 << 35);
    assert_eq!(two.node().attr().size_bytes, (1 << 35) + 50);
    let mut start = [1; 400];
    two.read_at(0, &mut start).unwrap();
    let expected = [vec![9; 50], vec![0; 5 * BLOCK as usize], vec![7; 10], vec![0; 20]].concat();
    assert_eq!(start, expected[..400]);
    // The block at 50 was there, and the ten bytes; nothing else was allocated.
    assert_eq!(two.seek_hole(0).unwrap(), 2 * BLOCK);
    let data = two.seek_data(2 * BLOCK).unwrap();
    assert_eq!(data / BLOCK, (50 + 5 * BLOCK) / BLOCK);
    assert!(matches!(two.seek_data(two.seek_hole(data).unwrap()), Err(Error::NoSuchOffset)));
}

#[test]
fn numbers_near_the_limit() {
    let Mounted { files: [file, other], .. } = mount(StrictFs::new(Home::Device, 400));
    assert_eq!(file.write_at(LIMIT - 3, b"12345").unwrap(), 3);
    assert!(matches!(file.append(b"1"), Err(Error::FileTooLarge)));
    for offset in [LIMIT, u64::MAX] {
        assert!(matches!(file.write_at(offset, b"1"), Err(Error::FileTooLarge)));
        assert!(matches!(file.truncate(offset.saturating_add(1)), Err(Error::FileTooLarge)));
        assert!(matches!(file.copy_range(LIMIT - 3, &other, offset, 9), Err(Error::FileTooLarge)));
    }
    assert_eq!(file.write_at(u64::MAX, b"").unwrap(), 0);
    assert_eq!(file.copy_range(LIMIT - 3, &other, LIMIT - 2, u64::MAX).unwrap(), 2);
    assert_eq!(file.copy_range(LIMIT, &other, 0, 1).unwrap(), 0);
    for (change, offset, len) in [
        (FallocateMode::Allocate, LIMIT, 1),
        (FallocateMode::PunchHole, u64::MAX, u64::MAX),
        (FallocateMode::Insert, 0, BLOCK),
    ] {
        assert!(matches!(file.fallocate(change, offset, len, true), Err(Error::FileTooLarge)));
    }
    assert!(matches!(file.fallocate(FallocateMode::Zero, 5, 0, false), Err(Error::InvalidArgument(_))));
}

#[test]
fn writing_is_permitted_at_opening_and_by_flags() {
    let mut fs = StrictFs::new(Home::Device, 400);
    fs.read_only = true;
    let vfs = Vfs::new(Arc::new(fs), VfsOptions::default());
    let node = vfs.node(Ino(10)).unwrap();
    assert!(matches!(vfs.open_node_for_writing(&node), Err(Error::ReadOnly)));

    let Mounted { fs, vfs, files: [file, other] } = mount(StrictFs::new(Home::Device, 400));
    file.append(b"first").unwrap();
    let reader = vfs.open_node(file.node()).unwrap();
    for refused in [reader.write_at(0, b"x"), reader.append(b"x").map(|(_, len)| len)] {
        assert!(matches!(refused, Err(Error::InvalidArgument(_))));
    }
    assert!(matches!(reader.truncate(0), Err(Error::InvalidArgument(_))));

    fs.file(0).set_flags(InodeFlags::APPEND);
    let appending = vfs.open_node_for_writing(file.node()).unwrap();
    assert_eq!(appending.append(b", second").unwrap(), (5, 8));
    for refused in [
        appending.write_at(0, b"x").map(drop),
        appending.write_at(13, b"x").map(drop),
        appending.truncate(13),
        appending.fallocate(FallocateMode::PunchHole, 0, 10, true),
        other.append(b"x").and_then(|_| other.copy_range(0, &appending, 13, 1)).map(drop),
    ] {
        assert!(matches!(refused, Err(Error::NotPermitted)), "{refused:?}");
    }
    appending.fallocate(FallocateMode::Allocate, 0, 100, true).unwrap();

    fs.file(0).set_flags(InodeFlags::IMMUTABLE);
    assert!(matches!(vfs.open_node_for_writing(file.node()), Err(Error::NotPermitted)));
    assert!(matches!(appending.append(b"x"), Err(Error::NotPermitted)));
    assert_eq!(content(&file), b"first, second");
}

#[test]
fn privilege_bits_fall() {
    let Mounted { fs, files: [file, _], .. } = mount(StrictFs::new(Home::Device, 400));
    for (before, after) in
        [(0o6755, 0o755), (0o4644, 0o644), (0o2644, 0o2644), (0o3711, 0o1711), (0o755, 0o755)]
    {
        let permissions = Some(before);
        file.node().inode().set_attr(&crate::AttrChange { permissions, ..Default::default() }).unwrap();
        file.drop_privilege_bits().unwrap();
        assert_eq!(file.node().attr().permissions, after);
    }
    file.sync(Durable::Everything).unwrap();
    assert_eq!(fs.file(0).calls(), (0, 0));
}

#[test]
fn long_writes_that_begin_and_end_within_blocks() {
    let Mounted { files: [file, _], .. } = mount(StrictFs::new(Home::Device, 60_000));
    let data = bytes(5, (3 << 20) + 13);
    assert_eq!(file.write_at(1001, &data).unwrap(), data.len());
    let read = content(&file);
    assert!(read[..1001].iter().all(|&byte| byte == 0) && read[1001..] == data);
}

#[test]
fn appends_of_several_threads_never_meet() {
    let Mounted { files: [file, _], .. } = mount(StrictFs::new(Home::Device, 4000));
    const RECORD: usize = 37;
    let landed: Vec<(u64, u8)> = thread::scope(|scope| {
        let append = |thread: u8| {
            let file = &file;
            move || -> Vec<(u64, u8)> {
                let record = |round: u8| thread * 50 + round;
                let append = |round| file.append(&[record(round); RECORD]).unwrap();
                (0..50).map(|round| (append(round).0, record(round))).collect()
            }
        };
        let threads: Vec<_> = (0..4).map(|thread| scope.spawn(append(thread))).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    let bytes = content(&file);
    assert_eq!(bytes.len(), 4 * 50 * RECORD);
    for (offset, byte) in landed {
        assert!(bytes[offset as usize..][..RECORD].iter().all(|&other| other == byte), "record {byte}");
    }
}

/// Neighbours in one block, which was never written: the write that fills it up first must not overwrite the others.
#[test]
fn writes_of_several_threads_into_the_same_hole_lose_nothing() {
    const STRIPE: u64 = 13;
    const THREADS: u64 = 4;
    for home in [Home::Device, Home::Memory] {
        for _ in 0..20 {
            let Mounted { files: [file, _], .. } = mount(StrictFs::new(home, 400));
            let size = 60 * BLOCK / STRIPE * STRIPE;
            file.truncate(size).unwrap();
            thread::scope(|scope| {
                for thread in 0..THREADS {
                    let file = &file;
                    scope.spawn(move || {
                        for stripe in (thread..size / STRIPE).step_by(THREADS as usize) {
                            let data = [1 + (stripe % 200) as u8; STRIPE as usize];
                            assert_eq!(file.write_at(stripe * STRIPE, &data).unwrap(), data.len());
                        }
                    });
                }
            });
            for (at, byte) in (0..).zip(content(&file)) {
                assert_eq!(byte, 1 + (at / STRIPE % 200) as u8, "byte {at}");
            }
        }
    }
}

#[test]
fn copies_in_both_directions_at_once_end() {
    let Mounted { files: [one, two], .. } = mount(StrictFs::new(Home::Device, 400));
    for file in [&one, &two] {
        file.append(&bytes(3, SPACE)).unwrap();
    }
    thread::scope(|scope| {
        for (from, to) in [(&one, &two), (&two, &one), (&one, &one)] {
            scope.spawn(move || {
                for _ in 0..500 {
                    assert_eq!(from.copy_range(0, to, SPACE / 2, SPACE / 2).unwrap(), SPACE / 2);
                }
            });
        }
    });
    assert_eq!(content(&one)[..SPACE as usize / 2], bytes(3, SPACE / 2));
}

/// The other file keeps its bytes, whatever is written to this one and however little of a block.
#[test]
fn a_write_over_shared_bytes_goes_elsewhere() {
    let Mounted { fs, files: [one, two], .. } = mount(StrictFs::new(Home::Device, 400));
    let old = bytes(1, SPACE);
    one.write_at(0, &old).unwrap();
    two.truncate(SPACE).unwrap();
    fs.share(0, 0, 0, SPACE / BLOCK);
    let (prepared, _) = fs.file(1).calls();
    assert!(content(&two) == old);
    let mut new = old.clone();
    for (offset, len) in [(3, 10), (BLOCK - 1, 2), (4 * BLOCK, BLOCK), (6 * BLOCK + 5, 5 * BLOCK)] {
        let data = bytes(2, len);
        assert_eq!(two.write_at(offset, &data).unwrap(), len as usize);
        store(&mut new, offset, &data);
        assert!(content(&one) == old && content(&two) == new, "{len} bytes at {offset}");
    }
    assert!(fs.file(1).calls().0 > prepared);
    // What was copied is the file's own.
    let (prepared, _) = fs.file(1).calls();
    two.write_at(5, b"again").unwrap();
    store(&mut new, 5, b"again");
    assert_eq!(fs.file(1).calls().0, prepared);
    // The rest of a shared block past the end is cleared before the end moves, in a copy.
    two.truncate(15 * BLOCK + 7).unwrap();
    two.truncate(SPACE).unwrap();
    new[(15 * BLOCK + 7) as usize..].fill(0);
    assert!(content(&one) == old && content(&two) == new);
}

//! Files of a tmpfs through the vfs: what a vector of bytes does, in as much space as there is and no more.

use std::sync::Arc;
use std::thread;

use proptest::prelude::*;
use undercroft_tmpfs::{Tmpfs, TmpfsOptions};
use undercroft_vfs::{Credentials, Error, FallocateMode, File, NewObject, Vfs, VfsOptions};

const PAGE: u64 = 4096;

/// The largest offset or length that tests use, in bytes: more than one chunk of pages.
const SPACE: u64 = 100 * PAGE;

/// A new filesystem of so many pages, and a file in it.
fn mount(pages: u64) -> (Arc<Vfs>, File) {
    let options = TmpfsOptions { size_bytes: Some(pages * PAGE), ..TmpfsOptions::default() };
    let vfs = Vfs::new(Tmpfs::new(&options).unwrap(), VfsOptions::default());
    vfs.create(&Credentials::root(), &vfs.root().unwrap(), b"file", &NewObject::file(0o640)).unwrap();
    let file = vfs.open_for_writing(&Credentials::root(), b"/file").unwrap();
    (vfs, file)
}

fn content(file: &File) -> Vec<u8> {
    let mut bytes = vec![0xa5; file.node().attr().size_bytes as usize];
    assert_eq!(file.read_at(0, &mut bytes).unwrap(), bytes.len());
    bytes
}

fn pages_free(vfs: &Vfs) -> u64 {
    vfs.filesystem().statfs().unwrap().blocks_free
}

#[derive(Clone, Copy, Debug)]
enum Change {
    Write(u64, u64),
    Append(u64),
    Truncate(u64),
    Punch(u64, u64),
    Zero(u64, u64),
    Collapse(u64, u64),
    Insert(u64, u64),
    Copy(u64, u64, u64),
}

fn change() -> impl Strategy<Value = Change> {
    let place = || prop_oneof![0..SPACE, (0..SPACE / PAGE).prop_map(|page| page * PAGE)];
    let len = || prop_oneof![1..10_000_u64, 1..SPACE / 2];
    let pages = || (0..SPACE / PAGE, 1..30_u64).prop_map(|(first, count)| (first * PAGE, count * PAGE));
    prop_oneof![
        4 => (place(), len()).prop_map(|(offset, len)| Change::Write(offset, len)),
        2 => len().prop_map(Change::Append),
        2 => place().prop_map(Change::Truncate),
        2 => (place(), len()).prop_map(|(offset, len)| Change::Punch(offset, len)),
        1 => (place(), len()).prop_map(|(offset, len)| Change::Zero(offset, len)),
        1 => pages().prop_map(|(offset, len)| Change::Collapse(offset, len)),
        1 => pages().prop_map(|(offset, len)| Change::Insert(offset, len)),
        2 => (place(), place(), len()).prop_map(|(from, to, len)| Change::Copy(from, to, len)),
    ]
}

fn store(model: &mut Vec<u8>, offset: u64, bytes: &[u8]) {
    let (from, to) = (offset as usize, offset as usize + bytes.len());
    model.resize(model.len().max(to), 0);
    model[from..to].copy_from_slice(bytes);
}

/// How many bytes were moved: all, or fewer because there is no space.
fn moved(vfs: &Vfs, answer: Result<u64, Error>, len: u64) -> u64 {
    let moved = match answer {
        Err(Error::NoSpace) => 0,
        answer => answer.unwrap(),
    };
    assert!(moved == len || (moved < len && pages_free(vfs) == 0), "{moved} of {len}");
    moved
}

fn apply(vfs: &Vfs, file: &File, model: &mut Vec<u8>, round: usize, change: Change) {
    let size = model.len() as u64;
    let bytes =
        |len: u64| -> Vec<u8> { (0..len).map(|at| 1 + ((round as u64 * 37 + at) % 250) as u8).collect() };
    match change {
        Change::Write(offset, len) => {
            let data = bytes(len);
            let len = moved(vfs, file.write_at(offset, &data).map(|len| len as u64), len);
            if len > 0 {
                store(model, offset, &data[..len as usize]);
            }
        }
        Change::Append(len) => {
            let data = bytes(len);
            let appended = file.append(&data).map(|(offset, len)| {
                assert_eq!(offset, size);
                len as u64
            });
            let len = moved(vfs, appended, len);
            store(model, size, &data[..len as usize]);
        }
        Change::Truncate(size) => {
            file.truncate(size).unwrap();
            model.resize(size as usize, 0);
        }
        Change::Punch(offset, len) => {
            file.fallocate(FallocateMode::PunchHole, offset, len, true).unwrap();
            model[offset.min(size) as usize..(offset + len).min(size) as usize].fill(0);
        }
        Change::Zero(offset, len) => match file.fallocate(FallocateMode::Zero, offset, len, false) {
            Err(Error::NoSpace) => {}
            zeroed => {
                zeroed.unwrap();
                store(model, offset, &vec![0; len as usize]);
            }
        },
        Change::Collapse(offset, len) if offset + len < size => {
            file.fallocate(FallocateMode::Collapse, offset, len, true).unwrap();
            model.drain(offset as usize..(offset + len) as usize);
        }
        Change::Insert(offset, len) if offset < size => {
            file.fallocate(FallocateMode::Insert, offset, len, true).unwrap();
            model.splice(offset as usize..offset as usize, vec![0; len as usize]);
        }
        Change::Collapse(offset, len) => {
            let refused = file.fallocate(FallocateMode::Collapse, offset, len, true);
            assert!(matches!(refused, Err(Error::InvalidArgument(_))), "{refused:?}");
        }
        Change::Insert(offset, len) => {
            let refused = file.fallocate(FallocateMode::Insert, offset, len, true);
            assert!(matches!(refused, Err(Error::InvalidArgument(_))), "{refused:?}");
        }
        Change::Copy(from, to, len) => {
            let len = len.min(size.saturating_sub(from));
            let copied = file.copy_range(from, file, to, len);
            if len > 0 && from.abs_diff(to) < len {
                assert!(matches!(copied, Err(Error::InvalidArgument(_))), "{copied:?}");
            } else {
                let len = moved(vfs, copied, len) as usize;
                if len > 0 {
                    let bytes = model[from as usize..][..len].to_vec();
                    store(model, to, &bytes);
                }
            }
        }
    }
}

proptest! {
    #[test]
    fn agrees_with_a_vector_of_bytes(
        pages in prop_oneof![Just(1000_u64), 1..100_u64],
        changes in prop::collection::vec(change(), 1..25),
    ) {
        let (vfs, file) = mount(pages);
        let mut model = Vec::new();
        for (round, change) in changes.into_iter().enumerate() {
            apply(&vfs, &file, &mut model, round, change);
            prop_assert!(content(&file) == model, "after change {}: {:?}", round, change);
            let sectors = file.node().attr().sectors;
            prop_assert_eq!(sectors * 512, (pages - pages_free(&vfs)) * PAGE);
        }
        // An open file outlives its name, and its space goes with its last handle.
        vfs.unlink(&Credentials::root(), &vfs.root().unwrap(), b"file").unwrap();
        prop_assert!(content(&file) == model);
        drop(file);
        prop_assert_eq!(pages_free(&vfs), pages);
    }
}

#[test]
fn a_user_without_write_permission_cannot_open_for_writing() {
    let (vfs, _) = mount(10);
    let user = Credentials::user(1000, 0, vec![]);
    assert!(vfs.open(&user, b"/file").is_ok());
    assert!(matches!(vfs.open_for_writing(&user, b"/file"), Err(Error::PermissionDenied)));
    assert!(matches!(vfs.open_for_writing(&Credentials::root(), b"/"), Err(Error::IsDirectory)));
}

#[test]
fn writes_of_several_threads_lose_nothing_while_the_file_grows() {
    const RECORD: usize = 1000;
    const THREADS: usize = 4;
    const ROUNDS: usize = 300;
    let (_vfs, file) = mount(1000);
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let file = &file;
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    let number = round * THREADS + thread;
                    let data = [1 + (number % 250) as u8; RECORD];
                    assert_eq!(file.write_at((number * RECORD) as u64, &data).unwrap(), RECORD);
                }
            });
        }
    });
    let bytes = content(&file);
    assert_eq!(bytes.len(), THREADS * ROUNDS * RECORD);
    for (number, record) in bytes.chunks(RECORD).enumerate() {
        assert!(record.iter().all(|&byte| byte == 1 + (number % 250) as u8), "record {number}");
    }
}

#[test]
fn a_filesystem_shows_its_limits() {
    let options = TmpfsOptions { size_bytes: Some(10 * PAGE), ..TmpfsOptions::default() };
    let shown = format!("{:?}", Tmpfs::new(&options).unwrap());
    assert!(shown.starts_with("Tmpfs { pages: Some(10), inodes: "), "{shown}");
}

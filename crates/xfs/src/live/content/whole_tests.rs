//! Files written through the vfs on a whole filesystem, in memory: with threads, and with crashes.

use std::path::Path;
use std::sync::Arc;

use undercroft_block::testing::Rng;
use undercroft_block::{Access, Device, MemoryDevice};
use undercroft_oracle::{Image, MkfsXfs, MountMode};
use undercroft_vfs::{Credentials, Durable, Error, FallocateMode, File, FileSystem, Vfs, VfsOptions};

use crate::testing::writable::check_image;
use crate::{OpenOptions, WriteOptions, Xfs};

const KINDS: [&str; 3] =
    ["-m reflink=1,rmapbt=1", "-m reflink=0", "-m reflink=1,rmapbt=1 -i nrext64=1,size=1024 -d agcount=3"];

/// The largest offset of a change.
const REACH: u64 = 400_000;

/// What lies in blocks that belong to no file.
const OLD: u8 = 0xee;

pub(super) struct World {
    pub(super) image: Image,
    pub(super) device: Device,
    pub(super) fs: Arc<Xfs>,
    pub(super) vfs: Arc<Vfs>,
}

fn open(device: &Device) -> (Arc<Xfs>, Arc<Vfs>) {
    let fs = Xfs::open(Arc::clone(device), OpenOptions::default(), WriteOptions::default()).unwrap();
    let vfs = Vfs::new(Arc::clone(&fs) as Arc<dyn FileSystem>, VfsOptions::default());
    (fs, vfs)
}

fn bytes_of(device: &Device) -> Vec<u8> {
    let mut bytes = vec![0; device.size_bytes() as usize];
    device.read_at(0, &mut bytes).unwrap();
    bytes
}

fn in_memory(bytes: Vec<u8>) -> Device {
    Arc::new(MemoryDevice::from_bytes(bytes, Access::ReadWrite))
}

impl World {
    pub(super) fn new(args: &str, fill: impl FnOnce(&Path)) -> Self {
        let image = MkfsXfs::new(64, args).make().unwrap();
        let mount = image.mount(MountMode::ReadWrite, "").unwrap();
        fill(mount.path());
        mount.unmount().unwrap();
        Self::of(image)
    }

    /// An image that is unmounted.
    pub(super) fn of(image: Image) -> Self {
        let device = in_memory(std::fs::read(image.path()).unwrap());
        let (fs, vfs) = open(&device);
        Self { image, device, fs, vfs }
    }

    pub(super) fn file(&self, path: &str) -> File {
        self.vfs.open_for_writing(&Credentials::root(), path).unwrap()
    }

    /// Closes it, and asks xfs_repair and the kernel. Returns the image.
    pub(super) fn verify(self, files: &[(&str, &[u8])]) -> Image {
        drop(self.vfs);
        self.fs.close().unwrap();
        std::fs::write(self.image.path(), bytes_of(&self.device)).unwrap();
        check_image(&self.image);
        let mount = self.image.mount(MountMode::ReadOnly, "").unwrap();
        for (name, content) in files {
            let read = std::fs::read(mount.path().join(name)).unwrap();
            assert!(read == *content, "the kernel reads something else in {name}");
        }
        mount.unmount().unwrap();
        self.image
    }
}

/// Waits until the kernel has freed what was removed, which it does in the background.
fn wait_for_space(root: &Path) {
    for _ in 0..600 {
        let synced = std::process::Command::new("sync").arg("-f").arg(root).status();
        assert!(synced.unwrap().success());
        let probe = root.join("probe");
        let has_room = std::fs::write(&probe, [1; 1 << 20]).is_ok();
        let _ = std::fs::remove_file(&probe);
        if has_room {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    panic!("what was removed is not free after half a minute");
}

/// `f`, which shares its blocks with `g` where the filesystem can do that; their content.
fn two_files(root: &Path, shared: bool) -> Vec<u8> {
    let content: Vec<u8> = (0..300_000_u32).map(|n| (n / 512) as u8 & 0x7f).collect();
    std::fs::write(root.join("g"), &content).unwrap();
    let reflink = if shared { "--reflink=always" } else { "--reflink=never" };
    let status =
        std::process::Command::new("cp").arg(reflink).arg(root.join("g")).arg(root.join("f")).status();
    assert!(status.unwrap().success());
    content
}

/// One change of a file and of what should be in it. Bytes are below 128.
fn change(file: &File, other: &File, model: &mut Vec<u8>, other_content: &[u8], random: &mut Rng) {
    let place = |random: &mut Rng| match random.below(3) {
        0 => random.below(REACH / 4096) * 4096,
        _ => random.below(REACH),
    };
    let (offset, len) = (place(random), 1 + place(random) / 4);
    let salt = random.bits();
    let data: Vec<u8> = (0..len).map(|n| (n / 64).wrapping_add(salt) as u8 & 0x7f | 1).collect();
    let put = |model: &mut Vec<u8>, at: u64, data: &[u8]| {
        let end = at as usize + data.len();
        model.resize(model.len().max(end), 0);
        model[at as usize..end].copy_from_slice(data);
    };
    let keep_size = random.below(2) == 0;
    let size = model.len() as u64;
    let space = |mode, model: &mut Vec<u8>, offset: u64, len: u64| {
        match file.fallocate(mode, offset, len, keep_size) {
            Ok(()) => {}
            Err(Error::Unsupported(_)) => return false,
            Err(error) => panic!("{mode:?} {offset} {len}: {error}"),
        }
        if !keep_size && matches!(mode, FallocateMode::Allocate | FallocateMode::Zero) {
            model.resize(model.len().max((offset + len) as usize), 0);
        }
        true
    };
    match random.below(14) {
        0..4 => {
            file.write_all_at(offset, &data).unwrap();
            put(model, offset, &data);
        }
        4 => {
            let (at, written) = file.append(&data).unwrap();
            assert_eq!((at, written), (size, data.len()));
            put(model, at, &data);
        }
        5 => {
            file.truncate(offset).unwrap();
            model.resize(offset as usize, 0);
        }
        6 | 7 => {
            space(FallocateMode::PunchHole, model, offset, len);
            let end = model.len().min((offset + len) as usize);
            model[end.min(offset as usize)..end].fill(0);
        }
        8 => {
            space(FallocateMode::Zero, model, offset, len);
            let end = model.len().min((offset + len) as usize);
            model[end.min(offset as usize)..end].fill(0);
        }
        9 => {
            space(FallocateMode::Allocate, model, offset, len);
        }
        10 => {
            let (offset, len) = (offset / 4096 * 4096, len.next_multiple_of(4096));
            if offset + len < size && space(FallocateMode::Collapse, model, offset, len) {
                model.drain(offset as usize..(offset + len) as usize);
            }
        }
        11 => {
            let (offset, len) = (offset / 4096 * 4096, len.next_multiple_of(4096));
            if offset < size && size < 2 * REACH && space(FallocateMode::Insert, model, offset, len) {
                model.splice(offset as usize..offset as usize, vec![0; len as usize]);
            }
        }
        12 => {
            let from = random.below(other_content.len() as u64);
            let copied = other.copy_range(from, file, offset, len).unwrap();
            put(model, offset, &other_content[from as usize..][..copied as usize]);
        }
        _ => file.sync(if keep_size { Durable::Data } else { Durable::Everything }).unwrap(),
    }
}

pub(super) fn read(file: &File) -> Vec<u8> {
    let mut bytes = vec![0; file.size_bytes() as usize];
    let mut done = 0;
    while done < bytes.len() {
        let read = file.read_at(done as u64, &mut bytes[done..]).unwrap();
        assert!(read > 0);
        done += read;
    }
    bytes
}

#[test]
fn files_hold_what_the_vfs_wrote() {
    for args in KINDS {
        for seed in 1..3 {
            let mut content = Vec::new();
            let world = World::new(args, |root| content = two_files(root, args.contains("reflink=1")));
            let (file, other) = (world.file("/f"), world.file("/g"));
            let (mut model, mut random) = (content.clone(), Rng::new(seed));
            for step in 0..300 {
                change(&file, &other, &mut model, &content, &mut random);
                assert!(read(&file) == model, "{args}, seed {seed}: differs after step {step}");
            }
            assert!(read(&other) == content);
            drop((file, other));
            let _ = world.verify(&[("f", &model), ("g", &content)]);
        }
    }
}

/// Everything that was ever free holds bytes that no write makes. A crash after any change shows none of them, and all
/// that was synced before.
#[test]
fn a_crash_shows_no_old_bytes_and_all_that_was_synced() {
    for args in KINDS {
        let mut content = Vec::new();
        let world = World::new(args, |root| {
            let mut fill = std::fs::File::create(root.join("old")).unwrap();
            while std::io::Write::write(&mut fill, &[OLD; 1 << 16]).is_ok_and(|written| written > 0) {}
            let _ = fill.sync_all();
            drop(fill);
            std::fs::remove_file(root.join("old")).unwrap();
            wait_for_space(root);
            content = two_files(root, args.contains("reflink=1"));
        });
        let (file, other) = (world.file("/f"), world.file("/g"));
        let (mut model, mut random) = (content.clone(), Rng::new(7));
        for step in 0..60 {
            change(&file, &other, &mut model, &content, &mut random);
            let is_synced = step % 3 == 0;
            if is_synced {
                file.sync(Durable::Data).unwrap();
            }
            let crashed = in_memory(bytes_of(&world.device));
            let (fs, vfs) = open(&crashed);
            let found = vfs.read(&Credentials::root(), "/f").unwrap();
            assert!(!found.contains(&OLD), "{args}: old bytes after step {step}");
            assert!(!is_synced || found == model, "{args}: step {step} was synced");
            assert!(vfs.read(&Credentials::root(), "/g").unwrap() == content);
            // The file goes on growing.
            let again = vfs.open_for_writing(&Credentials::root(), "/f").unwrap();
            again.truncate(2 * REACH).unwrap();
            assert!(!read(&again).contains(&OLD), "{args}: old bytes after step {step} and growing");
            drop((again, vfs));
            fs.close().unwrap();
            if step % 10 == 0 {
                std::fs::write(world.image.path(), bytes_of(&crashed)).unwrap();
                check_image(&world.image);
            }
        }
        drop((file, other));
        let _ = world.verify(&[("f", &model), ("g", &content)]);
    }
}

/// Threads write and read parts of one file, whose blocks another file has too, and of files of their own.
#[test]
fn threads_write_shared_files_together() {
    const THREADS: usize = 4;
    const PART: usize = 75_000;
    for args in [KINDS[0], KINDS[2]] {
        let mut content = Vec::new();
        let world = World::new(args, |root| content = two_files(root, true));
        let mut model = content.clone();
        std::thread::scope(|scope| {
            let (world, content) = (&world, &content);
            for (thread, part) in model.chunks_mut(PART).enumerate().take(THREADS) {
                scope.spawn(move || {
                    let (file, mut random) = (world.file("/f"), Rng::new(thread as u64 + 1));
                    let own = world.vfs.create_file(&Credentials::root(), format!("/own{thread}")).unwrap();
                    let first = (thread * PART) as u64;
                    for round in 0..150 {
                        let from = random.below(PART as u64 - 1) as usize;
                        let to = (from + 1 + random.below(9000) as usize).min(PART);
                        let byte = random.bits() as u8 & 0x7f;
                        part[from..to].fill(byte);
                        file.write_all_at(first + from as u64, &part[from..to]).unwrap();
                        own.append(&part[from..to]).unwrap();
                        let mut found = vec![0; PART];
                        assert_eq!(file.read_at(first, &mut found).unwrap(), PART);
                        assert!(found == *part, "thread {thread}, round {round}");
                        if round % 40 == 0 {
                            file.sync(Durable::Data).unwrap();
                            own.truncate(100).unwrap();
                        }
                    }
                    let mut other = vec![0; content.len()];
                    assert_eq!(world.file("/g").read_at(0, &mut other).unwrap(), content.len());
                    assert!(other == *content);
                });
            }
        });
        let _ = world.verify(&[("f", &model), ("g", &content)]);
    }
}

//! A filesystem that has stopped, because it was shut down or because something failed: no request that changes
//! anything reaches the device afterwards, whatever is tried. Only the failure itself is recorded there, at once. A
//! panic in the middle of a change stops it too.

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use undercroft_block::testing::{Event, Recorder};
use undercroft_block::{Access, BlockDevice, Device, Error as DeviceError, MemoryDevice, Operation};
use undercroft_ext4::{Ext4, OpenOptions, State, Superblock, WriteOptions};
use undercroft_oracle::{Image, Mke2fs, Scratch};
use undercroft_sync::{Mutex, order};
use undercroft_vfs::{
    AttrChange, Credentials, Durable, Error, FallocateMode, File, FileSystem, NewKind, NewObject, NewTime,
    Node, RenameFlags, Result, Timestamp, Vfs, VfsOptions, XattrMode,
};

const BLOCK: u64 = 1024;
/// Where a failure is recorded.
const SUPERBLOCK_OFFSET: u64 = 1024;
/// What a block of the log begins with that is not a copy of another.
const LOG_MAGIC: [u8; 4] = 0xC03B_3998_u32.to_be_bytes();
/// Time enough for a thread to write a block, however busy the machine is.
const PATIENCE: Duration = Duration::from_secs(60);

/// What stops a filesystem.
#[derive(Clone, Copy, Debug)]
enum Stop {
    AtOnce,
    WithTheLog,
    Failure(Fault),
}

/// What a device does once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    FailFlush,
    PanicAtRead,
    PanicAtWrite,
}

/// Records what reaches it, has one fault when it is armed, and tells of each change that is done after that.
#[derive(Debug)]
struct Faulty {
    base: Recorder,
    armed: Mutex<Option<Fault>>,
    /// The fault that it has had, and how many events were before.
    had: OnceLock<(Fault, usize)>,
    tell: Sender<()>,
    told: Mutex<Receiver<()>>,
}

impl Faulty {
    fn new(content: Vec<u8>) -> Arc<Self> {
        let base = Recorder::new(Arc::new(MemoryDevice::from_bytes(content, Access::ReadWrite)));
        let (tell, told) = channel();
        let (armed, told) = (Mutex::new(&order::DEVICE, None), Mutex::new(&order::DEVICE, told));
        Arc::new(Self { base, armed, had: OnceLock::new(), tell, told })
    }

    fn arm(&self, fault: Fault) {
        *self.armed.lock() = Some(fault);
    }

    fn comes_to(&self, fault: Fault) -> bool {
        let comes = self.armed.lock().take_if(|armed| *armed == fault).is_some();
        if comes {
            self.had.set((fault, self.events().len())).unwrap();
        }
        comes
    }

    fn events(&self) -> Vec<Event> {
        self.base.recording().events().to_vec()
    }

    fn done(&self, result: undercroft_block::Result<()>) -> undercroft_block::Result<()> {
        if self.had.get().is_some() {
            self.tell.send(()).unwrap();
        }
        result
    }

    /// Waits until the failure is recorded in the log and in the superblock, once, in the words of `dumpe2fs`; nothing
    /// else has been written after the fault.
    #[track_caller]
    fn wait_for_record(&self, words: &[&str]) {
        let &(fault, before) = self.had.get().unwrap();
        // Two writes, each with its flush; a device of which a flush has failed is asked for no other.
        for _ in 0..if fault == Fault::FailFlush { 2 } else { 4 } {
            let told = self.told.lock().recv_timeout(PATIENCE);
            told.expect("the failure is not recorded");
        }
        let events = self.events();
        match &events[before..] {
            [Event::Write { data: log, .. }, Event::Write { offset: SUPERBLOCK_OFFSET, data }]
            | [
                Event::Write { data: log, .. },
                Event::Flush { .. },
                Event::Write { offset: SUPERBLOCK_OFFSET, data },
                Event::Flush { .. },
            ] => assert_eq!((&log[..4], data.len()), (&LOG_MAGIC[..], 1024)),
            other => panic!("not the record of a failure: {other:?}"),
        }
        let device = self.base.recording().cut(events.len()).unwrap();
        let superblock = Superblock::read(&*device).unwrap();
        assert!(superblock.state().contains(State::ERRORS));
        assert_eq!(superblock.error_count(), 1);
        let dump = Image::of_device("ext4", &*device).unwrap().superblock_dump().unwrap();
        let lines: Vec<String> =
            dump.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
        for word in words {
            assert!(lines.iter().any(|line| line == word), "no line \"{word}\": {dump}");
        }
    }
}

impl BlockDevice for Faulty {
    fn name(&self) -> String {
        self.base.name()
    }

    fn size_bytes(&self) -> u64 {
        self.base.size_bytes()
    }

    fn access(&self) -> Access {
        self.base.access()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> undercroft_block::Result<()> {
        assert!(!self.comes_to(Fault::PanicAtRead), "the device panics");
        self.base.read_at(offset, buf)
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> undercroft_block::Result<()> {
        assert!(!self.comes_to(Fault::PanicAtWrite), "the device panics");
        self.done(self.base.write_at(offset, data))
    }

    fn flush(&self) -> undercroft_block::Result<()> {
        if self.comes_to(Fault::FailFlush) {
            let (operation, device, source) = (Operation::Flush, self.name(), std::io::Error::other("lost"));
            return Err(DeviceError::Io { operation, offset: 0, len: self.size_bytes(), device, source });
        }
        self.done(self.base.flush())
    }

    fn discard(&self, offset: u64, len: u64) -> undercroft_block::Result<()> {
        self.done(self.base.discard(offset, len))
    }
}

/// A filesystem with files of all kinds, some of them in a transaction that is not committed.
struct Subject {
    device: Arc<Faulty>,
    fs: Arc<Ext4>,
    vfs: Arc<Vfs>,
    root: Arc<Node>,
    files: Vec<(&'static str, File)>,
}

fn object(kind: NewKind<'_>) -> NewObject<'_> {
    NewObject { kind, permissions: 0o644, umask: 0 }
}

fn image() -> Vec<u8> {
    let image = Mke2fs::new("ext4", 16).block_bytes(BLOCK as u32).make().unwrap();
    std::fs::read(image.path()).unwrap()
}

impl Subject {
    fn new(image: &[u8]) -> Self {
        let device = Faulty::new(image.to_vec());
        let base = Arc::clone(&device) as Device;
        let options = WriteOptions { commit_seconds: 3600, discard: true, ..WriteOptions::default() };
        let fs = Ext4::open(base, OpenOptions::default(), options).unwrap();
        let vfs = Vfs::new(Arc::clone(&fs) as Arc<dyn FileSystem>, VfsOptions::default());
        let root = vfs.root().unwrap();
        let mut subject = Self { device, fs, vfs, root, files: Vec::new() };
        subject.make("synced").write_at(0, &[1; 8000]).unwrap();
        let pieces = subject.make("pieces");
        for block in (0..8).rev() {
            pieces.write_at(block * BLOCK, &[2; BLOCK as usize]).unwrap();
        }
        subject.fs.sync().unwrap();
        subject.make("mapped").write_at(0, &[3; 8000]).unwrap();
        let unwritten = subject.make("unwritten");
        unwritten.fallocate(FallocateMode::Allocate, 0, 16 * BLOCK, false).unwrap();
        subject.make("hole").truncate(16 * BLOCK).unwrap();
        let collapsed = subject.file("pieces");
        collapsed.fallocate(FallocateMode::Collapse, BLOCK, BLOCK, false).unwrap();
        subject.make("nameless").write_at(0, &[4; 8000]).unwrap();
        subject.vfs.unlink(&Credentials::root(), &subject.root, b"nameless").unwrap();
        subject
    }

    fn make(&mut self, name: &'static str) -> &File {
        let node = self
            .vfs
            .create(&Credentials::root(), &self.root, name.as_bytes(), &object(NewKind::Regular))
            .unwrap();
        self.files.push((name, self.vfs.open_node_for_writing(&node).unwrap()));
        self.file(name)
    }

    fn file(&self, name: &str) -> &File {
        &self.files.iter().find(|(known, _)| *known == name).unwrap().1
    }

    fn stop(&self, how: Stop) {
        match how {
            Stop::AtOnce => self.fs.shut_down(false).unwrap(),
            Stop::WithTheLog => self.fs.shut_down(true).unwrap(),
            Stop::Failure(fault) => {
                self.device.arm(fault);
                assert!(matches!(self.fs.sync(), Err(Error::TurnedReadOnly(_))));
                let mut words =
                    vec!["FS Error count: 1", "First error function: undercroft", "Journal errno: -5"];
                words.extend((fault == Fault::FailFlush).then_some("First error err: EIO"));
                self.device.wait_for_record(&words);
            }
        }
    }

    /// Everything that changes something.
    fn changes(&self) -> Vec<(String, Result<()>)> {
        let who = &Credentials::root();
        let (vfs, root) = (&self.vfs, &self.root);
        let mut tried: Vec<(String, Result<()>)> = Vec::new();
        for (name, file) in &self.files {
            let mut try_it =
                |what: &str, result: Result<()>| tried.push((format!("{what} of {name}"), result));
            try_it("a write of blocks", file.write_at(0, &[9; 2 * BLOCK as usize]).map(drop));
            try_it("a write of a part", file.write_at(100, &[9; 10]).map(drop));
            try_it("a write over extents", file.write_at(10, &[9; 5 * BLOCK as usize]).map(drop));
            try_it("a long write", file.write_at(5, &[9; 40 * BLOCK as usize]).map(drop));
            try_it("an appending write", file.append(&[9; 10]).map(drop));
            try_it("a truncation", file.truncate(700));
            try_it("an extension", file.truncate(64 * BLOCK + 3));
            for change in [
                FallocateMode::PunchHole,
                FallocateMode::Zero,
                FallocateMode::Allocate,
                FallocateMode::Collapse,
            ] {
                try_it(&format!("{change:?}"), file.fallocate(change, BLOCK, BLOCK, true));
                if change != FallocateMode::Collapse {
                    try_it(&format!("{change:?} of parts"), file.fallocate(change, 10, 3 * BLOCK, false));
                }
            }
            try_it("an insertion", file.fallocate(FallocateMode::Insert, BLOCK, BLOCK, false));
            try_it("a copy", self.file("synced").copy_range(0, file, 9 * BLOCK, 3000).map(drop));
            try_it("a sync", file.sync(Durable::Everything));
            try_it("a sync of data", file.sync(Durable::Data));
            let change = AttrChange { permissions: Some(0o600), ..AttrChange::default() };
            try_it("chmod", vfs.set_attr(who, file.node(), &change));
            let set = vfs.set_xattr(who, file.node(), b"user.name", b"value", XattrMode::Set);
            try_it("setxattr", set);
        }
        let mut try_it = |what: &str, result: Result<()>| tried.push((what.to_owned(), result));
        try_it("create", vfs.create(who, root, b"new", &object(NewKind::Regular)).map(drop));
        try_it("tmpfile", vfs.tmpfile(who, root, 0o644, 0).map(drop));
        try_it("mkdir", vfs.create(who, root, b"new", &object(NewKind::Directory)).map(drop));
        try_it("link", vfs.link(who, self.file("synced").node(), root, b"new"));
        try_it("rename", vfs.rename(who, (root, b"mapped"), (root, b"hole"), RenameFlags::empty()));
        try_it("unlink", vfs.unlink(who, root, b"synced"));
        try_it("sync of the filesystem", self.fs.sync());
        try_it("trim", self.fs.trim(0..u64::MAX, 0).map(drop));
        tried
    }
}

/// What a filesystem that is opened again finds in a file; `None` if there is none.
fn found(device: &Device, name: &str) -> Option<Vec<u8>> {
    let fs = Ext4::open_read_only(Arc::clone(device), OpenOptions::default()).unwrap();
    let vfs = Vfs::new(fs as Arc<dyn FileSystem>, VfsOptions::default());
    let node = match vfs.lookup(&vfs.root().unwrap(), name.as_bytes()) {
        Err(Error::NotFound) => return None,
        node => node.unwrap(),
    };
    let mut bytes = vec![0; node.attr().size_bytes as usize];
    assert_eq!(vfs.open_node(&node).unwrap().read_at(0, &mut bytes).unwrap(), bytes.len());
    Some(bytes)
}

fn no_byte_follows(how: Stop) {
    let subject = Subject::new(&image());
    subject.stop(how);
    let before = subject.device.events().len();
    for (what, result) in subject.changes() {
        let error = result.expect_err(&what);
        let expected = match how {
            Stop::AtOnce | Stop::WithTheLog => matches!(error, Error::ShutDown),
            Stop::Failure(_) => matches!(error, Error::TurnedReadOnly(_)),
        };
        assert!(expected, "{how:?}, {what}: {error}");
        let after = subject.device.events();
        assert_eq!(after[before..], [], "{how:?}: {what} reached the device");
    }
    let Subject { device, fs, vfs, root, files } = subject;
    // The last users go, those of a file without a name too.
    drop((files, root, vfs));
    assert_eq!(fs.close().is_err(), matches!(how, Stop::Failure(_)));
    drop(fs);
    let recording = device.base.recording();
    assert_eq!(recording.events()[before..], [], "{how:?}: closing reached the device");
    let device = recording.cut(before).unwrap();
    assert_eq!(found(&device, "synced").unwrap(), [1; 8000]);
    match how {
        Stop::AtOnce => assert_eq!(found(&device, "pieces").unwrap(), [2; 8 * BLOCK as usize]),
        Stop::WithTheLog => assert_eq!(found(&device, "mapped").unwrap(), [3; 8000]),
        // The flush that failed may have come before the commit block or after it.
        Stop::Failure(_) => assert!(found(&device, "mapped").is_none_or(|bytes| bytes == [3; 8000])),
    }
}

#[test]
fn no_byte_follows_a_shutdown() {
    no_byte_follows(Stop::AtOnce);
}

#[test]
fn no_byte_follows_a_shutdown_that_flushes_the_log() {
    no_byte_follows(Stop::WithTheLog);
}

#[test]
fn after_a_failed_flush_the_record_of_the_failure_is_written_at_once_and_nothing_else() {
    no_byte_follows(Stop::Failure(Fault::FailFlush));
}

#[test]
fn after_a_panic_of_the_thread_that_commits_the_record_is_written_at_once_and_nothing_else() {
    no_byte_follows(Stop::Failure(Fault::PanicAtWrite));
}

/// Nothing is left to commit: the thread that wants everything durable flushes itself, and another records.
#[test]
fn a_failed_flush_of_a_caller_is_recorded_at_once() {
    let image = image();
    for what in [None, Some(Durable::Data), Some(Durable::Everything)] {
        let subject = Subject::new(&image);
        subject.fs.sync().unwrap();
        let events = subject.device.events().len();
        subject.device.arm(Fault::FailFlush);
        let synced = what.map_or_else(|| subject.fs.sync(), |what| subject.file("synced").sync(what));
        synced.expect_err("the flush failed");
        assert_eq!(
            subject.device.had.get(),
            Some(&(Fault::FailFlush, events)),
            "{what:?}: more than a flush"
        );
        subject.device.wait_for_record(&["FS Error count: 1", "First error err: EIO"]);
    }
}

/// The listener is called by the thread that fails, which here is the one that records the failure.
#[test]
fn a_listener_that_panics_keeps_no_failure_from_being_recorded() {
    let subject = Subject::new(&image());
    subject.fs.when_failed(Box::new(|_| panic!("the listener panics")));
    subject.stop(Stop::Failure(Fault::FailFlush));
    let error = subject.fs.sync().unwrap_err().to_string();
    assert!(error.contains("lost"), "not the first cause: {error}");
}

/// Files enough that the blocks of their inodes do not fit into the cache.
const FILES: Range<u32> = 0..2000;

fn image_of_files() -> Vec<u8> {
    let source = Scratch::new("tree").unwrap();
    FILES.for_each(|file| std::fs::write(source.path().join(file.to_string()), "content").unwrap());
    let source = source.path().to_str().unwrap().to_owned();
    let image = Mke2fs::new("ext4", 16).block_bytes(BLOCK as u32).inodes(4096).args(["-d", &source]).make();
    std::fs::read(image.unwrap().path()).unwrap()
}

#[test]
fn a_panic_in_the_middle_of_a_change_stops_the_filesystem_and_nothing_of_its_transaction_is_kept() {
    let device = Faulty::new(image_of_files());
    let options = WriteOptions { commit_seconds: 3600, ..WriteOptions::default() };
    let open = OpenOptions { buffer_bytes: 64 * BLOCK as usize, ..OpenOptions::default() };
    let fs = Ext4::open(Arc::clone(&device) as Device, open, options).unwrap();
    // The listener is called while the thread unwinds: a second panic must not end the process.
    fs.when_failed(Box::new(|_| panic!("the listener panics")));
    let vfs = Vfs::new(Arc::clone(&fs) as Arc<dyn FileSystem>, VfsOptions::default());
    let (who, root) = (&Credentials::root(), &vfs.root().unwrap());
    let nodes: Vec<_> = FILES.map(|file| vfs.lookup(root, file.to_string().as_bytes()).unwrap()).collect();
    vfs.create(who, root, b"durable", &object(NewKind::Directory)).unwrap();
    fs.sync().unwrap();
    vfs.create(who, root, b"half", &object(NewKind::Directory)).unwrap();

    // The first inode whose block has left the cache is read under the handle that changes it.
    let time = Timestamp { seconds: 1, nanoseconds: 0 };
    let change = AttrChange { modified: Some(NewTime::At(time)), ..AttrChange::default() };
    device.arm(Fault::PanicAtRead);
    let panicked = std::thread::scope(|scope| {
        let panicking = scope.spawn(|| {
            nodes.iter().position(|node| {
                catch_unwind(AssertUnwindSafe(|| vfs.set_attr(who, node, &change).unwrap())).is_err()
            })
        });
        panicking.join().unwrap()
    });
    let victim = &nodes[panicked.expect("no inode had left the cache")];

    let stopped = |what: &str, result: Result<()>| {
        let error = result.expect_err(what);
        let told = matches!(error, Error::TurnedReadOnly(_)) && error.to_string().contains("panicked");
        assert!(told, "{what}: {error}");
    };
    // From other threads, with whatever locks the panic left: each is answered.
    std::thread::scope(|scope| {
        scope.spawn(|| stopped("utimes of the same file", vfs.set_attr(who, victim, &change)));
        scope.spawn(|| stopped("utimes of another", vfs.set_attr(who, &nodes[0], &change)));
        scope.spawn(|| {
            stopped("create", vfs.create(who, root, b"new", &object(NewKind::Regular)).map(drop));
            stopped("unlink", vfs.unlink(who, root, b"7"));
            stopped("rmdir", vfs.rmdir(who, root, b"durable"));
            stopped("rename", vfs.rename(who, (root, b"1"), (root, b"2"), RenameFlags::empty()));
        });
        scope.spawn(|| {
            let file = vfs.open_node_for_writing(victim).unwrap();
            stopped("write", file.write_at(0, b"changed").map(drop));
            stopped("sync of a file", file.sync(Durable::Everything));
        });
        scope.spawn(|| stopped("sync", fs.sync()));
        scope.spawn(|| {
            let mut bytes = [0; 7];
            assert_eq!(vfs.open_node(victim).unwrap().read_at(0, &mut bytes).unwrap(), 7);
            assert_eq!(&bytes, b"content");
            assert!(vfs.lookup(root, b"half").is_ok(), "memory shows what was done");
        });
    });
    device.wait_for_record(&["FS Error count: 1", "First error function: undercroft", "Journal errno: -5"]);
    drop(nodes);
    let before = device.events().len();
    stopped("close", fs.close());
    assert_eq!(device.events()[before..], [], "closing reached the device");

    let device = device.base.recording().cut(before).unwrap();
    let fs = Ext4::open_read_only(device, OpenOptions::default()).unwrap();
    let vfs = Vfs::new(fs as Arc<dyn FileSystem>, VfsOptions::default());
    let root = vfs.root().unwrap();
    assert!(vfs.lookup(&root, b"durable").is_ok());
    assert!(matches!(vfs.lookup(&root, b"half"), Err(Error::NotFound)), "half a transaction was committed");
    for file in FILES {
        let node = vfs.lookup(&root, file.to_string().as_bytes()).unwrap();
        assert_ne!(node.attr().modified, time, "file {file}");
    }
}

/// A destructor that runs while its thread unwinds, and does all of its work, leaves nothing half done.
#[test]
fn a_panic_outside_of_a_change_stops_nothing() {
    let subject = Subject::new(&image());
    let Subject { fs, vfs, root, files, .. } = subject;
    let panicked = std::thread::scope(|scope| {
        scope
            .spawn(|| {
                // The file without a name is deleted, and what the others have reserved is given back.
                let _files = files;
                panic!("a caller panics");
            })
            .join()
    });
    assert!(panicked.is_err());
    vfs.create(&Credentials::root(), &root, b"new", &object(NewKind::Regular)).unwrap();
    fs.sync().unwrap();
    drop((root, vfs));
    fs.close().unwrap();
}

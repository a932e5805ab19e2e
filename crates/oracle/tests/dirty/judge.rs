//! What Linux makes of a dirty image, what we make of it, and whether the two agree.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use undercroft_block::{FileDevice, FileOptions};
use undercroft_ext4::{CheckOptions, Ext4, OpenOptions, RecoveryReport, WriteOptions, check};
use undercroft_oracle::{
    Differences, Error, Image, Manifest, MountMode, Result, Time, kernel_manifest, open_ext4, our_manifest,
    shown,
};

/// The flags of a directory that tell how it keeps its names: in its inode, in extents, with an index.
const LAYOUT: u32 = 0x1000_0000 | 0x8_0000 | 0x1000;

/// What we make of an image.
pub(crate) struct Ours {
    pub(crate) tree: Manifest,
    pub(crate) recovery: Option<RecoveryReport>,
    pub(crate) orphans: usize,
}

impl Ours {
    /// Opens an image and looks at everything, which must not change it.
    pub(crate) fn read(image: &Image) -> Self {
        let before = image.sha256().unwrap();
        let (fs, vfs) = open_ext4(image.path()).unwrap();
        let tree = our_manifest(&vfs).unwrap();
        let recovery = fs.recovery().copied();
        let orphans = fs.orphans().unwrap().len();
        drop((fs, vfs));
        assert_eq!(before, image.sha256().unwrap(), "reading changed the image");
        let links = links_by_subdirectories(&tree);
        for (path, entry) in tree.entries.iter().filter(|(_, entry)| entry.is_directory()) {
            assert_eq!(entry.links, links[path], "/{}: links and subdirectories", shown(path));
        }
        Self { tree, recovery, orphans }
    }

    pub(crate) fn fast_commits(&self) -> u32 {
        self.recovery.map_or(0, |report| report.fast_commits)
    }
}

/// A copy of an image, recovered by the kernel.
pub(crate) struct Recovered {
    image: Image,
    /// Earlier than everything that the recovery did, later than everything that was there.
    began: Time,
}

impl Recovered {
    /// Lets the kernel recover a copy.
    ///
    /// # Errors
    /// The kernel does not mount it.
    pub(crate) fn by_kernel(image: &Image) -> Result<Self> {
        let began = a_moment_apart();
        let copy = image.copy()?;
        // For writing: the kernel cannot replay fast commits on a read-only mount.
        copy.mount(MountMode::ReadWrite, "noatime")?.unmount()?;
        Ok(Self { image: copy, began })
    }

    /// Whether e2fsck finds nothing wrong with what the kernel made of it.
    pub(crate) fn is_sound(&self) -> bool {
        match self.image.check() {
            Ok(()) => true,
            Err(Error::ToolFailed { .. }) => false,
            Err(error) => panic!("{error}"),
        }
    }
}

/// Lets the kernel recover a copy, and compares what it then shows with what we show of the image as it is.
pub(crate) fn compare(image: &Image) -> Ours {
    let recovered = Recovered::by_kernel(image).unwrap();
    let ours = Ours::read(image);
    compare_with(&ours, &recovered);
    if ours.fast_commits() > 0 {
        recover_for_writing(image, &ours);
    }
    ours
}

/// How two trees differ of which the second may have what fast commits do not log made anew: the blocks of directories,
/// and how many blocks the maps of files take.
pub(crate) fn same_but_made_anew(before: &Manifest, after: &Manifest) -> Differences {
    let mut expected = before.clone().map(|path, entry| {
        if let Some(after) = after.entries.get(path) {
            entry.sectors = after.sectors;
            if entry.is_directory() {
                (entry.size, entry.io_bytes) = (after.size, after.io_bytes);
                entry.flags = with_layout_of(entry.flags, after.flags);
            }
        }
    });
    expected.space = after.space;
    Differences::between(&expected, after)
}

/// Recovers a copy for writing, and compares what is on the disk then with what we show of the image as it is: e2fsck
/// finds nothing wrong, nor does our check beforehand, and the kernel sees what we see.
pub(crate) fn recover_for_writing(image: &Image, ours: &Ours) {
    let device = FileDevice::open(image.path(), FileOptions::read_only()).unwrap();
    let checked = check(Arc::new(device), &CheckOptions::default()).unwrap();
    assert!(checked.is_clean() && checked.fast_commits_left_out.is_none(), "{checked:?}");
    let copy = image.copy().unwrap();
    let device = FileDevice::open(copy.path(), FileOptions::read_write()).unwrap();
    let fs = Ext4::open(Arc::new(device), OpenOptions::default(), WriteOptions::default()).unwrap();
    assert_eq!(fs.recovery().copied(), ours.recovery);
    fs.close().unwrap();
    drop(fs);
    copy.check().unwrap();
    let recovered = Ours::read(&copy);
    assert_eq!((recovered.recovery, recovered.orphans), (None, 0));
    same_but_made_anew(&ours.tree, &recovered.tree).assert_none("recovered for writing");
    let mount = copy.mount(MountMode::ReadOnly, "noatime").unwrap();
    let by_kernel = kernel_manifest(mount.path()).unwrap();
    mount.unmount().unwrap();
    Differences::between(&by_kernel, &recovered.tree)
        .assert_none("ours, recovered for writing, and the kernel");
}

/// Compares what we show with what the kernel shows after its recovery.
///
/// Three things are the kernel's own business and left out. What its recovery changes by itself it stamps with
/// the time of the recovery: a truncation that it finishes, which gives blocks back; a directory that it replays
/// fast commits into, which may grow and keep its names in another way then, and whose subdirectories it
/// miscounts. Inodes
/// that only their openers knew are freed by it, and counted by us. And fast commits do not say which blocks and
/// inodes they take from the free ones.
pub(crate) fn compare_with(ours: &Ours, recovered: &Recovered) {
    let mount = recovered.image.mount(MountMode::ReadOnly, "").unwrap();
    let mut expected = kernel_manifest(mount.path()).unwrap();
    mount.unmount().unwrap();
    let fast_commits = ours.fast_commits() > 0;
    if ours.orphans > 0 || fast_commits {
        expected.space = None;
    }
    let found = ours.tree.clone().map(|path, ours_here| {
        if let Some(theirs) = expected.entries.get(path)
            && theirs.changed.max(theirs.modified) > recovered.began
        {
            assert!(
                fast_commits || ours.orphans > 0,
                "the kernel changed something, and there was nothing to change"
            );
            (ours_here.changed, ours_here.modified) = (theirs.changed, theirs.modified);
            ours_here.sectors = theirs.sectors;
            if ours_here.is_directory() {
                ours_here.flags = with_layout_of(ours_here.flags, theirs.flags);
                (ours_here.size, ours_here.links) = (theirs.size, theirs.links);
            }
        }
    });
    Differences::between(&expected, &found).assert_none("ours against the kernel's");
}

/// What we show differently from the tree that the kernel showed when the image was copied, everything in it made
/// durable.
///
/// Fast commits do not log a directory's own inode, so it has the size, the blocks and the times of the last
/// full transaction, and of its flags those that go with them.
pub(crate) fn differences_from_live(ours: &Ours, live: Manifest) -> Differences {
    let mut expected = live.map(|path, live| {
        if live.is_directory()
            && let Some(ours) = ours.tree.entries.get(path)
        {
            (live.size, live.sectors) = (ours.size, ours.sectors);
            (live.changed, live.modified) = (ours.changed, ours.modified);
            live.flags = with_layout_of(live.flags, ours.flags);
        }
    });
    // Neither which blocks and inodes are free.
    expected.space = None;
    Differences::between(&expected, &ours.tree)
}

fn with_layout_of(flags: Option<u32>, other: Option<u32>) -> Option<u32> {
    flags.map(|flags| flags & !LAYOUT | other.unwrap_or(0) & LAYOUT)
}

/// The links that every directory must have: its name, its own dot, and one from each subdirectory.
fn links_by_subdirectories(tree: &Manifest) -> BTreeMap<Vec<u8>, u32> {
    let directories = tree.entries.iter().filter(|(_, entry)| entry.is_directory());
    let mut links: BTreeMap<Vec<u8>, u32> = directories.map(|(path, _)| (path.clone(), 2)).collect();
    let paths: Vec<Vec<u8>> = links.keys().filter(|path| !path.is_empty()).cloned().collect();
    for path in paths {
        let parent = path.iter().rposition(|byte| *byte == b'/').map_or(&[][..], |slash| &path[..slash]);
        *links.get_mut(parent).expect("a parent is a directory") += 1;
    }
    links
}

/// A time that is later than everything in the images, and earlier than everything that follows, by more than
/// the kernel's clock for files is coarse.
fn a_moment_apart() -> Time {
    const COARSE: Duration = Duration::from_millis(30);
    std::thread::sleep(COARSE);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    std::thread::sleep(COARSE);
    (now.as_secs() as i64, now.subsec_nanos())
}

//! How an image becomes dirty.

use undercroft_oracle::{
    Error, Image, Load, LoadOptions, LoopMount, Manifest, Mix, MkfsXfs, MountMode, Result, Scratch, Tool,
    kernel_manifest,
};

/// A filesystem to be left dirty.
#[derive(Debug)]
pub(crate) struct Setup {
    pub(crate) size_mib: u64,
    pub(crate) mkfs: &'static str,
    /// Bytes of the log in MiB that lies on a device of its own.
    pub(crate) log_mib: Option<u64>,
    /// Whether a directory's block has several extents, so that the kernel must not recover it.
    pub(crate) small_blocks: bool,
}

const fn setup(mkfs: &'static str) -> Setup {
    Setup { size_mib: 96, mkfs, log_mib: None, small_blocks: false }
}

const fn small_blocks(mkfs: &'static str) -> Setup {
    Setup { small_blocks: true, ..setup(mkfs) }
}

const fn sized(size_mib: u64, mkfs: &'static str) -> Setup {
    Setup { size_mib, ..setup(mkfs) }
}

/// The kinds of filesystem. The smallest logs, of 3.4 to 6 MiB, are filled several times over.
pub(crate) const SETUPS: &[Setup] = &[
    setup(""),
    setup("-m rmapbt=1"),
    small_blocks("-b size=1024 -m rmapbt=1"),
    setup("-m reflink=0,finobt=0,inobtcount=0 -i sparse=0"),
    setup("-l su=32k"),
    small_blocks("-b size=2048 -i size=1024"),
    sized(160, "-l su=256k -m rmapbt=1"),
    Setup { log_mib: Some(24), ..setup("-m rmapbt=1") },
    setup("-d agcount=1 -i nrext64=1"),
    small_blocks("-b size=1024"),
    sized(300, "-d agcount=16 -m rmapbt=1"),
    setup("-s size=4096"),
    setup("-m bigtime=0,finobt=0,inobtcount=0"),
    small_blocks("-b size=2048 -l su=4k -i nrext64=1 -m rmapbt=1"),
    setup("-i size=2048 -m rmapbt=1"),
    Setup { log_mib: Some(16), ..setup("-l su=16k") },
];

/// A filesystem that has reflinks, for images to be copied at one moment.
pub(crate) struct Bay {
    mount: LoopMount,
    _image: Image,
}

impl Bay {
    pub(crate) fn new() -> Result<Self> {
        let image = MkfsXfs::new(12 << 10, "").make()?;
        let mount = image.mount(MountMode::ReadWrite, "noatime")?;
        Ok(Self { mount, _image: image })
    }

    pub(crate) fn scratch(&self) -> Result<Scratch> {
        Scratch::within(self.mount.path(), "image")
    }
}

/// An image that was left dirty.
pub(crate) struct Dirty {
    pub(crate) image: Image,
    pub(crate) log: Option<Image>,
    /// The tree that was there, everything in it written to the log: the kernel may not recover the image.
    pub(crate) live: Option<Manifest>,
    pub(crate) small_blocks: bool,
}

/// A loop device that goes away with its value.
pub(crate) struct LoopDevice(String);

impl LoopDevice {
    pub(crate) fn of(image: &Image) -> Result<Self> {
        let device = Tool::new("losetup").args(["--find", "--show"]).arg(image.path()).run_text()?;
        Ok(Self(device.trim().to_owned()))
    }

    pub(crate) fn path(&self) -> &str {
        &self.0
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        if let Err(error) = Tool::new("losetup").arg("--detach").arg(&self.0).run() {
            eprintln!("{error}");
        }
    }
}

/// Operations before the first image is taken, and between two of them.
const FIRST: u64 = 500;
const BETWEEN: u64 = 400;

/// Images of one filesystem: two while programs write to it, and what a shutdown leaves.
pub(crate) fn make_dirty(bay: &Bay, setup: &Setup, seed: u64) -> Result<Vec<Dirty>> {
    let log = match setup.log_mib {
        Some(mib) => Some(Image::empty_in(bay.scratch()?, "xfs", mib << 20)?),
        None => None,
    };
    let log_device = log.as_ref().map(LoopDevice::of).transpose()?;
    let mut mkfs = MkfsXfs::new(setup.size_mib, setup.mkfs);
    let mut options = "noatime".to_owned();
    if let Some(device) = &log_device {
        mkfs = mkfs.arg("-l").arg(format!("logdev={}", device.path()));
        options = format!("{options},logdev={}", device.path());
    }
    let image = mkfs.make_in(bay.scratch()?)?;
    assert_eq!(is_small(&image)?, setup.small_blocks, "{setup:?}");
    let mount = image.mount(MountMode::ReadWrite, &options)?;
    let options = match seed % 2 {
        0 => LoadOptions { seed, sync_one_in: 3 + seed % 20, mix: Mix::Xfs },
        _ => LoadOptions { seed, sync_one_in: 2, mix: Mix::XfsChains },
    };
    let load = Load::start(mount.path(), options)?;
    let mut done = FIRST + seed * 37 % BETWEEN;
    load.wait_for(done as usize)?;
    let mut images = Vec::new();
    if log.is_none() && !setup.small_blocks {
        for _ in 0..2 {
            images.push(Dirty { image: image.reflink()?, log: None, live: None, small_blocks: false });
            done += BETWEEN + seed * 53 % BETWEEN;
            load.wait_for(done as usize)?;
        }
    }
    if setup.small_blocks {
        let held = load.stop()?;
        Tool::new("xfs_io").args(["-c", "syncfs"]).arg(mount.path()).run()?;
        let live = kernel_manifest(mount.path())?;
        let image = image.reflink()?;
        images.push(Dirty { image, log: None, live: Some(live), small_blocks: true });
        drop(held);
        mount.unmount()?;
        return Ok(images);
    }
    let command = if (seed / SETUPS.len() as u64).is_multiple_of(2) { "shutdown" } else { "shutdown -f" };
    Tool::new("xfs_io").args(["-x", "-c", command]).arg(mount.path()).run()?;
    drop(load.stop()?);
    mount.unmount()?;
    images.push(Dirty { image, log, live: None, small_blocks: false });
    Ok(images)
}

/// An image that had grown from five groups to eight when it was copied: its superblock still has five, its log eight
/// and changes in the new ones.
pub(crate) fn make_grown(bay: &Bay) -> Result<Dirty> {
    const TRIES: u32 = 10;
    for _ in 0..TRIES {
        let image = MkfsXfs::new(480, "-d agsize=64m,size=300m").make_in(bay.scratch()?)?;
        let mount = image.mount(MountMode::ReadWrite, "noatime")?;
        Tool::new("xfs_growfs").arg(mount.path()).run()?;
        // The kernel takes another group for each directory.
        for name in 0..48 {
            let directory = mount.path().join(format!("directory-{name}"));
            std::fs::create_dir(&directory).unwrap();
            let file = directory.join("file");
            std::fs::write(&file, vec![name; 5000]).unwrap();
        }
        Tool::new("xfs_io").args(["-c", "syncfs"]).arg(mount.path()).run()?;
        let copy = image.reflink()?;
        mount.unmount()?;
        // The kernel may have written the superblock in place already.
        if copy.xfs_number(&["sb 0", "print agcount"], "agcount")? == 5 {
            return Ok(Dirty { image: copy, log: None, live: None, small_blocks: false });
        }
    }
    Err(Error::Unfit(format!("the kernel wrote the superblock of each of {TRIES} filesystems at once")))
}

/// Whether the directory blocks are larger than the filesystem blocks.
fn is_small(image: &Image) -> Result<bool> {
    image.xfs_number(&["sb 0", "print dirblklog"], "dirblklog").map(|log| log > 0)
}

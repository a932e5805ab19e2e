//! XFS with its log on a device of its own, written by us and left as a crash leaves it: what the kernel recovers, and what
//! we do. A device that holds no log, or that of another filesystem, is refused.
//!
//! Needs root for the loop devices.

use std::sync::Arc;

use undercroft_block::{Device, FileDevice, FileOptions};
use undercroft_oracle::operations::{Abilities, Hand, OurHand, Worker};
use undercroft_oracle::{
    Differences, Image, LoopMount, Manifest, MountMode, Result, Tool, kernel_manifest, our_manifest,
};
use undercroft_vfs::{FileSystem, Vfs, VfsOptions};
use undercroft_xfs::{OpenOptions, WriteOptions, Xfs};

/// A loop device that goes away with its value.
struct Loop(String);

impl Loop {
    fn of(image: &Image) -> Self {
        let device = Tool::new("losetup").args(["--find", "--show"]).arg(image.path()).run_text().unwrap();
        Self(device.trim().to_owned())
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        if let Err(error) = Tool::new("losetup").arg("--detach").arg(&self.0).run() {
            eprintln!("{error}");
        }
    }
}

/// A filesystem and its log.
fn make(args: &str) -> (Image, Image) {
    let image = Image::empty("xfs", 300 << 20).unwrap();
    let log = Image::empty("xfs", 32 << 20).unwrap();
    let device = Loop::of(&log);
    let tool =
        Tool::new("mkfs.xfs").args(["-q", "-f", "--unsupported", "-l", &format!("logdev={}", device.0)]);
    tool.args(args.split_whitespace()).arg(image.path()).run().unwrap();
    (image, log)
}

fn open(image: &Image, log: &Image) -> undercroft_vfs::Result<Arc<Xfs>> {
    let device = |image: &Image| -> Device {
        Arc::new(FileDevice::open(image.path(), FileOptions::read_write()).unwrap())
    };
    let options = OpenOptions { log_device: Some(device(log)), ..OpenOptions::default() };
    Xfs::open(device(image), options, WriteOptions { commit_seconds: 3600, ..WriteOptions::default() })
}

fn vfs_of(fs: &Arc<Xfs>) -> Arc<Vfs> {
    Vfs::new(Arc::clone(fs) as Arc<dyn FileSystem>, VfsOptions::default())
}

/// The tree that the kernel shows once it has recovered the log, in which xfs_repair finds nothing.
fn by_kernel(image: &Image, log: &Image) -> Result<Manifest> {
    let device = Loop::of(log);
    let mount = LoopMount::new(image.path(), "xfs", MountMode::Recovering, &format!("logdev={}", device.0))?;
    let tree = kernel_manifest(mount.path())?;
    mount.unmount()?;
    Tool::new("xfs_repair").args(["-n", "-l", &device.0]).arg(image.path()).run()?;
    Ok(Manifest { space: None, ..tree })
}

#[test]
fn a_log_on_another_device_is_written_and_recovered() {
    for args in ["", "-m rmapbt=1"] {
        let (image, log) = make(args);
        for round in 1..4 {
            let fs = open(&image, &log).unwrap();
            let vfs = vfs_of(&fs);
            let abilities = Abilities {
                extents: true,
                shares: true,
                block_bytes: 4096,
                value_max_bytes: 3000,
                reach_bytes: 60_000,
            };
            let hand = OurHand::new(&vfs);
            if round == 1 {
                vfs.create_dir(&undercroft_vfs::Credentials::root(), b"/shared").unwrap();
            }
            let work =
                [Worker::ground(round)].into_iter().chain(Worker::new(round, round, abilities).take(800));
            let done = work.filter(|operation| hand.act(operation).is_ok()).count();
            assert!(done > 400, "{done} changes");
            fs.sync().unwrap();
            let expected = Manifest { space: None, ..our_manifest(&vfs).unwrap() };
            // Power is lost.
            let (crashed, crashed_log) = (image.copy().unwrap(), log.copy().unwrap());
            drop((hand, vfs));
            fs.close().unwrap();
            let theirs = by_kernel(&crashed.copy().unwrap(), &crashed_log.copy().unwrap()).unwrap();
            Differences::between(&theirs, &expected).assert_none(&format!("{args}: the kernel's recovery"));
            let fs = open(&crashed, &crashed_log).unwrap();
            assert!(fs.recovery().is_some());
            fs.close().unwrap();
            let theirs = by_kernel(&crashed, &crashed_log).unwrap();
            Differences::between(&theirs, &expected).assert_none(&format!("{args}: our recovery"));
        }
    }
}

#[test]
fn a_device_that_is_not_the_log_is_refused_and_stays_as_it_is() {
    let (image, _log) = make("");
    let (_other, of_other) = make("");
    let zeroes = Image::empty("xfs", 32 << 20).unwrap();
    for (log, said) in [(&of_other, "belongs to the filesystem"), (&zeroes, "has no record")] {
        let before = (image.sha256().unwrap(), log.sha256().unwrap());
        let error = open(&image, log).err().unwrap().to_string();
        assert!(error.contains(said), "{error}");
        assert_eq!(before, (image.sha256().unwrap(), log.sha256().unwrap()));
    }
}

//! Labels and UUIDs that we change: Linux mounts what has another UUID, and what a power cut leaves of the change; its tools
//! show what was set.

use std::fs;
use std::sync::Arc;

use undercroft_block::testing::{FailNth, Recorder, Repeat};
use undercroft_block::{Device, FileDevice, FileOptions, Operation};
use undercroft_ext4::Ext4;
use undercroft_oracle::{Image, Mke2fs, MkfsXfs, MountMode, Tool};
use undercroft_vfs::Error;
use undercroft_xfs::{NewUuid, Xfs, set_uuid};
use uuid::Uuid;

/// Tests that run at the same time have different ones: Linux mounts no XFS with the UUID of another that is mounted.
const CUT_UUIDS: [Uuid; 2] = [Uuid::from_u128(0x1111_2222), Uuid::from_u128(0x3333_4444)];
const UUIDS: [Uuid; 2] = [Uuid::from_u128(0x1234_5678_9abc), Uuid::from_u128(0xfeed_0000_0000_0001)];

/// What a disk writes at once.
const SECTOR_BYTES: u32 = 512;

fn device(image: &Image) -> Device {
    Arc::new(FileDevice::open(image.path(), FileOptions::read_write()).unwrap())
}

fn xfs_uuid(image: &Image) -> String {
    // Behind warnings of copies that differ.
    let told = image.xfs_db(&["uuid"]).unwrap();
    told.lines().find_map(|line| line.strip_prefix("UUID = ")).unwrap_or(&told).trim().to_owned()
}

/// Has the kernel write a file, and read it again.
fn use_by_kernel(image: &Image, name: &str) {
    let mount = image.mount(MountMode::ReadWrite, "").unwrap();
    fs::create_dir_all(mount.path().join("d")).unwrap();
    fs::write(mount.path().join("d").join(name), name.repeat(3000)).unwrap();
    mount.unmount().unwrap();
    let mount = image.mount(MountMode::ReadOnly, "").unwrap();
    assert_eq!(fs::read(mount.path().join("d").join(name)).unwrap(), name.repeat(3000).as_bytes());
    mount.unmount().unwrap();
}

#[test]
fn linux_goes_on_with_an_xfs_that_has_another_uuid() {
    for args in ["", "-m rmapbt=1 -s size=4096", "-d su=64k,sw=2 -l su=64k"] {
        let image = MkfsXfs::new(300, args).make().unwrap();
        let first = xfs_uuid(&image);
        use_by_kernel(&image, "before");
        for (n, uuid) in UUIDS.into_iter().enumerate() {
            set_uuid(device(&image), NewUuid::Uuid(uuid)).unwrap();
            assert_eq!(xfs_uuid(&image), uuid.to_string(), "{args}");
            image.xfs_repair_check().unwrap();
            use_by_kernel(&image, &format!("after-{n}"));
            image.xfs_repair_check().unwrap();
            // And we.
            let xfs = Xfs::open(device(&image), Default::default(), Default::default()).unwrap();
            xfs.set_label(b"another").unwrap();
            xfs.close().unwrap();
            image.xfs_repair_check().unwrap();
            use_by_kernel(&image, &format!("again-{n}"));
            assert!(image.xfs_db(&["sb 0", "version"]).unwrap().contains("META_UUID"), "{args}");
        }
        let (_, original) = set_uuid(device(&image), NewUuid::Original).unwrap();
        assert_eq!((xfs_uuid(&image), original.to_string()), (first.clone(), first));
        assert!(!image.xfs_db(&["sb 0", "version"]).unwrap().contains("META_UUID"), "{args}");
        image.xfs_repair_check().unwrap();
        use_by_kernel(&image, "restored");
        // What xfs_admin makes of it, we read and change back.
        Tool::new("xfs_admin").args(["-U", &UUIDS[0].to_string()]).arg(image.path()).run().unwrap();
        set_uuid(device(&image), NewUuid::Original).unwrap();
        image.xfs_repair_check().unwrap();
        use_by_kernel(&image, "once more");
    }
}

/// Whatever a power cut leaves, Linux mounts it, and the change can be made again.
#[test]
fn a_power_cut_leaves_an_xfs_with_the_old_uuid_or_the_new_one() {
    let image = MkfsXfs::new(300, "").make().unwrap();
    use_by_kernel(&image, "before");
    let first = xfs_uuid(&image);
    let base = FileDevice::open(image.path(), FileOptions::read_only()).unwrap();
    let recorder = Arc::new(Recorder::new(Arc::new(base)));
    set_uuid(Arc::clone(&recorder) as Device, NewUuid::Uuid(CUT_UUIDS[0])).unwrap();
    let recording = recorder.recording();
    let mut seen = [0, 0];
    for cut in 0..=recording.events().len() {
        let (left, crash) = recording.crash_in_sectors(cut, cut as u64, SECTOR_BYTES).unwrap();
        let left = Image::of_device("xfs", &*left).unwrap();
        let now = xfs_uuid(&left);
        let which = [first.clone(), CUT_UUIDS[0].to_string()].iter().position(|uuid| *uuid == now);
        seen[which.unwrap_or_else(|| panic!("cut after {cut}, {crash}: {now}"))] += 1;
        let theirs = left.copy().unwrap();
        use_by_kernel(&theirs, "after");
        set_uuid(device(&left), NewUuid::Uuid(CUT_UUIDS[1]))
            .unwrap_or_else(|error| panic!("cut after {cut}: {error}"));
        left.xfs_repair_check().unwrap_or_else(|error| panic!("cut after {cut}: {error}"));
        use_by_kernel(&left, "again");
    }
    assert!(seen[0] > 0 && seen[1] > 0, "{seen:?}");
}

/// A crash or an error has left one with the old UUID.
#[test]
fn setting_the_same_uuid_again_changes_copies_that_do_not_have_it() {
    use std::os::unix::fs::FileExt;
    let image = MkfsXfs::new(300, "").make().unwrap();
    let file = fs::File::options().read(true).write(true).open(image.path()).unwrap();
    let place = 2 * (75 << 20);
    let mut old = [0; 512];
    file.read_exact_at(&mut old, place).unwrap();
    assert_eq!(old[..4], *b"XFSB");
    let again = Uuid::from_u128(0x7777);
    set_uuid(device(&image), NewUuid::Uuid(again)).unwrap();
    file.write_all_at(&old, place).unwrap();
    image.xfs_repair_check().unwrap_err();
    assert_eq!(set_uuid(device(&image), NewUuid::Uuid(again)).unwrap(), (again, again));
    image.xfs_repair_check().unwrap();
}

/// The label has changed when a write of a copy fails: no other change follows, and the failure is told.
#[test]
fn an_ext4_whose_copies_cannot_be_written_takes_no_more_changes() {
    let image = Mke2fs::new("ext4", 64).block_bytes(1024).make().unwrap();
    let (mut refused, mut told) = (0, 0);
    for nth in 1.. {
        let copy = image.copy().unwrap();
        let failing = Arc::new(FailNth::new(device(&copy), Operation::Write, nth, Repeat::Once));
        let Ok(ext4) = Ext4::open(Arc::clone(&failing) as Device, Default::default(), Default::default())
        else {
            continue;
        };
        if failing.has_failed() {
            continue;
        }
        let changed = ext4.set_label(b"changed");
        if let Err(error) = &changed {
            refused += 1;
            told += u32::from(error.to_string().contains("not all of its copies"));
            ext4.set_label(b"more").unwrap_err();
        }
        let is_over = !failing.has_failed();
        let _ = ext4.close();
        if is_over && changed.is_ok() {
            break;
        }
    }
    assert!(told > 0 && refused >= told, "{refused}, {told}");
}

#[test]
fn an_xfs_whose_log_holds_changes_keeps_its_uuid() {
    let image = MkfsXfs::new(300, "").make().unwrap();
    let base = FileDevice::open(image.path(), FileOptions::read_only()).unwrap();
    let recorder = Arc::new(Recorder::new(Arc::new(base)));
    let device_below = Arc::clone(&recorder) as Device;
    let xfs = Xfs::open(device_below, Default::default(), Default::default()).unwrap();
    xfs.set_label(b"dirty").unwrap();
    let recording = recorder.recording();
    let (left, _) = recording.crash_in_sectors(recording.events().len(), 1, SECTOR_BYTES).unwrap();
    xfs.close().unwrap();
    let left = Image::of_device("xfs", &*left).unwrap();
    let before = left.sha256().unwrap();
    let refusal = set_uuid(device(&left), NewUuid::Uuid(UUIDS[0])).unwrap_err();
    assert!(matches!(refusal, Error::Unsupported(_)), "{refusal}");
    assert!(refusal.to_string().contains("whose log holds changes"), "{refusal}");
    assert_eq!(left.sha256().unwrap(), before);
    // The label that the log holds is one of the filesystem, for us and for Linux.
    let opened = Xfs::open_read_only(device(&left), Default::default()).unwrap();
    assert_eq!(opened.superblock().label(), b"dirty");
    drop(opened);
    left.mount(MountMode::ReadWrite, "").unwrap().unmount().unwrap();
    left.xfs_repair_check().unwrap();
    for group in 0..4 {
        let told = left.xfs_db(&[&format!("sb {group}"), "print fname"]).unwrap();
        assert!(told.contains("dirty"), "group {group}: {told}");
    }
}

#[test]
fn linux_goes_on_with_an_ext4_that_has_another_uuid() {
    for (name, mke2fs) in [
        (
            "checksums",
            Mke2fs::new("ext4", 64).block_bytes(1024).features("metadata_csum,^metadata_csum_seed"),
        ),
        ("a seed", Mke2fs::new("ext4", 64).block_bytes(1024).features("metadata_csum_seed")),
        ("no checksums", Mke2fs::new("ext4", 64).block_bytes(1024).features("^metadata_csum,^uninit_bg")),
        ("no journal", Mke2fs::new("ext4", 64).block_bytes(1024).features("^has_journal")),
        ("ext2", Mke2fs::new("ext2", 64).block_bytes(1024)),
    ] {
        let image = mke2fs.make().unwrap();
        use_by_kernel(&image, "before");
        for (n, uuid) in UUIDS.into_iter().enumerate() {
            let ext4 = Ext4::open(device(&image), Default::default(), Default::default()).unwrap();
            ext4.set_uuid(uuid).unwrap();
            ext4.set_label(b"sixteen bytes ok").unwrap();
            ext4.close().unwrap();
            let told = Tool::new("tune2fs").arg("-l").arg(image.path()).run_text().unwrap();
            assert!(told.contains(&uuid.to_string()) && told.contains("sixteen bytes ok"), "{name}: {told}");
            assert_eq!(
                told.contains("metadata_csum_seed"),
                !matches!(name, "no checksums" | "ext2"),
                "{name}: {told}"
            );
            image.check().unwrap_or_else(|error| panic!("{name}: {error}"));
            use_by_kernel(&image, &format!("after-{n}"));
            image.check().unwrap_or_else(|error| panic!("{name}: {error}"));
            // The first copy has it too.
            let copy = Tool::new("dumpe2fs").args(["-h", "-o", "superblock=8193", "-o", "blocksize=1024"]);
            let told = copy.arg(image.path()).accept(&[0, 1]).run_text().unwrap();
            assert!(told.contains(&uuid.to_string()), "{name}: {told}");
        }
    }
}

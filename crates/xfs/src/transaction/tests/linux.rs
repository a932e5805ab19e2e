//! What Linux's kernel and tools find in a log that we wrote, and what we leave them.

use std::fs;

use undercroft_oracle::MountMode;

use super::*;

/// Images whose logs take every form that is written: small and large, padded to stripe units and to sectors, of records
/// that are larger than 32 KiB.
fn forms() -> impl Iterator<Item = Image> {
    [
        (32, ""),
        (64, "-l su=32k"),
        (128, "-l su=256k"),
        (64, "-s size=4096"),
        (64, "-b size=16384 -l su=48k"),
        (200, "-l size=64m -d agcount=2"),
    ]
    .into_iter()
    .map(|(mib, args)| image(mib, args))
}

/// Three transactions: of one record, of many, and with blocks that stop being metadata.
fn work(open: &Open, first_version: u32) {
    let blocks = 150.min(u64::from(open.transactions().room() / open.volume.credit_units()) / 2);
    for (round, blocks) in [(0, 3), (1, blocks), (2, 20)] {
        let handle = open.volume.start(blocks as u32 + 1).unwrap();
        for number in 0..blocks {
            open.make(&handle, number, first_version + round);
        }
        if round == 2 {
            handle.forget(open.block(30));
            handle.forget(open.block(7));
        }
        let tid = handle.tid();
        drop(handle);
        open.commit(tid);
    }
    open.write_data(7, 77);
    open.write_data(30, 77);
}

fn check_work(open: &Open, device: &Device, first_version: u32, what: &str) {
    for number in (0..40).filter(|number| ![7, 30].contains(number)) {
        let version = first_version + if number < 20 { 2 } else { 1 };
        assert!(open.has(device, number, version), "{what}: block {number}");
    }
    for number in [7, 30] {
        assert!(
            open.on_device(device, number) == data(&open.volume, number, 77),
            "{what}: freed block {number}"
        );
    }
}

fn mount(image: &Image) {
    image.mount(MountMode::ReadWrite, "").unwrap().unmount().unwrap();
}

#[test]
fn a_log_left_by_a_crash_is_recovered_by_the_kernel_and_by_us() {
    for image in forms() {
        let device = in_memory(&image);
        let open = Open::new(Arc::clone(&device)).unwrap();
        work(&open, 10);
        let crashed = bytes_of(&device);
        let what = format!("{:?}", open.volume.superblock());
        assert!(open.on_device(&device, 1).iter().all(|&byte| byte == 0), "something came home too early");

        fs::write(image.path(), &crashed).unwrap();
        mount(&image);
        check_work(&open, &in_memory(&image), 10, &what);
        image.xfs_repair_check().unwrap();

        let ours: Device = Arc::new(MemoryDevice::from_bytes(crashed, Access::ReadWrite));
        let again = Open::new(Arc::clone(&ours)).unwrap();
        assert_eq!(again.recovery.as_ref().unwrap().transactions, 3);
        check_work(&again, &ours, 10, &what);
        again.service.close().unwrap();
        fs::write(image.path(), bytes_of(&ours)).unwrap();
        image.xfs_repair_check().unwrap();
        mount(&image);
        image.xfs_repair_check().unwrap();
    }
}

#[test]
fn a_filesystem_that_is_closed_is_clean() {
    for image in forms() {
        let device = in_memory(&image);
        for version in [10, 20] {
            let open = Open::new(Arc::clone(&device)).unwrap();
            assert!(open.recovery.is_none());
            work(&open, version);
            open.service.close().unwrap();
            let refused = open.volume.start(1).err().unwrap();
            assert!(matches!(refused, undercroft_vfs::Error::ShutDown), "{refused}");
            check_work(&open, &device, version, "closed");
            fs::write(image.path(), bytes_of(&device)).unwrap();
            image.xfs_repair_check().unwrap();
            let log =
                undercroft_oracle::Tool::new("xfs_logprint").arg("-t").arg(image.path()).run_text().unwrap();
            assert!(log.contains("<CLEAN>"), "{log}");
        }
        mount(&image);
        image.xfs_repair_check().unwrap();
        let device = in_memory(&image);
        Open::new(device).unwrap().service.close().unwrap();
    }
}

/// The log goes round several times, and each time a crash leaves another part of it. In between the kernel goes on
/// behind our log, and we behind the kernel's.
#[test]
fn a_log_that_goes_round_is_recovered_by_the_kernel() {
    for image in forms().take(4) {
        let mut device = in_memory(&image);
        let mut open = Open::new(Arc::clone(&device)).unwrap();
        let mut random = Rng::new(3);
        let most = 300.min(u64::from(open.transactions().room() / open.volume.credit_units()) / 2);
        let mut versions = vec![0; BLOCKS as usize];
        let mut version = 0;
        for round in 0..4 {
            for _ in 0..30 {
                version += 1;
                let count = 1 + random.below(most);
                let handle = open.volume.start(count as u32).unwrap();
                for number in 0..count {
                    open.make(&handle, number, version);
                    versions[number as usize] = version;
                }
                let tid = handle.tid();
                drop(handle);
                open.commit(tid);
            }
            fs::write(image.path(), bytes_of(&device)).unwrap();
            let kernels = image.copy().unwrap();
            mount(&kernels);
            kernels.xfs_repair_check().unwrap();
            let recovered = in_memory(&kernels);
            for (number, &version) in versions.iter().enumerate().filter(|(_, version)| **version > 0) {
                assert!(open.has(&recovered, number as u64, version), "round {round}, block {number}");
            }
            if round % 2 == 1 {
                let mount = kernels.mount(MountMode::ReadWrite, "").unwrap();
                fs::write(mount.path().join("file"), round.to_string()).unwrap();
                mount.unmount().unwrap();
                device = in_memory(&kernels);
                open = Open::new(Arc::clone(&device)).unwrap();
                // The kernel may have taken some for its file.
                versions.fill(0);
            }
        }
    }
}

/// A log that was zeroed, or lost its newest records: what is logged now would seem older than the blocks that it changes.
#[test]
fn metadata_that_is_newer_than_the_log_is_refused() {
    let image = image(64, "");
    image.xfs_db_write(&["agf 1", "write lsn 0x2500000000"]).unwrap();
    let before = image.sha256().unwrap();
    let device = Arc::new(
        undercroft_block::FileDevice::open(image.path(), undercroft_block::FileOptions::read_write())
            .unwrap(),
    );
    let refusal = crate::Xfs::open(device, crate::OpenOptions::default(), crate::WriteOptions::default());
    let refusal = refusal.unwrap_err().to_string();
    assert!(refusal.contains("run xfs_repair"), "{refusal}");
    assert_eq!(image.sha256().unwrap(), before);
}

//! Image formats: those made by QEMU's tools are read and written as QEMU does, others are refused by name, and an
//! image opens no file that was not allowed.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, OnceLock};

use proptest::prelude::*;
use tempfile::TempDir;
use undercroft_block::testing::{FailNth, Latency, LoseUnflushed, Repeat, Slow};
use undercroft_block::{
    Access, BlockDevice, Device, Error, FileDevice, FileOptions, ImageFormat, ImageOptions, LatchedDevice,
    Locking, MemoryDevice, OpenError, Operation, Overlay, PartitionDevice, Qcow2Device, Result, open_image,
};

const MIB: usize = 1024 * 1024;

/// A device on a server that may not answer.
#[derive(Debug)]
struct Served(MemoryDevice);

impl BlockDevice for Served {
    fn name(&self) -> String {
        self.0.name()
    }

    fn size_bytes(&self) -> u64 {
        self.0.size_bytes()
    }

    fn access(&self) -> Access {
        self.0.access()
    }

    fn may_hang(&self) -> bool {
        true
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.0.read_at(offset, buf)
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> Result<()> {
        self.0.write_at(offset, data)
    }

    fn flush(&self) -> Result<()> {
        self.0.flush()
    }
}

/// What is made of a device that may hang may hang.
#[test]
fn a_device_made_of_one_that_may_hang_may_hang() {
    let dir = directory();
    qemu_img(&["create", "-q", "-f", "qcow2", "a.qcow2", "1M"], dir.path());
    let bytes = fs::read(dir.path().join("a.qcow2")).unwrap();
    let image = |bytes: Vec<u8>| MemoryDevice::from_bytes(bytes, Access::ReadOnly);
    let served = || Arc::new(Served(image(bytes.clone()))) as Device;
    let slow = Slow::new(served(), Latency::of_all(std::time::Duration::ZERO));
    let on: [Device; 7] = [
        Arc::new(slow),
        Arc::new(FailNth::new(served(), Operation::Flush, 1, Repeat::Once)),
        Arc::new(LoseUnflushed::new(served(), 1)),
        Arc::new(Qcow2Device::on_device(served()).unwrap()),
        Arc::new(PartitionDevice::new(served(), 0, 4096).unwrap()),
        Arc::new(Overlay::new(served())),
        Arc::new(LatchedDevice::new(served())),
    ];
    for device in &on {
        assert!(device.may_hang(), "{device:?}");
    }
    assert!(!Qcow2Device::on_device(Arc::new(image(bytes))).unwrap().may_hang());
}

fn directory() -> TempDir {
    TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

fn qemu_img(arguments: &[&str], directory: &Path) {
    let output = Command::new("qemu-img").args(arguments).current_dir(directory).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {output:?}");
}

/// Compressible content that differs from block to block, with holes.
fn content() -> Vec<u8> {
    (0..3 * MIB).map(|at| if at / 65536 % 3 == 0 { 0 } else { (at / 512 + at % 7) as u8 }).collect()
}

fn with_raw(directory: &Path) -> Vec<u8> {
    let content = content();
    fs::write(directory.join("disk.raw"), &content).unwrap();
    content
}

fn assert_content(device: &Device, expected: &[u8]) {
    assert_eq!(device.size_bytes(), expected.len() as u64);
    let mut found = vec![1; expected.len()];
    device.read_at(0, &mut found).unwrap();
    assert!(
        found == expected,
        "content differs at byte {:?}",
        (0..found.len()).find(|&at| found[at] != expected[at])
    );
}

fn trusting() -> ImageOptions {
    ImageOptions { allow_backing: true, ..ImageOptions::read_only() }
}

#[test]
fn raw_and_qcow2_are_distinguished() {
    let directory = directory();
    let content = with_raw(directory.path());
    for arguments in [
        &["-O", "qcow2"][..],
        &["-O", "qcow2", "-c"],
        &["-O", "qcow2", "-o", "compat=0.10"],
        &["-O", "qcow2", "-o", "cluster_size=2M"],
        &["-O", "qcow2", "-o", "refcount_bits=64", "-c"],
        &["-O", "raw"],
    ] {
        qemu_img(&[&["convert"], arguments, &["disk.raw", "disk.img"]].concat(), directory.path());
        for direct in [false, true] {
            let mut options = ImageOptions::read_only();
            options.file.direct = direct;
            assert_content(&open_image(directory.path().join("disk.img"), options).unwrap(), &content);
        }
    }
}

#[test]
fn compressed_clusters_are_in_use() {
    let directory = directory();
    with_raw(directory.path());
    qemu_img(&["convert", "-O", "qcow2", "-c", "disk.raw", "disk.img"], directory.path());
    let small = fs::metadata(directory.path().join("disk.img")).unwrap().len();
    assert!(small < MIB as u64, "{small} bytes are not compressed");
}

#[test]
fn the_format_may_be_said() {
    let directory = directory();
    with_raw(directory.path());
    qemu_img(&["convert", "-O", "qcow2", "disk.raw", "disk.img"], directory.path());
    let path = directory.path().join("disk.img");
    let raw = ImageOptions { format: Some(ImageFormat::Raw), ..ImageOptions::read_only() };
    assert_content(&open_image(&path, raw).unwrap(), &fs::read(&path).unwrap());
    let wrong = ImageOptions { format: Some(ImageFormat::Qcow2), ..ImageOptions::read_only() };
    let error = open_image(directory.path().join("disk.raw"), wrong).unwrap_err();
    assert!(matches!(error, OpenError::Image { format: "qcow2", .. }), "{error}");
}

#[test]
fn other_formats_are_refused_by_name() {
    let directory = directory();
    with_raw(directory.path());
    for (format, name) in [
        ("vmdk", "VMDK"),
        ("vdi", "VDI"),
        ("vhdx", "VHDX"),
        ("vpc", "VHD"),
        ("qed", "QED"),
        ("qcow", "qcow image of the first version"),
        ("parallels", "Parallels"),
    ] {
        qemu_img(&["convert", "-O", format, "disk.raw", "disk.img"], directory.path());
        let error = open_image(directory.path().join("disk.img"), ImageOptions::read_only()).unwrap_err();
        assert!(matches!(error, OpenError::UnsupportedFormat { .. }), "{error}");
        assert!(
            error.to_string().contains(name) && error.to_string().contains("qemu-img convert"),
            "{error}"
        );
    }
    let status = Command::new("gzip").arg("disk.raw").current_dir(directory.path()).status().unwrap();
    assert!(status.success());
    let error = open_image(directory.path().join("disk.raw.gz"), ImageOptions::read_only()).unwrap_err();
    assert!(error.to_string().contains("decompress"), "{error}");
}

/// imago cut the table into entries of 48 bytes and panicked over what was left. The fuzzer found it.
#[test]
fn a_torn_table_of_feature_names_is_refused() {
    let directory = directory();
    with_raw(directory.path());
    qemu_img(&["convert", "-O", "qcow2", "disk.raw", "disk.img"], directory.path());
    let path = directory.path().join("disk.img");
    let mut image = fs::read(&path).unwrap();
    let table = image.windows(4).position(|window| window == 0x6803_f857_u32.to_be_bytes()).unwrap();
    image[table + 7] -= 47;
    fs::write(&path, image).unwrap();
    let error = open_image(&path, ImageOptions::read_only()).unwrap_err();
    assert!(error.to_string().contains("table of feature names"), "{error}");
}

#[test]
fn backing_files_are_opened_only_when_allowed() {
    let directory = directory();
    let content = with_raw(directory.path());
    let path = directory.path().join("top.img");
    for (format, backing) in [("raw", "disk.raw"), ("qcow2", "middle.img")] {
        if format == "qcow2" {
            qemu_img(
                &["create", "-q", "-f", "qcow2", "-F", "raw", "-b", "disk.raw", backing],
                directory.path(),
            );
        }
        qemu_img(&["create", "-q", "-f", "qcow2", "-F", format, "-b", backing, "top.img"], directory.path());
        let error = open_image(&path, ImageOptions::read_only()).unwrap_err();
        assert!(matches!(&error, OpenError::OtherFileDenied { named, .. } if named == backing), "{error}");
        assert!(error.to_string().contains(backing), "{error}");
        let device = open_image(&path, trusting()).unwrap();
        assert_content(&device, &content);

        // The backing file is locked against writers for as long as the image is open.
        let backing_in_use =
            || FileDevice::open(directory.path().join("disk.raw"), FileOptions::read_write());
        assert!(matches!(backing_in_use(), Err(OpenError::InUse { .. })));
        drop(device);
        backing_in_use().unwrap();
    }
}

#[test]
fn external_data_files_are_opened_only_when_allowed() {
    let directory = directory();
    let content = with_raw(directory.path());
    let options = "data_file=data.raw,data_file_raw=on";
    qemu_img(&["convert", "-O", "qcow2", "-o", options, "disk.raw", "disk.img"], directory.path());
    let path = directory.path().join("disk.img");
    let error = open_image(&path, ImageOptions::read_only()).unwrap_err();
    assert!(matches!(&error, OpenError::OtherFileDenied { named, .. } if named == "data.raw"), "{error}");
    assert_content(&open_image(&path, trusting()).unwrap(), &content);
}

#[test]
fn chains_without_end_end() {
    let directory = directory();
    qemu_img(&["create", "-q", "-f", "qcow2", "loop.img", "1M"], directory.path());
    let rebase = ["rebase", "-u", "-f", "qcow2", "-F", "qcow2", "-b", "loop.img", "loop.img"];
    qemu_img(&rebase, directory.path());
    let error = open_image(directory.path().join("loop.img"), trusting()).unwrap_err();
    assert!(error.to_string().contains("in a row"), "{error}");
}

#[test]
fn what_we_write_qemu_reads() {
    let directory = directory();
    let mut content = with_raw(directory.path());
    let path = directory.path().join("disk.img");
    qemu_img(&["convert", "-O", "qcow2", "-c", "disk.raw", "disk.img"], directory.path());
    let device = open_image(&path, ImageOptions::read_write()).unwrap();
    for (offset, len) in [(0, 10), (65_000, 70_000), (1_000_000, 1), (2 * MIB - 5, 300_000)] {
        let data = vec![0xab; len];
        device.write_at(offset as u64, &data).unwrap();
        content[offset..offset + len].fill(0xab);
    }
    device.write_zeroes(500_000, 200_000).unwrap();
    content[500_000..700_000].fill(0);
    device.flush().unwrap();
    // Durable means that another reader finds it, while the image is still open.
    let unlocked = FileOptions { locking: Locking::None, ..FileOptions::read_only() };
    let other = open_image(&path, ImageOptions { file: unlocked, ..ImageOptions::read_only() }).unwrap();
    assert_content(&other, &content);
    drop((device, other));
    fs::write(directory.path().join("expected.raw"), &content).unwrap();
    qemu_img(&["check", "-q", "disk.img"], directory.path());
    qemu_img(&["compare", "-q", "-f", "raw", "-F", "qcow2", "expected.raw", "disk.img"], directory.path());
}

#[test]
fn writes_stay_out_of_the_backing_file() {
    let directory = directory();
    let mut content = with_raw(directory.path());
    qemu_img(&["create", "-q", "-f", "qcow2", "-F", "raw", "-b", "disk.raw", "top.img"], directory.path());
    let options = ImageOptions { allow_backing: true, ..ImageOptions::read_write() };
    let device = open_image(directory.path().join("top.img"), options).unwrap();
    device.write_at(100_000, b"only in front").unwrap();
    content[100_000..100_013].copy_from_slice(b"only in front");
    assert_content(&device, &content);
    assert!(matches!(open_image(directory.path().join("top.img"), options), Err(OpenError::InUse { .. })));
    drop(device);
    assert_content(&open_image(directory.path().join("top.img"), trusting()).unwrap(), &content);
    assert!(fs::read(directory.path().join("disk.raw")).unwrap() == self::content());
}

/// A small image of each kind, for damage.
fn samples() -> &'static [Vec<u8>] {
    static SAMPLES: OnceLock<Vec<Vec<u8>>> = OnceLock::new();
    SAMPLES.get_or_init(|| {
        let directory = directory();
        fs::write(directory.path().join("disk.raw"), &content()[..MIB / 4]).unwrap();
        let image = |arguments: &[&str]| {
            qemu_img(
                &[&["convert", "-O", "qcow2"], arguments, &["disk.raw", "disk.img"]].concat(),
                directory.path(),
            );
            fs::read(directory.path().join("disk.img")).unwrap()
        };
        vec![
            image(&["-o", "cluster_size=512"]),
            image(&["-c", "-o", "cluster_size=4096"]),
            image(&["-o", "compat=0.10,cluster_size=4096"]),
        ]
    })
}

proptest! {
    /// Whatever an image says, opening and reading it ends with content or an error.
    #[test]
    fn damaged_images_do_no_harm(
        sample in 0..3_usize,
        head in proptest::collection::vec((0..120_usize, any::<u8>()), 0..3),
        body in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
        cut in any::<prop::sample::Index>(),
        is_cut in any::<bool>(),
    ) {
        let mut bytes = samples()[sample].clone();
        for (at, byte) in head {
            // The version decides about the format; everything else may be anything.
            if at >= 8 {
                bytes[at] = byte;
            }
        }
        for (at, byte) in body {
            let at = at.index(bytes.len());
            if at >= 8 {
                bytes[at] = byte;
            }
        }
        if is_cut {
            bytes.truncate(cut.index(bytes.len()).max(8));
        }
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), &bytes).unwrap();
        if let Ok(device) = open_image(file.path(), ImageOptions::read_only()) {
            prop_assert_eq!(device.access(), Access::ReadOnly);
            let mut buf = vec![0; 10_000];
            let size = device.size_bytes();
            for offset in (0..size.min(1 << 20)).step_by(buf.len()).chain([size.saturating_sub(10_000), size / 2]) {
                let len = (size - offset).min(buf.len() as u64) as usize;
                match device.read_at(offset, &mut buf[..len]) {
                    Ok(()) | Err(Error::Io { .. }) => {}
                    Err(error) => prop_assert!(false, "{}", error),
                }
            }
        }
    }
}

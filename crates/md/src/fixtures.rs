//! Arrays that mdadm and Linux made, unpacked from `tests/fixtures`; the README there tells how they came about.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use undercroft_block::{Access, Device, MemoryDevice, Overlay};
use undercroft_sync::{Mutex, order};

/// Unpacked once for all tests of a program.
static UNPACKED: Mutex<BTreeMap<(String, usize), Device>> = Mutex::new(&order::DEVICE_STACK, BTreeMap::new());

/// All of them.
pub(crate) const ALL: [&str; 9] = [
    "raid0",
    "raid1",
    "raid10",
    "raid5-numbered",
    "raid6",
    "raid5-bitmap",
    "raid5-bitmap-unclean",
    "raid5-ppl",
    "raid5-ppl-unclean",
];

fn dir(array: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(array)
}

/// The bytes of member number `member`.
pub(crate) fn bytes(array: &str, member: usize) -> Vec<u8> {
    let path = dir(array).join(format!("d{member}.img.zst"));
    let packed = std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let mut bytes = Vec::new();
    let mut decoder = ruzstd::decoding::StreamingDecoder::new(&packed[..]).expect("a good frame");
    decoder.read_to_end(&mut bytes).expect("a good frame");
    bytes
}

/// Member number `member`, to be written to as one likes.
pub(crate) fn member(array: &str, member: usize) -> Device {
    let mut unpacked = UNPACKED.lock();
    let device = unpacked
        .entry((array.to_owned(), member))
        .or_insert_with(|| Arc::new(MemoryDevice::from_bytes(bytes(array, member), Access::ReadOnly)));
    Arc::new(Overlay::new(Arc::clone(device)))
}

/// All members, by their number.
pub(crate) fn members(array: &str) -> Vec<Device> {
    let count: usize = manifest(array)["members"].parse().expect("a number");
    (0..count).map(|number| member(array, number)).collect()
}

/// The `key: value` lines that a manifest begins with.
pub(crate) fn manifest(array: &str) -> BTreeMap<String, String> {
    let path = dir(array).join("manifest.txt");
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let head = text.split("\n\n").next().unwrap_or_default();
    let pairs = head.lines().filter_map(|line| line.split_once(": "));
    pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
}

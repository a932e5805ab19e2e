//! The power goes after each request while a filesystem becomes smaller.

use std::sync::Arc;

use undercroft_block::testing::Recorder;
use undercroft_block::{Device, FileDevice, FileOptions};
use undercroft_ext4::{Ext4, OpenOptions, WriteOptions, shrink};
use undercroft_oracle::{Differences, Image, Mke2fs, MountMode, Tool};

use super::support::{Random, assert_nothing_found, assert_sound, blocks, fill_at_random, open_device, tree};

/// What a disk writes at once: a superblock that is torn opens nowhere.
const WHOLE_BYTES: u32 = 1024;

struct Recorded {
    image: Image,
    recording: undercroft_block::testing::Recording,
    sizes: [u64; 2],
}

fn record(mke2fs: &Mke2fs) -> Recorded {
    let image = mke2fs.make().unwrap();
    fill_at_random(&image, &mut Random::new(3), 60, 60_000);
    let device = FileDevice::open(image.path(), FileOptions::read_only()).unwrap();
    let recorder = Arc::new(Recorder::new(Arc::new(device)));
    let device = Arc::clone(&recorder) as Device;
    let shrunk = shrink(&device, OpenOptions::default(), None, &mut |_, _| ()).unwrap();
    Recorded { image, recording: recorder.recording(), sizes: [shrunk.blocks.0, shrunk.blocks.1] }
}

/// Some cuts, spread over all of them.
fn cuts(events: usize) -> impl Iterator<Item = usize> {
    let count =
        std::env::var("UNDERCROFT_CRASHES").ok().and_then(|n| n.parse().ok()).unwrap_or(40).min(events + 1);
    (0..count).map(move |n| n * events / count.max(2)).chain(events.saturating_sub(8)..=events)
}

#[test]
fn a_power_cut_leaves_every_file_and_one_of_the_sizes() {
    for (name, mke2fs) in [
        ("1k", Mke2fs::new("ext4", 40).block_bytes(1024)),
        ("small groups", Mke2fs::new("ext4", 40).block_bytes(1024).args(["-g", "2048", "-G", "4"])),
        ("ext3", Mke2fs::new("ext3", 40).block_bytes(1024)),
    ] {
        let Recorded { image, recording, sizes } = record(&mke2fs);
        let before = tree(&image);
        for cut in cuts(recording.events().len()) {
            let (device, crash) = recording.crash_in_sectors(cut, cut as u64, WHOLE_BYTES).unwrap();
            let what = format!("{name}, cut after {cut} of {}: {crash}", recording.events().len());
            let ours = Image::of_device("ext4", &*device).unwrap();
            let theirs = ours.copy().unwrap();
            assert_nothing_found(&ours, &what);
            let ext4 = Ext4::open(open_device(ours.path()), OpenOptions::default(), WriteOptions::default());
            ext4.unwrap_or_else(|error| panic!("{what}: {error}")).close().unwrap();
            assert_sound(&ours, &what);
            Tool::new("e2fsck").arg("-p").arg(theirs.path()).accept(&[0, 1]).run().unwrap();
            theirs.check().unwrap_or_else(|error| panic!("{what}: {error}"));
            theirs.mount(MountMode::ReadWrite, "").unwrap().unmount().unwrap();
            let now = blocks(ours.path());
            assert_eq!(now, blocks(theirs.path()), "{what}");
            assert!((sizes[1]..=sizes[0]).contains(&now), "{what}: {now} blocks");
            Differences::between(&before, &tree(&ours)).assert_none(&what);
        }
    }
}

#[test]
fn a_power_cut_without_a_journal_leaves_what_e2fsck_mends() {
    for features in ["^has_journal", "^has_journal,^metadata_csum,^uninit_bg"] {
        let mke2fs = Mke2fs::new("ext4", 40).block_bytes(1024).features(features);
        let Recorded { image, recording, .. } = record(&mke2fs);
        let before = tree(&image);
        for cut in cuts(recording.events().len()) {
            let (device, crash) = recording.crash_in_sectors(cut, cut as u64, WHOLE_BYTES).unwrap();
            let what = format!("{features}, cut after {cut}: {crash}");
            let cut = Image::of_device("ext4", &*device).unwrap();
            Tool::new("e2fsck").arg("-fy").arg(cut.path()).accept(&[0, 1]).run().unwrap();
            assert_sound(&cut, &what);
            let after = tree(&cut);
            Differences::between(&before, &after).assert_none(&what);
        }
    }
}

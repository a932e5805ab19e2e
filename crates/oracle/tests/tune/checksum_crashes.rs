//! The power goes after each request while checksums are switched.

use std::sync::Arc;

use undercroft_block::testing::{Recorder, Recording};
use undercroft_block::{Device, FileDevice, FileOptions};
use undercroft_ext4::CheckOptions;
use undercroft_ext4::{Ext4, OpenOptions, WriteOptions, check, tune};
use undercroft_oracle::{Differences, Image, Mke2fs, MountMode, Tool};

use super::checksums::{Directories, EXT2, EXT3, fill, names_and_files, switched};
use super::{assert_sound, device, facts};

/// What a disk writes at once: a superblock that is torn opens nowhere.
const WHOLE_BYTES: u32 = 1024;

fn record(image: &Image, list: &str) -> Recording {
    let below = FileDevice::open(image.path(), FileOptions::read_only()).unwrap();
    let recorder = Arc::new(Recorder::new(Arc::new(below)));
    let device = Arc::clone(&recorder) as Device;
    tune(&device, OpenOptions::default(), &switched(list)).unwrap();
    recorder.recording()
}

/// Some cuts, spread over all of them, and the last ones, among which the switch is.
fn cuts(events: usize) -> impl Iterator<Item = usize> {
    let count =
        std::env::var("UNDERCROFT_CRASHES").ok().and_then(|n| n.parse().ok()).unwrap_or(6).min(events + 1);
    (0..count).map(move |n| n * events / count.max(2)).chain(events.saturating_sub(18)..=events)
}

fn has_checksums(image: &Image) -> bool {
    facts(image.path())["Filesystem features"].split(' ').any(|feature| feature == "metadata_csum")
}

/// Images without checksums, and the same with them.
fn image_for(mke2fs: &Mke2fs, directories: Directories, list: &str) -> Image {
    let image = mke2fs.make().unwrap();
    fill(&image, directories);
    if list.starts_with('^') {
        tune(&device(image.path()), OpenOptions::default(), &switched("metadata_csum")).unwrap();
    }
    image
}

#[test]
fn a_power_cut_leaves_all_checksums_or_none() {
    for (name, mke2fs) in [
        (
            "uninit_bg",
            Mke2fs::new("ext4", 40).block_bytes(1024).inodes(12_000).features("^metadata_csum,uninit_bg"),
        ),
        ("ext3", Mke2fs::new("ext4", 40).block_bytes(1024).inodes(12_000).features(EXT3)),
    ] {
        for list in ["metadata_csum", "^metadata_csum"] {
            let image = image_for(&mke2fs, Directories::Full, list);
            let before = names_and_files(&image);
            let recording = record(&image, list);
            let events = recording.events().len();
            let mut seen = [0; 2];
            for cut in cuts(events) {
                let (crashed, crash) = recording.crash_in_sectors(cut, cut as u64, WHOLE_BYTES).unwrap();
                let what = format!("{name} {list}, cut after {cut} of {events}: {crash}");
                let ours = Image::of_device("ext4", &*crashed).unwrap();
                let theirs = ours.copy().unwrap();
                let report = check(device(ours.path()), &CheckOptions::default()).unwrap();
                assert!(report.findings.is_empty(), "{what}: {:?}", report.findings);
                let ext4 = Ext4::open(device(ours.path()), OpenOptions::default(), WriteOptions::default());
                ext4.unwrap_or_else(|error| panic!("{what}: {error}")).close().unwrap();
                assert_sound(&ours, &what);
                let repaired = Tool::new("e2fsck").arg("-p").arg(theirs.path()).accept(&[0, 1]).run();
                repaired.unwrap_or_else(|error| panic!("{what}: {error}"));
                theirs.check().unwrap_or_else(|error| panic!("{what}: {error}"));
                theirs.mount(MountMode::ReadWrite, "").unwrap().unmount().unwrap();
                assert_eq!(has_checksums(&ours), has_checksums(&theirs), "{what}");
                seen[usize::from(has_checksums(&ours))] += 1;
                Differences::between(&before, &names_and_files(&ours)).assert_none(&what);
            }
            assert!(seen[0] > 0 && seen[1] > 0, "{name} {list}: {seen:?}");
        }
    }
}

#[test]
fn a_power_cut_without_a_journal_leaves_what_e2fsck_mends() {
    for mke2fs in [
        Mke2fs::new("ext4", 40)
            .block_bytes(1024)
            .inodes(12_000)
            .features("^has_journal,^metadata_csum,uninit_bg"),
        Mke2fs::new("ext4", 40).block_bytes(1024).inodes(12_000).features(EXT2),
    ] {
        for list in ["metadata_csum", "^metadata_csum"] {
            let image = image_for(&mke2fs, Directories::Roomy, list);
            let before = names_and_files(&image);
            let recording = record(&image, list);
            for cut in cuts(recording.events().len()) {
                let (crashed, crash) = recording.crash_in_sectors(cut, cut as u64, WHOLE_BYTES).unwrap();
                let what = format!("{list}, cut after {cut}: {crash}");
                let cut = Image::of_device("ext4", &*crashed).unwrap();
                let repaired = Tool::new("e2fsck").arg("-fy").arg(cut.path()).accept(&[0, 1]).run();
                repaired.unwrap_or_else(|error| panic!("{what}: {error}"));
                assert_sound(&cut, &what);
                Differences::between(&before, &names_and_files(&cut)).assert_none(&what);
            }
        }
    }
}

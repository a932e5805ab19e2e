//! A recovery for writing that is itself cut short, with fast commits in the journal.
//!
//! Fault model: power is lost after any request of the recovery, and what was not flushed survives in any subset, by
//! seed. Whatever is left shows the same tree as before, and is recovered from by the next: first the fast commits
//! count, and then the transaction that they have become. Linux comes to the same.

use std::sync::Arc;

use undercroft_block::testing::Recorder;
use undercroft_block::{Device, FileDevice, FileOptions};
use undercroft_ext4::{Ext4, OpenOptions, WriteOptions};
use undercroft_oracle::{Image, Mke2fs};

use crate::judge::{Ours, Recovered, compare_with, recover_for_writing, same_but_made_anew};
use crate::{Way, dirty_after, ext4, setup, small, work_for_fast_commits};

/// What a disk writes at once, as in the crashes of writers.
const WHOLE_BYTES: u32 = 1024;

fn survives_cuts(mke2fs: Mke2fs) {
    let image = dirty_after(&setup(mke2fs, ""), Way::UnderLoad, work_for_fast_commits);
    let before = Ours::read(&image);
    assert!(before.fast_commits() > 0, "nothing was committed fast");

    let base: Device = Arc::new(FileDevice::open(image.path(), FileOptions::read_only()).unwrap());
    let recorder = Arc::new(Recorder::new(base));
    let device: Device = Arc::clone(&recorder) as Device;
    Ext4::open(device, OpenOptions::default(), WriteOptions::default()).unwrap().close().unwrap();
    let recording = recorder.recording();
    let (mut as_fast_commits, mut as_a_transaction) = (0, 0);
    for cut in 0..=recording.events().len() {
        let (device, _) = recording.crash_in_sectors(cut, cut as u64, WHOLE_BYTES).unwrap();
        let left = Image::of_device("ext4", &*device).unwrap();
        let ours = Ours::read(&left);
        same_but_made_anew(&before.tree, &ours.tree).assert_none(&format!("cut after {cut}"));
        recover_for_writing(&left, &ours);
        compare_with(&ours, &Recovered::by_kernel(&left).unwrap());
        if ours.fast_commits() > 0 {
            assert_eq!(as_a_transaction, 0, "cut after {cut}: fast commits count again");
            as_fast_commits += 1;
        } else {
            as_a_transaction += 1;
        }
    }
    assert!(as_fast_commits > 0 && as_a_transaction > 0, "{as_fast_commits}, {as_a_transaction}");
}

#[test]
fn fast_commits_survive_a_recovery_that_is_cut_short() {
    survives_cuts(ext4("fast_commit"));
}

#[test]
fn fast_commits_in_small_blocks_without_checksums_survive_a_recovery_that_is_cut_short() {
    survives_cuts(small("ext4", 1024).features("fast_commit,^64bit,^metadata_csum"));
}

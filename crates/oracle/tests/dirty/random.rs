//! Fast commits of random work by several programs at once.
//!
//! Two images of each filesystem: one copied while the programs work, and one when they have stopped and
//! everything was made durable. The second must show the very tree that was there. Linux is asked as well, and
//! is a witness where e2fsck finds nothing wrong with what its replay made: 6.18 refuses some of its own fast
//! commits, and spoils others (`docs/TESTING.md` says how). It also forgets to log some changes; then its own
//! recovery must show just what we show.
//!
//! A seed decides the filesystem, the operations and how many; not how the programs meet, so that a failure may
//! need several attempts to come again. `UNDERCROFT_SEED` replays one, `UNDERCROFT_FAST_COMMIT_IMAGES` sets how many
//! filesystems there are.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::Path;

use rustix::fs::Advice;
use undercroft_oracle::{Error, Image, Load, LoadOptions, Mix, Mke2fs, MountMode, kernel_manifest};

use crate::judge::{Ours, Recovered, compare_with, differences_from_live, recover_for_writing};
use crate::{INLINE, small};

const FILESYSTEMS: u64 = 6;

#[test]
fn fast_commits_of_random_work() {
    if let Some(seed) = number_from_environment("UNDERCROFT_SEED") {
        check(seed, &mut Tally::default());
        return;
    }
    let filesystems = number_from_environment("UNDERCROFT_FAST_COMMIT_IMAGES").unwrap_or(FILESYSTEMS);
    let mut tally = Tally::default();
    for seed in 0..filesystems {
        check(seed, &mut tally);
    }
    println!("{tally:?}");
    assert!(tally.fast_commits > 0, "nothing was committed fast: {tally:?}");
    assert!(tally.linux.contains_key(&Linux::Agrees), "Linux was a witness nowhere: {tally:?}");
}

/// What came of the images.
#[derive(Debug, Default)]
struct Tally {
    images: u32,
    /// Fast commits in all of them.
    fast_commits: u32,
    /// What Linux made of them.
    linux: BTreeMap<Linux, u32>,
    /// Images whose log lacks something that Linux had made durable.
    forgotten: u32,
    /// Such images with no witness, made anew.
    again: u32,
}

/// What Linux made of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Linux {
    /// Recovered it soundly, and shows what we show.
    Agrees,
    /// Did not mount it.
    Refuses,
    /// Recovered it, and e2fsck finds something wrong with that.
    Spoils,
    /// Is not asked: it loses inline data where e2fsck finds nothing wrong.
    NotAsked,
}

/// Says the seed when the check of a filesystem fails.
struct Seed(u64);

impl Drop for Seed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("UNDERCROFT_SEED={}", self.0);
        }
    }
}

fn check(seed: u64, tally: &mut Tally) {
    const ATTEMPTS: u32 = 4;
    let _said_on_failure = Seed(seed);
    for attempt in 1..=ATTEMPTS {
        if check_once(seed, attempt == ATTEMPTS, tally) {
            return;
        }
        tally.again += 1;
    }
}

/// Whether the images told anything: not when we differ from the tree that was there, and Linux is no witness of
/// what its log lacks. For the last attempt that is a failure.
fn check_once(seed: u64, is_last: bool, tally: &mut Tally) -> bool {
    let (mke2fs, options) = filesystem(seed);
    let has_inline_data = options == INLINE;
    let image = mke2fs.make().unwrap();
    let mount = image.mount(MountMode::ReadWrite, &format!("noatime,commit=300,{options}")).unwrap();
    let load = LoadOptions { seed, sync_one_in: 6, mix: Mix::FastCommits };
    let load = Load::start(mount.path(), load).unwrap();
    load.wait_for(150 + 100 * (seed as usize % 7)).unwrap();
    let amid = load.calm(|| image.copy_between_writes(&mount)).unwrap();
    let held = load.stop().unwrap();
    make_durable(mount.path());
    let after = image.copy_between_writes(&mount).unwrap();
    let live = kernel_manifest(mount.path()).unwrap();
    drop(held);
    mount.unmount().unwrap();

    let mut linux = Linux::NotAsked;
    let ours = Ours::read(&after);
    for (image, ours) in [(&amid, &Ours::read(&amid)), (&after, &ours)] {
        if !has_inline_data {
            linux = ask_linux(image, ours);
        }
        recover_for_writing(image, ours);
        tally.images += 1;
        tally.fast_commits += ours.fast_commits();
        *tally.linux.entry(linux).or_default() += 1;
    }
    let differences = differences_from_live(&ours, live);
    if differences.count() > 0 && linux != Linux::Agrees {
        assert!(!is_last, "ours against the tree that was there: {differences}");
        return false;
    }
    tally.forgotten += u32::from(differences.count() > 0);
    true
}

/// The filesystem of a seed, and how it is mounted.
fn filesystem(seed: u64) -> (Mke2fs, &'static str) {
    // Room for more than the 16 blocks that are the default, because each fast commit takes one.
    let journal = ["-J", "size=8,fast_commit_size=512"];
    let kind = |block_bytes, features| small("ext4", block_bytes).features(features).args(journal);
    match seed % 5 {
        0 | 1 => (kind(4096, "fast_commit"), "data=ordered"),
        2 => (kind(1024, "fast_commit,^64bit"), "data=ordered"),
        3 => (kind(1024, "fast_commit,^metadata_csum"), "data=ordered"),
        _ => (kind(4096, "fast_commit,inline_data"), INLINE),
    }
}

/// Makes all files durable, and then everything else that a fast commit can log. Leaves no data in the kernel's
/// cache, where it would hide which blocks hold data and which were only allocated.
fn make_durable(root: &Path) {
    fn each_file(dir: &Path) {
        for entry in fs::read_dir(dir).unwrap().map(|entry| entry.unwrap()) {
            let kind = entry.file_type().unwrap();
            if kind.is_dir() {
                each_file(&entry.path());
            }
            if kind.is_file() {
                let file = File::open(entry.path()).unwrap();
                file.sync_all().unwrap();
                rustix::fs::fadvise(&file, 0, None, Advice::DontNeed).unwrap();
            }
        }
    }
    each_file(root);
    // An fsync commits all names, but only if its own file has something to commit.
    File::create(root.join("end")).unwrap().sync_all().unwrap();
}

/// Lets Linux recover an image, and compares where it is a witness.
fn ask_linux(image: &Image, ours: &Ours) -> Linux {
    let may_go_wrong = ours.fast_commits() > 0;
    match Recovered::by_kernel(image) {
        Err(Error::ToolFailed { said, .. }) if may_go_wrong && said.contains("Structure needs cleaning") => {
            Linux::Refuses
        }
        Err(error) => panic!("{error}"),
        Ok(recovered) if may_go_wrong && !recovered.is_sound() => Linux::Spoils,
        Ok(recovered) => {
            compare_with(ours, &recovered);
            Linux::Agrees
        }
    }
}

fn number_from_environment(name: &str) -> Option<u64> {
    let value = std::env::var(name).ok()?;
    Some(value.parse().unwrap_or_else(|_| panic!("{name} must be a number and is {value:?}")))
}

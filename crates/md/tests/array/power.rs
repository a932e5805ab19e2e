//! One member loses power while the others go on: nothing is lost, at no time, and when it comes back with less than it
//! had confirmed, it is not believed.
//!
//! Fault model: at a request of its own that the seed chooses, the member answers no more; of what it was not asked to
//! flush any subset of sectors survives. Since the array goes on, every byte is certain all the while.
//!
//! `UNDERCROFT_MD_CRASHES` says how many moments are tried of each kind of array, `UNDERCROFT_MD_SEED` which is first.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use undercroft_block::testing::{LoseUnflushed, Rng};
use undercroft_block::{Access, BlockDevice, Device, Result};
use undercroft_md::{CreateOptions, Level};

use super::support::{
    LONG, assert_same, blank, check, create, fill, number_from, open, open_degraded, pattern, read_all, small,
};

const DATA: u64 = 64 << 10;
const WRITES: u64 = 24;

/// A member whose power goes at one of its requests.
#[derive(Debug)]
struct Fading {
    cache: LoseUnflushed,
    /// Requests until then.
    left: AtomicU64,
}

impl Fading {
    fn request(&self) -> Result<()> {
        if self.left.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.cache.crash()?;
        }
        Ok(())
    }
}

impl BlockDevice for Fading {
    fn name(&self) -> String {
        "fading member".to_owned()
    }

    fn size_bytes(&self) -> u64 {
        self.cache.size_bytes()
    }

    fn access(&self) -> Access {
        Access::ReadWrite
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.request()?;
        self.cache.read_at(offset, buf)
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> Result<()> {
        self.request()?;
        self.cache.write_at(offset, data)
    }

    fn flush(&self) -> Result<()> {
        self.request()?;
        self.cache.flush()
    }
}

fn loses_power(name: &str, new: &CreateOptions, members: usize) {
    let (first, tries) = (number_from("UNDERCROFT_MD_SEED", 1), number_from("UNDERCROFT_MD_CRASHES", 25));
    let mut came_back = 0;
    for seed in first..first + tries {
        let what = format!("{name}, UNDERCROFT_MD_SEED={seed}");
        eprintln!("{what}");
        let mut random = Rng::new(seed);
        let base = blank(members, DATA);
        let array = create(&base, new);
        let mut expected = fill(&array, seed);
        array.close().unwrap();
        drop(array);

        let fading = random.below(members as u64) as usize;
        let mut devices = base.clone();
        let cache = LoseUnflushed::new(base[fading].clone(), seed);
        // More than it takes to start, and mostly fewer than all the writes make of it.
        let left = AtomicU64::new(16 + random.below(40));
        devices[fading] = Arc::new(Fading { cache, left });
        let array = open(&devices);
        for number in 0..WRITES {
            let longest = if random.below(4) == 0 { array.size_bytes() / 2 } else { 6000 };
            let len = 1 + random.below(longest);
            let offset = random.below(array.size_bytes() - len + 1) as usize;
            let data = pattern(seed ^ number << 32, len as usize);
            array.write_at(offset as u64, &data).unwrap_or_else(|error| panic!("{what}: {error}"));
            expected[offset..offset + data.len()].copy_from_slice(&data);
            if random.below(6) == 0 {
                array.flush().unwrap_or_else(|error| panic!("{what}: {error}"));
            }
            assert_same(&read_all(&array), &expected);
        }
        let was_lost = array.status().degraded > 0;
        array.close().unwrap_or_else(|error| panic!("{what}: {error}"));
        drop((array, devices));

        // All of them again, the one with its old bytes too.
        let array = open_degraded(&base);
        assert_same(&read_all(&array), &expected);
        // The power may also have gone while the array was closed.
        let is_lost = array.status().degraded > 0;
        assert!(is_lost || !was_lost, "{what}");
        if is_lost {
            array.close().unwrap();
            drop(array);
            comes_back(&base, fading, new.bitmap, &expected, &what);
            came_back += 1;
        } else {
            assert_eq!(check(&array), 0, "{what}");
        }
    }
    eprintln!("{name}: {came_back} of {tries} lost power in time");
    assert!(2 * came_back >= tries, "{name}: {came_back} of {tries}");
}

/// The member returns, is given what it missed, and has to stand in for each of the others.
fn comes_back(base: &[Device], fading: usize, has_bitmap: bool, expected: &[u8], what: &str) {
    let others: Vec<Device> = (0..base.len()).filter(|&at| at != fading).map(|at| base[at].clone()).collect();
    let array = open_degraded(&others);
    let number = match has_bitmap {
        true => array.re_add(base[fading].clone()),
        false => array.add(base[fading].clone()),
    };
    number.unwrap_or_else(|error| panic!("{what}: {error}"));
    assert!(array.wait_for_sync(LONG), "{what}");
    assert_eq!(array.status().degraded, 0, "{what}");
    assert_eq!(check(&array), 0, "{what}");
    array.close().unwrap();
    drop(array);
    for lost in (0..base.len()).filter(|&at| at != fading) {
        let rest: Vec<Device> = (0..base.len()).filter(|&at| at != lost).map(|at| base[at].clone()).collect();
        // To look only, so that the next one finds them all the same.
        let array = open_degraded(&rest.iter().map(|device| snapshot(device)).collect::<Vec<_>>());
        assert_same(&read_all(&array), expected);
    }
}

fn snapshot(device: &Device) -> Device {
    Arc::new(undercroft_block::Overlay::new(device.clone()))
}

#[test]
fn a_mirror_goes_on_when_one_member_loses_power() {
    loses_power("RAID1", &small(Level::Raid1), 2);
    loses_power("RAID10", &small(Level::Raid10), 4);
}

#[test]
fn an_array_of_parity_goes_on_when_one_member_loses_power() {
    loses_power("RAID5", &small(Level::Raid5), 4);
    loses_power("RAID6", &small(Level::Raid6), 5);
}

#[test]
fn a_member_comes_back_through_the_bitmap_after_it_lost_power() {
    for (level, members) in [(Level::Raid1, 2), (Level::Raid5, 4), (Level::Raid10, 4)] {
        let new = CreateOptions { bitmap: true, bitmap_chunk_bytes: Some(8192), ..small(level) };
        loses_power("with a bitmap", &new, members);
    }
}

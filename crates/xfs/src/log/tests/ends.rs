//! Where the log ends.

use super::super::area::LogArea;
use super::super::ends::LogEnds;
use super::super::format::{Lsn, flags};
use super::builder::{LogImage, Operation, RING, buffer_item};
use undercroft_block::Device;
use undercroft_vfs::Result;

fn ends(image: &LogImage) -> Result<LogEnds> {
    let device: Device = image.device.clone();
    LogEnds::find(&LogArea::locate(&device, None, &image.superblock)?)
}

/// Operations of a transaction that began before the tail, which are ignored.
fn filler(bytes: usize) -> Vec<Operation> {
    vec![(99, 0, vec![0xA5; bytes])]
}

#[test]
fn a_log_of_zeroes_is_clean() {
    assert!(ends(&LogImage::new()).unwrap().is_clean());
}

#[test]
fn the_head_of_a_log_that_was_never_filled_follows_its_last_record() {
    let mut image = LogImage::new();
    for _ in 0..20 {
        image.record(&filler(1500));
        let ends = ends(&image).unwrap();
        assert_eq!((ends.tail, ends.head, ends.torn_at), (0, image.head, None));
        assert_eq!(ends.next, Lsn(1 << 32 | u64::from(image.head)));
    }
    image.unmount();
    assert!(ends(&image).unwrap().is_clean());
}

#[test]
fn the_head_goes_round() {
    let mut image = LogImage::new();
    let mut lsns = Vec::new();
    // Records of 13 blocks: none ends where the ring does.
    for _ in 0..200 {
        lsns.push((image.head, image.tail));
        image.tail = Lsn(image.tail.0.max(1 << 32));
        let begin = image.record(&filler(6000));
        let ends = ends(&image).unwrap();
        assert_eq!(ends.head, image.head, "after the record in block {begin}");
        // The tail follows three records behind.
        let cycle = lsns.iter().filter(|(block, _)| *block < 13).count() as u64;
        image.tail = Lsn(cycle << 32 | u64::from(begin));
    }
    image.unmount();
    assert!(ends(&image).unwrap().is_clean());
}

#[test]
fn a_log_that_ends_with_the_ring_goes_on_at_its_start() {
    let mut image = LogImage::new();
    while image.head != 0 || image.tail == Lsn(1 << 32) {
        let left = RING - image.head;
        let blocks = if left < 20 { left } else { 10 };
        let begin = image.record(&filler((blocks as usize - 1) * 512 - 12));
        image.tail = Lsn(1 << 32 | u64::from(begin));
    }
    let ends = ends(&image).unwrap();
    assert_eq!((ends.head, ends.next), (0, Lsn(2 << 32)));
    image.unmount();
    assert!(self::ends(&image).unwrap().is_clean());
}

#[test]
fn a_record_that_was_not_written_whole_ends_the_log() {
    let mut image = LogImage::new();
    for _ in 0..5 {
        image.record(&filler(3000));
    }
    let last = image.record(&filler(3000));
    image.change(last + 3, |block| block[100] ^= 1);
    let found = ends(&image).unwrap();
    assert_eq!((found.tail, found.head, found.torn_at), (0, last, Some(last)));
    // Where its blocks still have an older stamp, that alone ends the log.
    image.change(last + 3, |block| block[..4].fill(0));
    let found = ends(&image).unwrap();
    assert_eq!((found.head, found.torn_at), (last, None));
}

#[test]
fn damage_further_back_than_writes_reach_is_refused() {
    let mut image = LogImage::new();
    let first = image.record(&filler(3000));
    for _ in 0..30 {
        image.record(&filler(3000));
    }
    image.change(first + 2, |block| block[100] ^= 1);
    // The whole log is shorter than what may be under way, so the tail moves on.
    assert_eq!(ends(&image).unwrap().tail, 7);
    for block in (0..31).map(|record| record * 7) {
        image.change(block + 2, |block| block[100] ^= 1);
    }
    let refusal = ends(&image).unwrap_err().to_string();
    assert!(refusal.contains("damaged") || refusal.contains("checksum"), "{refusal}");
}

#[test]
fn a_log_of_another_filesystem_is_refused() {
    let mut image = LogImage::new();
    let block = image.record(&filler(300));
    image.change(block, |header| header[304] ^= 1);
    assert!(ends(&image).unwrap_err().to_string().contains("belongs to the filesystem"));
}

#[test]
fn a_log_that_says_it_was_unmounted_is_clean_whatever_precedes() {
    let mut image = LogImage::new();
    image.transaction(1, &[buffer_item(8, 0, &[(0, 1)])]);
    image.record(&[(3, flags::START, Vec::new())]);
    image.unmount();
    assert!(ends(&image).unwrap().is_clean());
}

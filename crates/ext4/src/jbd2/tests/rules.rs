//! What a recovery must do with a healthy log, and with one that ends or breaks in each of its places.

use undercroft_vfs::Error;

use super::super::features::Checksums;
use super::builder::{BLOCK, FS_BLOCKS, Form, LogBuilder, Part, copies, filled};

const FORMS: [Checksums; 4] = [Checksums::None, Checksums::V1, Checksums::V2, Checksums::V3];

/// Every width and checksum.
fn every_form() -> impl Iterator<Item = Form> {
    FORMS
        .into_iter()
        .flat_map(|checksums| [false, true].map(|wide| Form { checksums, wide, ..Form::default() }))
}

fn assert_corrupt(builder: &LogBuilder, words: &str) {
    match builder.recover() {
        Err(Error::Corrupt(found)) => {
            let text = found.to_string();
            assert!(text.contains(words), "{text:?} lacks {words:?}");
        }
        other => panic!("expected corruption with {words:?}, got {other:?} ({:?})", builder.form),
    }
}

#[test]
fn the_latest_copy_of_each_block_reaches_its_home() {
    for form in every_form() {
        let mut log = LogBuilder::new(form);
        log.transaction(&[copies(&[(10, 1), (11, 1), (12, 1)])]);
        log.transaction(&[copies(&[(11, 2)]), copies(&[(13, 2), (10, 2)])]);
        log.transaction(&[copies(&[(10, 3)])]);
        let recovered = log.recover().unwrap();
        for (block, byte) in [(9, 0), (10, 3), (11, 2), (12, 1), (13, 2), (14, 0)] {
            assert_eq!(recovered.filling(block), byte, "block {block}, {form:?}");
        }
        let report = recovered.report;
        assert_eq!((report.transactions, report.first_sequence, report.end_sequence), (3, 7, 10), "{form:?}");
        assert_eq!((report.blocks_logged, report.blocks_replayed), (7, 4), "{form:?}");
    }
}

#[test]
fn recovering_twice_equals_recovering_once() {
    let mut log = LogBuilder::new(Form::default());
    log.transaction(&[copies(&[(10, 1), (11, 1)]), Part::Revoke(vec![12])]);
    log.transaction(&[copies(&[(11, 2)])]);
    let once = log.recover().unwrap();
    for block in [10, 11] {
        let home = once.home(block).to_vec();
        log.bytes[block as usize * BLOCK..][..BLOCK].copy_from_slice(&home);
    }
    let twice = log.recover().unwrap();
    assert_eq!(once.report, twice.report);
    assert_eq!((twice.filling(10), twice.filling(11)), (1, 2));
}

#[test]
fn a_revocation_holds_for_its_own_and_earlier_transactions() {
    for form in every_form() {
        let mut log = LogBuilder::new(form);
        log.transaction(&[copies(&[(10, 1), (11, 1), (12, 1)])]);
        log.transaction(&[copies(&[(11, 2)]), Part::Revoke(vec![10, 11, 99])]);
        log.transaction(&[copies(&[(10, 3)])]);
        let recovered = log.recover().unwrap();
        assert_eq!([10, 11, 12].map(|block| recovered.filling(block)), [3, 0, 1], "{form:?}");
        let report = recovered.report;
        assert_eq!(
            (report.revoke_records, report.blocks_revoked, report.blocks_replayed),
            (3, 3, 2),
            "{form:?}"
        );
    }
}

#[test]
fn an_escaped_block_gets_its_magic_back() {
    for form in every_form() {
        let mut log = LogBuilder::new(form);
        let mut block = filled(9);
        block[..4].copy_from_slice(&0xC03B_3998u32.to_be_bytes());
        log.transaction(&[Part::Copies(vec![(20, block.clone()), (21, filled(8))])]);
        let recovered = log.recover().unwrap();
        assert_eq!(recovered.home(20), block, "{form:?}");
        assert_eq!(recovered.filling(21), 8);
    }
}

#[test]
fn the_log_wraps_and_so_do_its_numbers() {
    for form in every_form() {
        let form = Form { start: 58, sequence: u32::MAX - 1, ..form };
        let mut log = LogBuilder::new(form);
        for byte in 1..=8 {
            log.transaction(&[copies(&[(10, byte), (10 + u64::from(byte), byte)])]);
        }
        assert!(log.at < 58, "the log has wrapped");
        let recovered = log.recover().unwrap();
        assert_eq!(
            (recovered.filling(10), recovered.filling(11), recovered.filling(18)),
            (8, 1, 8),
            "{form:?}"
        );
        assert_eq!(recovered.report.end_sequence, 6, "{form:?}");
    }
}

/// A revocation whose number is past the wrap counts as later than copies before it.
#[test]
fn revocations_order_across_the_wrap_of_numbers() {
    let mut log = LogBuilder::new(Form { sequence: u32::MAX, ..Form::default() });
    log.transaction(&[copies(&[(10, 1)])]);
    log.transaction(&[Part::Revoke(vec![10])]);
    assert_eq!(log.recover().unwrap().filling(10), 0);
}

#[test]
fn a_log_that_fills_the_ring_ends_where_it_began() {
    let mut log = LogBuilder::new(Form { start: 30, ..Form::default() });
    // 63 blocks are transactions of three.
    for byte in 1..=21 {
        log.transaction(&[copies(&[(10, byte)])]);
    }
    assert_eq!(log.at, 30);
    let recovered = log.recover().unwrap();
    assert_eq!((recovered.report.transactions, recovered.filling(10)), (21, 21));
}

#[test]
fn a_transaction_without_commit_block_never_happened() {
    for form in every_form() {
        let mut log = LogBuilder::new(form);
        log.transaction(&[copies(&[(10, 1)])]);
        log.part(&copies(&[(10, 2), (11, 2)]));
        log.part(&Part::Revoke(vec![10]));
        let recovered = log.recover().unwrap();
        assert_eq!((recovered.filling(10), recovered.filling(11)), (1, 0), "{form:?}");
        assert_eq!((recovered.report.transactions, recovered.report.revoke_records), (1, 0));
    }
}

/// What was in these blocks before: commit blocks of an earlier round, with lower numbers.
#[test]
fn stale_transactions_behind_the_end_are_not_replayed() {
    for form in every_form() {
        let mut log = LogBuilder::new(form);
        log.sequence = 3;
        for byte in 90..95 {
            log.transaction(&[copies(&[(10, byte)])]);
        }
        log.at = form.start;
        log.sequence = form.sequence;
        log.transaction(&[copies(&[(10, 1)])]);
        let recovered = log.recover().unwrap();
        assert_eq!((recovered.filling(10), recovered.report.transactions), (1, 1), "{form:?}");
    }
}

#[test]
fn an_empty_log_that_says_dirty_recovers_to_nothing() {
    let log = LogBuilder::new(Form::default());
    let recovered = log.recover().unwrap();
    assert_eq!((recovered.report.transactions, recovered.report.blocks_replayed), (0, 0));
}

/// What each kind of checksum protects: damage in a block of the kind makes the log corrupt.
#[test]
fn damage_under_a_checksum_is_corruption() {
    let descriptor = |places: &[u32]| places[0];
    let copy = |places: &[u32]| places[1];
    let revoke = |places: &[u32]| places[3];
    let commit = |places: &[u32]| places[4];
    type Place = fn(&[u32]) -> u32;
    let cases: [(Checksums, Place, usize, &str); 10] = [
        (Checksums::V1, descriptor, 900, "commit block"),
        (Checksums::V1, copy, 700, "commit block"),
        (Checksums::V1, commit, 0x10, "commit block"),
        (Checksums::V2, descriptor, 900, "descriptor block"),
        (Checksums::V2, copy, 700, "the copy of block 10"),
        (Checksums::V2, revoke, 20, "revoke block"),
        (Checksums::V2, commit, 0x33, "commit block"),
        (Checksums::V3, copy, 700, "the copy of block 10"),
        (Checksums::V3, revoke, 20, "revoke block"),
        (Checksums::V3, commit, 0x33, "commit block"),
    ];
    for (checksums, place, byte, words) in cases {
        for last in [false, true] {
            let mut log = LogBuilder::new(Form { checksums, ..Form::default() });
            log.transaction(&[copies(&[(40, 1)])]);
            let places = log.transaction(&[copies(&[(10, 1), (11, 1)]), Part::Revoke(vec![12])]);
            if !last {
                log.transaction(&[copies(&[(41, 1)])]);
            }
            log.block(place(&places))[byte] ^= 0x40;
            assert_corrupt(&log, words);
        }
    }
}

#[test]
fn damage_in_a_revoked_copy_does_not_matter() {
    let mut log = LogBuilder::new(Form::default());
    let places = log.transaction(&[copies(&[(10, 1), (11, 1)])]);
    log.transaction(&[Part::Revoke(vec![10])]);
    log.block(places[1])[5] ^= 1;
    let recovered = log.recover().unwrap();
    assert_eq!((recovered.filling(10), recovered.filling(11)), (0, 1));
}

#[test]
fn damage_in_a_superseded_copy_does_matter() {
    let mut log = LogBuilder::new(Form::default());
    let places = log.transaction(&[copies(&[(10, 1)])]);
    log.transaction(&[copies(&[(10, 2)])]);
    log.block(places[1])[5] ^= 1;
    assert_corrupt(&log, "the copy of block 10 that transaction 7 left in log block 2");
}

/// A commit block of which only the first sector reached the disk is valid: the rest is not used.
#[test]
fn a_commit_block_whose_first_sector_was_written_counts() {
    let mut log = LogBuilder::new(Form::default());
    let places = log.transaction(&[copies(&[(10, 1)])]);
    log.block(places[2])[512..].fill(0xAA);
    assert_eq!(log.recover().unwrap().filling(10), 1);
}

/// Blocks of a filesystem that was here before: right number, wrong checksum, and a commit time in the past.
#[test]
fn a_relic_of_an_earlier_log_ends_an_intact_log() {
    for checksums in [Checksums::V1, Checksums::V2, Checksums::V3] {
        let mut log = LogBuilder::new(Form { checksums, ..Form::default() });
        log.transaction(&[copies(&[(10, 1)]), Part::Commit(5000)]);
        let places = log.transaction(&[copies(&[(10, 2)]), Part::Commit(4000)]);
        log.block(places[0])[900] ^= 1;
        log.block(places[2])[0x11] ^= 1;
        assert_eq!(log.recover().unwrap().filling(10), 1, "{checksums:?}");
    }
}

#[test]
fn with_asynchronous_commits_a_broken_last_transaction_ends_the_log() {
    for checksums in [Checksums::V1, Checksums::V2, Checksums::V3] {
        for part in [0, 2] {
            let form = Form { checksums, async_commit: true, ..Form::default() };
            let mut log = LogBuilder::new(form);
            log.transaction(&[copies(&[(10, 1)])]);
            let places = log.transaction(&[copies(&[(10, 2)])]);
            log.block(places[part])[0x10] ^= 1;
            let recovered = log.recover().unwrap();
            assert_eq!((recovered.filling(10), recovered.report.end_sequence), (1, 8), "{form:?}");
        }
    }
}

#[test]
fn with_asynchronous_commits_a_broken_transaction_in_the_middle_is_corruption() {
    for checksums in [Checksums::V1, Checksums::V2, Checksums::V3] {
        let mut log = LogBuilder::new(Form { checksums, async_commit: true, ..Form::default() });
        log.transaction(&[copies(&[(10, 1)])]);
        let places = log.transaction(&[copies(&[(10, 2)])]);
        log.transaction(&[copies(&[(10, 3)])]);
        log.block(places[2])[0x10] ^= 1;
        assert_corrupt(&log, "yet transaction 9 after it was committed");
    }
}

#[test]
fn a_home_outside_the_device_is_corruption() {
    for (home, wide) in [(FS_BLOCKS, true), (u64::MAX, true), (1 << 33, true), (u64::from(u32::MAX), false)] {
        let mut log = LogBuilder::new(Form { wide, ..Form::default() });
        log.transaction(&[copies(&[(10, 1), (home, 1)])]);
        assert_corrupt(&log, "outside the device of 1600 blocks");
    }
}

#[test]
fn a_home_within_the_log_is_corruption() {
    for home in [300, 306, 400, 456] {
        let mut log = LogBuilder::new(Form::default());
        log.transaction(&[copies(&[(home, 1)])]);
        assert_corrupt(&log, "part of the log itself");
    }
    let mut log = LogBuilder::new(Form::default());
    log.transaction(&[copies(&[(307, 1), (457, 1)])]);
    assert_eq!(log.recover().unwrap().report.blocks_replayed, 2);
}

#[test]
fn a_revoke_block_with_an_impossible_count_is_corruption() {
    for count in [0u32, 15, 1025, u32::MAX] {
        let mut log = LogBuilder::new(Form { checksums: Checksums::None, ..Form::default() });
        let places = log.transaction(&[Part::Revoke(vec![10])]);
        log.block(places[0])[12..16].copy_from_slice(&count.to_be_bytes());
        assert_corrupt(&log, "bytes in use");
    }
}

/// A descriptor without a last tag announces as many copies as its block has room for.
#[test]
fn a_descriptor_that_announces_more_than_the_ring_holds_ends_the_log() {
    let mut log = LogBuilder::new(Form { checksums: Checksums::None, ..Form::default() });
    log.transaction(&[copies(&[(10, 1)])]);
    let places = log.part(&copies(&[(11, 1)]));
    let descriptor = log.block(places[0]);
    for tag in descriptor[12..].chunks_exact_mut(12) {
        tag[7] = 2;
    }
    let recovered = log.recover().unwrap();
    assert_eq!((recovered.report.transactions, recovered.filling(10)), (1, 1));
}

#[test]
fn a_superblock_of_version_1_has_no_features() {
    let form = Form { superblock_v1: true, checksums: Checksums::None, wide: false, ..Form::default() };
    let mut log = LogBuilder::new(form);
    // Never written by version 1, so garbage there means nothing.
    log.block(0)[0x24..0x30].fill(0xFF);
    log.transaction(&[copies(&[(10, 1)])]);
    assert_eq!(log.recover().unwrap().filling(10), 1);
}

#[test]
fn unknown_features_are_refused_by_name() {
    for (field, bits, words) in
        [(0x28, 0x4000_0011u32, "0x40000000"), (0x2C, 0x10, "read-only-compatible feature bits 0x10")]
    {
        let mut log = LogBuilder::new(Form::default());
        log.block(0)[field..field + 4].copy_from_slice(&bits.to_be_bytes());
        log.seal_superblock();
        match log.recover() {
            Err(Error::Unsupported(text)) => assert!(text.contains(words), "{text}"),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_superblock_that_contradicts_itself_is_corruption() {
    let cases: [(usize, u32, &str); 9] = [
        (0, 0x1234_5678, "magic"),
        (4, 2, "block type"),
        (12, 4096, "blocks of 4096 bytes"),
        (16, 65, "the log has 65 blocks"),
        (20, 0, "first block"),
        (20, 64, "first block"),
        (28, 64, "begins at block 64"),
        (0x24, 1, "more than one version"),
        (0x50, 0x0400_0000, "checksum"),
    ];
    for (field, value, words) in cases {
        let mut log = LogBuilder::new(Form::default());
        log.block(0)[field..field + 4].copy_from_slice(&value.to_be_bytes());
        if field != 0x50 {
            log.seal_superblock();
        } else {
            log.block(0)[0xFC] ^= 1;
        }
        assert_corrupt(&log, words);
    }
}

/// The error that the writer recorded stays on the disk for the checker, and is in the report.
#[test]
fn a_recorded_error_is_reported() {
    let mut log = LogBuilder::new(Form::default());
    log.block(0)[0x20..0x24].copy_from_slice(&(-5i32).to_be_bytes());
    log.seal_superblock();
    log.transaction(&[copies(&[(10, 1)])]);
    assert_eq!(log.recover().unwrap().report.recorded_error, -5);
}

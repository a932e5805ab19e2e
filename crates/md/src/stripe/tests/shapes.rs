//! Writes of every shape, on every layout.

use super::harness::{LAYOUTS, Plan, Rig, Rng};
use crate::Level;
use crate::level::Personality as _;
use crate::stripe::{ParityRaid, StripeOptions, WriteCounts};
use undercroft_block::Request;

const LEVELS: [Level; 3] = [Level::Raid4, Level::Raid5, Level::Raid6];

#[test]
fn a_write_anywhere_in_a_row_of_any_layout_leaves_data_and_parity_right() {
    // From every sector to every third sector after it, in rows with the parity in each place.
    for level in LEVELS {
        for layout in LAYOUTS {
            if level == Level::Raid4 && layout != LAYOUTS[0] {
                continue;
            }
            let members = if level == Level::Raid6 { 5 } else { 4 };
            // Room for one stripe: each row finds the cache cold.
            let mut rig = Rig::new(Plan { layout, cache_bytes: 0, ..Plan::new(level, members, 4096) });
            let mut rng = Rng::new(level as u64 * 10 + layout as u64);
            let row_bytes = rig.row_bytes();
            for start in (0..row_bytes).step_by(512) {
                for end in (start + 512..=row_bytes).step_by(1536) {
                    let row = rng.below(rig.plan.rows as usize);
                    // And a few bytes off the sectors.
                    let (from, to) = (start + rng.below(3), end - rng.below(3));
                    let data = rng.bytes(to - from);
                    rig.write(row * row_bytes + from, &data);
                    rig.check_rows(row as u64..row as u64 + 1);
                }
            }
            rig.check_members();
            rig.check_reads();
        }
    }
}

#[test]
fn writes_at_random_leave_everything_right_in_every_geometry() {
    let geometries = [(3, 4096), (4, 4096), (5, 65536), (6, 8192), (8, 65536), (7, 524_288), (32, 4096)];
    for level in LEVELS {
        for (members, chunk_bytes) in geometries {
            for (cache_bytes, longest_piece) in [(0, 65536), (4 << 20, 65536), (1 << 20, 16384)] {
                let members = if level == Level::Raid6 { members.max(4) } else { members };
                let layout = LAYOUTS[(members as usize + cache_bytes) % 6];
                let rows = if chunk_bytes > 65536 { 2 } else { 6 };
                let mut rig = Rig::new(Plan {
                    layout,
                    rows,
                    cache_bytes,
                    piece_bytes: longest_piece.min(chunk_bytes as usize),
                    ..Plan::new(level, members, chunk_bytes)
                });
                let mut rng = Rng::new(u64::from(members) << 32 | u64::from(chunk_bytes));
                let end = rig.model.len();
                for _ in 0..40 {
                    let longest = [5000, 100_000, 3 * rig.row_bytes()][rng.below(3)];
                    let (start, len) = rng.range(end, longest);
                    rig.write(start, &rng.bytes(len));
                    let (start, len) = rng.range(end, 50_000);
                    assert_eq!(rig.read(start, len).unwrap(), &rig.model[start..start + len]);
                }
                rig.check_members();
                rig.check_reads();
                rig.raid.sets.assert_quiet();
            }
        }
    }
}

#[test]
fn a_whole_stripe_reads_nothing_and_a_part_reads_what_is_less() {
    // Seven columns of data of one page.
    let mut rig = Rig::new(Plan::new(Level::Raid5, 8, 4096));
    let row = rig.row_bytes();
    let mut expected = WriteCounts::default();
    let check = |rig: &Rig, expected| assert_eq!(rig.raid.counts().1, expected);
    rig.write(0, &vec![1; row]);
    expected.whole += 1;
    check(&rig, expected);
    // One column: the old data and the old parity, instead of six columns.
    rig.write(row, &[2; 4096]);
    expected.modified += 1;
    check(&rig, expected);
    // Six columns: the seventh, instead of seven.
    rig.write(2 * row, &[3; 6 * 4096]);
    expected.reconstructed += 1;
    check(&rig, expected);
    // All columns, one of them not all: what is missing there, instead of everything.
    rig.write(3 * row + 100, &vec![4; row - 100]);
    expected.reconstructed += 1;
    check(&rig, expected);
    // All of it in memory since: two rows at once.
    rig.write(2 * row, &vec![5; 2 * row]);
    expected.whole += 2;
    check(&rig, expected);
    rig.check_members();
}

#[test]
fn a_batch_is_gathered_by_stripe() {
    let mut rig = Rig::new(Plan::new(Level::Raid5, 4, 65536));
    let row = rig.row_bytes();
    let mut rng = Rng::new(8);
    // The pieces of two rows, mixed up, and a few reads of another one.
    let data = rng.bytes(2 * row);
    let mut order: Vec<usize> = (0..2 * row / 4096).collect();
    for at in (1..order.len()).rev() {
        order.swap(at, rng.below(at + 1));
    }
    let mut buf = [0xee; 1000];
    let mut batch: Vec<_> = order
        .iter()
        .map(|&page| Request::Write { offset: page as u64 * 4096, data: &data[page * 4096..][..4096] })
        .collect();
    batch.push(Request::Read { offset: 3 * row as u64, buf: &mut buf });
    rig.raid.run_batch(&mut batch).unwrap();
    rig.model[..2 * row].copy_from_slice(&data);
    assert_eq!(buf, [0; 1000]);
    let counts = rig.raid.counts().1;
    assert_eq!(counts.whole + counts.modified + counts.reconstructed, 2, "{counts:?}");
    assert_eq!(counts.modified, 0, "all data was there");
    rig.check_members();
}

#[test]
fn memory_is_what_was_asked_for() {
    for (members, chunk_bytes, cache_bytes) in
        [(4, 524_288, 32 << 20), (32, 65536, 8 << 20), (3, 4096, 1 << 20)]
    {
        let rig = Rig::new(Plan { rows: 2, ..Plan::new(Level::Raid5, members, chunk_bytes) });
        let options = StripeOptions { cache_bytes, ..StripeOptions::default() };
        let held = ParityRaid::new(rig.shared, options).unwrap().memory_bytes();
        assert!(held <= cache_bytes as u64 && held > cache_bytes as u64 / 2, "{held} of {cache_bytes}");
    }
}

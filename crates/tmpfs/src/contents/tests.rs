//! Against a plain model, with numbers from everywhere, and with threads.

use std::collections::BTreeSet;
use std::thread;

use proptest::prelude::*;

use super::*;

const PAGE: u64 = PAGE_BYTES;

/// Bytes of a file that the model knows: three chunks.
const SPACE: u64 = 3 * CHUNK_PAGES * PAGE;

/// A file as one would explain it: all bytes, and the numbers of the pages that exist.
struct Model {
    bytes: Vec<u8>,
    pages: BTreeSet<u64>,
    limit: u64,
}

#[derive(Clone, Copy, Debug)]
enum Change {
    /// Prepare, then write as much as was prepared.
    Write(u64, u64, u8),
    Allocate(u64, u64),
    Zero(u64, u64),
    Punch(u64, u64),
    Truncate(u64),
    Collapse(u64, u64),
    Insert(u64, u64),
}

impl Model {
    fn left(&self) -> u64 {
        self.limit - self.pages.len() as u64
    }

    fn missing(&self, offset: u64, len: u64) -> Vec<u64> {
        let pages = offset / PAGE..(offset + len).div_ceil(PAGE);
        pages.filter(|page| len > 0 && !self.pages.contains(page)).collect()
    }

    /// How much of a range gets pages, one after the other, within one chunk.
    fn prepare(&mut self, offset: u64, len: u64) -> Option<u64> {
        let chunk_end = (offset / PAGE / CHUNK_PAGES + 1) * CHUNK_PAGES * PAGE;
        let mut end = (offset + len).min(chunk_end);
        for page in self.missing(offset, end - offset) {
            if self.left() == 0 {
                end = page * PAGE;
                break;
            }
            self.pages.insert(page);
        }
        end.checked_sub(offset).filter(|&len| len > 0)
    }

    fn allocate(&mut self, offset: u64, len: u64) -> bool {
        let missing = self.missing(offset, len);
        let fits = missing.len() as u64 <= self.left();
        if fits {
            self.pages.extend(missing);
        }
        fits
    }

    fn fill(&mut self, offset: u64, len: u64, byte: u8) {
        self.bytes[offset as usize..(offset + len) as usize].fill(byte);
    }

    /// Renumbers the pages.
    fn renumber(&mut self, to: impl Fn(u64) -> Option<u64>) {
        self.pages = self.pages.iter().filter_map(|&page| to(page)).collect();
    }
}

/// Does the same to both and compares the answers.
fn apply(contents: &Contents, budget: &Budget, model: &mut Model, change: Change) {
    match change {
        Change::Write(offset, len, byte) => {
            let prepared = contents.prepare(offset, len, budget);
            let expected = model.prepare(offset, len);
            assert_eq!(prepared.as_ref().ok(), expected.as_ref());
            let Some(len) = expected else {
                assert!(matches!(prepared, Err(Error::NoSpace)));
                assert!(matches!(contents.write(offset, &[byte]), Err(Error::NoSpace)));
                return;
            };
            contents.write(offset, &vec![byte; len as usize]).unwrap();
            model.fill(offset, len, byte);
        }
        Change::Allocate(offset, len) => {
            assert_eq!(contents.allocate(offset, len, budget).is_ok(), model.allocate(offset, len));
        }
        Change::Zero(offset, len) => {
            let fits = model.allocate(offset, len);
            assert_eq!(contents.zero(offset, len, budget).is_ok(), fits);
            if fits {
                model.fill(offset, len, 0);
            }
        }
        Change::Punch(offset, len) => {
            contents.punch(offset, len, budget);
            model.fill(offset, len, 0);
            model.renumber(|page| (page * PAGE < offset || (page + 1) * PAGE > offset + len).then_some(page));
        }
        Change::Truncate(size) => {
            contents.truncate(size, budget);
            model.fill(size, SPACE - size, 0);
            model.renumber(|page| (page * PAGE < size).then_some(page));
        }
        Change::Collapse(first, count) => {
            contents.collapse(first * PAGE, count * PAGE, budget).unwrap();
            let (from, to) = ((first * PAGE) as usize, ((first + count) * PAGE) as usize);
            model.bytes.copy_within(to.., from);
            model.fill(SPACE - count * PAGE, count * PAGE, 0);
            model.renumber(|page| match page {
                page if page < first => Some(page),
                page => page.checked_sub(count).filter(|&page| page >= first),
            });
        }
        Change::Insert(first, count) => {
            // What would leave the model's space is cut off before.
            apply(contents, budget, model, Change::Truncate(SPACE - count * PAGE));
            contents.insert(first * PAGE, count * PAGE).unwrap();
            let (from, to) = ((first * PAGE) as usize, ((first + count) * PAGE) as usize);
            model.bytes.copy_within(from..(SPACE - count * PAGE) as usize, to);
            model.fill(first * PAGE, count * PAGE, 0);
            model.renumber(|page| Some(if page < first { page } else { page + count }));
        }
    }
}

/// Everything that can be asked, compared.
fn compare(contents: &Contents, budget: &Budget, model: &Model) {
    let mut bytes = vec![0xa5; SPACE as usize];
    contents.read(0, &mut bytes);
    assert!(
        bytes == model.bytes,
        "first difference at {:?}",
        (0..bytes.len()).find(|&at| bytes[at] != model.bytes[at])
    );
    assert_eq!((contents.pages(), budget.left()), (model.pages.len() as u64, model.left()));

    let mut mapped = BTreeSet::new();
    let mut at = 0;
    while at < u64::MAX {
        let extent = contents.map(at);
        assert!(extent.start == at && extent.len > 0, "{extent:?} at {at}");
        match extent.mapping {
            Mapping::Kept => mapped.extend(at / PAGE..(at + extent.len) / PAGE),
            Mapping::Hole => {}
            other => panic!("{other:?}"),
        }
        at += extent.len;
    }
    assert_eq!(mapped, model.pages);
}

fn range() -> impl Strategy<Value = (u64, u64)> {
    // Short ones and long ones, many of them at the edges of pages and chunks.
    let offset = prop_oneof![
        0..SPACE,
        (0..SPACE / PAGE).prop_map(|page| page * PAGE),
        (0..3_u64, 0..200_u64).prop_map(|(chunk, at)| (chunk * CHUNK_PAGES * PAGE + at).saturating_sub(100)),
    ];
    let len = prop_oneof![1..10_000_u64, 1..SPACE, (1..100_u64).prop_map(|pages| pages * PAGE)];
    (offset, len).prop_map(|(offset, len)| (offset, len.min(SPACE - offset)))
}

fn pages() -> impl Strategy<Value = (u64, u64)> {
    (0..SPACE / PAGE, 1..100_u64).prop_map(|(first, count)| (first, count.min(SPACE / PAGE - first)))
}

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        6 => (range(), 1..=255_u8).prop_map(|((offset, len), byte)| Change::Write(offset, len, byte)),
        1 => range().prop_map(|(offset, len)| Change::Allocate(offset, len)),
        1 => range().prop_map(|(offset, len)| Change::Zero(offset, len)),
        2 => range().prop_map(|(offset, len)| Change::Punch(offset, len)),
        1 => (0..SPACE).prop_map(Change::Truncate),
        1 => pages().prop_map(|(first, count)| Change::Collapse(first, count)),
        1 => pages().prop_map(|(first, count)| Change::Insert(first, count)),
    ]
}

proptest! {
    #[test]
    fn agrees_with_the_model(
        limit in prop_oneof![0..20_u64, 0..250_u64],
        changes in prop::collection::vec(change(), 1..25),
    ) {
        let (contents, budget) = (Contents::new(), Budget::new(limit));
        let mut model = Model { bytes: vec![0; SPACE as usize], pages: BTreeSet::new(), limit };
        for change in changes {
            apply(&contents, &budget, &mut model, change);
            compare(&contents, &budget, &model);
        }
        contents.clear(&budget);
        prop_assert_eq!((contents.pages(), budget.left()), (0, limit));
    }

    #[test]
    fn any_number_is_answered(offset in edge(), len in edge(), other in edge()) {
        let (contents, budget) = (Contents::new(), Budget::new(100));
        if let Ok(prepared) = contents.prepare(offset, len, &budget) {
            prop_assert!(prepared <= len.min(CHUNK_PAGES * PAGE));
            contents.write(offset, &vec![7; prepared as usize]).unwrap();
            let mut buf = vec![1; prepared as usize + 3];
            contents.read(offset, &mut buf);
            prop_assert_eq!(&buf[prepared as usize..], [0; 3]);
        }
        let extent = contents.map(other);
        prop_assert!(extent.start <= other && extent.start.checked_add(extent.len).is_some());
        let _ = contents.allocate(other, len, &budget);
        let _ = contents.zero(len, other, &budget);
        let _ = contents.insert(other / PAGE * PAGE, len / PAGE * PAGE);
        let _ = contents.collapse(len / PAGE * PAGE, other / PAGE * PAGE, &budget);
        contents.punch(other, len, &budget);
        contents.truncate(other, &budget);
        prop_assert_eq!(contents.pages() + budget.left(), 100);
        contents.clear(&budget);
        prop_assert_eq!((contents.pages(), budget.left()), (0, 100));
    }
}

/// Numbers near the ends and near pages.
fn edge() -> impl Strategy<Value = u64> {
    let near = |base: u64| (0..5000_u64).prop_map(move |by| base.saturating_add(by).saturating_sub(2500));
    prop_oneof![near(0), near(u64::MAX), near(1 << 63), near(SPACE), any::<u64>()]
}

#[test]
fn an_empty_file_costs_next_to_nothing_and_a_refusal_leaves_no_trace() {
    let (contents, budget) = (Contents::new(), Budget::new(0));
    assert!(size_of_val(&contents) <= 32);
    let mut buf = [9; 10];
    contents.read(u64::MAX - 5, &mut buf);
    assert_eq!(buf, [0; 10]);
    assert!(contents.body.get().is_none());
    assert!(matches!(contents.prepare(5, 5, &budget), Err(Error::NoSpace)));
    assert!(contents.body.get().unwrap().chunks.read().is_empty());
}

#[test]
fn what_must_be_aligned_is_refused_otherwise() {
    let (contents, budget) = (Contents::new(), Budget::new(10));
    for (offset, len) in [(1, PAGE), (PAGE, 1)] {
        assert!(matches!(contents.collapse(offset, len, &budget), Err(Error::InvalidArgument(_))));
        assert!(matches!(contents.insert(offset, len), Err(Error::InvalidArgument(_))));
    }
}

#[test]
fn an_allocation_without_end_is_refused_at_once() {
    let (contents, budget) = (Contents::new(), Budget::new(1000));
    contents.prepare(0, 1, &budget).unwrap();
    assert!(matches!(contents.allocate(0, u64::MAX, &budget), Err(Error::NoSpace)));
    assert_eq!((contents.pages(), budget.left()), (1, 999));
}

/// Each thread owns every fourth stripe of the file, whose width is no multiple of a page, and writes, checks and
/// empties it over and over, while the file's end comes and goes past all of them.
#[test]
fn threads_in_different_parts_do_not_disturb_each_other() {
    const STRIPE: u64 = 3 * PAGE + 77;
    const THREADS: u64 = 4;
    let (contents, budget) = (Contents::new(), Budget::new(400));
    let write = |offset: u64, data: &[u8]| {
        let mut at = 0;
        while at < data.len() {
            let prepared =
                contents.prepare(offset + at as u64, (data.len() - at) as u64, &budget).unwrap() as usize;
            contents.write(offset + at as u64, &data[at..at + prepared]).unwrap();
            at += prepared;
        }
    };
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let (contents, budget, write) = (&contents, &budget, &write);
            scope.spawn(move || {
                let mut buf = vec![0; STRIPE as usize];
                for round in 0..60_u64 {
                    for stripe in (thread..80).step_by(THREADS as usize) {
                        let byte = (1 + stripe * 31 + round) as u8 | 1;
                        write(stripe * STRIPE, &vec![byte; STRIPE as usize]);
                        contents.read(stripe * STRIPE, &mut buf);
                        assert!(buf.iter().all(|&other| other == byte), "stripe {stripe} in round {round}");
                        if round % 3 == 0 {
                            contents.punch(stripe * STRIPE, STRIPE, budget);
                            contents.read(stripe * STRIPE, &mut buf);
                            assert!(buf.iter().all(|&other| other == 0), "stripe {stripe} in round {round}");
                        }
                    }
                }
            });
        }
        let (contents, budget) = (&contents, &budget);
        scope.spawn(move || {
            for at in (0..20_000).map(|round| round * 977 % (80 * STRIPE)) {
                let extent = contents.map(at);
                assert!(extent.start <= at && at - extent.start < extent.len, "{extent:?} at {at}");
            }
        });
        scope.spawn(move || {
            for round in 0..2000 {
                let past = 80 * STRIPE + round % 7 * PAGE;
                // There may be no room for it just now.
                let _ = contents.prepare(past, 20 * PAGE, budget);
                contents.truncate(past, budget);
            }
        });
    });
    assert_eq!(contents.pages() + budget.left(), 400);
    contents.clear(&budget);
    assert_eq!(budget.left(), 400);
}

//! Fast commits made by hand: which of them count, what they say, and what a reader sees with them.

use undercroft_vfs::Error;

use super::super::LogBlock;
use super::builder::{BLOCK, Form, LogBuilder, copies};
use crate::checksum::crc32c;
use crate::fast_commit::FastCommitOp;
use crate::fast_commit::{FastCommitView, Incarnation, Overridden};
use crate::numbers::{FileBlock, FsBlock};

/// Fast-commit elements on their way into the log.
pub(super) struct Area {
    blocks: Vec<Vec<u8>>,
    first: u32,
    /// Since the last tail.
    crc: u32,
}

pub(super) type Element = (u16, Vec<u8>);

pub(super) fn head(tid: u32) -> Element {
    (9, [0, tid].iter().flat_map(|n| n.to_le_bytes()).collect())
}

pub(super) fn tail(tid: u32) -> Element {
    (8, tid.to_le_bytes().to_vec())
}

pub(super) fn name(tag: u16, parent: u32, ino: u32, name: &[u8]) -> Element {
    let mut value: Vec<u8> = [parent, ino].iter().flat_map(|n| n.to_le_bytes()).collect();
    value.extend(name);
    (tag, value)
}

/// An `ADD_RANGE`; lengths over 32768 are unwritten.
pub(super) fn range(ino: u32, lblk: u32, len: u16, pblk: u64) -> Element {
    let mut value: Vec<u8> = [ino, lblk].iter().flat_map(|n| n.to_le_bytes()).collect();
    value.extend(len.to_le_bytes());
    value.extend(((pblk >> 32) as u16).to_le_bytes());
    value.extend((pblk as u32).to_le_bytes());
    (1, value)
}

pub(super) fn hole(ino: u32, lblk: u32, len: u32) -> Element {
    (2, [ino, lblk, len].iter().flat_map(|n| n.to_le_bytes()).collect())
}

/// An inode of 160 bytes with `i_block` full of 0x77.
pub(super) fn inode(ino: u32, mode: u16, flags: u32) -> Element {
    let mut value = ino.to_le_bytes().to_vec();
    value.extend(raw_inode(mode, flags));
    (6, value)
}

fn raw_inode(mode: u16, flags: u32) -> Vec<u8> {
    let mut raw = vec![0x55; 160];
    raw[..2].copy_from_slice(&mode.to_le_bytes());
    raw[4..8].copy_from_slice(&30u32.to_le_bytes());
    raw[0x1A..0x1C].copy_from_slice(&2u16.to_le_bytes());
    raw[0x20..0x24].copy_from_slice(&flags.to_le_bytes());
    raw[0x28..0x64].fill(0x77);
    raw[0x6C..0x70].fill(0);
    raw
}

impl Area {
    pub(super) fn new(log: &LogBuilder) -> Self {
        let area = log.form.fast_commit.expect("the log has an area");
        Self { blocks: vec![Vec::new()], first: log.form.blocks - area + 1, crc: 0 }
    }

    /// Appends an element, as the kernel does it: padding to the next block where it does not fit.
    pub(super) fn push(&mut self, (tag, value): &Element) {
        let len = 4 + value.len() + if *tag == 8 { 4 } else { 0 };
        let used = self.blocks.last().unwrap().len();
        if used + len + 4 > BLOCK {
            let filling = vec![0; BLOCK - used - 4];
            self.append(7, &filling);
        }
        if *tag == 8 {
            let room = BLOCK - self.blocks.last().unwrap().len() - 4;
            let block = self.blocks.last_mut().unwrap();
            let start = block.len();
            block.extend(tag.to_le_bytes());
            block.extend((room as u16).to_le_bytes());
            block.extend(value);
            let crc = crc32c(self.crc, &block[start..]);
            block.extend(crc.to_le_bytes());
            block.resize(BLOCK, 0);
            self.crc = 0;
            self.blocks.push(Vec::new());
        } else {
            self.append(*tag, value);
        }
    }

    fn append(&mut self, tag: u16, value: &[u8]) {
        let block = self.blocks.last_mut().unwrap();
        let start = block.len();
        block.extend(tag.to_le_bytes());
        block.extend((value.len() as u16).to_le_bytes());
        block.extend(value);
        self.crc = crc32c(self.crc, &block[start..]);
        if block.len() == BLOCK {
            self.blocks.push(Vec::new());
        }
    }

    pub(super) fn store(&self, log: &mut LogBuilder) {
        for (index, block) in self.blocks.iter().enumerate() {
            log.block(self.first + index as u32)[..block.len()].copy_from_slice(block);
        }
    }
}

fn form() -> Form {
    Form { blocks: 1100, fast_commit: Some(40), ..Form::default() }
}

/// A log with one transaction and these elements behind it.
fn log_with(elements: &[Element]) -> LogBuilder {
    let mut log = LogBuilder::new(form());
    log.transaction(&[copies(&[(10, 1)])]);
    let mut area = Area::new(&log);
    for element in elements {
        area.push(element);
    }
    area.store(&mut log);
    log
}

/// The number of the transaction that was running.
const RUNNING: u32 = 8;

#[test]
fn every_operation_is_read_in_order() {
    let raw = raw_inode(0o100_644, 0x8_0000);
    let log = log_with(&[
        head(RUNNING),
        inode(20, 0o100_644, 0x8_0000),
        range(20, 0, 5, 700),
        range(20, 8, 0x8000 + 3, 710),
        name(3, 2, 20, b"new"),
        tail(RUNNING),
        name(4, 2, 20, b"other"),
        name(5, 2, 20, b"new"),
        hole(20, 2, 0xFFFF_FFFD),
        range(20, 9, 0, 1),
        tail(RUNNING),
    ]);
    let recovered = log.recover().unwrap();
    let (new, other): (Box<[u8]>, Box<[u8]>) = (b"new".as_slice().into(), b"other".as_slice().into());
    let (lblk, pblk) = (FileBlock, FsBlock);
    assert_eq!(
        recovered.operations,
        [
            FastCommitOp::Inode { ino: 20, raw: raw.into() },
            FastCommitOp::AddRange { ino: 20, lblk: lblk(0), len: 5, pblk: pblk(700), unwritten: false },
            FastCommitOp::AddRange { ino: 20, lblk: lblk(8), len: 3, pblk: pblk(710), unwritten: true },
            FastCommitOp::Create { parent: 2, ino: 20, name: new.clone() },
            FastCommitOp::Link { parent: 2, ino: 20, name: other },
            FastCommitOp::Unlink { parent: 2, ino: 20, name: new },
            FastCommitOp::DelRange { ino: 20, lblk: lblk(2), len: 0xFFFF_FFFD },
        ]
    );
    let report = recovered.report;
    assert_eq!(
        (report.fast_commits, report.fast_commit_operations, report.fast_commits_cut_short),
        (2, 7, None)
    );
}

#[test]
fn a_commit_may_span_blocks() {
    let mut elements = vec![head(RUNNING)];
    for ino in 20..60 {
        elements.push(inode(ino, 0o100_644, 0));
        elements.push(name(3, 2, ino, format!("file {ino}").as_bytes()));
    }
    elements.push(tail(RUNNING));
    let recovered = log_with(&elements).recover().unwrap();
    assert_eq!((recovered.report.fast_commits, recovered.operations.len()), (1, 80));
}

#[test]
fn a_commit_without_its_tail_never_happened() {
    let first = [head(RUNNING), name(4, 2, 20, b"a"), tail(RUNNING)];
    let second = [name(4, 2, 20, b"b"), tail(RUNNING)];
    let mut log = log_with(&[&first[..], &second[..1]].concat());
    let recovered = log.recover().unwrap();
    assert_eq!((recovered.report.fast_commits, recovered.operations.len()), (1, 1));

    log = log_with(&[&first[..], &second[..]].concat());
    // The second commit's block.
    log.block(1100 - 40 + 2)[12] ^= 1;
    let recovered = log.recover().unwrap();
    assert_eq!((recovered.report.fast_commits, recovered.operations.len()), (1, 1));
    assert_eq!(
        recovered.report.fast_commits_cut_short,
        log.location().home(LogBlock(1100 - 40 + 2)).ok().map(|home| home.0)
    );

    log = log_with(&first[..2]);
    let recovered = log.recover().unwrap();
    assert_eq!((recovered.report.fast_commits, recovered.operations.len()), (0, 0));
    assert_eq!(
        recovered.report.fast_commits_cut_short,
        log.location().home(LogBlock(1100 - 40 + 1)).ok().map(|home| home.0)
    );
}

#[test]
fn nothing_is_cut_short_where_no_commit_was_begun() {
    for elements in [&[][..], &[head(RUNNING)], &[head(RUNNING - 1), name(4, 2, 20, b"a")]] {
        let report = log_with(elements).recover().unwrap().report;
        assert_eq!((report.fast_commits, report.fast_commits_cut_short), (0, None), "{elements:?}");
    }
}

#[test]
fn an_area_of_another_transaction_does_not_count() {
    for tid in [RUNNING - 1, RUNNING + 1] {
        let recovered = log_with(&[head(tid), name(4, 2, 20, b"a"), tail(tid)]).recover().unwrap();
        assert_eq!((recovered.report.fast_commits, recovered.report.fast_commits_cut_short), (0, None));
    }
    // An earlier round went further than this one.
    let stale = [name(4, 2, 20, b"old"), tail(RUNNING - 1)];
    let log = log_with(&[&[head(RUNNING), name(4, 2, 20, b"a"), tail(RUNNING)], &stale[..]].concat());
    let recovered = log.recover().unwrap();
    assert_eq!((recovered.operations.len(), recovered.report.fast_commits_cut_short), (1, None));
}

#[test]
fn without_the_feature_the_area_is_not_read() {
    let mut log = log_with(&[head(RUNNING), name(4, 2, 20, b"a"), tail(RUNNING)]);
    log.block(0)[0x2B] &= !0x20;
    log.seal_superblock();
    assert!(log.recover().unwrap().operations.is_empty());
}

#[test]
fn an_unknown_feature_is_refused() {
    let mut head = head(RUNNING);
    head.1[0] = 4;
    match log_with(&[head, tail(RUNNING)]).recover() {
        Err(Error::Unsupported(text)) => assert!(text.contains("fast-commit feature bits 0x4"), "{text}"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn numbers_and_names_that_cannot_be_are_corruption() {
    let longest = [b'x'; 255];
    let good = log_with(&[head(RUNNING), name(4, 2, 500, &longest), range(1, 0, 100, 1500), tail(RUNNING)]);
    assert_eq!(good.recover().unwrap().operations.len(), 2);
    for bad in [
        name(3, 0, 20, b"a"),
        name(3, 2, 501, b"a"),
        name(4, 2, 20, b".."),
        name(5, 2, 20, b"a/b"),
        name(5, 2, 20, b"a\0"),
        range(20, 0, 101, 1500),
        range(20, u32::MAX, 1, 700),
        range(0, 0, 1, 700),
        hole(20, u32::MAX, 2),
        inode(600, 0o100_644, 0),
    ] {
        match log_with(&[head(RUNNING), bad.clone(), tail(RUNNING)]).recover() {
            Err(Error::Corrupt(found)) => {
                assert!(found.to_string().contains("corrupt fast commit"), "{found}");
            }
            other => panic!("{bad:?}: {other:?}"),
        }
    }
}

/// Folded over a disk that has none of the inodes.
fn view_of(elements: &[Element]) -> FastCommitView {
    view_over(&[], elements)
}

/// Folded over a disk that has these inodes already.
fn view_over(on_disk: &[(u32, Vec<u8>)], elements: &[Element]) -> FastCommitView {
    let log = log_with(&[&[head(RUNNING)], elements, &[tail(RUNNING)]].concat());
    let incarnation = |ino| {
        let raw = on_disk.iter().find(|(number, _)| *number == ino);
        Ok(raw.and_then(|(_, raw)| Incarnation::of(raw)))
    };
    FastCommitView::fold(&log.recover().unwrap().operations, incarnation).unwrap()
}

#[test]
fn names_follow_the_order_of_operations() {
    const ADD: u16 = 4;
    const REMOVE: u16 = 5;
    let view = view_of(&[
        name(ADD, 2, 20, b"added"),
        name(ADD, 2, 21, b"moved"),
        name(REMOVE, 2, 21, b"moved"),
        name(REMOVE, 2, 22, b"removed"),
        name(REMOVE, 2, 23, b"replaced"),
        name(ADD, 2, 24, b"replaced"),
        name(REMOVE, 2, 25, b"not mine"),
    ]);
    let names = view.directory(2).unwrap();
    // (name, on disk, result)
    for (name, on_disk, result) in [
        ("added", None, Some(20)),
        ("added", Some(20), Some(20)),
        ("moved", None, None),
        ("removed", Some(22), None),
        ("replaced", Some(23), Some(24)),
        ("not mine", Some(26), Some(26)),
        ("untouched", Some(27), Some(27)),
        ("untouched", None, None),
    ] {
        assert_eq!(names.lookup(name.as_bytes(), on_disk), result, "{name}");
    }
    let added: Vec<_> = names.added().collect();
    assert_eq!(added, [(b"added".as_slice(), 20), (b"replaced".as_slice(), 24)]);
    for (name, ino, kept) in [
        ("added", 20, false),
        ("removed", 22, false),
        ("replaced", 23, false),
        ("not mine", 26, true),
        ("x", 9, true),
    ] {
        assert_eq!(names.keeps(name.as_bytes(), ino), kept, "{name}");
    }
    assert!(view.directory(3).is_none());
}

#[test]
fn a_new_inode_owes_nothing_to_what_had_its_number() {
    const EXTENTS: u32 = 0x8_0000;
    let view = view_of(&[
        range(20, 0, 4, 700),
        name(5, 2, 20, b"old"),
        inode(20, 0o100_644, EXTENTS),
        range(20, 1, 2, 800),
        name(3, 2, 20, b"new"),
        range(20, 5, 1, 900),
    ]);
    let change = view.inode(20).unwrap();
    assert!(change.remaps());
    let mapped = |pblk| Overridden::Mapped { pblk: FsBlock(pblk), unwritten: false };
    for (at, expected) in [
        (0, (Overridden::Hole, 1)),
        (1, (mapped(800), 2)),
        (2, (mapped(801), 1)),
        (3, (Overridden::Hole, 2)),
        (5, (mapped(900), 1)),
        (6, (Overridden::Hole, u32::MAX - 6)),
        (u32::MAX, (Overridden::Hole, 1)),
    ] {
        assert_eq!(change.lookup(FileBlock(at)), expected, "block {at}");
    }
    let mut on_disk = vec![0x99; 256];
    change.apply(&mut on_disk);
    assert_eq!(on_disk[0x28..0x30], [0x0A, 0xF3, 0, 0, 4, 0, 0, 0]);
    assert_eq!(on_disk[0x30..0x64], [0; 0x34]);
    assert_eq!(on_disk[160..], [0; 96]);
    assert_eq!(view.directory(2).unwrap().lookup(b"old", Some(20)), None);
}

#[test]
fn i_block_is_kept_where_it_is_a_mapping() {
    const EXTENTS: u32 = 0x8_0000;
    const INLINE: u32 = 0x1000_0000;
    let root = [&[0x0A, 0xF3][..], &[0x99; 58]].concat();
    let empty = [&[0x0A, 0xF3, 0, 0, 4, 0, 0, 0][..], &[0; 52]].concat();
    let logged = vec![0x77; 60];
    // (mode, flags, on disk, result)
    let cases: [(u16, u32, &[u8], &[u8]); 7] = [
        (0o100_644, EXTENTS, &root, &root),
        (0o100_644, EXTENTS, &[0; 60], &empty),
        (0o100_644, INLINE, &root, &logged),
        (0o100_644, 0, &[0x11; 60], &[0x11; 60]),
        (0o040_755, 0, &[0x11; 60], &[0x11; 60]),
        (0o120_777, 0, &[0x11; 60], &logged),
        (0o020_600, 0, &[0x11; 60], &logged),
    ];
    for (mode, flags, on_disk, result) in cases {
        let view = view_over(&[(20, raw_inode(mode, flags))], &[inode(20, mode, flags)]);
        let change = view.inode(20).unwrap();
        assert!(!change.remaps());
        assert_eq!(change.lookup(FileBlock(7)), (Overridden::OnDisk, u32::MAX - 7));
        let mut inode = vec![0x99; 256];
        inode[0x28..0x64].copy_from_slice(on_disk);
        change.apply(&mut inode);
        assert_eq!(&inode[0x28..0x64], result, "mode {mode:o}, flags {flags:#x}");
        assert_eq!(inode[0x64..0x68], [0x55; 4], "fields behind i_block are the logged ones");
        assert_eq!(inode[160..], [0x99; 96], "and those not logged the disk's");
    }
}

#[test]
fn directories_that_came_to_be_have_entries_and_links() {
    let directory = 0o040_755;
    let view = view_of(&[
        inode(30, directory, 0x8_0000),
        name(3, 2, 30, b"dir"),
        inode(31, directory, 0x8_0000),
        name(3, 30, 31, b"sub"),
        inode(32, 0o100_644, 0x8_0000),
        name(3, 30, 32, b"file"),
        // A directory that was on disk goes; one that came and went was never counted.
        name(5, 2, 40, b"gone"),
        inode(33, directory, 0x8_0000),
        name(3, 2, 33, b"brief"),
        name(5, 2, 33, b"brief"),
        name(5, 2, 41, b"a file"),
    ]);
    let entry = |name: &[u8]| {
        Ok(match name {
            b"gone" => Some(40),
            b"a file" => Some(41),
            _ => None,
        })
    };
    let none = |_: &[u8]| Ok(None);
    let directory_on_disk = |ino| Ok(ino == 40);
    assert_eq!(view.directory_links(2, 7, entry, directory_on_disk).unwrap(), 7);
    assert_eq!(
        view.directory_links(2, 1, entry, directory_on_disk).unwrap(),
        1,
        "not counted before nor now"
    );
    assert_eq!(view.directory_links(30, 999, none, directory_on_disk).unwrap(), 3);
    assert_eq!(view.directory_links(31, 999, none, directory_on_disk).unwrap(), 2);
    assert_eq!(view.directory_links(50, 5, none, directory_on_disk).unwrap(), 5);
    let dir = view.directory(30).unwrap();
    assert_eq!(dir.created_in(), Some(2));
    assert_eq!(dir.added().map(|(_, ino)| ino).collect::<Vec<_>>(), [32, 31]);
    assert_eq!(view.directory(31).unwrap().created_in(), Some(30));
    assert_eq!(view.directory(2).unwrap().created_in(), None);
}

/// A removed file's number went to a new directory, and a removed directory's to a new file: what the number is
/// now says nothing of what the name led to.
#[test]
fn links_are_counted_by_what_the_disk_has() {
    let directory = 0o040_755;
    let view = view_of(&[
        name(5, 2, 40, b"file"),
        inode(40, directory, 0x8_0000),
        name(3, 3, 40, b"directory"),
        name(5, 2, 41, b"directory"),
        inode(41, 0o100_644, 0x8_0000),
        name(3, 3, 41, b"file"),
    ]);
    let entry = |name: &[u8]| Ok(Some(if name == b"file" { 40 } else { 41 }));
    let directory_on_disk = |ino| Ok(ino == 41);
    assert_eq!(view.directory_links(2, 3, entry, directory_on_disk).unwrap(), 2);
    assert_eq!(view.directory_links(3, 2, |_| Ok(None), directory_on_disk).unwrap(), 3);
}

/// What happened while a full transaction committed is in that transaction and in the next fast commit. Counted
/// twice, two removals left a directory without links, and its name with no inode in use.
#[test]
fn what_the_disk_has_already_is_not_counted_again() {
    let view = view_of(&[name(5, 2, 40, b"gone"), name(5, 2, 41, b"gone too"), name(4, 2, 42, b"there")]);
    let entry = |name: &[u8]| Ok((name == b"there").then_some(42));
    assert_eq!(view.directory_links(2, 3, entry, |_| Ok(true)).unwrap(), 3);
}

#[test]
fn a_directory_that_the_disk_has_already_keeps_its_names() {
    let directory = 0o040_755;
    let mut on_disk = raw_inode(directory, 0x8_0000);
    on_disk[0x04..0x08].copy_from_slice(&4096u32.to_le_bytes());
    on_disk[0x1A..0x1C].copy_from_slice(&9u16.to_le_bytes());
    on_disk[0x1C..0x20].copy_from_slice(&8u32.to_le_bytes());
    let mut logged = inode(30, directory, 0x8_1000);
    logged.1[4 + 0x10..4 + 0x14].copy_from_slice(&77u32.to_le_bytes());
    let view =
        view_over(&[(30, on_disk.clone())], &[logged, name(3, 2, 30, b"dir"), name(4, 30, 31, b"new")]);

    let names = view.directory(30).unwrap();
    assert_eq!(names.created_in(), None);
    assert!(names.keeps(b"old", 50));
    assert!(!view.inode(30).unwrap().remaps());
    let mut applied = on_disk.clone();
    view.inode(30).unwrap().apply(&mut applied);
    let mut expected = on_disk;
    expected[0x10..0x14].copy_from_slice(&77u32.to_le_bytes());
    assert_eq!(applied, expected, "the time is new; what tells where the names lie is not");
}

/// The same file in the log and on disk keeps what it has; another file under its number does not.
#[test]
fn a_file_is_new_when_its_generation_is() {
    const EXTENTS: u32 = 0x8_0000;
    let mode = 0o100_644;
    let again = [inode(20, mode, EXTENTS), name(3, 2, 20, b"file")];
    assert!(!view_over(&[(20, raw_inode(mode, EXTENTS))], &again).inode(20).unwrap().remaps());
    let mut other = raw_inode(mode, EXTENTS);
    other[0x64] ^= 1;
    assert!(view_over(&[(20, other)], &again).inode(20).unwrap().remaps());
    assert!(view_over(&[(20, raw_inode(0o040_755, EXTENTS))], &again).inode(20).unwrap().remaps());
    assert!(view_over(&[(20, vec![0; 256])], &again).inode(20).unwrap().remaps(), "never used");
}

//! Walking the B+trees of an allocation group and of a fork: each block claimed, validated, and compared with the key and
//! the siblings that lead to it.
//!
//! A block that has an owner already is not descended into, so a walk ends whatever the disk says.

use undercroft_diskfs::At;
use undercroft_vfs::Result;

use super::Checker;
use super::raw::{be16, be32, be64};
use crate::format::block_header::{self, HeaderKind};
use crate::format::{AgBlock, AgNumber, FsBlock};

/// What a tree's blocks look like.
#[derive(Clone, Copy, Debug)]
pub(super) struct Form {
    pub(super) name: &'static str,
    /// Magic numbers in versions 4 and 5.
    magic: [u32; 2],
    key_bytes: usize,
    record_bytes: usize,
    /// Nodes have the highest key below each pointer too.
    overlapping: bool,
    /// Pointers of 64 bits, in a fork.
    long: bool,
}

impl Form {
    const fn short(name: &'static str, magic: [&[u8; 4]; 2], key_bytes: usize, record_bytes: usize) -> Self {
        let magic = [u32::from_be_bytes(*magic[0]), u32::from_be_bytes(*magic[1])];
        Self { name, magic, key_bytes, record_bytes, overlapping: false, long: false }
    }

    pub(super) const BNOBT: Self = Self::short("bnobt", [b"ABTB", b"AB3B"], 8, 8);
    pub(super) const CNTBT: Self = Self::short("cntbt", [b"ABTC", b"AB3C"], 8, 8);
    pub(super) const INOBT: Self = Self::short("inobt", [b"IABT", b"IAB3"], 4, 16);
    pub(super) const FINOBT: Self = Self::short("finobt", [b"FIBT", b"FIB3"], 4, 16);
    pub(super) const REFCOUNTBT: Self = Self::short("refcountbt", [b"R3FC", b"R3FC"], 4, 12);
    pub(super) const RMAPBT: Self =
        Self { overlapping: true, ..Self::short("rmapbt", [b"RMB3", b"RMB3"], 20, 24) };
    pub(super) const BMBT: Self = Self { long: true, ..Self::short("bmbt", [b"BMAP", b"BMA3"], 8, 16) };

    const fn header_bytes(&self, has_crc: bool) -> usize {
        match (self.long, has_crc) {
            (false, false) => 16,
            (false, true) => 56,
            (true, false) => 24,
            (true, true) => 72,
        }
    }

    const fn pointer_bytes(&self) -> usize {
        if self.long { 8 } else { 4 }
    }

    /// Bytes of keys for each pointer.
    const fn keys_bytes(&self) -> usize {
        if self.overlapping { 2 * self.key_bytes } else { self.key_bytes }
    }

    /// The key of a record: its first bytes, but for the last of a fork and the flags of an offset.
    fn key_of(&self, record: &[u8]) -> Vec<u8> {
        if self.long {
            return (be64(record, 0) >> 9 & ((1 << 54) - 1)).to_be_bytes().to_vec();
        }
        if self.overlapping {
            let offset = be64(record, 16) & !(1 << 61);
            return [&record[..4], &record[8..16], &offset.to_be_bytes()].concat();
        }
        record[..self.key_bytes].to_vec()
    }

    /// Sorts as the keys do.
    fn order_of(&self, key: &[u8]) -> [u64; 3] {
        match self.name {
            "cntbt" => [be32(key, 4).into(), be32(key, 0).into(), 0],
            "bmbt" => [be64(key, 0), 0, 0],
            "rmapbt" => [be32(key, 0).into(), be64(key, 4), be64(key, 12) & !(7 << 61)],
            _ => [be32(key, 0).into(), 0, 0],
        }
    }
}

/// Where a walk begins.
pub(super) struct Start<'a> {
    pub(super) form: Form,
    /// Level of the first block that is read.
    pub(super) level: u16,
    pub(super) at: At,
    /// The finding's word.
    pub(super) code: &'static str,
    /// What the blocks say that they belong to.
    pub(super) owner: u64,
    /// The group that pointers of 32 bits lie in.
    pub(super) group: u32,
    /// Whether the first block may have few records: it is the root, or the only one below a root in an inode.
    pub(super) may_be_small: bool,
    /// Claims a block; `false` if it has an owner already.
    pub(super) claim: &'a mut dyn FnMut(FsBlock) -> bool,
}

/// A block on the way down.
struct Frame {
    bytes: Vec<u8>,
    next: usize,
    count: usize,
    level: u16,
}

/// What a walk has seen.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Walked {
    pub(super) blocks: u64,
    /// Whether everything below the root could be read.
    pub(super) complete: bool,
}

impl Checker<'_> {
    /// Walks a tree from a block on, which `pointer` leads to, and shows each record.
    pub(super) fn walk_tree(
        &self,
        mut start: Start<'_>,
        pointer: u64,
        expected_key: Option<&[u8]>,
        siblings: &mut Siblings,
        visit: &mut dyn FnMut(&[u8]),
    ) -> Result<Walked> {
        let mut walked = Walked { blocks: 0, complete: true };
        let mut stack: Vec<Frame> = Vec::new();
        let level = start.level;
        match self.enter(&mut start, pointer, level, expected_key, siblings)? {
            Some(frame) => stack.push(frame),
            None => return Ok(Walked { blocks: 0, complete: false }),
        }
        walked.blocks = 1;
        let form = start.form;
        let header = form.header_bytes(self.geometry.has_crc());
        while let Some(frame) = stack.last_mut() {
            if frame.level == 0 {
                for record in frame.bytes[header..].chunks_exact(form.record_bytes).take(frame.count) {
                    visit(record);
                }
                stack.pop();
                continue;
            }
            if frame.next == frame.count {
                stack.pop();
                continue;
            }
            let room = (frame.bytes.len() - header) / (form.keys_bytes() + form.pointer_bytes());
            let at = frame.next;
            frame.next += 1;
            let key = header + at * form.keys_bytes();
            let key = frame.bytes[key..key + form.key_bytes].to_vec();
            let pointer = header + room * form.keys_bytes() + at * form.pointer_bytes();
            let pointer =
                if form.long { be64(&frame.bytes, pointer) } else { be32(&frame.bytes, pointer).into() };
            let level = frame.level - 1;
            match self.enter(&mut start, pointer, level, Some(&key), siblings)? {
                Some(child) => {
                    walked.blocks += 1;
                    stack.push(child);
                }
                None => walked.complete = false,
            }
        }
        Ok(walked)
    }

    /// Reads and validates a block; `None` if nothing below it can be used.
    fn enter(
        &self,
        start: &mut Start<'_>,
        pointer: u64,
        level: u16,
        expected_key: Option<&[u8]>,
        siblings: &mut Siblings,
    ) -> Result<Option<Frame>> {
        let Start { form, at, code, .. } = *start;
        let block = if form.long {
            Some(FsBlock(pointer)).filter(|&block| self.geometry.split(block).is_some())
        } else {
            let within = u32::try_from(pointer).unwrap_or(u32::MAX);
            self.geometry.join(AgNumber(start.group), AgBlock(within))
        };
        let Some(block) = block else {
            let detail = format!("the {} leads to block {pointer}, which cannot be", form.name);
            self.findings.add(code, at, detail);
            return Ok(None);
        };
        let at = at.block(block.0);
        if !(start.claim)(block) {
            let detail = format!("the {} leads to a block that has an owner already", form.name);
            self.findings.add(code, at, detail);
            return Ok(None);
        }
        let bytes = self.read(block, 1)?;
        let has_crc = self.geometry.has_crc();
        let header = form.header_bytes(has_crc);
        let report =
            |detail: String| self.findings.add(code, at, format!("a block of the {} {detail}", form.name));
        let magic = be32(&bytes, 0);
        if magic != form.magic[usize::from(has_crc)] {
            report(format!("has magic number {magic:#010x}"));
            return Ok(None);
        }
        let kind = if form.long { HeaderKind::LongBtree } else { HeaderKind::ShortBtree };
        if let Some(daddr) = self.geometry.daddr(block)
            && let Err(detail) = block_header::validate(&bytes, kind, self.superblock, daddr, start.owner)
        {
            report(detail.into_owned());
        }
        let (stored_level, count) = (be16(&bytes, 4), usize::from(be16(&bytes, 6)));
        if stored_level != level {
            report(format!("has level {stored_level}, and should have {level}"));
            return Ok(None);
        }
        let unit = if level == 0 { form.record_bytes } else { form.keys_bytes() + form.pointer_bytes() };
        let room = (bytes.len() - header) / unit;
        let may_be_small = start.may_be_small && level == start.level;
        let least = match (may_be_small, level) {
            (true, 0) => 0,
            (true, _) => 1,
            (false, _) => room / 2,
        };
        if count > room {
            report(format!("has {count} records, with room for {room}"));
            return Ok(None);
        }
        if count < least {
            report(format!("has {count} records, and at least {least} are wanted"));
        }
        let (left, right) = if form.long {
            (be64(&bytes, 8), be64(&bytes, 16))
        } else {
            (short_link(be32(&bytes, 8)), short_link(be32(&bytes, 12)))
        };
        siblings.meet(level, pointer, left, right, &mut |detail| report(detail));
        let keys = (0..count).map(|n| {
            if level == 0 {
                form.key_of(&bytes[header + n * form.record_bytes..header + (n + 1) * form.record_bytes])
            } else {
                let key = header + n * form.keys_bytes();
                bytes[key..key + form.key_bytes].to_vec()
            }
        });
        let keys: Vec<Vec<u8>> = keys.collect();
        if let (Some(expected), Some(first)) = (expected_key, keys.first())
            && form.order_of(expected) != form.order_of(first)
        {
            report("begins with another key than the block above has for it".to_owned());
        }
        let order: Vec<[u64; 3]> = keys.iter().map(|key| form.order_of(key)).collect();
        if let Some(n) =
            order.windows(2).position(|pair| pair[0] > pair[1] || pair[0] == pair[1] && !form.overlapping)
        {
            report(format!("has records {n} and {} in the wrong order", n + 1));
        }
        if let Some(first) = order.first() {
            siblings.meet_key(
                level,
                *first,
                *order.last().unwrap_or(first),
                form.overlapping,
                &mut |detail| {
                    report(detail);
                },
            );
        }
        if form.overlapping && level > 0 {
            self.check_high_keys(&bytes, header, count, &report);
        }
        Ok(Some(Frame { bytes, next: 0, count, level }))
    }

    /// The highest key below a pointer is not below the lowest.
    fn check_high_keys(&self, bytes: &[u8], header: usize, count: usize, report: &dyn Fn(String)) {
        let form = Form::RMAPBT;
        for n in 0..count {
            let key = header + n * form.keys_bytes();
            let (low, high) = (&bytes[key..key + form.key_bytes], &bytes[key + form.key_bytes..]);
            if be32(high, 0) < be32(low, 0) {
                report(format!("has a high key below the low one for pointer {n}"));
            }
        }
    }

    /// The records or keys and pointers of the root of a tree in an inode: level, keys and pointers.
    pub(super) fn root_in_inode(&self, fork: &[u8]) -> Option<(u16, Vec<(u64, u64)>)> {
        let (level, count) = (be16(fork, 0), usize::from(be16(fork, 2)));
        let room = fork.len().saturating_sub(4) / 16;
        if level == 0 || count == 0 || count > room {
            return None;
        }
        let pairs = (0..count).map(|n| (be64(fork, 4 + n * 8), be64(fork, 4 + room * 8 + n * 8)));
        Some((level, pairs.collect()))
    }
}

fn short_link(link: u32) -> u64 {
    if link == u32::MAX { u64::MAX } else { link.into() }
}

/// The last block met at each level, with what it says of the next.
#[derive(Debug, Default)]
pub(super) struct Siblings {
    last: Vec<Option<(u64, u64)>>,
    last_key: Vec<Option<[u64; 3]>>,
}

impl Siblings {
    fn meet(&mut self, level: u16, block: u64, left: u64, right: u64, report: &mut dyn FnMut(String)) {
        let level = usize::from(level);
        self.last.resize(self.last.len().max(level + 1), None);
        let (before, expected) = self.last[level].unwrap_or((u64::MAX, block));
        if left != before {
            report(format!("names {} as its left sibling, and {} is", shown(left), shown(before)));
        }
        if expected != block {
            report(format!("is not the right sibling that the one before it names, {}", shown(expected)));
        }
        self.last[level] = Some((block, right));
    }

    fn meet_key(
        &mut self,
        level: u16,
        first: [u64; 3],
        last: [u64; 3],
        may_repeat: bool,
        report: &mut dyn FnMut(String),
    ) {
        let level = usize::from(level);
        self.last_key.resize(self.last_key.len().max(level + 1), None);
        if let Some(before) = self.last_key[level]
            && (before > first || before == first && !may_repeat)
        {
            report("begins before the end of the one before it".to_owned());
        }
        self.last_key[level] = Some(last);
    }

    /// The last block of each level has no right sibling.
    pub(super) fn finish(&self) -> Option<String> {
        let level = self.last.iter().position(|last| last.is_some_and(|(_, right)| right != u64::MAX))?;
        Some(format!("the last block of level {level} names a right sibling"))
    }
}

fn shown(link: u64) -> String {
    if link == u64::MAX { "none".to_owned() } else { format!("block {link}") }
}

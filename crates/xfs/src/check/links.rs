//! The third pass: checks that need all inodes.

use std::collections::HashMap;
use std::sync::atomic::Ordering;

use undercroft_diskfs::At;
use undercroft_vfs::Ino;

use super::Checker;
use super::chunks::UNREADABLE;
use super::groups::BUCKETS;
use crate::format::{AgBlock, AgIno, AgNumber};

/// Runs of blocks without an owner that are reported of each group.
const RUNS_TOLD: usize = 8;

/// Where a directory hangs.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Parent {
    /// What its `..` says.
    pub(super) own: Option<u64>,
    /// The directory that has an entry for it; the one with the lowest number if several have one.
    pub(super) named_in: Option<u64>,
    /// Entries for it.
    pub(super) names: u32,
}

impl Checker<'_> {
    /// Checks everything that needs all inodes; returns how many wait to be released.
    pub(super) fn check_links(&mut self) -> u64 {
        let orphans = self.check_unlinked();
        self.check_counts_of_links();
        self.check_parents();
        self.check_space();
        self.check_sums();
        orphans
    }

    /// The lists of unlinked inodes, and those without links that are on none.
    fn check_unlinked(&mut self) -> u64 {
        let mut waiting = std::mem::take(self.next_unlinked.get_mut());
        let mut orphans = 0;
        for (number, group) in self.groups.iter().enumerate() {
            let ag = AgNumber(number as u32);
            let at = At::group(ag.0);
            for &(bucket, first) in &group.unlinked {
                let mut next = first;
                while next != u32::MAX {
                    let Some(ino) = self.geometry.join_ino(ag, AgIno(next)) else {
                        let detail = format!(
                            "list {bucket} of unlinked inodes leads to {next}, which is no inode of the group"
                        );
                        self.findings.add("unlinked", at, detail);
                        break;
                    };
                    if next % BUCKETS != bucket {
                        let detail = format!("inode {ino} without a name is on list {bucket}");
                        self.findings.add("unlinked", at, detail);
                    }
                    let Some(after) = waiting.remove(&ino.0) else {
                        let detail = format!(
                            "list {bucket} of unlinked inodes leads to inode {ino}, which has links, is free, or was \
                             on a list already"
                        );
                        self.findings.add("unlinked", at, detail);
                        break;
                    };
                    orphans += 1;
                    next = after;
                }
            }
        }
        for ino in waiting.into_keys() {
            self.findings.add(
                "unlinked",
                At::inode(ino),
                "the inode has no links, and is on no list of such",
            );
        }
        orphans
    }

    fn check_counts_of_links(&mut self) {
        let many_found = std::mem::take(self.many_found.get_mut());
        let many_stored = std::mem::take(self.many_stored.get_mut());
        let own: Vec<u64> = self.own_inodes();
        let has_ftype = self.superblock.features().has_ftype();
        for (number, group) in self.groups.iter().enumerate() {
            for (at, chunk) in group.chunks.chunks.iter().enumerate() {
                for n in (0..super::chunks::INODES).filter(|&n| chunk.exists(n)) {
                    let known = group.chunks.known(at, n);
                    let kind = known.kind.load(Ordering::Relaxed);
                    let found = known.found.load(Ordering::Relaxed);
                    if kind == 0 && found == 0 {
                        continue;
                    }
                    let ag = AgNumber(number as u32);
                    let Some(Ino(ino)) = self.geometry.join_ino(ag, AgIno(chunk.start + n)) else { continue };
                    let found = u32::from(found) + many_found.get(&ino).copied().unwrap_or(0);
                    if kind == 0 {
                        let detail = format!("{found} entries lead to the inode, which is free");
                        self.findings.add("entry-free-inode", At::inode(ino), detail);
                        continue;
                    }
                    if kind == UNREADABLE {
                        continue;
                    }
                    let stored = known.stored.load(Ordering::Relaxed);
                    let stored =
                        many_stored.get(&ino).copied().filter(|_| stored == u8::MAX).unwrap_or(stored.into());
                    let found = found + u32::from(own.contains(&ino));
                    if stored != found {
                        let detail = format!("the inode counts {stored} links, and {found} were found");
                        self.findings.add("link-count", At::inode(ino), detail);
                    }
                    let said = known.said.load(Ordering::Relaxed);
                    if has_ftype && said & !(1 << (kind & 7)) != 0 {
                        let detail = "an entry says that the inode is another kind of file";
                        self.findings.add("entry-type", At::inode(ino), detail);
                    }
                }
            }
        }
    }

    /// Inodes of the filesystem itself, which have a link and no name.
    fn own_inodes(&self) -> Vec<u64> {
        let own: Vec<u64> = self.superblock.own_inodes().collect();
        for &ino in &own {
            let kind = self.known(ino).map(|known| known.kind.load(Ordering::Relaxed));
            if !matches!(kind, Some(1 | UNREADABLE)) {
                let detail = "the superblock names the inode as one of its own, and it is no regular file";
                self.findings.add("superblock-field", At::inode(ino), detail);
            }
        }
        own
    }

    /// Each directory's `..` is where it has its name, and the way up leads to the root.
    fn check_parents(&mut self) {
        let directories = std::mem::take(self.directories.get_mut());
        let root = self.superblock.root().0;
        match self.known(root).map(|known| known.kind.load(Ordering::Relaxed)) {
            Some(2 | UNREADABLE) => {}
            _ => {
                let detail = "the superblock names the inode as the root, and it is no directory";
                self.findings.add("superblock-field", At::inode(root), detail);
            }
        }
        for (&ino, parent) in &directories {
            if let Some(named_in) = parent.named_in
                && (parent.names > 1 || ino == root)
            {
                let detail = format!(
                    "the directory has {} names too many, the first in inode {named_in}",
                    parent.names - u32::from(ino != root)
                );
                self.findings.add("directory-parent", At::inode(ino), detail);
                continue;
            }
            let Some(own) = parent.own else { continue };
            if ino == root {
                if own != root {
                    self.findings.add(
                        "directory-parent",
                        At::inode(ino),
                        format!("the root's parent is inode {own}"),
                    );
                }
                continue;
            }
            if let Some(named_in) = parent.named_in
                && named_in != own
            {
                let detail =
                    format!("the directory's parent is inode {own}, and inode {named_in} has its name");
                self.findings.add("directory-parent", At::inode(ino), detail);
            }
        }
        self.check_ways_up(&directories, root);
    }

    fn check_ways_up(&self, directories: &HashMap<u64, Parent>, root: u64) {
        #[derive(Clone, Copy, PartialEq)]
        enum Way {
            Under,
            Good,
            Bad,
        }
        let mut ways: HashMap<u64, Way> = HashMap::with_capacity(directories.len());
        ways.insert(root, Way::Good);
        for &start in directories.keys() {
            let mut path = Vec::new();
            let mut ino = start;
            let way = loop {
                match ways.get(&ino) {
                    Some(Way::Under) => break Way::Bad,
                    Some(&way) => break way,
                    None => {}
                }
                // Where the way cannot be followed, something else has been reported.
                let Some(own) = directories.get(&ino).and_then(|parent| parent.own) else { break Way::Good };
                ways.insert(ino, Way::Under);
                path.push(ino);
                ino = own;
            };
            // Reported for one directory of the ring, the one that the search reached first.
            if let Some(start) = path.iter().position(|&met| met == ino)
                && let Some(&lowest) = path[start..].iter().min()
            {
                let detail = "the way from the directory to the root is a ring";
                self.findings.add("directory-parent", At::inode(lowest), detail);
            }
            for ino in path {
                ways.insert(ino, way);
            }
        }
    }

    /// Blocks without an owner, shared blocks with other owners than counted, and the reverse map.
    fn check_space(&self) {
        for (number, group) in self.groups.iter().enumerate() {
            let ag = AgNumber(number as u32);
            let at = At::group(ag.0);
            let space = group.space.lock();
            let name = |block| self.geometry.join(ag, AgBlock(block)).map_or(0, |block| block.0);
            for (start, count) in space.unaccounted(RUNS_TOLD) {
                let detail = format!("{count} blocks from there on are neither free nor in use");
                self.findings.add("block-unaccounted", at.block(name(start)), detail);
            }
            for run in space.wrongly_shared() {
                let detail = format!(
                    "{} blocks from there on have {} owners by the refcountbt, and others were found",
                    run.count, run.owners
                );
                self.findings.add("reference-count", at.block(name(run.start)), detail);
            }
            for (start, end) in space.differing_owners() {
                let detail =
                    format!("the rmapbt has other owners than were found for blocks {start} to {end}");
                self.findings.add("reverse-map", at, detail);
            }
        }
    }

    /// The superblock's counts. After a replay they are those of the filesystem as it will be once interrupted work is finished.
    fn check_sums(&self) {
        if self.recovered {
            return;
        }
        let sum =
            |count: fn(&super::Counts) -> u64| self.groups.iter().map(|group| count(&group.counts)).sum();
        for (what, stored, found) in [
            ("inodes", self.superblock.inodes(), sum(|counts| counts.inodes)),
            ("free inodes", self.superblock.free_inodes(), sum(|counts| counts.free_inodes)),
            ("free blocks", self.superblock.free_blocks(), sum(|counts| counts.free_blocks)),
        ] {
            if stored != found {
                let detail = format!("the superblock counts {stored} {what}, and {found} were found");
                self.findings.add("superblock-count", At::filesystem(), detail);
            }
        }
    }

    /// Takes a link to an inode into account; `false` if there is no such inode. `code` is the kind of file that the
    /// entry says, 0 for none.
    pub(super) fn count_link(&self, ino: u64, code: u8) -> bool {
        let Some(known) = self.known(ino) else { return false };
        if !super::chunks::count_up(&known.found) {
            *self.many_found.lock().entry(ino).or_default() += 1;
        }
        if code != 0 {
            known.said.fetch_or(1 << (code & 7), Ordering::Relaxed);
        }
        true
    }

    /// Takes note of where a directory has its name.
    pub(super) fn note_name(&self, directory: u64, named_in: u64) {
        let mut directories = self.directories.lock();
        let parent = directories.entry(directory).or_default();
        parent.named_in = Some(parent.named_in.map_or(named_in, |other| other.min(named_in)));
        parent.names = parent.names.saturating_add(1);
    }

    /// Takes note of a directory's `..`.
    pub(super) fn note_parent(&self, directory: u64, parent: u64) {
        self.directories.lock().entry(directory).or_default().own = Some(parent);
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::Bench;

    /// The report does not depend on which thread notes a name first.
    #[test]
    fn a_directory_has_one_name() {
        let orders: [&[u64]; 3] = [&[140, 128, 150], &[128, 150, 140], &[150, 140, 128]];
        for order in orders {
            let bench = Bench::new(|_| {});
            let mut checker = bench.checker();
            checker.note_parent(130, 128);
            order.iter().for_each(|&directory| checker.note_name(130, directory));
            checker.check_parents();
            let reported = checker.reported();
            assert!(
                reported.iter().any(|reported| reported
                    .contains("inode 130: the directory has 2 names too many, the first in inode 128")),
                "{reported:?}"
            );
        }
    }

    #[test]
    fn a_ring_of_directories_is_reported_once() {
        for start in [140, 141, 142] {
            let bench = Bench::new(|_| {});
            let mut checker = bench.checker();
            for (directory, parent) in [(140, 142), (141, 140), (142, 141), (143, 140)] {
                checker.note_parent(directory, parent);
                checker.note_name(directory, parent);
            }
            checker.note_parent(144, start);
            checker.check_parents();
            let reported: Vec<String> =
                checker.reported().into_iter().filter(|reported| reported.contains("ring")).collect();
            assert!(reported.len() == 1 && reported[0].starts_with("inode 140:"), "{reported:?}");
        }
    }
}

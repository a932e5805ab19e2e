//! The fourth pass: whether everything has a name, directories lead to the root, and links are counted right.

use undercroft_diskfs::At;

use super::checker::Checker;
use super::sets::BitSet;
use crate::features::RoCompat;
use crate::inode::ROOT_INODE;

/// A directory with more links than this may say that it has one.
const LINKS_MAX: u32 = 65_000;

impl Checker<'_> {
    pub(super) fn check_links(&mut self) {
        if !self.directories.contains(u64::from(ROOT_INODE)) {
            self.findings.add("root-directory", At::inode(ROOT_INODE), "there is no root directory");
            return;
        }
        self.check_connections();
        let many = self.volume.superblock().features().ro_compat.contains(RoCompat::DIR_NLINK);
        let mut from = 0;
        while let Some(number) = self.inodes.next_from(from) {
            from = number + 1;
            let number = number as u32;
            let is_directory = self.directories.contains(u64::from(number));
            let is_value = self.value_inodes.contains_key(&number);
            if self.is_special(number) || is_value || self.orphans.contains(&number) {
                continue;
            }
            let links = *self.links.of(number);
            if links.found == 0 && !is_directory {
                self.findings.add("inode-unconnected", At::inode(number), "is in use and has no name");
                continue;
            }
            let overflown = is_directory && many && links.stored == 1 && links.found >= LINKS_MAX;
            if links.found != u32::from(links.stored) && !overflown {
                let detail = format!("says that it has {} links; it has {}", links.stored, links.found);
                self.findings.add("link-count", At::inode(number), detail);
            }
        }
    }

    /// Every directory leads to the root, by the directories that name it.
    fn check_connections(&mut self) {
        let mut connected = BitSet::new(u64::from(self.volume.superblock().geometry().inodes()) + 1);
        connected.insert(u64::from(ROOT_INODE));
        let mut from = 0;
        while let Some(number) = self.directories.next_from(from) {
            from = number + 1;
            let mut trail = Vec::new();
            let mut at = number as u32;
            // A directory on the trail is connected until the trail shows that it is not: so it ends.
            while connected.insert(u64::from(at)) {
                trail.push(at);
                at = self.places.get(&at).map_or(0, |place| place.parent);
                if at == 0 {
                    break;
                }
            }
            let Some(&last) = trail.last() else { continue };
            if self.orphans.contains(&last) {
                continue;
            }
            if at == 0 {
                self.findings.add(
                    "directory-unconnected",
                    At::inode(last),
                    "no directory has an entry for it",
                );
            } else if trail.contains(&at) {
                self.findings.add("directory-loop", At::inode(at), "leads to itself and not to the root");
            }
        }
        let mut from = 0;
        while let Some(number) = self.directories.next_from(from) {
            from = number + 1;
            let number = number as u32;
            let Some(place) = self.places.get(&number).copied() else { continue };
            let expected = if number == ROOT_INODE { ROOT_INODE } else { place.parent };
            if expected != 0 && place.dot_dot != 0 && place.dot_dot != expected {
                let detail =
                    format!("its entry .. leads to inode {}, its parent is {expected}", place.dot_dot);
                self.findings.add("directory-parent", At::inode(number), detail);
            }
        }
    }
}

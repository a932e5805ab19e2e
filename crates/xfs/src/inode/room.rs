//! The room that both forks have in an inode: where the attribute fork begins, and how the boundary moves.

use std::sync::Arc;

use super::store::{check_fits, described};
use super::{ExtentTree, Fork, Inode};
use crate::format::dinode::{ForkFormat, ROOT_HEADER_BYTES};
use crate::format::extent::EXTENT_BYTES;

/// Size of a key and of a pointer in a root.
const WORD_BYTES: usize = 8;

impl Inode {
    /// Bytes of the data fork.
    #[cfg(test)]
    pub(crate) fn data_fork_room(&self) -> usize {
        self.core.data_fork.len()
    }

    /// Bytes of the attribute fork; 0 without one.
    #[cfg(test)]
    pub(crate) fn attr_fork_room(&self) -> usize {
        self.core.attr_fork.len()
    }

    /// Lets the attribute fork begin `words` times eight bytes behind the core; 0 stands for no attribute fork, whose
    /// content is dropped. An inode that gets one has no extents in it. The content of both forks must fit, otherwise
    /// `false` is returned and nothing has changed.
    #[must_use]
    pub(crate) fn set_forkoff(&mut self, words: u8) -> bool {
        let (first, end) = (self.core.data_fork.start, self.core.attr_fork.end);
        let boundary = if words == 0 { end } else { first + usize::from(words) * 8 };
        if boundary >= end && words > 0 {
            return false;
        }
        let Some(data) = relaid(&self.data, boundary - first) else { return false };
        let attr = match &self.attr {
            _ if words == 0 => None,
            None => Some(Fork::Extents(Vec::new().into())),
            Some(Fork::Local(bytes)) => Some(Fork::Local(short_form(bytes).into())),
            Some(fork) => Some(fork.clone()),
        };
        let attr = match attr.map(|fork| relaid(&fork, end - boundary)) {
            Some(None) => return false,
            Some(relaid) => relaid,
            None => None,
        };
        (self.core.data_fork, self.core.attr_fork) = (first..boundary, boundary..end);
        (self.data, self.attr) = (data, attr);
        let (format, extents) = self.attr.as_ref().map_or((ForkFormat::Extents, 0), described);
        (self.core.attr_format, self.core.attr_extents) = (format, extents as u32);
        true
    }
}

/// The content of an attribute fork that is kept in it, without what lies past its end.
fn short_form(bytes: &[u8]) -> &[u8] {
    let total = bytes.first_chunk().map_or(0, |total| usize::from(u16::from_be_bytes(*total)));
    bytes.get(..total).unwrap_or(bytes)
}

/// The fork with `room` bytes, if it fits: the pointers in the root of a tree lie where the room says. A tree whose
/// extents fit the room without a tree does not fit.
fn relaid(fork: &Fork, room: usize) -> Option<Fork> {
    let Fork::Btree(tree) = fork else {
        return check_fits(fork, room).is_ok().then(|| fork.clone());
    };
    if tree.extents <= (room / EXTENT_BYTES) as u64 {
        return None;
    }
    let root = relaid_root(&tree.root, room)?;
    let (extents, found) = (tree.extents, tree.found.clone());
    Some(Fork::Btree(Arc::new(ExtentTree { root: root.into(), extents, found })))
}

/// The root of a tree for a fork of `room` bytes: header and keys stay, the pointers begin where the last key that has
/// room ends. `None` if there is no room for all keys and pointers.
fn relaid_root(root: &[u8], room: usize) -> Option<Vec<u8>> {
    let count = usize::from(u16::from_be_bytes([*root.get(2)?, *root.get(3)?]));
    let pointers = |len: usize| {
        let most = len.checked_sub(ROOT_HEADER_BYTES)? / (2 * WORD_BYTES);
        (count <= most).then_some(ROOT_HEADER_BYTES + most * WORD_BYTES)
    };
    let (from, to, len) = (pointers(root.len())?, pointers(room)?, count * WORD_BYTES);
    let mut relaid = vec![0; room];
    let keys = ROOT_HEADER_BYTES + len;
    relaid[..keys].copy_from_slice(&root[..keys]);
    relaid[to..to + len].copy_from_slice(&root[from..from + len]);
    Some(relaid)
}

#[cfg(test)]
mod tests {
    use std::sync::OnceLock;

    use undercroft_block::MemoryDevice;
    use undercroft_vfs::{Announce, Ino, NewInode, NewKind};

    use super::*;
    use crate::format::{Superblock, testing};
    use crate::volume::Volume;

    fn file() -> Inode {
        let superblock = Superblock::from_sector(&testing::superblock_sector(|_| {})).unwrap();
        let volume = Volume::new(Arc::new(MemoryDevice::new(1 << 20)), superblock, 1 << 20);
        let new = NewInode {
            kind: NewKind::Regular,
            permissions: 0o640,
            uid: 0,
            gid: 0,
            xattrs: &[],
            announce: Announce::default(),
        };
        Inode::fresh(&volume, &crate::inode::Inheritance::none(), Ino(131), 1, &new, 1)
    }

    #[test]
    fn the_boundary_moves_while_both_contents_fit() {
        let mut inode = file();
        assert_eq!((inode.data_fork_room(), inode.attr_fork_room()), (336, 0));
        assert!(inode.set_forkoff(30));
        assert_eq!((inode.data_fork_room(), inode.attr_fork_room(), inode.core.forkoff()), (240, 96, 30));
        assert!(matches!(&inode.attr, Some(Fork::Extents(extents)) if extents.is_empty()));
        let mut content = vec![0; 96];
        content[1] = 40;
        inode.attr = Some(Fork::Local(content.into()));
        assert!(!inode.set_forkoff(38), "32 bytes");
        assert!(!inode.set_forkoff(42), "none");
        assert!(inode.set_forkoff(37));
        assert!(matches!(&inode.attr, Some(Fork::Local(bytes)) if bytes.len() == 40));
        assert!(inode.set_forkoff(0));
        assert!(inode.attr.is_none() && inode.core.attr_fork == (512..512));
    }

    #[test]
    fn the_pointers_of_a_root_move_with_the_room() {
        let mut inode = file();
        let mut root = vec![0; 336];
        root[..4].copy_from_slice(&[0, 1, 0, 2]);
        root[4..20].fill(1);
        root[4 + 20 * 8..4 + 22 * 8].fill(2);
        let tree = ExtentTree { root: root.clone().into(), extents: 21, found: OnceLock::new() };
        inode.data = Fork::Btree(Arc::new(tree));
        assert!(inode.set_forkoff(6));
        let Fork::Btree(small) = &inode.data else { panic!() };
        assert_eq!(small.root[..4], [0, 1, 0, 2]);
        assert_eq!((&small.root[4..20], &small.root[20..36]), (&[1; 16][..], &[2; 16][..]));
        assert!(!inode.set_forkoff(4), "two pointers do not fit");
        assert!(!inode.set_forkoff(0), "the 21 extents fit without a tree");
        inode.data = match inode.data {
            Fork::Btree(small) => Fork::Btree(Arc::new(ExtentTree {
                root: small.root.clone(),
                extents: 22,
                found: OnceLock::new(),
            })),
            other => other,
        };
        assert!(inode.set_forkoff(0));
        assert!(matches!(&inode.data, Fork::Btree(tree) if tree.root[..] == root[..]));
    }
}

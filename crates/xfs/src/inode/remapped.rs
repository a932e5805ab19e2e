//! Maps that replace those on the device: the ones that inodes would have after the work that a crash interrupted.

use std::collections::BTreeMap;
use std::sync::Arc;

use undercroft_vfs::Ino;

use super::ForkKind;
use crate::format::extent::Extent;

/// The extents of one fork, and how many blocks more they have than those on the device.
#[derive(Clone, Debug)]
pub(crate) struct Remap {
    pub(crate) extents: Arc<[Extent]>,
    pub(crate) more_blocks: i64,
}

/// Forks with other maps than those on the device.
#[derive(Clone, Debug, Default)]
pub(crate) struct Remapped(BTreeMap<(Ino, bool), Remap>);

impl Remapped {
    pub(crate) fn insert(&mut self, ino: Ino, kind: ForkKind, remap: Remap) {
        self.0.insert((ino, kind == ForkKind::Attr), remap);
    }

    /// The map that a fork has instead.
    pub(crate) fn get(&self, ino: Ino, kind: ForkKind) -> Option<&Remap> {
        self.0.get(&(ino, kind == ForkKind::Attr))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

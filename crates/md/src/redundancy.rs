//! Whether the members that are left can answer for every byte. No I/O.

use crate::{Geometry, Layout, Level};

impl Level {
    /// Whether data can be had when a member is lost.
    #[must_use]
    pub fn is_redundant(self) -> bool {
        !matches!(self, Self::Linear | Self::Raid0)
    }
}

impl Geometry {
    /// Whether an array whose roles are filled as `present` says, each with a member that is right in all its bytes,
    /// still has all its data.
    pub(crate) fn is_enough(&self, present: impl Fn(u32) -> bool) -> bool {
        let missing = || (0..self.members).filter(|&role| !present(role)).count();
        match (self.level, self.layout) {
            (Level::Linear | Level::Raid0, _) => missing() == 0,
            (Level::Raid1, _) => (0..self.members).any(present),
            (Level::Raid4 | Level::Raid5, _) => missing() <= 1,
            (Level::Raid6, _) => missing() <= 2,
            (Level::Raid10, Layout::Copies(copies)) => {
                // The copies of a chunk lie on neighbours: near ones beside each other, and each far one as many roles
                // on as there are near ones. Chunks begin every `near` roles, around and around.
                let (near, all) = (u32::from(copies.near), u32::from(copies.near) * u32::from(copies.far));
                let mut first = 0;
                loop {
                    if !(first..first + all).any(|role| present(role % self.members)) {
                        return false;
                    }
                    first = (first + near) % self.members;
                    if first == 0 {
                        return true;
                    }
                }
            }
            (Level::Raid10, _) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Raid10Copies;

    fn survives(level: Level, layout: Layout, members: u32, missing: &[u32]) -> bool {
        let geometry = Geometry {
            level,
            layout,
            members,
            chunk_bytes: 65536,
            member_bytes: vec![1 << 20; members as usize],
        };
        geometry.is_enough(|role| !missing.contains(&role))
    }

    fn copies(near: u8, far: u8) -> Layout {
        Layout::Copies(Raid10Copies { near, far, offset: false })
    }

    #[test]
    fn each_level_survives_as_many_losses_as_it_promises() {
        assert!(!survives(Level::Raid0, Layout::None, 2, &[1]));
        assert!(survives(Level::Raid1, Layout::None, 3, &[0, 2]));
        assert!(!survives(Level::Raid1, Layout::None, 2, &[0, 1]));
        assert!(survives(Level::Raid5, Layout::None, 4, &[3]));
        assert!(!survives(Level::Raid5, Layout::None, 4, &[0, 3]));
        assert!(survives(Level::Raid6, Layout::None, 4, &[0, 3]));
        assert!(!survives(Level::Raid6, Layout::None, 5, &[0, 3, 4]));
    }

    #[test]
    fn raid10_survives_while_each_chunk_has_a_copy() {
        assert!(survives(Level::Raid10, copies(2, 1), 4, &[0, 2]));
        assert!(!survives(Level::Raid10, copies(2, 1), 4, &[0, 1]));
        assert!(survives(Level::Raid10, copies(2, 1), 4, &[1, 2]));
        // With three members, near copies of chunk 1 lie on members 2 and 0.
        assert!(!survives(Level::Raid10, copies(2, 1), 3, &[0, 2]));
        assert!(!survives(Level::Raid10, copies(1, 2), 4, &[1, 2]));
        assert!(survives(Level::Raid10, copies(1, 2), 4, &[0, 2]));
    }
}

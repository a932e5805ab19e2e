//! The extents of a fork's B+tree in memory, in order: a look-up reads no block of the tree.
//!
//! They lie in pieces that versions share. A change copies the piece that it concerns and the list of pieces, not all
//! extents. Trees of more than [`INCORE_EXTENTS_MAX`] extents are not kept so: such a list would cost more than it saves.

use std::sync::Arc;

use crate::format::extent::Extent;

/// The most extents that are kept.
pub(crate) const INCORE_EXTENTS_MAX: u64 = 1 << 15;

/// Extents in a piece at most; one that is full is cut into halves.
const PIECE_MAX: usize = 64;

/// The extents of a fork, in order. They do not overlap.
#[derive(Clone, Debug, Default)]
pub(crate) struct IncoreExtents {
    /// None is empty.
    pieces: Arc<[Piece]>,
    count: usize,
}

#[derive(Clone, Debug)]
struct Piece {
    /// Where its first extent begins in the file.
    first: u64,
    extents: Arc<[Extent]>,
}

impl IncoreExtents {
    /// The last extent that begins at `at` or before it, and the first one behind `at`.
    pub(crate) fn around(&self, at: u64) -> (Option<Extent>, Option<Extent>) {
        let after = self.pieces.partition_point(|piece| piece.first <= at);
        let first_of = |n: usize| self.pieces.get(n).and_then(|piece| piece.extents.first().copied());
        let Some(piece) = after.checked_sub(1).and_then(|n| self.pieces.get(n)) else {
            return (None, first_of(0));
        };
        // Of extents of one block each, as large directories have them, this is the one.
        let guess = (at - piece.first) as usize;
        let n = match piece.extents.get(guess) {
            Some(extent) if extent.file.0 == at => guess + 1,
            _ => piece.extents.partition_point(|extent| extent.file.0 <= at),
        };
        let before = n.checked_sub(1).and_then(|n| piece.extents.get(n).copied());
        (before, piece.extents.get(n).copied().or_else(|| first_of(after)))
    }

    /// The first block from `at` on that lies in no extent.
    pub(crate) fn first_hole(&self, at: u64) -> u64 {
        let piece = self.pieces.partition_point(|piece| piece.first <= at).saturating_sub(1);
        let mut hole = at;
        for extent in self.pieces[piece..].iter().flat_map(|piece| piece.extents.iter()) {
            if extent.file.0 > hole {
                break;
            }
            hole = hole.max(extent.end());
        }
        hole
    }

    /// With `new` in the place of `old`: extents that follow each other, or none. `None` for more extents than are kept.
    pub(crate) fn spliced(&self, old: &[Extent], new: &[Extent]) -> Option<Self> {
        let count = self.count + new.len() - old.len().min(self.count);
        if count as u64 > INCORE_EXTENTS_MAX {
            return None;
        }
        let Some(first) = old.first().or(new.first()).map(|extent| extent.file.0) else {
            return Some(self.clone());
        };
        // The pieces with the old extents, and the extents of these pieces.
        let begin = self.pieces.partition_point(|piece| piece.first <= first).saturating_sub(1);
        let (mut end, mut extents) = (begin, Vec::with_capacity(2 * PIECE_MAX));
        let mut at = 0;
        while let Some(piece) = self.pieces.get(end) {
            extents.extend_from_slice(&piece.extents);
            end += 1;
            at = extents.partition_point(|extent: &Extent| extent.file.0 < first);
            if extents.len() >= at + old.len() {
                break;
            }
        }
        debug_assert_eq!(extents.get(at..at + old.len()), Some(old), "extents that are not there");
        let behind = (at + old.len()).min(extents.len());
        extents.splice(at..behind, new.iter().copied());
        let changed = pieces_of(&extents);
        let pieces = [&self.pieces[..begin], &changed, &self.pieces[end..]].concat().into();
        Some(Self { pieces, count })
    }
}

impl FromIterator<Extent> for IncoreExtents {
    fn from_iter<I: IntoIterator<Item = Extent>>(extents: I) -> Self {
        let extents: Vec<_> = extents.into_iter().collect();
        Self { pieces: pieces_of(&extents).into(), count: extents.len() }
    }
}

impl IncoreExtents {
    pub(super) fn memory_bytes(&self) -> usize {
        self.count * size_of::<Extent>() + size_of_val(&self.pieces[..])
    }
}

/// As few pieces as may be, of the same size.
fn pieces_of(extents: &[Extent]) -> Vec<Piece> {
    let pieces = extents.len().div_ceil(PIECE_MAX).max(1);
    let piece = |extents: &[Extent]| Piece { first: extents[0].file.0, extents: extents.into() };
    extents.chunks(extents.len().div_ceil(pieces).max(1)).map(piece).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::{FileBlock, FsBlock};

    fn extent(file: u64, count: u32) -> Extent {
        Extent { file: FileBlock(file), block: FsBlock(1000 + file), count, unwritten: false }
    }

    /// The same by a plain list.
    fn around(list: &[Extent], at: u64) -> (Option<Extent>, Option<Extent>) {
        let n = list.partition_point(|extent| extent.file.0 <= at);
        (n.checked_sub(1).map(|n| list[n]), list.get(n).copied())
    }

    #[test]
    fn a_change_shows_in_the_new_version_and_not_in_the_old_one() {
        let mut list: Vec<_> = (0..1000).map(|n| extent(n * 10, 5)).collect();
        let mut known: IncoreExtents = list.iter().copied().collect();
        let mut random = 7_u64;
        for round in 0..3000 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let at = (random >> 33) as usize % list.len();
            let old = list[at..(at + (random >> 20) as usize % 3).min(list.len())].to_vec();
            let first = list[at].file.0;
            let new = match round % 3 {
                0 if old.is_empty() => vec![],
                0 if old[0].count < 5 => vec![extent(first, 1)],
                0 => vec![extent(first, 1), extent(first + 3, 1)],
                1 if old.is_empty() && first > 0 && (at == 0 || list[at - 1].end() < first) => {
                    vec![extent(first - 1, 1)]
                }
                1 => old.iter().map(|old| extent(old.file.0, old.count.min(2))).collect(),
                _ => vec![],
            };
            if round % 3 == 1 && old.is_empty() && new.is_empty() || first == 0 {
                continue;
            }
            let before = known.clone();
            known = known.spliced(&old, &new).unwrap();
            let was = list.clone();
            list.splice(at..at + old.len(), new);
            assert_eq!(known.count, list.len());
            for at in [0, first.saturating_sub(11), first - 1, first, first + 1, first + 30, 20_000] {
                assert_eq!(known.around(at), around(&list, at), "round {round}, block {at}");
                assert_eq!(before.around(at), around(&was, at));
            }
            assert!(known.pieces.iter().all(|piece| (1..=PIECE_MAX).contains(&piece.extents.len())));
        }
    }

    #[test]
    fn the_first_hole_lies_behind_extents_that_follow_each_other() {
        let known: IncoreExtents = (0..300).filter(|n| *n != 250).map(|n| extent(100 + n * 2, 2)).collect();
        assert_eq!([0, 99, 100, 101, 599].map(|at| known.first_hole(at)), [0, 99, 600, 600, 600]);
        assert_eq!(
            [600, 601, 602, 699, 700, 9000].map(|at| known.first_hole(at)),
            [600, 601, 700, 700, 700, 9000]
        );
        assert_eq!(IncoreExtents::default().first_hole(5), 5);
        let one = IncoreExtents::default().spliced(&[], &[extent(5, 1)]).unwrap();
        assert_eq!(
            (one.first_hole(5), one.around(4).1, one.around(5).0),
            (6, Some(extent(5, 1)), Some(extent(5, 1)))
        );
        let most: IncoreExtents = (0..INCORE_EXTENTS_MAX).map(|n| extent(n * 2, 1)).collect();
        assert!(most.spliced(&[], &[extent(1, 1)]).is_none());
    }
}

//! Where partitions lie on a disk: one behind the other, each at a multiple of the alignment, sizes as they are asked for.
//!
//! Partitions that may have several sizes share the disk by their weights, within their least and largest sizes, as
//! systemd-repart does it.

use std::ops::Range;

use crate::Error;

/// What partitions begin at multiples of unless said, in bytes.
pub const ALIGN_BYTES: u64 = 1 << 20;

/// The weight of a partition unless said.
pub const WEIGHT: u32 = 1000;

/// How large a partition may become.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// Its least size in bytes.
    pub min_bytes: u64,
    /// Its largest size in bytes; no end for `None`.
    pub max_bytes: Option<u64>,
    /// Its share of what is left.
    pub weight: u32,
}

impl Size {
    /// So many bytes.
    #[must_use]
    pub const fn fixed(bytes: u64) -> Self {
        Self { min_bytes: bytes, max_bytes: Some(bytes), weight: 0 }
    }

    /// So many bytes, and what is left.
    #[must_use]
    pub const fn from(bytes: u64) -> Self {
        Self { min_bytes: bytes, max_bytes: None, weight: WEIGHT }
    }

    /// Whether it can become larger than its least size.
    fn grows(&self) -> bool {
        self.weight > 0 && self.max_bytes.is_none_or(|max| max > self.min_bytes)
    }
}

/// The end of the last partition where each has its least size and the first begins at `start`.
///
/// # Errors
/// [`Error::Refused`]: the sizes are beyond all numbers.
pub fn least_end(sizes: &[Size], start: u64, align_bytes: u64) -> Result<u64, Error> {
    let end = sizes.iter().try_fold(start, |at, size| {
        at.checked_next_multiple_of(align_bytes)?.checked_add(rounded(size.min_bytes)?)
    });
    end.and_then(|end| end.checked_next_multiple_of(align_bytes))
        .ok_or_else(|| Error::Refused("the sizes of the partitions are too large".to_owned()))
}

/// Gives partitions their places within `room`, in their order.
///
/// # Errors
/// [`Error::Refused`]: there is too little room.
pub fn place(sizes: &[Size], room: Range<u64>, align_bytes: u64) -> Result<Vec<Range<u64>>, Error> {
    let needed = least_end(sizes, room.start, align_bytes)?;
    let last = sizes.last().map_or(0, |size| size.min_bytes);
    // The last partition may end off the alignment.
    let slack = last.next_multiple_of(align_bytes) - rounded(last).unwrap_or(last);
    if needed.saturating_sub(slack) > room.end {
        let missing = needed - slack - room.end;
        return Err(Error::Refused(format!("the partitions need {missing} bytes more than there are")));
    }
    let start = room.start.next_multiple_of(align_bytes);
    let grown = share(sizes, room.end.saturating_sub(start) / align_bytes * align_bytes, align_bytes);
    let mut at = room.start;
    let mut places = Vec::with_capacity(sizes.len());
    for bytes in grown {
        let start = at.next_multiple_of(align_bytes);
        at = start + bytes.next_multiple_of(GRAIN_BYTES);
        places.push(start..at);
    }
    Ok(places)
}

/// Sizes are multiples of this.
const GRAIN_BYTES: u64 = 4096;

fn rounded(bytes: u64) -> Option<u64> {
    bytes.checked_next_multiple_of(GRAIN_BYTES)
}

/// The size of each where all of them together take `room` bytes: by weight, but none less than its least size and none more
/// than its largest. Those that would be are given these first, and the others share what remains.
fn share(sizes: &[Size], room: u64, align_bytes: u64) -> Vec<u64> {
    let down = |bytes: u64| bytes / align_bytes * align_bytes;
    // What a partition takes with what it loses to the alignment.
    let taken = |bytes: u64| bytes.saturating_add(align_bytes - 1) / align_bytes * align_bytes;
    let mut decided: Vec<Option<u64>> =
        sizes.iter().map(|size| (!size.grows()).then_some(size.min_bytes)).collect();
    loop {
        let used = decided.iter().flatten().fold(0_u64, |used, &bytes| used.saturating_add(taken(bytes)));
        let left = room.saturating_sub(used);
        let open = |index: &usize| decided[*index].is_none();
        let growing: Vec<usize> = (0..sizes.len()).filter(open).collect();
        let weights: u64 = growing.iter().map(|&index| u64::from(sizes[index].weight)).sum();
        let part = |index: usize| {
            let part = u128::from(left) * u128::from(sizes[index].weight) / u128::from(weights.max(1));
            down(part as u64)
        };
        let too_small = growing.iter().find(|&&index| part(index) < sizes[index].min_bytes);
        let too_large =
            || growing.iter().find(|&&index| sizes[index].max_bytes.is_some_and(|max| part(index) > max));
        if let Some(&index) = too_small {
            decided[index] = Some(sizes[index].min_bytes);
        } else if let Some(&index) = too_large() {
            decided[index] = sizes[index].max_bytes;
        } else {
            let mut shared: Vec<u64> =
                (0..sizes.len()).map(|at| decided[at].unwrap_or_else(|| part(at))).collect();
            // What rounding leaves goes to the last that may have it.
            let rest = left.saturating_sub(growing.iter().map(|&index| part(index)).sum());
            if let Some(&last) = growing.last() {
                let most = sizes[last].max_bytes.unwrap_or(u64::MAX);
                shared[last] = shared[last].saturating_add(down(rest)).min(most);
            }
            return shared;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn mib(sizes: &[Size], end: u64) -> Vec<(u64, u64)> {
        let places = place(sizes, 17 * 1024..end * MIB, MIB).unwrap();
        places.iter().map(|place| (place.start / MIB, (place.end - place.start) / MIB)).collect()
    }

    #[test]
    fn fixed_sizes_follow_each_other() {
        let sizes = [Size::fixed(100 * MIB), Size::fixed(MIB / 2), Size::fixed(3 * MIB)];
        assert_eq!(least_end(&sizes, 17 * 1024, MIB).unwrap(), 105 * MIB);
        assert_eq!(mib(&sizes, 200), [(1, 100), (101, 0), (102, 3)]);
        assert_eq!(mib(&sizes, 105).len(), 3);
        let refused = place(&sizes, 0..103 * MIB, MIB).unwrap_err().to_string();
        assert!(refused.contains("need 1048576 bytes more"), "{refused}");
        let places = place(&[Size::fixed(MIB + 5)], MIB..2 * MIB + 4096, MIB).unwrap();
        assert_eq!(places.first(), Some(&(MIB..2 * MIB + 4096)));
    }

    #[test]
    fn what_is_left_is_shared_by_weight() {
        let rest = Size::from(10 * MIB);
        assert_eq!(mib(&[Size::fixed(9 * MIB), rest], 100), [(1, 9), (10, 90)]);
        assert_eq!(mib(&[rest, Size { weight: 3000, ..rest }], 101), [(1, 25), (26, 75)]);
        let limited = Size { max_bytes: Some(20 * MIB), ..rest };
        assert_eq!(mib(&[limited, rest], 101), [(1, 20), (21, 80)]);
        assert_eq!(mib(&[limited, limited], 101), [(1, 20), (21, 20)]);
        assert_eq!(mib(&[Size { weight: 0, ..rest }, rest], 101), [(1, 10), (11, 90)]);
        let tiny = Size { weight: 1, ..rest };
        assert_eq!(mib(&[tiny, tiny, tiny], 33), [(1, 10), (11, 10), (21, 12)]);
        let large = Size { min_bytes: 60 * MIB, ..rest };
        assert_eq!(mib(&[large, rest], 101), [(1, 60), (61, 40)]);
    }

    #[test]
    fn sizes_beyond_all_numbers_are_refused() {
        assert!(least_end(&[Size::fixed(u64::MAX), Size::fixed(1)], 0, MIB).is_err());
        assert!(place(&[Size::fixed(u64::MAX - 5000)], 0..MIB, MIB).is_err());
    }
}

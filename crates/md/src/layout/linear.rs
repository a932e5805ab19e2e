//! Linear arrays: one member after the other.

use super::Run;
use crate::Geometry;
use crate::member::Role;

/// Where the members of a linear array begin.
#[derive(Clone, Debug)]
pub(crate) struct LinearMap {
    /// First byte behind each member, by role; rising.
    ends: Vec<u64>,
}

impl LinearMap {
    /// The map of a checked geometry. A chunk size rounds the members down (`linear_conf` in the md driver); today's
    /// `mdadm` gives none.
    pub(crate) fn new(geometry: &Geometry) -> Self {
        let mut end = 0;
        let ends = (0..geometry.members).map(|role| {
            end += geometry.rounded_member_bytes(Role(role));
            end
        });
        Self { ends: ends.collect() }
    }

    /// The run at `offset` of the array, which lies within it.
    pub(crate) fn locate(&self, offset: u64) -> Run {
        // Members of no size are passed over: the first whose end lies behind the offset holds it.
        let role = self.ends.partition_point(|&end| end <= offset);
        let begin = if role == 0 { 0 } else { self.ends[role - 1] };
        Run { role: Role(role as u32), member_offset: offset - begin, len: self.ends[role] - offset }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Layout, Level};

    #[test]
    fn every_byte_lies_where_laying_the_members_end_to_end_puts_it() {
        for chunk_bytes in [0, 4096] {
            let geometry = Geometry {
                level: Level::Linear,
                layout: Layout::None,
                members: 4,
                chunk_bytes,
                member_bytes: vec![9000, 4096, 100, 8192],
            };
            let sizes: &[u64] =
                if chunk_bytes == 0 { &[9000, 4096, 100, 8192] } else { &[8192, 4096, 0, 8192] };
            let naive: Vec<(u32, u64)> =
                (0..4).flat_map(|role| (0..sizes[role as usize]).map(move |byte| (role, byte))).collect();
            let map = LinearMap::new(&geometry);
            assert_eq!(geometry.array_bytes(), naive.len() as u64);
            for (offset, &(role, member_offset)) in naive.iter().enumerate() {
                let run = map.locate(offset as u64);
                assert_eq!((run.role, run.member_offset), (Role(role), member_offset), "byte {offset}");
                assert_eq!(run.len, sizes[role as usize] - member_offset);
            }
        }
    }
}

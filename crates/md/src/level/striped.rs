//! Linear and RAID0: each byte on one member, nothing to fall back on.
//!
//! A request that lies on one member goes straight there; others are cut up and go to each member in one batch. A
//! member that answers with an error stays: the array cannot do without it, and what can be read still is. No locks.

use std::sync::Arc;

use undercroft_block::Request;

use super::batch::Batches;
use super::{Personality, Shared, SyncStep, SyncWork};
use crate::layout::{LinearMap, Raid0Map, Run};
use crate::member::{Lineup, Member, Role};
use crate::{Error, Level, Result};

/// A linear array or a RAID0 at work.
#[derive(Debug)]
pub(crate) struct Striped {
    shared: Arc<Shared>,
    map: Map,
}

#[derive(Debug)]
enum Map {
    Linear(LinearMap),
    Raid0(Raid0Map),
}

impl Map {
    fn locate(&self, offset: u64) -> Run {
        match self {
            Self::Linear(map) => map.locate(offset),
            Self::Raid0(map) => map.locate(offset),
        }
    }
}

impl Striped {
    /// The level of a checked geometry of one of these two.
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        let map = match shared.geometry.level {
            Level::Linear => Map::Linear(LinearMap::new(&shared.geometry)),
            _ => Map::Raid0(Raid0Map::new(&shared.geometry)),
        };
        Self { shared, map }
    }

    /// Cuts a read up and hands the pieces to the members they lie on.
    fn gather_read<'m, 'r>(
        &self,
        lineup: &'m Lineup,
        batches: &mut Batches<'m, 'r>,
        mut offset: u64,
        mut buf: &'r mut [u8],
    ) -> Result<()> {
        while !buf.is_empty() {
            let run = self.map.locate(offset);
            let len = run.len.min(buf.len() as u64);
            let (piece, rest) = buf.split_at_mut(len as usize);
            let request = Request::Read { offset: run.member_offset, buf: piece };
            batches.push(run.role, present(lineup, run.role)?, offset, request);
            (offset, buf) = (offset + len, rest);
        }
        Ok(())
    }

    /// The same for a write.
    fn gather_write<'m, 'r>(
        &self,
        lineup: &'m Lineup,
        batches: &mut Batches<'m, 'r>,
        mut offset: u64,
        mut data: &'r [u8],
    ) -> Result<()> {
        while !data.is_empty() {
            let run = self.map.locate(offset);
            let len = run.len.min(data.len() as u64);
            let (piece, rest) = data.split_at(len as usize);
            let request = Request::Write { offset: run.member_offset, data: piece };
            batches.push(run.role, present(lineup, run.role)?, offset, request);
            (offset, data) = (offset + len, rest);
        }
        Ok(())
    }
}

impl Personality for Striped {
    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        if buf.is_empty() {
            return Ok(());
        }
        let run = self.map.locate(offset);
        if buf.len() as u64 <= run.len {
            return Ok(present(&self.shared.lineup(), run.role)?.read_at(run.member_offset, buf)?);
        }
        self.run_batch(&mut [Request::Read { offset, buf }])
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<()> {
        if data.is_empty() {
            return Ok(());
        }
        let run = self.map.locate(offset);
        if data.len() as u64 <= run.len {
            return Ok(present(&self.shared.lineup(), run.role)?.write_at(run.member_offset, data)?);
        }
        self.run_batch(&mut [Request::Write { offset, data }])
    }

    fn run_batch(&self, batch: &mut [Request<'_>]) -> Result<()> {
        let lineup = self.shared.lineup();
        let mut batches = Batches::default();
        for request in batch {
            match request {
                Request::Read { offset, buf } => self.gather_read(&lineup, &mut batches, *offset, buf)?,
                Request::Write { offset, data } => self.gather_write(&lineup, &mut batches, *offset, data)?,
            }
        }
        for task in batches.run() {
            task.outcome?;
        }
        Ok(())
    }

    fn sync(&self, _: u64, len: u64, _: SyncWork) -> Result<SyncStep> {
        // There is no redundancy to work on; a request for it is done at once.
        Ok(SyncStep { done: len, mismatched: 0 })
    }
}

fn present(lineup: &Lineup, role: Role) -> Result<&Arc<Member>> {
    lineup.member(role).ok_or_else(|| {
        Error::TooFewMembers(format!("member {} is missing, and nothing else has its data", role.0))
    })
}

#[cfg(test)]
mod tests {
    use undercroft_block::testing::Rng;

    use super::*;
    use crate::level::testing::Members;
    use crate::{Geometry, Layout};

    fn shapes() -> Vec<Geometry> {
        let shape = |level, layout, chunk_bytes, sizes: &[u64]| Geometry {
            level,
            layout,
            members: sizes.len() as u32,
            chunk_bytes,
            member_bytes: sizes.to_vec(),
        };
        let chunk = 4096;
        vec![
            shape(Level::Linear, Layout::None, 0, &[30_000, 512, 70_000]),
            shape(Level::Raid0, Layout::None, chunk, &[40 * 4096; 3]),
            shape(Level::Raid0, Layout::Zones(1), chunk, &[40 * 4096, 10 * 4096, 31 * 4096]),
            shape(Level::Raid0, Layout::Zones(2), chunk, &[40 * 4096, 10 * 4096, 31 * 4096]),
            shape(Level::Raid0, Layout::None, 12288, &[100_000; 2]),
            shape(Level::Raid0, Layout::None, 65536, &[1 << 20]),
        ]
    }

    #[test]
    fn random_requests_agree_with_a_plain_array_of_bytes() {
        for (number, geometry) in shapes().into_iter().enumerate() {
            geometry.check().unwrap();
            let members = Members::new(&geometry);
            let size = geometry.array_bytes();
            let level = Striped::new(members.share(geometry));
            members.exercise(&level, &mut Rng::new(number as u64), 400, size);
        }
    }

    #[test]
    fn without_a_member_the_rest_is_still_read() {
        for geometry in shapes() {
            let members = Members::new(&geometry);
            let shared = members.share(geometry.clone());
            let level = Striped::new(Arc::clone(&shared));
            let data: Vec<u8> = (0..geometry.array_bytes()).map(|at| (at / 7) as u8).collect();
            level.write(0, &data).unwrap();
            shared.change_lineup(|lineup| lineup.places[0].member = None);
            let mut lost = 0;
            for offset in (0..data.len() as u64).step_by(512) {
                let mut buf = [0; 512];
                let len = buf.len().min(data.len() - offset as usize);
                match level.read(offset, &mut buf[..len]) {
                    Ok(()) => assert_eq!(buf[..len], data[offset as usize..][..len]),
                    Err(Error::TooFewMembers(_)) => lost += len as u64,
                    Err(error) => panic!("{error}"),
                }
            }
            assert!(lost >= geometry.rounded_member_bytes(Role(0)) - 512, "{geometry:?}");
            assert!(lost <= geometry.rounded_member_bytes(Role(0)) + 512, "{geometry:?}");
        }
    }
}

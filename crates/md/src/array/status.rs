//! What an array tells of itself: one snapshot, for people and for programs.

use std::fmt;

use uuid::Uuid;

use super::core::Core;
use super::jobs::{Action, Finished, Progress};
use super::records::Duty;
use crate::Geometry;
use crate::level::Counters;
use crate::superblock::{Timestamp, Version};

/// The state of an array at one moment.
#[derive(Clone, Debug)]
pub struct Status {
    /// `host:name`, or just the name.
    pub name: String,
    /// The array's UUID.
    pub uuid: Uuid,
    /// Of the superblocks.
    pub version: Version,
    /// When it was made.
    pub created: Timestamp,
    /// Level, layout, chunk, number of roles, sizes.
    pub geometry: Geometry,
    /// Bytes of the array.
    pub size_bytes: u64,
    /// When the superblocks were written last.
    pub updated: Timestamp,
    /// The event count of the superblocks.
    pub events: u64,
    /// The superblocks say that writes may be under way.
    pub is_active: bool,
    /// Roles without a member that is in sync.
    pub degraded: u32,
    /// The redundancy is not known to be right everywhere.
    pub needs_resync: bool,
    /// Why nothing is written, if so.
    pub read_only: Option<String>,
    /// Why nothing is written any more, if so.
    pub stopped: Option<String>,
    /// How the redundancy is kept right over a crash.
    pub consistency: ConsistencyPolicy,
    /// The devices, by number.
    pub members: Vec<MemberStatus>,
    /// Background work that is under way.
    pub progress: Option<Progress>,
    /// How the last background work ended.
    pub finished: Option<Finished>,
    /// The write-intent bitmap, if there is one.
    pub bitmap: Option<BitmapStatus>,
    /// Bytes of memory that the level holds for its work.
    pub memory_bytes: u64,
    /// What the level has counted.
    pub counters: Counters,
    /// What was done against caution when it was opened.
    pub warnings: Vec<String>,
}

/// How a write-intent bitmap is filled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BitmapStatus {
    /// Bits that are set.
    pub set: u64,
    /// Bits in all.
    pub total: u64,
    /// Bytes of the members (RAID10: of the array) that a bit stands for.
    pub chunk_bytes: u64,
}

/// How the redundancy is kept right over a crash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConsistencyPolicy {
    /// There is none to keep.
    None,
    /// All of it is made right after an unclean stop.
    Resync,
    /// What the write-intent bitmap names is made right.
    Bitmap,
    /// The partial parity log makes it right.
    Ppl,
}

/// A device of an array.
#[derive(Clone, Debug)]
pub struct MemberStatus {
    /// Its number in the superblocks.
    pub number: u32,
    /// The name of the device.
    pub device: String,
    /// What it does.
    pub duty: Duty,
    /// So many bytes of it are right; `None`: all that matter.
    pub recovered_bytes: Option<u64>,
    /// Blocks that can neither be read nor written: ranges.
    pub bad_blocks: usize,
    /// Reads that failed and were corrected from the other members, ever.
    pub corrected_reads: u32,
    /// Why it failed, if it did since the array was opened.
    pub failure: Option<String>,
}

impl MemberStatus {
    /// As `mdadm --detail` has it.
    #[must_use]
    pub fn state(&self) -> &'static str {
        match (self.duty, self.recovered_bytes) {
            (Duty::Active(_), None) => "active sync",
            (Duty::Active(_), Some(_)) => "spare rebuilding",
            (Duty::Replacement(_), None) => "active replacement",
            (Duty::Replacement(_), Some(_)) => "replacement rebuilding",
            (Duty::Spare, _) => "spare",
            (Duty::Faulty, _) => "faulty",
        }
    }
}

impl Status {
    /// As `mdadm --detail` has it: `clean, degraded, recovering`.
    #[must_use]
    pub fn state(&self) -> String {
        let action = self.progress.as_ref().map(|progress| progress.action);
        let words = [
            Some(if self.is_active || self.needs_resync { "active" } else { "clean" }),
            self.stopped.is_some().then_some("FAILED"),
            (self.degraded > 0).then_some("degraded"),
            action.map(|action| match action {
                Action::Resync => "resyncing",
                Action::Recover => "recovering",
                Action::Replace => "replacing",
                Action::Check => "checking",
                Action::Repair => "repairing",
            }),
            (self.needs_resync && action.is_none()).then_some("Not Started"),
            self.read_only.is_some().then_some("read-only"),
        ];
        words.into_iter().flatten().collect::<Vec<_>>().join(", ")
    }
}

impl fmt::Display for ConsistencyPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "none",
            Self::Resync => "resync",
            Self::Bitmap => "bitmap",
            Self::Ppl => "ppl",
        })
    }
}

impl Core {
    pub(super) fn status(&self) -> Status {
        let (mut members, events, updated, is_active, resynced) = self.records.with_state(|state| {
            let members: Vec<_> = state
                .disks
                .iter()
                .map(|disk| MemberStatus {
                    number: disk.member.number(),
                    device: disk.member.device().name(),
                    duty: disk.duty,
                    recovered_bytes: match disk.duty {
                        Duty::Active(_) | Duty::Replacement(_) if !disk.member.is_in_sync() => {
                            Some(disk.member.recovered())
                        }
                        _ => None,
                    },
                    bad_blocks: disk.bad_blocks.len(),
                    corrected_reads: disk.member.corrected_reads().total(),
                    failure: disk.failure.clone(),
                })
                .collect();
            (members, state.events, state.updated, state.is_active, state.resynced)
        });
        members.sort_by_key(|member| member.number);
        let in_sync = |role: u32| {
            let mut all = members.iter();
            all.any(|member| member.duty == Duty::Active(role) && member.recovered_bytes.is_none())
        };
        let consistency = match (self.geometry().level.is_redundant(), &self.intent, self.identity.has_ppl) {
            (false, ..) => ConsistencyPolicy::None,
            (true, Some(_), _) => ConsistencyPolicy::Bitmap,
            (true, None, true) => ConsistencyPolicy::Ppl,
            (true, None, false) => ConsistencyPolicy::Resync,
        };
        Status {
            name: self.identity.name.clone(),
            uuid: self.identity.uuid,
            version: self.identity.version,
            created: self.identity.created,
            geometry: self.geometry().clone(),
            size_bytes: self.size_bytes,
            updated,
            events,
            is_active,
            degraded: (0..self.geometry().members).filter(|&role| !in_sync(role)).count() as u32,
            needs_resync: resynced != crate::superblock::IN_SYNC,
            read_only: self.read_only.clone(),
            stopped: self.shared.stopped().map(str::to_owned),
            consistency,
            members,
            progress: self.jobs.progress(),
            finished: self.jobs.finished(),
            bitmap: self.intent.as_ref().map(|intent| intent.status()),
            memory_bytes: self.personality.memory_bytes(),
            counters: self.personality.counters(),
            warnings: self.identity.warnings.clone(),
        }
    }
}

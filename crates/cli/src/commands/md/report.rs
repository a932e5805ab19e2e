//! How an array is doing, for people and for programs.

use std::borrow::Cow;
use std::io::Write;

use serde::{Deserialize, Serialize};
use undercroft_md::{
    Action, DeviceRole, Duty, Finished, Layout, Level, ParityLayout, Progress, Raid10Copies, Status,
    Timestamp,
};

use crate::failure::Failure;
use crate::text::human;
use crate::text::names::safe;
use crate::text::out::Out;
use crate::text::style;

/// What is reported of an array. Sizes are bytes.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Report {
    name: String,
    uuid: String,
    metadata: String,
    level: Cow<'static, str>,
    layout: Option<String>,
    chunk_bytes: u32,
    size_bytes: u64,
    raid_devices: u32,
    /// As `mdadm --detail` has it.
    state: String,
    /// Roles without a member that is in sync.
    degraded: u32,
    missing_roles: Vec<u32>,
    /// The redundancy is not known to be right everywhere.
    needs_resync: bool,
    consistency_policy: String,
    created: String,
    updated: String,
    events: u64,
    bitmap: Option<Bitmap>,
    members: Vec<Member>,
    #[serde(skip_serializing_if = "Option::is_none")]
    finished: Option<Outcome>,
    /// Work that is under way.
    #[serde(skip_serializing_if = "Option::is_none")]
    progress: Option<WorkProgress>,
    notes: Vec<String>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Bitmap {
    dirty_bits: u64,
    bits: u64,
    chunk_bytes: u64,
}

#[derive(Debug, Serialize, Deserialize)]
struct Member {
    number: u32,
    role: Option<u32>,
    state: Cow<'static, str>,
    device: String,
    /// So much of it is right, if not all is.
    #[serde(skip_serializing_if = "Option::is_none")]
    recovered_bytes: Option<u64>,
    bad_blocks: usize,
    /// Reads that failed and were corrected from the others.
    corrected_read_errors: u32,
    /// Why it failed, if it did just now.
    #[serde(skip_serializing_if = "Option::is_none")]
    failure: Option<String>,
}

/// How far background work is.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct WorkProgress {
    pub(crate) action: Cow<'static, str>,
    pub(crate) position_bytes: u64,
    pub(crate) total_bytes: u64,
    pub(crate) bytes_per_second: u64,
}

impl From<&Progress> for WorkProgress {
    fn from(progress: &Progress) -> Self {
        Self {
            action: word(progress.action).into(),
            position_bytes: progress.position_bytes,
            total_bytes: progress.total_bytes,
            bytes_per_second: progress.bytes_per_second,
        }
    }
}

impl WorkProgress {
    /// `recovery, 12% of 4 GiB, 200 MiB a second`.
    pub(crate) fn words(&self) -> String {
        format!(
            "{}, {} of {}, {} a second",
            self.action,
            human::percent(self.position_bytes, self.total_bytes),
            human::size(self.total_bytes),
            human::size(self.bytes_per_second)
        )
    }
}

/// Background work in a word.
pub(super) const fn word(action: Action) -> &'static str {
    match action {
        Action::Resync => "resync",
        Action::Recover => "recovery",
        Action::Replace => "replacement",
        Action::Check => "check",
        Action::Repair => "repair",
    }
}

/// How background work ended.
#[derive(Debug, Serialize, Deserialize)]
struct Outcome {
    action: Cow<'static, str>,
    mismatched_bytes: u64,
}

/// What the server of a mount says of its array.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ArrayReport {
    pub(crate) report: Report,
    /// A check found something.
    pub(crate) mismatched: bool,
}

impl Report {
    pub(crate) fn of(status: Status) -> Self {
        let members: Vec<Member> = status
            .members
            .iter()
            .map(|member| Member {
                number: member.number,
                role: match member.duty {
                    Duty::Active(role) | Duty::Replacement(role) => Some(role),
                    Duty::Spare | Duty::Faulty => None,
                },
                state: member.state().into(),
                device: member.device.clone(),
                recovered_bytes: member.recovered_bytes,
                bad_blocks: member.bad_blocks,
                corrected_read_errors: member.corrected_reads,
                failure: member.failure.clone(),
            })
            .collect();
        let is_filled = |role: u32| members.iter().any(|member| member.role == Some(role));
        Self {
            state: status.state(),
            missing_roles: (0..status.geometry.members).filter(|&role| !is_filled(role)).collect(),
            uuid: status.uuid.to_string(),
            metadata: status.version.to_string(),
            level: level(status.geometry.level).into(),
            layout: layout(status.geometry.layout),
            chunk_bytes: status.geometry.chunk_bytes,
            size_bytes: status.size_bytes,
            raid_devices: status.geometry.members,
            degraded: status.degraded,
            needs_resync: status.needs_resync,
            consistency_policy: status.consistency.to_string(),
            created: moment(status.created),
            updated: moment(status.updated),
            events: status.events,
            bitmap: status.bitmap.map(|bitmap| Bitmap {
                dirty_bits: bitmap.set,
                bits: bitmap.total,
                chunk_bytes: bitmap.chunk_bytes,
            }),
            members,
            finished: status.finished.map(Outcome::from),
            progress: status.progress.as_ref().map(WorkProgress::from),
            notes: status.warnings,
            name: status.name,
        }
    }

    /// As people read it.
    pub(crate) fn text(&self, out: &mut Out, title: &str) -> Result<(), Failure> {
        let palette = out.palette;
        let name = safe(self.name.as_bytes());
        let name = if name.is_empty() { String::new() } else { format!(" \"{name}\"") };
        writeln!(
            out,
            "{}{name} of {} on {title}",
            palette.paint(style::HEADING, &self.level),
            human::size(self.size_bytes)
        )?;
        let mut line = |label: &str, value: &str| {
            writeln!(out, "  {} {value}", palette.paint(style::DIM, &format!("{label:<8}")))
        };
        line("uuid", &self.uuid)?;
        let is_well = self.degraded == 0 && !self.needs_resync;
        line("state", &palette.paint(if is_well { style::GOOD } else { style::WARN }, &self.state))?;
        line("shape", &self.shape())?;
        line("crashes", &self.policy())?;
        line("written", &format!("{}, {} events, metadata {}", self.updated, self.events, self.metadata))?;
        line("created", &self.created)?;
        for member in &self.members {
            let role = member.role.map_or_else(|| "-".to_owned(), |role| role.to_string());
            let recovered = match member.recovered_bytes {
                Some(bytes) => format!(", {} of it", human::size(bytes)),
                None => String::new(),
            };
            let bad = match member.bad_blocks {
                0 => String::new(),
                bad => format!(", {}", human::counted(bad as u64, "bad range")),
            };
            let corrected = match member.corrected_read_errors {
                0 => String::new(),
                count => format!(", {}", human::counted(count.into(), "corrected read error")),
            };
            let failure =
                member.failure.as_ref().map_or_else(String::new, |why| format!(": {}", safe(why.as_bytes())));
            let words = format!(
                "{:>2}  role {role:<2}  {}{recovered}{bad}{corrected}  {}{failure}",
                member.number,
                member.state,
                safe(member.device.as_bytes())
            );
            line("member", &words)?;
        }
        for role in &self.missing_roles {
            line("member", &palette.paint(style::WARN, &format!(" -  role {role:<2}  missing")))?;
        }
        if let Some(progress) = &self.progress {
            line("work", &progress.words())?;
        }
        if let Some(outcome) = &self.finished {
            line("done", &outcome.words())?;
        }
        Ok(())
    }

    fn shape(&self) -> String {
        let mut words = human::counted(self.raid_devices.into(), "member");
        if let Some(layout) = &self.layout {
            words += &format!(", {layout}");
        }
        if self.chunk_bytes > 0 {
            words += &format!(", chunks of {}", human::size(self.chunk_bytes.into()));
        }
        words
    }

    fn policy(&self) -> String {
        match (&self.bitmap, self.consistency_policy.as_str()) {
            (Some(bitmap), _) => format!(
                "write-intent bitmap, {} of {} set, of {} each",
                human::count(bitmap.dirty_bits),
                human::counted(bitmap.bits, "bit"),
                human::size(bitmap.chunk_bytes)
            ),
            (None, "ppl") => "partial parity log".to_owned(),
            (None, "none") => "no redundancy".to_owned(),
            (None, _) => "a resync of all".to_owned(),
        }
    }
}

impl From<Finished> for Outcome {
    fn from(finished: Finished) -> Self {
        let action = word(finished.action);
        Self { action: action.into(), mismatched_bytes: finished.mismatched_bytes }
    }
}

impl Outcome {
    /// `check, 0 mismatches`.
    fn words(&self) -> String {
        match (&*self.action, self.mismatched_bytes) {
            ("check" | "repair", 0) => format!("{}, 0 mismatches", self.action),
            ("check", bytes) => {
                format!("check, mismatches in {}; `md repair` makes them right", human::size(bytes))
            }
            ("repair", bytes) => format!("repair, mismatches in {} were made right", human::size(bytes)),
            (action, _) => action.to_owned(),
        }
    }
}

/// To the second.
pub(super) fn moment(time: Timestamp) -> String {
    human::second_or_never(undercroft_vfs::Timestamp {
        seconds: time.seconds.cast_signed(),
        nanoseconds: time.microseconds.saturating_mul(1000),
    })
}

/// As mdadm calls it.
pub(super) const fn level(level: Level) -> &'static str {
    match level {
        Level::Linear => "linear",
        Level::Raid0 => "raid0",
        Level::Raid1 => "raid1",
        Level::Raid4 => "raid4",
        Level::Raid5 => "raid5",
        Level::Raid6 => "raid6",
        Level::Raid10 => "raid10",
    }
}

/// As mdadm calls it, where the level has any.
pub(super) fn layout(layout: Layout) -> Option<String> {
    let word = match layout {
        Layout::None => return None,
        Layout::Zones(1) => "original",
        Layout::Zones(_) => "alternate",
        Layout::Parity(ParityLayout::LeftAsymmetric) => "left-asymmetric",
        Layout::Parity(ParityLayout::RightAsymmetric) => "right-asymmetric",
        Layout::Parity(ParityLayout::LeftSymmetric) => "left-symmetric",
        Layout::Parity(ParityLayout::RightSymmetric) => "right-symmetric",
        Layout::Parity(ParityLayout::ParityFirst) => "parity-first",
        Layout::Parity(ParityLayout::ParityLast) => "parity-last",
        Layout::Copies(Raid10Copies { near, far, offset }) => {
            let far_word = if offset { "offset" } else { "far" };
            return Some(match (near, far) {
                (near, 1) => format!("near={near}"),
                (1, far) => format!("{far_word}={far}"),
                (near, far) => format!("near={near}, {far_word}={far}"),
            });
        }
    };
    Some(word.to_owned())
}

/// What a device is in the table of roles.
pub(super) const fn role(role: DeviceRole) -> &'static str {
    match role {
        DeviceRole::Active(_) => "active",
        DeviceRole::Spare => "spare",
        DeviceRole::Faulty => "faulty",
        DeviceRole::Journal => "journal",
    }
}

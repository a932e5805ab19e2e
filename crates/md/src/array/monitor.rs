//! Events of an array, reported to a listener.
//!
//! The monitor thread wakes when the array's state changes, compares the status with the one it saw last, and reports the
//! differences as events. So the code that changes the state reports nothing itself. A change that begins and ends between
//! two looks is reported by its result: a spare that was taken and rebuilt meanwhile gives both events at once. The thread
//! takes no locks of its own; a slow listener delays the next event and nothing else.
//!
//! The events' names are those of `mdadm --monitor` where it has one.

use std::fmt;

use super::CLOSED;
use super::core::Core;
use super::jobs::{Action, Finished};
use super::records::Duty;
use super::status::{MemberStatus, Status};

/// Something that happened to an array.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// It was started without members, so many of them.
    Degraded {
        /// Roles without a member that is in sync.
        missing: u32,
    },
    /// A member or a spare failed.
    Failed {
        /// The name of its device.
        member: String,
        /// It held a role.
        had_role: bool,
        /// Why, as far as that is known.
        why: Option<String>,
    },
    /// A device took up a role, as its member or as the replacement of one, and is being filled.
    Taken {
        /// The name of its device.
        member: String,
        /// The role.
        role: u32,
    },
    /// A device that was being filled holds all that its role wants.
    Active {
        /// The name of its device.
        member: String,
        /// The role.
        role: u32,
    },
    /// There are more bad blocks on a member than before.
    BadBlocks {
        /// The name of its device.
        member: String,
        /// Ranges on its list now.
        ranges: usize,
    },
    /// Background work began.
    Started(Action),
    /// Background work ended.
    Ended(Finished),
    /// Nothing is written any more.
    Stopped {
        /// Why.
        why: String,
    },
}

impl Event {
    /// A word for programs, as `mdadm --monitor` has it.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Degraded { .. } => "DegradedArray",
            Self::Failed { had_role: true, .. } => "Fail",
            Self::Failed { had_role: false, .. } => "FailSpare",
            Self::Taken { .. } => "SpareTaken",
            Self::Active { .. } => "SpareActive",
            Self::BadBlocks { .. } => "BadBlocks",
            Self::Started(_) => "RebuildStarted",
            Self::Ended(_) => "RebuildFinished",
            Self::Stopped { .. } => "Stopped",
        }
    }

    /// The device that it is about, if it is about one.
    #[must_use]
    pub fn member(&self) -> Option<&str> {
        match self {
            Self::Failed { member, .. }
            | Self::Taken { member, .. }
            | Self::Active { member, .. }
            | Self::BadBlocks { member, .. } => Some(member),
            Self::Degraded { .. } | Self::Started(_) | Self::Ended(_) | Self::Stopped { .. } => None,
        }
    }

    /// Whether something is wrong that the administrator should know at once.
    #[must_use]
    pub fn is_trouble(&self) -> bool {
        match self {
            Self::Degraded { .. } | Self::Failed { .. } | Self::BadBlocks { .. } | Self::Stopped { .. } => {
                true
            }
            Self::Ended(finished) => finished.interrupted.is_some() || finished.mismatched_bytes > 0,
            Self::Taken { .. } | Self::Active { .. } | Self::Started(_) => false,
        }
    }

    /// What is to be told of an array that was just started.
    pub(super) fn of_start(status: &Status) -> Vec<Self> {
        let degraded = (status.degraded > 0).then_some(Self::Degraded { missing: status.degraded });
        degraded.into_iter().collect()
    }

    /// What happened between two looks at an array.
    pub(super) fn between(before: &Status, after: &Status) -> Vec<Self> {
        let mut events = Vec::new();
        for member in &after.members {
            let old = before.members.iter().find(|old| is_same(old, member));
            events.extend(Self::of_member(old, member));
        }
        let action = |status: &Status| status.progress.as_ref().map(|progress| progress.action);
        if after.finished != before.finished
            && let Some(finished) = &after.finished
        {
            if action(before) != Some(finished.action) {
                events.push(Self::Started(finished.action));
            }
            events.push(Self::Ended(finished.clone()));
        }
        if let Some(begun) = action(after)
            && action(before) != Some(begun)
        {
            events.push(Self::Started(begun));
        }
        if let (None, Some(why)) = (&before.stopped, &after.stopped)
            && why != CLOSED
        {
            events.push(Self::Stopped { why: why.clone() });
        }
        events
    }

    fn of_member(before: Option<&MemberStatus>, after: &MemberStatus) -> Vec<Self> {
        let mut events = Vec::new();
        let name = || after.device.clone();
        let (old_duty, was_filled, old_bad) = before
            .map_or((Duty::Spare, false, 0), |old| (old.duty, old.recovered_bytes.is_none(), old.bad_blocks));
        match (old_duty, after.duty) {
            (Duty::Faulty, Duty::Faulty) => return events,
            (old, Duty::Faulty) => {
                let (had_role, why) = (old != Duty::Spare, after.failure.clone());
                events.push(Self::Failed { member: name(), had_role, why });
            }
            (old, Duty::Active(role) | Duty::Replacement(role)) => {
                let is_filled = after.recovered_bytes.is_none();
                let is_new = matches!(old, Duty::Spare | Duty::Faulty);
                if is_new {
                    events.push(Self::Taken { member: name(), role });
                }
                if is_filled && (is_new || !was_filled) {
                    events.push(Self::Active { member: name(), role });
                }
            }
            (_, Duty::Spare) => {}
        }
        if after.bad_blocks > old_bad {
            events.push(Self::BadBlocks { member: name(), ranges: after.bad_blocks });
        }
        events
    }
}

fn is_same(one: &MemberStatus, other: &MemberStatus) -> bool {
    one.number == other.number && one.device == other.device
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Degraded { missing: 1 } => f.write_str("the array is degraded: it lacks 1 member"),
            Self::Degraded { missing } => write!(f, "the array is degraded: it lacks {missing} members"),
            Self::Failed { member, had_role, why } => {
                let what = if *had_role { "member" } else { "spare" };
                write!(f, "{what} {member} failed")?;
                why.as_ref().map_or(Ok(()), |why| write!(f, ": {why}"))
            }
            Self::Taken { member, role } => write!(f, "{member} takes role {role} and is being filled"),
            Self::Active { member, role } => write!(f, "{member} is in sync in role {role}"),
            Self::BadBlocks { member, ranges } => {
                write!(
                    f,
                    "{member} does not take all that is written to it: {ranges} ranges of blocks are bad"
                )
            }
            Self::Started(action) => write!(f, "{} began", words(*action)),
            Self::Ended(Finished { action, mismatched_bytes, interrupted }) => {
                match interrupted {
                    None => write!(f, "{} ended", words(*action))?,
                    Some(why) => write!(f, "{} was interrupted: {why}", words(*action))?,
                }
                if *mismatched_bytes > 0 {
                    write!(f, "; {mismatched_bytes} bytes did not agree")
                } else {
                    Ok(())
                }
            }
            Self::Stopped { why } => write!(f, "nothing is written to the array any more: {why}"),
        }
    }
}

const fn words(action: Action) -> &'static str {
    match action {
        Action::Resync => "making the redundancy right",
        Action::Recover => "filling members",
        Action::Replace => "filling replacements",
        Action::Check => "checking the redundancy",
        Action::Repair => "repairing the redundancy",
    }
}

impl Core {
    /// What the monitor does until the array is closed; `first` is its first look at the array.
    pub(super) fn monitor(&self, first: Status, mut tell: impl FnMut(&Event)) {
        let mut seen = super::wake::Seen::default();
        Event::of_start(&first).iter().for_each(&mut tell);
        let mut last = first;
        loop {
            // Before the look, which then is the last.
            let is_over = self.is_over();
            let now = self.status();
            Event::between(&last, &now).iter().for_each(&mut tell);
            last = now;
            if is_over {
                return;
            }
            self.wake.wait(&mut seen, None);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(duty: Duty, recovered_bytes: Option<u64>, bad_blocks: usize) -> MemberStatus {
        let (number, device) = (1, "sdb".to_owned());
        MemberStatus { number, device, duty, recovered_bytes, bad_blocks, corrected_reads: 0, failure: None }
    }

    fn names(before: Option<&MemberStatus>, after: &MemberStatus) -> Vec<&'static str> {
        Event::of_member(before, after).iter().map(Event::name).collect()
    }

    #[test]
    fn what_happens_to_a_member_is_told_once() {
        let in_sync = || member(Duty::Active(1), None, 0);
        let faulty = MemberStatus { failure: Some("why".to_owned()), ..member(Duty::Faulty, None, 0) };
        assert_eq!(names(Some(&in_sync()), &in_sync()), [""; 0]);
        assert_eq!(names(Some(&in_sync()), &faulty), ["Fail"]);
        assert_eq!(names(Some(&faulty), &faulty), [""; 0]);
        let spare = || member(Duty::Spare, None, 0);
        assert_eq!(names(Some(&spare()), &faulty), ["FailSpare"]);
        let filling = |at| member(Duty::Active(1), Some(at), 0);
        assert_eq!(names(Some(&spare()), &filling(0)), ["SpareTaken"]);
        assert_eq!(names(Some(&filling(0)), &filling(4096)), [""; 0]);
        assert_eq!(names(Some(&filling(4096)), &in_sync()), ["SpareActive"]);
        assert_eq!(names(Some(&spare()), &in_sync()), ["SpareTaken", "SpareActive"], "between two looks");
        let told = Event::of_member(Some(&in_sync()), &faulty);
        assert_eq!(told[0].to_string(), "member sdb failed: why");
    }

    #[test]
    fn more_bad_blocks_are_told_and_fewer_are_not() {
        let with = |bad| member(Duty::Active(1), None, bad);
        assert_eq!(names(Some(&with(0)), &with(2)), ["BadBlocks"]);
        assert_eq!(names(Some(&with(2)), &with(2)), [""; 0]);
        assert_eq!(names(Some(&with(2)), &with(1)), [""; 0]);
    }
}

//! The charts of a suite: which contenders each workload has.

use serde::{Serialize, Serializer};

use super::contender::Contender;
use super::scale::Scale;
use crate::{BenchError, Workload};

/// A workload and what it is measured on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chart {
    /// What the workers do.
    pub workload: Workload,
    /// In which directories.
    pub directories: Directories,
    /// On what.
    pub contenders: Vec<Contender>,
    /// With how many workers, ascending.
    pub threads: Vec<u32>,
}

/// Where workers work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Directories {
    /// All in one.
    One,
    /// Each in its own.
    Separate,
}

impl Directories {
    /// In results.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::One => "one",
            Self::Separate => "separate",
        }
    }
}

impl Serialize for Directories {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

/// The charts of these workloads, with what is mounted beside what is in process. A contender that does not fit a workload
/// is no part of its charts: a bare device has no names.
///
/// # Errors
/// None, unless a form of ours is no target.
pub fn charts(
    workloads: &[Workload],
    mounted: &[Contender],
    scale: &Scale,
) -> Result<Vec<Chart>, BenchError> {
    let mut charts = Vec::new();
    for &workload in workloads {
        let all = Contender::in_process(workload)?.into_iter().chain(mounted.iter().cloned());
        let fits =
            |contender: &Contender| scale.job(workload, Directories::One, contender, 1, 1).check().is_ok();
        let contenders: Vec<Contender> = all.filter(fits).collect();
        let threads = if workload.has_one_worker() { vec![1] } else { scale.threads.clone() };
        let separate = workload.knows_separate_directories().then_some(Directories::Separate);
        for directories in [Some(Directories::One), separate].into_iter().flatten() {
            let (contenders, threads) = (contenders.clone(), threads.clone());
            charts.push(Chart { workload, directories, contenders, threads });
        }
    }
    Ok(charts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Target;
    use crate::suite::{Filesystem, Role, Size};

    #[test]
    fn every_workload_has_a_chart_and_some_have_one_for_separate_directories() {
        let mounted = Contender::mounted(Role::Mount, Filesystem::Ext4, Target::Mounted("/x".into()));
        let charts = charts(&Workload::ALL, &[mounted], &Scale::new(Size::Quick, 2)).unwrap();
        let separate = charts.iter().filter(|chart| chart.directories == Directories::Separate).count();
        assert_eq!((charts.len(), separate), (Workload::ALL.len() + 3, 3));
        for chart in &charts {
            let has = |role| chart.contenders.iter().any(|contender| contender.role == role);
            let is_of_devices = matches!(
                chart.workload,
                Workload::RaidRead
                    | Workload::RaidSequential
                    | Workload::RaidWriteRows
                    | Workload::RaidRebuild
            );
            assert!(has(Role::Best), "{chart:?}");
            assert_eq!(has(Role::Mount), !is_of_devices, "{chart:?}");
            let has_limit = is_of_devices
                || matches!(chart.workload, Workload::Overwrite | Workload::Write | Workload::WriteSmall);
            assert_eq!(has(Role::Limit), has_limit, "{chart:?}");
            let one = chart.workload == Workload::RaidRebuild;
            assert_eq!(chart.threads, if one { vec![1] } else { vec![1, 2] });
        }
    }

    #[test]
    fn all_filesystems_are_there_where_files_are_needed() {
        let charts = charts(&[Workload::Rename], &[], &Scale::new(Size::Full, 2)).unwrap();
        for filesystem in Filesystem::ALL {
            assert!(charts[0].contenders.iter().any(|contender| contender.filesystem == filesystem));
        }
        assert_eq!(charts[0].threads, [1, 2, 4, 8, 16, 32, 64]);
    }
}

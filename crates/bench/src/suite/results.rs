//! What a suite came to: the JSON that scripts read, and what the page shows.

use serde::Serialize;

use super::chart::Directories;
use super::contender::{Filesystem, Role};
use super::gap::Gap;
use crate::machine::{LineTransfer, Machine, Steal};
use crate::{ClassStats, Outcome, Workload};

/// All of it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Results {
    /// The program, with its version.
    pub program: String,
    /// `quick` or `full`.
    pub size: &'static str,
    /// When it ended.
    pub ended: String,
    /// How long it took.
    pub seconds: f64,
    /// Rounds that were wanted; each cell tells how many it has.
    pub rounds: u32,
    /// What it ran on.
    pub machine: Machine,
    /// What a cache line takes between processors.
    pub line_transfers: Vec<LineTransfer>,
    /// What the processors did meanwhile.
    pub processor_time: Option<Steal>,
    /// What is missing as a whole.
    pub gaps: Vec<Gap>,
    /// What was measured.
    pub charts: Vec<ChartResult>,
}

/// One chart's results.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ChartResult {
    /// What the workers did.
    pub workload: Workload,
    /// What one operation is.
    pub operation: &'static str,
    /// Where they did it.
    pub directories: Directories,
    /// On what.
    pub contenders: Vec<ContenderResult>,
}

/// One contender's results in a chart.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ContenderResult {
    /// What people call it.
    pub name: String,
    /// The target, as typed.
    pub target: String,
    /// What it is in comparisons.
    pub role: Role,
    /// What it shows.
    pub filesystem: Filesystem,
    /// By ascending number of workers.
    pub cells: Vec<CellResult>,
    /// What happened at locks, in a measurement of its own.
    pub locks: Option<LockTable>,
}

/// One cell's results.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CellResult {
    /// Workers.
    pub threads: u32,
    /// Throughput of all workers together over the rounds.
    pub ops_per_second: Option<Spread>,
    /// Why there is nothing, or no more than there is.
    pub gap: Option<String>,
    /// Each round.
    pub rounds: Vec<Outcome>,
}

/// The middle of several figures, and how far they lie apart.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Spread {
    /// Of an even number, the lower.
    pub median: f64,
    /// The lowest.
    pub lowest: f64,
    /// The highest.
    pub highest: f64,
}

/// What happened at locks.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LockTable {
    /// With so many workers.
    pub threads: u32,
    /// The most contended first.
    pub rows: Vec<ClassStats>,
}

impl Spread {
    /// Of some figures; `None` if there are none.
    pub(super) fn of(figures: impl Iterator<Item = f64>) -> Option<Self> {
        let mut figures: Vec<f64> = figures.collect();
        figures.sort_by(f64::total_cmp);
        let (&lowest, &highest) = (figures.first()?, figures.last()?);
        Some(Self { median: figures[(figures.len() - 1) / 2], lowest, highest })
    }
}

impl ChartResult {
    /// The chart's contender in a role, of a filesystem. Of several, the first.
    #[must_use]
    pub fn contender(&self, role: Role, filesystem: Filesystem) -> Option<&ContenderResult> {
        self.contenders.iter().find(|contender| (contender.role, contender.filesystem) == (role, filesystem))
    }

    /// The limit for a filesystem: none in memory, which has no device under it.
    #[must_use]
    pub fn limit(&self, filesystem: Filesystem) -> Option<&ContenderResult> {
        if filesystem == Filesystem::Tmpfs {
            return None;
        }
        self.contender(Role::Limit, filesystem).or_else(|| self.contender(Role::Limit, Filesystem::Device))
    }

    /// Throughput of one contender over that of another, with the most workers that both have; and that number.
    #[must_use]
    pub fn ratio(one: Option<&ContenderResult>, other: Option<&ContenderResult>) -> Option<(f64, u32)> {
        let (one, other) = (one?, other?);
        one.cells.iter().rev().find_map(|cell| {
            let theirs = other.cells.iter().find(|theirs| theirs.threads == cell.threads)?;
            let ratio = cell.ops_per_second?.median / theirs.ops_per_second?.median;
            ratio.is_finite().then_some((ratio, cell.threads))
        })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::machine::{Processor, Topology};
    use crate::outcome::tests::outcome;

    /// A contender with these medians for 1, 2, 4... workers; 0 stands for a gap.
    pub(crate) fn contender(role: Role, filesystem: Filesystem, medians: &[f64]) -> ContenderResult {
        let cells = medians.iter().zip(0..).map(|(&median, bit)| CellResult {
            threads: 1 << bit,
            ops_per_second: (median > 0.0).then_some(Spread {
                median,
                lowest: median * 0.9,
                highest: median * 1.2,
            }),
            gap: (median == 0.0).then(|| "no room <here> & now".to_owned()),
            rounds: if median > 0.0 { vec![outcome(Workload::Rename, 1000)] } else { Vec::new() },
        });
        ContenderResult {
            name: format!("{} {}", filesystem.name(), role.name()),
            target: "dir:/<odd>".to_owned(),
            role,
            filesystem,
            cells: cells.collect(),
            locks: None,
        }
    }

    /// Results with one chart.
    pub(crate) fn results(contenders: Vec<ContenderResult>) -> Results {
        let processors = (0..4).map(|n| Processor { number: n, package: n / 2, core: n % 2, node: 0 });
        let topology = Topology { processors: processors.collect(), caches: Vec::new() };
        Results {
            program: "undercroft 0".to_owned(),
            size: "quick",
            ended: "today".to_owned(),
            seconds: 1.5,
            rounds: 3,
            machine: Machine { processor: Some("Fast <1>".to_owned()), topology, ..Machine::default() },
            line_transfers: Vec::new(),
            processor_time: None,
            gaps: vec![Gap::new("fuse2fs", "it is <not> installed")],
            charts: vec![ChartResult {
                workload: Workload::Rename,
                operation: Workload::Rename.operation(),
                directories: Directories::One,
                contenders,
            }],
        }
    }

    #[test]
    fn a_spread_is_the_middle_and_both_ends() {
        let spread = |figures: &[f64]| Spread::of(figures.iter().copied());
        assert_eq!(spread(&[]), None);
        assert_eq!(spread(&[3.0]), Some(Spread { median: 3.0, lowest: 3.0, highest: 3.0 }));
        let three = Some(Spread { median: 2.0, lowest: 1.0, highest: 9.0 });
        assert_eq!(spread(&[9.0, 1.0, 2.0]), three);
        assert_eq!(spread(&[9.0, 1.0, 2.0, 5.0]), three);
    }

    #[test]
    fn ratios_are_taken_where_both_were_measured() {
        let one = contender(Role::Best, Filesystem::Ext4, &[4.0, 6.0, 0.0]);
        let other = contender(Role::Plain, Filesystem::Ext4, &[2.0, 2.0, 1.0]);
        let ratio = |one, other| ChartResult::ratio(one, other);
        assert_eq!(ratio(Some(&one), Some(&other)), Some((3.0, 2)));
        assert_eq!(ratio(Some(&one), None), None);
        let nothing = contender(Role::Plain, Filesystem::Ext4, &[0.0]);
        assert_eq!(ratio(Some(&one), Some(&nothing)), None);
    }

    #[test]
    fn the_device_is_the_limit_of_what_lies_on_it() {
        let device = contender(Role::Limit, Filesystem::Device, &[1.0]);
        let all = results(vec![device]);
        let limit = |filesystem| all.charts[0].limit(filesystem).map(|found| found.filesystem);
        assert_eq!(limit(Filesystem::Tmpfs), None);
        assert_eq!(limit(Filesystem::Xfs), Some(Filesystem::Device));
    }

    #[test]
    fn scripts_find_every_round_and_every_gap() {
        let all = results(vec![contender(Role::Best, Filesystem::Ext4, &[5.0, 0.0])]);
        let value = serde_json::to_value(&all).unwrap();
        let mut fields: Vec<_> = value.as_object().unwrap().keys().map(String::as_str).collect();
        fields.sort_unstable();
        let expected = [
            "charts",
            "ended",
            "gaps",
            "line_transfers",
            "machine",
            "processor_time",
            "program",
            "rounds",
            "seconds",
            "size",
        ];
        assert_eq!(fields, expected);
        assert_eq!(value["gaps"][0]["what"], "fuse2fs");
        assert_eq!(value["machine"]["processors"][3]["package"], 1);
        let chart = &value["charts"][0];
        assert_eq!((&chart["workload"], &chart["directories"]), (&"rename".into(), &"one".into()));
        let contender = &chart["contenders"][0];
        assert_eq!((&contender["role"], &contender["filesystem"]), (&"best".into(), &"ext4".into()));
        let [measured, missing] = &contender["cells"].as_array().unwrap()[..] else { panic!("two cells") };
        assert_eq!((&measured["ops_per_second"]["median"], &measured["gap"]), (&5.0.into(), &().into()));
        assert_eq!(measured["rounds"][0]["workload"], "rename");
        assert!(missing["ops_per_second"].is_null() && missing["gap"] == "no room <here> & now");
    }
}

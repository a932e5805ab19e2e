//! Runs a suite: a first, short measurement of each contender, then rounds over all cells, then locks.
//!
//! The first measurement tells how quick a contender is and what its preparations take, and is no part of the results; from
//! both follows how long each cell of a round may take. A chart that the time does not suffice for is left out of a round as a
//! whole, so that its contenders have the same rounds. Locks are counted last, once for
//! each contender of ours in process, with the most workers: counting costs time and would spoil the figures.
//!
//! An error of a measurement ends that cell and nothing else.

use std::time::Duration;

use super::cell::Cell;
use super::chart::Chart;
use super::contender::{Contender, Role};
use super::gap::Gap;
use super::results::{ChartResult, ContenderResult, LockTable};
use super::scale::Scale;
use crate::{BenchError, Job, Outcome, Workload};

const NO_TIME: &str = "no time was left for it";
/// First measurements may take so much of the time; after that, a contender's rate is taken from the workload's table.
const SHARE_OF_FIRST: f64 = 0.35;

/// What a run needs from its caller.
pub struct Hooks<'a> {
    /// Measures once.
    pub measure: &'a mut dyn FnMut(&Job) -> Result<Outcome, BenchError>,
    /// How long ago the suite began.
    pub elapsed: &'a dyn Fn() -> Duration,
    /// Whether to stop, and forget what was measured.
    pub is_interrupted: &'a dyn Fn() -> bool,
}

/// What was measured.
#[derive(Clone, Debug, PartialEq)]
pub struct Measurements {
    /// In the order of the charts.
    pub charts: Vec<ChartResult>,
    /// What is missing of them as a whole.
    pub gaps: Vec<Gap>,
}

/// A contender with its cells.
struct Row<'a> {
    contender: &'a Contender,
    cells: Vec<Cell>,
    locks: Option<LockTable>,
}

/// A chart with its rows.
struct Sheet<'a> {
    chart: &'a Chart,
    rows: Vec<Row<'a>>,
}

/// The run was interrupted.
struct Interrupted;

struct Run<'a> {
    scale: &'a Scale,
    hooks: Hooks<'a>,
}

/// How many measurements a suite makes if the time suffices.
#[must_use]
pub fn planned(charts: &[Chart], scale: &Scale) -> u64 {
    let of_chart = |chart: &Chart| {
        let cells = chart.contenders.len() * chart.threads.len();
        let locks = chart.contenders.iter().filter(|contender| counts_locks(contender)).count();
        (chart.contenders.len() + scale.rounds as usize * cells + locks) as u64
    };
    charts.iter().map(of_chart).sum()
}

/// Measures all charts; `None` if it was interrupted.
pub fn run<'a>(charts: &[Chart], scale: &'a Scale, hooks: Hooks<'a>) -> Option<Measurements> {
    Run { scale, hooks }.all(charts).ok()
}

impl Run<'_> {
    fn all(&mut self, charts: &[Chart]) -> Result<Measurements, Interrupted> {
        let mut sheets = self.first(charts)?;
        let slice = self.fit(&mut sheets);
        let mut rounds = 0;
        while rounds < self.scale.rounds && self.round(&mut sheets, slice)? {
            rounds += 1;
        }
        let mut gaps = Vec::new();
        if rounds < self.scale.rounds {
            let what = format!("{} of {} rounds", self.scale.rounds - rounds, self.scale.rounds);
            gaps.push(Gap::new(what, "no time was left for all of them; --seconds gives more"));
        }
        let uncounted = self.count_locks(&mut sheets)?;
        if uncounted > 0 {
            let what = format!("what happened at locks, of {uncounted} contenders");
            gaps.push(Gap::new(what, "no time was left for it; --seconds gives more"));
        }
        Ok(Measurements { charts: sheets.into_iter().map(Sheet::into_result).collect(), gaps })
    }

    /// Measures each contender once, shortly. The cells hold rates and preparations as if a slice were a second.
    fn first<'c>(&mut self, charts: &'c [Chart]) -> Result<Vec<Sheet<'c>>, Interrupted> {
        let end = self.scale.time.mul_f64(SHARE_OF_FIRST);
        let mut sheets = Vec::new();
        for chart in charts {
            let mut rows = Vec::new();
            for contender in &chart.contenders {
                let fewest = chart.threads.first().copied().unwrap_or(1);
                let ops = Scale::first_ops(chart.workload, contender);
                let cells = if (self.hooks.elapsed)() > end {
                    let rate = chart.workload.default_ops(contender.role.is_in_process()).get() as f64;
                    self.cells(chart, rate, Duration::ZERO)
                } else {
                    let job = self.job(chart, contender, fewest, ops);
                    match self.measure(&job)? {
                        (Ok(outcome), wall) => {
                            let measured = Duration::try_from_secs_f64(outcome.seconds).unwrap_or(wall);
                            let rate = outcome.ops_per_second / f64::from(fewest);
                            self.cells(chart, rate, wall.saturating_sub(measured))
                        }
                        (Err(error), _) => {
                            let missing = |&threads: &u32| Cell::missing(threads, error.to_string());
                            chart.threads.iter().map(missing).collect()
                        }
                    }
                };
                rows.push(Row { contender, cells, locks: None });
            }
            sheets.push(Sheet { chart, rows });
        }
        Ok(sheets)
    }

    fn cells(&self, chart: &Chart, rate: f64, prepared: Duration) -> Vec<Cell> {
        let cell = |&threads: &u32| {
            // More workers than processors share them.
            let share = f64::from(threads.min(self.scale.processors)) / f64::from(threads);
            Cell::new(threads, rate * share, prepared, Duration::from_secs(1))
        };
        chart.threads.iter().map(cell).collect()
    }

    /// Gives each cell the same time, as much as lets all rounds be made.
    fn fit(&self, sheets: &mut [Sheet<'_>]) -> Duration {
        let mut cells: Vec<&mut Cell> = sheets
            .iter_mut()
            .flat_map(|sheet| &mut sheet.rows)
            .flat_map(|row| &mut row.cells)
            .filter(|cell| !cell.is_missing())
            .collect();
        let second = Duration::from_secs(1);
        let prepared: Duration = cells.iter().map(|cell| cell.cost.saturating_sub(second)).sum();
        let left = self.scale.rounds_end().saturating_sub((self.hooks.elapsed)());
        let round = (left / self.scale.rounds.max(1)).saturating_sub(prepared);
        // A tenth more warms up, and a little is lost around it.
        let slice = round.div_f64(1.2 * cells.len().max(1) as f64);
        let [shortest, longest] = self.scale.slice;
        let slice = slice.clamp(shortest, longest);
        for cell in &mut cells {
            cell.ops = ((cell.ops as f64 * slice.as_secs_f64()) as u64).max(1);
            cell.cost = cell.cost.saturating_sub(second) + slice.mul_f64(1.2);
        }
        slice
    }

    /// Measures each cell once; `false` if the time did not suffice. A chart that takes longer than what is left is passed
    /// over, and those behind it are tried.
    fn round(&mut self, sheets: &mut [Sheet<'_>], slice: Duration) -> Result<bool, Interrupted> {
        let mut is_whole = true;
        for sheet in sheets {
            let cost: Duration = sheet.cells().map(|cell| cell.cost).sum();
            if (self.hooks.elapsed)() + cost > self.scale.rounds_end() {
                sheet.cells().for_each(|cell| cell.excuse(NO_TIME));
                is_whole = false;
                continue;
            }
            let chart = sheet.chart;
            // With so many workers all contenders come one after the other.
            for at in 0..chart.threads.len() {
                for row in &mut sheet.rows {
                    let cell = &mut row.cells[at];
                    if cell.is_missing() {
                        continue;
                    }
                    // What was expected to take shorter than it does.
                    if (self.hooks.elapsed)() > self.scale.time {
                        cell.excuse(NO_TIME);
                        is_whole = false;
                        continue;
                    }
                    let job = self.job(chart, row.contender, cell.threads, cell.ops);
                    match self.measure(&job)? {
                        (Ok(outcome), wall) => cell.take(outcome, wall, slice),
                        (Err(error), _) => cell.fail(error.to_string()),
                    }
                }
            }
        }
        Ok(is_whole)
    }

    /// Counts what happens at locks while there is time; says of how many contenders it was not counted.
    fn count_locks(&mut self, sheets: &mut [Sheet<'_>]) -> Result<usize, Interrupted> {
        let mut uncounted = 0;
        for sheet in sheets {
            let chart = sheet.chart;
            for row in sheet.rows.iter_mut().filter(|row| counts_locks(row.contender)) {
                let Some(cell) = row.cells.last().filter(|cell| !cell.is_missing()) else { continue };
                if (self.hooks.elapsed)() + cell.cost > self.scale.time {
                    uncounted += 1;
                    continue;
                }
                let threads = cell.threads;
                let job = Job { locks: true, ..self.job(chart, row.contender, threads, cell.ops) };
                let counted = self.measure(&job)?.0.ok().and_then(|outcome| outcome.locks);
                row.locks = counted.map(|rows| LockTable { threads, rows });
            }
        }
        Ok(uncounted)
    }

    fn job(&self, chart: &Chart, contender: &Contender, threads: u32, ops: u64) -> Job {
        let &Chart { workload, directories, .. } = chart;
        self.scale.job(workload, directories, contender, threads, ops)
    }

    /// Measures once, and says how long that took with everything around it.
    fn measure(&mut self, job: &Job) -> Result<(Result<Outcome, BenchError>, Duration), Interrupted> {
        let begun = (self.hooks.elapsed)();
        let measured = (self.hooks.measure)(job);
        // An interruption reaches the workers too, and what they say of it is no reason that anything is missing.
        if (self.hooks.is_interrupted)() {
            return Err(Interrupted);
        }
        Ok((measured, (self.hooks.elapsed)().saturating_sub(begun)))
    }
}

impl Sheet<'_> {
    fn cells(&mut self) -> impl Iterator<Item = &mut Cell> {
        self.rows.iter_mut().flat_map(|row| &mut row.cells)
    }

    fn into_result(self) -> ChartResult {
        let &Chart { workload, directories, .. } = self.chart;
        let contenders = self.rows.into_iter().map(Row::into_result).collect();
        ChartResult { workload, operation: Workload::operation(workload), directories, contenders }
    }
}

impl Row<'_> {
    fn into_result(self) -> ContenderResult {
        let Contender { name, role, filesystem, target } = self.contender;
        ContenderResult {
            name: name.clone(),
            target: target.to_string(),
            role: *role,
            filesystem: *filesystem,
            cells: self.cells.into_iter().map(Cell::into_result).collect(),
            locks: self.locks,
        }
    }
}

const fn counts_locks(contender: &Contender) -> bool {
    matches!(contender.role, Role::Best | Role::Plain)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell as Shared;

    use super::*;
    use crate::Target;
    use crate::outcome::tests::outcome;
    use crate::suite::{Filesystem, Size, charts};

    /// Runs over a clock that only measurements move: each takes as long as it says, and `prepared` besides.
    fn ran(
        charts: &[Chart],
        scale: &Scale,
        prepared: Duration,
        interrupted_after: u32,
        refused: impl Fn(&Job) -> bool,
    ) -> (Option<Measurements>, Vec<Job>, Duration) {
        let (clock, measured) = (Shared::new(Duration::ZERO), Shared::new(0));
        let mut jobs = Vec::new();
        let mut measure = |job: &Job| {
            jobs.push(job.clone());
            measured.set(measured.get() + 1);
            // A hundred thousand operations a second of each worker.
            let took = Duration::from_micros(10 * job.ops.get());
            clock.set(clock.get() + prepared + took);
            if refused(job) {
                return Err(BenchError::NotYet("x".to_owned()));
            }
            let rate = 1e5 * f64::from(job.threads.get());
            Ok(Outcome {
                ops_per_second: rate,
                seconds: took.as_secs_f64(),
                threads: job.threads,
                locks: job.locks.then(Vec::new),
                ..outcome(job.workload, 1000)
            })
        };
        let elapsed = || clock.get();
        let is_interrupted = || measured.get() > interrupted_after;
        let hooks = Hooks { measure: &mut measure, elapsed: &elapsed, is_interrupted: &is_interrupted };
        let result = run(charts, scale, hooks);
        (result, jobs, clock.get())
    }

    fn scale(seconds: u64) -> Scale {
        Scale { time: Duration::from_secs(seconds), ..Scale::new(Size::Quick, 2) }
    }

    fn two_charts(scale: &Scale) -> Vec<Chart> {
        let mounted = Contender::mounted(Role::Mount, Filesystem::Ext4, Target::Mounted("/x".into()));
        charts(&[Workload::Rename], &[mounted], scale).unwrap()
    }

    #[test]
    fn rounds_go_over_all_charts_and_all_contenders_in_turn() {
        let scale = scale(600);
        let charts = two_charts(&scale);
        let (result, jobs, _) = ran(&charts, &scale, Duration::ZERO, u32::MAX, |_| false);
        let result = result.unwrap();
        assert_eq!(result.gaps, []);
        assert_eq!(jobs.len() as u64, planned(&charts, &scale));
        for chart in &result.charts {
            for contender in &chart.contenders {
                assert!(contender.cells.iter().all(|cell| cell.rounds.len() == 3), "{contender:?}");
                assert_eq!(contender.locks.is_some(), contender.role.is_in_process(), "{contender:?}");
            }
        }
        let contenders = charts[0].contenders.len();
        // Behind the first measurements: one worker on each contender, then two.
        let round = &jobs[2 * contenders..4 * contenders];
        assert!(round.iter().all(|job| !job.separate && !job.locks));
        assert!(round[..contenders].iter().all(|job| job.threads.get() == 1));
        let targets = |jobs: &[Job]| jobs.iter().map(|job| job.target.clone()).collect::<Vec<_>>();
        assert_eq!(targets(&round[..contenders]), targets(&round[contenders..]));
        assert!(jobs[4 * contenders..6 * contenders].iter().all(|job| job.separate));
    }

    #[test]
    fn the_time_is_kept_and_what_it_did_not_suffice_for_is_named() {
        for (seconds, prepared_ms) in [(60, 0), (20, 100), (5, 100), (2, 100), (0, 1)] {
            let (scale, prepared) = (scale(seconds), Duration::from_millis(prepared_ms));
            let charts = two_charts(&scale);
            let (result, _, took) = ran(&charts, &scale, prepared, u32::MAX, |_| false);
            let result = result.unwrap();
            // First measurements are made until their share has gone by, and one may end behind it.
            let over = Duration::from_secs(2);
            assert!(took <= scale.time + over, "{took:?} of {seconds} s");
            let mut rounds = 0;
            for cell in result.charts.iter().flat_map(|chart| &chart.contenders).flat_map(|one| &one.cells) {
                rounds = rounds.max(cell.rounds.len());
                assert_eq!(cell.rounds.is_empty(), cell.gap.is_some(), "{cell:?}");
            }
            assert_eq!(rounds < 3, result.gaps.iter().any(|gap| gap.what.ends_with("of 3 rounds")));
        }
    }

    #[test]
    fn what_fails_is_a_gap_of_its_cells_only() {
        let scale = scale(600);
        let charts = two_charts(&scale);
        let refused = |job: &Job| !job.target.is_in_process();
        let (result, _, _) = ran(&charts, &scale, Duration::ZERO, u32::MAX, refused);
        for contender in result.unwrap().charts.iter().flat_map(|chart| &chart.contenders) {
            let is_missing = contender.role == Role::Mount;
            for cell in &contender.cells {
                assert_eq!(cell.rounds.is_empty(), is_missing, "{contender:?}");
                assert_eq!(cell.gap.as_ref().is_some_and(|why| why.contains("images")), is_missing);
            }
        }
    }

    #[test]
    fn an_interruption_ends_it_behind_the_measurement_that_it_meets() {
        let scale = scale(600);
        for after in [0, 5, 40] {
            let (result, jobs, _) = ran(&two_charts(&scale), &scale, Duration::ZERO, after, |_| false);
            assert_eq!((result, jobs.len() as u32), (None, after + 1));
        }
    }
}

//! Measurements with one worker, two, and so on: how throughput grows with them.

use std::num::NonZeroU32;

use serde::Serialize;

use crate::{BenchError, Job, Outcome};

/// One target's throughput over the number of workers.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Series {
    /// The target, as typed.
    pub target: String,
    /// By ascending number of workers.
    pub points: Vec<Point>,
}

/// The throughput of so many workers.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Point {
    /// Workers.
    pub threads: NonZeroU32,
    /// Of all workers together; the median of all rounds.
    pub ops_per_second: f64,
}

/// Measures each job with 1 worker, 2, and so on up to its number of workers, `rounds` times, all jobs in turn.
///
/// # Errors
/// The first that `measure` returns.
pub fn sweep(
    jobs: &[Job],
    rounds: NonZeroU32,
    mut measure: impl FnMut(&Job) -> Result<Outcome, BenchError>,
) -> Result<Vec<Series>, BenchError> {
    let mut series: Vec<_> =
        jobs.iter().map(|job| Series { target: job.target.to_string(), points: Vec::new() }).collect();
    let most = jobs.iter().map(|job| job.threads.get()).max().unwrap_or(0);
    for threads in (1..=most).filter_map(NonZeroU32::new) {
        let mut outcomes = vec![Vec::new(); jobs.len()];
        for _ in 0..rounds.get() {
            for (job, outcomes) in jobs.iter().zip(&mut outcomes).filter(|(job, _)| threads <= job.threads) {
                outcomes.push(measure(&Job { threads, ..job.clone() })?);
            }
        }
        for (series, outcomes) in series.iter_mut().zip(outcomes).filter(|(_, outcomes)| !outcomes.is_empty())
        {
            let ops_per_second = Outcome::median(outcomes).ops_per_second;
            series.points.push(Point { threads, ops_per_second });
        }
    }
    Ok(series)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::tests::{job, outcome};
    use crate::{Target, Workload};

    #[test]
    fn every_number_of_workers_is_measured_for_all_jobs_in_turn() {
        let one = job(Workload::Rename);
        let other = Job { target: Target::Mounted("/other".into()), ..one.clone() };
        let mut measured = Vec::new();
        let series = sweep(&[one, other], NonZeroU32::new(2).unwrap(), |job| {
            measured.push((job.threads.get(), job.target.to_string()));
            Ok(outcome(job.workload, 1000 * u64::from(job.threads.get())))
        });
        let series = series.unwrap();
        let turn = |threads| ["dir:/t", "dir:/other"].map(|target| (threads, target.to_owned()));
        assert_eq!(measured, [turn(1), turn(1), turn(2), turn(2)].concat());
        let drawn: Vec<_> =
            series.iter().map(|series| (series.target.as_str(), series.points.len())).collect();
        assert_eq!(drawn, [("dir:/t", 2), ("dir:/other", 2)]);
        let expected = [1, 2].map(|n| outcome(Workload::Rename, 1000 * n).ops_per_second);
        let points = &series[1].points;
        assert_eq!([points[0].ops_per_second, points[1].ops_per_second], expected);
    }
}

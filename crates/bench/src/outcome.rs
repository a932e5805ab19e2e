//! What a measurement came to, from the sheets of its workers; also the JSON that scripts read.

use std::num::{NonZeroU32, NonZeroU64};

use serde::Serialize;
use undercroft_md::Status;
use undercroft_sync::stats::{ClassStats, Report};

use crate::sheet::Sheet;
use crate::usage::Usage;
use crate::worker::tenth_of;
use crate::{Histogram, Job, Workload};

/// What the workers brought home.
pub(crate) struct Measured {
    /// One for each worker that was measured.
    pub(crate) sheets: Vec<Sheet>,
    /// By how much the process grew, where that says anything.
    pub(crate) grown_bytes: Option<u64>,
    /// What happened at locks.
    pub(crate) locks: Option<Report>,
    /// What the journal did meanwhile.
    pub(crate) journal: Option<JournalUse>,
    /// What happened in an array's stripe cache meanwhile.
    pub(crate) stripes: Option<StripeUse>,
}

/// One measurement's result.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Outcome {
    /// What the workers did.
    pub workload: Workload,
    /// To which filesystem, as typed.
    pub target: String,
    /// How many workers.
    pub threads: NonZeroU32,
    /// Operations of each worker.
    pub ops: NonZeroU64,
    /// From the first worker's start to the last one's end.
    pub seconds: f64,
    /// Of all workers together.
    pub ops_per_second: f64,
    /// What all workers wrote, where the workload is about that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes_per_second: Option<f64>,
    /// How long operations took.
    pub latency_us: LatencyUs,
    /// Processor time of the workers outside the kernel.
    pub user_s: f64,
    /// Processor time of the workers inside the kernel.
    pub system_s: f64,
    /// How often workers waited.
    pub voluntary_switches: u64,
    /// How often workers were made to wait.
    pub involuntary_switches: u64,
    /// What happened at locks, where it was counted; the most contended first.
    pub locks: Option<Vec<ClassStats>>,
    /// Where files stay: what became of it as they became many.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub growth: Option<Growth>,
    /// What a journal of ours did meanwhile.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub journal: Option<JournalUse>,
    /// What happened in the stripe cache of an array meanwhile.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stripes: Option<StripeUse>,
}

/// What happened in the stripe cache of an array during a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct StripeUse {
    /// Stripes of the cache that came free.
    pub released: u64,
    /// Threads woken because stripes had come free.
    pub wake_ups: u64,
    /// Of those, such as found nothing and slept again.
    pub vain_wake_ups: u64,
    /// Stripes written whole, without reading.
    pub whole_writes: u64,
    /// Stripes written in part, with old data and parity read.
    pub read_modify_writes: u64,
    /// Stripes written in part, with the rest of the data read.
    pub reconstruct_writes: u64,
    /// Memory of the cache; it stays the same.
    pub cache_bytes: u64,
}

/// What a journal did during a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct JournalUse {
    /// Handles that were started: operations that joined a transaction.
    pub handles: u64,
    /// Transactions that were committed.
    pub commits: u64,
    /// Blocks that were written to the log.
    pub blocks_logged: u64,
    /// Times that room was made in the log.
    pub checkpoints: u64,
}

/// Quantiles in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct LatencyUs {
    /// Half of all operations took no longer.
    pub p50: f64,
    /// 99 in a hundred took no longer.
    pub p99: f64,
    /// The longest.
    pub max: f64,
}

/// What became of the creation of files as they became many.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Growth {
    /// Throughput while every worker created its first tenth; none with fewer than ten operations.
    pub first_tenth_ops_per_second: Option<f64>,
    /// Throughput while every worker created its last tenth.
    pub last_tenth_ops_per_second: Option<f64>,
    /// Throughput in each tenth.
    pub tenths_ops_per_second: Option<[f64; 10]>,
    /// By how much the process grew for each file, the first time it measures.
    pub bytes_per_file: Option<f64>,
}

impl Outcome {
    pub(crate) fn new(job: &Job, measured: &Measured) -> Self {
        let Measured { sheets, grown_bytes, locks, journal, stripes } = measured;
        let mut latency = Histogram::new();
        let mut usage = Usage::default();
        for sheet in sheets {
            latency.merge(&sheet.latency);
            usage += sheet.usage;
        }
        let begun_ns = sheets.iter().map(|sheet| sheet.begun_ns).min().unwrap_or(0);
        let ended_ns = sheets.iter().map(|sheet| sheet.ended_ns).max().unwrap_or(0);
        let microseconds = |ns: u64| ns as f64 / 1e3;
        let growth = job.workload.keeps_files().then(|| {
            let tenths = tenths(job, sheets);
            // What the population took is no part of what the files take.
            let grown_bytes = grown_bytes.filter(|_| job.workload != Workload::InodeAlloc);
            Growth {
                first_tenth_ops_per_second: tenths.map(|tenths| tenths[0]),
                last_tenth_ops_per_second: tenths.map(|tenths| tenths[9]),
                tenths_ops_per_second: tenths,
                bytes_per_file: grown_bytes.map(|bytes| bytes as f64 / latency.count() as f64),
            }
        });
        let ops_per_second = per_second(latency.count(), ended_ns - begun_ns);
        Self {
            workload: job.workload,
            target: job.target.to_string(),
            threads: job.threads,
            ops: job.ops,
            seconds: (ended_ns - begun_ns) as f64 / 1e9,
            ops_per_second,
            bytes_per_second: job
                .workload
                .bytes_written(job.file_bytes.get())
                .map(|bytes| bytes as f64 * ops_per_second),
            latency_us: LatencyUs {
                p50: microseconds(latency.quantile(0.5)),
                p99: microseconds(latency.quantile(0.99)),
                max: microseconds(latency.max()),
            },
            user_s: usage.user.as_secs_f64(),
            system_s: usage.system.as_secs_f64(),
            voluntary_switches: usage.voluntary_switches,
            involuntary_switches: usage.involuntary_switches,
            locks: locks.as_ref().map(|report| report.rows.clone()),
            growth,
            journal: *journal,
            stripes: *stripes,
        }
    }

    /// The one with the median throughput, so that its figures belong together; of an even number, the lower.
    ///
    /// # Panics
    /// If there is none: rounds are counted from one.
    pub(crate) fn median(mut outcomes: Vec<Self>) -> Self {
        outcomes.sort_by(|a, b| a.ops_per_second.total_cmp(&b.ops_per_second));
        let middle = (outcomes.len() - 1) / 2;
        // Only the first measurement of a process knows what a file takes.
        let known = outcomes.iter().find_map(|outcome| outcome.growth?.bytes_per_file);
        let mut median = outcomes.swap_remove(middle);
        if let Some(growth) = &mut median.growth {
            growth.bytes_per_file = known;
        }
        median
    }
}

impl JournalUse {
    /// What was done since `before`.
    pub(crate) const fn since(self, before: Self) -> Self {
        Self {
            handles: self.handles - before.handles,
            commits: self.commits - before.commits,
            blocks_logged: self.blocks_logged - before.blocks_logged,
            checkpoints: self.checkpoints - before.checkpoints,
        }
    }
}

impl StripeUse {
    /// What was done since `before`.
    pub(crate) const fn since(self, before: Self) -> Self {
        Self {
            released: self.released - before.released,
            wake_ups: self.wake_ups - before.wake_ups,
            vain_wake_ups: self.vain_wake_ups - before.vain_wake_ups,
            whole_writes: self.whole_writes - before.whole_writes,
            read_modify_writes: self.read_modify_writes - before.read_modify_writes,
            reconstruct_writes: self.reconstruct_writes - before.reconstruct_writes,
            cache_bytes: self.cache_bytes,
        }
    }
}

impl From<&Status> for StripeUse {
    fn from(status: &Status) -> Self {
        let counters = status.counters;
        Self {
            released: counters.released_stripes,
            wake_ups: counters.wake_ups,
            vain_wake_ups: counters.vain_wake_ups,
            whole_writes: counters.whole_stripe_writes,
            read_modify_writes: counters.read_modify_writes,
            reconstruct_writes: counters.reconstruct_writes,
            cache_bytes: status.memory_bytes,
        }
    }
}

// Of ext4 and XFS alike.
impl From<undercroft_ext4::WriteStats> for JournalUse {
    fn from(stats: undercroft_ext4::WriteStats) -> Self {
        Self {
            handles: stats.handles_started,
            commits: stats.commits,
            blocks_logged: stats.blocks_logged,
            checkpoints: stats.checkpoints,
        }
    }
}

fn per_second(ops: u64, ns: u64) -> f64 {
    // What the clock cannot tell from nothing is taken for its smallest step.
    ops as f64 * 1e9 / ns.max(1) as f64
}

/// The workers' throughput in each tenth of their operations, added up.
fn tenths(job: &Job, sheets: &[Sheet]) -> Option<[f64; 10]> {
    let ops = job.ops.get();
    let of_worker =
        |sheet: &Sheet, number: usize| per_second(tenth_of(ops, number as u64), sheet.tenths_ns[number]);
    (ops >= 10)
        .then(|| std::array::from_fn(|number| sheets.iter().map(|sheet| of_worker(sheet, number)).sum()))
}

#[cfg(test)]
pub(crate) mod tests {
    use std::time::Duration;

    use super::*;
    use crate::Target;

    pub(crate) fn job(workload: Workload) -> Job {
        Job {
            workload,
            target: Target::Mounted("/t".into()),
            threads: NonZeroU32::new(2).unwrap(),
            ops: NonZeroU64::new(20).unwrap(),
            file_bytes: NonZeroU64::new(1 << 20).unwrap(),
            inodes: NonZeroU64::new(1000).unwrap(),
            separate: false,
            locks: false,
        }
    }

    /// A worker that did 20 operations of so many nanoseconds.
    fn sheet(begun_ns: u64, op_ns: u64) -> Sheet {
        let mut latency = Histogram::new();
        (0..20).for_each(|_| latency.record(op_ns));
        let usage = Usage {
            user: Duration::from_millis(30),
            system: Duration::from_millis(20),
            voluntary_switches: 3,
            involuntary_switches: 4,
        };
        let ended_ns = begun_ns + 20 * op_ns;
        let mut tenths_ns = [2 * op_ns; 10];
        tenths_ns[9] = 4 * op_ns;
        Sheet { begun_ns, ended_ns, tenths_ns, usage, latency }
    }

    /// Two workers, the second later by half its work.
    pub(crate) fn outcome(workload: Workload, op_ns: u64) -> Outcome {
        let sheets = vec![sheet(1000, op_ns), sheet(1000 + 10 * op_ns, op_ns)];
        Outcome::new(
            &job(workload),
            &Measured { sheets, grown_bytes: Some(4000), locks: None, journal: None, stripes: None },
        )
    }

    #[test]
    fn the_time_runs_from_the_first_start_to_the_last_end() {
        let outcome = outcome(Workload::Rename, 1_000);
        assert_eq!((outcome.seconds, outcome.ops_per_second), (30e-6, 40.0 / 30e-6));
        assert_eq!(outcome.latency_us, LatencyUs { p50: 1.0, p99: 1.0, max: 1.0 });
        assert_eq!((outcome.user_s, outcome.system_s), (0.06, 0.04));
        assert_eq!((outcome.voluntary_switches, outcome.involuntary_switches), (6, 8));
    }

    #[test]
    fn scripts_find_these_fields() {
        let value = serde_json::to_value(outcome(Workload::StatMany, 1_000)).unwrap();
        let mut fields: Vec<_> = value.as_object().unwrap().keys().map(String::as_str).collect();
        fields.sort_unstable();
        let expected = [
            "involuntary_switches",
            "latency_us",
            "locks",
            "ops",
            "ops_per_second",
            "seconds",
            "system_s",
            "target",
            "threads",
            "user_s",
            "voluntary_switches",
            "workload",
        ];
        assert_eq!(fields, expected);
        assert_eq!(value["latency_us"], serde_json::json!({"p50": 1.0, "p99": 1.0, "max": 1.0}));
        assert_eq!((&value["workload"], &value["target"]), (&"stat-many".into(), &"dir:/t".into()));
        assert_eq!((&value["threads"], &value["ops"]), (&2.into(), &20.into()));
        assert!(value["locks"].is_null());
    }

    #[test]
    fn where_files_stay_the_tenths_are_told_apart() {
        let growth = outcome(Workload::CreateMany, 1_000).growth.unwrap();
        assert_eq!(growth.first_tenth_ops_per_second, Some(2e6));
        assert_eq!(growth.last_tenth_ops_per_second, Some(1e6));
        assert_eq!(growth.tenths_ops_per_second.unwrap()[8], 2e6);
        assert_eq!(growth.bytes_per_file, Some(100.0));
    }

    #[test]
    fn where_bytes_are_written_they_are_counted() {
        let bytes = |workload| outcome(workload, 1_000).bytes_per_second;
        assert_eq!(bytes(Workload::Write), Some(40.0 / 30e-6 * f64::from(1 << 20)));
        assert_eq!(bytes(Workload::WriteSmall), Some(40.0 / 30e-6 * 4096.0));
        assert_eq!(bytes(Workload::Orphan), None);
    }

    #[test]
    fn a_median_is_a_whole_measurement() {
        let outcomes = [5, 1, 4, 2, 3].map(|op_us| outcome(Workload::Rename, 1000 * op_us)).to_vec();
        assert_eq!(Outcome::median(outcomes.clone()), outcomes[4]);
        assert_eq!(Outcome::median(outcomes[..4].to_vec()), outcomes[2]);
    }
}

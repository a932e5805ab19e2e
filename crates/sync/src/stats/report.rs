//! The lock report: plain numbers, and the table that `/proc/lock_stat` prints.

use std::fmt;

/// How a lock was held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "lowercase"))]
pub enum Mode {
    /// Exclusive: a mutex, a writer, a name.
    Exclusive,
    /// Shared: a reader.
    Shared,
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Exclusive => "exclusive",
            Self::Shared => "shared",
        })
    }
}

/// What was counted for the locks of one class held in one mode. Times are in nanoseconds; 0 if there are none.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct ClassStats {
    /// Name of the class.
    pub class: &'static str,
    /// How the locks were held.
    pub mode: Mode,
    /// Contentions on a lock that was last taken on another processor.
    pub con_bounces: u64,
    /// Acquisitions that had to wait.
    pub contentions: u64,
    /// Shortest wait.
    pub wait_min_ns: u64,
    /// Longest wait.
    pub wait_max_ns: u64,
    /// All waits together.
    pub wait_total_ns: u64,
    /// Acquisitions of a lock that was last taken on another processor.
    pub acq_bounces: u64,
    /// Holds that ended.
    pub acquisitions: u64,
    /// Shortest hold.
    pub hold_min_ns: u64,
    /// Longest hold.
    pub hold_max_ns: u64,
    /// All holds together.
    pub hold_total_ns: u64,
}

/// The statistics of every class that was used; displays as a table in microseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// The most contended first; a class in both modes has two rows.
    pub rows: Vec<ClassStats>,
}

impl ClassStats {
    /// Mean wait.
    #[must_use]
    pub fn wait_avg_ns(&self) -> u64 {
        self.wait_total_ns.checked_div(self.contentions).unwrap_or(0)
    }

    /// Mean hold.
    #[must_use]
    pub fn hold_avg_ns(&self) -> u64 {
        self.hold_total_ns.checked_div(self.acquisitions).unwrap_or(0)
    }

    fn is_unused(&self) -> bool {
        self.acquisitions == 0 && self.contentions == 0
    }
}

impl Report {
    pub(super) fn new(mut rows: Vec<ClassStats>) -> Self {
        rows.retain(|row| !row.is_unused());
        rows.sort_by(|a, b| {
            (b.contentions, b.acquisitions).cmp(&(a.contentions, a.acquisitions)).then(a.class.cmp(b.class))
        });
        Self { rows }
    }

    /// The row of a class, if it was used in that mode.
    #[must_use]
    pub fn row(&self, class: &str, mode: Mode) -> Option<&ClassStats> {
        self.rows.iter().find(|row| row.class == class && row.mode == mode)
    }

    /// The name with the suffix that Linux gives to the two rows of a class which was used in both modes.
    fn label(&self, row: &ClassStats) -> String {
        match row.mode {
            Mode::Shared => format!("{}-R:", row.class),
            Mode::Exclusive if self.row(row.class, Mode::Shared).is_some() => format!("{}-W:", row.class),
            Mode::Exclusive => format!("{}:", row.class),
        }
    }
}

const COLUMNS: [&str; 12] = [
    "con-bounces",
    "contentions",
    "waittime-min",
    "waittime-max",
    "waittime-total",
    "waittime-avg",
    "acq-bounces",
    "acquisitions",
    "holdtime-min",
    "holdtime-max",
    "holdtime-total",
    "holdtime-avg",
];

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:>24}", "class name")?;
        for column in COLUMNS {
            write!(f, " {column:>14}")?;
        }
        writeln!(f, "\n{:-<1$}", "", 24 + COLUMNS.len() * 15)?;
        for row in &self.rows {
            write!(f, "{:>24}", self.label(row))?;
            write!(f, " {:>14} {:>14}", row.con_bounces, row.contentions)?;
            for ns in [row.wait_min_ns, row.wait_max_ns, row.wait_total_ns, row.wait_avg_ns()] {
                write!(f, " {:>14}", Microseconds(ns).to_string())?;
            }
            write!(f, " {:>14} {:>14}", row.acq_bounces, row.acquisitions)?;
            for ns in [row.hold_min_ns, row.hold_max_ns, row.hold_total_ns, row.hold_avg_ns()] {
                write!(f, " {:>14}", Microseconds(ns).to_string())?;
            }
            writeln!(f)?;
        }
        Ok(())
    }
}

/// Nanoseconds, displayed as microseconds with two decimals, cut off as Linux cuts them.
struct Microseconds(u64);

impl fmt::Display for Microseconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:02}", self.0 / 1000, self.0 % 1000 / 10)
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    fn row(class: &'static str, mode: Mode, contentions: u64, acquisitions: u64) -> ClassStats {
        ClassStats {
            class,
            mode,
            con_bounces: contentions / 2,
            contentions,
            wait_min_ns: 100,
            wait_max_ns: 2_345_678,
            wait_total_ns: 3_000_000,
            acq_bounces: 1,
            acquisitions,
            hold_min_ns: 9,
            hold_max_ns: 1_019,
            hold_total_ns: 10_000,
        }
    }

    #[test]
    fn the_table_has_the_columns_and_units_of_lock_stat() {
        let report = Report::new(vec![
            row("quiet", Mode::Exclusive, 0, 7),
            row("unused", Mode::Exclusive, 0, 0),
            row("cache", Mode::Shared, 1, 3),
            row("cache", Mode::Exclusive, 4, 5),
        ]);
        let text = report.to_string();
        let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines.len(), 5, "header, rule and the three rows in use:\n{text}");
        assert_eq!(lines[0][2..], COLUMNS);
        let cells =
            ["2", "4", "0.10", "2345.67", "3000.00", "750.00", "1", "5", "0.00", "1.01", "10.00", "2.00"];
        assert_eq!(lines[2], [&["cache-W:"], &cells[..]].concat());
        assert_eq!(lines[3][0], "cache-R:");
        assert_eq!(lines[4][0], "quiet:");
        assert_eq!(lines[4][4..6], ["2345.67", "3000.00"]);
        let widths: Vec<usize> = text.lines().map(str::len).collect();
        assert!(widths.iter().all(|width| *width == widths[0]), "columns do not line up:\n{text}");
    }

    #[test]
    fn a_mean_of_nothing_is_zero() {
        let row = row("x", Mode::Exclusive, 0, 0);
        assert_eq!((row.wait_avg_ns(), row.hold_avg_ns()), (0, 0));
    }
}

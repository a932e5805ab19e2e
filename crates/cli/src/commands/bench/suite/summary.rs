//! A suite's results in a terminal: a line for each chart, what is missing, and where the page is.

use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use undercroft_bench::suite::{ChartResult, Directories, Filesystem, Results, Role};

use crate::text::human;
use crate::text::names::safe;
use crate::text::out::Out;
use crate::text::style;

/// Columns of a chart's name, and of a filesystem's figures.
const NAME: usize = 24;
const FIGURE: usize = 20;

/// Prints it.
pub(super) fn print(out: &mut Out, results: &Results, page: &Path) -> io::Result<()> {
    let title = format!("operations a second, and times those of the plain form ({})", results.size);
    writeln!(out, "{}", out.palette.paint(style::HEADING, &title))?;
    let note = "in process, with the most workers that were measured";
    writeln!(out, "{}\n", out.palette.paint(style::DIM, note))?;
    write!(out, "  {:<NAME$}", "")?;
    for filesystem in Filesystem::ALL {
        write!(out, "  {:>FIGURE$}", filesystem.name())?;
    }
    writeln!(out)?;
    for chart in &results.charts {
        let line: Vec<String> = Filesystem::ALL.iter().map(|&filesystem| figure(chart, filesystem)).collect();
        let name = match chart.directories {
            Directories::One => chart.workload.name().to_owned(),
            Directories::Separate => format!("{}, separate", chart.workload),
        };
        let line: String = line.iter().map(|figure| format!("  {figure:>FIGURE$}")).collect();
        writeln!(out, "{}", format!("  {name:<NAME$}{line}").trim_end())?;
    }
    if !results.gaps.is_empty() {
        writeln!(out, "\n{}", out.palette.paint(style::HEADING, "not here"))?;
    }
    for gap in &results.gaps {
        writeln!(out, "  {}: {}", safe(gap.what.as_bytes()), safe(gap.why.as_bytes()))?;
    }
    writeln!(out, "\nwritten to {}", safe(page.as_os_str().as_bytes()))
}

/// `1,234,567 (2.3×)`; empty where there is nothing.
fn figure(chart: &ChartResult, filesystem: Filesystem) -> String {
    let best = chart.contender(Role::Best, filesystem);
    let last = best.and_then(|best| best.cells.iter().rev().find_map(|cell| cell.ops_per_second));
    let Some(spread) = last else { return String::new() };
    let rate = human::count(spread.median.round() as u64);
    match ChartResult::ratio(best, chart.contender(Role::Plain, filesystem)) {
        Some((ratio, _)) => format!("{rate} ({ratio:.2}×)"),
        None => rate,
    }
}

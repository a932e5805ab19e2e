//! Measurements as people read them.

use std::io::{self, Write};
use std::num::NonZeroU32;

use undercroft_bench::{ClassStats, Comparison, Growth, JournalUse, Outcome, Series, StripeUse};

use crate::text::human;
use crate::text::names::safe;
use crate::text::out::{Out, columns};
use crate::text::style;

/// Columns of the labels in front of figures.
const LABEL: usize = 14;

/// One measurement.
pub(super) fn outcome(out: &mut Out, outcome: &Outcome) -> io::Result<()> {
    let title = format!(
        "{} on {}, {}, {} each",
        outcome.workload,
        safe(outcome.target.as_bytes()),
        human::counted(outcome.threads.get().into(), "worker"),
        human::counted(outcome.ops.get(), "operation"),
    );
    writeln!(out, "{}", out.palette.paint(style::HEADING, &title))?;
    writeln!(out, "{}\n", out.palette.paint(style::DIM, outcome.workload.operation()))?;
    for (label, value) in figures(outcome) {
        writeln!(out, "  {label:<LABEL$}  {value}")?;
    }
    match &outcome.locks {
        Some(rows) => locks(out, rows),
        None => Ok(()),
    }
}

/// Two medians side by side.
pub(super) fn comparison(out: &mut Out, comparison: &Comparison) -> io::Result<()> {
    let Comparison { a, b, ratio, rounds } = comparison;
    let title = format!(
        "{}, {}, medians of {}",
        a.workload,
        human::counted(a.threads.get().into(), "worker"),
        human::counted(rounds.get().into(), "round"),
    );
    writeln!(out, "{}", out.palette.paint(style::HEADING, &title))?;
    writeln!(out, "{}\n", out.palette.paint(style::DIM, a.workload.operation()))?;
    let heads = [a, b].map(|outcome| safe(outcome.target.as_bytes()));
    let (left, right) = (figures(a), figures(b));
    // Both have the same rows, except what only a process can measure of itself.
    let of_right =
        |label: &str| right.iter().find(|(known, _)| *known == label).map_or("", |(_, value)| value.as_str());
    let width = left.iter().map(|(_, value)| columns(value)).chain([columns(&heads[0])]).max().unwrap_or(0);
    let row = |label: &str, one: &str, other: &str| {
        let padding = " ".repeat(width - columns(one));
        format!("  {label:<LABEL$}  {one}{padding}   {other}").trim_end().to_owned()
    };
    writeln!(out, "{}", row("", &heads[0], &heads[1]))?;
    for (label, value) in &left {
        writeln!(out, "{}", row(label, value, of_right(label)))?;
    }
    writeln!(out, "\n  {:<LABEL$}  {ratio:.2} times the throughput of {}", "ratio", heads[1])?;
    for outcome in [a, b] {
        if let Some(rows) = &outcome.locks {
            writeln!(out, "\n{}", safe(outcome.target.as_bytes()))?;
            locks(out, rows)?;
        }
    }
    Ok(())
}

/// Throughput over the number of workers.
pub(super) fn series(out: &mut Out, workload: &str, rounds: NonZeroU32, series: &[Series]) -> io::Result<()> {
    let rounds = human::counted(rounds.get().into(), "round");
    let title = format!("{workload}, operations a second, medians of {rounds}");
    writeln!(out, "{}\n", out.palette.paint(style::HEADING, &title))?;
    let columns_of: Vec<Vec<String>> = series
        .iter()
        .map(|series| {
            let values = series.points.iter().map(|point| rate(point.ops_per_second));
            [safe(series.target.as_bytes())].into_iter().chain(values).collect()
        })
        .collect();
    for line in 0..columns_of.iter().map(Vec::len).max().unwrap_or(0) {
        let first = if line == 0 { "workers".to_owned() } else { line.to_string() };
        write!(out, "  {first:>7}")?;
        for column in &columns_of {
            let width = column.iter().map(|cell| columns(cell)).max().unwrap_or(0);
            let cell = column.get(line).map_or("", String::as_str);
            write!(out, "   {}{cell}", " ".repeat(width - columns(cell)))?;
        }
        writeln!(out)?;
    }
    Ok(())
}

/// The figures of a measurement with their labels.
fn figures(outcome: &Outcome) -> Vec<(&'static str, String)> {
    let latency = outcome.latency_us;
    let mut figures = vec![("throughput", format!("{} a second", rate(outcome.ops_per_second)))];
    figures.extend(outcome.bytes_per_second.map(|bytes| ("written", format!("{} a second", mib(bytes)))));
    figures.extend([
        ("latency p50", microseconds(latency.p50)),
        ("latency p99", microseconds(latency.p99)),
        ("latency max", microseconds(latency.max)),
        ("time", format!("{:.3} s", outcome.seconds)),
        ("processor", format!("{:.3} s user, {:.3} s system", outcome.user_s, outcome.system_s)),
        (
            "switches",
            format!(
                "{} voluntary, {} not",
                human::count(outcome.voluntary_switches),
                human::count(outcome.involuntary_switches)
            ),
        ),
    ]);
    if let Some(growth) = outcome.growth {
        let Growth { first_tenth_ops_per_second, last_tenth_ops_per_second, bytes_per_file, .. } = growth;
        for (label, ops) in
            [("first tenth", first_tenth_ops_per_second), ("last tenth", last_tenth_ops_per_second)]
        {
            figures.extend(ops.map(|ops| (label, format!("{} a second", rate(ops)))));
        }
        figures.extend(growth.tenths_ops_per_second.map(|tenths| ("tenths", tenths.map(rate).join(", "))));
        figures.extend(bytes_per_file.map(|bytes| ("memory", format!("{bytes:.0} bytes a file"))));
    }
    if let Some(journal) = outcome.journal {
        let JournalUse { handles, commits, blocks_logged, checkpoints } = journal;
        let [handles, blocks] = [handles, blocks_logged].map(human::count);
        figures.push(("handles", format!("{handles} started")));
        figures.push(("journal", format!("{commits} commits, {blocks} blocks, {checkpoints} checkpoints")));
    }
    if let Some(stripes) = outcome.stripes {
        figures.extend(stripe_figures(stripes));
    }
    figures
}

fn stripe_figures(stripes: StripeUse) -> [(&'static str, String); 4] {
    let StripeUse { released, wake_ups, vain_wake_ups, .. } = stripes;
    let [whole, modified, reconstructed] =
        [stripes.whole_writes, stripes.read_modify_writes, stripes.reconstruct_writes].map(human::count);
    [
        (
            "stripes",
            format!("{} released, a cache of {}", human::count(released), mib(stripes.cache_bytes as f64)),
        ),
        ("writes", format!("{whole} whole, {modified} read-modify, {reconstructed} reconstruct")),
        ("wake-ups", format!("{}, {} in vain", human::count(wake_ups), human::count(vain_wake_ups))),
        ("per stripe", format!("{:.3} wake-ups", wake_ups as f64 / released.max(1) as f64)),
    ]
}

/// What happened at locks, in the words of `/proc/lock_stat`; times in microseconds.
fn locks(out: &mut Out, rows: &[ClassStats]) -> io::Result<()> {
    let micros = |ns: u64| ns as f64 / 1e3;
    writeln!(
        out,
        "\n  {:<24} {:>12} {:>12} {:>10} {:>10} {:>12} {:>12} {:>10}",
        "lock, times in µs",
        "acquisitions",
        "contentions",
        "wait max",
        "wait avg",
        "con-bounces",
        "acq-bounces",
        "hold avg"
    )?;
    for row in rows {
        writeln!(
            out,
            "  {:<24} {:>12} {:>12} {:>10.2} {:>10.2} {:>12} {:>12} {:>10.2}",
            format!("{} ({})", row.class, row.mode),
            row.acquisitions,
            row.contentions,
            micros(row.wait_max_ns),
            micros(row.wait_avg_ns()),
            row.con_bounces,
            row.acq_bounces,
            micros(row.hold_avg_ns()),
        )?;
    }
    Ok(())
}

fn rate(ops_per_second: f64) -> String {
    human::count(ops_per_second.round() as u64)
}

fn mib(bytes: f64) -> String {
    match bytes / f64::from(1 << 20) {
        mib if mib < 10.0 => format!("{mib:.2} MiB"),
        mib => format!("{} MiB", rate(mib)),
    }
}

/// With as many places as matter.
fn microseconds(us: f64) -> String {
    match us {
        _ if us < 10.0 => format!("{us:.2} µs"),
        _ if us < 1000.0 => format!("{us:.1} µs"),
        _ => format!("{} µs", human::count(us.round() as u64)),
    }
}

#[cfg(test)]
mod tests {
    use super::{microseconds, rate};

    #[test]
    fn figures_have_the_places_that_matter() {
        assert_eq!(
            [0.512, 9.999, 123.456, 12_345.6].map(microseconds),
            ["0.51 µs", "10.00 µs", "123.5 µs", "12,346 µs"]
        );
        assert_eq!(rate(1_234_567.8), "1,234,568");
    }
}

//! What happened at locks, in the words of `/proc/lock_stat`, of the contenders of a chart that count it.

use std::fmt::Write;

use super::html::{Escaped, short, workers};
use crate::ClassStats;
use crate::suite::{ChartResult, LockTable};

/// Rows that are shown of each; the rest is in the results.
const ROWS: usize = 8;

/// A table for each contender, behind a click.
pub(super) fn tables(html: &mut String, chart: &ChartResult) {
    let counted: Vec<_> = chart
        .contenders
        .iter()
        .filter_map(|contender| Some((contender, contender.locks.as_ref()?)))
        .filter(|(_, locks)| !locks.rows.is_empty())
        .collect();
    if counted.is_empty() {
        return;
    }
    html.push_str("<details><summary>Locks</summary><p class=\"note\">Counted in a measurement of its own, the most contended first. Times are means in microseconds; a bounce is a lock that was last taken on another processor.</p>");
    for (contender, locks) in counted {
        let LockTable { threads, rows } = locks;
        let _ = write!(
            html,
            "<h4>{}, {}</h4><div class=\"wide\"><table class=\"locks\"><thead><tr><th></th><th scope=\"col\">acquisitions</th><th scope=\"col\">contentions</th><th scope=\"col\">wait µs</th><th scope=\"col\">hold µs</th><th scope=\"col\">bounces</th></tr></thead><tbody>",
            Escaped(&contender.name),
            workers(*threads)
        );
        for row in rows.iter().take(ROWS) {
            line(html, row);
        }
        html.push_str("</tbody></table></div>");
        if rows.len() > ROWS {
            let _ = write!(html, "<p class=\"note\">{} more are in results.json.</p>", rows.len() - ROWS);
        }
    }
    html.push_str("</details>");
}

fn line(html: &mut String, row: &ClassStats) {
    let micros = |ns: u64| short(ns as f64 / 1e3);
    let number = |number: u64| short_whole(number);
    let share = 100.0 * row.contentions as f64 / row.acquisitions.max(1) as f64;
    let _ = write!(
        html,
        "<tr><th scope=\"row\">{} ({})</th><td>{}</td><td>{}<small>{share:.1} %</small></td><td>{}</td><td>{}</td><td>{}</td></tr>",
        Escaped(row.class),
        row.mode,
        number(row.acquisitions),
        number(row.contentions),
        micros(row.wait_avg_ns()),
        micros(row.hold_avg_ns()),
        number(row.acq_bounces),
    );
}

/// A count: exact where it is short.
fn short_whole(number: u64) -> String {
    if number < 1000 { number.to_string() } else { short(number as f64) }
}

#[cfg(test)]
mod tests {
    use undercroft_sync::stats::Mode;

    use super::*;
    use crate::suite::results_for_tests::{contender, results};
    use crate::suite::{Filesystem, Role};

    #[test]
    fn the_most_contended_rows_are_shown_and_the_others_counted() {
        let row = ClassStats {
            class: "directory",
            mode: Mode::Exclusive,
            con_bounces: 1,
            contentions: 5,
            wait_min_ns: 1,
            wait_max_ns: 9,
            wait_total_ns: 20_000,
            acq_bounces: 7,
            acquisitions: 4000,
            hold_min_ns: 1,
            hold_max_ns: 9,
            hold_total_ns: 8_000_000,
        };
        let mut one = contender(Role::Best, Filesystem::Ext4, &[1.0]);
        one.locks = Some(LockTable { threads: 2, rows: vec![row; ROWS + 3] });
        let mut html = String::new();
        tables(&mut html, &results(vec![one]).charts[0]);
        assert_eq!(html.matches("directory (exclusive)").count(), ROWS);
        assert!(html.contains("<td>4.00k</td><td>5<small>0.1 %</small></td><td>4.00</td>"), "{html}");
        assert!(html.contains("3 more are in results.json") && html.contains("2 workers"), "{html}");
    }

    #[test]
    fn where_nothing_was_counted_there_is_nothing() {
        let mut empty = contender(Role::Plain, Filesystem::Ext4, &[1.0]);
        empty.locks = Some(LockTable { threads: 2, rows: Vec::new() });
        let mut html = String::new();
        tables(&mut html, &results(vec![contender(Role::Best, Filesystem::Ext4, &[1.0]), empty]).charts[0]);
        assert_eq!(html, "");
    }
}

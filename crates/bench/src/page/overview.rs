//! Ratios between contenders, as tables whose colours show them at a glance.

use std::fmt::Write;

use super::html::{Escaped, times, workers};
use crate::suite::{ChartResult, ContenderResult, Directories, Filesystem, Results, Role};

/// Two roles that are compared.
struct Comparison {
    title: &'static str,
    note: &'static str,
    one: Role,
    other: Role,
}

const COMPARISONS: [Comparison; 5] = [
    Comparison {
        title: "Best form over plain form",
        note: "what our ideas bring: the plain form has one lock for each directory, a locked orphan list, journaled \
               overwrites, no tree of free inodes, or wakes all threads that wait for a stripe",
        one: Role::Best,
        other: Role::Plain,
    },
    Comparison {
        title: "Our mount over Linux's own",
        note: "the same system calls; ours are answered through FUSE",
        one: Role::Mount,
        other: Role::Kernel,
    },
    Comparison {
        title: "Our mount over fuse2fs",
        note: "both through FUSE",
        one: Role::Mount,
        other: Role::Fuse2fs,
    },
    Comparison {
        title: "In process over Linux's own",
        note: "calls of a library beside system calls",
        one: Role::Best,
        other: Role::Kernel,
    },
    Comparison {
        title: "In process over the device",
        note: "1× is the limit: the device without a filesystem, or copying and XOR alone",
        one: Role::Best,
        other: Role::Limit,
    },
];

/// A contender in a role, as a comparison sees it.
fn in_role(chart: &ChartResult, role: Role, filesystem: Filesystem) -> Option<&ContenderResult> {
    if role == Role::Limit { chart.limit(filesystem) } else { chart.contender(role, filesystem) }
}

/// All comparisons that have any ratio.
pub(super) fn overview(html: &mut String, results: &Results) {
    html.push_str("<section class=\"overview\"><h2>At a glance</h2><p class=\"note\">Times the throughput, with the most workers that both were measured with. Blue is quicker, orange slower.</p><div class=\"comparisons\">");
    for comparison in COMPARISONS {
        table(html, results, &comparison);
    }
    html.push_str("</div></section>");
}

fn table(html: &mut String, results: &Results, comparison: &Comparison) {
    let Comparison { title, note, one, other } = *comparison;
    let ratios = |chart: &ChartResult| {
        Filesystem::ALL.map(|filesystem| {
            ChartResult::ratio(in_role(chart, one, filesystem), in_role(chart, other, filesystem))
        })
    };
    let rows: Vec<_> = results
        .charts
        .iter()
        .map(|chart| (chart, ratios(chart)))
        .filter(|(_, ratios)| ratios.iter().any(Option::is_some))
        .collect();
    if rows.is_empty() {
        return;
    }
    // A filesystem that nothing is known of has no column.
    let columns: Vec<usize> = (0..Filesystem::ALL.len())
        .filter(|&column| rows.iter().any(|(_, ratios)| ratios[column].is_some()))
        .collect();
    let _ = write!(
        html,
        "<div class=\"comparison\"><h3>{}</h3><p class=\"note\">{}</p><table class=\"ratios\"><thead><tr><th></th>",
        Escaped(title),
        Escaped(note)
    );
    for &column in &columns {
        let _ = write!(html, "<th scope=\"col\">{}</th>", Filesystem::ALL[column].name());
    }
    html.push_str("</tr></thead><tbody>");
    for (chart, ratios) in rows {
        let separate = match chart.directories {
            Directories::One => "",
            Directories::Separate => "<small>separate directories</small>",
        };
        let _ = write!(
            html,
            "<tr><th scope=\"row\"><a href=\"#{}\">{}{separate}</a></th>",
            super::anchor(chart),
            Escaped(chart.workload.name())
        );
        for &column in &columns {
            match ratios[column] {
                Some((ratio, threads)) => {
                    let _ = write!(
                        html,
                        "<td class=\"{}\" title=\"with {}\">{}</td>",
                        shade(ratio),
                        workers(threads),
                        Escaped(&times(ratio))
                    );
                }
                None => html.push_str("<td class=\"none\">·</td>"),
            }
        }
        html.push_str("</tr>");
    }
    html.push_str("</tbody></table></div>");
}

/// The class of a ratio's colour.
fn shade(ratio: f64) -> &'static str {
    match ratio {
        _ if ratio >= 4.0 => "up4",
        _ if ratio >= 2.0 => "up3",
        _ if ratio >= 1.3 => "up2",
        _ if ratio >= 1.05 => "up1",
        _ if ratio > 1.0 / 1.05 => "even",
        _ if ratio > 1.0 / 1.3 => "down1",
        _ if ratio > 0.5 => "down2",
        _ if ratio > 0.25 => "down3",
        _ => "down4",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::suite::results_for_tests::{contender, results};

    #[test]
    fn a_comparison_has_rows_and_columns_for_what_is_known() {
        let mut html = String::new();
        overview(
            &mut html,
            &results(vec![
                contender(Role::Best, Filesystem::Ext4, &[6.0]),
                contender(Role::Plain, Filesystem::Ext4, &[2.0]),
                contender(Role::Best, Filesystem::Tmpfs, &[6.0]),
                contender(Role::Limit, Filesystem::Device, &[8.0]),
            ]),
        );
        assert!(html.contains("Best form over plain form") && html.contains(">3.0×</td>"), "{html}");
        assert!(html.contains("over the device") && html.contains(">0.75×</td>"), "{html}");
        assert!(!html.contains("fuse2fs") && !html.contains(">tmpfs<"), "{html}");
    }

    #[test]
    fn shades_are_the_same_both_ways() {
        assert_eq!([5.0, 2.5, 1.5, 1.1, 1.0].map(shade), ["up4", "up3", "up2", "up1", "even"]);
        assert_eq!([0.2, 0.4, 0.66, 0.9, 0.99].map(shade), ["down4", "down3", "down2", "down1", "even"]);
    }
}

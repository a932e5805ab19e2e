//! One chart of the page: a picture for each filesystem, and behind a click the figures and the locks.

use std::fmt::Write;

use super::html::{Escaped, short, times, workers};
use super::locks;
use super::plot::{self, Axes};
use crate::suite::{ChartResult, ContenderResult, Filesystem, Role};

/// Draws it all.
pub(super) fn chart(html: &mut String, chart: &ChartResult) {
    let operation = chart.operation.trim_start_matches("one operation ");
    let _ = write!(
        html,
        "<article class=\"chart\" id=\"{}\"><h3>{}</h3><p class=\"note\">One operation {}.</p>",
        super::anchor(chart),
        Escaped(&super::name(chart)),
        Escaped(operation)
    );
    legend(html, chart);
    html.push_str("<div class=\"panels\">");
    if let Some(axes) = Axes::of(&chart.contenders) {
        for filesystem in Filesystem::ALL {
            panel(html, chart, filesystem, &axes);
        }
    }
    html.push_str("</div>");
    gaps(html, chart);
    figures(html, chart);
    locks::tables(html, chart);
    html.push_str("</article>");
}

/// The roles that the chart shows.
fn legend(html: &mut String, chart: &ChartResult) {
    html.push_str("<ul class=\"legend\">");
    for role in Role::ALL {
        if chart.contenders.iter().any(|contender| contender.role == role && is_measured(contender)) {
            let _ = write!(html, "<li class=\"{}\"><i></i>{}</li>", role.name(), role.title());
        }
    }
    html.push_str("</ul>");
}

fn panel(html: &mut String, chart: &ChartResult, filesystem: Filesystem, axes: &Axes) {
    let own = || chart.contenders.iter().filter(|contender| contender.filesystem == filesystem);
    if !own().any(is_measured) {
        return;
    }
    let device = chart.limit(filesystem).filter(|limit| limit.filesystem == Filesystem::Device);
    let mut contenders: Vec<&ContenderResult> = own().chain(device).collect();
    // What matters most is drawn last.
    contenders.sort_by_key(|contender| std::cmp::Reverse(contender.role));
    let title = format!("{}: {}, operations a second over workers", super::name(chart), filesystem.name());
    let _ = write!(
        html,
        "<figure><figcaption>{}</figcaption>{}</figure>",
        filesystem.name(),
        plot::draw(&title, &contenders, axes)
    );
}

/// What is missing, each reason once with all that it is the reason for.
fn gaps(html: &mut String, chart: &ChartResult) {
    let mut lines: Vec<(String, Vec<String>)> = Vec::new();
    for contender in &chart.contenders {
        let mut reasons: Vec<&str> = contender.cells.iter().filter_map(|cell| cell.gap.as_deref()).collect();
        reasons.dedup();
        for reason in reasons {
            let missing: Vec<String> = contender
                .cells
                .iter()
                .filter(|cell| cell.gap.as_deref() == Some(reason))
                .map(|cell| cell.threads.to_string())
                .collect();
            let with = if missing.len() == contender.cells.len() {
                String::new()
            } else {
                format!(" with {} workers", missing.join(", "))
            };
            let name = format!("<b>{}</b>", Escaped(&contender.name));
            let why = format!("{with}: {}", Escaped(reason));
            match lines.iter_mut().find(|(known, _)| *known == why) {
                Some((_, names)) => names.push(name),
                None => lines.push((why, vec![name])),
            }
        }
    }
    if !lines.is_empty() {
        html.push_str("<div class=\"missing\">Not here:<ul>");
        for (why, names) in lines {
            let _ = write!(html, "<li>{}{why}</li>", names.join("; "));
        }
        html.push_str("</ul></div>");
    }
}

/// All medians with their spread, and ratios with the most workers.
fn figures(html: &mut String, chart: &ChartResult) {
    let mut threads: Vec<u32> =
        chart.contenders.iter().flat_map(|contender| &contender.cells).map(|cell| cell.threads).collect();
    threads.sort_unstable();
    threads.dedup();
    html.push_str("<details><summary>Figures</summary><p class=\"note\">Operations a second: the median, and the lowest and the highest round. Ratios with the most workers.</p><div class=\"wide\"><table class=\"figures\"><thead><tr><th></th>");
    for threads in &threads {
        let _ = write!(html, "<th scope=\"col\">{}</th>", workers(*threads));
    }
    html.push_str("<th scope=\"col\">× plain</th><th scope=\"col\">× Linux</th><th scope=\"col\">× limit</th></tr></thead><tbody>");
    for contender in &chart.contenders {
        let _ = write!(
            html,
            "<tr class=\"{}\"><th scope=\"row\"><i></i>{}</th>",
            contender.role.name(),
            Escaped(&contender.name)
        );
        for threads in &threads {
            let cell = contender.cells.iter().find(|cell| cell.threads == *threads);
            match cell.and_then(|cell| cell.ops_per_second) {
                Some(spread) => {
                    let _ = write!(
                        html,
                        "<td>{}<small>{}–{}</small></td>",
                        short(spread.median),
                        short(spread.lowest),
                        short(spread.highest)
                    );
                }
                None => html.push_str("<td class=\"none\">·</td>"),
            }
        }
        let filesystem = contender.filesystem;
        let others = [
            chart.contender(Role::Plain, filesystem),
            chart.contender(Role::Kernel, filesystem),
            chart.limit(filesystem),
        ];
        for other in others {
            let other = other.filter(|other| other.role != contender.role);
            match ChartResult::ratio(Some(contender), other) {
                Some((ratio, _)) => {
                    let _ = write!(html, "<td>{}</td>", Escaped(&times(ratio)));
                }
                None => html.push_str("<td class=\"none\">·</td>"),
            }
        }
        html.push_str("</tr>");
    }
    html.push_str("</tbody></table></div></details>");
}

fn is_measured(contender: &ContenderResult) -> bool {
    contender.cells.iter().any(|cell| cell.ops_per_second.is_some())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::suite::results_for_tests::{contender, results};

    fn drawn(contenders: Vec<ContenderResult>) -> String {
        let mut html = String::new();
        chart(&mut html, &results(contenders).charts[0]);
        html
    }

    #[test]
    fn each_filesystem_that_was_measured_has_a_picture() {
        let html = drawn(vec![
            contender(Role::Best, Filesystem::Ext4, &[4.0, 6.0]),
            contender(Role::Plain, Filesystem::Ext4, &[2.0, 3.0]),
            contender(Role::Best, Filesystem::Xfs, &[1.0]),
            contender(Role::Kernel, Filesystem::Tmpfs, &[0.0]),
            contender(Role::Limit, Filesystem::Device, &[9.0]),
        ]);
        assert_eq!(html.matches("<svg ").count(), 2, "{html}");
        // The limit is in both.
        assert_eq!(html.matches("<g class=\"limit\">").count(), 2, "{html}");
        assert!(html.contains("<li class=\"plain\">") && !html.contains("<li class=\"kernel\">"), "{html}");
        assert!(html.contains("<td>2.0×</td>"), "{html}");
    }

    #[test]
    fn what_is_missing_is_named_with_its_reason() {
        let html = drawn(vec![
            contender(Role::Best, Filesystem::Ext4, &[4.0, 0.0, 0.0]),
            contender(Role::Kernel, Filesystem::Tmpfs, &[0.0]),
            contender(Role::Kernel, Filesystem::Xfs, &[0.0, 0.0]),
        ]);
        let reason = "no room &lt;here&gt; &amp; now";
        assert!(html.contains(&format!("<b>ext4 best</b> with 2, 4 workers: {reason}</li>")), "{html}");
        assert!(html.contains(&format!("<b>tmpfs kernel</b>; <b>XFS kernel</b>: {reason}</li>")), "{html}");
    }

    #[test]
    fn a_chart_without_any_figure_has_no_picture() {
        let html = drawn(vec![contender(Role::Best, Filesystem::Ext4, &[0.0])]);
        assert!(!html.contains("<svg") && html.contains("Not here"), "{html}");
        assert!(!drawn(Vec::new()).contains("<svg"));
    }
}

//! A suite's results as one page of HTML: pictures first, figures behind a click, and what is missing by name.
//!
//! The page is one file without any resource besides: style, pictures and text are in it, and there is no script. It follows
//! the reader's colour scheme and width. Whatever comes from the machine or from a filesystem is escaped.

mod chart;
mod html;
mod locks;
mod machine;
mod overview;
mod plot;

use std::fmt::Write;

use crate::suite::{ChartResult, Directories, Results};
use html::{Escaped, span};

const STYLE: &str = include_str!("page.css");

/// The page.
#[must_use]
pub fn page(results: &Results) -> String {
    let mut html = String::new();
    let title = format!("{} bench suite", results.program);
    let title = Escaped(&title);
    let _ = write!(
        html,
        "<!DOCTYPE html><html lang=\"en\"><head><meta charset=\"utf-8\"><title>{title}</title><meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"><meta name=\"color-scheme\" content=\"light dark\"><link rel=\"icon\" href=\"data:,\"><style>{STYLE}</style></head><body><header><h1>{title}</h1>"
    );
    let _ = write!(
        html,
        "<p>{}, {}, in {}: medians of up to {} rounds, in which all contenders take turns. Trust the ratios and not the figures: machines differ and are noisy.</p></header><main>",
        Escaped(results.size),
        Escaped(&results.ended),
        span(results.seconds),
        results.rounds
    );
    machine::machine(&mut html, results);
    overview::overview(&mut html, results);
    contents(&mut html, results);
    for result in &results.charts {
        chart::chart(&mut html, result);
    }
    html.push_str("</section>");
    gaps(&mut html, results);
    html.push_str("</main><footer>All rounds of all measurements are in <a href=\"results.json\">results.json</a>.</footer></body></html>\n");
    html
}

/// Opens the section of charts with the ways to them.
fn contents(html: &mut String, results: &Results) {
    html.push_str("<section class=\"charts\"><h2>Throughput over workers</h2><p class=\"note\">Operations a second of all workers together, on logarithmic scales; the thin upright lines reach from the lowest to the highest round.</p><nav>");
    for chart in &results.charts {
        let _ = write!(html, "<a href=\"#{}\">{}</a>", anchor(chart), Escaped(&name(chart)));
    }
    html.push_str("</nav>");
}

/// What is missing as a whole.
fn gaps(html: &mut String, results: &Results) {
    html.push_str("<section class=\"gaps\"><h2>What is not here</h2>");
    if results.gaps.is_empty() {
        html.push_str(
            "<p>Everything that was asked for was measured, but for what stands with its chart.</p>",
        );
    } else {
        html.push_str("<dl>");
        for gap in &results.gaps {
            let _ = write!(html, "<dt>{}</dt><dd>{}</dd>", Escaped(&gap.what), Escaped(&gap.why));
        }
        html.push_str("</dl>");
    }
    html.push_str("</section>");
}

/// What a chart is called.
fn name(chart: &ChartResult) -> String {
    match chart.directories {
        Directories::One => chart.workload.name().to_owned(),
        Directories::Separate => format!("{}, separate directories", chart.workload),
    }
}

/// Where a chart is on the page.
fn anchor(chart: &ChartResult) -> String {
    format!("{}-{}", chart.workload, chart.directories.name())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::suite::results_for_tests::{contender, results};
    use crate::suite::{Filesystem, Role};

    #[test]
    fn the_page_stands_alone() {
        let html = page(&results(vec![contender(Role::Best, Filesystem::Ext4, &[5.0, 7.0])]));
        assert!(html.starts_with("<!DOCTYPE html>") && html.ends_with("</html>\n"));
        for resource in ["http:", "https:", "src=", "@import", "url(", "<script"] {
            assert!(!html.contains(resource), "{resource}");
        }
        assert!(html.contains("prefers-color-scheme: dark"));
        assert!(html.contains("href=\"#rename-one\"") && html.contains("id=\"rename-one\""));
        let count = |text: &str| html.matches(text).count();
        for element in ["section", "article", "details", "table", "tr", "ul", "div", "svg", "g"] {
            let opened = count(&format!("<{element}>")) + count(&format!("<{element} "));
            assert_eq!(opened, count(&format!("</{element}>")), "{element}");
        }
    }

    #[test]
    fn what_is_missing_is_named_and_nothing_is_markup() {
        let html = page(&results(vec![contender(Role::Mount, Filesystem::Ext4, &[0.0])]));
        assert!(html.contains("<dt>fuse2fs</dt><dd>it is &lt;not&gt; installed</dd>"), "{html}");
        assert!(!html.contains("<not>") && !html.contains("<odd>") && !html.contains("<1>"), "{html}");
        let mut whole = results(Vec::new());
        whole.gaps.clear();
        assert!(page(&whole).contains("Everything that was asked for"));
    }
}

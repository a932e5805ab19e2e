//! One picture: throughput over the number of workers, of all contenders that show one filesystem.
//!
//! Both axes are logarithmic: in process and through a mount lie decades apart, and workers double. Colours are classes of
//! the page's style sheet, so that they follow the reader's scheme; that is why the pictures are made here and not by
//! `plot.rs`, whose colours are part of the file. All pictures of a chart have the same scale.

use std::fmt::Write;

use super::html::{Escaped, short, workers};
use crate::suite::{ContenderResult, Spread};

const WIDTH: f64 = 210.0;
const HEIGHT: f64 = 150.0;
const LEFT: f64 = 34.0;
const RIGHT: f64 = 8.0;
const TOP: f64 = 8.0;
const BOTTOM: f64 = 20.0;

/// What a chart's pictures agree on.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Axes {
    threads: Vec<u32>,
    /// Logarithms of operations a second.
    low: f64,
    high: f64,
}

impl Axes {
    /// For all contenders of a chart; `None` if nothing was measured.
    pub(super) fn of(contenders: &[ContenderResult]) -> Option<Self> {
        let cells = || contenders.iter().flat_map(|contender| &contender.cells);
        let spreads = || cells().filter_map(|cell| cell.ops_per_second);
        // Throughput is above zero; what is not cannot be drawn.
        let low = spreads().map(|spread| logarithm(spread.lowest)).fold(f64::INFINITY, f64::min);
        let high = spreads().map(|spread| logarithm(spread.highest)).fold(f64::NEG_INFINITY, f64::max);
        if low > high {
            return None;
        }
        let mut threads: Vec<u32> = cells().map(|cell| cell.threads).collect();
        threads.sort_unstable();
        threads.dedup();
        // Air above and below, and more where everything is as quick.
        let air = ((high - low) * 0.06).max(0.12);
        Some(Self { threads, low: low - air, high: high + air })
    }

    fn x(&self, threads: u32) -> f64 {
        let (Some(&first), Some(&last)) = (self.threads.first(), self.threads.last()) else { return LEFT };
        let [first, last, at] = [first, last, threads].map(|number| f64::from(number.max(1)).log2());
        // One number of workers alone stands in the middle.
        let place = if last > first { (at - first) / (last - first) } else { 0.5 };
        // Lines end a little within the frame.
        let (begin, end) = (LEFT + 10.0, WIDTH - RIGHT - 10.0);
        begin + place * (end - begin)
    }

    fn y(&self, ops_per_second: f64) -> f64 {
        let place = (logarithm(ops_per_second) - self.low) / (self.high - self.low);
        HEIGHT - BOTTOM - place * (HEIGHT - BOTTOM - TOP)
    }

    /// Round figures on the axis: decades, and 2 and 5 between them if there are few.
    fn ticks(&self) -> Vec<f64> {
        let decades = (self.low.floor() as i32)..=(self.high.ceil() as i32);
        let steps: &[f64] = match self.high - self.low {
            span if span > 2.2 => &[1.0],
            span if span > 1.0 => &[1.0, 3.0],
            _ => &[1.0, 1.5, 2.0, 3.0, 5.0, 7.0],
        };
        decades
            .flat_map(|decade| steps.iter().map(move |step| step * 10.0_f64.powi(decade)))
            .filter(|&tick| (self.low..=self.high).contains(&logarithm(tick)))
            .collect()
    }
}

fn logarithm(ops_per_second: f64) -> f64 {
    ops_per_second.max(1e-3).log10()
}

/// Draws contenders; the first lies lowest.
pub(super) fn draw(title: &str, contenders: &[&ContenderResult], axes: &Axes) -> String {
    let mut svg = String::new();
    let title = Escaped(title);
    let _ = write!(
        svg,
        "<svg class=\"plot\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{title}\">"
    );
    frame(&mut svg, axes);
    for contender in contenders {
        line(&mut svg, contender, axes);
    }
    svg.push_str("</svg>");
    svg
}

fn frame(svg: &mut String, axes: &Axes) {
    let (right, bottom) = (WIDTH - RIGHT, HEIGHT - BOTTOM);
    for tick in axes.ticks() {
        let y = axes.y(tick);
        let label = tick_label(tick);
        let _ = write!(
            svg,
            "<path class=\"grid\" d=\"M{LEFT} {y:.1}H{right}\"/><text class=\"tick y\" x=\"{:.1}\" y=\"{:.1}\">{label}</text>",
            LEFT - 4.0,
            y + 3.5
        );
    }
    let _ = write!(svg, "<path class=\"axis\" d=\"M{LEFT} {bottom}H{right}\"/>");
    for &threads in &axes.threads {
        let x = axes.x(threads);
        let _ = write!(
            svg,
            "<text class=\"tick x\" x=\"{x:.1}\" y=\"{:.1}\">{threads}</text>",
            HEIGHT - BOTTOM + 14.0
        );
    }
}

fn line(svg: &mut String, contender: &ContenderResult, axes: &Axes) {
    let measured: Vec<(u32, Spread, usize)> = contender
        .cells
        .iter()
        .filter_map(|cell| Some((cell.threads, cell.ops_per_second?, cell.rounds.len())))
        .collect();
    if measured.is_empty() {
        return;
    }
    let _ = write!(svg, "<g class=\"{}\"><path class=\"line\" d=\"", contender.role.name());
    for (number, (threads, spread, _)) in measured.iter().enumerate() {
        let letter = if number == 0 { 'M' } else { 'L' };
        let _ = write!(svg, "{letter}{:.1} {:.1}", axes.x(*threads), axes.y(spread.median));
    }
    svg.push_str("\"/>");
    for (threads, spread, rounds) in measured {
        let (x, y) = (axes.x(threads), axes.y(spread.median));
        let (low, high) = (axes.y(spread.lowest), axes.y(spread.highest));
        let Spread { median, lowest, highest } = spread;
        let [median, lowest, highest] = [median, lowest, highest].map(short);
        let _ = write!(
            svg,
            "<path class=\"spread\" d=\"M{x:.1} {low:.1}V{high:.1}\"/><circle class=\"point\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\"><title>{}, {}: {median} a second ({lowest} to {highest} in {rounds} rounds)</title></circle>",
            Escaped(&contender.name),
            workers(threads),
        );
    }
    svg.push_str("</g>");
}

/// `100`, `1k`, `1.5M`.
fn tick_label(tick: f64) -> String {
    let short = short(tick);
    let digits = short.trim_end_matches(['k', 'M', 'G']);
    let unit = &short[digits.len()..];
    let digits =
        if digits.contains('.') { digits.trim_end_matches('0').trim_end_matches('.') } else { digits };
    format!("{digits}{unit}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::suite::results_for_tests::contender;
    use crate::suite::{Filesystem, Role};

    #[test]
    fn every_measured_cell_is_a_point_within_the_frame() {
        let best = contender(Role::Best, Filesystem::Ext4, &[1e6, 2e6, 0.0, 9e6]);
        let plain = contender(Role::Plain, Filesystem::Ext4, &[40.0, 30.0]);
        let missing = contender(Role::Kernel, Filesystem::Ext4, &[0.0]);
        let all = [best, plain, missing];
        let axes = Axes::of(&all).unwrap();
        assert_eq!(axes.threads, [1, 2, 4, 8]);
        let svg = draw("ext4 <x>", &all.each_ref(), &axes);
        assert_eq!(svg.matches("<circle ").count(), 5);
        assert_eq!(svg.matches("class=\"line\"").count(), 2, "nothing for what is missing");
        assert!(svg.contains("aria-label=\"ext4 &lt;x&gt;\"") && svg.contains(">100k<"), "{svg}");
        assert!(svg.contains("ext4 best, 8 workers: 9.00M a second"), "{svg}");
        for name in ["cx", "cy"] {
            for place in svg.split(&format!("{name}=\"")).skip(1) {
                let place: f64 = place.split('"').next().unwrap().parse().unwrap();
                let end = if name == "cx" { WIDTH - RIGHT } else { HEIGHT - BOTTOM };
                let begin = if name == "cx" { LEFT } else { TOP };
                assert!((begin..=end).contains(&place), "{name} {place}");
            }
        }
    }

    #[test]
    fn nothing_has_no_axes_and_one_figure_has() {
        assert_eq!(Axes::of(&[]), None);
        assert_eq!(Axes::of(&[contender(Role::Best, Filesystem::Ext4, &[0.0])]), None);
        let one = [contender(Role::Best, Filesystem::Ext4, &[1e-9])];
        let svg = draw("", &one.each_ref(), &Axes::of(&one).unwrap());
        assert!(svg.contains("<circle ") && !svg.contains("NaN") && !svg.contains("inf"), "{svg}");
    }

    #[test]
    fn an_axis_has_some_round_figures_whatever_it_spans() {
        for (low, high) in [(0.0, 6.0), (3.1, 3.4), (2.9, 4.3), (5.05, 5.29)] {
            let ticks = Axes { threads: vec![1], low, high }.ticks();
            assert!((1..=8).contains(&ticks.len()), "{low} to {high}: {ticks:?}");
        }
        assert_eq!([1.0, 1000.0, 1500.0, 300_000.0].map(tick_label), ["1", "1k", "1.5k", "300k"]);
    }
}

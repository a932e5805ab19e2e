//! Throughput over the number of workers, as a picture.

use std::error::Error;

use plotters::prelude::*;

use crate::{BenchError, Series};

const SIZE: (u32, u32) = (900, 560);
/// The backend names the font, makes it a fifth smaller, and leaves drawing letters to the program that shows the picture.
const FONT: (&str, u32) = ("sans-serif", 20);
/// Room above the highest point, for the legend.
const AIR: f64 = 1.25;
/// Colours that stay apart for the colour-blind and on paper.
const COLOURS: [RGBColor; 4] =
    [RGBColor(0, 114, 178), RGBColor(213, 94, 0), RGBColor(0, 158, 115), RGBColor(204, 121, 167)];

/// Draws series under a title, as SVG.
///
/// # Errors
/// [`Plot`](BenchError::Plot), if there is nothing to draw.
pub fn draw(title: &str, series: &[Series]) -> Result<String, BenchError> {
    let mut svg = String::new();
    picture(&mut svg, title, series).map_err(|error| BenchError::Plot(error.to_string()))?;
    Ok(svg)
}

fn picture(svg: &mut String, title: &str, series: &[Series]) -> Result<(), Box<dyn Error>> {
    let points = || series.iter().flat_map(|series| &series.points);
    let most = points().map(|point| point.threads.get()).max().ok_or("there is nothing to draw")?;
    let highest = points().map(|point| point.ops_per_second).fold(1.0, f64::max);

    let root = SVGBackend::with_string(svg, SIZE).into_drawing_area();
    root.fill(&WHITE)?;
    // Half a worker of air on both sides, so that one point alone has a width to stand in.
    let mut chart = ChartBuilder::on(&root)
        .margin(16)
        .caption(title, ("sans-serif", 28))
        .x_label_area_size(44)
        .y_label_area_size(90)
        .build_cartesian_2d(0.5..f64::from(most) + 0.5, 0.0..highest * AIR)?;
    chart
        .configure_mesh()
        .x_desc("workers")
        .y_desc("operations a second")
        .x_labels(most.min(24) as usize + 1)
        .x_label_formatter(&|workers| whole(*workers))
        .y_label_formatter(&|ops| short(*ops))
        .label_style(FONT)
        .axis_desc_style(FONT)
        .light_line_style(TRANSPARENT)
        .bold_line_style(RGBColor(220, 220, 220))
        .draw()?;
    for (series, colour) in series.iter().zip(COLOURS.into_iter().cycle()) {
        let line =
            || series.points.iter().map(|point| (f64::from(point.threads.get()), point.ops_per_second));
        chart
            .draw_series(LineSeries::new(line(), colour.stroke_width(2)).point_size(4))?
            .label(&series.target)
            .legend(move |(x, y)| PathElement::new(vec![(x, y), (x + 20, y)], colour.stroke_width(3)));
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperRight)
        .background_style(WHITE)
        .border_style(RGBColor(180, 180, 180))
        .label_font(FONT)
        .draw()?;
    root.present()?;
    Ok(())
}

/// There is no half worker.
fn whole(workers: f64) -> String {
    if workers.fract() == 0.0 { workers.to_string() } else { String::new() }
}

/// `350k`, `2.5M`.
fn short(ops: f64) -> String {
    match ops {
        _ if ops >= 1e6 => format!("{}M", ops / 1e6),
        _ if ops >= 1e3 => format!("{}k", ops / 1e3),
        _ => ops.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use super::*;
    use crate::Point;

    fn series(target: &str, ops: &[f64]) -> Series {
        let point =
            |(threads, &ops_per_second)| Point { threads: NonZeroU32::new(threads).unwrap(), ops_per_second };
        Series { target: target.to_owned(), points: (1..).zip(ops).map(point).collect() }
    }

    #[test]
    fn the_picture_says_what_it_shows() {
        let drawn = draw("rename <1>", &[series("tmpfs:", &[2e6, 3.5e6]), series("dir:/a&b", &[4e5, 3e5])]);
        let svg = drawn.unwrap();
        for text in [
            "rename &lt;1&gt;",
            "tmpfs:",
            "dir:/a&amp;b",
            "workers",
            "operations a second",
            "\n1\n",
            "\n2\n",
            "\n3M\n",
        ] {
            assert!(svg.contains(text), "{text:?} in {svg}");
        }
        let lines = |colour: RGBColor| {
            svg.matches(&format!("stroke=\"#{:02X}{:02X}{:02X}\"", colour.0, colour.1, colour.2)).count()
        };
        assert!(lines(COLOURS[0]) >= 2 && lines(COLOURS[1]) >= 2, "{svg}");
    }

    #[test]
    fn nothing_is_no_picture_and_one_point_is_one() {
        assert!(matches!(draw("", &[]), Err(BenchError::Plot(_))));
        assert!(draw("", &[series("tmpfs:", &[0.0])]).is_ok());
    }
}

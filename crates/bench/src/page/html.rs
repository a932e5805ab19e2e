//! Text for HTML: escaped words, and figures with as many places as matter.

use std::fmt;

/// Text in which nothing is markup, in an element or in a quoted attribute.
pub(super) struct Escaped<'a>(pub(super) &'a str);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = self.0;
        while let Some(at) = rest.find(['&', '<', '>', '"', '\'']) {
            f.write_str(&rest[..at])?;
            f.write_str(match rest.as_bytes()[at] {
                b'&' => "&amp;",
                b'<' => "&lt;",
                b'>' => "&gt;",
                b'"' => "&quot;",
                _ => "&#39;",
            })?;
            rest = &rest[at + 1..];
        }
        f.write_str(rest)
    }
}

/// A number with three digits that matter: `1.23M`, `45.6k`, `789`, `0.12`.
pub(super) fn short(number: f64) -> String {
    let (value, unit) = match number {
        _ if number >= 999.5e6 => (number / 1e9, "G"),
        _ if number >= 999.5e3 => (number / 1e6, "M"),
        _ if number >= 999.5 => (number / 1e3, "k"),
        _ => (number, ""),
    };
    match value {
        _ if value >= 99.95 => format!("{value:.0}{unit}"),
        _ if value >= 9.995 => format!("{value:.1}{unit}"),
        _ => format!("{value:.2}{unit}"),
    }
}

/// A ratio: `2.3×`, `0.45×`, `120×`. It may have to be escaped.
pub(super) fn times(ratio: f64) -> String {
    match ratio {
        _ if ratio >= 99.5 => format!("{}×", short(ratio)),
        _ if ratio >= 9.95 => format!("{ratio:.0}×"),
        _ if ratio >= 0.995 => format!("{ratio:.1}×"),
        _ if ratio >= 0.005 => format!("{ratio:.2}×"),
        _ => "<0.01×".to_owned(),
    }
}

/// A share of all: `12 %`, `0.4 %`.
pub(super) fn percent(share: f64) -> String {
    let percent = share * 100.0;
    if percent >= 9.95 { format!("{percent:.0} %") } else { format!("{percent:.1} %") }
}

/// A length of time: `45 s`, `3 min 5 s`, `1 h 2 min`.
pub(super) fn span(seconds: f64) -> String {
    let seconds = seconds.round() as u64;
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} min {} s", seconds / 60, seconds % 60),
        _ => format!("{} h {} min", seconds / 3600, seconds % 3600 / 60),
    }
}

/// `1 worker`, `4 workers`.
pub(super) fn workers(threads: u32) -> String {
    format!("{threads} worker{}", if threads == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_in_a_text_is_markup() {
        let escaped = |text| Escaped(text).to_string();
        assert_eq!(escaped("<b a=\"1\" c='2'>&amp;"), "&lt;b a=&quot;1&quot; c=&#39;2&#39;&gt;&amp;amp;");
        assert_eq!(escaped("größer ×2"), "größer ×2");
        assert_eq!(escaped(""), "");
    }

    #[test]
    fn figures_have_the_places_that_matter() {
        let numbers = [0.0, 0.123, 7.891, 45.67, 999.4, 999.6, 1234.0, 45_678.0, 1_234_567.0, 2.5e9];
        let written = ["0.00", "0.12", "7.89", "45.7", "999", "1.00k", "1.23k", "45.7k", "1.23M", "2.50G"];
        assert_eq!(numbers.map(short), written);
        assert_eq!(times(0.004), "<0.01×");
        assert_eq!([0.454, 0.996, 2.34, 12.3, 123.0].map(times), ["0.45×", "1.0×", "2.3×", "12×", "123×"]);
        assert_eq!([0.0, 0.004, 0.12, 1.0].map(percent), ["0.0 %", "0.4 %", "12 %", "100 %"]);
        assert_eq!([0.4, 59.6, 185.0, 3725.0].map(span), ["0 s", "1 min 0 s", "3 min 5 s", "1 h 2 min"]);
        assert_eq!([1, 4].map(workers), ["1 worker", "4 workers"]);
    }
}

//! Colours. A style is applied only where the palette says that colours are wanted.

use anstyle::{AnsiColor, Color, Style};
use undercroft_vfs::{Attr, FileType};

const fn colour(colour: AnsiColor) -> Style {
    Style::new().fg_color(Some(Color::Ansi(colour)))
}

/// Titles.
pub(crate) const HEADING: Style = Style::new().bold();
/// What is there for completeness.
pub(crate) const DIM: Style = Style::new().dimmed();
/// Good news.
pub(crate) const GOOD: Style = colour(AnsiColor::Green);
/// What a person should know.
pub(crate) const WARN: Style = colour(AnsiColor::Yellow);
/// The drawn part of pictures.
pub(crate) const PICTURE: Style = colour(AnsiColor::Cyan);
/// Things to type.
pub(crate) const COMMAND: Style = colour(AnsiColor::Cyan).bold();

/// The colour of a name, by what it names; the colours of GNU ls.
pub(crate) const fn of_file(attr: &Attr) -> Style {
    match attr.kind {
        FileType::Directory => colour(AnsiColor::Blue).bold(),
        FileType::Symlink => colour(AnsiColor::Cyan).bold(),
        FileType::Fifo => colour(AnsiColor::Yellow),
        FileType::CharDevice | FileType::BlockDevice => colour(AnsiColor::Yellow).bold(),
        FileType::Socket => colour(AnsiColor::Magenta).bold(),
        FileType::Regular if attr.permissions & 0o111 != 0 => colour(AnsiColor::Green).bold(),
        FileType::Regular => Style::new(),
    }
}

/// Whether to colour.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Palette {
    /// Escape sequences are wanted.
    pub(crate) colours: bool,
}

impl Palette {
    /// The text in a style, or plain.
    pub(crate) fn paint(self, style: Style, text: &str) -> String {
        if self.colours { format!("{style}{text}{style:#}") } else { text.to_owned() }
    }
}

#[cfg(test)]
mod tests {
    use super::{GOOD, Palette};

    #[test]
    fn without_colours_the_text_is_bare() {
        assert_eq!(Palette { colours: false }.paint(GOOD, "x"), "x");
        assert_eq!(Palette { colours: true }.paint(GOOD, "x"), "\u{1b}[32mx\u{1b}[0m");
    }
}

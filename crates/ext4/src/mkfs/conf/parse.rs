//! The text of a mke2fs.conf: sections in square brackets, `tag = value`, and `tag = { ... }`.
//!
//! Source: mke2fs.conf(5), and what mke2fs 1.47 makes of files that the page leaves open:
//!
//! - Of values that stand twice the first counts, and sections that stand twice are one.
//! - What stands before the first section does not count, nor what stands behind a section's `]`, a `}`, or the second
//!   quotation mark of a value. An asterisk behind a name makes it final, which means nothing where there is one file.
//! - A comment may follow anything but what stands in quotation marks. A value without them has no blanks.
//! - The `{` may stand at the beginning of the next line. A `}` may be missing where the text ends, and a quotation mark
//!   where the line ends.
//! - Subsections may have subsections, in which nothing is looked for.

use std::collections::BTreeMap;

use super::ConfError;

/// The values of a section, or of a subsection.
pub(super) type Values = BTreeMap<String, String>;

/// A section: its own values, and those of its subsections.
#[derive(Clone, Debug, Default)]
pub(super) struct Section {
    pub(super) values: Values,
    pub(super) subsections: BTreeMap<String, Values>,
}

/// All sections of a text.
pub(super) fn sections(text: &str) -> Result<BTreeMap<String, Section>, ConfError> {
    let mut reader = Reader::default();
    for (index, line) in text.lines().enumerate() {
        reader.read(line).map_err(|what| ConfError { line: index + 1, what: what.to_owned() })?;
    }
    Ok(reader.sections)
}

/// What has been read, and where in it the next line belongs.
#[derive(Default)]
struct Reader {
    sections: BTreeMap<String, Section>,
    section: Option<String>,
    subsection: String,
    /// How many `{` have no `}` yet; only the first begins a subsection that counts.
    depth: usize,
    /// A tag that awaits its `{`.
    awaiting: Option<String>,
}

impl Reader {
    fn read(&mut self, line: &str) -> Result<(), &'static str> {
        let line = without_comment(line).trim();
        if let Some(tag) = self.awaiting.take() {
            if !line.starts_with('{') {
                return Err("the value of the line before it is missing, or its {");
            }
            self.open(tag);
            return Ok(());
        }
        if let Some(rest) = line.strip_prefix('[') {
            if self.depth > 0 {
                return Err("a section begins before the } of what stands before it");
            }
            let Some((name, _)) = rest.split_once(']') else {
                return Err("a section is a name in square brackets");
            };
            let name = name.trim().to_owned();
            self.sections.entry(name.clone()).or_default();
            self.section = Some(name);
            return Ok(());
        }
        if line.is_empty() || self.section.is_none() {
            return Ok(());
        }
        if line.starts_with('}') {
            self.depth = self.depth.checked_sub(1).ok_or("there is no { for this }")?;
            return Ok(());
        }
        let Some((tag, value)) = line.split_once('=') else { return Err("there is no = in it") };
        let tag = tag.trim().trim_end_matches('*');
        if tag.is_empty() || tag.contains(char::is_whitespace) {
            return Err("what stands before the = is no name");
        }
        let (tag, value) = (tag.to_owned(), value.trim());
        match value {
            "" => self.awaiting = Some(tag),
            "{" => self.open(tag),
            _ if value.starts_with('"') => self.put(tag, unquoted(value)),
            _ if value.starts_with('{') => return Err("something stands behind the {"),
            _ if value.contains(char::is_whitespace) => {
                return Err("a value with blanks stands in quotation marks");
            }
            _ => self.put(tag, value.to_owned()),
        }
        Ok(())
    }

    fn open(&mut self, tag: String) {
        if self.depth == 0 {
            if let Some(section) = self.current() {
                section.subsections.entry(tag.clone()).or_default();
            }
            self.subsection = tag;
        }
        self.depth += 1;
    }

    fn put(&mut self, tag: String, value: String) {
        let (depth, subsection) = (self.depth, self.subsection.clone());
        let Some(section) = self.current() else { return };
        match depth {
            0 => drop(section.values.entry(tag).or_insert(value)),
            1 => drop(section.subsections.entry(subsection).or_default().entry(tag).or_insert(value)),
            _ => {}
        }
    }

    fn current(&mut self) -> Option<&mut Section> {
        self.sections.get_mut(self.section.as_ref()?)
    }
}

/// A line up to a `#` or `;` outside of quotation marks.
fn without_comment(line: &str) -> &str {
    let (mut is_quoted, mut is_escaped) = (false, false);
    let end = line.find(|letter: char| {
        let escaped = is_escaped;
        is_escaped = is_quoted && letter == '\\' && !escaped;
        is_quoted ^= letter == '"' && !escaped;
        !is_quoted && matches!(letter, '#' | ';')
    });
    &line[..end.unwrap_or(line.len())]
}

/// A value without its quotation marks. Where the second is missing, the end of the line belongs to it.
fn unquoted(value: &str) -> String {
    let mut plain = String::new();
    let mut rest = value.chars().skip(1);
    loop {
        plain.push(match rest.next() {
            Some('"') => return plain,
            Some('\\') => match rest.next() {
                Some('n') => '\n',
                Some('t') => '\t',
                Some('b') => '\u{8}',
                Some(other) => other,
                None => '\n',
            },
            Some(other) => other,
            None => {
                plain.push('\n');
                return plain;
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(text: &str) -> (usize, String) {
        let ConfError { line, what } = sections(text).unwrap_err();
        (line, what)
    }

    #[test]
    fn sections_values_and_subsections() {
        let text = "; a comment\n[defaults]\n  blocksize = 4096 \n\tquoted=\"a \\\"b\\\" \\t\"\n\n[fs_types]*\n ext4 = {\n \
                    features = has_journal,extent\n #\n }\n blocksize = 1\n[defaults]\nblocksize = 1024\nmore* = 1\n";
        let found = sections(text).unwrap();
        let defaults = &found["defaults"].values;
        assert_eq!(defaults["blocksize"], "4096", "of two the first");
        assert_eq!(defaults["quoted"], "a \"b\" \t");
        assert_eq!(defaults["more"], "1");
        assert_eq!(found["fs_types"].subsections["ext4"]["features"], "has_journal,extent");
        assert_eq!(found["fs_types"].values["blocksize"], "1");
    }

    #[test]
    fn what_is_wrong_is_said_with_its_line() {
        for (text, line, word) in [
            ("[a", 1, "square brackets"),
            ("[a#b]", 1, "square brackets"),
            ("[a]\nb\n", 2, "no ="),
            ("[a]\nb#c = 1\n", 2, "no ="),
            ("[a]\nb c = 1\n", 2, "no name"),
            ("[a]\nb * = 1\n", 2, "no name"),
            ("[a]\n}\n", 2, "no {"),
            ("[a]\nb = {c\n", 2, "behind the {"),
            ("[a]\nb = c d\n", 2, "quotation marks"),
            ("[a]\nb =\n\n{\n", 3, "its {"),
            ("[a]\nb =\n# {\n", 3, "its {"),
            ("[a]\nb = {\n[c]\n", 3, "before the }"),
        ] {
            let (found, what) = refusal(text);
            assert!(found == line && what.contains(word), "{text:?}: line {found}: {what}");
        }
    }

    #[test]
    fn what_mke2fs_takes_is_taken() {
        let text = "not = counted\n}\n[ a ] more\nb = c # all\nd = \"e # f\" ; g\nh = \"i\nj =\n{ k\nl = 1;2\n} m\nn = {\n\
                    o = {\np = 1\n}\nq = 2\nr = {";
        let found = sections(text).unwrap();
        assert_eq!(found.keys().collect::<Vec<_>>(), ["a"]);
        let a = &found["a"];
        assert_eq!((&*a.values["b"], &*a.values["d"], &*a.values["h"]), ("c", "e # f", "i\n"));
        assert_eq!(a.subsections["j"]["l"], "1");
        assert_eq!(a.subsections["n"].iter().collect::<Vec<_>>(), [(&"q".to_owned(), &"2".to_owned())]);
        assert_eq!(a.subsections.len(), 2);
        assert!(sections("[a]\nb =").unwrap()["a"].values.is_empty());
    }

    #[test]
    fn subsections_may_lie_as_deep_as_a_file_is_long() {
        let text = format!("[a]\n{}", "b = {\n".repeat(100_000));
        assert_eq!(sections(&text).unwrap()["a"].subsections.len(), 1);
    }
}

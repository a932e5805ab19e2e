//! The text of a mke2fs.conf: sections in square brackets, `tag = value`, and one level of `tag = { ... }`.
//!
//! Source: mke2fs.conf(5), and what mke2fs 1.47 makes of files that the page leaves open: of values that stand twice the
//! first counts, sections that stand twice are one, and an asterisk behind a name makes it final, which means nothing
//! where there is one file.

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
    let mut sections: BTreeMap<String, Section> = BTreeMap::new();
    let mut section: Option<String> = None;
    let mut subsection: Option<String> = None;
    let mut last = 0;
    for (index, line) in text.lines().enumerate() {
        let fail = |what: &str| Err(ConfError { line: index + 1, what: what.to_owned() });
        last = index + 1;
        let line = line.trim();
        if line.is_empty() || line.starts_with([';', '#']) {
            continue;
        }
        if let Some(rest) = line.strip_prefix('[') {
            if subsection.is_some() {
                return fail("a section begins before the } of what stands before it");
            }
            let Some((name, "" | "*")) = rest.split_once(']') else {
                return fail("a section is a name in square brackets");
            };
            let name = name.trim().to_owned();
            sections.entry(name.clone()).or_default();
            section = Some(name);
            continue;
        }
        let Some(section) = section.as_ref().and_then(|name| sections.get_mut(name)) else {
            return fail("it stands before the first section");
        };
        if matches!(line, "}" | "}*") {
            if subsection.take().is_none() {
                return fail("there is no { for this }");
            }
            continue;
        }
        let Some((tag, value)) = line.split_once('=') else { return fail("there is no = in it") };
        let tag = tag.trim().trim_end_matches('*');
        if tag.is_empty() || tag.contains(char::is_whitespace) {
            return fail("what stands before the = is no name");
        }
        let value = value.trim();
        if value == "{" {
            if subsection.is_some() {
                return fail("a { within another");
            }
            section.subsections.entry(tag.to_owned()).or_default();
            subsection = Some(tag.to_owned());
            continue;
        }
        let Some(value) = unquoted(value) else { return fail("a quotation mark is missing") };
        let values = match &subsection {
            Some(name) => section.subsections.entry(name.clone()).or_default(),
            None => &mut section.values,
        };
        values.entry(tag.to_owned()).or_insert(value);
    }
    match subsection {
        Some(name) => Err(ConfError { line: last, what: format!("the }} of {name} is missing") }),
        None => Ok(sections),
    }
}

/// A value without its quotation marks; `None` where the second is missing.
fn unquoted(value: &str) -> Option<String> {
    let Some(quoted) = value.strip_prefix('"') else { return Some(value.to_owned()) };
    let mut plain = String::new();
    let mut rest = quoted.chars();
    loop {
        plain.push(match rest.next()? {
            '"' => return Some(plain),
            '\\' => match rest.next()? {
                'n' => '\n',
                't' => '\t',
                'b' => '\u{8}',
                other => other,
            },
            other => other,
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
            ("a = 1", 1, "before the first section"),
            ("[defaults\n", 1, "square brackets"),
            ("[a]\nb\n", 2, "no ="),
            ("[a]\nb c = 1\n", 2, "no name"),
            ("[a]\n}\n", 2, "no {"),
            ("[a]\nb = {\nc = {\n", 3, "within another"),
            ("[a]\nb = {\n\n", 3, "} of b is missing"),
            ("[a]\nb = {\n[c]\n", 3, "before the }"),
            ("[a]\nb = \"c\n", 2, "quotation mark"),
        ] {
            let (found, what) = refusal(text);
            assert!(found == line && what.contains(word), "{text:?}: line {found}: {what}");
        }
    }
}

//! Patterns of the shell over the names in an image, which are bytes.
//!
//! Two kinds: [`Glob`] picks paths as a shell does, [`Exclude`] leaves names out as tar does. Both know `*`, `?`, `[...]`
//! and `\` before a character that stands for itself. Bytes that are not UTF-8 are single characters that only the same
//! bytes match.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use glob::{MatchOptions, Pattern};
use undercroft_populate::LeftOut;

use crate::exit::Kind;
use crate::failure::Failure;
use crate::text::names::safe;

/// As a shell matches names: a dot at the beginning has to be typed.
const NAME: MatchOptions =
    MatchOptions { case_sensitive: true, require_literal_separator: true, require_literal_leading_dot: true };
/// As tar matches what it leaves out: `*` matches `/` too.
const EXCLUDED: MatchOptions = MatchOptions {
    case_sensitive: true,
    require_literal_separator: false,
    require_literal_leading_dot: false,
};
/// Where characters begin that stand for bytes that are not UTF-8, in a plane for private use.
const BYTES: u32 = 0x10_0000;

/// Bytes as characters.
fn characters(bytes: &[u8]) -> Cow<'_, str> {
    if let Ok(text) = std::str::from_utf8(bytes) {
        return text.into();
    }
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        text.extend(chunk.invalid().iter().filter_map(|byte| char::from_u32(BYTES + u32::from(*byte))));
    }
    text.into()
}

/// A pattern as the shell has it, in the form that the library takes.
fn pattern(typed: &[u8]) -> Result<Pattern, Failure> {
    let refused = |why: &str| Failure::new(Kind::Usage, format!("the pattern {}: {why}", safe(typed)));
    let characters = characters(typed);
    if characters.contains("[[:") {
        return Err(refused("classes as [:alpha:] are not known").advise("write the range, as in [a-z]"));
    }
    let mut text = String::with_capacity(characters.len());
    let mut rest = characters.chars().peekable();
    while let Some(character) = rest.next() {
        match character {
            '\\' => text.push_str(&Pattern::escape(rest.next().unwrap_or('\\').encode_utf8(&mut [0; 4]))),
            // Several are no more than one here.
            '*' if text.ends_with('*') && !text.ends_with("[*") => {}
            '[' if rest.next_if_eq(&'^').is_some() => text.push_str("[!"),
            other => text.push(other),
        }
    }
    Pattern::new(&text).map_err(|error| refused(error.msg))
}

/// A part of a path, between slashes.
#[derive(Debug)]
enum Part {
    /// `**`: any number of directories.
    Directories,
    /// A name without a pattern in it.
    Literal(Vec<u8>),
    Name(Pattern),
}

impl Part {
    fn matches(&self, name: &[u8]) -> bool {
        match self {
            Self::Directories => name.first() != Some(&b'.'),
            Self::Literal(literal) => literal == name,
            Self::Name(pattern) => pattern.matches_with(&characters(name), NAME),
        }
    }
}

/// A path with patterns in it, from the root on.
#[derive(Debug)]
pub(crate) struct Glob {
    typed: Vec<u8>,
    parts: Vec<Part>,
}

/// How much of a [`Glob`] a path matches: places in it at which what follows may go on.
#[derive(Clone, Debug)]
pub(crate) struct Matched(Vec<usize>);

impl Glob {
    /// # Errors
    /// [`Kind::Usage`].
    pub(crate) fn parse(typed: &OsStr) -> Result<Self, Failure> {
        let typed = typed.as_bytes();
        let parts = typed.split(|byte| *byte == b'/').filter(|part| !part.is_empty() && *part != b".");
        let part = |part: &[u8]| {
            Ok(match part {
                b"**" => Part::Directories,
                _ if part.iter().any(|byte| b"*?[\\".contains(byte)) => Part::Name(pattern(part)?),
                _ => Part::Literal(part.to_vec()),
            })
        };
        Ok(Self { typed: typed.to_vec(), parts: parts.map(part).collect::<Result<_, Failure>>()? })
    }

    /// As it was typed, safe to show.
    pub(crate) fn shown(&self) -> String {
        safe(&self.typed)
    }

    /// The path that all matches begin with, and what of the pattern it matches.
    pub(crate) fn start(&self) -> (Vec<u8>, Matched) {
        let literal = self.parts.iter().map_while(|part| match part {
            Part::Literal(name) => Some(&name[..]),
            _ => None,
        });
        let names: Vec<&[u8]> = literal.collect();
        ([b"/", &names.join(&b'/')[..]].concat(), self.with_directories(vec![names.len()]))
    }

    /// With one more name behind what matched.
    pub(crate) fn below(&self, matched: &Matched, name: &[u8]) -> Matched {
        let mut places = Vec::new();
        for &place in &matched.0 {
            match self.parts.get(place) {
                Some(part) if part.matches(name) => {
                    places.push(if matches!(part, Part::Directories) { place } else { place + 1 });
                }
                _ => {}
            }
        }
        self.with_directories(places)
    }

    /// `**` also stands for no directory.
    fn with_directories(&self, mut places: Vec<usize>) -> Matched {
        let mut at = 0;
        while let Some(&place) = places.get(at) {
            if matches!(self.parts.get(place), Some(Part::Directories)) && !places.contains(&(place + 1)) {
                places.push(place + 1);
            }
            at += 1;
        }
        places.sort_unstable();
        places.dedup();
        Matched(places)
    }

    /// Whether all of the pattern matched.
    pub(crate) fn is_match(&self, matched: &Matched) -> bool {
        matched.0.contains(&self.parts.len())
    }
}

impl Matched {
    /// Whether nothing below can match.
    pub(crate) fn is_none(&self) -> bool {
        self.0.is_empty()
    }
}

/// A pattern that a whole name or path matches; `*` matches slashes and dots too, as in find.
#[derive(Debug)]
pub(crate) struct Wildcard {
    pattern: Pattern,
    options: MatchOptions,
}

impl Wildcard {
    /// # Errors
    /// [`Kind::Usage`].
    pub(crate) fn parse(typed: &OsStr, ignore_case: bool) -> Result<Self, Failure> {
        let options = MatchOptions { case_sensitive: !ignore_case, ..EXCLUDED };
        Ok(Self { pattern: pattern(typed.as_bytes())?, options })
    }

    pub(crate) fn matches(&self, name: &[u8]) -> bool {
        self.pattern.matches_with(&characters(name), self.options)
    }
}

/// Names that are left out, with all below them. A pattern matches the last names of a path, or all of it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Exclude(Vec<Pattern>);

impl Exclude {
    /// # Errors
    /// [`Kind::Usage`].
    pub(crate) fn parse<'a>(typed: impl IntoIterator<Item = &'a OsStr>) -> Result<Self, Failure> {
        let patterns = typed.into_iter().map(|typed| {
            let typed = typed.as_bytes();
            let typed = typed.strip_prefix(b"./").unwrap_or(typed);
            pattern(typed.strip_suffix(b"/").filter(|rest| !rest.is_empty()).unwrap_or(typed))
        });
        Ok(Self(patterns.collect::<Result<_, _>>()?))
    }

    /// Whether a path inside the image is left out, the directories above it apart.
    pub(crate) fn has(&self, path: &[u8]) -> bool {
        if self.0.is_empty() {
            return false;
        }
        let path = characters(path);
        let path = path.trim_end_matches('/');
        let below = path.match_indices('/').map(|(at, _)| &path[at + 1..]);
        let mut candidates = std::iter::once(path).chain(below);
        candidates.any(|names| self.0.iter().any(|pattern| pattern.matches_with(names, EXCLUDED)))
    }

    /// Whether nothing is left out.
    pub(crate) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// What a source does not even look at, of whose paths each gets a slash in front; `None` if that is nothing.
    pub(crate) fn of_rooted(&self) -> Option<LeftOut> {
        let exclude = self.clone();
        let left_out = move |path: &[u8]| exclude.has_or_is_below(&[b"/", path].concat());
        (!self.is_empty()).then(|| Arc::new(left_out) as LeftOut)
    }

    /// Whether it or a directory above it is left out.
    pub(crate) fn has_or_is_below(&self, path: &[u8]) -> bool {
        let ends = (1..path.len()).filter(|&at| path[at] == b'/').chain([path.len()]);
        let found = ends.map(|end| &path[..end]).try_for_each(|path| match self.has(path) {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        });
        found.is_break()
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    use super::{Exclude, Glob};
    use crate::exit::Kind;

    fn is_match(glob: &str, path: &[u8]) -> bool {
        let glob = Glob::parse(OsStr::new(glob)).unwrap();
        let (start, mut matched) = glob.start();
        let start = start.strip_suffix(b"/").unwrap_or(&start);
        let Some(rest) = path.strip_prefix(start) else { return false };
        for name in rest.split(|byte| *byte == b'/').filter(|name| !name.is_empty()) {
            matched = glob.below(&matched, name);
        }
        glob.is_match(&matched)
    }

    #[test]
    fn globs_are_those_of_the_shell() {
        for (glob, path) in [
            ("etc/*.conf", "/etc/a.conf"),
            ("/etc/*", "/etc/a.conf"),
            ("**/x", "/x"),
            ("**/x", "/a/b/x"),
            ("a/**/x?[a-c]", "/a/x1b"),
            ("a/**/x?[^a-c]", "/a/b/x1d"),
            ("etc", "/etc"),
            (".*", "/.hidden"),
            ("\\*x", "/*x"),
            ("?", "/ä"),
        ] {
            assert!(is_match(glob, path.as_bytes()), "{glob} {path}");
        }
        for (glob, path) in [
            ("etc/*", "/etc/a/b"),
            ("*", "/.hidden"),
            ("**/x", "/.hidden/x"),
            ("etc/*.conf", "/etc/a.cnf"),
            ("\\*x", "/ax"),
            ("x", "/x/y"),
        ] {
            assert!(!is_match(glob, path.as_bytes()), "{glob} {path}");
        }
        for wrong in ["[a", "[[:alpha:]]"] {
            assert_eq!(Glob::parse(OsStr::new(wrong)).unwrap_err().kind(), Kind::Usage, "{wrong}");
        }
    }

    #[test]
    fn bytes_that_are_no_characters_match_themselves() {
        assert!(is_match("a?b*", b"/a\xffb\xfe\xfd"));
        let typed = |bytes| Exclude::parse([OsStr::from_bytes(bytes)]).unwrap();
        assert!(typed(b"\xff*").has(b"/dir/\xffx") && !typed(b"\xff*").has(b"/dir/\xfex"));
    }
}

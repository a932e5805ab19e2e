//! What a file of Rust declares and names, as far as imports need it: read from its words, tests left out.

use std::collections::{BTreeMap, BTreeSet};

/// One module: a file, or a part of one in braces.
#[derive(Debug, Default)]
pub(super) struct Module {
    /// Modules that lie in files of their own.
    pub(super) files: Vec<String>,
    /// Modules in braces.
    pub(super) inner: BTreeMap<String, Self>,
    pub(super) uses: Vec<Use>,
    /// Paths in the code itself.
    pub(super) paths: Vec<Vec<String>>,
    /// Names that the module defines.
    pub(super) items: BTreeSet<String>,
}

/// One name that a `use` brings in; `*` for all.
#[derive(Debug)]
pub(super) struct Use {
    pub(super) path: Vec<String>,
    pub(super) name: String,
    pub(super) is_public: bool,
}

/// Words that are followed by the name of what they define.
const DEFINING: &[&str] =
    &["fn", "struct", "enum", "trait", "const", "static", "type", "union", "macro_rules"];

impl Module {
    pub(super) fn read(text: &str) -> Self {
        Self::of(&without_tests(&words(text)))
    }

    fn of(words: &[String]) -> Self {
        let word = |at: usize| words.get(at).map_or("", String::as_str);
        let mut module = Self::default();
        let mut at = 0;
        while at < words.len() {
            match word(at) {
                "mod" if word(at + 2) == ";" => {
                    module.files.push(word(at + 1).to_owned());
                    at += 3;
                }
                "mod" if word(at + 2) == "{" => {
                    let end = group_end(words, at + 2);
                    module.inner.insert(word(at + 1).to_owned(), Self::of(&words[at + 3..end - 1]));
                    at = end;
                }
                "use" => {
                    let is_public = at > 0 && matches!(word(at - 1), "pub" | ")");
                    at = read_use(words, at + 1, &[], is_public, &mut module.uses);
                }
                defining if DEFINING.contains(&defining) && is_name(word(at + 1)) => {
                    module.items.insert(word(at + 1).to_owned());
                    at += 2;
                }
                name if is_name(name) && word(at + 1) == "::" => {
                    let begins = at == 0 || !matches!(word(at - 1), "::" | ".");
                    let mut path = vec![name.to_owned()];
                    at += 1;
                    while word(at) == "::" && is_name(word(at + 1)) {
                        path.push(word(at + 1).to_owned());
                        at += 2;
                    }
                    if begins {
                        module.paths.push(path);
                    }
                    at += usize::from(word(at) == "::");
                }
                _ => at += 1,
            }
        }
        module
    }
}

/// Reads one tree of a `use`; answers with where it ends.
fn read_use(
    words: &[String],
    mut at: usize,
    before: &[String],
    is_public: bool,
    uses: &mut Vec<Use>,
) -> usize {
    let word = |at: usize| words.get(at).map_or("", String::as_str);
    let mut path = before.to_vec();
    loop {
        match word(at) {
            "::" => at += 1,
            "{" => {
                let end = group_end(words, at);
                at += 1;
                while at < end - 1 {
                    at = read_use(words, at, &path, is_public, uses);
                    at += usize::from(word(at) == ",");
                }
                return end;
            }
            "*" => {
                uses.push(Use { path, name: "*".to_owned(), is_public });
                return at + 1;
            }
            name if is_name(name) && word(at + 1) == "::" => {
                path.push(name.to_owned());
                at += 2;
            }
            name if is_name(name) => {
                if name != "self" {
                    path.push(name.to_owned());
                }
                let mut end = at + 1;
                let mut name = path.last().cloned().unwrap_or_default();
                if word(end) == "as" {
                    name = word(end + 1).to_owned();
                    end += 2;
                }
                uses.push(Use { path, name, is_public });
                return end;
            }
            _ => return at + 1,
        }
    }
}

/// The words without items that only tests have, and without attributes.
fn without_tests(words: &[String]) -> Vec<String> {
    let mut kept = Vec::new();
    let mut at = 0;
    while at < words.len() {
        let hash = words[at] == "#";
        let bracket = at + 1 + usize::from(words.get(at + 1).is_some_and(|word| word == "!"));
        if hash && words.get(bracket).is_some_and(|word| word == "[") {
            let end = group_end(words, bracket);
            at = if is_for_tests(&words[bracket + 1..end - 1].concat()) { item_end(words, end) } else { end };
        } else {
            kept.push(words[at].clone());
            at += 1;
        }
    }
    kept
}

fn is_for_tests(attribute: &str) -> bool {
    let condition = attribute.strip_prefix("cfg(").unwrap_or_default();
    let condition = condition.strip_prefix("all(").or(condition.strip_prefix("any(")).unwrap_or(condition);
    condition.starts_with("test,") || condition.starts_with("test)")
}

/// Behind the item that begins here: behind its block, or its semicolon or comma.
fn item_end(words: &[String], mut at: usize) -> usize {
    while at < words.len() {
        match words[at].as_str() {
            "{" => return group_end(words, at),
            "(" | "[" => at = group_end(words, at),
            ";" | "," => return at + 1,
            // The item is the last of a list.
            ")" | "]" | "}" => return at,
            _ => at += 1,
        }
    }
    at
}

/// Behind the bracket that closes the one here.
fn group_end(words: &[String], mut at: usize) -> usize {
    let mut depth = 0;
    while at < words.len() {
        match words[at].as_str() {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" => depth -= 1,
            _ => {}
        }
        at += 1;
        if depth == 0 {
            break;
        }
    }
    at
}

fn is_name(word: &str) -> bool {
    word.starts_with(|first: char| first.is_alphabetic() || first == '_')
}

/// Names, `::` and single characters; comments are left out, and of literals their quotes are left.
fn words(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let len = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("/*") {
            rest.find("*/").map_or(rest.len(), |end| end + 2)
        } else if let Some(len) = string_len(rest).or_else(|| char_len(rest)) {
            words.push("\"".to_owned());
            len
        } else if first.is_whitespace() {
            first.len_utf8()
        } else {
            let end = rest.find(|next: char| !next.is_alphanumeric() && next != '_').unwrap_or(rest.len());
            let len = if end > 0 {
                end
            } else if rest.starts_with("::") {
                2
            } else {
                first.len_utf8()
            };
            words.push(rest[..len].to_owned());
            len
        };
        rest = &rest[len..];
    }
    words
}

/// The length of the string literal that the text begins with.
fn string_len(text: &str) -> Option<usize> {
    const PREFIX_MAX: usize = 8;
    let quote = text.bytes().take(PREFIX_MAX).position(|byte| byte == b'"')?;
    let prefix = &text[..quote];
    let hashes = prefix.trim_start_matches(['b', 'c', 'r']);
    if hashes.chars().any(|next| next != '#') {
        return None;
    }
    if prefix.contains('r') {
        let end = format!("\"{hashes}");
        return Some(text[quote + 1..].find(&end).map_or(text.len(), |at| quote + 1 + at + end.len()));
    }
    if !hashes.is_empty() {
        return None;
    }
    let mut escaped = false;
    for (at, next) in text[quote + 1..].char_indices() {
        match next {
            '"' if !escaped => return Some(quote + 1 + at + 1),
            '\\' => escaped = !escaped,
            _ => escaped = false,
        }
    }
    Some(text.len())
}

/// The length of the character literal that the text begins with; `None` for a lifetime.
fn char_len(text: &str) -> Option<usize> {
    let inside = text.strip_prefix('\'')?;
    let mut chars = inside.char_indices();
    let (_, first) = chars.next()?;
    let end = if first == '\\' { inside[2..].find('\'')? + 2 } else { chars.next()?.0 };
    inside[end..].starts_with('\'').then_some(end + 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uses_are_taken_apart() {
        let module = Module::read("pub(crate) use a::{self, b::{C as D, e}, f::*};\nuse super::g;");
        let uses: Vec<_> =
            module.uses.iter().map(|one| (one.path.join("::"), one.name.as_str(), one.is_public)).collect();
        let expected = [
            ("a", "a", true),
            ("a::b::C", "D", true),
            ("a::b::e", "e", true),
            ("a::f", "*", true),
            ("super::g", "g", false),
        ];
        assert_eq!(uses, expected.map(|(path, name, is_public)| (path.to_owned(), name, is_public)));
    }

    #[test]
    fn tests_comments_and_strings_name_nothing() {
        let module = Module::read(
            "// a::b\n/* a::b */ fn f<'a>(c: &'a str) { \"a::b\\\"a::b\"; r#\"a::b\"#; ';'; '\\''; x.y::z(); }\n\
             #[cfg(test)]\nmod tests { use a::b; }\n#[cfg(all(test, unix))]\nuse a::b;\n\
             struct S { #[cfg(test)] d: a::b, e: k::E }\nmod m { mod n; use super::o; }\nmod p;",
        );
        assert!(module.uses.is_empty(), "{module:?}");
        assert_eq!(module.paths, [["k".to_owned(), "E".to_owned()]]);
        assert_eq!(module.files, ["p"]);
        assert_eq!(module.inner["m"].files, ["n"]);
        assert!(["f", "S"].iter().all(|name| module.items.contains(*name)));
    }
}

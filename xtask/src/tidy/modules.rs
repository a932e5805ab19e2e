//! Files that no `mod` declaration reaches: they look like code and are never compiled.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};

use super::Source;

pub(super) fn orphans(sources: &[Source]) -> Vec<String> {
    let rust: BTreeMap<&Path, &Source> =
        sources.iter().filter(|s| s.is_rust()).map(|s| (s.path.as_path(), s)).collect();
    let mut reached: BTreeSet<PathBuf> = BTreeSet::new();
    let mut ahead: Vec<PathBuf> =
        rust.keys().filter(|path| is_root(path)).map(|path| path.to_path_buf()).collect();
    while let Some(path) = ahead.pop() {
        if let Some(source) = rust.get(path.as_path())
            && reached.insert(path)
        {
            ahead.extend(declared(source));
        }
    }
    let orphans = rust.values().filter(|source| !reached.contains(&source.path));
    orphans.map(|source| source.at(1, "no `mod` declaration reaches this file")).collect()
}

/// Whether cargo compiles this file by itself.
fn is_root(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default();
    let parent = path.parent().unwrap_or(Path::new(""));
    let dir = parent.file_name().unwrap_or_default();
    match dir.to_str() {
        Some("src") => name == "lib.rs" || name == "main.rs",
        Some("tests" | "benches" | "examples") => !parent.components().any(|part| part.as_os_str() == "src"),
        Some("bin") => parent.parent().is_some_and(|up| up.ends_with("src")),
        Some("fuzz_targets") => true,
        // `tests/suite/main.rs` is a test of its own; so with examples and benches.
        _ => name == "build.rs" || (name == "main.rs" && parent.parent().is_some_and(holds_programs)),
    }
}

/// Whether each file in this directory is a program of its own.
fn holds_programs(dir: &Path) -> bool {
    ["tests", "benches", "examples"].iter().any(|kind| dir.ends_with(kind))
}

/// The files that the `mod` declarations of one file may mean.
fn declared(source: &Source) -> Vec<PathBuf> {
    let parent = source.path.parent().unwrap_or(Path::new(""));
    let stem = source.path.file_stem().unwrap_or_default();
    let owns_its_directory = stem == "mod" || is_root(&source.path);
    let below = if owns_its_directory { parent.to_owned() } else { parent.join(stem) };
    let mut files = Vec::new();
    let mut explicit = None;
    for line in source.text.lines().map(str::trim) {
        if let Some(path) = line.strip_prefix("#[path = \"").and_then(|rest| rest.split('"').next()) {
            explicit = Some(without_dots(&parent.join(path)));
        } else if let Some(name) = module_name(line) {
            match explicit.take() {
                Some(path) => files.push(path),
                None => files.extend([below.join(format!("{name}.rs")), below.join(name).join("mod.rs")]),
            }
        }
    }
    files
}

/// The path without its `..`, as the sources have theirs.
fn without_dots(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => drop(plain.pop()),
            part => plain.push(part),
        }
    }
    plain
}

/// The name in `mod name;`, with or without a visibility.
fn module_name(line: &str) -> Option<&str> {
    let line = line.strip_suffix(';')?;
    let line = match line.strip_prefix("pub") {
        Some(rest) if rest.starts_with('(') => rest.split_once(')')?.1,
        Some(rest) => rest,
        None => line,
    };
    line.trim_start().strip_prefix("mod ").map(str::trim)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(path: &str, text: &str) -> Source {
        Source { path: path.into(), text: text.to_owned() }
    }

    #[test]
    fn modules_are_followed_from_the_roots() {
        let sources = [
            source("crates/a/src/lib.rs", "mod one;\npub(crate) mod two;\n"),
            source("crates/a/src/one.rs", "mod inner;"),
            source("crates/a/src/one/inner.rs", ""),
            source("crates/a/src/two/mod.rs", "#[path = \"odd.rs\"]\nmod three;"),
            source("crates/a/src/two/odd.rs", ""),
            source("crates/a/tests/suite.rs", "mod common;"),
            source("crates/a/tests/common/mod.rs", "#[path = \"../../shared/four.rs\"]\nmod four;"),
            source("crates/a/shared/four.rs", ""),
        ];
        assert_eq!(orphans(&sources), Vec::<String>::new());
    }

    #[test]
    fn what_no_module_declares_is_an_orphan() {
        let sources = [source("crates/a/src/lib.rs", "// mod one;"), source("crates/a/src/one.rs", "")];
        assert_eq!(orphans(&sources).len(), 1);
    }
}

//! `docs/ARCHITECTURE.md` compared with the files: tables of modules, users of locks, imports, and names of files.
//!
//! A row of a table of modules is a file and the first sentence of its header; the last column of the table of locks has
//! the files whose locks have the class. `cargo xtask modules` writes both. In the drawing a line is a crate, an arrow and
//! the crates that it imports, and imports only go down. Every file that the text names exists.

use std::collections::BTreeMap;
use std::path::{Component, Path};

use super::Source;

pub(super) const DOCUMENT: &str = "docs/ARCHITECTURE.md";

const TABLES: Between =
    Between("<!-- tables of modules: written by `cargo xtask modules` -->", "<!-- end of tables -->");
const DRAWING: Between =
    Between("<!-- imports: compared with the crates by `cargo xtask tidy` -->", "<!-- end of imports -->");
const LOCKS: Between = Between("| rank | class | guards | taken by |\n| ---: | --- | --- | --- |\n", "\n\n");
const LOCK_ORDER: &str = "crates/sync/src/order.rs";
/// A class with more files than this has only how many there are.
const FILES_NAMED: usize = 5;
const ARROW: &str = " ──► ";

/// The lines between two marks.
struct Between(&'static str, &'static str);

impl Between {
    /// What stands before, between and after the marks; the marks belong to the first and the last.
    fn split<'a>(&self, text: &'a str) -> Option<[&'a str; 3]> {
        let begin = text.find(self.0)? + self.0.len();
        let end = begin + text[begin..].find(self.1)?;
        Some([&text[..begin], &text[begin..end], &text[end..]])
    }
}

/// What the tables and the drawing lack, have too much, or say otherwise than the files.
pub(super) fn findings(sources: &[Source]) -> Vec<String> {
    let Some(document) = sources.iter().find(|source| source.path == Path::new(DOCUMENT)) else {
        return vec![format!("{DOCUMENT}: the file is missing")];
    };
    let mut findings = match TABLES.split(&document.text) {
        Some([_, tables, _]) => differences(&rows_of(tables), &rows(sources)),
        None => vec![missing_marks(&TABLES)],
    };
    findings.extend(match DRAWING.split(&document.text) {
        Some([_, drawing, _]) => drawing_findings(drawing, &imports(sources)),
        None => vec![missing_marks(&DRAWING)],
    });
    match with_lock_users(&document.text, sources) {
        Some(text) if text == document.text => {}
        Some(_) => findings.push(format!(
            "{DOCUMENT}: the files that take locks have changed since the table of locks was written; run `cargo xtask modules`"
        )),
        None => findings.push(missing_marks(&LOCKS)),
    }
    findings.extend(missing_files(document, sources));
    findings
}

/// The document with the last column of its table of locks as the files have it.
fn with_lock_users(text: &str, sources: &[Source]) -> Option<String> {
    let [before, table, after] = LOCKS.split(text)?;
    let order = sources.iter().find(|source| source.path == Path::new(LOCK_ORDER));
    let order = order.map_or("", |order| order.text.as_str());
    let mut rows = Vec::new();
    for row in table.lines() {
        let cells: Vec<&str> = row.split(" | ").collect();
        let [rank, class, guards, ..] = cells[..] else { return None };
        let declared =
            order.lines().find(|line| line.contains(&format!(" = {}, rank", class.replace('`', "\""))));
        let users =
            declared.and_then(|line| line.trim().split_once(" = ")).map(|(name, _)| users_of(name, sources));
        rows.push(format!("{rank} | {class} | {guards} | {} |", users.unwrap_or_default()));
    }
    Some(format!("{before}{}{after}", rows.join("\n")))
}

/// The files that name a lock class, tests left out: of few files each, of many how many each crate has.
fn users_of(class: &str, sources: &[Source]) -> String {
    let names_it = |source: &&Source| {
        let code = source.text.split("\nmod tests {").next().unwrap_or_default();
        code.match_indices(&format!("order::{class}")).any(|(at, name)| {
            !code[at + name.len()..].starts_with(|next: char| next.is_alphanumeric() || next == '_')
        })
    };
    let files = sources.iter().filter(|source| source.is_rust()).filter(names_it);
    let files: Vec<(String, String)> =
        files.filter_map(|source| in_a_crate(&source.path)).filter(|(_, file)| !is_test(file)).collect();
    if files.is_empty() {
        return "not used yet".to_owned();
    }
    if files.len() <= FILES_NAMED {
        return files
            .iter()
            .map(|(name, file)| format!("`{name}/src/{file}`"))
            .collect::<Vec<_>>()
            .join(", ");
    }
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for (name, _) in &files {
        *counts.entry(name).or_default() += 1;
    }
    counts.iter().map(|(name, count)| format!("{count} of `{name}`")).collect::<Vec<_>>().join(", ")
}

/// Files of Rust that the text names, as `crate/src/file.rs`, and that are not there.
fn missing_files(document: &Source, sources: &[Source]) -> Vec<String> {
    let exists = |path: &Path| sources.iter().any(|source| source.path == path);
    let mut findings = Vec::new();
    for (number, line) in document.text.lines().enumerate() {
        for name in
            line.split('`').skip(1).step_by(2).filter(|name| name.contains("/src/") && name.ends_with(".rs"))
        {
            if !exists(&Path::new("crates").join(name)) && !exists(Path::new(name)) {
                findings.push(document.at(number + 1, &format!("names {name}, which does not exist")));
            }
        }
    }
    findings
}

/// The document with tables as the files have them.
pub(super) fn rewritten(sources: &[Source]) -> Result<String, String> {
    let document = sources.iter().find(|source| source.path == Path::new(DOCUMENT));
    let document = document.ok_or_else(|| format!("{DOCUMENT}: the file is missing"))?;
    let text = with_lock_users(&document.text, sources).ok_or_else(|| missing_marks(&LOCKS))?;
    let [before, _, after] = TABLES.split(&text).ok_or_else(|| missing_marks(&TABLES))?;
    let mut tables = String::new();
    let mut current = None;
    for ((name, _), (file, sentence)) in &rows(sources) {
        if current != Some(name) {
            tables.push_str(&format!("\n\n### {name}\n\n| file | what it is |\n| --- | --- |"));
            current = Some(name);
        }
        tables.push_str(&format!("\n| `{file}` | {sentence} |"));
    }
    Ok(format!("{before}{tables}\n\n{after}"))
}

fn missing_marks(between: &Between) -> String {
    format!("{DOCUMENT}: lacks the mark {} or {}", between.0, between.1)
}

/// The name of a crate and what its files are sorted by; the file, from its crate's directory, and its first sentence.
type Rows = BTreeMap<(String, String), (String, String)>;

fn rows(sources: &[Source]) -> Rows {
    let mut rows = Rows::new();
    for source in sources.iter().filter(|source| source.is_rust()) {
        if let Some((name, file)) = in_a_crate(&source.path).filter(|(_, file)| !is_test(file)) {
            let order = sorted_by(&file);
            rows.insert((name, order), (file, first_sentence(&source.text)));
        }
    }
    rows
}

/// The crate of a module, and the module's file from the crate's `src`.
fn in_a_crate(path: &Path) -> Option<(String, String)> {
    let parts: Vec<&str> = path.components().filter_map(plain).collect();
    let (["crates", name, "src", file @ ..] | [name @ "xtask", "src", file @ ..]) = &parts[..] else {
        return None;
    };
    Some(((*name).to_owned(), file.join("/")))
}

fn plain(part: Component<'_>) -> Option<&str> {
    match part {
        Component::Normal(name) => name.to_str(),
        _ => None,
    }
}

fn is_test(file: &str) -> bool {
    file.split('/').any(|part| part == "tests" || part == "tests.rs" || part.ends_with("_tests.rs"))
}

/// A crate's root comes first, and a module before what it contains.
fn sorted_by(file: &str) -> String {
    match file {
        "lib.rs" | "main.rs" => String::new(),
        _ => {
            let module = file.strip_suffix(".rs").unwrap_or(file);
            module.strip_suffix("/mod").unwrap_or(module).to_owned()
        }
    }
}

/// The first sentence of a file's header, without links and fit for a cell of a table.
fn first_sentence(text: &str) -> String {
    let header = text.lines().skip_while(|line| !line.starts_with("//!"));
    let paragraph: Vec<&str> = header
        .map_while(|line| line.strip_prefix("//!"))
        .map(str::trim)
        .take_while(|l| !l.is_empty())
        .collect();
    let paragraph = paragraph.join(" ");
    let sentence = paragraph.find(". ").map_or(paragraph.as_str(), |end| &paragraph[..=end]);
    without_links(sentence).replace('|', "\\|")
}

/// Links of rustdoc, `` [`Name`](path) `` and `` [`Name`] ``, become `` `Name` ``.
fn without_links(text: &str) -> String {
    let mut plain = String::new();
    let mut rest = text;
    while let Some((before, link)) = rest.split_once("[`") {
        let Some((name, after)) = link.split_once("`]") else { break };
        plain.push_str(&format!("{before}`{name}`"));
        rest = match after.strip_prefix('(').and_then(|target| target.split_once(')')) {
            Some((_, after)) => after,
            None => after,
        };
    }
    plain + rest
}

/// The rows as the document has them.
fn rows_of(tables: &str) -> Rows {
    let mut rows = Rows::new();
    let mut name = String::new();
    for line in tables.lines() {
        if let Some(heading) = line.strip_prefix("### ") {
            name = heading.to_owned();
        } else if let Some((file, sentence)) = line.strip_prefix("| `").and_then(|row| row.split_once("` | "))
        {
            let sentence = sentence.strip_suffix(" |").unwrap_or(sentence);
            rows.insert((name.clone(), sorted_by(file)), (file.to_owned(), sentence.to_owned()));
        }
    }
    rows
}

fn differences(told: &Rows, real: &Rows) -> Vec<String> {
    let mut findings = Vec::new();
    let mut finding = |name: &str, file: &str, what: &str| {
        findings.push(format!("{DOCUMENT}: {what} of {name}, {file}; run `cargo xtask modules`"));
    };
    for (key, row) in real {
        match told.get(key) {
            None => finding(&key.0, &row.0, "no row for a module"),
            Some(old) if old != row => finding(&key.0, &row.0, "not the first sentence of a module"),
            Some(_) => {}
        }
    }
    for (key, row) in told.iter().filter(|(key, _)| !real.contains_key(*key)) {
        finding(&key.0, &row.0, "a row without a module");
    }
    findings
}

/// What each crate imports of the others, from their manifests.
fn imports(sources: &[Source]) -> BTreeMap<String, Vec<String>> {
    let mut imports = BTreeMap::new();
    for source in sources.iter().filter(|source| source.path.file_name().is_some_and(|n| n == "Cargo.toml")) {
        let parts: Vec<&str> = source.path.components().filter_map(plain).collect();
        if let ["crates", name, _] = parts[..] {
            let lines = source.text.lines().skip_while(|line| *line != "[dependencies]").skip(1);
            let lines = lines.take_while(|line| !line.starts_with('['));
            let names = lines.filter_map(|line| line.strip_prefix("undercroft-"));
            let names = names.filter_map(|line| line.split(['.', ' ', '=']).next()).map(str::to_owned);
            let mut names: Vec<String> = names.collect();
            names.sort();
            imports.insert(name.to_owned(), names);
        }
    }
    imports
}

fn drawing_findings(drawing: &str, imports: &BTreeMap<String, Vec<String>>) -> Vec<String> {
    let lines = drawing.lines().filter_map(|line| line.split_once(ARROW));
    let drawn: Vec<(&str, Vec<&str>)> =
        lines.map(|(name, targets)| (name.trim(), targets.split_whitespace().collect())).collect();
    let mut findings = Vec::new();
    for (place, (name, targets)) in drawn.iter().enumerate() {
        let mut sorted: Vec<&str> = targets.iter().copied().filter(|target| *target != "nothing").collect();
        let below = |target: &&str| drawn[place + 1..].iter().any(|(lower, _)| lower == target);
        if let Some(up) = sorted.iter().find(|target| !below(target)) {
            findings.push(format!(
                "{DOCUMENT}: the drawing has {name} import {up}, which does not stand below it"
            ));
        }
        sorted.sort_unstable();
        match imports.get(*name) {
            None => findings.push(format!("{DOCUMENT}: the drawing has {name}, which is no crate")),
            Some(real) if *real != sorted => findings.push(format!(
                "{DOCUMENT}: the drawing has {name} import {}, and its manifest {}",
                sorted.join(" "),
                real.join(" ")
            )),
            Some(_) => {}
        }
    }
    let undrawn = imports.keys().filter(|name| !drawn.iter().any(|(drawn, _)| drawn == name));
    findings.extend(undrawn.map(|name| format!("{DOCUMENT}: the drawing lacks the crate {name}")));
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(path: &str, text: &str) -> Source {
        Source { path: path.into(), text: text.to_owned() }
    }

    fn project(drawing: &str) -> Vec<Source> {
        let locks = format!("{}| 1 | `b` | B | not used yet |\n\n", LOCKS.0);
        let document =
            format!("# A\n{}\n{drawing}\n{}\n{locks}{}\n{}\n", DRAWING.0, DRAWING.1, TABLES.0, TABLES.1);
        vec![
            source(DOCUMENT, &document),
            source(
                "crates/a/Cargo.toml",
                "[dependencies]\nundercroft-b.workspace = true\n[dev-dependencies]\nundercroft-c = 1",
            ),
            source("crates/a/src/lib.rs", "//! The top. And more."),
            source("crates/a/src/one/mod.rs", "//! One: of\n//! [`Two`](super::Two) | more.\n//!\n//! Else."),
            source("crates/a/src/one/inner.rs", "//! Inner"),
            source("crates/a/src/one/tests.rs", "//! Tests."),
            source("crates/b/Cargo.toml", "[dependencies]\nundercroft = 1"),
            source(LOCK_ORDER, "//! Order.\n    B = \"b\", rank 1;"),
            source("crates/sync/src/a.rs", "//! A.\nlet _ = &order::BB;"),
        ]
    }

    #[test]
    fn written_tables_have_a_row_for_each_module_and_are_found_in_order() {
        let mut sources = project("a ──► b\nb ──► nothing");
        let missing = findings(&sources);
        assert_eq!(missing.len(), 5, "{missing:?}");
        assert!(missing[0].contains("no row for a module of a, lib.rs"), "{missing:?}");
        let text = rewritten(&sources).unwrap();
        let at = |row: &str| text.find(row).unwrap_or_else(|| panic!("no {row} in {text}"));
        assert!(at("| `lib.rs` | The top. |") < at("| `one/mod.rs` | One: of `Two` \\| more. |"));
        assert!(at("| `one/mod.rs`") < at("| `one/inner.rs` | Inner |"));
        assert!(!text.contains("tests.rs"));
        sources[0] = source(DOCUMENT, &text);
        assert_eq!(findings(&sources), Vec::<String>::new());
        assert_eq!(rewritten(&sources).unwrap(), text);

        sources[2] = source("crates/a/src/lib.rs", "//! Another top.");
        sources.remove(4);
        let stale = findings(&sources);
        assert_eq!(stale.len(), 2, "{stale:?}");
        assert!(stale[0].contains("not the first sentence of a module of a, lib.rs"));
        assert!(stale[1].contains("a row without a module of a, one/inner.rs"));
    }

    #[test]
    fn the_table_of_locks_has_the_files_that_take_them() {
        let mut sources = project("a ──► b\nb ──► nothing");
        sources[0] = source(DOCUMENT, &rewritten(&sources).unwrap());
        sources[4] = source("crates/a/src/one/inner.rs", "//! Inner\nMutex::new(&order::B, 0)");
        let stale = findings(&sources);
        assert_eq!(stale.len(), 1, "{stale:?}");
        assert!(stale[0].contains("the files that take locks have changed"));
        let text = rewritten(&sources).unwrap();
        assert!(text.contains("| 1 | `b` | B | `a/src/one/inner.rs` |"), "{text}");
        sources[4] = source("crates/a/src/one/inner.rs", "//! Inner\nmod tests {\nMutex::new(&order::B, 0)");
        assert!(rewritten(&sources).unwrap().contains("not used yet"));
    }

    #[test]
    fn a_file_that_the_text_names_and_that_is_gone_is_found() {
        let sources = project("a ──► b\nb ──► nothing\nsee `a/src/lib.rs` and `a/src/gone.rs`");
        let named: Vec<String> = missing_files(&sources[0], &sources);
        assert_eq!(named.len(), 1);
        assert!(named[0].ends_with("names a/src/gone.rs, which does not exist"), "{named:?}");
    }

    #[test]
    fn the_drawing_has_the_imports_of_the_manifests_and_they_go_down() {
        let found = |drawing: &str| {
            let mut found = findings(&project(drawing));
            found.retain(|finding| finding.contains("drawing"));
            found
        };
        assert_eq!(found("a ──► b\nb ──► nothing"), Vec::<String>::new());
        assert!(found("b ──► nothing\na ──► b")[0].contains("a import b, which does not stand below it"));
        assert!(found("a ──► b")[0].contains("does not stand below"));
        assert!(found("a ──► nothing\nb ──► nothing")[0].contains("and its manifest b"));
        assert!(found("a ──► b\nb ──► nothing\nc ──► nothing")[0].contains("c, which is no crate"));
        assert!(found("b ──► nothing")[0].contains("lacks the crate a"));
    }
}

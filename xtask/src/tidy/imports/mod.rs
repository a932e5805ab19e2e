//! Imports within a crate, drawn as a graph of files: no circle of files that import each other is large.
//!
//! A file imports another if its code, tests left out, names something that the other defines, by a `use` or by a path. A
//! name is followed through modules that pass it on, so a module that only lists and passes on what it contains imports
//! none of it. Methods and implementations of traits are no imports: where they lie is no matter to their callers.

mod reader;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use self::reader::Module;
use super::Source;

/// The most files that a circle may have.
const CIRCLE_FILES: usize = 6;

/// Names that are passed on more often than this are not followed.
const PASSED_ON: usize = 16;

/// What each file imports of which other.
type Graph<'a> = BTreeMap<&'a Path, BTreeMap<&'a Path, BTreeSet<String>>>;

pub(super) fn findings(sources: &[Source]) -> Vec<String> {
    let roots = sources.iter().filter(|source| {
        let file = source.path.file_name().unwrap_or_default();
        (file == "lib.rs" || file == "main.rs")
            && source.path.parent().is_some_and(|dir| dir.ends_with("src"))
    });
    let mut findings = Vec::new();
    for root in roots {
        let graph = Crate::read(root, sources).imports();
        for circle in circles(&graph).iter().filter(|circle| circle.len() > CIRCLE_FILES) {
            findings.push(format!(
                "{}: {} files import each other in a circle, and {CIRCLE_FILES} may; it is made of\n{}",
                root.path.display(),
                circle.len(),
                drawing(&graph, circle)
            ));
        }
    }
    findings
}

/// The imports between the files of a circle, one in a line.
fn drawing(graph: &Graph<'_>, circle: &[&Path]) -> String {
    let mut lines = Vec::new();
    for file in circle {
        for (other, names) in
            graph.get(file).into_iter().flatten().filter(|(other, _)| circle.contains(other))
        {
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            lines.push(format!("    {} ──► {}: {}", file.display(), other.display(), names.join(" ")));
        }
    }
    lines.join("\n")
}

/// The modules of a crate, by their paths.
struct Crate<'a>(BTreeMap<Vec<String>, (&'a Path, Module)>);

impl<'a> Crate<'a> {
    fn read(root: &'a Source, sources: &'a [Source]) -> Self {
        let files: BTreeMap<&Path, &Source> = sources
            .iter()
            .filter(|source| source.is_rust())
            .map(|source| (source.path.as_path(), source))
            .collect();
        let mut modules = BTreeMap::new();
        let mut ahead = vec![(Vec::new(), root.path.parent().unwrap_or(Path::new("")).to_owned(), root)];
        while let Some((path, dir, source)) = ahead.pop() {
            let mut inside = vec![(path, dir, Module::read(&source.text))];
            while let Some((path, dir, mut module)) = inside.pop() {
                let below = |name: &str| path.iter().cloned().chain([name.to_owned()]).collect::<Vec<_>>();
                for name in &module.files {
                    let at = [dir.join(format!("{name}.rs")), dir.join(name).join("mod.rs")];
                    if let Some(file) = at.iter().find_map(|at| files.get(at.as_path())) {
                        ahead.push((below(name), dir.join(name), *file));
                    }
                }
                for (name, inner) in std::mem::take(&mut module.inner) {
                    inside.push((below(&name), dir.join(&name), inner));
                }
                modules.insert(path, (source.path.as_path(), module));
            }
        }
        Self(modules)
    }

    fn imports(&self) -> Graph<'a> {
        let mut graph = Graph::new();
        for (at, (file, module)) in &self.0 {
            let mut import = |found: Option<(&'a Path, String)>| {
                if let Some((other, name)) = found.filter(|(other, _)| other != file) {
                    graph.entry(file).or_default().entry(other).or_default().insert(name);
                }
            };
            for one in &module.uses {
                let passes_on = one.is_public && self.is_below(at, &one.path);
                if passes_on {
                    continue;
                }
                if one.name == "*" {
                    let from = self.resolve(at, &one.path, 0);
                    import(from.and_then(|from| from.module).map(|from| (self.0[&from].0, "*".to_owned())));
                } else {
                    import(self.item(at, &one.path));
                }
            }
            module.paths.iter().for_each(|path| import(self.item(at, path)));
        }
        graph
    }

    /// Whether a path leads into a module that the one at `at` contains.
    fn is_below(&self, at: &[String], path: &[String]) -> bool {
        let path = path.strip_prefix(&["self".to_owned()][..]).unwrap_or(path);
        path.first().is_some_and(|first| self.0.contains_key(&[at, std::slice::from_ref(first)].concat()))
    }

    /// The file that defines what a path names, if that is no module, and its name.
    fn item(&self, at: &[String], path: &[String]) -> Option<(&'a Path, String)> {
        let found = self.resolve(at, path, 0)?;
        found.item.map(|item| (found.file, item))
    }

    /// Follows a path from the module at `at`.
    fn resolve(&self, at: &[String], path: &[String], passed_on: usize) -> Option<Found<'a>> {
        if passed_on > PASSED_ON {
            return None;
        }
        let mut at = at.to_vec();
        for (index, name) in path.iter().enumerate() {
            let rest = &path[index + 1..];
            match name.as_str() {
                "crate" if index == 0 => at.clear(),
                "self" if index == 0 => {}
                "super" => drop(at.pop()?),
                _ => {
                    let below = [&at[..], std::slice::from_ref(name)].concat();
                    if self.0.contains_key(&below) {
                        at = below;
                        continue;
                    }
                    let (file, module) = &self.0[&at];
                    if module.items.contains(name) {
                        return Some(Found { file, module: None, item: Some(name.clone()) });
                    }
                    let follow = |one: &reader::Use, rest: &[String]| {
                        let further = [&one.path, rest].concat();
                        self.resolve(&at, &further, passed_on + 1)
                    };
                    let named =
                        module.uses.iter().filter(|one| one.name == *name && one.path[..] != path[..=index]);
                    let named = named.filter_map(|one| follow(one, rest)).next();
                    let all = || {
                        let all = module.uses.iter().filter(|one| one.name == "*");
                        all.filter_map(|one| follow(one, &path[index..])).next()
                    };
                    return named.or_else(all);
                }
            }
        }
        Some(Found { file: self.0.get(&at)?.0, module: Some(at), item: None })
    }
}

/// What a path leads to: a module, or an item of one.
struct Found<'a> {
    file: &'a Path,
    module: Option<Vec<String>>,
    item: Option<String>,
}

/// Sets of files that all reach each other.
fn circles<'a>(graph: &Graph<'a>) -> Vec<Vec<&'a Path>> {
    let reaches = |from: &'a Path| {
        let mut reached = BTreeSet::new();
        let mut ahead = vec![from];
        while let Some(file) = ahead.pop() {
            for &other in graph.get(file).into_iter().flat_map(BTreeMap::keys) {
                if reached.insert(other) {
                    ahead.push(other);
                }
            }
        }
        reached
    };
    let reached: BTreeMap<&Path, BTreeSet<&Path>> = graph.keys().map(|&file| (file, reaches(file))).collect();
    let mut circles: BTreeSet<Vec<&Path>> = BTreeSet::new();
    for (file, others) in &reached {
        let back = |other: &&Path| reached.get(other).is_some_and(|others| others.contains(file));
        let circle: Vec<&Path> = others.iter().copied().filter(back).collect();
        if circle.len() > 1 {
            circles.insert(circle);
        }
    }
    circles.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(path: &str, text: &str) -> Source {
        Source { path: path.into(), text: text.to_owned() }
    }

    fn circles_of(sources: &[Source]) -> Vec<Vec<String>> {
        let graph = Crate::read(&sources[0], sources).imports();
        let name = |path: &&Path| path.display().to_string();
        circles(&graph).iter().map(|circle| circle.iter().map(name).collect()).collect()
    }

    #[test]
    fn names_are_followed_to_the_files_that_define_them() {
        let sources = [
            source("crates/a/src/lib.rs", "mod one;\nmod two;\npub use one::first;"),
            source("crates/a/src/one/mod.rs", "mod part;\npub(crate) use part::first;"),
            source("crates/a/src/one/part.rs", "use crate::two;\npub(crate) fn first() { two::second() }"),
            source("crates/a/src/two.rs", "use crate::one::first as f;\npub(crate) fn second() { f() }"),
        ];
        assert_eq!(circles_of(&sources), [["crates/a/src/one/part.rs", "crates/a/src/two.rs"]]);
    }

    #[test]
    fn what_is_passed_on_and_what_tests_name_is_no_import() {
        let sources = [
            source("crates/a/src/lib.rs", "mod one;\npub use one::first;\nconst TOP: u8 = 0;"),
            source(
                "crates/a/src/one.rs",
                "fn first() -> u8 { crate::TOP }\n#[cfg(test)]\nmod tests { use crate::TOP; }",
            ),
        ];
        assert_eq!(circles_of(&sources), Vec::<Vec<String>>::new());
    }

    #[test]
    fn a_circle_of_more_than_a_handful_of_files_is_drawn() {
        let names = ["a", "b", "c", "d", "e", "f", "g"];
        let modules: String = names.iter().map(|name| format!("mod {name};\n")).collect();
        let mut sources = vec![source("crates/x/src/lib.rs", &modules)];
        for (name, next) in names.iter().zip(names.iter().cycle().skip(1)) {
            let text = format!("pub(super) fn f() {{ super::{next}::f() }}");
            sources.push(source(&format!("crates/x/src/{name}.rs"), &text));
        }
        let found = findings(&sources);
        assert_eq!(found.len(), 1);
        assert!(found[0].contains("7 files"), "{found:?}");
        assert!(found[0].contains("crates/x/src/g.rs ──► crates/x/src/a.rs: f"), "{found:?}");
        sources[7] = source("crates/x/src/g.rs", "pub(super) fn f() {}");
        assert_eq!(findings(&sources), Vec::<String>::new());
    }
}

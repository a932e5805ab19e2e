//! Layers in memory, and a plain model that applies them one after the other.

use std::collections::BTreeMap;

use super::{Layer, LayerSource, Layered};
use crate::testing::{entry, file, memory, node};
use crate::{Entry, EntryKind, EntryPath, FillOptions, Piece, Source, SourceError, fill};

/// A layer; the content of a file is its path, as often as it fits.
#[derive(Clone)]
struct InMemory(Vec<Entry>);

struct Reading {
    entries: std::vec::IntoIter<Entry>,
    content: Vec<u8>,
    at: usize,
}

impl Layer for InMemory {
    fn open(&self, _verified: bool) -> Result<Box<dyn LayerSource>, SourceError> {
        Ok(Box::new(Reading { entries: self.0.clone().into_iter(), content: Vec::new(), at: 0 }))
    }
}

impl Source for Reading {
    fn name(&self) -> &str {
        "layer"
    }

    fn next_entry(&mut self) -> Result<Option<Entry>, SourceError> {
        let entry = self.entries.next();
        if let Some(Entry { kind: EntryKind::Regular(content), metadata, .. }) = &entry {
            self.content = vec![metadata.modified.seconds as u8; content.size_bytes as usize];
            self.at = 0;
        }
        Ok(entry)
    }

    fn read_content(&mut self, buf: &mut [u8]) -> Result<Option<Piece>, SourceError> {
        let len = buf.len().min(self.content.len() - self.at).min(3);
        if len == 0 {
            return Ok(None);
        }
        buf[..len].copy_from_slice(&self.content[self.at..self.at + len]);
        self.at += len;
        Ok(Some(Piece { offset: (self.at - len) as u64, len }))
    }

    fn rewind(&mut self) -> Result<(), SourceError> {
        unreachable!("a layer is opened again instead")
    }
}

impl LayerSource for Reading {
    fn finish(&mut self) -> Result<(), SourceError> {
        Ok(())
    }
}

fn dir(path: &str) -> Entry {
    entry(path, EntryKind::Directory)
}

fn link(path: &str, target: &str) -> Entry {
    entry(path, EntryKind::HardLink(EntryPath::new(target.as_bytes()).unwrap()))
}

fn symlink(path: &str, target: &str) -> Entry {
    entry(path, EntryKind::Symlink(target.as_bytes().into()))
}

fn layered(layers: &[Vec<Entry>]) -> Layered {
    let layers = layers.iter().map(|entries| Box::new(InMemory(entries.clone())) as Box<dyn Layer>);
    Layered::new("image".into(), layers.collect()).unwrap()
}

/// Everything that is given, as text: a sign for what it is, its path, and the time that tells entries apart.
fn given(source: &mut Layered) -> Result<Vec<String>, String> {
    let mut given = Vec::new();
    while let Some(entry) = source.next_entry().map_err(|error| error.to_string())? {
        let path = format!("{:?}", entry.path);
        let time = entry.metadata.modified.seconds;
        given.push(match &entry.kind {
            EntryKind::Directory => format!("d {path} {time}"),
            EntryKind::Regular(_) => format!("- {path} {time}"),
            EntryKind::HardLink(target) => format!("h {path} {target:?}"),
            _ => format!("? {path} {time}"),
        });
    }
    Ok(given)
}

/// The paths that are given, in their order.
fn paths(layers: &[Vec<Entry>]) -> Vec<String> {
    let mut source = layered(layers);
    let mut paths = Vec::new();
    while let Some(entry) = source.next_entry().unwrap() {
        paths.push(String::from_utf8(entry.path.as_bytes().to_vec()).unwrap());
    }
    paths
}

fn refused(layers: &[Vec<Entry>]) -> String {
    given(&mut layered(layers)).unwrap_err()
}

#[test]
fn whiteouts_hide_lower_layers_only() {
    let lower = vec![dir("a"), file("a/old", 1), file("a/both", 1), dir("b"), file("b/x", 1), file("c", 1)];
    let upper = vec![
        dir("a"),
        file("a/new", 1),
        file("a/both", 2),
        file("a/.wh.both", 0),
        file("a/.wh.new", 0),
        file("a/.wh..wh..opq", 0),
        file(".wh.b", 0),
        file(".wh.never", 0),
        file("none/.wh.x", 0),
    ];
    assert_eq!(paths(&[lower.clone(), upper]), ["c", "a", "a/new", "a/both"]);
    // Made anew by the layer that removes it, before and after.
    for upper in [vec![file(".wh.b", 0), file("b/y", 1)], vec![file("b/y", 1), file(".wh.b", 0)]] {
        assert_eq!(paths(&[lower.clone(), upper]), ["a", "a/old", "a/both", "c", "b/y"]);
    }
}

#[test]
fn an_opaque_root_hides_everything_below() {
    let lower = vec![dir(""), dir("a"), file("a/b", 1)];
    assert_eq!(paths(&[lower, vec![file("c", 1), file(".wh..wh..opq", 0)]]), ["", "c"]);
}

#[test]
fn a_directory_has_the_metadata_of_the_last_layer_and_comes_first() {
    let mut again = dir("a");
    again.metadata.uid = 77;
    let layers = [vec![dir("a"), file("a/b", 1)], vec![again.clone()]];
    let mut source = layered(&layers);
    assert_eq!(source.next_entry().unwrap(), Some(again.clone()));
    assert_eq!(given(&mut source).unwrap(), ["- /a/b 1003"]);
    source.rewind().unwrap();
    assert_eq!(source.next_entry().unwrap(), Some(again));
}

#[test]
fn kinds_are_replaced() {
    let lower = vec![dir("a"), file("a/b", 1), file("f", 1), symlink("s", "a")];
    let upper = vec![file("a", 2), file("f/below", 1), dir("s"), file("s/x", 1)];
    assert_eq!(paths(&[lower, upper]), ["a", "f/below", "s", "s/x"]);
}

#[test]
fn links_keep_what_they_were_made_of() {
    let lower = vec![file("a", 3), link("b", "a"), link("c", "b")];
    let upper = vec![file("a", 5), link("a2", "a"), file(".wh.b", 0)];
    let mut source = layered(&[lower.clone(), upper.clone()]);
    assert_eq!(given(&mut source).unwrap(), ["- /c 1001", "- /a 1001", "h /a2 /a"]);
    let vfs = memory();
    fill(&vfs, &mut [Box::new(layered(&[lower, upper]))], &FillOptions::default()).unwrap();
    assert_eq!(node(&vfs, "/c").attr().size_bytes, 3);
    let (a, a2) = (node(&vfs, "/a"), node(&vfs, "/a2"));
    assert_eq!((a.attr().size_bytes, a.attr().links, a.ino()), (5, 2, a2.ino()));
}

#[test]
fn a_link_to_a_lower_layer_comes_after_its_directory() {
    let lower = vec![file("a", 3)];
    let upper = vec![dir("d"), link("d/b", "a"), file(".wh.a", 0)];
    let mut source = layered(&[lower, upper]);
    assert_eq!(given(&mut source).unwrap(), ["d /d 1001", "- /d/b 1001"]);
}

#[test]
fn links_that_replace_what_they_lead_to() {
    let lower = vec![dir("d"), file("d/a", 3), file("d/b", 3)];
    let mut source = layered(&[lower.clone(), vec![link("d", "d/a")]]);
    assert_eq!(given(&mut source).unwrap(), ["- /d 1003"]);
    let mut source = layered(&[lower, vec![link("d/a", "d/a")]]);
    assert_eq!(given(&mut source).unwrap(), ["d /d 1001", "- /d/a 1003", "- /d/b 1003"]);
}

#[test]
fn symbolic_links_of_lower_layers_are_followed_within_the_tree() {
    let lower = vec![
        dir("usr"),
        dir("usr/bin"),
        symlink("bin", "usr/bin"),
        symlink("up", "../../../etc"),
        symlink("l", "l"),
    ];
    let upper = vec![file("bin/sh", 1), link("sh", "bin/sh"), file("up/passwd", 1)];
    assert_eq!(
        refused(&[lower.clone(), vec![file("l/x", 1)]]),
        "layer: l/x: there are too many symbolic links on the way to it"
    );
    let found = paths(&[lower, upper]);
    assert_eq!(found[5..], ["usr/bin/sh", "sh", "etc/passwd"]);
}

#[test]
fn what_cannot_be_applied_is_refused() {
    for (upper, why) in [
        (vec![file("a/.wh.", 0)], "whiteout of no name"),
        (vec![file("a/.wh...", 0)], "leads elsewhere"),
        (vec![file("a/.wh.b/c", 0)], "below a whiteout"),
        (vec![file("", 0)], "the root can only be a directory"),
        (vec![link("a", "none")], "/none, which is not there"),
        (vec![dir("d"), link("a", "d")], "/d, which is a directory"),
        (vec![link("a", "x/y")], "/x/y, which is not there"),
        (vec![symlink("a", &"x".repeat(5000))], "too long"),
    ] {
        let error = refused(&[vec![], upper]);
        assert!(error.contains(why), "{error}");
    }
}

/// What the model has at a path: a directory with the time of its entry, or a file by the number of its entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Known {
    Directory(Option<i64>),
    File(i64),
}

type Model = BTreeMap<String, Known>;

fn below(path: &str) -> impl Fn(&String) -> bool {
    let top = format!("{path}/");
    move |other| other.starts_with(&top)
}

/// The directories above a path, made where they are missing or something else.
fn make_above(model: &mut Model, path: &str) {
    for (at, _) in path.match_indices('/') {
        let above = model.entry(path[..at].to_owned()).or_insert(Known::Directory(None));
        if let Known::File(_) = above {
            *above = Known::Directory(None);
        }
    }
}

/// Applies a layer: what it removes first, then what it adds. `None` if a link leads to nothing by then.
fn apply(model: &mut Model, layer: &[Entry]) -> Option<()> {
    let text = |entry: &Entry| String::from_utf8(entry.path.as_bytes().to_vec()).unwrap();
    let (marks, rest): (Vec<&Entry>, Vec<&Entry>) =
        layer.iter().partition(|entry| text(entry).contains(".wh."));
    for path in marks.into_iter().map(text) {
        match path.strip_suffix(".wh..wh..opq") {
            Some(dir) => {
                let dir = dir.trim_end_matches('/');
                let is_below = below(dir);
                model.retain(|other, _| !(dir.is_empty() || is_below(other)));
            }
            None => {
                let gone = path.replace(".wh.", "");
                let is_below = below(&gone);
                model.retain(|other, _| *other != gone && !is_below(other));
            }
        }
    }
    for entry in rest {
        let path = text(entry);
        let time = entry.metadata.modified.seconds;
        make_above(model, &path);
        let there = model.get(&path).copied();
        let new = match &entry.kind {
            EntryKind::Directory => Known::Directory(Some(time)),
            EntryKind::HardLink(target) => {
                let target = std::str::from_utf8(target.as_bytes()).unwrap();
                match model.get(target)? {
                    Known::Directory(_) => return None,
                    file => *file,
                }
            }
            _ => Known::File(time),
        };
        if !matches!((there, new), (Some(Known::Directory(_)), Known::Directory(_))) {
            let is_below = below(&path);
            model.retain(|other, _| !is_below(other));
        }
        model.insert(path, new);
    }
    Some(())
}

/// What a source gives, in the model's form.
fn given_model(source: &mut Layered) -> Model {
    let mut model = Model::new();
    while let Some(entry) = source.next_entry().unwrap() {
        let path = String::from_utf8(entry.path.as_bytes().to_vec()).unwrap();
        make_above(&mut model, &path);
        let known = match entry.kind {
            EntryKind::Directory => {
                let is_new = model.insert(path.clone(), Known::Directory(None)).is_none();
                assert!(is_new, "{path} comes after what is in it, or twice");
                Known::Directory(Some(entry.metadata.modified.seconds))
            }
            EntryKind::HardLink(target) => model[std::str::from_utf8(target.as_bytes()).unwrap()],
            _ => Known::File(entry.metadata.modified.seconds),
        };
        model.insert(path, known);
    }
    model
}

#[test]
fn random_layers_are_as_if_applied_one_after_the_other() {
    let mut state = 7_u64;
    let mut next = |below: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % below
    };
    let mut compared = 0;
    for case in 0..4000 {
        let mut time = 0;
        let path = |next: &mut dyn FnMut(usize) -> usize| {
            let names: Vec<&str> = (0..=next(3)).map(|_| ["a", "b", "c"][next(3)]).collect();
            names.join("/")
        };
        let layers: Vec<Vec<Entry>> = (0..=next(4))
            .map(|_| {
                (0..next(8))
                    .map(|_| {
                        time += 1;
                        let at = path(&mut next);
                        let (dir_of, name) =
                            at.rsplit_once('/').map_or(("", &*at), |(dir, name)| (dir, name));
                        let marked = |name: &str| format!("{dir_of}/{name}");
                        let mut entry = match next(7) {
                            0 | 1 => dir(&at),
                            2 | 3 => file(&at, 1),
                            4 => link(&at, &path(&mut next)),
                            5 => file(&marked(&format!(".wh.{name}")), 0),
                            _ => file(&marked(".wh..wh..opq"), 0),
                        };
                        entry.metadata.modified.seconds = time;
                        entry
                    })
                    .collect()
            })
            .collect();
        let mut model = Model::new();
        if layers.iter().try_for_each(|layer| apply(&mut model, layer)).is_none() {
            continue;
        }
        compared += 1;
        let mut source = layered(&layers);
        // A directory that is needed for nothing any more is not given.
        let needed: Vec<String> = model
            .iter()
            .filter(|(_, known)| **known != Known::Directory(None))
            .map(|(path, _)| path.clone())
            .collect();
        model.retain(|path, known| *known != Known::Directory(None) || needed.iter().any(below(path)));
        let given = given_model(&mut source);
        assert_eq!(given, model, "case {case}: {layers:#?}");
        source.rewind().unwrap();
        assert_eq!(given_model(&mut source), given, "case {case}, again");
    }
    assert!(compared > 1000, "{compared}");
}

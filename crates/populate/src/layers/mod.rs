//! Layers, one above the other, as one source: what is left when each was applied to those below it.
//!
//! | module    | holds                                                        |
//! | --------- | ------------------------------------------------------------ |
//! | this one  | the two passes over the layers, and the source               |
//! | `mark`    | names that say that something is gone                        |
//! | `tree`    | the merged tree                                              |
//! | `resolve` | paths, followed through links of the tree                    |
//! | `apply`   | one entry, applied to the tree                               |
//!
//! The first pass reads the entries of all layers, and the bytes too, for their digests. It leaves a tree whose names know
//! which entry made them. The second pass gives those entries, in their order, with the path that they have in the end; a
//! layer of which nothing is left is not read again. So no byte is given that a later layer replaces, and what is wrong
//! with a layer is known before the first entry is given.
//!
//! Whiteouts hide what lower layers have, never what their own layer has, wherever in it they stand. A directory that is
//! needed for what is in it, and that no entry has made, is not given.

mod apply;
mod mark;
mod resolve;
#[cfg(test)]
mod tests;
mod tree;

use std::collections::VecDeque;

use self::tree::{Id, Made, ROOT, Tree};
use crate::{Entry, EntryKind, Piece, Source, SourceError, SourceErrorKind};

/// Most layers.
const LAYERS_MAX: usize = 4096;

/// A layer, as often as it is read.
pub(crate) trait Layer: Send {
    /// Its entries, from the first one on. `verified`: what is read is compared with the digests of the layer.
    fn open(&self, verified: bool) -> Result<Box<dyn LayerSource>, SourceError>;
}

/// The entries of a layer.
pub(crate) trait LayerSource: Source {
    /// After the last entry: reads what is behind it, and tells whether all of it was as it should be.
    fn finish(&mut self) -> Result<(), SourceError>;
}

/// Layers as one source.
pub(crate) struct Layered {
    name: String,
    layers: Vec<Box<dyn Layer>>,
    /// After the first pass.
    merged: Option<Merged>,
}

/// What is left, and how far it was given.
struct Merged {
    tree: Tree,
    /// For each layer the entries that are left, with their nodes.
    made: Vec<Vec<(u32, Id)>>,
    /// The layer that is read, and the first of its entries that was not given.
    layer: usize,
    next: usize,
    open: Option<Open>,
    /// Entries to be given before anything else.
    ahead: VecDeque<Entry>,
    /// Names of the file whose content is being given.
    links: Vec<Entry>,
}

/// The layer that is read.
struct Open {
    source: Box<dyn LayerSource>,
    /// The number of its next entry.
    number: u32,
}

impl Layered {
    /// Layers from the lowest up, known to the user as `name`.
    pub(crate) fn new(name: String, layers: Vec<Box<dyn Layer>>) -> Result<Self, SourceError> {
        if layers.len() > LAYERS_MAX {
            let what = format!("it has {} layers, more than {LAYERS_MAX}", layers.len());
            return Err(SourceError::new(name, SourceErrorKind::TooLarge(what)));
        }
        Ok(Self { name, layers, merged: None })
    }

    /// The first pass.
    fn merge(&self) -> Result<Merged, SourceError> {
        let mut tree = Tree::new();
        for (layer, of) in (0..).zip(&self.layers) {
            let mut source = of.open(true)?;
            for number in 0.. {
                let Some(entry) = source.next_entry()? else { break };
                tree.apply(Made { layer, number }, &entry)
                    .map_err(|kind| SourceError::new(source.name(), kind).at_member(entry.path.as_bytes()))?;
            }
            source.finish()?;
        }
        let made = tree.made(self.layers.len());
        Ok(Merged::new(tree, made))
    }
}

impl Merged {
    fn new(tree: Tree, made: Vec<Vec<(u32, Id)>>) -> Self {
        Self { tree, made, layer: 0, next: 0, open: None, ahead: VecDeque::new(), links: Vec::new() }
    }

    fn rewind(&mut self) {
        (self.layer, self.next, self.open) = (0, 0, None);
        self.ahead.clear();
        self.links.clear();
        self.tree.forget_given();
    }

    /// The next entry that is left.
    fn next_entry(&mut self, layers: &[Box<dyn Layer>]) -> Result<Option<Entry>, SourceError> {
        self.ahead.extend(self.links.drain(..));
        loop {
            if let Some(entry) = self.ahead.pop_front() {
                return Ok(Some(entry));
            }
            let Some(of_layer) = self.made.get(self.layer) else { return Ok(None) };
            let Some(&(number, id)) = of_layer.get(self.next) else {
                (self.layer, self.next, self.open) = (self.layer + 1, 0, None);
                continue;
            };
            if self.tree.directory(id).is_some() {
                self.next += 1;
                self.give_directories(id);
                continue;
            }
            let names = of_layer[self.next..].iter().take_while(|(same, _)| *same == number).count();
            let names = self.next..self.next + names;
            self.next = names.end;
            let entry = self.read_entry(layers, number)?;
            self.give_file(entry, names);
        }
    }

    /// Gives a directory, after those above it, unless they were given.
    fn give_directories(&mut self, id: Id) {
        let mut above = Vec::new();
        let mut at = id;
        while let Some(directory) = self.tree.directory(at).filter(|directory| !directory.given) {
            directory.given = true;
            if directory.made != Made::BY_NONE {
                above.push((at, directory.metadata.clone()));
            }
            if at == ROOT {
                break;
            }
            at = self.tree.parent(at);
        }
        for (id, metadata) in above.into_iter().rev() {
            let path = self.tree.path(id);
            self.ahead.push_back(Entry { path, kind: EntryKind::Directory, metadata });
        }
    }

    /// Gives a file by the first of its names, and then the others.
    fn give_file(&mut self, mut entry: Entry, names: std::ops::Range<usize>) {
        let names = self.made.get(self.layer).and_then(|made| made.get(names)).unwrap_or_default().to_vec();
        let mut first = None;
        for (_, id) in names {
            let above = self.tree.parent(id);
            self.give_directories(above);
            let path = self.tree.path(id);
            match &first {
                None => first = Some(path),
                Some(first) => {
                    let kind = EntryKind::HardLink(first.clone());
                    self.links.push(Entry { path, kind, metadata: entry.metadata.clone() });
                }
            }
        }
        if let Some(path) = first {
            entry.path = path;
            self.ahead.push_back(entry);
        }
    }

    /// The entry of this number of the layer that is read.
    fn read_entry(&mut self, layers: &[Box<dyn Layer>], number: u32) -> Result<Entry, SourceError> {
        let open = match &mut self.open {
            Some(open) => open,
            closed => {
                let Some(layer) = layers.get(self.layer) else { return Err(changed("its layers")) };
                closed.insert(Open { source: layer.open(false)?, number: 0 })
            }
        };
        loop {
            let Some(entry) = open.source.next_entry()? else { return Err(changed(open.source.name())) };
            let at = open.number;
            open.number += 1;
            if at == number {
                return Ok(entry);
            }
        }
    }
}

fn changed(name: &str) -> SourceError {
    SourceError::new(name, SourceErrorKind::Malformed("it was changed while it was read".into()))
}

impl Source for Layered {
    fn name(&self) -> &str {
        &self.name
    }

    fn next_entry(&mut self) -> Result<Option<Entry>, SourceError> {
        let merged = match &mut self.merged {
            Some(merged) => merged,
            None => {
                let merged = self.merge()?;
                self.merged.insert(merged)
            }
        };
        merged.next_entry(&self.layers)
    }

    fn read_content(&mut self, buf: &mut [u8]) -> Result<Option<Piece>, SourceError> {
        match self.merged.as_mut().and_then(|merged| merged.open.as_mut()) {
            Some(open) => open.source.read_content(buf),
            None => Ok(None),
        }
    }

    fn rewind(&mut self) -> Result<(), SourceError> {
        if let Some(merged) = &mut self.merged {
            merged.rewind();
        }
        Ok(())
    }
}

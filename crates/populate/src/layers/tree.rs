//! The merged tree of layers, in memory: 32 bytes for each name, and the name's own bytes.
//!
//! A node is one name. What it names is the entry that made it, by layer and number, so hard links are nodes with the
//! same [`Made`]. Directories keep their metadata, because a later layer may change it, and a hard link may come to lie in
//! a directory that a later layer makes.
//!
//! Invariants: the children of a directory form a list in both directions; `names` has every node but the root exactly
//! once, by its parent and name; a freed node is in neither.

use std::hash::BuildHasher;

use foldhash::fast::RandomState;
use hashbrown::HashTable;

use crate::{EntryPath, Metadata};

/// A node's number.
pub(super) type Id = u32;

/// No node.
pub(super) const NONE: Id = u32::MAX;
/// The root.
pub(super) const ROOT: Id = 0;

/// Most names that layers may have.
const NODES_MAX: usize = 20_000_000;
/// Most bytes of names and of links' targets together.
const TEXT_MAX_BYTES: usize = 1 << 30;
/// Most bytes of directories' extended attributes together.
const XATTRS_MAX_BYTES: u64 = 64 << 20;

/// The tree would take too much memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Full;

/// The entry that made something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Made {
    /// Which layer.
    pub(super) layer: u16,
    /// Which entry of it, from 0 on.
    pub(super) number: u32,
}

impl Made {
    /// By no entry: a directory that was needed for what is in it.
    pub(super) const BY_NONE: Self = Self { layer: u16::MAX, number: u32::MAX };
}

/// What a name stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// With the number of its record.
    Directory(u32),
    /// With the place of its target.
    Symlink(u32),
    Other,
}

/// A name.
#[derive(Clone, Copy, Debug)]
struct Node {
    parent: Id,
    /// Where its text is.
    name: u32,
    next: Id,
    previous: Id,
    /// The first child of a directory; for a symbolic link the place of its target.
    below: u32,
    /// The number of a directory's record; for anything else that of the entry that made it.
    number: u32,
    layer: u16,
    /// The layer that put the name here, or changed the directory's metadata.
    placed: u16,
    /// The last layer under which a directory is known to have nothing of lower ones.
    clean: u16,
    tag: Tag,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tag {
    Directory,
    Symlink,
    Other,
}

/// A directory.
#[derive(Clone, Debug)]
pub(super) struct Directory {
    /// The entry from which it has its metadata.
    pub(super) made: Made,
    pub(super) metadata: Metadata,
    /// Whether it was given, while entries are given.
    pub(super) given: bool,
}

impl Directory {
    fn needed() -> Self {
        Self { made: Made::BY_NONE, metadata: Metadata::default(), given: false }
    }
}

/// The tree.
pub(super) struct Tree {
    nodes: Vec<Node>,
    /// Freed nodes.
    free: Vec<Id>,
    names: HashTable<Id>,
    hasher: RandomState,
    /// Names and targets, each behind its length in two bytes.
    text: Vec<u8>,
    directories: Vec<Directory>,
    free_directories: Vec<u32>,
    xattr_bytes: u64,
}

impl Tree {
    /// A root that no entry has made.
    pub(super) fn new() -> Self {
        let root = Node {
            parent: NONE,
            name: 0,
            next: NONE,
            previous: NONE,
            below: NONE,
            number: 0,
            layer: 0,
            placed: 0,
            clean: 0,
            tag: Tag::Directory,
        };
        Self {
            nodes: vec![root],
            free: Vec::new(),
            names: HashTable::new(),
            hasher: RandomState::default(),
            text: vec![0, 0],
            directories: vec![Directory::needed()],
            free_directories: Vec::new(),
            xattr_bytes: 0,
        }
    }

    fn text_at(&self, at: u32) -> &[u8] {
        let at = at as usize;
        let len = usize::from(u16::from_le_bytes([self.text[at], self.text[at + 1]]));
        &self.text[at + 2..at + 2 + len]
    }

    /// The place of new text.
    fn put_text(&mut self, text: &[u8]) -> Result<u32, Full> {
        let len = u16::try_from(text.len()).map_err(|_| Full)?;
        if self.text.len() + text.len() > TEXT_MAX_BYTES {
            return Err(Full);
        }
        let at = self.text.len() as u32;
        self.text.extend_from_slice(&len.to_le_bytes());
        self.text.extend_from_slice(text);
        Ok(at)
    }

    fn hash(&self, parent: Id, name: &[u8]) -> u64 {
        self.hasher.hash_one((parent, name))
    }

    /// What has this name in a directory.
    pub(super) fn find(&self, parent: Id, name: &[u8]) -> Option<Id> {
        let is_it = |&id: &Id| {
            let node = &self.nodes[id as usize];
            node.parent == parent && self.text_at(node.name) == name
        };
        self.names.find(self.hash(parent, name), is_it).copied()
    }

    /// Adds a name that is not there: anything but a directory.
    pub(super) fn add(
        &mut self,
        parent: Id,
        name: &[u8],
        made: Made,
        target: Option<&[u8]>,
        placed: u16,
    ) -> Result<Id, Full> {
        let (tag, below) = match target {
            Some(target) => (Tag::Symlink, self.put_text(target)?),
            None => (Tag::Other, NONE),
        };
        let node = self.node(parent, name, tag, below, placed)?;
        self.insert(Node { number: made.number, layer: made.layer, ..node })
    }

    /// Adds another name of what `id` names, which is no directory.
    pub(super) fn add_link(&mut self, parent: Id, name: &[u8], id: Id, placed: u16) -> Result<Id, Full> {
        let Node { tag, below, number, layer, .. } = self.nodes[id as usize];
        let node = self.node(parent, name, tag, below, placed)?;
        self.insert(Node { number, layer, ..node })
    }

    /// Adds a directory; without an entry one that is needed for what is in it.
    pub(super) fn add_directory(
        &mut self,
        parent: Id,
        name: &[u8],
        placed: u16,
        entry: Option<(Made, &Metadata)>,
    ) -> Result<Id, Full> {
        let node = self.node(parent, name, Tag::Directory, NONE, placed)?;
        let directory = match entry {
            Some((made, metadata)) => self.record(made, metadata)?,
            None => Directory::needed(),
        };
        let number = match self.free_directories.pop() {
            Some(number) => {
                self.directories[number as usize] = directory;
                number
            }
            None => {
                self.directories.push(directory);
                self.directories.len() as u32 - 1
            }
        };
        self.insert(Node { number, clean: placed, ..node })
    }

    fn record(&mut self, made: Made, metadata: &Metadata) -> Result<Directory, Full> {
        self.xattr_bytes += xattr_bytes(metadata);
        if self.xattr_bytes > XATTRS_MAX_BYTES {
            return Err(Full);
        }
        Ok(Directory { made, metadata: metadata.clone(), given: false })
    }

    /// Gives a directory the metadata of an entry.
    pub(super) fn set_directory(&mut self, id: Id, made: Made, metadata: &Metadata) -> Result<(), Full> {
        let directory = self.record(made, metadata)?;
        let node = &mut self.nodes[id as usize];
        node.placed = made.layer;
        let number = node.number as usize;
        let before = std::mem::replace(&mut self.directories[number], directory);
        self.xattr_bytes -= xattr_bytes(&before.metadata);
        Ok(())
    }

    fn node(&mut self, parent: Id, name: &[u8], tag: Tag, below: u32, placed: u16) -> Result<Node, Full> {
        let name = self.put_text(name)?;
        let next = self.nodes[parent as usize].below;
        Ok(Node { parent, name, next, previous: NONE, below, number: 0, layer: 0, placed, clean: 0, tag })
    }

    fn insert(&mut self, node: Node) -> Result<Id, Full> {
        let id = match self.free.pop() {
            Some(id) => {
                self.nodes[id as usize] = node;
                id
            }
            None if self.nodes.len() >= NODES_MAX => return Err(Full),
            None => {
                self.nodes.push(node);
                self.nodes.len() as Id - 1
            }
        };
        if node.next != NONE {
            self.nodes[node.next as usize].previous = id;
        }
        self.nodes[node.parent as usize].below = id;
        let hash = self.hash(node.parent, self.text_at(node.name));
        let Self { nodes, names, hasher, text, .. } = self;
        let rehash = |&id: &Id| {
            let node = &nodes[id as usize];
            let at = node.name as usize;
            let len = usize::from(u16::from_le_bytes([text[at], text[at + 1]]));
            hasher.hash_one((node.parent, &text[at + 2..at + 2 + len]))
        };
        names.insert_unique(hash, id, rehash);
        Ok(id)
    }

    /// Takes a name out of its directory; what is below it must be gone.
    fn free(&mut self, id: Id) {
        let node = self.nodes[id as usize];
        let hash = self.hash(node.parent, self.text_at(node.name));
        if let Ok(place) = self.names.find_entry(hash, |&at| at == id) {
            place.remove();
        }
        match node.previous {
            NONE => self.nodes[node.parent as usize].below = node.next,
            previous => self.nodes[previous as usize].next = node.next,
        }
        if node.next != NONE {
            self.nodes[node.next as usize].previous = node.previous;
        }
        if node.tag == Tag::Directory {
            let directory =
                std::mem::replace(&mut self.directories[node.number as usize], Directory::needed());
            self.xattr_bytes -= xattr_bytes(&directory.metadata);
            self.free_directories.push(node.number);
        }
        self.free.push(id);
    }

    /// The children of a directory.
    fn children(&self, id: Id) -> impl Iterator<Item = Id> {
        let node = &self.nodes[id as usize];
        let first = if node.tag == Tag::Directory { node.below } else { NONE };
        let next = |&id: &Id| Some(self.nodes[id as usize].next).filter(|&id| id != NONE);
        std::iter::successors(Some(first).filter(|&id| id != NONE), next)
    }

    /// A node and what is below it, where `goes_below` says so; every directory before what is in it.
    fn subtree(&self, id: Id, goes_below: impl Fn(&Node) -> bool) -> Vec<Id> {
        let mut found = vec![id];
        let mut at = 0;
        while let Some(&id) = found.get(at) {
            if goes_below(&self.nodes[id as usize]) {
                found.extend(self.children(id));
            }
            at += 1;
        }
        found
    }

    /// Removes a name, and everything below it.
    pub(super) fn remove(&mut self, id: Id) {
        for id in self.subtree(id, |_| true).into_iter().rev() {
            self.free(id);
        }
    }

    /// Removes what layers below this one have put at a name (`with_self`) and below it. A directory that keeps something
    /// of this layer becomes one that no entry has made, unless one of this layer has.
    pub(super) fn remove_lower(&mut self, top: Id, layer: u16, with_self: bool) {
        let below = self.subtree(top, |node| node.tag == Tag::Directory && node.clean != layer);
        for id in below.into_iter().rev() {
            let node = &mut self.nodes[id as usize];
            let is_directory = node.tag == Tag::Directory;
            if is_directory {
                node.clean = layer;
            }
            if node.placed == layer || (id == top && (!with_self || id == ROOT)) {
                continue;
            }
            if is_directory && node.below != NONE {
                node.placed = layer;
                let number = node.number as usize;
                let before = std::mem::replace(&mut self.directories[number], Directory::needed());
                self.xattr_bytes -= xattr_bytes(&before.metadata);
            } else {
                self.free(id);
            }
        }
    }

    /// What a name stands for.
    pub(super) fn kind(&self, id: Id) -> Kind {
        let node = &self.nodes[id as usize];
        match node.tag {
            Tag::Directory => Kind::Directory(node.number),
            Tag::Symlink => Kind::Symlink(node.below),
            Tag::Other => Kind::Other,
        }
    }

    /// What a symbolic link leads to.
    pub(super) fn target(&self, place: u32) -> &[u8] {
        self.text_at(place)
    }

    /// The directory of a name; that of the root is the root.
    pub(super) fn parent(&self, id: Id) -> Id {
        if id == ROOT { ROOT } else { self.nodes[id as usize].parent }
    }

    /// Notes that a layer has put a name where it is already.
    pub(super) fn place(&mut self, id: Id, layer: u16) {
        self.nodes[id as usize].placed = layer;
    }

    /// The directory of a node that is one.
    pub(super) fn directory(&mut self, id: Id) -> Option<&mut Directory> {
        match self.kind(id) {
            Kind::Directory(number) => self.directories.get_mut(number as usize),
            Kind::Symlink(_) | Kind::Other => None,
        }
    }

    /// Notes that no directory was given.
    pub(super) fn forget_given(&mut self) {
        self.directories.iter_mut().for_each(|directory| directory.given = false);
    }

    /// The path of a node.
    pub(super) fn path(&self, id: Id) -> EntryPath {
        let mut above = Vec::new();
        let mut at = id;
        while at != ROOT {
            let node = &self.nodes[at as usize];
            above.push(self.text_at(node.name));
            at = node.parent;
        }
        above.reverse();
        // Names come from paths of entries.
        EntryPath::new(&above.join(&b'/')).unwrap_or_default()
    }

    /// Everything that an entry has made, by layers and in the order of their entries, with its node; nodes of the same
    /// entry are its names.
    pub(super) fn made(&self, layers: usize) -> Vec<Vec<(u32, Id)>> {
        let mut free = vec![false; self.nodes.len()];
        self.free.iter().for_each(|&id| free[id as usize] = true);
        let mut made = vec![Vec::new(); layers];
        for (id, node) in self.nodes.iter().enumerate().filter(|&(id, _)| !free[id]) {
            let Made { layer, number } = match node.tag {
                Tag::Directory => self.directories[node.number as usize].made,
                Tag::Symlink | Tag::Other => Made { layer: node.layer, number: node.number },
            };
            if let Some(of_layer) = made.get_mut(usize::from(layer)) {
                of_layer.push((number, id as Id));
            }
        }
        made.iter_mut().for_each(|of_layer| of_layer.sort_unstable());
        made
    }
}

fn xattr_bytes(metadata: &Metadata) -> u64 {
    metadata.xattrs.iter().map(|xattr| (xattr.name.len() + xattr.value.len() + 32) as u64).sum()
}

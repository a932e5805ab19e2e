//! The simple model: directories as maps, one operation at a time.

use std::collections::BTreeMap;

use crate::{Error, Ino, RenameFlags};

/// A name among the few that are used.
pub(super) type Name = u8;

/// An operation with everything it was given. Directories are named by inode number, since a caller has their handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operation {
    Lookup { dir: Ino, name: Name },
    Create { dir: Ino, name: Name },
    Mkdir { dir: Ino, name: Name },
    Link { node: Ino, dir: Ino, name: Name },
    Unlink { dir: Ino, name: Name },
    Rmdir { dir: Ino, name: Name },
    Rename { from: Ino, name: Name, to: Ino, to_name: Name, flags: RenameFlags },
    List { dir: Ino },
}

/// What an operation answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Done,
    Node(Ino),
    Names(Vec<(Name, Ino)>),
    Refused(Refusal),
}

/// The refusals that POSIX leaves no choice about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    NotFound,
    Exists,
    NotDirectory,
    IsDirectory,
    NotEmpty,
    NotPermitted,
    IntoItself,
}

impl Refusal {
    /// `None` for what no operation of a schedule may answer.
    pub(super) fn of(error: &Error) -> Option<Self> {
        Some(match error {
            Error::NotFound => Self::NotFound,
            Error::Exists => Self::Exists,
            Error::NotDirectory => Self::NotDirectory,
            Error::IsDirectory => Self::IsDirectory,
            Error::NotEmpty => Self::NotEmpty,
            Error::NotPermitted => Self::NotPermitted,
            Error::InvalidArgument(_) => Self::IntoItself,
            _ => return None,
        })
    }
}

/// All objects that have been made, by number.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct State {
    objects: BTreeMap<Ino, Object>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Object {
    File { links: u32 },
    Directory { names: BTreeMap<Name, Ino>, parent: Option<Ino>, removed: bool },
}

impl State {
    /// Directories without names that are never removed.
    pub(super) fn new(tops: &[Ino]) -> Self {
        let top = Object::Directory { names: BTreeMap::new(), parent: None, removed: false };
        Self { objects: tops.iter().map(|&ino| (ino, top.clone())).collect() }
    }

    /// Applies the operation, and returns what its answer must be. `answer` is what the filesystem answered: it has the
    /// numbers of new objects.
    pub(super) fn step(&mut self, operation: &Operation, answer: &Answer) -> Answer {
        let fresh = match answer {
            Answer::Node(ino) => Some(*ino),
            _ => None,
        };
        self.try_step(operation, fresh).unwrap_or_else(Answer::Refused)
    }

    fn try_step(&mut self, operation: &Operation, fresh: Option<Ino>) -> Result<Answer, Refusal> {
        match *operation {
            Operation::Lookup { dir, name } => {
                self.name(dir, name).map(Answer::Node).ok_or(Refusal::NotFound)
            }
            Operation::List { dir } => {
                Ok(Answer::Names(self.names(dir).iter().map(|(&name, &ino)| (name, ino)).collect()))
            }
            Operation::Create { dir, name } => self.add(dir, name, fresh, Object::File { links: 1 }),
            Operation::Mkdir { dir, name } => {
                let new = Object::Directory { names: BTreeMap::new(), parent: Some(dir), removed: false };
                self.add(dir, name, fresh, new)
            }
            Operation::Link { node, dir, name } => {
                self.check_free(dir, name)?;
                match self.objects.get_mut(&node) {
                    Some(Object::File { links: 0 }) | None => return Err(Refusal::NotFound),
                    Some(Object::File { links }) => *links += 1,
                    Some(Object::Directory { .. }) => return Err(Refusal::NotPermitted),
                }
                self.names_mut(dir).insert(name, node);
                Ok(Answer::Done)
            }
            Operation::Unlink { dir, name } => {
                let ino = self.name(dir, name).ok_or(Refusal::NotFound)?;
                if self.is_directory(ino) {
                    return Err(Refusal::IsDirectory);
                }
                self.names_mut(dir).remove(&name);
                self.drop_unused(ino);
                Ok(Answer::Done)
            }
            Operation::Rmdir { dir, name } => {
                let ino = self.name(dir, name).ok_or(Refusal::NotFound)?;
                if !self.is_directory(ino) {
                    return Err(Refusal::NotDirectory);
                }
                if !self.names(ino).is_empty() {
                    return Err(Refusal::NotEmpty);
                }
                self.names_mut(dir).remove(&name);
                self.drop_unused(ino);
                Ok(Answer::Done)
            }
            Operation::Rename { from, name, to, to_name, flags } => {
                self.rename((from, name), (to, to_name), flags)
            }
        }
    }

    fn rename(
        &mut self,
        (from, name): (Ino, Name),
        (to, to_name): (Ino, Name),
        flags: RenameFlags,
    ) -> Result<Answer, Refusal> {
        let moved = self.name(from, name).ok_or(Refusal::NotFound)?;
        let target = self.name(to, to_name);
        let exchange = flags.contains(RenameFlags::EXCHANGE);
        if self.is_removed(to) || (exchange && target.is_none()) {
            return Err(Refusal::NotFound);
        }
        if target.is_some() && flags.contains(RenameFlags::NO_REPLACE) {
            return Err(Refusal::Exists);
        }
        if from != to && self.is_directory(moved) && self.is_at_or_above(moved, to) {
            return Err(Refusal::IntoItself);
        }
        if let Some(target) = target {
            if from != to && self.is_directory(target) && self.is_at_or_above(target, from) {
                return Err(if exchange { Refusal::IntoItself } else { Refusal::NotEmpty });
            }
            if target == moved {
                return Ok(Answer::Done);
            }
            if !exchange {
                match (self.is_directory(moved), self.is_directory(target)) {
                    (true, false) => return Err(Refusal::NotDirectory),
                    (false, true) => return Err(Refusal::IsDirectory),
                    (true, true) if !self.names(target).is_empty() => return Err(Refusal::NotEmpty),
                    _ => {}
                }
            }
        }
        self.names_mut(from).remove(&name);
        self.names_mut(to).insert(to_name, moved);
        self.set_parent(moved, to);
        if let Some(target) = target {
            if exchange {
                self.names_mut(from).insert(name, target);
                self.set_parent(target, from);
            } else {
                self.drop_unused(target);
            }
        }
        Ok(Answer::Done)
    }

    fn add(&mut self, dir: Ino, name: Name, fresh: Option<Ino>, new: Object) -> Result<Answer, Refusal> {
        self.check_free(dir, name)?;
        // Without a number it was refused, and the answers will differ.
        let ino = fresh.unwrap_or(Ino(u64::MAX));
        self.objects.insert(ino, new);
        self.names_mut(dir).insert(name, ino);
        Ok(Answer::Node(ino))
    }

    fn check_free(&self, dir: Ino, name: Name) -> Result<(), Refusal> {
        if self.is_removed(dir) {
            return Err(Refusal::NotFound);
        }
        if self.name(dir, name).is_some() { Err(Refusal::Exists) } else { Ok(()) }
    }

    pub(super) fn names(&self, dir: Ino) -> &BTreeMap<Name, Ino> {
        static NONE: BTreeMap<Name, Ino> = BTreeMap::new();
        match self.objects.get(&dir) {
            Some(Object::Directory { names, .. }) => names,
            _ => &NONE,
        }
    }

    fn names_mut(&mut self, dir: Ino) -> &mut BTreeMap<Name, Ino> {
        match self.objects.get_mut(&dir) {
            Some(Object::Directory { names, .. }) => names,
            _ => panic!("directory {dir} is not known to the model"),
        }
    }

    fn name(&self, dir: Ino, name: Name) -> Option<Ino> {
        self.names(dir).get(&name).copied()
    }

    fn is_directory(&self, ino: Ino) -> bool {
        matches!(self.objects.get(&ino), Some(Object::Directory { .. }))
    }

    /// Removed, or not made yet in the order that is being tried.
    fn is_removed(&self, dir: Ino) -> bool {
        !matches!(self.objects.get(&dir), Some(Object::Directory { removed: false, .. }))
    }

    fn is_at_or_above(&self, above: Ino, dir: Ino) -> bool {
        let mut at = Some(dir);
        while let Some(ino) = at {
            if ino == above {
                return true;
            }
            at = match self.objects.get(&ino) {
                Some(Object::Directory { parent, .. }) => *parent,
                _ => None,
            };
        }
        false
    }

    fn set_parent(&mut self, ino: Ino, to: Ino) {
        if let Some(Object::Directory { parent, .. }) = self.objects.get_mut(&ino) {
            *parent = Some(to);
        }
    }

    fn drop_unused(&mut self, ino: Ino) {
        match self.objects.get_mut(&ino) {
            Some(Object::File { links }) => *links -= 1,
            Some(Object::Directory { removed, .. }) => *removed = true,
            None => {}
        }
    }

    /// What is at the end: every directory that was not removed with its names, and the links of every file.
    pub(super) fn links(&self) -> impl Iterator<Item = (Ino, u32)> {
        self.objects.iter().filter_map(|(&ino, object)| match object {
            Object::File { links } => Some((ino, *links)),
            Object::Directory { .. } => None,
        })
    }

    /// Every directory that is still there.
    pub(super) fn directories(&self) -> impl Iterator<Item = (Ino, &BTreeMap<Name, Ino>)> {
        self.objects.iter().filter_map(|(&ino, object)| match object {
            Object::Directory { names, removed: false, .. } => Some((ino, names)),
            _ => None,
        })
    }
}

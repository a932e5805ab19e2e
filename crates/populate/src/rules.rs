//! What is changed of what a source says: entries left out, other owners, permissions and times.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use undercroft_vfs::Timestamp;

use crate::access_list::change_mode;
use crate::{Entry, EntryKind, EntryPath, Metadata, ModeChange, Piece, Source, SourceError, SourceErrorKind};

/// Whether a path, in its bytes and without a slash in front, is left out.
pub type LeftOut = Arc<dyn Fn(&[u8]) -> bool + Send + Sync>;

/// What is changed of what a source says.
#[derive(Clone, Default)]
pub struct Rules {
    /// What is left out; it must leave out what is below such a path too.
    pub left_out: Option<LeftOut>,
    /// New owners by old ones.
    pub users: HashMap<u32, u32>,
    /// New groups by old ones.
    pub groups: HashMap<u32, u32>,
    /// The owner of everything that `users` does not name.
    pub owner: Option<u32>,
    /// The group of everything that `groups` does not name.
    pub group: Option<u32>,
    /// The owner and group of the root, whatever the others are.
    pub root_owner: Option<(u32, u32)>,
    /// How permissions are changed, those of access control lists too, except those of symbolic links.
    pub mode: Option<ModeChange>,
    /// The time of the last change of content, and of the last access where a source has one.
    pub modified: Option<Timestamp>,
    /// Only times after `modified` are changed, each by itself.
    pub only_later: bool,
}

impl fmt::Debug for Rules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rules")
            .field("left_out", &self.left_out.is_some())
            .field("owner", &self.owner)
            .field("group", &self.group)
            .field("mode", &self.mode)
            .field("modified", &self.modified)
            .finish_non_exhaustive()
    }
}

impl Rules {
    /// Whether what is at a path is left out.
    fn leaves_out(&self, path: &EntryPath) -> bool {
        !path.is_root() && self.left_out.as_ref().is_some_and(|left_out| left_out(path.as_bytes()))
    }

    fn apply(&self, entry: &mut Entry) {
        let is_directory = entry.kind == EntryKind::Directory;
        self.change(&mut entry.metadata, is_directory, matches!(entry.kind, EntryKind::Symlink(_)));
        if entry.path.is_root() {
            self.own_root(&mut entry.metadata);
        }
    }

    /// What the root gets if no source says anything of it.
    pub(crate) fn of_root(&self, metadata: Metadata) -> Metadata {
        let mut metadata = self.of_directory(metadata);
        self.own_root(&mut metadata);
        metadata
    }

    fn own_root(&self, metadata: &mut Metadata) {
        if let Some((uid, gid)) = self.root_owner {
            (metadata.uid, metadata.gid) = (uid, gid);
        }
    }

    /// What a directory gets that no source says anything of.
    pub(crate) fn of_directory(&self, mut metadata: Metadata) -> Metadata {
        self.change(&mut metadata, true, false);
        metadata
    }

    fn change(&self, metadata: &mut Metadata, is_directory: bool, is_link: bool) {
        if let Some(&uid) = self.users.get(&metadata.uid) {
            metadata.uid = uid;
        } else if let Some(uid) = self.owner {
            metadata.uid = uid;
        }
        if let Some(&gid) = self.groups.get(&metadata.gid) {
            metadata.gid = gid;
        } else if let Some(gid) = self.group {
            metadata.gid = gid;
        }
        if let Some(mode) = &self.mode
            && !is_link
        {
            change_mode(metadata, |permissions| mode.apply(permissions, is_directory));
        }
        if let Some(limit) = self.modified {
            for time in metadata.accessed.iter_mut().chain([&mut metadata.modified]) {
                if !self.only_later || *time > limit {
                    *time = limit;
                }
            }
        }
    }
}

/// A source to which rules are applied.
pub struct Ruled {
    source: Box<dyn Source>,
    rules: Arc<Rules>,
}

impl fmt::Debug for Ruled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ruled").field("source", &self.source.name()).field("rules", &self.rules).finish()
    }
}

impl Ruled {
    /// A source with these rules.
    #[must_use]
    pub fn new(source: Box<dyn Source>, rules: Arc<Rules>) -> Self {
        Self { source, rules }
    }
}

impl Source for Ruled {
    fn name(&self) -> &str {
        self.source.name()
    }

    fn next_entry(&mut self) -> Result<Option<Entry>, SourceError> {
        while let Some(mut entry) = self.source.next_entry()? {
            if self.rules.leaves_out(&entry.path) {
                continue;
            }
            if let EntryKind::HardLink(target) = &entry.kind
                && self.rules.leaves_out(target)
            {
                let what = format!("it is a hard link to {}, which is left out", target.shown());
                let error = SourceError::new(self.source.name(), SourceErrorKind::Refused(what));
                return Err(error.at_member(entry.path.as_bytes()));
            }
            self.rules.apply(&mut entry);
            return Ok(Some(entry));
        }
        Ok(None)
    }

    fn read_content(&mut self, buf: &mut [u8]) -> Result<Option<Piece>, SourceError> {
        self.source.read_content(buf)
    }

    fn rewind(&mut self) -> Result<(), SourceError> {
        self.source.rewind()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Given, entry, file};

    #[test]
    fn rules_change_what_a_source_says() {
        let given = Given::default()
            .with(entry("d", EntryKind::Directory), &[])
            .with(file("d/out", 3), b"abc")
            .with(file("d/in", 3), b"xyz")
            .with(entry("link", EntryKind::Symlink(b"x"[..].into())), &[]);
        let rules = Rules {
            left_out: Some(Arc::new(|path| path == b"d/out")),
            users: HashMap::from([(7, 70)]),
            owner: Some(0),
            group: Some(5),
            mode: Some("a+rX".parse().unwrap()),
            modified: Some(Timestamp { seconds: 1002, nanoseconds: 0 }),
            only_later: true,
            ..Rules::default()
        };
        let mut ruled = Ruled::new(Box::new(given), Arc::new(rules));
        let mut next = || ruled.next_entry().unwrap().unwrap();
        let directory = next();
        assert_eq!(directory.metadata.permissions, 0o755);
        assert_eq!((directory.metadata.uid, directory.metadata.gid), (70, 5));
        assert_eq!(directory.metadata.modified, Timestamp { seconds: 1001, nanoseconds: 5 });
        let kept = next();
        assert_eq!(kept.path.as_bytes(), b"d/in");
        assert_eq!(kept.metadata.modified, Timestamp { seconds: 1002, nanoseconds: 0 });
        assert_eq!(next().metadata.permissions, 0o640);
        let mut buf = [0; 10];
        assert!(ruled.read_content(&mut buf).unwrap().is_none());
        assert!(ruled.next_entry().unwrap().is_none());
    }

    #[test]
    fn times_are_clamped_each_by_itself() {
        let at = |seconds| Timestamp { seconds, nanoseconds: 0 };
        let rules = Rules { modified: Some(at(100)), only_later: true, ..Rules::default() };
        let clamped = |modified, accessed| {
            let metadata =
                Metadata { modified: at(modified), accessed: Some(at(accessed)), ..Metadata::default() };
            let metadata = rules.of_directory(metadata);
            (metadata.modified, metadata.accessed.unwrap())
        };
        assert_eq!(clamped(50, 200), (at(50), at(100)));
        assert_eq!(clamped(200, 50), (at(100), at(50)));
    }

    #[test]
    fn links_to_what_is_left_out_are_refused_by_name() {
        let link = |to: &str| EntryKind::HardLink(EntryPath::new(to.as_bytes()).unwrap());
        let given = Given::default()
            .with(file("out", 3), b"abc")
            .with(file("in", 3), b"xyz")
            .with(entry("kept", link("in")), &[])
            .with(entry("lost", link("out")), &[]);
        let rules = Rules { left_out: Some(Arc::new(|path| path == b"out")), ..Rules::default() };
        let mut ruled = Ruled::new(Box::new(given), Arc::new(rules));
        assert_eq!(ruled.next_entry().unwrap().unwrap().path.as_bytes(), b"in");
        assert_eq!(ruled.next_entry().unwrap().unwrap().path.as_bytes(), b"kept");
        let refused = ruled.next_entry().unwrap_err().to_string();
        assert!(refused.contains("lost: it is a hard link to /out, which is left out"), "{refused}");
    }
}

//! Where a check works: its directory, and short ways to make things there and to look at them.

use std::collections::BTreeMap;
use std::panic::Location;
use std::sync::Arc;

use super::super::outcome::{Finds, Outcome};
use super::super::remove::{names_in, remove_all};
use super::profile::WritingProfile;
use crate::{
    AttrChange, Credentials, Error, File, FileType, Ino, InodeFlags, NewObject, Node, Result, Timestamp, Vfs,
};

/// A check of writing while it runs.
pub(super) struct Ground<'a> {
    pub(super) vfs: &'a Arc<Vfs>,
    pub(super) profile: &'a WritingProfile<'a>,
    /// Empty when the check begins.
    pub(super) top: Arc<Node>,
    outcome: &'a mut Outcome,
}

impl Finds for Ground<'_> {
    fn outcome(&mut self) -> &mut Outcome {
        self.outcome
    }
}

/// What ends a check early: a call that must succeed did not.
pub(super) struct Halt {
    at: &'static Location<'static>,
    error: Error,
}

impl From<Error> for Halt {
    #[track_caller]
    fn from(error: Error) -> Self {
        Self { at: Location::caller(), error }
    }
}

pub(super) type Checked<T = ()> = std::result::Result<T, Halt>;

/// The superuser.
pub(super) const ROOT: Credentials = Credentials::root();

/// A user without privilege.
pub(super) fn user() -> Credentials {
    Credentials::user(1000, 1000, vec![])
}

/// Runs a check in a new directory of the root directory, and removes that.
pub(super) fn run(
    vfs: &Arc<Vfs>,
    profile: &WritingProfile<'_>,
    name: &str,
    part: impl FnOnce(&mut Ground<'_>) -> Checked,
) -> Outcome {
    let mut outcome = Outcome::default();
    if let Err(Halt { at, error }) = run_and_remove(vfs, profile, name, part, &mut outcome) {
        outcome.that(false, || format!("at line {} of {}: {error}", at.line(), at.file()));
    }
    for failure in &mut outcome.failures {
        failure.insert_str(0, &format!("{name} (seed {}): ", profile.seed));
    }
    outcome
}

fn run_and_remove(
    vfs: &Arc<Vfs>,
    profile: &WritingProfile<'_>,
    name: &str,
    part: impl FnOnce(&mut Ground<'_>) -> Checked,
    outcome: &mut Outcome,
) -> Checked {
    let before = space(vfs)?;
    let root = vfs.root()?;
    let top = vfs.create(&ROOT, &root, name.as_bytes(), &NewObject::directory(0o755))?;
    let ended = part(&mut Ground { vfs, profile, top, outcome });
    let removed = remove_all(vfs, &root, name.as_bytes());
    ended?;
    removed?;
    let left = space(vfs)?;
    outcome.equal(|| "free blocks and inodes at the end".to_owned(), &left, &before);
    Ok(())
}

/// Free blocks and inodes.
pub(super) fn space(vfs: &Vfs) -> Result<(u64, u64)> {
    // What is freed may be counted only when it is durable.
    vfs.filesystem().sync()?;
    let space = vfs.filesystem().statfs()?;
    Ok((space.blocks_free, space.inodes_free))
}

impl Ground<'_> {
    pub(super) fn file(&self, dir: &Arc<Node>, name: &str) -> Result<Arc<Node>> {
        self.vfs.create(&ROOT, dir, name.as_bytes(), &NewObject::file(0o644))
    }

    pub(super) fn directory(&self, dir: &Arc<Node>, name: &str) -> Result<Arc<Node>> {
        self.vfs.create(&ROOT, dir, name.as_bytes(), &NewObject::directory(0o755))
    }

    /// A new file in the check's directory, open for writing.
    pub(super) fn open_file(&self, name: &str) -> Result<File> {
        let node = self.file(&self.top, name)?;
        self.vfs.open_node_for_writing(&node)
    }

    pub(super) fn change(&self, node: &Arc<Node>, change: AttrChange) -> Result<()> {
        self.vfs.set_attr(&ROOT, node, &change)
    }

    pub(super) fn chown(&self, node: &Arc<Node>, uid: u32, gid: u32) -> Result<()> {
        self.change(node, AttrChange { uid: Some(uid), gid: Some(gid), ..AttrChange::default() })
    }

    pub(super) fn chmod(&self, node: &Arc<Node>, permissions: u16) -> Result<()> {
        self.change(node, AttrChange { permissions: Some(permissions), ..AttrChange::default() })
    }

    /// Sets exactly these flags of those that keep a file from being changed.
    pub(super) fn freeze(&self, node: &Arc<Node>, flags: InodeFlags) -> Result<()> {
        let others = node.attr().flags - (InodeFlags::IMMUTABLE | InodeFlags::APPEND);
        self.change(node, AttrChange { flags: Some(others | flags), ..AttrChange::default() })
    }

    /// Everything below the check's directory.
    pub(super) fn snapshot(&self) -> Result<Snapshot> {
        let mut snapshot = Snapshot::new();
        let mut left = vec![(Vec::new(), Arc::clone(&self.top))];
        while let Some((path, node)) = left.pop() {
            if node.kind() == FileType::Directory {
                for name in names_in(&node)? {
                    let child = self.vfs.lookup(&node, &name)?;
                    left.push(([&path[..], b"/", &name].concat(), child));
                }
            }
            let attr = node.attr();
            snapshot.insert(path, (attr.ino, attr.links, attr.modified, attr.changed));
        }
        Ok(snapshot)
    }
}

/// By path: number, links, and the times of content and inode.
pub(super) type Snapshot = BTreeMap<Vec<u8>, (Ino, u32, Timestamp, Timestamp)>;

/// All of a file.
pub(super) fn read_all(file: &File) -> Result<Vec<u8>> {
    let mut bytes = vec![0xa5; file.node().attr().size_bytes as usize];
    let len = file.read_at(0, &mut bytes)?;
    bytes.truncate(len);
    Ok(bytes)
}

//! Runs the checks of the standard tree.

use std::sync::Arc;

use super::outcome::{Finds, Outcome};
use super::tree::{Entry, Tree};
use super::{access, content, namespace, objects, paths, threads};
use crate::{Credentials, Follow, Node, Vfs};

/// Checks that the directory at `base`, an absolute path of directories that every user may pass, holds exactly
/// `tree`, in every way that it can be looked at.
pub fn check(vfs: &Arc<Vfs>, base: &[u8], tree: &Tree) -> Outcome {
    let mut check = Check { vfs, tree, base, outcome: Outcome::default() };
    namespace::check(&mut check);
    objects::check(&mut check);
    content::check(&mut check);
    paths::check(&mut check);
    access::check(&mut check);
    threads::check(&mut check);
    check.outcome
}

/// A run of the suite.
pub(super) struct Check<'a> {
    pub(super) vfs: &'a Arc<Vfs>,
    pub(super) tree: &'a Tree,
    base: &'a [u8],
    pub(super) outcome: Outcome,
}

impl Finds for Check<'_> {
    fn outcome(&mut self) -> &mut Outcome {
        &mut self.outcome
    }
}

impl<'a> Check<'a> {
    /// The same run for another thread; its outcome is joined with [`absorb`](Finds::absorb).
    pub(super) fn fork(&self) -> Check<'a> {
        Check { outcome: Outcome::default(), ..*self }
    }

    /// The absolute path of something in the tree.
    pub(super) fn path(&self, below: &[u8]) -> Vec<u8> {
        [self.base, below].join(&b'/')
    }

    /// The node of an entry, by its path; the link itself where it is one.
    pub(super) fn node(&mut self, entry: &Entry) -> Option<Arc<Node>> {
        let path = self.path(&entry.path);
        // An empty path below the base leaves a slash at the end, which is right for the base.
        let result = self.vfs.resolve(&Credentials::root(), &path, Follow::NoFollow);
        self.ok(|| format!("resolve {}", show(&path)), result)
    }
}

/// A path or name in a message.
pub(super) fn show(bytes: &[u8]) -> String {
    format!("\"{}\"", bytes.escape_ascii())
}

//! Runs the checks and collects what they find.

use std::fmt;
use std::sync::Arc;

use super::tree::{Entry, Tree};
use super::{access, content, namespace, objects, paths, threads};
use crate::{Credentials, Follow, Node, Result, Vfs};

/// What the suite found.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub struct Outcome {
    /// How many single expectations were checked.
    pub checked: u64,
    /// Those that did not hold: what, what was expected, what came. The first hundred of them.
    pub failures: Vec<String>,
}

/// Failures beyond this number are not worth their paper.
const FAILURES_MAX: usize = 100;

impl Outcome {
    /// Ends a test.
    ///
    /// # Panics
    /// When anything failed, listing it.
    pub fn assert_passed(&self) {
        assert!(
            self.failures.is_empty(),
            "{} failures in {} checks:\n  {}",
            self.failures.len(),
            self.checked,
            self.failures.join("\n  ")
        );
    }
}

/// Checks that the directory at `base`, an absolute path of directories that everybody may pass, holds exactly
/// `tree`, in every way that it can be looked at.
pub fn check(vfs: &Arc<Vfs>, base: &[u8], tree: &Tree) -> Outcome {
    let mut check = Check { vfs, tree, base, checked: 0, failures: Vec::new() };
    namespace::check(&mut check);
    objects::check(&mut check);
    content::check(&mut check);
    paths::check(&mut check);
    access::check(&mut check);
    threads::check(&mut check);
    Outcome { checked: check.checked, failures: check.failures }
}

/// A run of the suite.
pub(super) struct Check<'a> {
    pub(super) vfs: &'a Arc<Vfs>,
    pub(super) tree: &'a Tree,
    base: &'a [u8],
    checked: u64,
    failures: Vec<String>,
}

impl<'a> Check<'a> {
    /// The same run for another thread; its findings are joined with [`absorb`](Self::absorb).
    pub(super) fn fork(&self) -> Check<'a> {
        Check { checked: 0, failures: Vec::new(), ..*self }
    }

    pub(super) fn absorb(&mut self, other: Check<'_>) {
        self.checked += other.checked;
        for failure in other.failures {
            self.fail(failure);
        }
    }

    pub(super) fn that(&mut self, holds: bool, otherwise: impl FnOnce() -> String) {
        self.checked += 1;
        if !holds {
            self.fail(otherwise());
        }
    }

    pub(super) fn equal<T: PartialEq + fmt::Debug>(
        &mut self,
        what: impl FnOnce() -> String,
        got: &T,
        expected: &T,
    ) {
        self.that(got == expected, || format!("{}: expected {expected:?}, got {got:?}", what()));
    }

    /// The value, unless it is an error, which is a failure of the suite then.
    pub(super) fn ok<T>(&mut self, what: impl FnOnce() -> String, result: Result<T>) -> Option<T> {
        self.checked += 1;
        match result {
            Ok(value) => Some(value),
            Err(error) => {
                self.fail(format!("{}: {error}", what()));
                None
            }
        }
    }

    /// Expects a certain refusal; `expected` names the variant of [`Error`](crate::Error).
    pub(super) fn refused<T>(&mut self, what: impl FnOnce() -> String, result: Result<T>, expected: &str) {
        let got = match result {
            Ok(_) => "success".to_owned(),
            Err(error) => format!("{error:?}"),
        };
        self.that(got.starts_with(expected), || format!("{}: expected {expected}, got {got}", what()));
    }

    fn fail(&mut self, failure: String) {
        if self.failures.len() < FAILURES_MAX {
            self.failures.push(failure);
        }
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

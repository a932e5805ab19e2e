//! Whether an expression of `find` is true of a file.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::SystemTime;

use undercroft_vfs::{Attr, DirOffset, FileType, Node, Result, Timestamp, Vfs};

use crate::commands::edit::names;
use crate::failure::Failure;
use crate::image;
use crate::plan::find::{Expression, Find, Permissions, Test};

/// A file that may be what is looked for.
pub(super) struct Candidate<'a> {
    pub(super) path: &'a [u8],
    pub(super) node: &'a Arc<Node>,
}

/// What an expression does about a file.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Verdict {
    /// How often its path is printed.
    pub(super) prints: u32,
    /// What is in it is passed.
    pub(super) prunes: bool,
}

/// An expression, with the names in it looked up.
pub(super) struct Evaluation<'a> {
    expression: Prepared<'a>,
    now: Timestamp,
}

enum Prepared<'a> {
    All(Vec<Self>),
    Any(Vec<Self>),
    Not(Box<Self>),
    Prune,
    Print,
    User(u32),
    Group(u32),
    NewerThan(Timestamp),
    Test(&'a Test),
}

impl<'a> Evaluation<'a> {
    /// Looks names up, and the times of files.
    pub(super) fn prepare(vfs: &Vfs, plan: &'a Find) -> std::result::Result<Self, Failure> {
        let expression = prepare(vfs, &plan.expression)?;
        Ok(Self { expression, now: Timestamp::from(SystemTime::now()) })
    }

    pub(super) fn judge(&self, candidate: &Candidate<'_>) -> Result<Verdict> {
        let mut verdict = Verdict::default();
        self.holds(&self.expression, candidate, &candidate.node.attr(), &mut verdict)?;
        Ok(verdict)
    }

    fn holds(
        &self,
        expression: &Prepared<'_>,
        candidate: &Candidate<'_>,
        attr: &Attr,
        verdict: &mut Verdict,
    ) -> Result<bool> {
        Ok(match expression {
            Prepared::All(parts) => {
                for part in parts {
                    if !self.holds(part, candidate, attr, verdict)? {
                        return Ok(false);
                    }
                }
                true
            }
            Prepared::Any(parts) => {
                for part in parts {
                    if self.holds(part, candidate, attr, verdict)? {
                        return Ok(true);
                    }
                }
                false
            }
            Prepared::Not(part) => !self.holds(part, candidate, attr, verdict)?,
            Prepared::Prune => {
                verdict.prunes = true;
                true
            }
            Prepared::Print => {
                verdict.prints += 1;
                true
            }
            Prepared::User(uid) => attr.uid == *uid,
            Prepared::Group(gid) => attr.gid == *gid,
            Prepared::NewerThan(time) => attr.modified > *time,
            Prepared::Test(test) => self.passes(test, candidate, attr)?,
        })
    }

    fn passes(&self, test: &Test, candidate: &Candidate<'_>, attr: &Attr) -> Result<bool> {
        Ok(match test {
            Test::Name(pattern) => pattern.matches(name_of(candidate.path)),
            Test::Path(pattern) => pattern.matches(candidate.path),
            Test::Kind(kinds) => kinds.contains(&attr.kind),
            Test::Size(number, unit) => number.has(attr.size_bytes.div_ceil(*unit)),
            Test::Empty => is_empty(candidate.node, attr)?,
            Test::Age(number, unit) => {
                let age = self.now.seconds.saturating_sub(attr.modified.seconds);
                let age = age.saturating_sub(i64::from(self.now.nanoseconds < attr.modified.nanoseconds));
                // What is modified in the future is of a negative age, which is below every number.
                number.has_signed(age.div_euclid(*unit))
            }
            Test::Uid(number) => number.has(attr.uid.into()),
            Test::Gid(number) => number.has(attr.gid.into()),
            Test::Links(number) => number.has(attr.links.into()),
            Test::Inode(number) => number.has(attr.ino.0),
            Test::Permissions(how, bits) => {
                let permissions = attr.permissions & 0o7777;
                match how {
                    Permissions::Exactly => permissions == *bits,
                    Permissions::AllOf => permissions & bits == *bits,
                    Permissions::OneOf => permissions & bits != 0 || *bits == 0,
                }
            }
            Test::Xattr(pattern) => candidate.node.list_xattrs()?.iter().any(|name| pattern.matches(name)),
            Test::True => true,
            Test::False => false,
            // These were looked up.
            Test::Newer(_) | Test::NewerThan(_) | Test::User(_) | Test::Group(_) => false,
        })
    }
}

fn prepare<'a>(vfs: &Vfs, expression: &'a Expression) -> std::result::Result<Prepared<'a>, Failure> {
    let all = |parts: &'a [Expression]| {
        parts.iter().map(|part| prepare(vfs, part)).collect::<std::result::Result<Vec<_>, Failure>>()
    };
    Ok(match expression {
        Expression::All(parts) => Prepared::All(all(parts)?),
        Expression::Any(parts) => Prepared::Any(all(parts)?),
        Expression::Not(part) => Prepared::Not(Box::new(prepare(vfs, part)?)),
        Expression::Prune => Prepared::Prune,
        Expression::Print => Prepared::Print,
        Expression::Test(Test::User(id)) => Prepared::User(names::user(vfs, id)?),
        Expression::Test(Test::Group(id)) => Prepared::Group(names::group(vfs, id)?),
        Expression::Test(Test::Newer(path)) => {
            Prepared::NewerThan(image::resolve(vfs, path, false)?.attr().modified)
        }
        Expression::Test(Test::NewerThan(time)) => Prepared::NewerThan(*time),
        Expression::Test(test) => Prepared::Test(test),
    })
}

/// The last name of a path; of the root a slash.
fn name_of(path: &[u8]) -> &[u8] {
    path.split(|byte| *byte == b'/').rfind(|name| !name.is_empty()).unwrap_or(&b"/"[..])
}

fn is_empty(node: &Node, attr: &Attr) -> Result<bool> {
    match attr.kind {
        FileType::Regular => Ok(attr.size_bytes == 0),
        FileType::Directory => {
            let mut empty = true;
            node.read_dir(DirOffset::default(), &mut |entry| {
                if entry.name == b"." || entry.name == b".." {
                    return ControlFlow::Continue(());
                }
                empty = false;
                ControlFlow::Break(())
            })?;
            Ok(empty)
        }
        _ => Ok(false),
    }
}

//! What `get` means: what is copied, where it goes, and what becomes of what is there.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

use clap::Args;

use super::{Base, InsidePath};
use crate::args::GetArgs;
use crate::exit::Kind;
use crate::failure::Failure;
use crate::pattern::{Exclude, Glob};
use crate::text::names::safe;

/// Stands for standard output.
const STDOUT: &str = "-";

/// A copy to be made.
#[derive(Debug)]
pub(crate) struct GetPlan {
    pub(crate) paths: Vec<InsidePath>,
    pub(crate) globs: Vec<Glob>,
    pub(crate) exclude: Exclude,
    pub(crate) to: Destination,
    /// Keep what lends rights.
    pub(crate) special: bool,
    /// Print each name.
    pub(crate) verbose: bool,
}

/// Where `get` puts things.
#[derive(Debug)]
pub(crate) enum Destination {
    /// A path on this machine.
    Path { dest: PathBuf, existing: Existing },
    /// A tar archive on standard output.
    Tar,
    /// The content of one file on standard output.
    Content,
}

/// What becomes of a name that is there already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Existing {
    /// It stays, and the copy fails.
    Refuse,
    /// An earlier run may have made it.
    Resume,
    /// What is no directory is replaced.
    Replace,
    /// What is no directory is replaced if it is older than the original.
    Update,
}

impl Existing {
    /// Whether names that exist may be replaced.
    pub(crate) const fn replaces(self) -> bool {
        matches!(self, Self::Replace | Self::Update)
    }
}

impl GetPlan {
    /// What was typed, with the image that it is about.
    ///
    /// # Errors
    /// [`Kind::Usage`].
    pub(crate) fn from_typed<I: Args>(typed: GetArgs<I>, base: &Base) -> Result<(I, Self), Failure> {
        let mut paths = typed.paths;
        let to = if typed.tar {
            paths.pop_if(|last| last == STDOUT);
            Destination::Tar
        } else {
            let existing = match (typed.resume, typed.overwrite, typed.update) {
                (true, ..) => Existing::Resume,
                (_, true, _) => Existing::Replace,
                (_, _, true) => Existing::Update,
                _ => Existing::Refuse,
            };
            destination(&mut paths, &typed.globs, existing)?
        };
        if paths.is_empty() && typed.globs.is_empty() {
            return Err(Failure::new(Kind::Usage, "nothing to copy is named").advise("the root is `/`"));
        }
        if matches!(to, Destination::Content) {
            let fits = paths.len() == 1 && typed.globs.is_empty();
            if !fits {
                return Err(Failure::new(Kind::Usage, "standard output takes one file")
                    .advise("`undercroft cat` writes several, and `--tar` an archive of any number"));
            }
            if typed.resume || typed.overwrite || typed.update || typed.json {
                let what = "--resume, --overwrite, --update and --json are not for standard output";
                return Err(Failure::new(Kind::Usage, what).advise("leave them off"));
            }
        }
        let plan = Self {
            paths: base.paths(paths)?,
            globs: typed.globs.iter().map(|glob| Glob::parse(glob)).collect::<Result<_, _>>()?,
            exclude: Exclude::parse(typed.exclude.iter().map(OsString::as_os_str))?,
            // An archive lends no rights before it is unpacked.
            special: typed.special || (typed.tar && !typed.no_special),
            to,
            verbose: typed.verbose,
        };
        Ok((typed.image, plan))
    }
}

/// The last of what was typed, which is taken off.
fn destination(
    paths: &mut Vec<OsString>,
    globs: &[OsString],
    existing: Existing,
) -> Result<Destination, Failure> {
    let dest = paths.pop();
    match dest {
        Some(dest) if !paths.is_empty() || !globs.is_empty() => Ok(if dest == STDOUT {
            Destination::Content
        } else {
            Destination::Path { dest: PathBuf::from(dest), existing }
        }),
        Some(only) => {
            let only = safe(OsStr::as_encoded_bytes(&only));
            Err(Failure::new(Kind::Usage, format!("where to put {only} is not said"))
                .advise("name a destination behind it: a file or directory, or `-` for standard output"))
        }
        None => Err(Failure::new(Kind::Usage, "neither what to copy nor where to put it is said")
            .advise("`undercroft get IMAGE / DIR` copies everything")),
    }
}

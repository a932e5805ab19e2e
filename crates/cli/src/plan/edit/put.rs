//! What `put` and `tar-in` mean: files of this machine, or of an archive, that go into an image.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::{OwnerSpec, one_name};
use crate::args::edit::{PutArgs, TarInArgs};
use crate::exit::Kind;
use crate::failure::Failure;
use crate::pattern::Exclude;
use crate::plan::{Base, InsidePath};

/// Stands for standard input.
const STDIN: &str = "-";

#[derive(Debug)]
pub(crate) struct Put {
    /// On this machine.
    pub(crate) sources: Vec<PathBuf>,
    pub(crate) dest: InsidePath,
    pub(crate) owner: PutOwner,
    pub(crate) exclude: Exclude,
    /// Directories on other filesystems are not entered, as by `tar` and `cp -x`; they stay, empty.
    pub(crate) one_file_system: bool,
    /// The destination is a name, also where it is a directory.
    pub(crate) as_name: bool,
}

/// Whom what is put belongs to.
#[derive(Debug)]
pub(crate) enum PutOwner {
    Root,
    /// As where it comes from.
    AsItIs,
    Given(OwnerSpec),
}

#[derive(Debug)]
pub(crate) struct TarIn {
    pub(crate) tar: PathBuf,
    pub(crate) dir: InsidePath,
    pub(crate) owner: PutOwner,
    pub(crate) exclude: Exclude,
}

fn excluded(typed: &[OsString]) -> Result<Exclude, Failure> {
    Exclude::parse(typed.iter().map(OsString::as_os_str))
}

impl Put {
    pub(super) fn from_typed(typed: PutArgs, base: &Base) -> Result<Self, Failure> {
        let PutArgs {
            mut paths,
            preserve,
            owner,
            exclude,
            one_file_system,
            no_target_directory,
            recursive: _,
        } = typed;
        let dest = match paths.pop() {
            Some(dest) if !paths.is_empty() => base.path(dest)?,
            _ => return Err(Failure::new(Kind::Usage, "where to put it in the image is not said")),
        };
        let owner = match owner {
            Some(owner) => PutOwner::Given(OwnerSpec::parse(&owner)?),
            None if preserve => PutOwner::AsItIs,
            None => PutOwner::Root,
        };
        let as_name = one_name("put", paths.len(), no_target_directory)?;
        let sources = paths.into_iter().map(PathBuf::from).collect();
        Ok(Self { sources, dest, owner, exclude: excluded(&exclude)?, one_file_system, as_name })
    }
}

impl TarIn {
    pub(super) fn from_typed(typed: TarInArgs, base: &Base) -> Result<Self, Failure> {
        let TarInArgs { tar, dir, owner, exclude } = typed;
        let owner = owner.map(|owner| OwnerSpec::parse(&owner).map(PutOwner::Given)).transpose()?;
        let owner = owner.unwrap_or(PutOwner::AsItIs);
        Ok(Self { tar, dir: base.path(dir)?, owner, exclude: excluded(&exclude)? })
    }

    /// Whether the archive comes on standard input.
    pub(crate) fn is_stdin(&self) -> bool {
        self.tar == Path::new(STDIN)
    }
}

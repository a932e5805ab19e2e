//! What the commands mean that look into an image: the same at a command line and in `shell`.

use clap::Args;

use super::find::Find;
use super::{Base, Format, InsidePath};
use crate::args::ReadCommand;
use crate::failure::Failure;

/// How to list.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ListStyle {
    pub(crate) long: bool,
    /// Sizes with a unit.
    pub(crate) human: bool,
    /// Directories like other files.
    pub(crate) itself: bool,
    /// One name a line.
    pub(crate) one: bool,
    pub(crate) all: bool,
    pub(crate) inode: bool,
    pub(crate) recursive: bool,
}

/// A look into an image.
#[derive(Debug)]
pub(crate) enum Look {
    List { paths: Vec<InsidePath>, style: ListStyle, format: Format },
    Tree { path: InsidePath, levels: Option<u32>, all: bool, format: Format },
    Stat { paths: Vec<InsidePath>, follow: bool, format: Format },
    Cat { paths: Vec<InsidePath> },
    Find { what: Find },
}

impl Look {
    /// What was typed, with the image that it is about.
    ///
    /// # Errors
    /// [`Kind::Usage`](crate::exit::Kind::Usage).
    pub(crate) fn from_typed<I: Args>(typed: ReadCommand<I>, base: &Base) -> Result<(I, Self), Failure> {
        Ok(match typed {
            ReadCommand::Ls {
                image,
                paths,
                long,
                human_readable,
                directory,
                one,
                all,
                inode,
                recursive,
                json,
                help: _,
            } => {
                let recursive = recursive && !directory;
                let human = human_readable;
                let style = ListStyle { long, human, itself: directory, one, all, inode, recursive };
                let paths = if paths.is_empty() { vec![base.here()] } else { base.paths(paths)? };
                (image, Self::List { paths, style, format: Format::of(json.json) })
            }
            ReadCommand::Tree { image, path, level, all, json } => {
                let format = Format::of(json.json);
                let path = path.map_or_else(|| Ok(base.here()), |path| base.path(path))?;
                (image, Self::Tree { path, levels: level, all, format })
            }
            ReadCommand::Stat { image, paths, dereference, json } => {
                let format = Format::of(json.json);
                (image, Self::Stat { paths: base.paths(paths)?, follow: dereference, format })
            }
            ReadCommand::Find { image, json, words } => {
                (image, Self::Find { what: Find::from_words(words, json.json, base)? })
            }
            ReadCommand::Cat { image, paths } => (image, Self::Cat { paths: base.paths(paths)? }),
        })
    }

    /// The command, and the first path that it names.
    pub(crate) fn first_path(&self) -> (&'static str, Option<&InsidePath>) {
        match self {
            Self::List { paths, .. } => ("ls", paths.first()),
            Self::Tree { path, .. } => ("tree", Some(path)),
            Self::Stat { paths, .. } => ("stat", paths.first()),
            Self::Cat { paths } => ("cat", paths.first()),
            Self::Find { what } => ("find", what.starts.first()),
        }
    }
}

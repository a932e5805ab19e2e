//! The names that fast commits touch: where each leads on the disk, and where it is to lead.

use std::collections::BTreeMap;

use undercroft_vfs::{FileType, Result};

use crate::dir;
use crate::error::corrupt;
use crate::fast_commit::{DirectoryChange, FastCommitView};
use crate::inode::{self, Inode};
use crate::volume::Volume;

/// A name that fast commits say something of.
#[derive(Debug)]
pub(super) struct Name<'a> {
    pub(super) dir: u32,
    pub(super) name: &'a [u8],
    /// The inode that it leads to on the disk.
    pub(super) before: Option<u32>,
    /// The inode that it is to lead to.
    pub(super) after: Option<u32>,
}

/// How the names of one inode change in number.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    pub(super) gained: u32,
    pub(super) lost: u32,
}

/// All names, by directory.
///
/// # Errors
/// Corruption of a directory, or changes to something that is none; [`NoKey`](undercroft_vfs::Error::NoKey),
/// [`Unsupported`](undercroft_vfs::Error::Unsupported); I/O failure.
pub(super) fn resolve<'a>(volume: &Volume, view: &'a FastCommitView) -> Result<Vec<Name<'a>>> {
    let mut names = Vec::new();
    for (number, change) in view.directories() {
        let directory = if view.is_new(number) { None } else { Some(read_directory(volume, number)?) };
        resolve_in(volume, number, directory.as_ref(), change, &mut names)?;
    }
    for (number, change) in view.replaced_directories() {
        // It may never have been on the disk: made and removed by fast commits.
        let Ok(directory) = read_directory(volume, number) else { continue };
        let first = names.len();
        resolve_in(volume, number, Some(&directory), change, &mut names)?;
        names[first..].iter_mut().for_each(|name| name.after = None);
    }
    Ok(names)
}

fn resolve_in<'a>(
    volume: &Volume,
    number: u32,
    directory: Option<&Inode>,
    change: &'a DirectoryChange,
    names: &mut Vec<Name<'a>>,
) -> Result<()> {
    if let Some(directory) = directory {
        dir::check_changeable(volume, directory)?;
    }
    for name in change.names() {
        let before = match directory {
            Some(directory) => dir::lookup(volume, directory, name)?,
            None => None,
        };
        names.push(Name { dir: number, name, before, after: change.lookup(name, before) });
    }
    Ok(())
}

fn read_directory(volume: &Volume, number: u32) -> Result<Inode> {
    let inode = Inode::read_linked_or_not(volume, number, inode::locate(volume, number)?)?;
    if inode.kind == FileType::Directory {
        return Ok(inode);
    }
    Err(corrupt("fast commit", format!("changes names in inode {number}, which is no directory")))
}

/// How many names each inode gains and loses. A new inode has no names but those that it gains: the number's names on
/// the disk are lost with the inode that had it before.
pub(super) fn count(names: &[Name<'_>], view: &FastCommitView) -> BTreeMap<u32, Counts> {
    let mut counts: BTreeMap<u32, Counts> = BTreeMap::new();
    for name in names {
        let moves = name.before != name.after;
        if let Some(after) = name.after
            && (moves || view.is_new(after))
        {
            counts.entry(after).or_default().gained += 1;
        }
        if let Some(before) = name.before
            && (moves || view.is_new(before))
        {
            counts.entry(before).or_default().lost += 1;
        }
    }
    counts
}

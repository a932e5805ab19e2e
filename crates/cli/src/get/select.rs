//! Finds what is to be copied: the paths that were named, and what patterns match.

use std::collections::HashSet;
use std::sync::Arc;

use undercroft_vfs::{Error, FileType, Node, Vfs};

use super::place::own_name;
use crate::exit::Kind;
use crate::failure::{Complaints, Failure};
use crate::image;
use crate::pattern::{Exclude, Glob, Matched};
use crate::plan::{Destination, GetPlan};
use crate::text::names::safe;
use crate::walk::{Event, Order, Walk};

/// Something that is to be copied with all that is below it.
#[derive(Debug)]
pub(crate) struct Source {
    /// Inside the image.
    pub(crate) path: Vec<u8>,
    pub(crate) node: Arc<Node>,
}

/// What the user named, without what is left out. If several things are named, what is wrong with one of them is
/// reported, and each has a name that no other has.
pub(crate) fn select(vfs: &Vfs, plan: &GetPlan, complaints: &mut Complaints) -> Result<Vec<Source>, Failure> {
    let mut found = Vec::new();
    let is_single = is_single(plan);
    for path in &plan.paths {
        match image::resolve(vfs, path, false) {
            Ok(node) => found.push(Source { path: path.clone(), node }),
            Err(failure) if is_single => return Err(advise_pattern(failure, path)),
            // It may have been meant as the archive's name.
            Err(failure) if matches!(plan.to, Destination::Tar) && plan.paths.last() == Some(path) => {
                complaints.add(failure.advise("`--tar` writes to standard output: send that into a file"))?;
            }
            Err(failure) => complaints.add(advise_pattern(failure, path))?,
        }
    }
    for glob in &plan.globs {
        let before = found.len();
        expand(vfs, glob, &plan.exclude, &mut found, complaints)?;
        if found.len() == before {
            complaints.add(Failure::new(Kind::Path, format!("{}: nothing matches", glob.shown())))?;
        }
    }
    found.retain(|source| !plan.exclude.has_or_is_below(&source.path));
    if !is_single {
        let mut names = HashSet::new();
        let mut distinct = Vec::with_capacity(found.len());
        for source in found {
            match refusal(&source, &mut names) {
                Some(failure) => complaints.add(failure)?,
                None => distinct.push(source),
            }
        }
        return Ok(distinct);
    }
    Ok(found)
}

/// A path that is not there may have been meant as a pattern.
fn advise_pattern(failure: Failure, path: &[u8]) -> Failure {
    if failure.kind() != Kind::Path || !path.iter().any(|byte| b"*?[".contains(byte)) {
        return failure;
    }
    failure.advise(format!("`--glob '{}'` is for a pattern", safe(path)))
}

/// Whether one thing was named, which may become the destination itself.
pub(crate) fn is_single(plan: &GetPlan) -> bool {
    plan.paths.len() == 1 && plan.globs.is_empty()
}

/// Why it cannot be put beside others.
fn refusal(source: &Source, names: &mut HashSet<Vec<u8>>) -> Option<Failure> {
    let shown = safe(&source.path);
    let Some(name) = own_name(&source.path) else {
        return Some(
            Failure::new(Kind::Usage, format!("{shown} has no name that it could have beside others"))
                .advise("copy it alone"),
        );
    };
    let is_new = names.insert(name.as_encoded_bytes().to_vec());
    (!is_new).then(|| {
        Failure::new(Kind::Usage, format!("{shown} would be written over another copy of its name"))
            .advise("copy it to another place")
    })
}

/// Adds what a pattern matches. A directory stands for all that is below it.
fn expand(
    vfs: &Vfs,
    glob: &Glob,
    exclude: &Exclude,
    found: &mut Vec<Source>,
    complaints: &mut Complaints,
) -> Result<(), Failure> {
    let (start, matched) = glob.start();
    let node = match image::resolve(vfs, &start, !glob.is_match(&matched)) {
        Ok(node) => node,
        Err(failure) if failure.kind() == Kind::Path => return Ok(()),
        Err(failure) => return complaints.add(failure),
    };
    if glob.is_match(&matched) {
        found.push(Source { path: start, node });
        return Ok(());
    }
    if node.kind() != FileType::Directory {
        return Ok(());
    }
    // Of the directories that the walk is in.
    let mut open: Vec<Matched> = vec![matched];
    let mut walk = Walk::new(vfs, &node, start, Order::Name);
    while let Some(event) = walk.next() {
        let (entry, is_directory) = match event {
            Event::File(entry) => (entry, false),
            Event::Enter(entry) => (entry, true),
            Event::Leave => {
                open.pop();
                continue;
            }
            // Where the pattern does not lead, damage is none of the copy's business.
            Event::Trouble { path, error } => {
                if matters(glob, &open, &path) {
                    complaints.add(Failure::inside(&path, &error))?;
                }
                continue;
            }
        };
        let Some(matched) = open.last().map(|matched| glob.below(matched, &entry.name)) else { break };
        let is_match = glob.is_match(&matched);
        let is_excluded = exclude.has(&entry.path);
        if is_directory && (is_match || is_excluded || matched.is_none()) {
            walk.pass_over();
        } else if is_directory {
            open.push(matched);
        }
        if is_match && !is_excluded {
            found.push(Source { path: entry.path, node: entry.node });
        }
    }
    Ok(())
}

/// Whether what could not be read might have matched.
fn matters(glob: &Glob, open: &[Matched], path: &[u8]) -> bool {
    let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    open.last().is_some_and(|matched| !glob.below(matched, name).is_none())
}

/// The file whose content goes to standard output.
pub(crate) fn only_file(sources: &[Source]) -> Result<Option<&Source>, Failure> {
    let Some(source) = sources.first() else { return Ok(None) };
    if source.node.kind() == FileType::Directory {
        return Err(Failure::inside(&source.path, &Error::IsDirectory)
            .advise("`--tar` writes a directory to standard output, as an archive"));
    }
    Ok(Some(source))
}

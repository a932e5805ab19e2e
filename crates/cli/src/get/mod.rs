//! `get`: copies files and trees out of an image, onto this machine or into a tar archive.
//!
//! | module | what it does |
//! | --- | --- |
//! | `select` | finds what was named, also by patterns |
//! | `place` | decides where the copy goes, and opens that place |
//! | `extract` | makes names: walks the image and creates one object after the other |
//! | `directory` | a directory of the copy, and when it is complete |
//! | `content` | copies a file's bytes with its holes, in several threads |
//! | `partial` | a file's temporary name until it is complete |
//! | `earlier` | what an interrupted run left that need not be copied again |
//! | `metadata` | owner, mode, extended attributes, times, and which of them lend rights |
//! | `tar`, `pax` | the archive |
//! | `progress`, `told` | the bar; the names that `--verbose` prints |
//!
//! The image is hostile. Every name is created relative to the open directory it belongs to, with flags that
//! follow no link and accept nothing that exists (or replace the name itself, on request), so no name and no link in the image can lead outside the
//! destination: a link is only ever created, never walked through.

mod content;
mod directory;
mod earlier;
mod extract;
mod metadata;
mod partial;
mod pax;
mod place;
mod progress;
mod select;
mod tar;
mod told;

use std::io::{self, IsTerminal};
use std::path::Path;
use std::sync::Arc;

use serde::Serialize;
use undercroft_vfs::{Error, FileType, Node, Vfs};

use crate::commands::cat;
use crate::exit::Kind;
use crate::failure::{Complaints, Failure};
use crate::plan::{Destination, Existing, Format, GetPlan};
use crate::text::human;
use crate::text::out::Out;

use metadata::Lost;
use place::Place;
use progress::Progress;
use select::Source;
use told::Told;

/// What was copied.
#[derive(Clone, Copy, Debug, Default, Serialize)]
struct Summary {
    files: u64,
    directories: u64,
    symlinks: u64,
    /// Further names of files that were already copied.
    hard_links: u64,
    /// Fifos, sockets and device nodes.
    special: u64,
    /// Bytes that were read and written; holes are not.
    content_bytes: u64,
    /// Files, links and special files that an interrupted run had copied.
    already_there: u64,
    /// Files, links and special files that were there and are as new as the originals (`--update`).
    up_to_date: u64,
    /// What the copy lacks.
    not_kept: Lost,
}

impl Summary {
    fn count(&mut self, kind: FileType) {
        match kind {
            FileType::Regular => self.files += 1,
            FileType::Directory => self.directories += 1,
            FileType::Symlink => self.symlinks += 1,
            FileType::Fifo | FileType::Socket | FileType::CharDevice | FileType::BlockDevice => {
                self.special += 1;
            }
        }
    }
}

/// Copies what is named.
pub(crate) fn run(vfs: &Vfs, plan: &GetPlan, format: Format) -> Result<Option<Kind>, Failure> {
    let mut complaints = Complaints::default();
    let is_single = select::is_single(plan);
    if let Destination::Path { dest, .. } = &plan.to
        && !is_single
    {
        place::require_directory(dest)?;
    }
    let sources = select::select(vfs, plan, &mut complaints)?;
    if sources.is_empty() && complaints.outcome().is_some() {
        // An archive or a summary of nothing would look like success.
        return Ok(complaints.outcome());
    }
    let expected = match &sources[..] {
        [source] => expected_bytes(vfs, &source.node),
        _ => None,
    };
    let progress = Progress::new(expected);
    let to_stdout = format == Format::Text && matches!(plan.to, Destination::Path { .. });
    let told = plan.verbose.then_some(if to_stdout { Told::Stdout } else { Told::Stderr });
    match &plan.to {
        Destination::Tar => {
            if io::stdout().is_terminal() {
                return Err(Failure::new(Kind::Usage, "a tar archive is not for a terminal")
                    .advise("send it into a file or a pipe"));
            }
            tar::write(vfs, plan, &sources, told, &progress, &mut complaints)?;
        }
        Destination::Content => {
            if let Some(source) = select::only_file(&sources)? {
                told.map_or(Ok(()), |told| told.name(&source.path))?;
                return cat::run(vfs, std::slice::from_ref(&source.path));
            }
        }
        Destination::Path { dest, existing } => {
            let mut placed = Vec::with_capacity(sources.len());
            for source in sources {
                match place_of(vfs, &source, dest, *existing, is_single) {
                    Ok(place) => placed.push((source, place)),
                    Err(failure) if is_single => return Err(failure),
                    Err(failure) => complaints.add(failure)?,
                }
            }
            let summary = extract::run(vfs, plan, placed, told, &progress, &mut complaints)?;
            progress.finish();
            report(summary, format)?;
        }
    }
    Ok(complaints.outcome())
}

fn place_of(
    vfs: &Vfs,
    source: &Source,
    dest: &Path,
    existing: Existing,
    is_single: bool,
) -> Result<Place, Failure> {
    let Source { path, node } = source;
    if !is_single {
        return place::among_others(dest, path, existing);
    }
    if existing == Existing::Resume {
        // What cannot be looked up is left for the copy to tell.
        let has = |name: &[u8]| !matches!(vfs.lookup(node, name), Err(Error::NotFound));
        return place::go_on(dest, path, node.kind(), has);
    }
    place::decide(dest, path, existing)
}

/// How much there is to read, where that can be known without walking the tree first.
fn expected_bytes(vfs: &Vfs, node: &Arc<Node>) -> Option<u64> {
    let attr = node.attr();
    match attr.kind {
        FileType::Regular => Some(attr.sectors.saturating_mul(512).min(attr.size_bytes)),
        FileType::Directory if attr.ino == vfs.filesystem().root() => {
            let stat = vfs.filesystem().statfs().ok()?;
            Some(stat.blocks.saturating_sub(stat.blocks_free).saturating_mul(stat.block_bytes.into()))
        }
        _ => None,
    }
}

fn report(summary: Summary, format: Format) -> Result<(), Failure> {
    let mut out = Out::stdout();
    if format == Format::Json {
        out.json(&summary)?;
    } else if out.terminal {
        use std::io::Write;
        let mut parts = vec![human::counted(summary.files, "file")];
        match summary.directories {
            0 => {}
            1 => parts.push("1 directory".to_owned()),
            many => parts.push(format!("{} directories", human::count(many))),
        }
        for (number, noun) in [
            (summary.symlinks, "symbolic link"),
            (summary.hard_links, "hard link"),
            (summary.special, "special file"),
        ] {
            if number > 0 {
                parts.push(human::counted(number, noun));
            }
        }
        if summary.already_there > 0 {
            parts.push(format!("{} copied by an earlier run", human::count(summary.already_there)));
        }
        if summary.up_to_date > 0 {
            parts.push(format!("{} as new and left", human::count(summary.up_to_date)));
        }
        writeln!(out, "copied {}; {} of content", parts.join(", "), human::size(summary.content_bytes))?;
    }
    out.finish()
}

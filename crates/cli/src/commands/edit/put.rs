//! `put` and `tar-in`: files of this machine, or of an archive, go into an image.
//!
//! The writer of `undercroft-populate` puts entry after entry, each name in one step. It follows symbolic links of the
//! image within it, and none that the same source has made.

use std::env;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use undercroft_populate::{
    DirectorySource, Entry, EntryKind, EntryPath, Error, FileId, OpenSource, Source, SourceError,
    SourceErrorKind, Writer, WriterOptions, is_image_layout, open_source,
};
use undercroft_vfs::{Error as VfsError, FileType, Node, Vfs};

use super::names;
use super::place::{Destination, Made, Place, split};
use super::session::Session;
use crate::commands::mkfs::fill::kind;
use crate::exit::Kind;
use crate::failure::{Complaints, Failure};
use crate::image;
use crate::pattern::Exclude;
use crate::plan::edit::{Put, PutOwner, TarIn};
use crate::text::names::{join, safe};
use crate::text::note::note;

/// Bytes of content moved at once.
const CHUNK_BYTES: usize = 1 << 20;

/// How the entries of a source are changed before they are put.
struct Rules<'a> {
    owner: Owner,
    exclude: &'a Exclude,
}

/// Numbers of an owner; `None` stays as the source has it.
#[derive(Clone, Copy)]
struct Owner {
    uid: Option<u32>,
    gid: Option<u32>,
}

impl Owner {
    fn of(vfs: &Vfs, owner: &PutOwner) -> Result<Self, Failure> {
        let (uid, gid) = match owner {
            PutOwner::Root => (Some(0), Some(0)),
            PutOwner::AsItIs => (None, None),
            PutOwner::Given(owner) => names::owner(vfs, owner)?,
        };
        Ok(Self { uid, gid })
    }
}

/// Where the entries of a source go.
struct Target {
    /// The directory that they are put into, and its path.
    base: Arc<Node>,
    path: Vec<u8>,
    /// What the paths of the source begin with, and what is put in its place.
    from: Vec<u8>,
    to: EntryPath,
    /// The entry of the source's own directory is put too.
    with_top: bool,
    /// The source is an archive, which messages name.
    is_archive: bool,
}

/// Puts files and trees of this machine.
pub(super) fn run(session: &Session, plan: &Put) -> Result<Option<Kind>, Failure> {
    let vfs = session.vfs();
    let rules = Rules { owner: Owner::of(vfs, &plan.owner)?, exclude: &plan.exclude };
    let dest = Destination::of(vfs, &plan.dest, plan.as_name, true, plan.sources.len() > 1)?;
    let mut complaints = Complaints::default();
    let mut made = Made::default();
    for source in &plan.sources {
        match put_one(session, source, &dest, &rules, plan.one_file_system, &mut made) {
            Ok(()) => complaints.done_some(),
            Err(failure) => complaints.add(failure)?,
        }
    }
    Ok(complaints.outcome())
}

fn put_one(
    session: &Session,
    path: &Path,
    dest: &Destination,
    rules: &Rules<'_>,
    one_file_system: bool,
    made: &mut Made,
) -> Result<(), Failure> {
    let name = own_name(path);
    let (mut source, target) = match name {
        Some(name) => named(session, path, name, dest, made)?,
        None => content_of(session, path, dest)?,
    };
    source = source.leaving_out(rules.exclude.of_rooted()).within_one_file_system(one_file_system);
    copy(&session.opened.vfs, &mut source, &target, rules)?;
    if let Some(name) = name {
        made.add(name);
    }
    Ok(())
}

/// The name that a path on this machine ends in; `None` for one that stands for what is in a directory.
fn own_name(path: &Path) -> Option<&[u8]> {
    let bytes = path.as_os_str().as_bytes();
    let name = split(bytes).map_or(bytes, |(_, name)| name);
    (!matches!(name, b"" | b"." | b".." | b"/")).then_some(name)
}

/// A file or a tree under its own name, or under that of the destination.
fn named(
    session: &Session,
    path: &Path,
    name: &[u8],
    dest: &Destination,
    made: &Made,
) -> Result<(DirectorySource, Target), Failure> {
    let shown = || safe(path.as_os_str().as_bytes());
    let bytes = path.as_os_str().as_bytes();
    let found = match bytes.ends_with(b"/") {
        true => path.metadata(),
        false => path.symlink_metadata(),
    }
    .map_err(|error| Failure::host(shown(), &error))?;
    let is_directory = found.is_dir();
    if session.file == Some(FileId::of(&found)) {
        return Err(Failure::new(Kind::Host, format!("{} is the image itself", shown())));
    }
    let vfs = session.vfs();
    let place = match dest {
        Destination::Into { dir, path } => Place::below(dir, path, name),
        Destination::As(dest) if is_directory => Place::of(vfs, dest)?,
        Destination::As(dest) => Place::followed(vfs, dest)?,
    };
    if place.is_directory && !is_directory {
        return Err(place.failure(&VfsError::NotDirectory));
    }
    if !is_directory {
        made.refuse(&place, bytes)?;
    }
    match place.node(vfs)?.map(|node| node.kind()) {
        Some(FileType::Directory) if !is_directory => return Err(place.failure(&VfsError::IsDirectory)),
        Some(kind) if is_directory && kind != FileType::Directory => {
            return Err(place.failure(&VfsError::NotDirectory));
        }
        _ => {}
    }
    let left_out = session.file.into_iter();
    let source = if bytes.ends_with(b"/") {
        // A slash behind it follows a symbolic link.
        DirectorySource::open(path, left_out)
    } else {
        let above = path.parent().filter(|above| !above.as_os_str().is_empty());
        DirectorySource::only(above.unwrap_or(Path::new(".")), name, left_out)
    };
    let from = if bytes.ends_with(b"/") { Vec::new() } else { name.to_vec() };
    let to = EntryPath::new(&place.name).map_err(|error| Failure::of(Kind::Usage, &error))?;
    let above = split(&place.path).map_or(&b"/"[..], |(above, _)| above).to_vec();
    let with_top = from.is_empty();
    let source = source.map_err(|error| source_failure(&error))?;
    Ok((source, Target { base: place.dir, path: above, from, to, with_top, is_archive: false }))
}

/// What is in a directory, into the destination.
fn content_of(
    session: &Session,
    path: &Path,
    dest: &Destination,
) -> Result<(DirectorySource, Target), Failure> {
    let source = DirectorySource::open(path, session.file).map_err(|error| source_failure(&error))?;
    let (from, to) = (Vec::new(), EntryPath::root());
    match dest {
        Destination::Into { dir, path } => {
            let (base, path) = (Arc::clone(dir), path.clone());
            Ok((source, Target { base, path, from, to, with_top: false, is_archive: false }))
        }
        Destination::As(dest) => {
            let place = Place::of(session.vfs(), dest)?;
            let to = EntryPath::new(&place.name).map_err(|error| Failure::of(Kind::Usage, &error))?;
            let above = split(&place.path).map_or(&b"/"[..], |(above, _)| above).to_vec();
            Ok((source, Target { base: place.dir, path: above, from, to, with_top: true, is_archive: false }))
        }
    }
}

/// Unpacks an archive.
pub(super) fn tar_in(session: &Session, plan: &TarIn) -> Result<(), Failure> {
    let vfs = session.vfs();
    let rules = Rules { owner: Owner::of(vfs, &plan.owner)?, exclude: &plan.exclude };
    let base = image::resolve(vfs, &plan.dir, true)?;
    if base.kind() != FileType::Directory {
        return Err(Failure::inside(&plan.dir, &VfsError::NotDirectory));
    }
    if plan.tar.is_dir() && !is_image_layout(&plan.tar) {
        let what = format!("{} is a directory and no archive", safe(plan.tar.as_os_str().as_bytes()));
        return Err(Failure::new(Kind::Host, what).advise("`undercroft put` copies directories"));
    }
    let mut source = archive_source(&plan.tar)?;
    let (from, to) = (Vec::new(), EntryPath::root());
    let target = Target { base, path: plan.dir.clone(), from, to, with_top: true, is_archive: true };
    copy(&session.opened.vfs, &mut *source, &target, &rules)
}

/// What is read once, as `mkfs --from` knows sources: an archive, or an image of containers; `-` is standard input.
pub(crate) fn archive_source(typed: &Path) -> Result<Box<dyn Source>, Failure> {
    let how = OpenSource {
        not_these: Vec::new(),
        left_out: None,
        one_file_system: false,
        keep_in: env::temp_dir(),
        most_bytes: u64::MAX,
        platform: None,
        is_read_once: true,
    };
    open_source(typed, &how).map_err(|error| source_failure(&error))
}

/// Puts all entries of a source.
fn copy(vfs: &Arc<Vfs>, source: &mut dyn Source, target: &Target, rules: &Rules<'_>) -> Result<(), Failure> {
    let archive = target.is_archive.then(|| source.name().to_owned());
    let refused = |error: Error| failure(&target.path, archive.as_deref(), &error);
    let mut writer =
        Writer::new(Arc::clone(vfs), Arc::clone(&target.base), WriterOptions::default()).in_one_step();
    if let Err(failure) = copy_entries(&mut writer, source, target, rules) {
        writer.give_up();
        return Err(failure);
    }
    let filled = writer.finish().map_err(refused)?;
    if filled.unkept_xattrs.count > 0 {
        note(filled.unkept_xattrs);
    }
    Ok(())
}

fn copy_entries(
    writer: &mut Writer,
    source: &mut dyn Source,
    target: &Target,
    rules: &Rules<'_>,
) -> Result<(), Failure> {
    let archive = target.is_archive.then(|| source.name().to_owned());
    let refused = |error: Error| failure(&target.path, archive.as_deref(), &error);
    let mut buffer = vec![0; CHUNK_BYTES];
    while let Some(entry) = source.next_entry().map_err(|error| source_failure(&error))? {
        let entry = changed(entry, source.name(), target, rules).map_err(|error| source_failure(&error))?;
        let Some(entry) = entry else { continue };
        let has_content = matches!(entry.kind, EntryKind::Regular(_));
        writer.put(entry).map_err(refused)?;
        while has_content
            && let Some(piece) = source.read_content(&mut buffer).map_err(|error| source_failure(&error))?
        {
            let bytes = buffer.get(..piece.len).unwrap_or_default();
            writer.write(piece.offset, bytes).map_err(refused)?;
        }
    }
    Ok(())
}

/// An entry as it is put; `None` if it is left out.
fn changed(
    mut entry: Entry,
    source_name: &str,
    target: &Target,
    rules: &Rules<'_>,
) -> Result<Option<Entry>, SourceError> {
    if entry.path.is_root() && !target.with_top || rules.leave_out(&entry.path) {
        return Ok(None);
    }
    if let EntryKind::HardLink(to) = &entry.kind {
        if rules.leave_out(to) {
            // What has that name in the image is another file.
            let shown = safe(&[b"/", to.as_bytes()].concat());
            let what = format!("it is a hard link to {shown}, which is left out");
            let error = SourceError::new(source_name, SourceErrorKind::Refused(what));
            return Err(error.at_member(entry.path.as_bytes()));
        }
        let Some(to) = target.moved(to) else { return Ok(None) };
        entry.kind = EntryKind::HardLink(to);
    }
    let Some(path) = target.moved(&entry.path) else { return Ok(None) };
    entry.path = path;
    entry.metadata.uid = rules.owner.uid.unwrap_or(entry.metadata.uid);
    entry.metadata.gid = rules.owner.gid.unwrap_or(entry.metadata.gid);
    Ok(Some(entry))
}

impl Rules<'_> {
    /// Whether what is at a path of the source is left out.
    fn leave_out(&self, path: &EntryPath) -> bool {
        self.exclude.has_or_is_below(&[b"/", path.as_bytes()].concat())
    }
}

impl Target {
    /// Where a path of the source goes.
    fn moved(&self, path: &EntryPath) -> Option<EntryPath> {
        let below = path.as_bytes().strip_prefix(&self.from[..])?;
        EntryPath::new(&[self.to.as_bytes(), b"/", below].concat()).ok()
    }
}

/// What is said of a source that cannot be read, with the exit code of `mkfs --from`.
pub(crate) fn source_failure(error: &SourceError) -> Failure {
    Failure::of(kind(&error.kind), error)
}

/// The same of an entry that the image refused. The archive that it is of is named: `archive`.
fn failure(base: &[u8], archive: Option<&str>, error: &Error) -> Failure {
    let failure = match error {
        Error::Filesystem { path, error, .. } => Failure::inside(&join(base, path.as_bytes()), error),
        Error::Entry { path, what, .. } => {
            Failure::new(Kind::Path, format!("{}: {what}", safe(&join(base, path.as_bytes()))))
        }
        Error::Source(error) => return source_failure(error),
        error @ Error::Reader => return Failure::of(Kind::Host, error),
    };
    match archive {
        Some(archive) => failure.of_archive(&safe(archive.as_bytes())),
        None => failure,
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::own_name;

    #[test]
    fn a_path_that_ends_in_no_name_stands_for_what_is_in_it() {
        for (path, name) in [
            ("a", Some("a")),
            ("a/b/", Some("b")),
            ("/a", Some("a")),
            (".", None),
            ("a/.", None),
            ("a/..", None),
            ("/", None),
        ] {
            assert_eq!(own_name(Path::new(path)), name.map(str::as_bytes), "{path}");
        }
    }
}

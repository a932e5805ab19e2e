//! `write`: standard input becomes the content of a file, or is added to it.
//!
//! At a terminal the text ends with Ctrl-D, and Ctrl-C abandons it (`typing`).

use std::io::{self, IsTerminal, Read, Seek, Write as _};

use undercroft_vfs::{AttrChange, Error, File, FileType, InodeFlags, NewTime, Vfs, XattrMode};

use super::metadata;
use super::place::Place;
use super::session::CALLER;
use super::typing::{Typed, Typing};
use crate::exit::Kind;
use crate::failure::Failure;
use crate::plan::edit::Write;

/// Bytes read and written at once.
const CHUNK_BYTES: usize = 1 << 20;

/// A block of a map of 1 KiB has 84 extents; there is at least one block of data for each of them.
const DATA_BLOCKS_PER_MAP_BLOCK: u64 = 64;

/// Blocks of a map beside that: its levels, each of which may split.
const MAP_BLOCKS: u64 = 8;

/// A collected text that is longer goes to a temporary file of the host.
const IN_MEMORY_MAX_BYTES: usize = 16 << 20;

pub(super) fn run(vfs: &Vfs, plan: &Write) -> Result<(), Failure> {
    let place = Place::followed(vfs, &plan.path)?;
    if place.is_directory {
        return Err(place.failure(&Error::IsDirectory));
    }
    let found = place.node(vfs)?;
    if let Some(node) = &found {
        refuse_unless_file(&place, node.kind())?;
    }
    let inside = |error: Error| place.failure(&error);
    if let (Some(node), true) = (&found, plan.append) {
        let file = vfs.open_node_for_writing(node).map_err(inside)?;
        return append(vfs, &place, &file);
    }
    let file = place.nameless(vfs, 0o666).map_err(inside)?;
    copy_stdin(&place, &file)?;
    if let Some(old) = &found {
        metadata::keep_of_replaced(vfs, old, file.node()).map_err(inside)?;
    }
    if let Some(mode) = &plan.mode {
        let before = if found.is_some() { file.node().attr().permissions } else { 0o666 };
        let change = AttrChange { permissions: Some(mode.apply(before, false)), ..AttrChange::default() };
        vfs.set_attr(&CALLER, file.node(), &change).map_err(inside)?;
    }
    place.publish(vfs, &file, found.is_some()).map_err(inside)
}

fn refuse_unless_file(place: &Place, kind: FileType) -> Result<(), Failure> {
    match kind {
        FileType::Regular => Ok(()),
        FileType::Directory => Err(place.failure(&Error::IsDirectory)),
        _ => Err(place.failure(&Error::InvalidArgument("it is no regular file"))),
    }
}

fn copy_stdin(place: &Place, file: &File) -> Result<(), Failure> {
    let mut at = 0;
    stdin_in_chunks(|chunk| {
        file.write_all_at(at, chunk).map_err(|error| place.failure(&error))?;
        at += chunk.len() as u64;
        Ok(())
    })
}

/// Adds standard input to the end of a file.
///
/// A text that is typed is collected first, so that the file is as before until the text has ended, whatever signal ends
/// the program; so is one for an append-only file, from which nothing can be taken again. Everything else is added as it
/// comes.
fn append(vfs: &Vfs, place: &Place, file: &File) -> Result<(), Failure> {
    let is_append_only = file.node().attr().flags.contains(InodeFlags::APPEND);
    if !io::stdin().is_terminal() && !is_append_only {
        return add_or_undo(vfs, place, file, |addition| stdin_in_chunks(|chunk| addition.add(chunk)));
    }
    let room = match is_append_only {
        true => room_behind(vfs, file).map_err(|error| place.failure(&error))?,
        false => u64::MAX,
    };
    let up_to_limit = vfs.filesystem().limits().file_max_bytes.saturating_sub(file.size_bytes());
    // Alive until the file is as before or has all of the text: SIGINT ends the program in neither.
    let typing = Typing::begin();
    let mut text = tempfile::spooled_tempfile(IN_MEMORY_MAX_BYTES);
    let kept = |error: io::Error| {
        Failure::host("cannot keep the text in the host's temporary directory", &error)
            .advise("set TMPDIR to a directory that has room for the text")
    };
    let mut len = 0;
    read_in_chunks(typing.as_ref(), |chunk| {
        len += chunk.len() as u64;
        if len > up_to_limit {
            return Err(place.failure(&Error::FileTooLarge));
        }
        if len > room {
            return Err(place.failure(&Error::NoSpace));
        }
        text.write_all(chunk).map_err(kept)
    })?;
    if typing.as_ref().is_some_and(Typing::is_abandoned) {
        return Err(abandoned());
    }
    text.rewind().map_err(kept)?;
    add_or_undo(vfs, place, file, |addition| {
        let mut buffer = vec![0; CHUNK_BYTES];
        loop {
            match text.read(&mut buffer).map_err(kept)? {
                0 => return Ok(()),
                read => addition.add(&buffer[..read])?,
            }
        }
    })
}

/// How many bytes fit behind the end of a file: those of its last block, and of the blocks that are available to all users, less
/// one in [`DATA_BLOCKS_PER_MAP_BLOCK`] and [`MAP_BLOCKS`] for the file's map.
fn room_behind(vfs: &Vfs, file: &File) -> undercroft_vfs::Result<u64> {
    let space = vfs.filesystem().statfs()?;
    let block_bytes = u64::from(space.block_bytes);
    let size = file.size_bytes();
    let in_last_block = size.next_multiple_of(block_bytes) - size;
    let for_maps = space.blocks_available.div_ceil(DATA_BLOCKS_PER_MAP_BLOCK) + MAP_BLOCKS;
    let blocks = space.blocks_available.saturating_sub(for_maps);
    Ok(in_last_block.saturating_add(blocks.saturating_mul(block_bytes)))
}

/// Bytes that are added to the end of a file.
struct Addition<'a> {
    place: &'a Place,
    file: &'a File,
    is_begun: bool,
    is_append_only: bool,
}

impl Addition<'_> {
    fn add(&mut self, mut bytes: &[u8]) -> Result<(), Failure> {
        let inside = |error: Error| self.place.failure(&error);
        if !self.is_begun && !self.is_append_only {
            self.is_begun = true;
            self.file.drop_capabilities().map_err(inside)?;
        }
        while !bytes.is_empty() {
            let (_, written) = self.file.append(bytes).map_err(inside)?;
            bytes = &bytes[written..];
            if !self.is_begun {
                // They cannot be given back, and stay if nothing can be added.
                self.is_begun = true;
                self.file.drop_capabilities().map_err(inside)?;
            }
        }
        Ok(())
    }
}

/// Adds bytes to a file. If that fails the file gets its old size, time of modification and capabilities back.
fn add_or_undo(
    vfs: &Vfs,
    place: &Place,
    file: &File,
    add: impl FnOnce(&mut Addition<'_>) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let node = file.node();
    let (size, modified) = (file.size_bytes(), node.attr().modified);
    let capabilities = node.xattr(metadata::CAPABILITIES).map_err(|error| place.failure(&error))?;
    let is_append_only = node.attr().flags.contains(InodeFlags::APPEND);
    let mut addition = Addition { place, file, is_begun: false, is_append_only };
    let Err(failure) = add(&mut addition) else { return Ok(()) };
    if !addition.is_begun {
        return Err(failure);
    }
    let undo = || {
        if file.size_bytes() > size {
            file.truncate(size)?;
        }
        if let Some(capabilities) = &capabilities {
            vfs.set_xattr(&CALLER, node, metadata::CAPABILITIES, capabilities, XattrMode::Set)?;
        }
        let change = AttrChange { modified: Some(NewTime::At(modified)), ..AttrChange::default() };
        vfs.set_attr(&CALLER, node, &change)
    };
    match undo() {
        Ok(()) => Err(failure),
        Err(error) if file.size_bytes() == size => {
            let what = "its content is as before, and its capabilities or time of modification are not";
            Err(failure.noting(format!("{what}: {error}")))
        }
        Err(error) => {
            let what = format!("part of the text stays at its end, because it cannot be cut off: {error}");
            Err(failure.noting(what))
        }
    }
}

/// Hands over standard input in pieces.
fn stdin_in_chunks(take: impl FnMut(&[u8]) -> Result<(), Failure>) -> Result<(), Failure> {
    let typing = Typing::begin();
    read_in_chunks(typing.as_ref(), take)?;
    if typing.is_some_and(Typing::end) { Err(abandoned()) } else { Ok(()) }
}

fn read_in_chunks(
    typing: Option<&Typing>,
    mut take: impl FnMut(&[u8]) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let mut stdin = io::stdin().lock();
    let mut read = |buffer: &mut [u8]| match typing {
        Some(typing) => typing.read(buffer),
        None => stdin.read(buffer).map(Typed::Bytes),
    };
    let mut buffer = vec![0; CHUNK_BYTES];
    let mut has_ended = false;
    while !has_ended {
        let mut filled = 0;
        while filled < buffer.len() {
            match read(&mut buffer[filled..]) {
                // A terminal would go on behind its end.
                Ok(Typed::Bytes(0)) => {
                    has_ended = true;
                    break;
                }
                Ok(Typed::Bytes(read)) => filled += read,
                Ok(Typed::Abandoned) => return Err(abandoned()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(Failure::host("cannot read standard input", &error)),
            }
        }
        if filled > 0 {
            take(&buffer[..filled])?;
        }
    }
    Ok(())
}

fn abandoned() -> Failure {
    Failure::new(Kind::Host, "the text was abandoned, and nothing is changed")
}

/// All of standard input, if it is not longer than `limit`.
pub(super) fn whole_stdin(limit: usize) -> Result<Vec<u8>, Failure> {
    let mut all = Vec::new();
    stdin_in_chunks(|chunk| {
        all.extend_from_slice(chunk);
        if all.len() > limit {
            let what = format!("standard input has more than {limit} bytes");
            return Err(Failure::new(Kind::Usage, what));
        }
        Ok(())
    })?;
    Ok(all)
}

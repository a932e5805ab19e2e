//! `write`: standard input becomes the content of a file, or is added to it.
//!
//! At a terminal the text ends with Ctrl-D, and Ctrl-C abandons it (`typing`).

use std::io::{self, Read};

use undercroft_vfs::{AttrChange, Error, File, FileType, Vfs};

use super::metadata;
use super::place::Place;
use super::session::CALLER;
use super::typing::{Typed, Typing};
use crate::exit::Kind;
use crate::failure::Failure;
use crate::plan::edit::Write;

/// Bytes read and written at once.
const CHUNK_BYTES: usize = 1 << 20;

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
        return append(&place, &file);
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
    each_chunk(|chunk| {
        file.write_all_at(at, chunk).map_err(|error| place.failure(&error))?;
        at += chunk.len() as u64;
        Ok(())
    })
}

/// Adds standard input to the end of a file, which gets its old size back if that fails.
fn append(place: &Place, file: &File) -> Result<(), Failure> {
    let before = file.size_bytes();
    let inside = |error: Error| place.failure(&error);
    let mut is_begun = false;
    let added = each_chunk(|chunk| {
        if !is_begun {
            file.drop_capabilities().map_err(inside)?;
            is_begun = true;
        }
        let mut rest = chunk;
        while !rest.is_empty() {
            let (_, written) = file.append(rest).map_err(inside)?;
            rest = &rest[written..];
        }
        Ok(())
    });
    if added.is_err() && file.size_bytes() > before {
        file.truncate(before).map_err(inside)?;
    }
    added
}

/// Hands over standard input in pieces.
fn each_chunk(mut take: impl FnMut(&[u8]) -> Result<(), Failure>) -> Result<(), Failure> {
    let typing = Typing::begin();
    let mut stdin = io::stdin().lock();
    let mut read = |buffer: &mut [u8]| match &typing {
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
    if typing.is_some_and(Typing::end) { Err(abandoned()) } else { Ok(()) }
}

fn abandoned() -> Failure {
    Failure::new(Kind::Host, "the text was abandoned, and nothing is changed")
}

/// All of standard input, if it is not longer than `limit`.
pub(super) fn whole_stdin(limit: usize) -> Result<Vec<u8>, Failure> {
    let mut all = Vec::new();
    each_chunk(|chunk| {
        all.extend_from_slice(chunk);
        if all.len() > limit {
            let what = format!("standard input has more than {limit} bytes");
            return Err(Failure::new(Kind::Usage, what));
        }
        Ok(())
    })?;
    Ok(all)
}

//! `cat`: the bytes of files, one after the other, holes as zeroes.

use std::io::Write;

use undercroft_vfs::{Credentials, Vfs};

use crate::exit::Kind;
use crate::failure::{Complaints, Failure};

/// Bytes read at once: many extents' worth, and small beside the heap.
const CHUNK_BYTES: usize = 1 << 20;

/// Writes the files to standard output; a file that fails does not keep the others back.
pub(crate) fn run(vfs: &Vfs, paths: &[Vec<u8>]) -> Result<Option<Kind>, Failure> {
    let mut stdout = std::io::stdout().lock();
    let mut complaints = Complaints::default();
    let mut buffer = vec![0; CHUNK_BYTES];
    for path in paths {
        match file(vfs, path, &mut buffer, &mut stdout) {
            Ok(()) => complaints.done_some(),
            Err(failure) => complaints.add(failure)?,
        }
    }
    stdout.flush()?;
    Ok(complaints.outcome())
}

fn file(vfs: &Vfs, path: &[u8], buffer: &mut [u8], stdout: &mut impl Write) -> Result<(), Failure> {
    let inside = |error| Failure::inside(path, &error);
    let file = vfs.open(&Credentials::root(), path).map_err(inside)?;
    let mut offset = 0;
    loop {
        let read = file.read_at(offset, buffer).map_err(inside)?;
        if read == 0 {
            return Ok(());
        }
        stdout.write_all(&buffer[..read])?;
        offset += read as u64;
    }
}

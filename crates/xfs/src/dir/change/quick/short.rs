//! A name added to a directory in its inode, or removed from it.

use undercroft_vfs::{Error, FileType, Ino, Result};

use super::super::super::entry::entry_bytes;
use super::super::super::short::{ShortDirectory, dots_end};
use super::super::edit::is_same_folded;
use super::super::raw::{ENTRY_BYTES, get16};
use super::{GiveNumber, Quick, Touch};
use crate::dir::code_of;
use crate::error::Verdict;
use crate::format::{AgIno, AgNumber};
use crate::inode::{Fork, Inode};

/// Numbers above this one take eight bytes.
const SHORT_INO_MAX: u64 = u32::MAX as u64;

/// What a block needs at its end, beside an index entry for each name and for `.` and `..`.
const TAIL_BYTES: usize = 8;

/// A name that was found: the bytes of its entry, and where it leads.
struct Hit {
    at: usize,
    len: usize,
    ino: u64,
}

impl Quick<'_> {
    pub(super) fn add_short(&self, kind: FileType, number: GiveNumber<'_>, touch: Touch<'_>) -> Result<bool> {
        let mut fields = self.dir.fields.write();
        let Fork::Local(content) = &fields.data else { return Ok(false) };
        let place = self.look_short(content);
        let (hit, place) = place.map_err(|detail| self.corrupt(None, detail))?;
        if hit.is_some() {
            return Err(Error::Exists);
        }
        let is_wide = content[1] > 0;
        let len = 3 + self.name.len() + usize::from(self.layout.has_kinds) + if is_wide { 8 } else { 4 };
        let room = fields.core.data_fork.len();
        let (Some(place), true) = (place, content.len() + len <= room && content[0] < u8::MAX) else {
            return Ok(false);
        };
        // Numbers of the other length would change all entries.
        if !is_wide && self.has_wide_inos() || content[1] == u8::MAX {
            return Ok(false);
        }
        let mut bytes = Vec::with_capacity(content.len() + len);
        bytes.extend_from_slice(content);
        bytes[0] += 1;
        bytes.push(self.name.len() as u8);
        bytes.extend_from_slice(&(place as u16).to_be_bytes());
        bytes.extend_from_slice(self.name);
        if self.layout.has_kinds {
            bytes.push(code_of(kind));
        }
        let ino = number()?;
        bytes[1] += u8::from(ino.0 > SHORT_INO_MAX);
        bytes.extend_from_slice(&ino.0.to_be_bytes()[if is_wide { 0 } else { 4 }..]);
        self.store_short(&mut fields, bytes, touch)
    }

    pub(super) fn remove_short(&self, ino: Ino, touch: Touch<'_>) -> Result<bool> {
        let mut fields = self.dir.fields.write();
        let Fork::Local(content) = &fields.data else { return Ok(false) };
        let (hit, _) = self.look_short(content).map_err(|detail| self.corrupt(None, detail))?;
        let hit = hit.filter(|hit| hit.ino == ino.0).ok_or(Error::NotFound)?;
        let is_wide = ino.0 > SHORT_INO_MAX;
        // Without the last wide number all entries become shorter.
        if is_wide && content[1] == 1 {
            return Ok(false);
        }
        let mut bytes = Vec::with_capacity(content.len() - hit.len);
        bytes.extend_from_slice(&content[..hit.at]);
        bytes.extend_from_slice(&content[hit.at + hit.len..]);
        bytes[0] -= 1;
        bytes[1] -= u8::from(is_wide);
        self.store_short(&mut fields, bytes, touch)
    }

    /// The name, if it is there; and the place in a block that the next name would have, if it comes behind all others.
    fn look_short(&self, content: &[u8]) -> Verdict<(Option<Hit>, Option<usize>)> {
        let short = ShortDirectory::validate(content, &self.layout)?;
        let ino_bytes = if content[1] == 0 { 4 } else { 8 };
        let mut at = 2 + ino_bytes;
        let (mut hit, mut hit_is_equal) = (None, false);
        let (mut end, mut count) = (dots_end(&self.layout), 0);
        for entry in short.entries() {
            let len = 3 + entry.name.len() + usize::from(self.layout.has_kinds) + ino_bytes;
            if !get16(content, at + 1).is_multiple_of(8) {
                return Err("has a name whose place lies within another's".into());
            }
            let is_equal = entry.name == self.name;
            let is_it =
                is_equal || hit.is_none() && self.layout.folds_case && is_same_folded(entry.name, self.name);
            if is_it && !hit_is_equal {
                (hit, hit_is_equal) = (Some(Hit { at, len, ino: entry.ino }), is_equal);
            }
            at += len;
            end = entry.next.split(&self.layout).1;
            count += 1;
        }
        let index = (count + 3) * ENTRY_BYTES + TAIL_BYTES;
        let fits = end + entry_bytes(&self.layout, self.name.len()) + index <= self.layout.dir_block_bytes;
        Ok((hit, fits.then_some(end)))
    }

    /// Whether a number of the filesystem may take eight bytes.
    fn has_wide_inos(&self) -> bool {
        let geometry = self.volume.geometry();
        let last = AgNumber(geometry.ag_count().saturating_sub(1));
        geometry.join_ino(last, AgIno(0)).is_none_or(|last| last.0 > SHORT_INO_MAX)
    }

    fn store_short(&self, fields: &mut Inode, bytes: Vec<u8>, touch: Touch<'_>) -> Result<bool> {
        fields.core.size_bytes = bytes.len() as u64;
        fields.data = Fork::Local(bytes.into());
        touch(fields);
        let stored = fields.store(self.handle);
        self.handle.or_abort(stored)?;
        self.dir.lazy_times.clear();
        Ok(true)
    }
}

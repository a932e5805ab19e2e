//! Header and records of one member, as one entry.

use std::collections::HashSet;
use std::ops::Range;

use undercroft_vfs::{DeviceNumber, Timestamp};

use super::acl;
use super::framing::Framing;
use super::header::{Header, no_number};
use super::names::Numbers;
use super::pax::{Layered, decimal, time};
use super::sparse::{self, Form};
use crate::path::PATH_MAX_BYTES;
use crate::{Content, Entry, EntryKind, EntryPath, Metadata, PathError, SourceErrorKind, Xattr};

/// In front of the names of libarchive's records of attributes.
const LIBARCHIVE_XATTR: &[u8] = b"LIBARCHIVE.xattr.";

/// A member, with what records say over its header.
pub(super) struct Member<'a> {
    header: Header,
    records: Layered<'a>,
    metadata: Metadata,
}

impl<'a> Member<'a> {
    pub(super) fn new(
        header: Header,
        records: Layered<'a>,
        numbers: &mut Numbers<'_>,
    ) -> Result<Self, SourceErrorKind> {
        let id = |key: &[u8], own: Result<u32, SourceErrorKind>, what: &str| match value(records, key) {
            Some(text) => {
                let id = u32::try_from(decimal(text, what)?).ok().filter(|&id| id != u32::MAX);
                id.ok_or_else(|| no_number(what))
            }
            None => own,
        };
        let uid = id(b"uid", header.uid(), "owner")?;
        let gid = id(b"gid", header.gid(), "group")?;
        numbers.names.learn(&header, uid, gid);
        let modified = match value(records, b"mtime") {
            Some(text) => time(text)?,
            None => Timestamp { seconds: header.modified()?, nanoseconds: 0 },
        };
        let accessed = value(records, b"atime").map(time).transpose()?;
        let permissions = header.permissions()?;
        let xattrs = xattrs(records, numbers)?;
        let metadata = Metadata { uid, gid, permissions, modified, accessed, xattrs };
        Ok(Self { header, records, metadata })
    }

    fn value(&self, key: &[u8]) -> Option<&[u8]> {
        value(self.records, key)
    }

    /// The entry, and for a regular file where it has data. Its content is what the framing gives next.
    pub(super) fn into_entry(
        self,
        framing: &mut Framing,
    ) -> Result<(Entry, Vec<Range<u64>>), SourceErrorKind> {
        let path = self.value(b"GNU.sparse.name").or_else(|| self.value(b"path"));
        let path = path.map_or_else(|| self.header.path(), <[u8]>::to_vec);
        let target = self.value(b"linkpath").unwrap_or_else(|| self.header.link());
        let mut data = Vec::new();
        let kind = match self.header.typeflag() {
            // Before there was a kind of its own for directories.
            b'0' | 0 | b'7' if path.ends_with(b"/") => self.directory(framing)?,
            b'0' | 0 | b'7' => {
                let content;
                (content, data) = self.content(framing)?;
                EntryKind::Regular(content)
            }
            b'S' => {
                let content;
                (content, data) = self.old_sparse(framing)?;
                EntryKind::Regular(content)
            }
            b'1' => EntryKind::HardLink(entry_path(target, "it is a hard link to a path that")?),
            b'2' if target.is_empty() => {
                return Err(SourceErrorKind::Malformed("it is a symbolic link to nothing".into()));
            }
            b'2' => EntryKind::Symlink(target.into()),
            b'3' => EntryKind::CharDevice(self.device()?),
            b'4' => EntryKind::BlockDevice(self.device()?),
            b'5' => EntryKind::Directory,
            // With a list of names behind it, which says nothing more.
            b'D' => self.directory(framing)?,
            b'6' => EntryKind::Fifo,
            b'M' => {
                let what = "it is the rest of a file that another volume of the archive begins with";
                return Err(SourceErrorKind::Unsupported(what.into()));
            }
            other => {
                let what = format!("members of the kind {:?} are not known", char::from(other));
                return Err(SourceErrorKind::Unsupported(what));
            }
        };
        let path = entry_path(&path, "its path")?;
        Ok((Entry { path, kind, metadata: self.metadata }, data))
    }

    /// How many bytes follow the header.
    fn stored(&self) -> Result<u64, SourceErrorKind> {
        match self.value(b"size") {
            Some(text) => decimal(text, "size"),
            None => self.header.size(),
        }
    }

    fn directory(&self, framing: &mut Framing) -> Result<EntryKind, SourceErrorKind> {
        framing.expect_content(self.stored()?);
        Ok(EntryKind::Directory)
    }

    fn content(&self, framing: &mut Framing) -> Result<(Content, Vec<Range<u64>>), SourceErrorKind> {
        let mut stored = self.stored()?;
        framing.expect_content(stored);
        let Some(form) = Form::of(self.records)? else {
            let whole = std::iter::once(0..stored).filter(|range| !range.is_empty()).collect();
            return Ok((Content::whole(stored), whole));
        };
        let size = self.value(b"GNU.sparse.realsize").or_else(|| self.value(b"GNU.sparse.size"));
        let size_bytes = decimal(size.unwrap_or_default(), "size")?;
        let parts = form.parts(self.records, framing, &mut stored)?;
        sparse_content(&parts, size_bytes, stored)
    }

    fn old_sparse(&self, framing: &mut Framing) -> Result<(Content, Vec<Range<u64>>), SourceErrorKind> {
        let parts = sparse::old(&self.header, framing)?;
        let stored = self.stored()?;
        framing.expect_content(stored);
        sparse_content(&parts, self.header.sparse_size()?, stored)
    }

    fn device(&self) -> Result<DeviceNumber, SourceErrorKind> {
        let part = |key: &[u8]| {
            let number = self.value(key).map(|text| decimal(text, "device number")).transpose()?;
            number.map(|number| u32::try_from(number).map_err(|_| no_number("device number"))).transpose()
        };
        let own = self.header.device();
        match (part(b"SCHILY.devmajor")?, part(b"SCHILY.devminor")?) {
            (Some(major), Some(minor)) => Ok(DeviceNumber { major, minor }),
            (major, minor) => {
                let own = own?;
                Ok(DeviceNumber { major: major.unwrap_or(own.major), minor: minor.unwrap_or(own.minor) })
            }
        }
    }
}

/// A value that is not empty: an empty one stands for none.
fn value<'a>(records: Layered<'a>, key: &[u8]) -> Option<&'a [u8]> {
    records.get(key).filter(|value| !value.is_empty())
}

fn sparse_content(
    parts: &[(u64, u64)],
    size_bytes: u64,
    stored: u64,
) -> Result<(Content, Vec<Range<u64>>), SourceErrorKind> {
    let data = sparse::check(parts, size_bytes, stored)?;
    Ok((Content { size_bytes, data: Some(data.clone().into()) }, data))
}

fn entry_path(bytes: &[u8], what: &str) -> Result<EntryPath, SourceErrorKind> {
    EntryPath::new(bytes).map_err(|error| match error {
        PathError::Upwards => SourceErrorKind::Refused(format!("{what} has a \"..\" in it")),
        PathError::Nul => SourceErrorKind::Malformed(format!("{what} has a NUL byte in it")),
        PathError::PathTooLong => {
            SourceErrorKind::TooLarge(format!("{what} has more than {PATH_MAX_BYTES} bytes"))
        }
        PathError::NameTooLong => {
            SourceErrorKind::TooLarge(format!("{what} has a name in it that is longer than Linux allows"))
        }
    })
}

/// The extended attributes that records have, and the access control lists.
fn xattrs(records: Layered<'_>, numbers: &mut Numbers<'_>) -> Result<Vec<Xattr>, SourceErrorKind> {
    let mut xattrs: Vec<Xattr> = Vec::new();
    let mut known = HashSet::new();
    let mut add = |name: Vec<u8>, value: Box<[u8]>| {
        if known.insert(name.clone()) {
            xattrs.push(Xattr { name: name.into(), value });
        }
    };
    let wrong = || SourceErrorKind::Malformed("an extended attribute of it is damaged".into());
    for (name, value) in records.with_prefix(b"SCHILY.xattr.") {
        // libarchive writes each attribute twice, with the same name.
        let is_of_libarchive = records.get(&[LIBARCHIVE_XATTR, name].concat()).is_some();
        let name =
            if is_of_libarchive { percent_decoded(name).ok_or_else(wrong)? } else { gnu_decoded(name) };
        add(name, value.into());
    }
    for (name, value) in records.with_prefix(LIBARCHIVE_XATTR) {
        add(percent_decoded(name).ok_or_else(wrong)?, base64(value).ok_or_else(wrong)?.into());
    }
    if let Some(label) = value(records, b"RHT.security.selinux") {
        let mut label = label.to_vec();
        if label.last() != Some(&0) {
            label.push(0);
        }
        add(b"security.selinux".to_vec(), label.into());
    }
    for (key, name) in [
        (&b"SCHILY.acl.access"[..], &b"system.posix_acl_access"[..]),
        (b"SCHILY.acl.default", b"system.posix_acl_default"),
    ] {
        // The binary list takes precedence: the text may name users whose numbers are not known.
        if let Some(text) = value(records, key).filter(|_| xattrs.iter().all(|xattr| *xattr.name != *name))
            && let Some(list) = acl::from_text(text, numbers)?
        {
            xattrs.push(Xattr { name: name.into(), value: list });
        }
    }
    Ok(xattrs)
}

/// A name in which GNU tar has written `=` and `%` in another way, and nothing else.
fn gnu_decoded(name: &[u8]) -> Vec<u8> {
    let mut decoded = Vec::with_capacity(name.len());
    let mut rest = name;
    while let Some((&byte, after)) = rest.split_first() {
        let (byte, after) = match rest {
            [b'%', b'3', b'D', after @ ..] => (b'=', after),
            [b'%', b'2', b'5', after @ ..] => (b'%', after),
            _ => (byte, after),
        };
        decoded.push(byte);
        rest = after;
    }
    decoded
}

/// A name in which bytes may be written as `%2A`.
fn percent_decoded(name: &[u8]) -> Option<Vec<u8>> {
    let mut decoded = Vec::with_capacity(name.len());
    let mut rest = name.iter();
    while let Some(&byte) = rest.next() {
        if byte != b'%' {
            decoded.push(byte);
            continue;
        }
        let digits = [*rest.next()?, *rest.next()?];
        decoded.push(u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?);
    }
    Some(decoded)
}

/// Bytes written in the 64 letters of RFC 4648, with or without `=` at the end.
fn base64(text: &[u8]) -> Option<Vec<u8>> {
    let text = text.strip_suffix(b"==").or_else(|| text.strip_suffix(b"=")).unwrap_or(text);
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3 + 2);
    for group in text.chunks(4) {
        let mut bits = 0_u32;
        for &letter in group {
            let value = match letter {
                b'A'..=b'Z' => letter - b'A',
                b'a'..=b'z' => letter - b'a' + 26,
                b'0'..=b'9' => letter - b'0' + 52,
                b'+' => 62,
                b'/' => 63,
                _ => return None,
            };
            bits = bits << 6 | u32::from(value);
        }
        let whole = match group.len() {
            4 => 3,
            3 => 2,
            2 => 1,
            _ => return None,
        };
        bits <<= 6 * (4 - group.len());
        bytes.extend_from_slice(&bits.to_be_bytes()[1..=whole]);
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_of_libarchive_are_decoded() {
        assert_eq!(base64(b"AQAAAgAgAAAAAAAAAAAAAAAAAAA=").unwrap().len(), 20);
        for (text, bytes) in
            [("", &b""[..]), ("TQ", b"M"), ("TWE=", b"Ma"), ("TWFu", b"Man"), ("/+8", b"\xff\xef")]
        {
            assert_eq!(base64(text.as_bytes()).as_deref(), Some(bytes), "{text}");
        }
        assert_eq!(base64(b"A"), None);
        assert_eq!(base64(b"A?=="), None);
        assert_eq!(percent_decoded(b"user.a%3Db").as_deref(), Some(&b"user.a=b"[..]));
        assert_eq!(percent_decoded(b"user.a%3"), None);
        assert_eq!(gnu_decoded(b"user.a%3Db%253D%C3%3"), b"user.a=b%3D%C3%3");
    }
}

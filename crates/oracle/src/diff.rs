//! Telling two trees apart, in words a person can work with.

use std::fmt::{self, Debug};

use crate::error::shown;
use crate::manifest::{Entry, Manifest, Reading};

/// How many differences are reported in full; the rest is counted.
const TOLD: usize = 25;

/// The differences between what was expected and what was found.
#[derive(Debug, Default)]
pub struct Differences {
    told: Vec<String>,
    count: usize,
}

impl Differences {
    /// Compares two trees. Flags and identities are compared where `expected` has them.
    #[must_use]
    pub fn between(expected: &Manifest, found: &Manifest) -> Self {
        let mut differences = Self::default();
        if let Some(space) = expected.space {
            differences.field("(statfs)", "space", &Some(space), &found.space);
        }
        for (path, entry) in &expected.entries {
            match found.entries.get(path) {
                None => differences.tell(format!("/{}: missing", shown(path))),
                Some(other) if entry == other => {}
                Some(other) => differences.entry(&format!("/{}", shown(path)), entry, other),
            }
        }
        for path in found.entries.keys().filter(|path| !expected.entries.contains_key(*path)) {
            differences.tell(format!("/{}: should not exist", shown(path)));
        }
        differences
    }

    /// How many there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.count
    }

    /// Fails the test when there are any.
    ///
    /// # Panics
    /// With the first of them.
    pub fn assert_none(&self, what: &str) {
        assert!(self.count == 0, "{what}: {self}");
    }

    fn tell(&mut self, difference: String) {
        self.count += 1;
        if self.told.len() < TOLD {
            self.told.push(difference);
        }
    }

    fn field<T: PartialEq + Debug>(&mut self, path: &str, name: &str, expected: &T, found: &T) {
        if expected != found {
            self.tell(format!("{path}: {name}: expected {expected:?}, found {found:?}"));
        }
    }

    fn entry(&mut self, path: &str, expected: &Entry, found: &Entry) {
        self.field(path, "inode", &expected.ino, &found.ino);
        self.field(path, "type in the directory", &expected.listed_type, &found.listed_type);
        self.field(path, "inode in the directory", &expected.listed_ino, &found.listed_ino);
        self.field(path, "mode", &Octal(expected.mode), &Octal(found.mode));
        self.field(path, "links", &expected.links, &found.links);
        self.field(path, "uid", &expected.uid, &found.uid);
        self.field(path, "gid", &expected.gid, &found.gid);
        self.field(path, "rdev", &expected.rdev, &found.rdev);
        self.field(path, "size", &expected.size, &found.size);
        self.field(path, "sectors", &expected.sectors, &found.sectors);
        self.field(path, "I/O size", &expected.io_bytes, &found.io_bytes);
        self.field(path, "atime", &expected.accessed, &found.accessed);
        self.field(path, "mtime", &expected.modified, &found.modified);
        self.field(path, "ctime", &expected.changed, &found.changed);
        self.field(path, "btime", &expected.created, &found.created);
        if expected.flags.is_some() {
            self.field(path, "flags", &expected.flags.map(Hex), &found.flags.map(Hex));
        }
        if expected.identity.is_some() {
            self.field(path, "identity", &expected.identity, &found.identity);
        }
        self.field(path, "dots", &expected.dots, &found.dots);
        self.field(
            path,
            "target",
            &expected.target.as_deref().map(shown),
            &found.target.as_deref().map(shown),
        );
        self.xattrs(path, expected, found);
        self.content(path, expected.content.as_ref(), found.content.as_ref());
    }

    fn xattrs(&mut self, path: &str, expected: &Entry, found: &Entry) {
        for (name, value) in &expected.xattrs {
            let name_shown = shown(name);
            match found.xattrs.get(name) {
                None => self.tell(format!("{path}: xattr {name_shown} is missing")),
                Some(other) if other == value => {}
                Some(other) => self.tell(format!(
                    "{path}: xattr {name_shown}: expected {} bytes {}, found {} bytes {}",
                    value.len(),
                    shown(value),
                    other.len(),
                    shown(other)
                )),
            }
        }
        for name in found.xattrs.keys().filter(|name| !expected.xattrs.contains_key(*name)) {
            self.tell(format!("{path}: xattr {} should not exist", shown(name)));
        }
    }

    fn content(&mut self, path: &str, expected: Option<&Reading>, found: Option<&Reading>) {
        let (Some(Reading::Bytes(expected)), Some(Reading::Bytes(found))) = (expected, found) else {
            let tell = |reading: Option<&Reading>| match reading {
                None => "nothing",
                Some(Reading::NoKey) => "encrypted content",
                Some(Reading::Bytes(_)) => "bytes",
            };
            return self.field(path, "content", &tell(expected), &tell(found));
        };
        let differing = expected.segments.iter().zip(&found.segments).position(|(a, b)| a != b);
        let first = differing.unwrap_or_else(|| expected.segments.len().min(found.segments.len()));
        if expected.segments != found.segments {
            self.tell(format!(
                "{path}: data segment {first} of {}: expected {:?}, found {:?} of {}",
                expected.segments.len(),
                expected.segments.get(first),
                found.segments.get(first),
                found.segments.len()
            ));
        }
        if (expected.data_sha256, expected.sha256) != (found.data_sha256, found.sha256) {
            self.tell(format!("{path}: the bytes differ"));
        }
    }
}

impl fmt::Display for Differences {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} differences", self.count)?;
        for difference in &self.told {
            write!(f, "\n  {difference}")?;
        }
        if self.count > self.told.len() {
            write!(f, "\n  and {} more", self.count - self.told.len())?;
        }
        Ok(())
    }
}

#[derive(PartialEq)]
struct Octal(u32);

impl Debug for Octal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#o}", self.0)
    }
}

#[derive(PartialEq)]
struct Hex(u32);

impl Debug for Hex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(change: impl FnOnce(&mut Entry)) -> Manifest {
        let mut entry = Entry {
            ino: 12,
            listed_type: None,
            listed_ino: Some(12),
            mode: 0o100_644,
            links: 1,
            uid: 0,
            gid: 0,
            rdev: (0, 0),
            size: 0,
            sectors: 0,
            io_bytes: 4096,
            accessed: (0, 0),
            modified: (0, 0),
            changed: (0, 0),
            created: None,
            flags: None,
            identity: None,
            xattrs: [(b"user.a".to_vec(), b"1".to_vec())].into(),
            target: None,
            dots: None,
            content: None,
        };
        change(&mut entry);
        Manifest { entries: [(b"file\xff".to_vec(), entry)].into(), space: None }
    }

    #[test]
    fn equal_trees_do_not_differ() {
        assert_eq!(Differences::between(&tree(|_| ()), &tree(|_| ())).count(), 0);
    }

    #[test]
    fn each_difference_names_path_field_and_both_sides() {
        let found = tree(|entry| {
            entry.mode = 0o100_600;
            entry.xattrs.clear();
        });
        let differences = Differences::between(&tree(|_| ()), &found);
        let text = differences.to_string();
        assert_eq!(differences.count(), 2, "{text}");
        assert!(text.contains(r"/file\xff: mode: expected 0o100644, found 0o100600"), "{text}");
        assert!(text.contains(r"/file\xff: xattr user.a is missing"), "{text}");
    }

    #[test]
    fn missing_and_surplus_names_are_differences() {
        let empty = Manifest::default();
        assert_eq!(Differences::between(&tree(|_| ()), &empty).count(), 1);
        assert_eq!(Differences::between(&empty, &tree(|_| ())).count(), 1);
    }

    #[test]
    fn flags_are_compared_where_they_are_known() {
        let told = tree(|entry| entry.flags = Some(0x10));
        let other = tree(|entry| entry.flags = Some(0));
        assert_eq!(Differences::between(&told, &other).count(), 1);
        assert_eq!(Differences::between(&tree(|_| ()), &other).count(), 0);
    }
}

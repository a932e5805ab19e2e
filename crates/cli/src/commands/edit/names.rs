//! Users and groups by name, as the image's own `/etc/passwd` and `/etc/group` have them. `root` is 0 everywhere, also where
//! there are no such files.

use undercroft_vfs::{Error, Vfs};

use super::session::CALLER;
use crate::exit::Kind;
use crate::failure::Failure;
use crate::plan::edit::{GroupSpec, Id, OwnerSpec};
use crate::text::names::safe;

const USERS: &[u8] = b"/etc/passwd";
const GROUPS: &[u8] = b"/etc/group";
/// Its numbers, and that of its group, need no look-up.
const ROOT: &[u8] = b"root";
/// As large as such a file is read.
const FILE_MAX_BYTES: u64 = 64 << 20;
/// Fields of a line that are looked at: name, password, number, and the group of a user.
const FIELDS: usize = 4;

/// The number of a user.
pub(in crate::commands) fn user(vfs: &Vfs, user: &Id) -> Result<u32, Failure> {
    match user {
        Id::Number(number) => Ok(*number),
        Id::Name(name) => field(vfs, USERS, name, 2),
    }
}

/// The number of a group.
pub(in crate::commands) fn group(vfs: &Vfs, group: &Id) -> Result<u32, Failure> {
    match group {
        Id::Number(number) => Ok(*number),
        Id::Name(name) => field(vfs, GROUPS, name, 2),
    }
}

/// The numbers of an owner; what is not said is `None`.
pub(super) fn owner(vfs: &Vfs, owner: &OwnerSpec) -> Result<(Option<u32>, Option<u32>), Failure> {
    let uid = owner.user.as_ref().map(|id| user(vfs, id)).transpose()?;
    let gid = match (&owner.group, &owner.user) {
        (None, _) | (Some(GroupSpec::OfUser), None) => None,
        (Some(GroupSpec::Is(id)), _) => Some(group(vfs, id)?),
        (Some(GroupSpec::OfUser), Some(Id::Name(name))) => Some(field(vfs, USERS, name, 3)?),
        (Some(GroupSpec::OfUser), Some(Id::Number(number))) => {
            let content = read(vfs, USERS)?;
            let own = lines(&content).find(|fields| parse(fields.get(2)) == Some(*number));
            let gid = own.and_then(|fields| parse(fields.get(3)));
            Some(gid.ok_or_else(|| {
                let what = format!("no user {number} is in {} of the image", safe(USERS));
                Failure::new(Kind::Path, what).advise(format!("write its group too, as in {number}:{number}"))
            })?)
        }
    };
    Ok((uid, gid))
}

/// A number in the line of a name.
fn field(vfs: &Vfs, file: &[u8], name: &[u8], at: usize) -> Result<u32, Failure> {
    if name == ROOT {
        return Ok(0);
    }
    let content = read(vfs, file).map_err(|failure| {
        failure.advise(format!("{} is looked up there; a number needs no look-up", safe(name)))
    })?;
    let found = lines(&content).find(|fields| fields.first() == Some(&name));
    found.and_then(|fields| parse(fields.get(at))).ok_or_else(|| {
        let what = format!("{} is not in {} of the image", safe(name), safe(file));
        Failure::new(Kind::Path, what).advise("write its number")
    })
}

fn read(vfs: &Vfs, path: &[u8]) -> Result<Vec<u8>, Failure> {
    let inside = |error: Error| Failure::inside(path, &error);
    if vfs.open(&CALLER, path).map_err(inside)?.size_bytes() > FILE_MAX_BYTES {
        return Err(inside(Error::FileTooLarge));
    }
    vfs.read(&CALLER, path).map_err(inside)
}

/// The first fields of each line, no more than are needed: the image decides how many there are.
fn lines(content: &[u8]) -> impl Iterator<Item = Vec<&[u8]>> {
    let fields = |line| <[u8]>::split(line, |byte| *byte == b':').take(FIELDS).collect();
    content.split(|byte| *byte == b'\n').map(fields)
}

fn parse(field: Option<&&[u8]>) -> Option<u32> {
    std::str::from_utf8(field?).ok()?.parse().ok().filter(|id| *id != u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::{FIELDS, lines, parse};

    #[test]
    fn only_the_first_fields_of_a_line_are_kept() {
        let content = [&b"anna:x:1234:77:A:/:/bin/sh\nroot:x\n"[..], &[b':'; 1000]].concat();
        let lines: Vec<_> = lines(&content).collect();
        assert_eq!(lines.iter().map(Vec::len).collect::<Vec<_>>(), [FIELDS, 2, FIELDS]);
        assert_eq!((parse(lines[0].get(2)), parse(lines[0].get(3))), (Some(1234), Some(77)));
    }
}

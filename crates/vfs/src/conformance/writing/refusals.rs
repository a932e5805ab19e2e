//! What is refused, and which refusal comes first where several apply.
//!
//! The answers are those of Linux 6.18, on whose own tmpfs the same rows were run. After each row nothing may have
//! changed, times included.

use std::sync::Arc;

use super::super::outcome::Finds;
use super::ground::{Checked, Ground, ROOT, user};
use crate::{Credentials, InodeFlags, NewKind, NewObject, Node, RenameFlags, Result};

/// What there is to begin with: path, owner and permissions; what ends with a slash is a directory.
const THERE: [(&str, u32, u16); 37] = [
    ("file", 0, 0o644),
    ("other", 0, 0o644),
    ("dir/", 0, 0o755),
    ("full/", 0, 0o755),
    ("full/x", 0, 0o644),
    ("full/sub/", 0, 0o755),
    ("open/", 0, 0o777),
    ("open/file", 1000, 0o644),
    ("open/dir/", 1000, 0o755),
    ("open/full/", 1000, 0o755),
    ("open/full/x", 1000, 0o644),
    ("open/locked/", 0, 0o755),
    ("closed/", 0, 0o755),
    ("closed/file", 0, 0o644),
    ("closed/dir/", 0, 0o755),
    ("closed/full/", 0, 0o755),
    ("closed/full/x", 0, 0o644),
    ("sticky/", 0, 0o1777),
    ("sticky/file", 0, 0o644),
    ("sticky/mine", 1000, 0o644),
    ("sticky/dir/", 0, 0o755),
    ("sticky/full/", 0, 0o755),
    ("sticky/full/x", 0, 0o644),
    ("shut/", 0, 0o700),
    ("shut/file", 0, 0o644),
    ("frozen/", 0, 0o777),
    ("frozen/file", 0, 0o644),
    ("frozen/dir/", 0, 0o755),
    ("growing/", 0, 0o777),
    ("growing/file", 0, 0o644),
    ("growing/dir/", 0, 0o755),
    ("stone/", 0, 0o755),
    ("stone/file", 0, 0o644),
    ("fixed", 0, 0o644),
    ("nailed", 0, 0o644),
    ("fixed.d/", 0, 0o755),
    ("fixed.d/file", 0, 0o644),
];

/// What cannot be changed, and what can only be added to.
const FROZEN: [(&str, InodeFlags); 6] = [
    ("frozen", InodeFlags::IMMUTABLE),
    ("stone", InodeFlags::IMMUTABLE),
    ("fixed", InodeFlags::IMMUTABLE),
    ("fixed.d", InodeFlags::IMMUTABLE),
    ("growing", InodeFlags::APPEND),
    ("nailed", InodeFlags::APPEND),
];

/// For the superuser. `LONG` is a name that is too long by one byte; a rename says its flags after a minus sign:
/// `n` for not replacing, `x` for an exchange, `w` for a whiteout, `?` for one that does not exist.
const OF_ROOT: &[(&str, &str)] = &[
    ("create file", "Exists"),
    ("create dir", "Exists"),
    ("create link", "Exists"),
    ("create .", "Exists"),
    ("create ..", "Exists"),
    ("create LONG", "NameTooLong"),
    ("mkdir file", "Exists"),
    ("mkdir dir", "Exists"),
    ("mkdir .", "Exists"),
    ("mkdir ..", "Exists"),
    ("mkdir LONG", "NameTooLong"),
    ("symlink file", "Exists"),
    ("symlink .", "Exists"),
    ("fifo dir", "Exists"),
    ("fifo ..", "Exists"),
    ("create file/x", "NotDirectory"),
    ("mkdir link/x", "NotDirectory"),
    ("link file other", "Exists"),
    ("link file dir", "Exists"),
    ("link file .", "Exists"),
    ("link file LONG", "NameTooLong"),
    ("link dir x", "NotPermitted"),
    ("link dir file", "Exists"),
    ("link file file", "Exists"),
    ("link file other/x", "NotDirectory"),
    ("unlink missing", "NotFound"),
    ("unlink dir", "IsDirectory"),
    ("unlink full", "IsDirectory"),
    ("unlink .", "IsDirectory"),
    ("unlink ..", "IsDirectory"),
    ("unlink LONG", "NameTooLong"),
    ("unlink file/x", "NotDirectory"),
    ("rmdir missing", "NotFound"),
    ("rmdir file", "NotDirectory"),
    ("rmdir link", "NotDirectory"),
    ("rmdir full", "NotEmpty"),
    ("rmdir .", "InvalidArgument"),
    ("rmdir ..", "NotEmpty"),
    ("rmdir full/.", "InvalidArgument"),
    ("rmdir full/..", "NotEmpty"),
    ("rmdir LONG", "NameTooLong"),
    ("rmdir file/x", "NotDirectory"),
    ("rename missing x", "NotFound"),
    ("rename missing file", "NotFound"),
    ("rename missing dir", "NotFound"),
    ("rename file dir", "IsDirectory"),
    ("rename file full", "IsDirectory"),
    ("rename link dir", "IsDirectory"),
    ("rename dir file", "NotDirectory"),
    ("rename dir link", "NotDirectory"),
    ("rename dir full", "NotEmpty"),
    ("rename dir dir/x", "InvalidArgument"),
    ("rename full full/x", "InvalidArgument"),
    ("rename full full/sub", "InvalidArgument"),
    ("rename full full/sub/x", "InvalidArgument"),
    ("rename full/sub full", "NotEmpty"),
    ("rename full/x full", "NotEmpty"),
    ("rename full/x dir", "IsDirectory"),
    ("rename file file", "Ok"),
    ("rename file twin", "Ok"),
    ("rename dir dir", "Ok"),
    ("rename full full", "Ok"),
    ("rename . x", "Busy"),
    ("rename .. x", "Busy"),
    ("rename file .", "Busy"),
    ("rename file ..", "Busy"),
    ("rename missing .", "Busy"),
    ("rename . missing", "Busy"),
    ("rename LONG x", "NameTooLong"),
    ("rename file LONG", "NameTooLong"),
    ("rename missing LONG", "NotFound"),
    ("rename file/x y", "NotDirectory"),
    ("rename file other/x", "NotDirectory"),
    ("rename dir file/x", "NotDirectory"),
    ("rename-n missing x", "NotFound"),
    ("rename-n missing file", "NotFound"),
    ("rename-n file other", "Exists"),
    ("rename-n file file", "Exists"),
    ("rename-n file twin", "Exists"),
    ("rename-n file dir", "Exists"),
    ("rename-n dir file", "Exists"),
    ("rename-n full full/sub", "Exists"),
    ("rename-n full full/new", "InvalidArgument"),
    ("rename-n full/sub full", "Exists"),
    ("rename-n file .", "Exists"),
    ("rename-n file ..", "Exists"),
    ("rename-n . x", "Busy"),
    ("rename-x missing x", "NotFound"),
    ("rename-x missing file", "NotFound"),
    ("rename-x file missing", "NotFound"),
    ("rename-x dir missing", "NotFound"),
    ("rename-x full full/missing", "NotFound"),
    ("rename-x full full/sub", "InvalidArgument"),
    ("rename-x full full/x", "InvalidArgument"),
    ("rename-x full/sub full", "InvalidArgument"),
    ("rename-x full/x full", "InvalidArgument"),
    ("rename-x file file", "Ok"),
    ("rename-x file twin", "Ok"),
    ("rename-x file .", "Busy"),
    ("rename-x . file", "Busy"),
    ("rename-x file ..", "Busy"),
    ("rename-nx file other", "InvalidArgument"),
    ("rename-nx missing .", "InvalidArgument"),
    ("rename-xw file other", "InvalidArgument"),
    ("rename-? file x", "InvalidArgument"),
    ("rename-w missing x", "NotFound"),
    ("rename-w file dir", "IsDirectory"),
    ("rename-w dir full", "NotEmpty"),
    ("rename-nw file other", "Exists"),
    ("create fixed.d/x", "NotPermitted"),
    ("unlink fixed", "NotPermitted"),
    ("rename fixed x", "NotPermitted"),
    ("rename file fixed", "NotPermitted"),
    ("rename-x file fixed", "NotPermitted"),
    ("rename-x fixed file", "NotPermitted"),
    ("link fixed x", "NotPermitted"),
    ("link nailed x", "NotPermitted"),
    ("unlink nailed", "NotPermitted"),
    ("rename nailed x", "NotPermitted"),
    ("rename-x nailed file", "NotPermitted"),
    ("rmdir fixed.d", "NotPermitted"),
    ("rename fixed.d x", "NotPermitted"),
    ("rename dir fixed.d", "NotPermitted"),
    ("rename dir fixed.d/x", "NotPermitted"),
    ("create frozen/x", "NotPermitted"),
    ("create frozen/file", "Exists"),
    ("mkdir frozen/x", "NotPermitted"),
    ("symlink frozen/x", "NotPermitted"),
    ("link file frozen/x", "NotPermitted"),
    ("link file frozen/file", "Exists"),
    ("link dir frozen/x", "NotPermitted"),
    ("unlink frozen/file", "NotPermitted"),
    ("unlink frozen/missing", "NotFound"),
    ("unlink frozen/dir", "NotPermitted"),
    ("rmdir frozen/dir", "NotPermitted"),
    ("rmdir frozen/file", "NotPermitted"),
    ("rename frozen/file x", "NotPermitted"),
    ("rename file frozen/x", "NotPermitted"),
    ("rename file frozen/file", "NotPermitted"),
    ("rename-n file frozen/file", "Exists"),
    ("rename-x file frozen/file", "NotPermitted"),
    ("unlink growing/file", "NotPermitted"),
    ("unlink growing/dir", "NotPermitted"),
    ("rmdir growing/dir", "NotPermitted"),
    ("rmdir growing/file", "NotPermitted"),
    ("rename growing/file x", "NotPermitted"),
    ("rename file growing/file", "NotPermitted"),
    ("rename-x file growing/file", "NotPermitted"),
    ("rename growing/missing x", "NotFound"),
];

/// For a user that may write in `open` and in `sticky`.
const OF_USER: &[(&str, &str)] = &[
    ("create stone/x", "NotPermitted"),
    ("create stone/file", "Exists"),
    ("unlink stone/file", "NotPermitted"),
    ("unlink stone/missing", "NotFound"),
    ("rename open/file stone/x", "NotPermitted"),
    ("create closed/x", "PermissionDenied"),
    ("create closed/file", "Exists"),
    ("mkdir closed/x", "PermissionDenied"),
    ("mkdir closed/dir", "Exists"),
    ("symlink closed/x", "PermissionDenied"),
    ("link open/file closed/x", "PermissionDenied"),
    ("link open/file closed/file", "Exists"),
    ("link open/dir closed/x", "PermissionDenied"),
    ("link open/dir open/x", "NotPermitted"),
    ("unlink closed/file", "PermissionDenied"),
    ("unlink closed/missing", "NotFound"),
    ("unlink closed/dir", "PermissionDenied"),
    ("rmdir closed/dir", "PermissionDenied"),
    ("rmdir closed/full", "PermissionDenied"),
    ("rmdir closed/file", "PermissionDenied"),
    ("rmdir closed/missing", "NotFound"),
    ("rename closed/file open/x", "PermissionDenied"),
    ("rename open/file closed/x", "PermissionDenied"),
    ("rename open/file closed/file", "PermissionDenied"),
    ("rename open/file closed/dir", "PermissionDenied"),
    ("rename open/missing closed/x", "NotFound"),
    ("rename-n open/file closed/file", "Exists"),
    ("rename-x open/file closed/file", "PermissionDenied"),
    ("rename-x closed/file open/file", "PermissionDenied"),
    ("rename closed/missing open/x", "NotFound"),
    ("rename open/dir open/dir/x", "InvalidArgument"),
    ("rename open/locked open/dir/x", "PermissionDenied"),
    ("rename-x open/locked open/full/x", "PermissionDenied"),
    ("rename-x open/full/x open/locked", "PermissionDenied"),
    ("unlink sticky/file", "NotPermitted"),
    ("unlink sticky/dir", "NotPermitted"),
    ("rmdir sticky/dir", "NotPermitted"),
    ("rmdir sticky/full", "NotPermitted"),
    ("rmdir sticky/file", "NotPermitted"),
    ("unlink sticky/missing", "NotFound"),
    ("rename sticky/file open/x", "NotPermitted"),
    ("rename sticky/file sticky/x", "NotPermitted"),
    ("rename open/file sticky/file", "NotPermitted"),
    ("rename open/file sticky/dir", "NotPermitted"),
    ("rename-n open/file sticky/file", "Exists"),
    ("rename-x open/file sticky/file", "NotPermitted"),
    ("rename-x sticky/mine sticky/file", "NotPermitted"),
    ("create sticky/file", "Exists"),
    ("create shut/x", "PermissionDenied"),
    ("create shut/file", "PermissionDenied"),
    ("unlink shut/file", "PermissionDenied"),
    ("unlink shut/missing", "PermissionDenied"),
    ("rmdir shut/missing", "PermissionDenied"),
    ("rename shut/missing open/x", "PermissionDenied"),
    ("rename open/file shut/x", "PermissionDenied"),
    ("rename open/file shut/file", "PermissionDenied"),
    ("link open/file shut/x", "PermissionDenied"),
    ("create frozen/x", "NotPermitted"),
    ("unlink frozen/file", "NotPermitted"),
    ("create closed/LONG", "NameTooLong"),
    ("create closed/.", "Exists"),
    ("unlink closed/.", "IsDirectory"),
    ("rmdir closed/.", "InvalidArgument"),
];

pub(super) fn check(on: &mut Ground<'_>) -> Checked {
    for (path, uid, permissions) in THERE {
        make(on, path, uid, permissions)?;
    }
    let (top, file) = (Arc::clone(&on.top), find(on, "file")?);
    on.vfs.link(&ROOT, &file, &top, b"twin")?;
    let link = NewObject { kind: NewKind::Symlink(b"file"), permissions: 0o777, umask: 0 };
    on.vfs.create(&ROOT, &top, b"link", &link)?;
    for (path, flags) in FROZEN {
        on.freeze(&find(on, path)?, flags)?;
    }

    let before = on.snapshot()?;
    for (caller, rows) in [(ROOT, OF_ROOT), (user(), OF_USER)] {
        for (words, expected) in rows {
            let what = || format!("\"{words}\" by user {}", caller.uid);
            let answer = perform(on, &caller, words);
            match *expected {
                "Ok" => drop(on.ok(what, answer)),
                expected => on.refused(what, answer, expected),
            }
            let after = on.snapshot()?;
            if after != before {
                on.that(false, || format!("{} has changed something: {before:?}, now {after:?}", what()));
                break;
            }
        }
    }
    for (path, _) in FROZEN {
        on.freeze(&find(on, path)?, InodeFlags::empty())?;
    }
    Ok(())
}

fn make(on: &Ground<'_>, path: &str, uid: u32, permissions: u16) -> Result<()> {
    let (dir, name) = place(on, path.trim_end_matches('/'))?;
    let object =
        if path.ends_with('/') { NewObject::directory(permissions) } else { NewObject::file(permissions) };
    let node = on.vfs.create(&ROOT, &dir, &name, &object)?;
    on.chown(&node, uid, uid)
}

/// Does what a row says.
fn perform(on: &Ground<'_>, caller: &Credentials, words: &str) -> Result<()> {
    let (call, arguments) = words.split_once(' ').unwrap_or_default();
    let (first, second) = arguments.split_once(' ').unwrap_or((arguments, ""));
    let (dir, name) = place(on, first)?;
    let create = |kind| {
        let object = NewObject { kind, permissions: 0o644, umask: 0 };
        on.vfs.create(caller, &dir, &name, &object).map(drop)
    };
    match call {
        "create" => create(NewKind::Regular),
        "mkdir" => create(NewKind::Directory),
        "fifo" => create(NewKind::Fifo),
        "symlink" => create(NewKind::Symlink(b"target")),
        "unlink" => on.vfs.unlink(caller, &dir, &name),
        "rmdir" => on.vfs.rmdir(caller, &dir, &name),
        "link" => {
            let (to, to_name) = place(on, second)?;
            on.vfs.link(caller, &find(on, first)?, &to, &to_name)
        }
        _ => {
            let (to, to_name) = place(on, second)?;
            on.vfs.rename(caller, (&dir, &name), (&to, &to_name), rename_flags(call))
        }
    }
}

fn rename_flags(call: &str) -> RenameFlags {
    let letters = call.trim_start_matches("rename").chars();
    letters.fold(RenameFlags::empty(), |flags, letter| {
        flags
            | match letter {
                'n' => RenameFlags::NO_REPLACE,
                'x' => RenameFlags::EXCHANGE,
                'w' => RenameFlags::WHITEOUT,
                '?' => RenameFlags::from_bits_retain(8),
                _ => RenameFlags::empty(),
            }
    })
}

/// The directory and the name that a path below the check's directory stands for.
fn place(on: &Ground<'_>, path: &str) -> Result<(Arc<Node>, Vec<u8>)> {
    let (dir, name) = path.rsplit_once('/').unwrap_or(("", path));
    let too_long = on.vfs.filesystem().limits().name_max_bytes as usize + 1;
    let name = if name == "LONG" { vec![b'n'; too_long] } else { name.as_bytes().to_vec() };
    Ok((find(on, dir)?, name))
}

/// The node at a path below the check's directory. Symbolic links are not followed.
fn find(on: &Ground<'_>, path: &str) -> Result<Arc<Node>> {
    let mut at = Arc::clone(&on.top);
    for name in path.split('/').filter(|name| !name.is_empty()) {
        at = on.vfs.lookup(&at, name.as_bytes())?;
    }
    Ok(at)
}

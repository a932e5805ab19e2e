//! Which times change with what: of the content and of the inode, and which stay.
//!
//! Before each call the times of all inodes that it may concern are set far back; the rules are those of Linux's
//! tmpfs.

use std::sync::Arc;

use super::super::outcome::Finds;
use super::ground::{Checked, Ground, ROOT, read_all};
use crate::{AttrChange, DirOffset, NewObject, NewTime, Node, RenameFlags, Result, Timestamp, XattrMode};

const LONG_AGO: Timestamp = Timestamp { seconds: 1_000_000_000, nanoseconds: 0 };

/// What becomes of a node's times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Times {
    /// None changes.
    Stay,
    /// The time of the inode's change.
    Changed,
    /// Those of content and inode.
    Modified,
}
use Times::{Changed, Modified, Stay};

/// Sets times back, acts, and looks at the times.
fn after(
    on: &mut Ground<'_>,
    what: &str,
    expected: &[(&Arc<Node>, Times)],
    act: impl FnOnce(&Ground<'_>) -> Result<()>,
) -> Checked {
    let time = Some(NewTime::At(LONG_AGO));
    let back =
        AttrChange { accessed: time, modified: time, changed: Some(LONG_AGO), ..AttrChange::default() };
    for (node, _) in expected {
        on.change(node, back)?;
    }
    let created: Vec<_> = expected.iter().map(|(node, _)| node.attr().created).collect();
    let answer = act(on);
    on.ok(|| what.to_owned(), answer);
    for (place, (node, times)) in expected.iter().enumerate() {
        let attr = node.attr();
        let moved = (attr.modified != LONG_AGO, attr.changed != LONG_AGO, attr.accessed != LONG_AGO);
        let should = (*times == Modified, *times != Stay, false);
        let of = format!("after {what}, of its node {place}");
        on.equal(|| format!("(modified, changed, accessed) moved {of}"), &moved, &should);
        if *times == Modified {
            on.equal(|| format!("modified and changed {of}"), &attr.modified, &attr.changed);
        }
        on.equal(|| format!("created {of}"), &attr.created, &created[place]);
    }
    Ok(())
}

pub(super) fn check(on: &mut Ground<'_>) -> Checked {
    let (p, q) = (on.directory(&on.top, "p")?, on.directory(&on.top, "q")?);
    let (file, other) = (on.file(&p, "file")?, on.file(&q, "other")?);
    names(on, &p, &q, &file, &other)?;
    contents(on, &p, &file, &other)?;
    attributes(on, &p, &file)
}

fn names(on: &mut Ground<'_>, p: &Arc<Node>, q: &Arc<Node>, file: &Arc<Node>, other: &Arc<Node>) -> Checked {
    let plain = RenameFlags::empty();
    after(on, "create", &[(p, Modified)], |on| on.file(p, "new").map(drop))?;
    after(on, "mkdir", &[(p, Modified)], |on| on.directory(p, "sub").map(drop))?;
    after(on, "link", &[(file, Changed), (q, Modified), (p, Stay)], |on| on.vfs.link(&ROOT, file, q, b"l"))?;
    after(on, "unlink", &[(file, Changed), (q, Modified), (p, Stay)], |on| on.vfs.unlink(&ROOT, q, b"l"))?;
    let sub = on.vfs.lookup(p, b"sub")?;
    after(on, "a move within a directory", &[(file, Changed), (p, Modified), (q, Stay)], |on| {
        on.vfs.rename(&ROOT, (p, b"file"), (p, b"moved"), plain)
    })?;
    after(on, "a move", &[(file, Changed), (p, Modified), (q, Modified)], |on| {
        on.vfs.rename(&ROOT, (p, b"moved"), (q, b"file"), plain)
    })?;
    on.vfs.link(&ROOT, other, p, b"twin")?;
    let replacement = [(file, Changed), (other, Changed), (p, Modified), (q, Modified)];
    after(on, "a replacement", &replacement, |on| on.vfs.rename(&ROOT, (q, b"file"), (p, b"twin"), plain))?;
    let of_sub = if on.profile.holds.exchanged_directories_are_modified { Modified } else { Changed };
    after(on, "an exchange", &[(&sub, of_sub), (other, Changed), (p, Modified), (q, Modified)], |on| {
        on.vfs.rename(&ROOT, (p, b"sub"), (q, b"other"), RenameFlags::EXCHANGE)
    })?;
    after(on, "a move of a name to another of the same file", &[(file, Stay), (p, Stay)], |on| {
        on.vfs.rename(&ROOT, (p, b"twin"), (p, b"twin"), plain)
    })?;
    after(on, "rmdir", &[(q, Modified), (&sub, Changed)], |on| on.vfs.rmdir(&ROOT, q, b"other"))?;
    after(on, "a refusal", &[(p, Stay), (file, Stay)], |on| {
        on.vfs
            .create(&ROOT, p, b"twin", &NewObject::file(0o644))
            .map_or(Ok(()), |_| Err(crate::Error::Exists))
    })?;
    after(on, "looking", &[(p, Stay), (file, Stay)], |on| {
        on.vfs.lookup(p, b"twin")?;
        p.read_dir(DirOffset(0), &mut |_| std::ops::ControlFlow::Continue(()))
    })
}

fn contents(on: &mut Ground<'_>, p: &Arc<Node>, file: &Arc<Node>, other: &Arc<Node>) -> Checked {
    let (open, source) = (on.vfs.open_node_for_writing(file)?, on.vfs.open_node_for_writing(other)?);
    after(on, "a write that grows", &[(file, Modified), (p, Stay)], |_| {
        open.write_at(0, b"hello").map(drop)
    })?;
    after(on, "a write within", &[(file, Modified)], |_| open.write_at(1, b"a").map(drop))?;
    after(on, "an append", &[(file, Modified)], |_| open.append(b"more").map(drop))?;
    after(on, "a write of nothing", &[(file, Stay)], |_| open.write_at(0, b"").map(drop))?;
    after(on, "a read", &[(file, Stay)], |_| read_all(&open).map(drop))?;
    after(on, "cutting", &[(file, Modified)], |_| open.truncate(3))?;
    after(on, "cutting to the same size", &[(file, Modified)], |_| open.truncate(3))?;
    after(on, "a copy", &[(file, Stay), (other, Modified)], |_| open.copy_range(0, &source, 0, 3).map(drop))?;
    after(on, "a copy of nothing", &[(other, Stay)], |_| open.copy_range(3, &source, 0, 3).map(drop))
}

fn attributes(on: &mut Ground<'_>, p: &Arc<Node>, file: &Arc<Node>) -> Checked {
    after(on, "chmod", &[(file, Changed), (p, Stay)], |on| on.chmod(file, 0o600))?;
    after(on, "chown", &[(file, Changed), (p, Stay)], |on| on.chown(file, 5, 6))?;
    if on.profile.holds.xattrs {
        after(on, "setting an xattr", &[(file, Changed)], |on| {
            on.vfs.set_xattr(&ROOT, file, b"user.a", b"v", XattrMode::Set)
        })?;
        after(on, "reading an xattr", &[(file, Stay)], |on| {
            on.vfs.xattr(&ROOT, file, b"user.a")?;
            on.vfs.list_xattrs(&ROOT, file).map(drop)
        })?;
        after(on, "removing an xattr", &[(file, Changed)], |on| on.vfs.remove_xattr(&ROOT, file, b"user.a"))?;
    }
    let early = Timestamp { seconds: 5, nanoseconds: 0 };
    let both = AttrChange {
        accessed: Some(NewTime::At(early)),
        modified: Some(NewTime::At(early)),
        ..AttrChange::default()
    };
    on.change(file, both)?;
    let attr = file.attr();
    on.equal(|| "times that were set".to_owned(), &(attr.accessed, attr.modified), &(early, early));
    on.that(attr.changed > LONG_AGO, || "setting times leaves the time of change".to_owned());
    Ok(())
}

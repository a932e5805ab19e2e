//! Making, linking, moving and removing names: what is there afterwards.

use std::sync::Arc;

use super::super::outcome::Finds;
use super::super::remove::names_in;
use super::ground::{Checked, Ground, ROOT, user};
use crate::{DeviceNumber, FileType, NewKind, NewObject, Node, RenameFlags, Result};

pub(super) fn check(on: &mut Ground<'_>) -> Checked {
    kinds(on)?;
    moves(on)?;
    exchanges(on)?;
    whiteouts(on)?;
    lengths(on)?;
    removed_directories(on)
}

/// Whether `name` stands for `node`, or for nothing.
fn stands(on: &mut Ground<'_>, dir: &Arc<Node>, name: &str, node: Option<&Arc<Node>>) {
    let what = || format!("what \"{name}\" stands for");
    let found = on.vfs.lookup(dir, name.as_bytes());
    match node {
        None => on.refused(what, found, "NotFound"),
        Some(node) => {
            if let Some(found) = on.ok(what, found) {
                on.equal(what, &found.ino(), &node.ino());
            }
        }
    }
}

fn kinds(on: &mut Ground<'_>) -> Checked {
    let number = DeviceNumber { major: 259, minor: 300 };
    let caller = user();
    on.chmod(&on.top, 0o777)?;
    for (name, kind) in [
        ("file", NewKind::Regular),
        ("directory", NewKind::Directory),
        ("link", NewKind::Symlink(b"to/somewhere")),
        ("fifo", NewKind::Fifo),
        ("socket", NewKind::Socket),
        ("char", NewKind::CharDevice(number)),
        ("block", NewKind::BlockDevice(number)),
    ] {
        let object = NewObject { kind, permissions: 0o1767, umask: 0o027 };
        let attr = on.vfs.create(&caller, &on.top, name.as_bytes(), &object)?.attr();
        let file_type = kind.file_type();
        on.equal(|| format!("kind of {name}"), &attr.kind, &file_type);
        let permissions = if file_type == FileType::Symlink { 0o777 } else { 0o1740 };
        on.equal(|| format!("permissions of {name}"), &attr.permissions, &permissions);
        on.equal(|| format!("owner of {name}"), &(attr.uid, attr.gid), &(1000, 1000));
        on.equal(|| format!("links of {name}"), &attr.links, &(1 + u32::from(name == "directory")));
        let rdev = if matches!(name, "char" | "block") { number } else { DeviceNumber::default() };
        on.equal(|| format!("device of {name}"), &attr.rdev, &rdev);
        match name {
            "link" => on.equal(|| "size of link".to_owned(), &attr.size_bytes, &12),
            "file" => {
                on.equal(|| "size of file".to_owned(), &(attr.size_bytes, attr.sectors), &(0, 0));
            }
            _ => {}
        }
    }
    let link = on.vfs.lookup(&on.top, b"link")?;
    on.equal(|| "target".to_owned(), &link.read_link()?, &b"to/somewhere".to_vec());
    on.chmod(&on.top, 0o755)?;
    Ok(())
}

fn rename(
    on: &Ground<'_>,
    from: (&Arc<Node>, &str),
    to: (&Arc<Node>, &str),
    flags: RenameFlags,
) -> Result<()> {
    on.vfs.rename(&ROOT, (from.0, from.1.as_bytes()), (to.0, to.1.as_bytes()), flags)
}

fn moves(on: &mut Ground<'_>) -> Checked {
    let (p, q) = (on.directory(&on.top, "p")?, on.directory(&on.top, "q")?);
    let (a, b) = (on.file(&p, "a")?, on.file(&p, "b")?);
    let plain = RenameFlags::empty();
    rename(on, (&p, "a"), (&p, "c"), RenameFlags::NO_REPLACE)?;
    stands(on, &p, "a", None);
    stands(on, &p, "c", Some(&a));
    rename(on, (&p, "c"), (&q, "a"), plain)?;
    stands(on, &p, "c", None);
    stands(on, &q, "a", Some(&a));
    rename(on, (&p, "b"), (&q, "a"), plain)?;
    stands(on, &p, "b", None);
    stands(on, &q, "a", Some(&b));
    on.equal(|| "links of what was replaced".to_owned(), &a.attr().links, &0);

    // Moving a name onto another name of the same file changes nothing.
    on.vfs.link(&ROOT, &b, &p, b"twin")?;
    rename(on, (&p, "twin"), (&q, "a"), plain)?;
    stands(on, &p, "twin", Some(&b));
    stands(on, &q, "a", Some(&b));
    on.equal(|| "links of the twins".to_owned(), &b.attr().links, &2);

    // A directory takes the place of an empty one, and keeps what is in it.
    let (full, empty) = (on.directory(&p, "full")?, on.directory(&q, "empty")?);
    let inside = on.file(&full, "inside")?;
    rename(on, (&p, "full"), (&q, "empty"), plain)?;
    stands(on, &q, "empty", Some(&full));
    stands(on, &full, "inside", Some(&inside));
    stands(on, &p, "full", None);
    on.equal(|| "links of the replaced directory".to_owned(), &empty.attr().links, &0);
    on.refused(
        || "creating in a replaced directory".to_owned(),
        on.vfs.create(&ROOT, &empty, b"x", &NewObject::file(0o644)),
        "NotFound",
    );
    Ok(())
}

fn exchanges(on: &mut Ground<'_>) -> Checked {
    let (p, q) = (on.directory(&on.top, "xp")?, on.directory(&on.top, "xq")?);
    let (file, dir) = (on.file(&p, "one")?, on.directory(&q, "other")?);
    let inside = on.file(&dir, "inside")?;
    let ways = [((&p, "one"), (&q, "other")), ((&q, "other"), (&p, "one")), ((&q, "other"), (&p, "one"))];
    for (round, (from, to)) in ways.into_iter().enumerate() {
        rename(on, from, to, RenameFlags::EXCHANGE)?;
        let (one, other) = if round % 2 == 0 { (&dir, &file) } else { (&file, &dir) };
        stands(on, &p, "one", Some(one));
        stands(on, &q, "other", Some(other));
        stands(on, &dir, "inside", Some(&inside));
        let parent = if round % 2 == 0 { &p } else { &q };
        stands(on, &dir, "..", Some(parent));
    }
    let within = on.file(&p, "within")?;
    rename(on, (&p, "one"), (&p, "within"), RenameFlags::EXCHANGE)?;
    stands(on, &p, "one", Some(&within));
    stands(on, &p, "within", Some(&dir));
    Ok(())
}

fn whiteouts(on: &mut Ground<'_>) -> Checked {
    let (p, q) = (on.directory(&on.top, "wp")?, on.directory(&on.top, "wq")?);
    let (file, dir) = (on.file(&p, "file")?, on.directory(&p, "dir")?);
    rename(on, (&p, "file"), (&p, "moved"), RenameFlags::WHITEOUT | RenameFlags::NO_REPLACE)?;
    rename(on, (&p, "dir"), (&q, "moved"), RenameFlags::WHITEOUT)?;
    stands(on, &p, "moved", Some(&file));
    stands(on, &q, "moved", Some(&dir));
    for name in ["file", "dir"] {
        let attr = on.vfs.lookup(&p, name.as_bytes())?.attr();
        let got = (attr.kind, attr.permissions, attr.rdev, attr.links);
        let expected = (FileType::CharDevice, 0, DeviceNumber::default(), 1);
        on.equal(|| format!("whiteout at \"{name}\""), &got, &expected);
    }
    on.equal(|| "links of the directory that was left".to_owned(), &p.attr().links, &2);
    Ok(())
}

/// Names as long as they can be, in every operation, and too long by a byte.
fn lengths(on: &mut Ground<'_>) -> Checked {
    let dir = on.directory(&on.top, "lengths")?;
    let limit = on.vfs.filesystem().limits().name_max_bytes as usize;
    let name = |letter: u8, len: usize| vec![letter; len];
    for len in [1, 2, limit - 1, limit] {
        let file = on.vfs.create(&ROOT, &dir, &name(b'a', len), &NewObject::file(0o644))?;
        on.vfs.create(&ROOT, &dir, &name(b'd', len), &NewObject::directory(0o755))?;
        on.vfs.link(&ROOT, &file, &dir, &name(b'l', len))?;
        on.vfs.rename(&ROOT, (&dir, &name(b'l', len)), (&dir, &name(0xff, len)), RenameFlags::empty())?;
        let found = on.vfs.lookup(&dir, &name(0xff, len))?;
        on.equal(|| format!("a name of {len} bytes"), &found.ino(), &file.ino());
        let listed = names_in(&dir)?;
        on.equal(|| format!("names with {len} bytes"), &listed.len(), &3);
        on.vfs.unlink(&ROOT, &dir, &name(b'a', len))?;
        on.vfs.unlink(&ROOT, &dir, &name(0xff, len))?;
        on.vfs.rmdir(&ROOT, &dir, &name(b'd', len))?;
    }
    let too_long = name(b'a', limit + 1);
    let file = on.file(&dir, "file")?;
    let make =
        |kind| on.vfs.create(&ROOT, &dir, &too_long, &NewObject { kind, permissions: 0o644, umask: 0 });
    let plain = RenameFlags::empty();
    for (what, answer) in [
        ("create", make(NewKind::Regular).map(drop)),
        ("mkdir", make(NewKind::Directory).map(drop)),
        ("symlink", make(NewKind::Symlink(b"x")).map(drop)),
        ("link", on.vfs.link(&ROOT, &file, &dir, &too_long)),
        ("unlink", on.vfs.unlink(&ROOT, &dir, &too_long)),
        ("rmdir", on.vfs.rmdir(&ROOT, &dir, &too_long)),
        ("rename to", on.vfs.rename(&ROOT, (&dir, b"file"), (&dir, &too_long), plain)),
        ("rename from", on.vfs.rename(&ROOT, (&dir, &too_long), (&dir, b"file"), plain)),
    ] {
        on.refused(|| format!("{what} with a name that is too long"), answer, "NameTooLong");
    }
    for bad in [&b""[..], b"a/b", b"/", b"a\0b"] {
        let made = on.vfs.create(&ROOT, &dir, bad, &NewObject::file(0o644));
        on.refused(|| format!("creating {bad:?}"), made, "InvalidArgument");
    }
    for (target, refusal) in
        [(vec![], "NotFound"), (vec![b't'; 4096], "NameTooLong"), (vec![0], "InvalidArgument")]
    {
        let object = NewObject { kind: NewKind::Symlink(&target), permissions: 0o777, umask: 0 };
        let made = on.vfs.create(&ROOT, &dir, b"link", &object);
        on.refused(|| format!("a link to {} bytes", target.len()), made, refusal);
    }
    for len in [1, 59, 60, 61, 1000, 4095] {
        // A filesystem may hold less than a block of 4096 bytes takes.
        if len > on.profile.holds.link_max_bytes || len as u64 >= on.profile.holds.block_bytes {
            continue;
        }
        let target = vec![b't'; len];
        let object = NewObject { kind: NewKind::Symlink(&target), permissions: 0o777, umask: 0 };
        let link = on.vfs.create(&ROOT, &dir, format!("link {len}").as_bytes(), &object)?;
        on.that(link.read_link()? == target, || format!("a link's target of {len} bytes is another"));
        on.equal(|| "size of a link".to_owned(), &link.attr().size_bytes, &(len as u64));
    }
    Ok(())
}

fn removed_directories(on: &mut Ground<'_>) -> Checked {
    let gone = on.directory(&on.top, "gone")?;
    let file = on.file(&on.top, "stays")?;
    on.vfs.rmdir(&ROOT, &on.top, b"gone")?;
    on.equal(|| "links of a removed directory".to_owned(), &gone.attr().links, &0);
    let plain = RenameFlags::empty();
    let here = Arc::clone(&on.top);
    for (what, answer) in [
        ("create", on.vfs.create(&ROOT, &gone, b"x", &NewObject::file(0o644)).map(drop)),
        ("mkdir", on.vfs.create(&ROOT, &gone, b"x", &NewObject::directory(0o755)).map(drop)),
        ("link", on.vfs.link(&ROOT, &file, &gone, b"x")),
        ("rename", on.vfs.rename(&ROOT, (&here, b"stays"), (&gone, b"x"), plain)),
        ("lookup", on.vfs.lookup(&gone, b"x").map(drop)),
        ("unlink", on.vfs.unlink(&ROOT, &gone, b"x")),
    ] {
        on.refused(|| format!("{what} in a removed directory"), answer, "NotFound");
    }
    stands(on, &here, "stays", Some(&file));
    Ok(())
}

//! Files that cannot be changed, and files that can only be appended to. Names in such directories are a matter of
//! `refusals`.

use super::super::outcome::Finds;
use super::ground::{Checked, Ground, ROOT, read_all, user};
use crate::{AttrChange, FallocateMode, InodeFlags, XattrMode};

pub(super) fn check(on: &mut Ground<'_>) -> Checked {
    immutable(on)?;
    append_only(on)?;
    flags_need_privilege(on)
}

fn immutable(on: &mut Ground<'_>) -> Checked {
    let file = on.open_file("immutable")?;
    file.write_at(0, b"content")?;
    on.freeze(file.node(), InodeFlags::IMMUTABLE)?;
    let before = on.snapshot()?;
    let chmod = AttrChange { permissions: Some(0o777), ..AttrChange::default() };
    for (what, answer) in [
        ("a write", file.write_at(0, b"x").map(drop)),
        ("an append", file.append(b"x").map(drop)),
        ("cutting", file.truncate(0)),
        ("an allocation", file.fallocate(FallocateMode::Allocate, 0, 10, true)),
        ("a hole", file.fallocate(FallocateMode::PunchHole, 0, 10, true)),
        ("opening for writing", on.vfs.open_node_for_writing(file.node()).map(drop)),
        ("a chmod", on.change(file.node(), chmod)),
        ("a chown", on.chown(file.node(), 1, 1)),
        ("an xattr", on.vfs.set_xattr(&ROOT, file.node(), b"user.a", b"", XattrMode::Set)),
    ] {
        on.refused(|| format!("{what} of an immutable file"), answer, "NotPermitted");
    }
    on.equal(|| "the immutable file".to_owned(), &on.snapshot()?, &before);
    on.equal(|| "its content".to_owned(), &read_all(&file)?, &b"content".to_vec());
    on.freeze(file.node(), InodeFlags::empty())?;
    let written = file.write_at(0, b"C");
    on.ok(|| "a write after the flag has gone".to_owned(), written);
    Ok(())
}

fn append_only(on: &mut Ground<'_>) -> Checked {
    let file = on.open_file("append-only")?;
    let source = on.open_file("source")?;
    source.write_at(0, b"copied")?;
    file.write_at(0, b"content")?;
    on.freeze(file.node(), InodeFlags::APPEND)?;
    let before = on.snapshot()?;
    for (what, answer) in [
        ("a write", file.write_at(0, b"x").map(drop)),
        ("a write at the end", file.write_at(7, b"x").map(drop)),
        ("cutting", file.truncate(0)),
        ("growing", file.truncate(100)),
        ("a hole", file.fallocate(FallocateMode::PunchHole, 0, 10, true)),
        ("zeroing", file.fallocate(FallocateMode::Zero, 0, 10, true)),
        ("a copy", source.copy_range(0, &file, 0, 6).map(drop)),
        ("an xattr", on.vfs.set_xattr(&ROOT, file.node(), b"user.a", b"", XattrMode::Set)),
        ("a chmod", on.chmod(file.node(), 0o777)),
    ] {
        on.refused(|| format!("{what} of an append-only file"), answer, "NotPermitted");
    }
    on.equal(|| "the append-only file".to_owned(), &on.snapshot()?, &before);
    let again = on.vfs.open_node_for_writing(file.node())?;
    on.equal(|| "where an append lands".to_owned(), &again.append(b" and more")?, &(7, 9));
    on.equal(|| "its content".to_owned(), &read_all(&file)?, &b"content and more".to_vec());
    on.freeze(file.node(), InodeFlags::empty())?;

    let dir = on.directory(&on.top, "grows")?;
    on.freeze(&dir, InodeFlags::APPEND)?;
    on.file(&dir, "file")?;
    on.directory(&dir, "directory")?;
    on.vfs.link(&ROOT, file.node(), &dir, b"link")?;
    on.equal(|| "names in a directory that can be added to".to_owned(), &dir.attr().links, &3);
    Ok(on.freeze(&dir, InodeFlags::empty())?)
}

fn flags_need_privilege(on: &mut Ground<'_>) -> Checked {
    let file = on.file(&on.top, "owned")?;
    on.chown(&file, 1000, 1000)?;
    for flags in [InodeFlags::IMMUTABLE, InodeFlags::APPEND] {
        let set = AttrChange { flags: Some(file.attr().flags | flags), ..AttrChange::default() };
        let answer = on.vfs.set_attr(&user(), &file, &set);
        on.refused(|| format!("{flags:?} by an ordinary owner"), answer, "NotPermitted");
        on.freeze(&file, flags)?;
        on.that(file.attr().flags.contains(flags), || format!("{flags:?} was not kept"));
        let clear = AttrChange { flags: Some(file.attr().flags - flags), ..AttrChange::default() };
        let answer = on.vfs.set_attr(&user(), &file, &clear);
        on.refused(|| format!("clearing {flags:?} by an ordinary owner"), answer, "NotPermitted");
        on.freeze(&file, InodeFlags::empty())?;
    }
    let keep = AttrChange { flags: Some(file.attr().flags | InodeFlags::NODUMP), ..AttrChange::default() };
    let answer = on.vfs.set_attr(&user(), &file, &keep);
    on.ok(|| "an ordinary flag by the owner".to_owned(), answer);
    on.that(file.attr().flags.contains(InodeFlags::NODUMP), || "an ordinary flag was not kept".to_owned());
    Ok(())
}

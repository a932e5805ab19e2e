//! Files without a name: those that lost it while they were open, and those that never had one.

use super::super::outcome::Finds;
use super::ground::{Checked, Ground, ROOT, read_all, space, user};
use crate::{FileType, RenameFlags};

pub(super) fn check(on: &mut Ground<'_>) -> Checked {
    lost(on)?;
    never_had(on)
}

fn lost(on: &mut Ground<'_>) -> Checked {
    let before = space(on.vfs)?;
    let (unlinked, replaced) = (on.open_file("unlinked")?, on.open_file("replaced")?);
    let content = vec![7; 100_000];
    for file in [&unlinked, &replaced] {
        file.write_at(0, &content)?;
    }
    on.vfs.unlink(&ROOT, &on.top, b"unlinked")?;
    on.file(&on.top, "by")?;
    on.vfs.rename(&ROOT, (&on.top, b"by"), (&on.top, b"replaced"), RenameFlags::empty())?;
    // Whatever is made now must not take their place.
    let newcomer = on.open_file("newcomer")?;
    newcomer.write_at(0, &[1; 200_000])?;
    for (what, file) in [("unlinked", &unlinked), ("replaced", &replaced)] {
        on.equal(|| format!("links of the {what} file"), &file.node().attr().links, &0);
        on.that(read_all(file)? == content, || format!("the {what} file has lost its content"));
        file.write_at(99_999, b"end and more")?;
        file.truncate(100_005)?;
        let mut tail = [0; 10];
        let len = file.read_at(99_999, &mut tail)?;
        on.equal(|| format!("end of the {what} file"), &&tail[..len], &&b"end an"[..]);
        let linked = on.vfs.link(&ROOT, file.node(), &on.top, b"again");
        on.refused(|| format!("linking the {what} file"), linked, "NotFound");
    }
    on.that(space(on.vfs)? != before, || "what is open takes no space".to_owned());
    drop((unlinked, replaced, newcomer));
    on.vfs.unlink(&ROOT, &on.top, b"replaced")?;
    on.vfs.unlink(&ROOT, &on.top, b"newcomer")?;
    on.equal(|| "space after the last handle".to_owned(), &space(on.vfs)?, &before);
    Ok(())
}

fn never_had(on: &mut Ground<'_>) -> Checked {
    let before = space(on.vfs)?;
    on.chmod(&on.top, 0o777)?;
    let node = on.vfs.tmpfile(&user(), &on.top, 0o666, 0o022)?;
    let attr = node.attr();
    let got = (attr.kind, attr.permissions, attr.uid, attr.gid, attr.links, attr.size_bytes);
    on.equal(|| "a tmpfile".to_owned(), &got, &(FileType::Regular, 0o644, 1000, 1000, 0, 0));
    let file = on.vfs.open_node_for_writing(&node)?;
    file.write_at(10, b"content")?;
    on.vfs.link(&ROOT, &node, &on.top, b"first")?;
    on.vfs.link(&ROOT, &node, &on.top, b"second")?;
    on.equal(|| "links after two".to_owned(), &node.attr().links, &2);
    let found = on.vfs.lookup(&on.top, b"first")?;
    on.equal(|| "number by its name".to_owned(), &found.ino(), &node.ino());
    on.equal(
        || "content by its name".to_owned(),
        &read_all(&on.vfs.open_node(&found)?)?,
        &[&[0; 10][..], b"content"].concat(),
    );
    drop(found);
    on.vfs.unlink(&ROOT, &on.top, b"first")?;
    on.vfs.unlink(&ROOT, &on.top, b"second")?;
    let again = on.vfs.link(&ROOT, &node, &on.top, b"third");
    on.refused(|| "linking what has lost its last name".to_owned(), again, "NotFound");
    drop((file, node));

    let never = on.vfs.tmpfile(&ROOT, &on.top, 0o600, 0)?;
    on.vfs.open_node_for_writing(&never)?.write_at(0, &[3; 50_000])?;
    drop(never);
    on.equal(|| "space after tmpfiles".to_owned(), &space(on.vfs)?, &before);
    on.chmod(&on.top, 0o755)?;
    let denied = on.vfs.tmpfile(&user(), &on.top, 0o600, 0);
    on.refused(|| "a tmpfile in another's directory".to_owned(), denied, "PermissionDenied");
    Ok(())
}

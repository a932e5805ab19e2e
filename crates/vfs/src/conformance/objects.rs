//! What objects say of themselves: attributes, link targets, extended attributes.

use std::collections::{BTreeMap, BTreeSet};

use super::check::{Check, show};
use super::outcome::Finds;
use super::tree::{Entry, Object};
use crate::{DeviceNumber, Ino, Node};

pub(super) fn check(check: &mut Check<'_>) {
    let tree = check.tree;
    let mut inos: BTreeMap<Ino, &[u8]> = BTreeMap::new();
    for entry in &tree.entries {
        let Some(node) = check.node(entry) else { continue };
        let object = tree.object(entry);
        let other = *inos.entry(node.ino()).or_insert(&object.path);
        check.that(other == object.path, || {
            format!("{} and {} have the same inode number", show(other), show(&object.path))
        });
        check_attributes(check, entry, object, &node);
        check_link(check, object, &node);
        check_xattrs(check, object, &node);
    }
}

fn check_attributes(check: &mut Check<'_>, entry: &Entry, object: &Entry, node: &Node) {
    let attr = node.attr();
    let path = show(&entry.path);
    let what = |field: &str| format!("{field} of {path}");
    check.equal(|| what("number"), &attr.ino, &node.ino());
    check.equal(|| what("kind"), &Some(attr.kind), &object.object.kind());
    check.equal(|| what("kind of the node"), &node.kind(), &attr.kind);
    check.equal(|| what("permissions"), &attr.permissions, &object.permissions);
    check.equal(|| what("owner"), &attr.uid, &object.uid);
    check.equal(|| what("group"), &attr.gid, &object.gid);
    check.equal(|| what("access time"), &attr.accessed, &object.accessed);
    check.equal(|| what("modification time"), &attr.modified, &object.modified);
    check.equal(|| what("links"), &attr.links, &check.tree.links(object));
    let rdev = match object.object {
        Object::CharDevice(number) | Object::BlockDevice(number) => number,
        _ => DeviceNumber::default(),
    };
    check.equal(|| what("device"), &attr.rdev, &rdev);
    match &object.object {
        Object::File(content) => {
            check.equal(|| what("size"), &attr.size_bytes, &content.size_bytes);
            let data: u64 = content.pieces.iter().map(|piece| piece.len).sum();
            if data < content.size_bytes / 2 {
                let allocated = attr.sectors * 512;
                check.that(allocated < content.size_bytes, || {
                    format!("{path} has {allocated} bytes allocated, yet most of it is holes")
                });
            }
        }
        Object::Symlink(target) => check.equal(|| what("size"), &attr.size_bytes, &(target.len() as u64)),
        _ => {}
    }
}

fn check_link(check: &mut Check<'_>, object: &Entry, node: &Node) {
    let path = show(&object.path);
    match &object.object {
        Object::Symlink(target) => {
            if let Some(got) = check.ok(|| format!("target of {path}"), node.read_link()) {
                check.that(got == *target, || {
                    format!("target of {path}: expected {}, got {}", show(target), show(&got))
                });
            }
        }
        _ => check.refused(|| format!("read_link of {path}"), node.read_link(), "InvalidArgument"),
    }
}

fn check_xattrs(check: &mut Check<'_>, object: &Entry, node: &Node) {
    let path = show(&object.path);
    if let Some(mut names) = check.ok(|| format!("names of xattrs of {path}"), node.list_xattrs()) {
        // A security module of the kernel that made the image may have added some.
        names.retain(|name| !name.starts_with(b"security."));
        let count = names.len();
        let names: BTreeSet<String> = names.iter().map(|name| show(name)).collect();
        check.equal(|| format!("distinct names of xattrs of {path}"), &names.len(), &count);
        let expected = object.xattrs.iter().map(|(name, _)| show(name)).collect();
        check.equal(|| format!("names of xattrs of {path}"), &names, &expected);
    }
    for (name, value) in &object.xattrs {
        let what = || format!("xattr {} of {path}", show(name));
        if let Some(got) = check.ok(what, node.xattr(name)) {
            check.equal(what, &got.as_deref().map(show), &Some(show(value)));
        }
    }
    for name in [&b"user.no such"[..], b"user.", b"trusted.no", b"nonsense", b"", b"system.posix_acl_nothing"]
    {
        let what = || format!("xattr {} of {path}", show(name));
        if let Some(got) = check.ok(what, node.xattr(name)) {
            check.equal(what, &got, &None);
        }
    }
}

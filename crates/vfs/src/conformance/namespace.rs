//! Names: lookups, directory streams, and that both agree.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use super::check::{Check, show};
use super::outcome::Finds;
use super::tree::{Entry, Object};
use crate::{DirOffset, FileType, Ino, Node, Result};

/// One entry of a directory stream.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Given {
    name: Vec<u8>,
    ino: Ino,
    kind: Option<FileType>,
    next: DirOffset,
}

/// Directories with more entries are restarted everywhere, but read to the end from a few places only.
const READ_TO_THE_END: usize = 100;

pub(super) fn check(check: &mut Check<'_>) {
    let tree = check.tree;
    for entry in &tree.entries {
        let Some(node) = check.node(entry) else { continue };
        if entry.object == Object::Directory {
            check_stream(check, entry, &node);
            check_lookups(check, entry, &node);
        } else {
            let name = show(&entry.path);
            check.refused(|| format!("lookup in {name}"), check.vfs.lookup(&node, b"x"), "NotDirectory");
            check.refused(|| format!("read_dir of {name}"), read(&node, DirOffset(0), 1), "NotDirectory");
        }
    }
}

/// Reads at most `limit` entries.
fn read(dir: &Node, from: DirOffset, limit: usize) -> Result<Vec<Given>> {
    let mut given = Vec::new();
    dir.read_dir(from, &mut |entry| {
        let (name, ino, kind, next) = (entry.name.to_vec(), entry.ino, entry.kind, entry.next);
        given.push(Given { name, ino, kind, next });
        if given.len() < limit { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })?;
    Ok(given)
}

fn check_stream(check: &mut Check<'_>, entry: &Entry, dir: &Node) {
    let path = show(&entry.path);
    let Some(all) = check.ok(|| format!("read_dir of {path}"), read(dir, DirOffset(0), usize::MAX)) else {
        return;
    };

    let expected: BTreeMap<&[u8], &Entry> = check.tree.children(entry).collect();
    let mut names = BTreeSet::new();
    for given in &all {
        let name = show(&given.name);
        check.that(names.insert(&given.name[..]), || format!("{path} gives {name} twice"));
        if given.name == b"." || given.name == b".." {
            let is_directory = matches!(given.kind, None | Some(FileType::Directory));
            check.that(is_directory, || format!("{name} in {path} is given as {:?}", given.kind));
            continue;
        }
        let Some(child) = expected.get(&given.name[..]) else {
            check.that(false, || format!("{path} gives {name}, which it should not have"));
            continue;
        };
        let kind = check.tree.object(child).object.kind();
        let agrees = given.kind.is_none() || given.kind == kind;
        check.that(agrees, || format!("{name} in {path} is {kind:?} and is given as {:?}", given.kind));
        if let Some(node) =
            check.ok(|| format!("lookup of {name} in {path}"), check.vfs.lookup(dir, &given.name))
        {
            check.equal(|| format!("lookup of {name} in {path} as its stream"), &node.ino(), &given.ino);
        }
    }
    for name in expected.keys().copied().chain([&b"."[..], b".."]) {
        check.that(names.contains(name), || format!("{path} does not give {}", show(name)));
    }
    let own = all.iter().find(|given| given.name == b".").map(|given| given.ino);
    check.equal(|| format!(". in {path}"), &own, &Some(dir.ino()));

    check_cursors(check, &path, dir, &all);
}

/// Starts again after each entry.
fn check_cursors(check: &mut Check<'_>, path: &str, dir: &Node, all: &[Given]) {
    let cursors: BTreeSet<DirOffset> = all.iter().map(|given| given.next).collect();
    check.equal(|| format!("distinct cursors in {path}"), &cursors.len(), &all.len());
    check.that(!cursors.contains(&DirOffset(0)), || format!("a cursor in {path} is the start's"));
    for (position, given) in all.iter().enumerate() {
        let rest = &all[position + 1..];
        let limit = if all.len() <= READ_TO_THE_END || position % 200 == 0 { usize::MAX } else { 2 };
        let what = || format!("{path} from its entry {} on ({limit} at most)", position + 1);
        if let Some(again) = check.ok(what, read(dir, given.next, limit)) {
            check.that(again == rest[..limit.min(rest.len())], || format!("{} differs from before", what()));
        }
    }
    // Cursors that were never given out may be answered in any way that ends.
    for strange in [1, 3, 0x7fff_ffff, 1 << 32, u64::MAX >> 1, u64::MAX] {
        let count = read(dir, DirOffset(strange), usize::MAX).map_or(0, |given| given.len());
        check.that(count <= all.len(), || format!("{path} gives {count} entries from cursor {strange}"));
    }
}

fn check_lookups(check: &mut Check<'_>, entry: &Entry, dir: &Node) {
    let path = show(&entry.path);
    let names: BTreeSet<&[u8]> = check.tree.children(entry).map(|(name, _)| name).collect();
    let mut missing: Vec<Vec<u8>> = vec![b"no such name".to_vec(), b"z".repeat(255), b"\xff".repeat(255)];
    for name in names.iter().step_by(1 + names.len() / 50) {
        missing.push([name, &b"x"[..]].concat());
        missing.push(name[..name.len() - 1].to_vec());
        missing.push(name.to_ascii_uppercase());
    }
    missing.retain(|name| {
        !name.is_empty()
            && name.len() <= 255
            && !matches!(&name[..], b"." | b"..")
            && !names.contains(&name[..])
    });
    // Twice: the second answer comes from the name cache.
    for name in missing.iter().chain(&missing) {
        check.refused(
            || format!("lookup of {} in {path}", show(name)),
            check.vfs.lookup(dir, name),
            "NotFound",
        );
    }
    let too_long = vec![b'l'; 1 + check.vfs.filesystem().limits().name_max_bytes as usize];
    for (name, refusal) in [
        (&too_long[..], "NameTooLong"),
        (b"", "InvalidArgument"),
        (b"a/b", "InvalidArgument"),
        (b"a\0", "InvalidArgument"),
    ] {
        check.refused(|| format!("lookup of {} in {path}", show(name)), check.vfs.lookup(dir, name), refusal);
    }
    if let Some(itself) = check.ok(|| format!("lookup of . in {path}"), check.vfs.lookup(dir, b".")) {
        check.equal(|| format!("lookup of . in {path}"), &itself.ino(), &dir.ino());
    }
    for (name, child) in check.tree.children(entry) {
        if child.object != Object::Directory {
            continue;
        }
        let what = || format!("lookup of {}/.. in {path}", show(name));
        let parent = check.vfs.lookup(dir, name).and_then(|child| check.vfs.lookup(&child, b".."));
        if let Some(parent) = check.ok(what, parent) {
            check.equal(what, &parent.ino(), &dir.ino());
        }
    }
}

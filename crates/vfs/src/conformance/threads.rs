//! Many threads at once: the tree walk, and readers that do everything in different orders.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::mpsc;
use std::thread;

use super::check::{Check, show};
use super::content::check_read;
use super::outcome::Finds;
use super::tree::{Object, mix};
use crate::{Attr, DirOffset, FileType, Result, WalkEvent, WalkFlow, WalkOptions};

const THREADS: usize = 4;

/// Things that each concurrent reader does.
const VISITS: u64 = 3000;

pub(super) fn check(check: &mut Check<'_>) {
    check_walks(check);
    check_readers(check);
}

/// What a walk said of one entry.
struct Visit {
    path: Vec<u8>,
    depth: u32,
    kind: FileType,
    attr: Result<Attr>,
}

fn check_walks(check: &mut Check<'_>) {
    let Some(start) = check.node(&check.tree.entries[0]) else { return };
    for threads in [1, THREADS] {
        let (sender, receiver) = mpsc::channel();
        let options = WalkOptions { threads, ..WalkOptions::default() };
        check.vfs.walk(&start, options, &|event| {
            // The receiver outlives the walk.
            let _ = sender.send(visited(event));
            WalkFlow::Continue
        });
        drop(sender);
        let all = receiver.into_iter().collect();
        compare_walk(check, &format!("walk with {threads} threads"), all);
    }

    let mut all = Vec::new();
    check.vfs.walk_sorted(&start, WalkOptions::default(), &mut |event| {
        all.push(visited(event));
        WalkFlow::Continue
    });
    let parts = |path: &[u8]| path.split(|&byte| byte == b'/').map(<[u8]>::to_vec).collect::<Vec<_>>();
    let sorted = all.iter().skip(1).flatten().map(|visit| parts(&visit.path)).is_sorted();
    check.that(sorted, || "the sorted walk is not in order".to_owned());
    compare_walk(check, "sorted walk", all);
}

/// What an event says: a visit, or a failure in words.
fn visited(event: WalkEvent<'_>) -> std::result::Result<Visit, String> {
    match event {
        WalkEvent::Entry(entry) => Ok(Visit {
            path: entry.path().to_vec(),
            depth: entry.depth(),
            kind: entry.kind(),
            attr: entry.attr(),
        }),
        WalkEvent::Failure { path, error } => Err(format!("{}: {error}", show(path))),
    }
}

fn compare_walk(check: &mut Check<'_>, what: &str, all: Vec<std::result::Result<Visit, String>>) {
    let mut places: BTreeMap<Vec<u8>, usize> = BTreeMap::new();
    let mut good = Vec::new();
    for step in all {
        match step {
            Ok(visit) => good.push(visit),
            Err(failure) => check.that(false, || format!("{what}: {failure}")),
        }
    }
    for (place, Visit { path, depth, kind, attr }) in good.into_iter().enumerate() {
        let Some(entry) = check.tree.get(&path) else {
            check.that(false, || format!("{what} visits {}, which should not be", show(&path)));
            continue;
        };
        let object = check.tree.object(entry);
        check.equal(|| format!("kind of {} in the {what}", show(&path)), &Some(kind), &object.object.kind());
        let expected_depth =
            if path.is_empty() { 0 } else { 1 + path.iter().filter(|&&b| b == b'/').count() };
        check.equal(|| format!("depth of {} in the {what}", show(&path)), &depth, &(expected_depth as u32));
        if let Some(attr) = check.ok(|| format!("attributes of {} in the {what}", show(&path)), attr) {
            check.equal(|| format!("owner of {} in the {what}", show(&path)), &attr.uid, &object.uid);
        }
        let twice = places.insert(path.clone(), place).is_some();
        check.that(!twice, || format!("{what} visits {} twice", show(&path)));
        if !path.is_empty() {
            let parent = path.iter().rposition(|&byte| byte == b'/').map_or(&[][..], |slash| &path[..slash]);
            check.that(places.contains_key(parent), || format!("{what} visits {} too early", show(&path)));
        }
    }
    check.equal(|| format!("entries in the {what}"), &places.len(), &check.tree.entries.len());
}

fn check_readers(check: &mut Check<'_>) {
    let findings: Vec<Check<'_>> = thread::scope(|scope| {
        let readers: Vec<_> = (0..THREADS as u64)
            .map(|seed| {
                let mut own = check.fork();
                scope.spawn(move || {
                    for number in 0..VISITS {
                        visit_something(&mut own, mix(seed << 32 | number));
                    }
                    own
                })
            })
            .collect();
        readers.into_iter().filter_map(|reader| reader.join().ok()).collect()
    });
    check.equal(|| "readers that did not panic".to_owned(), &findings.len(), &THREADS);
    for finding in findings {
        check.absorb(finding.outcome);
    }
}

fn visit_something(check: &mut Check<'_>, random: u64) {
    let tree = check.tree;
    let entry = &tree.entries[random as usize % tree.entries.len()];
    let Some(node) = check.node(entry) else { return };
    let object = tree.object(entry);
    let path = show(&entry.path);
    check.equal(|| format!("kind of {path}"), &Some(node.kind()), &object.object.kind());
    check.equal(|| format!("permissions of {path}"), &node.attr().permissions, &object.permissions);
    match &object.object {
        Object::File(content) => {
            let Some(file) = check.ok(|| format!("open {path}"), check.vfs.open_node(&node)) else { return };
            let offset = (random >> 20) % (content.size_bytes + 1);
            check_read(check, &path, &file, content, offset, (random >> 50) as usize);
        }
        Object::Directory => {
            let mut count = 0;
            let result = node.read_dir(DirOffset(0), &mut |_| {
                count += 1;
                ControlFlow::Continue(())
            });
            check.ok(|| format!("read_dir of {path}"), result);
            check.equal(|| format!("names in {path}"), &count, &(2 + tree.children(object).count()));
        }
        Object::Symlink(target) => {
            if let Some(got) = check.ok(|| format!("target of {path}"), node.read_link()) {
                check.that(got == *target, || format!("target of {path} is {}", show(&got)));
            }
        }
        _ => {}
    }
}

//! A filesystem without space: what is refused leaves no trace, and what is deleted gives everything back.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread;

use super::super::outcome::Finds;
use super::super::remove::{names_in, remove_all};
use super::ground::{Checked, Ground, ROOT, read_all, space};
use crate::{Error, FallocateMode, NewKind, NewObject, Node, RenameFlags, Result, XattrMode};
use undercroft_block::testing::Rng;

const STEPS: usize = 3000;

pub(super) fn check(on: &mut Ground<'_>) -> Checked {
    let empty = space(on.vfs)?;
    one_file(on)?;
    on.equal(|| "space after one large file".to_owned(), &space(on.vfs)?, &empty);
    no_inodes(on)?;
    on.equal(|| "space after many small files".to_owned(), &space(on.vfs)?, &empty);
    random_work(on)?;
    on.equal(|| "space after random work".to_owned(), &space(on.vfs)?, &empty);
    together(on)?;
    on.equal(|| "space after several threads".to_owned(), &space(on.vfs)?, &empty);
    Ok(())
}

/// Fills the filesystem with one file, whose bytes are then what was said to be written.
fn one_file(on: &mut Ground<'_>) -> Checked {
    let (file, other) = (on.open_file("file")?, on.open_file("other")?);
    let data: Vec<u8> = (0..100_000_u32).map(|at| (at % 251) as u8).collect();
    let mut model = Vec::new();
    let refused = loop {
        match file.write_at(model.len() as u64, &data) {
            Ok(written) => model.extend_from_slice(&data[..written]),
            Err(error) => break error,
        }
    };
    on.refused(|| "a write into a full filesystem".to_owned(), Err::<(), _>(refused), "NoSpace");
    on.that(read_all(&file)? == model, || "a full file does not hold what was written".to_owned());

    let before = on.snapshot()?;
    let allocation = file.fallocate(FallocateMode::Allocate, 0, model.len() as u64 + (1 << 20), false);
    on.refused(|| "an allocation".to_owned(), allocation, "NoSpace");
    on.refused(|| "an append".to_owned(), other.append(&[1; 100_000]).map(drop), "NoSpace");
    // Moved by a byte, so that no filesystem can share blocks instead.
    on.refused(|| "a copy".to_owned(), file.copy_range(1, &other, 0, 100_000), "NoSpace");
    on.equal(|| "everything after refusals".to_owned(), &on.snapshot()?, &before);
    on.equal(|| "size of the other file".to_owned(), &other.node().attr().size_bytes, &0);

    // Where bytes are, bytes can be written, and holes cost nothing.
    let middle = model.len() / 2;
    file.write_at(middle as u64, &data[..5000])?;
    model[middle..middle + 5000].copy_from_slice(&data[..5000]);
    other.truncate(1 << 30)?;
    file.truncate(model.len() as u64 - 10)?;
    model.truncate(model.len() - 10);
    on.that(read_all(&file)? == model, || "writing over a full file went wrong".to_owned());
    drop((file, other));
    on.vfs.unlink(&ROOT, &on.top, b"file")?;
    on.vfs.unlink(&ROOT, &on.top, b"other")?;
    Ok(())
}

/// Makes files until no more can be made; then nothing that needs an inode can.
fn no_inodes(on: &mut Ground<'_>) -> Checked {
    let dir = on.directory(&on.top, "inodes")?;
    let mut made = 0_u32;
    let refused = loop {
        match on.file(&dir, &made.to_string()) {
            Ok(_) => made += 1,
            Err(error) => break error,
        }
        if made > 1_000_000 {
            on.that(false, || "the small filesystem takes a million files".to_owned());
            return Ok(());
        }
    };
    on.refused(|| "a file too many".to_owned(), Err::<(), _>(refused), "NoSpace");
    let before = on.snapshot()?;
    let links = dir.attr().links;
    for kind in [NewKind::Regular, NewKind::Directory, NewKind::Symlink(b"x"), NewKind::Fifo] {
        let answer = on.vfs.create(&ROOT, &dir, b"new", &NewObject { kind, permissions: 0o644, umask: 0 });
        on.refused(|| format!("{kind:?} too many"), answer, "NoSpace");
    }
    let tmpfile = on.vfs.tmpfile(&ROOT, &dir, 0o600, 0);
    on.refused(|| "a tmpfile too many".to_owned(), tmpfile, "NoSpace");
    let whiteout = on.vfs.rename(&ROOT, (&dir, b"0"), (&dir, b"new"), RenameFlags::WHITEOUT);
    on.refused(|| "a whiteout too many".to_owned(), whiteout, "NoSpace");
    let exists = on.file(&dir, "0");
    on.refused(|| "a name that is there".to_owned(), exists, "Exists");
    on.equal(|| "everything after refusals".to_owned(), &on.snapshot()?, &before);
    on.equal(|| "links of the directory".to_owned(), &dir.attr().links, &links);
    on.refused(|| "a name that was refused".to_owned(), on.vfs.lookup(&dir, b"new"), "NotFound");
    on.equal(|| "names".to_owned(), &names_in(&dir)?.len(), &(made as usize));

    on.vfs.unlink(&ROOT, &dir, b"0")?;
    let again = on.file(&dir, "again");
    on.ok(|| "a file after one was removed".to_owned(), again.map(drop));
    drop(dir);
    Ok(remove_all(on.vfs, &on.top, b"inodes")?)
}

/// Random work at the edge of what there is, against a map from names to bytes.
fn random_work(on: &mut Ground<'_>) -> Checked {
    let dir = on.directory(&on.top, "random")?;
    let mut random = Rng::new(on.profile.seed);
    let mut model: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
    let mut refusals = 0;
    for step in 0..STEPS {
        match work(on, &dir, &mut random, &mut model) {
            Ok(()) => {}
            Err(Error::NoSpace) => refusals += 1,
            Err(error) => return Err(error.into()),
        }
        if step % 100 == 0 || step + 1 == STEPS {
            compare(on, &dir, &model, step)?;
        }
    }
    on.that(refusals > STEPS / 100, || format!("space ran out only {refusals} times: nothing was tried"));
    drop(dir);
    Ok(remove_all(on.vfs, &on.top, b"random")?)
}

/// One change; whatever it refuses has changed nothing, and a write that is short what it says.
fn work(
    on: &Ground<'_>,
    dir: &Arc<Node>,
    random: &mut Rng,
    model: &mut BTreeMap<Vec<u8>, Vec<u8>>,
) -> Result<()> {
    let (name, other) =
        (random.below(300).to_string().into_bytes(), random.below(300).to_string().into_bytes());
    let (offset, len) = (random.below(40_000), 1 + random.below(60_000));
    if !model.contains_key(&name) {
        on.vfs.create(&ROOT, dir, &name, &NewObject::file(0o644))?;
        model.insert(name.clone(), Vec::new());
    }
    let node = on.vfs.lookup(dir, &name)?;
    match random.below(10) {
        0 => {
            on.vfs.unlink(&ROOT, dir, &name)?;
            model.remove(&name);
        }
        1 => {
            on.vfs.rename(&ROOT, (dir, &name), (dir, &other), RenameFlags::empty())?;
            let bytes = model.remove(&name).unwrap_or_default();
            model.insert(other, bytes);
        }
        2 if on.profile.holds.xattrs => {
            on.vfs.set_xattr(&ROOT, &node, b"user.a", &vec![b'x'; offset as usize % 3000], XattrMode::Set)?;
        }
        3 => {
            on.vfs.open_node_for_writing(&node)?.truncate(offset)?;
            model.entry(name).or_default().resize(offset as usize, 0);
        }
        4 => {
            on.vfs.open_node_for_writing(&node)?.fallocate(FallocateMode::Allocate, offset, len, true)?;
        }
        _ => {
            let data = vec![random.below(256) as u8; len as usize];
            let written = on.vfs.open_node_for_writing(&node)?.write_at(offset, &data)?;
            let bytes = model.entry(name).or_default();
            let end = offset as usize + written;
            bytes.resize(bytes.len().max(end), 0);
            bytes[offset as usize..end].copy_from_slice(&data[..written]);
        }
    }
    Ok(())
}

fn compare(on: &mut Ground<'_>, dir: &Arc<Node>, model: &BTreeMap<Vec<u8>, Vec<u8>>, step: usize) -> Checked {
    let mut names = names_in(dir)?;
    names.sort();
    let known: Vec<Vec<u8>> = model.keys().cloned().collect();
    on.equal(|| format!("names after step {step}"), &names, &known);
    for (name, bytes) in model {
        let file = on.vfs.open_node(&on.vfs.lookup(dir, name)?)?;
        let same = read_all(&file)? == *bytes;
        on.that(same, || format!("content of {} after step {step}", name.escape_ascii()));
    }
    Ok(())
}

/// Threads that fill the filesystem at the same time.
fn together(on: &mut Ground<'_>) -> Checked {
    const THREADS: usize = 4;
    let (vfs, top) = (on.vfs, &on.top);
    let name_of = |thread: usize| format!("by {thread}").into_bytes();
    // Before the first thread runs: one that starts late may find no space for a directory.
    for thread in 0..THREADS {
        vfs.create(&ROOT, top, &name_of(thread), &NewObject::directory(0o755))?;
    }
    let fill = |thread: usize| -> Result<()> {
        let dir = vfs.lookup(top, &name_of(thread))?;
        for round in 0..200 {
            let name = format!("{}", round % 7).into_bytes();
            let filled = vfs.create(&ROOT, &dir, &name, &NewObject::file(0o644)).and_then(|node| {
                let file = vfs.open_node_for_writing(&node)?;
                file.append(&vec![thread as u8 + 1; 300_000])
            });
            match filled {
                Ok(_) | Err(Error::NoSpace) => {}
                Err(Error::Exists) => vfs.unlink(&ROOT, &dir, &name)?,
                Err(error) => return Err(error),
            }
        }
        for name in names_in(&dir)? {
            let file = vfs.open_node(&vfs.lookup(&dir, &name)?)?;
            if read_all(&file)?.iter().any(|&byte| byte != thread as u8 + 1) {
                return Err(Error::InvalidArgument("a file holds what another thread wrote"));
            }
        }
        drop(dir);
        remove_all(vfs, top, &name_of(thread))
    };
    let done: Vec<Result<()>> = thread::scope(|scope| {
        let fill = &fill;
        let threads: Vec<_> = (0..THREADS).map(|thread| scope.spawn(move || fill(thread))).collect();
        threads.into_iter().filter_map(|thread| thread.join().ok()).collect()
    });
    on.equal(|| "threads that came to the end".to_owned(), &done.len(), &THREADS);
    for done in done {
        done?;
    }
    Ok(())
}

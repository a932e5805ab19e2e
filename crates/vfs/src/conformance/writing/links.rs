//! Counts of links and `..`, after directories have moved about.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use super::super::outcome::Finds;
use super::ground::{Checked, Ground, ROOT};
use crate::{DirOffset, Error, Ino, Node, RenameFlags};
use undercroft_block::testing::Rng;

const STEPS: usize = 600;
const NAMES: u64 = 3;

/// The directories there are: each with its handle, its parent and its name there.
type Model = BTreeMap<Ino, (Arc<Node>, Ino, Vec<u8>)>;

pub(super) fn check(on: &mut Ground<'_>) -> Checked {
    names_of_a_file(on)?;
    let tree = on.directory(&on.top, "tree")?;
    let mut random = Rng::new(on.profile.seed);
    let mut model: Model =
        BTreeMap::from([(tree.ino(), (Arc::clone(&tree), on.top.ino(), b"tree".to_vec()))]);
    for step in 0..STEPS {
        change(on, &mut model, &mut random, &tree)?;
        if step % 20 == 0 || step + 1 == STEPS {
            compare(on, &model, step)?;
        }
    }
    Ok(())
}

fn names_of_a_file(on: &mut Ground<'_>) -> Checked {
    let dir = on.directory(&on.top, "file")?;
    let file = on.file(&dir, "0")?;
    for number in 1..100 {
        on.vfs.link(&ROOT, &file, &dir, number.to_string().as_bytes())?;
    }
    on.equal(|| "links of a file with 100 names".to_owned(), &file.attr().links, &100);
    on.equal(|| "links of its directory".to_owned(), &dir.attr().links, &2);
    for number in 0..99 {
        on.vfs.unlink(&ROOT, &dir, number.to_string().as_bytes())?;
    }
    on.equal(|| "links of a file with one name left".to_owned(), &file.attr().links, &1);
    Ok(())
}

/// Makes, removes, moves or exchanges a directory, and applies that to the model.
fn change(on: &mut Ground<'_>, model: &mut Model, random: &mut Rng, top: &Arc<Node>) -> Checked {
    let inos: Vec<Ino> = model.keys().copied().collect();
    let mut pick =
        || (Arc::clone(&model[&inos[random.index(inos.len())]].0), vec![b'a' + random.below(NAMES) as u8]);
    let ((dir, name), (to, to_name)) = (pick(), pick());
    let at = |model: &Model, dir: &Node, name: &[u8]| {
        model.iter().find(|(_, (_, parent, own))| *parent == dir.ino() && own == name).map(|(&ino, _)| ino)
    };
    let (one, other) = (at(model, &dir, &name), at(model, &to, &to_name));
    match random.below(8) {
        0..3 => match on.directory(&dir, &String::from_utf8_lossy(&name)) {
            Ok(made) => drop(model.insert(made.ino(), (made, dir.ino(), name))),
            Err(Error::Exists) => {
                on.that(one.is_some(), || "mkdir found a name that should not be".to_owned());
            }
            Err(error) => return Err(error.into()),
        },
        3 => match on.vfs.rmdir(&ROOT, &dir, &name) {
            Ok(()) => drop(one.and_then(|ino| model.remove(&ino))),
            Err(Error::NotFound | Error::NotEmpty) => {}
            Err(error) => return Err(error.into()),
        },
        way => {
            let flags = if way == 4 { RenameFlags::EXCHANGE } else { RenameFlags::empty() };
            match on.vfs.rename(&ROOT, (&dir, &name), (&to, &to_name), flags) {
                Ok(()) if one == other => {}
                Ok(()) => {
                    let mut put = |ino: Option<Ino>, parent: &Node, name: &[u8]| {
                        if let Some((_, at, own)) = ino.and_then(|ino| model.get_mut(&ino)) {
                            (*at, *own) = (parent.ino(), name.to_vec());
                        }
                    };
                    put(one, &to, &to_name);
                    if way == 4 {
                        put(other, &dir, &name);
                    } else if let Some(replaced) = other {
                        model.remove(&replaced);
                    }
                }
                Err(Error::NotFound | Error::NotEmpty | Error::InvalidArgument(_)) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
    on.that(model.contains_key(&top.ino()), || "the top of the tree is gone".to_owned());
    Ok(())
}

fn compare(on: &mut Ground<'_>, model: &Model, step: usize) -> Checked {
    for (ino, (node, parent, name)) in model {
        let what = |of: &str| format!("step {step}: {of} of directory {ino}");
        let below = model.values().filter(|(_, parent, _)| parent == ino).count();
        on.equal(|| what("links"), &node.attr().links, &(2 + below as u32));
        let above = on.vfs.lookup(node, b"..")?;
        on.equal(|| what("parent"), &above.ino(), parent);
        let found = on.vfs.lookup(&above, name)?;
        on.equal(|| what("name"), &found.ino(), ino);
        let (mut dots, mut names) = (None, 0);
        node.read_dir(DirOffset(0), &mut |entry| {
            match entry.name {
                b"." => {}
                b".." => dots = Some(entry.ino),
                _ => names += 1,
            }
            ControlFlow::Continue(())
        })?;
        on.equal(|| what("listed parent"), &dots, &Some(*parent));
        on.equal(|| what("names"), &names, &below);
    }
    Ok(())
}

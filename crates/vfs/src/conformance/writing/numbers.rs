//! Inodes that are looked up by number while other threads make and remove them: a thread gets a whole inode or none.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread;

use super::super::access::{AclEntry, acl_bytes};
use super::super::outcome::Finds;
use super::ground::{Checked, Ground, ROOT};
use super::heritage::{ACCESS, DEFAULT};
use crate::{Error, FileType, Ino, NewKind, NewObject, Node, Result, Vfs, XattrMode};

const MAKERS: usize = 2;
const READERS: usize = 2;
/// Numbers that each maker used last.
const LATELY: usize = 4;
const TARGET: &[u8] = b"where the link leads";

pub(super) fn check(on: &mut Ground<'_>) -> Checked {
    let (vfs, dir, each) = (on.vfs, on.directory(&on.top, "numbers")?, on.profile.holds.many);
    let has_list = on.profile.holds.acls;
    if has_list {
        // What is inherited is added to an inode after it was stored.
        let entries = [AclEntry::Owner(7), AclEntry::User(1001, 7), AclEntry::OwningGroup(5)];
        let list = acl_bytes(&[&entries[..], &[AclEntry::Mask(7), AclEntry::Other(1)]].concat());
        vfs.set_xattr(&ROOT, &dir, DEFAULT, &list, XattrMode::Set)?;
    }
    let lately = [const { AtomicU64::new(0) }; MAKERS * LATELY];
    let working = AtomicUsize::new(MAKERS);
    let make = |maker: usize| -> Result<()> {
        let name = |number: usize| format!("{maker}-{number}").into_bytes();
        let remove = |number: usize| match number % 4 {
            1 => vfs.rmdir(&ROOT, &dir, &name(number)),
            2 => Ok(()),
            _ => vfs.unlink(&ROOT, &dir, &name(number)),
        };
        for number in 0..each {
            let kind = match number % 4 {
                0 => NewKind::Regular,
                1 => NewKind::Directory,
                _ => NewKind::Symlink(TARGET),
            };
            let made = if number % 4 == 2 {
                vfs.tmpfile(&ROOT, &dir, 0o644, 0)?
            } else {
                vfs.create(&ROOT, &dir, &name(number), &NewObject { kind, permissions: 0o755, umask: 0 })?
            };
            lately[maker * LATELY + number % LATELY].store(made.ino().0, Ordering::Relaxed);
            drop(made);
            if number >= LATELY {
                remove(number - LATELY)?;
            }
        }
        (each.saturating_sub(LATELY)..each).try_for_each(remove)
    };
    let read = |reader: usize| -> Result<u64> {
        let mut wrong = 0;
        while working.load(Ordering::Relaxed) > 0 {
            for number in &lately {
                // None yet.
                let ino = match number.load(Ordering::Relaxed) {
                    0 => continue,
                    number => Ino(number),
                };
                wrong += u64::from(!is_whole_or_gone(vfs, ino, reader == 0, has_list)?);
            }
        }
        Ok(wrong)
    };
    let (made, found): (Vec<_>, Vec<_>) = thread::scope(|scope| {
        let makers: Vec<_> = (0..MAKERS)
            .map(|maker| {
                let (make, working) = (&make, &working);
                scope.spawn(move || {
                    let _ends = Ends(working);
                    make(maker)
                })
            })
            .collect();
        let readers: Vec<_> = (0..READERS).map(|reader| scope.spawn(move || read(reader))).collect();
        (
            makers.into_iter().filter_map(|maker| maker.join().ok()).collect(),
            readers.into_iter().filter_map(|reader| reader.join().ok()).collect(),
        )
    });
    on.equal(|| "threads that came to the end".to_owned(), &(made.len() + found.len()), &(MAKERS + READERS));
    for made in made {
        on.ok(|| "making inodes that are looked up by number".to_owned(), made);
    }
    for found in found {
        if let Some(wrong) = on.ok(|| "looking inodes up by number".to_owned(), found) {
            on.equal(|| "inodes of which a part was seen".to_owned(), &wrong, &0);
        }
    }
    Ok(())
}

/// One maker less.
struct Ends<'a>(&'a AtomicUsize);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

fn is_whole_or_gone(vfs: &Vfs, ino: Ino, cached: bool, has_list: bool) -> Result<bool> {
    match if cached { vfs.node(ino) } else { vfs.node_once(ino) } {
        Ok(node) => is_whole(&node, has_list),
        Err(Error::Stale) => Ok(true),
        Err(error) => Err(error),
    }
}

/// Whether an inode has all that it was made with.
fn is_whole(node: &Node, has_list: bool) -> Result<bool> {
    Ok(match node.kind() {
        FileType::Symlink => node.read_link()? == TARGET,
        FileType::Directory => !has_list || node.xattr(DEFAULT)?.is_some(),
        _ => !has_list || node.xattr(ACCESS)?.is_some(),
    })
}

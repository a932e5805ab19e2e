//! Many names in one directory, made, moved and removed by several threads.

use std::collections::BTreeSet;
use std::thread;

use super::super::outcome::Finds;
use super::super::remove::names_in;
use super::ground::{Checked, Ground, ROOT};
use crate::{NewObject, RenameFlags, Result};

const THREADS: usize = 4;

pub(super) fn check(on: &mut Ground<'_>) -> Checked {
    let (vfs, dir, each) = (on.vfs, on.directory(&on.top, "many")?, on.profile.holds.many);
    let name = |letter: char, thread: usize, number: usize| format!("{letter}{thread}-{number}").into_bytes();
    let work = |thread: usize| -> Result<()> {
        for number in 0..each {
            vfs.create(&ROOT, &dir, &name('a', thread, number), &NewObject::file(0o644))?;
            let before = number.saturating_sub(50);
            match number % 3 {
                0 if number > 100 => {
                    let (from, to) = (name('a', thread, before), name('b', thread, before));
                    vfs.rename(&ROOT, (&dir, &from), (&dir, &to), RenameFlags::NO_REPLACE)?;
                }
                1 if number > 100 => vfs.unlink(&ROOT, &dir, &name('a', thread, before))?,
                _ => {}
            }
        }
        Ok(())
    };
    let done: Vec<Result<()>> = thread::scope(|scope| {
        let workers: Vec<_> = (0..THREADS).map(|thread| scope.spawn(move || work(thread))).collect();
        workers.into_iter().filter_map(|worker| worker.join().ok()).collect()
    });
    on.equal(|| "threads that came to the end".to_owned(), &done.len(), &THREADS);
    for done in done {
        done?;
    }

    let mut expected = BTreeSet::new();
    for thread in 0..THREADS {
        expected.extend((0..each).map(|number| name('a', thread, number)));
        for number in 101..each {
            let old = name('a', thread, number - 50);
            if number % 3 < 2 {
                expected.remove(&old);
            }
            if number % 3 == 0 {
                expected.insert(name('b', thread, number - 50));
            }
        }
    }
    let listed = names_in(&dir)?;
    on.equal(|| "names listed".to_owned(), &listed.len(), &expected.len());
    let listed: BTreeSet<Vec<u8>> = listed.into_iter().collect();
    let wrong = listed.symmetric_difference(&expected).next();
    on.equal(|| "a name that is not as it should be".to_owned(), &wrong, &None);
    for name in &expected {
        on.ok(|| format!("looking {} up", name.escape_ascii()), vfs.lookup(&dir, name));
    }
    Ok(())
}

//! Several threads in one directory.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};

use super::*;

/// Names that stand all along are listed once and always found, while others come and go around them and the
/// directory's leaves are split.
#[test]
fn names_that_stay_are_listed_exactly_once() {
    for features in ["metadata_csum", "^dir_index"] {
        let mut changed = Changed::new(ext4(1024, features));
        let standing: Vec<Vec<u8>> = (0..150).map(|n| format!("standing-{n:0>40}").into_bytes()).collect();
        standing.iter().for_each(|name| changed.add(name));
        let done = AtomicBool::new(false);
        let kept: Vec<BTreeSet<Vec<u8>>> = std::thread::scope(|scope| {
            let (shared, standing, done) = (&changed, &standing, &done);
            let changers: Vec<_> =
                (0..4_usize).map(|thread| scope.spawn(move || change(shared, thread))).collect();
            scope.spawn(move || {
                while !done.load(Ordering::Relaxed) {
                    shared.writable.commit();
                }
            });
            for at_once in [usize::MAX, 5] {
                scope.spawn(move || {
                    while !done.load(Ordering::Relaxed) {
                        list(shared, standing, at_once);
                    }
                });
            }
            scope.spawn(move || {
                for name in standing.iter().cycle().take_while(|_| !done.load(Ordering::Relaxed)) {
                    assert_eq!(lookup_live(&shared.dir, name).unwrap(), Some(shared.file.number));
                }
            });
            let kept = changers.into_iter().map(std::thread::ScopedJoinHandle::join).collect::<Vec<_>>();
            done.store(true, Ordering::Relaxed);
            kept.into_iter().map(|kept| kept.unwrap()).collect()
        });
        let number = changed.file.number;
        changed.model.extend(kept.into_iter().flatten().map(|name| (name, number)));
        changed.finish();
    }
}

/// Adds and removes names of this thread's own; the ones that are left.
fn change(shared: &Changed, thread: usize) -> BTreeSet<Vec<u8>> {
    let mut random = Rng::new(77 + thread as u64);
    let mut own = BTreeSet::new();
    for _ in 0..2000 {
        let name = [format!("{thread}-").into_bytes(), random_name(&mut random, 400, 60)].concat();
        let handle = shared.writable.volume.start(ADD_CREDITS).unwrap();
        let number = shared.file.number;
        if own.remove(&name) {
            dir::remove(&handle, &shared.dir, &name, number).unwrap();
        } else {
            dir::add(&handle, &shared.dir, &name, number, FileType::Regular).unwrap();
            own.insert(name);
        }
    }
    own
}

fn list(shared: &Changed, standing: &[Vec<u8>], at_once: usize) {
    let listed = shared.listed(at_once);
    let mut seen: Vec<_> =
        listed.iter().filter(|l| l.name.starts_with(b"standing")).map(|l| &l.name).collect();
    seen.sort();
    assert!(seen.into_iter().eq(standing.iter()), "names that stood all along");
}

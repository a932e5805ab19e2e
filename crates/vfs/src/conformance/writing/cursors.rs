//! Listing a directory while its names come and go: what stands all along is given exactly once.
//!
//! Names that come and go are never used twice, so each is given at most once.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::thread;

use undercroft_sync::atomic::{AtomicBool, Ordering};

use super::super::check::show;
use super::super::outcome::{Finds, Outcome};
use super::super::remove::names_in;
use super::ground::{Checked, Ground, ROOT};
use crate::{DirOffset, NewObject, Node, RenameFlags, Result, Vfs};
use undercroft_block::testing::Rng;

/// How many entries a reader takes at once.
const READS: [usize; 5] = [1, 2, 7, 100, usize::MAX];

pub(super) fn check(on: &mut Ground<'_>) -> Checked {
    for (round, standing) in [0, 1, 5, 60, 700].into_iter().enumerate() {
        let dir = on.directory(&on.top, &format!("{standing}"))?;
        let mut names = BTreeSet::new();
        for number in 0..standing {
            let name = format!("{number:x}{}", "-".repeat(number * 7 % 60)).into_bytes();
            on.vfs.create(&ROOT, &dir, &name, &NewObject::file(0o644))?;
            names.insert(name);
        }
        let mut churn = Churn::new(on.vfs, &dir, on.profile.seed + round as u64);
        for limit in READS {
            listing_in_turns(on, &dir, &names, &mut churn, limit)?;
        }
        from_every_position(on, &dir, &names, &mut churn)?;
        listing_meanwhile(on, &dir, &names)?;
    }
    Ok(())
}

/// Names that come and go beside those that stand.
struct Churn<'a> {
    vfs: &'a Vfs,
    dir: &'a Arc<Node>,
    random: Rng,
    seed: u64,
    made: u64,
    there: Vec<Vec<u8>>,
}

impl<'a> Churn<'a> {
    fn new(vfs: &'a Vfs, dir: &'a Arc<Node>, seed: u64) -> Self {
        Self { vfs, dir, random: Rng::new(seed), seed, made: 0, there: Vec::new() }
    }

    fn fresh(&mut self) -> Vec<u8> {
        self.made += 1;
        let len = self.random.index(200);
        format!("~{}.{}{}", self.seed, self.made, "+".repeat(len)).into_bytes()
    }

    /// One change.
    fn turn(&mut self) -> Result<()> {
        let name = self.fresh();
        let way = if self.there.is_empty() { 0 } else { self.random.below(4) };
        if way < 2 {
            self.vfs.create(&ROOT, self.dir, &name, &NewObject::file(0o644))?;
            self.there.push(name);
            return Ok(());
        }
        let at = self.random.index(self.there.len());
        let old = self.there.swap_remove(at);
        if way == 2 {
            return self.vfs.unlink(&ROOT, self.dir, &old);
        }
        self.vfs.rename(&ROOT, (self.dir, &old), (self.dir, &name), RenameFlags::NO_REPLACE)?;
        self.there.push(name);
        Ok(())
    }
}

/// At most `limit` names from a position on, with the position after each; what is given is no directory's own.
fn read(dir: &Node, from: DirOffset, limit: usize) -> Result<Vec<(Vec<u8>, DirOffset)>> {
    let mut given = Vec::new();
    dir.read_dir(from, &mut |entry| {
        given.push((entry.name.to_vec(), entry.next));
        if given.len() < limit { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })?;
    Ok(given)
}

/// Whether a listing gave what stands, once, and nothing else twice.
fn compare(found: &mut impl Finds, what: &str, given: &[Vec<u8>], standing: &BTreeSet<Vec<u8>>) {
    let mut counts: BTreeMap<&[u8], usize> = BTreeMap::new();
    for name in given {
        *counts.entry(name).or_default() += 1;
    }
    for name in standing {
        let count = counts.get(&name[..]).copied().unwrap_or(0);
        found.that(count == 1, || format!("{what} gives {} {count} times", show(name)));
    }
    if let Some((name, count)) = counts.iter().find(|(_, count)| **count > 1) {
        found.that(false, || format!("{what} gives {} {count} times", show(name)));
    }
}

fn listing_in_turns(
    on: &mut Ground<'_>,
    dir: &Arc<Node>,
    standing: &BTreeSet<Vec<u8>>,
    churn: &mut Churn<'_>,
    limit: usize,
) -> Checked {
    let mut expected = standing.clone();
    expected.extend([b".".to_vec(), b"..".to_vec()]);
    let (mut given, mut at) = (Vec::new(), DirOffset(0));
    loop {
        let some = read(dir, at, limit)?;
        let Some((_, next)) = some.last() else { break };
        at = *next;
        given.extend(some.into_iter().map(|(name, _)| name));
        // Fewer come than are read, or the listing might go on for ever.
        for _ in 0..limit.min(10).div_ceil(2) {
            churn.turn()?;
        }
        if given.len() > 100_000 {
            on.that(false, || "a listing does not end".to_owned());
            break;
        }
    }
    compare(on, &format!("a listing by {limit} of {} names", standing.len()), &given, &expected);
    Ok(())
}

/// Every position of an old listing leads on to what stood after it, however the directory has changed since.
fn from_every_position(
    on: &mut Ground<'_>,
    dir: &Arc<Node>,
    standing: &BTreeSet<Vec<u8>>,
    churn: &mut Churn<'_>,
) -> Checked {
    let old = read(dir, DirOffset(0), usize::MAX)?;
    for _ in 0..200 {
        churn.turn()?;
    }
    let step = 1 + old.len() / 100;
    for (position, (_, next)) in old.iter().enumerate().step_by(step) {
        let rest: BTreeSet<Vec<u8>> = old[position + 1..]
            .iter()
            .map(|(name, _)| name)
            .filter(|name| standing.contains(*name))
            .cloned()
            .collect();
        let given: Vec<Vec<u8>> = read(dir, *next, usize::MAX)?.into_iter().map(|(name, _)| name).collect();
        compare(on, &format!("a listing from the old position {position}"), &given, &rest);
        let before = given.iter().find(|name| standing.contains(*name) && !rest.contains(*name));
        on.that(before.is_none(), || format!("the old position {position} leads back to {before:?}"));
    }
    Ok(())
}

/// Two threads change names while this one reads.
fn listing_meanwhile(on: &mut Ground<'_>, dir: &Arc<Node>, standing: &BTreeSet<Vec<u8>>) -> Checked {
    const LISTINGS: usize = 20;
    let (vfs, seed, done) = (Arc::clone(on.vfs), on.profile.seed, AtomicBool::new(false));
    let mut found = Outcome::default();
    let listed: Result<()> = thread::scope(|scope| {
        let changers: Vec<_> = (1..=2)
            .map(|number| {
                let (vfs, done) = (&vfs, &done);
                scope.spawn(move || {
                    let mut churn = Churn::new(vfs, dir, seed + number * 1_000_000);
                    while !done.load(Ordering::Relaxed) {
                        // Few at a time, or small reads would never come to the end.
                        if churn.there.len() < 500 {
                            churn.turn()?;
                        }
                        while churn.there.len() > 300 {
                            let name = churn.there.swap_remove(0);
                            vfs.unlink(&ROOT, dir, &name)?;
                        }
                    }
                    Ok(())
                })
            })
            .collect();
        let read_all = || -> Result<()> {
            for round in 0..LISTINGS {
                let limit = READS[1 + round % (READS.len() - 1)];
                let (mut given, mut at) = (Vec::new(), DirOffset(0));
                loop {
                    let some = read(dir, at, limit)?;
                    let Some((_, next)) = some.last() else { break };
                    at = *next;
                    given.extend(
                        some.into_iter().map(|(name, _)| name).filter(|name| standing.contains(name)),
                    );
                }
                compare(&mut found, &format!("a listing by {limit} meanwhile"), &given, standing);
            }
            Ok(())
        };
        let mut read_all = read_all;
        let read = read_all();
        done.store(true, Ordering::Relaxed);
        let changed: Vec<Result<()>> =
            changers.into_iter().filter_map(|changer| changer.join().ok()).collect();
        assert_eq!(changed.len(), 2, "a thread that changes names panicked");
        changed.into_iter().chain([read]).collect()
    });
    on.absorb(found);
    listed?;
    let left = names_in(dir)?;
    let missing = standing.iter().find(|name| !left.contains(name));
    on.equal(|| "a name that is missing at the end".to_owned(), &missing, &None);
    Ok(())
}

//! What workers do to names in one directory.

use super::name::{Name, STANDING};
use super::{STANDING_NAMES, Script};
use crate::BenchError;
use crate::directory::Directory;
use crate::random::Random;

/// Creates an empty file under a name of its own and unlinks it.
pub(crate) struct CreateUnlink<'d, D> {
    dir: &'d D,
    name: Name,
}

/// Creates a file under a random name, renames it to another, and unlinks it.
pub(super) struct Rename<'d, D> {
    dir: &'d D,
    names: OwnNames,
}

/// Creates files, which stay.
pub(super) struct CreateMany<'d, D> {
    dir: &'d D,
    owner: u32,
    created: u64,
}

/// Asks for the attributes of a file of its own, which stays.
pub(super) struct StatOwn<'d, D> {
    dir: &'d D,
    name: Name,
}

/// Asks for the attributes of random names among those that are there.
pub(super) struct StatMany<'d, D> {
    dir: &'d D,
    names: StandingNames,
}

/// Lists what is there.
pub(super) struct ReaddirStorm<'d, D> {
    dir: &'d D,
}

/// Random names of one worker, none of them twice.
struct OwnNames {
    owner: u32,
    random: Random,
}

/// Random names among those that were there before anything started.
struct StandingNames(Random);

impl<'d, D: Directory> CreateUnlink<'d, D> {
    pub(crate) fn new(dir: &'d D, index: u32) -> Self {
        Self { dir, name: Name::new(index, 0) }
    }
}

impl<D: Directory> Script for CreateUnlink<'_, D> {
    fn step(&mut self) -> Result<(), BenchError> {
        self.dir.create(&self.name.0)?;
        self.dir.unlink(&self.name.0)
    }
}

impl<'d, D: Directory> Rename<'d, D> {
    pub(super) fn new(dir: &'d D, index: u32) -> Self {
        Self { dir, names: OwnNames::new(index) }
    }
}

impl<D: Directory> Script for Rename<'_, D> {
    fn step(&mut self) -> Result<(), BenchError> {
        let (from, to) = (self.names.next(), self.names.next());
        self.dir.create(&from.0)?;
        self.dir.rename(&from.0, &to.0)?;
        self.dir.unlink(&to.0)
    }
}

impl<'d, D: Directory> CreateMany<'d, D> {
    pub(super) const fn new(dir: &'d D, index: u32) -> Self {
        Self { dir, owner: index, created: 0 }
    }
}

impl<D: Directory> Script for CreateMany<'_, D> {
    fn step(&mut self) -> Result<(), BenchError> {
        let name = Name::new(self.owner, self.created);
        self.created += 1;
        self.dir.create(&name.0)
    }
}

impl<'d, D: Directory> StatOwn<'d, D> {
    pub(super) fn new(dir: &'d D, index: u32) -> Result<Self, BenchError> {
        let name = Name::new(index, 0);
        dir.create(&name.0)?;
        Ok(Self { dir, name })
    }
}

impl<D: Directory> Script for StatOwn<'_, D> {
    fn step(&mut self) -> Result<(), BenchError> {
        self.dir.stat(&self.name.0)
    }
}

impl<'d, D: Directory> StatMany<'d, D> {
    pub(super) const fn new(dir: &'d D, index: u32) -> Self {
        Self { dir, names: StandingNames(Random::of_worker(index)) }
    }
}

impl<D: Directory> Script for StatMany<'_, D> {
    fn step(&mut self) -> Result<(), BenchError> {
        self.dir.stat(&Name::new(STANDING, self.names.next()).0)
    }
}

impl<'d, D: Directory> ReaddirStorm<'d, D> {
    pub(super) const fn new(dir: &'d D) -> Self {
        Self { dir }
    }
}

impl<D: Directory> Script for ReaddirStorm<'_, D> {
    fn step(&mut self) -> Result<(), BenchError> {
        // What is there all the time, with `.` and `..`.
        let expected = STANDING_NAMES + 2;
        let found = self.dir.list()?;
        if found < expected {
            return Err(BenchError::LostNames { found, expected });
        }
        Ok(())
    }
}

impl OwnNames {
    const fn new(owner: u32) -> Self {
        Self { owner, random: Random::of_worker(owner) }
    }

    fn next(&mut self) -> Name {
        Name::new(self.owner, self.random.next())
    }
}

impl StandingNames {
    /// A name's number.
    fn next(&mut self) -> u64 {
        self.0.next() % STANDING_NAMES
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn random_names_belong_to_one_thread() {
        let mut seen = BTreeSet::new();
        for index in 0..8 {
            let mut names = OwnNames::new(index);
            assert!((0..1000).all(|_| seen.insert(names.next().0)));
        }
    }

    #[test]
    fn every_standing_name_is_asked_for_sooner_or_later() {
        let mut names = StandingNames(Random::of_worker(1));
        let asked: BTreeSet<u64> = (0..20 * STANDING_NAMES).map(|_| names.next()).collect();
        assert_eq!(asked.len() as u64, STANDING_NAMES);
    }
}

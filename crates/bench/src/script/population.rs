//! A filesystem with many inodes of which few, at random places, are free, and the files that get those.
//!
//! It is the measurement with which Linux's XFS got its B+tree of free inodes. Making such a population is a workload of its
//! own.

use std::collections::HashSet;

use super::Script;
use super::name::{Name, STANDING};
use crate::BenchError;
use crate::directory::Directory;
use crate::random::Random;

/// What there must be before anything starts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    /// The file that all workers share.
    pub(crate) file_bytes: u64,
    /// Files of the population.
    pub(crate) inodes: u64,
    /// Of those, the ones that are removed again.
    pub(crate) removed: u64,
}

/// Files of the population in one directory.
const IN_ONE_DIRECTORY: u64 = 1000;

/// Makes a population: directories of its own, full of files.
pub(super) struct Populate<'d, D> {
    dir: &'d D,
    owner: u32,
    created: u64,
    /// The directory that is being filled.
    inside: D,
}

/// Creates files in one new directory that all workers share.
pub(super) struct InodeAlloc<D> {
    dir: D,
    owner: u32,
    created: u64,
}

/// Makes the population and removes files of it at random places.
pub(super) fn populate<D: Directory>(dir: &D, sizes: Sizes) -> Result<(), BenchError> {
    let inside = |number: u64| dir.inside(&Name::new(STANDING, number / IN_ONE_DIRECTORY).0);
    for first in (0..sizes.inodes).step_by(IN_ONE_DIRECTORY as usize) {
        let directory = inside(first)?;
        for number in first..(first + IN_ONE_DIRECTORY).min(sizes.inodes) {
            directory.create(&Name::new(STANDING, number).0)?;
        }
    }
    let mut random = Random::of_worker(STANDING);
    let mut removed = HashSet::new();
    while (removed.len() as u64) < sizes.removed.min(sizes.inodes) {
        let number = random.next() % sizes.inodes;
        if removed.insert(number) {
            inside(number)?.unlink(&Name::new(STANDING, number).0)?;
        }
    }
    Ok(())
}

impl<'d, D: Directory> Populate<'d, D> {
    pub(super) fn new(dir: &'d D, index: u32) -> Result<Self, BenchError> {
        Ok(Self { dir, owner: index, created: 0, inside: dir.inside(&Name::new(index, 0).0)? })
    }
}

impl<D: Directory> Script for Populate<'_, D> {
    fn step(&mut self) -> Result<(), BenchError> {
        let number = self.created;
        if number > 0 && number.is_multiple_of(IN_ONE_DIRECTORY) {
            self.inside = self.dir.inside(&Name::new(self.owner, number / IN_ONE_DIRECTORY).0)?;
        }
        self.created += 1;
        self.inside.create(&Name::new(self.owner, number).0)
    }
}

impl<D: Directory> InodeAlloc<D> {
    pub(super) fn new(dir: &D, index: u32) -> Result<Self, BenchError> {
        Ok(Self { dir: dir.inside(b"new")?, owner: index, created: 0 })
    }
}

impl<D: Directory> Script for InodeAlloc<D> {
    fn step(&mut self) -> Result<(), BenchError> {
        let name = Name::new(self.owner, self.created);
        self.created += 1;
        self.dir.create(&name.0)
    }
}

//! What one worker does, step by step: the names it chooses and the operations it asks for.
//!
//! Names are as long everywhere and cost the same, whoever is measured. They come from a seed that is the worker's
//! index, so that a run does the same as the run before.

use crate::directory::Directory;
use crate::workload::STANDING_NAMES;
use crate::{BenchError, Workload};

/// The owner of names that are there before anything starts.
const STANDING: u32 = 0xffff;

/// A name: its owner among the workers, and a number.
struct Name([u8; 22]);

impl Name {
    fn new(owner: u32, number: u64) -> Self {
        let mut bytes = *b"w0000-0000000000000000";
        hex(&mut bytes[1..5], u64::from(owner));
        hex(&mut bytes[6..], number);
        Self(bytes)
    }
}

fn hex(digits: &mut [u8], mut number: u64) {
    for digit in digits.iter_mut().rev() {
        *digit = b"0123456789abcdef"[(number & 15) as usize];
        number >>= 4;
    }
}

/// One worker's part in a workload.
pub(crate) struct Script {
    workload: Workload,
    owner: u32,
    /// Files created so far, where they stay.
    created: u64,
    /// The state of the generator: SplitMix64, which gives every number once before it repeats.
    seed: u64,
}

impl Script {
    pub(crate) const fn new(workload: Workload, index: u32) -> Self {
        Self { workload, owner: index, created: 0, seed: (index as u64) << 32 }
    }

    /// One operation.
    #[inline]
    pub(crate) fn step<D: Directory>(&mut self, dir: &D) -> Result<(), BenchError> {
        match self.workload {
            Workload::CreateUnlink => self.create_and_unlink(dir),
            Workload::Rename => {
                let (from, to) = (self.random_name(), self.random_name());
                dir.create(&from.0)?;
                dir.rename(&from.0, &to.0)?;
                dir.unlink(&to.0)
            }
            Workload::CreateMany => {
                let name = Name::new(self.owner, self.created);
                self.created += 1;
                dir.create(&name.0)
            }
            Workload::StatMany => {
                let name = Name::new(STANDING, self.random() % STANDING_NAMES);
                dir.stat(&name.0)
            }
            Workload::ReaddirStorm => {
                // What is there all the time, with `.` and `..`.
                let expected = STANDING_NAMES + 2;
                let found = dir.list()?;
                if found < expected {
                    return Err(BenchError::LostNames { found, expected });
                }
                Ok(())
            }
        }
    }

    /// One change of names, by the worker who makes them while others list.
    pub(crate) fn create_and_unlink<D: Directory>(&mut self, dir: &D) -> Result<(), BenchError> {
        let name = Name::new(self.owner, 0);
        dir.create(&name.0)?;
        dir.unlink(&name.0)
    }

    fn random_name(&mut self) -> Name {
        Name::new(self.owner, self.random())
    }

    fn random(&mut self) -> u64 {
        self.seed = self.seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.seed;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

/// Makes what must be there before anything starts.
pub(crate) fn make_standing_names<D: Directory>(workload: Workload, dir: &D) -> Result<(), BenchError> {
    (0..workload.standing_names()).try_for_each(|number| dir.create(&Name::new(STANDING, number).0))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn names_tell_owner_and_number() {
        assert_eq!(Name::new(0x2a, 0xdead_beef).0, *b"w002a-00000000deadbeef");
    }

    #[test]
    fn random_names_are_nobody_elses() {
        let mut seen = BTreeSet::new();
        for index in 0..8 {
            let mut script = Script::new(Workload::Rename, index);
            assert!((0..1000).all(|_| seen.insert(script.random_name().0)));
        }
    }

    #[test]
    fn every_standing_name_is_asked_for_sooner_or_later() {
        let mut script = Script::new(Workload::StatMany, 1);
        let asked: BTreeSet<u64> =
            (0..20 * STANDING_NAMES).map(|_| script.random() % STANDING_NAMES).collect();
        assert_eq!(asked.len() as u64, STANDING_NAMES);
    }
}

//! Fields of the superblock, in tune2fs's words.

use std::hash::{BuildHasher, RandomState};

use undercroft_vfs::{Error, Result};

use super::Tuning;
use crate::superblock::{HashAlgorithm, RawSuperblock, Superblock};

/// Blocks kept for the superuser.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Reserved {
    /// Of all blocks, 0 to 50.
    Percent(f64),
    /// So many.
    Blocks(u64),
}

/// What the hashes of names begin with, for a filesystem that has nothing of the kind yet.
pub(super) struct HashSeed([u32; 4]);

impl HashSeed {
    pub(super) fn new() -> Self {
        Self([0_u32; 4].map(|_| RandomState::new().hash_one(0) as u32 | 1))
    }

    /// Lets directories get an index.
    pub(super) fn put(&self, raw: &mut RawSuperblock) {
        if raw.s_def_hash_version == 0 {
            raw.s_def_hash_version = HashAlgorithm::HalfMd4 as u8;
        }
        if raw.s_hash_seed.iter().all(|word| word.get() == 0) {
            for (word, seed) in raw.s_hash_seed.iter_mut().zip(self.0) {
                word.set(seed);
            }
        }
    }
}

/// Refuses values that a field cannot have.
pub(super) fn check(superblock: &Superblock, tuning: &Tuning) -> Result<()> {
    let blocks = superblock.geometry().blocks();
    match tuning.reserved {
        Some(Reserved::Percent(percent)) if !(0.0..=50.0).contains(&percent) => {
            return Err(Error::InvalidArgument(
                "0 to 50 percent of the blocks can be kept for the superuser",
            ));
        }
        Some(Reserved::Blocks(count)) if count > blocks / 2 => {
            return Err(Error::InvalidArgument("at most half of the blocks can be kept for the superuser"));
        }
        _ => {}
    }
    let length = superblock.raw().s_mount_opts.len() - 1;
    if tuning.mount_options.as_ref().is_some_and(|options| options.len() > length || options.contains(&0)) {
        return Err(Error::InvalidArgument("mount options have at most 63 bytes, none of them zero"));
    }
    Ok(())
}

/// Puts them into the superblock.
pub(super) fn put(old: &Superblock, tuning: &Tuning, seed: &HashSeed, raw: &mut RawSuperblock) {
    let blocks = old.geometry().blocks();
    if let Some(reserved) = tuning.reserved {
        let count = match reserved {
            // Exact as far as a double is, as in tune2fs, whose number this is to be.
            Reserved::Percent(percent) => (percent * blocks as f64 / 100.0) as u64,
            Reserved::Blocks(count) => count,
        };
        raw.s_r_blocks_count_lo.set(count as u32);
        raw.s_r_blocks_count_hi.set((count >> 32) as u32);
    }
    let set16 = |value: Option<u16>, field: &mut zerocopy::little_endian::U16| {
        if let Some(value) = value {
            field.set(value);
        }
    };
    set16(tuning.reserved_user, &mut raw.s_def_resuid);
    set16(tuning.reserved_group, &mut raw.s_def_resgid);
    set16(tuning.on_error.map(|on_error| on_error as u16), &mut raw.s_errors);
    // As tune2fs has "never".
    set16(
        tuning.mounts_most.map(|count| if count == 0 { u16::MAX } else { count }),
        &mut raw.s_max_mnt_count,
    );
    set16(tuning.mounts, &mut raw.s_mnt_count);
    set16(tuning.stride, &mut raw.s_raid_stride);
    if let Some(seconds) = tuning.check_interval_s {
        raw.s_checkinterval.set(seconds);
    }
    if let Some(blocks) = tuning.stripe_width {
        raw.s_raid_stripe_width.set(blocks);
    }
    for &(option, is_set) in &tuning.mount_defaults {
        raw.s_default_mount_opts.set(option.switch(raw.s_default_mount_opts.get(), is_set));
    }
    if let Some(options) = &tuning.mount_options {
        raw.s_mount_opts.fill(0);
        raw.s_mount_opts[..options.len()].copy_from_slice(options);
    }
    if let Some(algorithm) = tuning.hash_algorithm {
        raw.s_def_hash_version = algorithm as u8;
        let keep = raw.s_def_hash_version;
        seed.put(raw);
        raw.s_def_hash_version = keep;
    }
}

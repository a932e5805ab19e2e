//! What the checks need to be told about a filesystem.

use std::sync::Arc;

use super::super::standard::Profile;
use crate::{FallocateMode, Vfs};

/// What the filesystem under test can do, so that the checks ask for no more.
#[derive(Clone, Copy)]
pub struct WritingProfile<'a> {
    /// What it can hold.
    pub holds: Profile,
    /// The changes of space that it makes; the others are [`Unsupported`](crate::Error::Unsupported).
    pub fallocate_modes: &'a [FallocateMode],
    /// Makes an empty filesystem that is soon full: of a few MiB, with some hundred inodes.
    pub small: Option<&'a dyn Fn() -> Arc<Vfs>>,
    /// Where everything random comes from.
    pub seed: u64,
}

impl Default for WritingProfile<'_> {
    fn default() -> Self {
        Self {
            holds: Profile::default(),
            fallocate_modes: &[
                FallocateMode::Allocate,
                FallocateMode::PunchHole,
                FallocateMode::Zero,
                FallocateMode::Collapse,
                FallocateMode::Insert,
            ],
            small: None,
            seed: 0,
        }
    }
}

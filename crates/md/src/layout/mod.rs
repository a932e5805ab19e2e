//! Where a byte of the array lies on its members: pure functions, without any I/O.
//!
//! One map for each family of levels ([`ParityMap`], [`Raid10Map`], [`Raid0Map`], [`LinearMap`]), made from a
//! [`Geometry`](crate::Geometry) that [`check`](crate::Geometry::check) has let pass; nothing after that overflows or
//! divides by zero. `size` has what all levels have in common: how large the array is, and what its background work
//! counts. Rows and stripes are numbered from the front of the members' data areas.
//!
//! The facts are those of Linux's md driver, as told at each function; what Linux wrote to members of every layout is
//! repeated in the tests.

mod linear;
#[cfg(test)]
mod linux;
mod parity;
mod raid0;
mod raid10;
mod size;

pub(crate) use linear::LinearMap;
#[cfg(test)]
pub(crate) use parity::Slot;
pub(crate) use parity::{DataPlace, ParityMap};
pub(crate) use raid0::Raid0Map;
pub(crate) use raid10::{Copy, Raid10Map};

use crate::member::Role;

/// A run of bytes that is on one member without a gap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) role: Role,
    /// In the member's data area.
    pub(crate) member_offset: u64,
    /// How far the run goes on, at least one byte.
    pub(crate) len: u64,
}

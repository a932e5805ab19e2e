//! A transaction on its way to the disk: its items as it left them.

use crate::{Item, Tid};

/// A locked transaction on its way to the disk.
#[derive(Debug)]
pub struct Transaction<I: Item> {
    /// Its number.
    pub tid: Tid,
    /// The items that it changed, except for those that it cancelled.
    pub items: Vec<Frozen<I>>,
    /// Homes that stopped being metadata.
    pub cancelled: Vec<I::Home>,
}

/// An item as one transaction left it.
#[derive(Debug)]
pub struct Frozen<I: Item> {
    /// The item, which goes on to change.
    pub item: I,
    /// Its version.
    pub version: I::Version,
}

//! How values become text: names, sizes, times, modes, colours, standard output, notes.

pub(crate) mod acl;
pub(crate) mod bar;
pub(crate) mod human;
pub(crate) mod names;
pub(crate) mod nearest;
pub(crate) mod note;
pub(crate) mod out;
pub(crate) mod partitions;
pub(crate) mod style;

//! Concurrent changes of names, checked to be linearizable: whatever threads do at the same time, their answers must
//! be those of *some* order in which the operations were done one after the other.
//!
//! A schedule is made from a seed: a few threads, each with a few operations over few names in two directories and
//! whatever directories come to be in them. They run on the filesystem under test, through the vfs; each operation
//! notes when it began, when it ended and what it answered. Then an order is looked for in which a simple model
//! (`model.rs`) gives the same answers, and in which no operation comes before one that had ended when it began.
//!
//! A listing of a directory is no single step where names change meanwhile: it must show each name exactly once that
//! existed throughout, and none that never existed (checked against the answers of the other operations). Where nothing
//! changed in the directory meanwhile it must show exactly what the model has.

mod history;
mod model;
mod run;
mod search;

pub use run::{LinearOptions, check_schedule};

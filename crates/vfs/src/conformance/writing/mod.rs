//! What every filesystem that can be written to must do.
//!
//! Each check gets an empty directory, works in it through the vfs as users do, and has it removed again; the free
//! space and the free inodes must be what they were before.
//!
//! | module      | checks                                                                                |
//! | ----------- | ------------------------------------------------------------------------------------- |
//! | `refusals`  | a table of what is refused, and that nothing has changed then                         |
//! | `names`     | what making, linking, moving and removing names does; their length                    |
//! | `links`     | counts of links, and `..`, after directories have moved                               |
//! | `times`     | which times change with what                                                          |
//! | `orphans`   | open files without a name: those that lost it and those that never had one            |
//! | `cursors`   | listing a directory while its names come and go                                       |
//! | `many`      | many names in one directory, by several threads                                       |
//! | `numbers`   | inodes looked up by number, while other threads make and remove them                  |
//! | `bytes`     | content against a vector of bytes                                                     |
//! | `size`      | the largest file                                                                      |
//! | `xattrs`    | extended attributes                                                                   |
//! | `heritage`  | owner, group, permissions and lists of what is made in a directory                    |
//! | `flags`     | files that cannot be changed, or only appended to                                     |
//! | `full`      | a filesystem without space                                                            |
//!
//! What is random comes of the profile's seed, which failures name. Not covered: durability, and threads that change
//! the same names, for which see [`check_schedule`](super::check_schedule).

mod bytes;
mod cursors;
mod flags;
mod full;
mod ground;
mod heritage;
mod links;
mod many;
mod names;
mod numbers;
mod orphans;
mod profile;
mod refusals;
mod size;
mod times;
mod xattrs;

use std::sync::Arc;

use self::ground::{Checked, Ground};
use super::outcome::{Finds, Outcome};
use crate::Vfs;

pub use self::profile::WritingProfile;

/// A check's name, which is also its directory's, and what it does.
type Part = (&'static str, fn(&mut Ground<'_>) -> Checked);

const PARTS: [Part; 13] = [
    ("refusals", refusals::check),
    ("names", names::check),
    ("links", links::check),
    ("times", times::check),
    ("orphans", orphans::check),
    ("cursors", cursors::check),
    ("many", many::check),
    ("numbers", numbers::check),
    ("bytes", bytes::check),
    ("size", size::check),
    ("xattrs", xattrs::check),
    ("heritage", heritage::check),
    ("flags", flags::check),
];

/// Checks a filesystem that can be written to, in directories of its own in the root directory, which are gone
/// afterwards.
pub fn check_writing(vfs: &Arc<Vfs>, profile: &WritingProfile<'_>) -> Outcome {
    let mut outcome = Outcome::default();
    for (name, part) in PARTS {
        outcome.absorb(ground::run(vfs, profile, name, part));
    }
    if let Some(small) = profile.small {
        outcome.absorb(ground::run(&small(), profile, "full", full::check));
    }
    outcome
}

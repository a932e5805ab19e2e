//! What making a filesystem of any format needs: what the device holds already, why nothing was made, and identifiers.

mod error;
mod present;
mod random;

pub use error::{MkfsError, refuse};
pub use present::{Present, what_is_on};
pub use random::random_uuid;

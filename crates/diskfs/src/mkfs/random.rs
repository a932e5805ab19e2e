//! Random identifiers, from the system: by getrandom(2), which needs no /dev/urandom.

use uuid::{Builder, Uuid};

use super::error::{MkfsError, refuse};

/// A random UUID.
///
/// # Errors
/// When the system has no random bytes yet.
pub fn random_uuid() -> Result<Uuid, MkfsError> {
    let mut bytes = [0; 16];
    match getrandom::fill(&mut bytes) {
        Ok(()) => Ok(Builder::from_random_bytes(bytes).into_uuid()),
        Err(error) => refuse(format!("no random UUID: {error}; give one")),
    }
}

//! Random identifiers, from the system.

use std::fs::File;
use std::io::Read;

use uuid::{Builder, Uuid};

use super::error::{MkfsError, refuse};

/// A random UUID.
pub(super) fn uuid() -> Result<Uuid, MkfsError> {
    let mut bytes = [0; 16];
    match File::open("/dev/urandom").and_then(|mut source| source.read_exact(&mut bytes)) {
        Ok(()) => Ok(Builder::from_random_bytes(bytes).into_uuid()),
        Err(error) => refuse(format!("no random UUID: /dev/urandom: {error}; give one")),
    }
}

//! Why no filesystem was made.

use std::fmt;

use super::present::Present;

/// A refusal or a failure, in one sentence.
#[derive(Debug)]
pub enum MkfsError {
    /// Something is on the device already, and overwriting was not asked for.
    Present {
        /// The device's name.
        device: String,
        /// What is there.
        what: Present,
    },
    /// What was asked for cannot be made: too small, contradictory, or unknown.
    Refused(String),
    /// The device failed.
    Device(undercroft_block::Error),
}

/// Refuses with a sentence.
///
/// # Errors
/// Always.
pub fn refuse<T>(sentence: impl Into<String>) -> Result<T, MkfsError> {
    Err(MkfsError::Refused(sentence.into()))
}

impl fmt::Display for MkfsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Present { device, what } => {
                write!(f, "{device} holds {what}, which would be destroyed")
            }
            Self::Refused(sentence) => f.write_str(sentence),
            Self::Device(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for MkfsError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Device(error) => error.source(),
            Self::Present { .. } | Self::Refused(_) => None,
        }
    }
}

impl From<undercroft_block::Error> for MkfsError {
    fn from(error: undercroft_block::Error) -> Self {
        Self::Device(error)
    }
}

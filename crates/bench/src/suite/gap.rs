//! What is not in the results, and why.

use serde::Serialize;

/// Something that was to be measured and was not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Gap {
    /// What is missing.
    pub what: String,
    /// Why, and what to do about it where something can be done.
    pub why: String,
}

impl Gap {
    /// So it is.
    #[must_use]
    pub fn new(what: impl Into<String>, why: impl Into<String>) -> Self {
        Self { what: what.into(), why: why.into() }
    }
}

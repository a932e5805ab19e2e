//! Panics: a defect in one operation costs that operation, and neither its thread nor the mount.
//!
//! What a panic leaves half done is for the filesystem to know: it stops taking changes where that matters.

use std::any::Any;
use std::panic::{self, AssertUnwindSafe};

/// Does `work`, or tells the message of its panic.
pub(crate) fn caught<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    panic::catch_unwind(AssertUnwindSafe(work)).map_err(|panic| message(&*panic))
}

/// What a panic says.
fn message(panic: &(dyn Any + Send)) -> String {
    let fixed = panic.downcast_ref::<&str>().map(|message| (*message).to_owned());
    fixed.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no message".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_told_by_its_message() {
        assert_eq!(caught(|| 5), Ok(5));
        assert_eq!(caught(|| panic!("fixed")), Err::<(), _>("fixed".to_owned()));
        let number = 7;
        assert_eq!(caught(|| panic!("number {number}")), Err::<(), _>("number 7".to_owned()));
        assert_eq!(caught(|| panic::panic_any(number)), Err::<(), _>("no message".to_owned()));
    }
}

//! What is tried when space runs short: reservation windows are freed, then what was freed is made durable, so that it may be
//! given out.

use undercroft_vfs::{Error, Result};

/// Commits that one caller waits for. Other threads may take what each of them makes usable.
const COMMITS_MAX: u32 = 8;

/// Repeats `attempt` while it fails for lack of space and some can be freed. `free_windows` frees reservation windows;
/// `wait_for_freed` waits for a commit that makes freed blocks usable. Both answer whether that was of use. The caller has
/// no handle.
///
/// # Errors
/// Those of the last attempt.
pub fn retry_when_full<T>(
    mut attempt: impl FnMut() -> Result<T>,
    free_windows: impl Fn() -> bool,
    wait_for_freed: impl Fn() -> bool,
) -> Result<T> {
    let (mut may_free_windows, mut commits) = (true, 0);
    loop {
        match attempt() {
            Err(Error::NoSpace) => {
                if may_free_windows && free_windows() {
                    may_free_windows = false;
                } else if commits < COMMITS_MAX && wait_for_freed() {
                    // Other threads may have taken what was freed, and freed more.
                    (may_free_windows, commits) = (true, commits + 1);
                } else {
                    return Err(Error::NoSpace);
                }
            }
            answer => return answer,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn windows_are_freed_before_commits_are_waited_for_and_neither_without_end() {
        let (attempts, freed, waited) = (Cell::new(0), Cell::new(0), Cell::new(0));
        let count = |counter: &Cell<u32>| counter.set(counter.get() + 1);
        let attempt = || {
            count(&attempts);
            Err::<(), _>(Error::NoSpace)
        };
        let answer = |counter| {
            move || {
                count(counter);
                true
            }
        };
        let full = retry_when_full(attempt, answer(&freed), answer(&waited));
        assert!(matches!(full, Err(Error::NoSpace)));
        assert_eq!((freed.get(), waited.get()), (COMMITS_MAX + 1, COMMITS_MAX));
        assert_eq!(attempts.get(), freed.get() + waited.get() + 1);

        attempts.set(0);
        assert!(retry_when_full(attempt, || false, || false).is_err());
        assert_eq!(attempts.get(), 1, "nothing could be freed");
        let done = retry_when_full(|| Ok(7), || unreachable!(), || unreachable!());
        assert!(matches!(done, Ok(7)));
    }
}

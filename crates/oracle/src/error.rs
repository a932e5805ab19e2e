//! What can go wrong while asking Linux: a tool that is missing, a tool that fails, a system call that fails.
//!
//! Tests unwrap these errors, so each says in one sentence what was tried and, for a missing tool, what to
//! install.

use std::fmt;
use std::path::PathBuf;

/// Result of asking Linux.
pub type Result<T> = std::result::Result<T, Error>;

/// A question that got no answer.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The program is not installed.
    #[error("{tool} is not installed; the package {package} has it (`cargo xtask test` installs it)")]
    MissingTool {
        /// The program.
        tool: &'static str,
        /// The package that has it on Debian; `cargo xtask test` knows the other systems' names.
        package: &'static str,
    },
    /// The program ran and reported failure.
    #[error("`{command}` failed ({status}): {said}")]
    ToolFailed {
        /// The command line.
        command: String,
        /// The exit status or signal.
        status: String,
        /// What it wrote, to standard error first.
        said: String,
    },
    /// A tool's output did not have the expected form.
    #[error("cannot make sense of the output of {tool}: {detail}")]
    Output {
        /// The program.
        tool: &'static str,
        /// What was looked for.
        detail: String,
    },
    /// A system call failed.
    #[error("cannot {action} {path}: {source}")]
    System {
        /// What was tried, as a verb with its object's preposition: "open", "read the times of".
        action: &'static str,
        /// On what.
        path: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// Undercroft failed where Linux did not.
    #[error("Undercroft cannot {action} {path}: {source}")]
    Undercroft {
        /// What was tried, as a verb.
        action: &'static str,
        /// On what.
        path: String,
        /// What it said.
        source: undercroft_vfs::Error,
    },
    /// What was built is not what the test needs, for example an extent tree that stayed shallow.
    #[error("{0}")]
    Unfit(String),
}

// `unwrap` prints the Debug form: the sentence helps there, the structure does not.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Adds what was tried, and on what, to a failed system call.
pub(crate) trait Context<T> {
    /// Names the action ("open") and the path it was tried on.
    fn context(self, action: &'static str, path: impl Into<ShownPath>) -> Result<T>;
}

impl<T, E: Into<std::io::Error>> Context<T> for std::result::Result<T, E> {
    fn context(self, action: &'static str, path: impl Into<ShownPath>) -> Result<T> {
        self.map_err(|source| Error::System { action, path: path.into().0, source: source.into() })
    }
}

/// A path as messages show it: bytes that are not UTF-8 escaped, the middle of a very long one left out.
pub(crate) struct ShownPath(String);

impl From<&[u8]> for ShownPath {
    fn from(path: &[u8]) -> Self {
        Self(shown(path))
    }
}

impl From<&Vec<u8>> for ShownPath {
    fn from(path: &Vec<u8>) -> Self {
        Self(shown(path))
    }
}

impl From<&str> for ShownPath {
    fn from(path: &str) -> Self {
        Self(path.to_owned())
    }
}

impl From<&std::path::Path> for ShownPath {
    fn from(path: &std::path::Path) -> Self {
        Self(path.display().to_string())
    }
}

impl From<&PathBuf> for ShownPath {
    fn from(path: &PathBuf) -> Self {
        Self(path.display().to_string())
    }
}

/// A byte path for messages: escaped where it is not text, shortened in the middle beyond 200 bytes.
#[must_use]
pub fn shown(path: &[u8]) -> String {
    const KEPT_EACH_END: usize = 100;
    if path.len() <= 2 * KEPT_EACH_END {
        return path.escape_ascii().to_string();
    }
    let (head, tail) = (&path[..KEPT_EACH_END], &path[path.len() - KEPT_EACH_END..]);
    format!("{}[{} bytes]{}", head.escape_ascii(), path.len() - 2 * KEPT_EACH_END, tail.escape_ascii())
}

//! Failures as people read them: one sentence with what failed, where, why, and what to do.
//!
//! Commands return a [`Failure`] when they cannot go on and hand it to [`Complaints`] when they can. `main` is
//! the only other place that prints one.

use std::fmt;
use std::io::{self, Write};

use undercroft_vfs as vfs;

use crate::exit::Kind;
use crate::text::names::safe;

/// A failure, ready to be printed.
#[derive(Debug)]
pub(crate) struct Failure {
    kind: Kind,
    what: String,
    cause: Option<String>,
    advice: Option<String>,
    /// The user has been told already, by another process.
    told: bool,
}

impl Failure {
    /// A failure of a kind; `what` says what and where, without a full stop.
    pub(crate) fn new(kind: Kind, what: impl Into<String>) -> Self {
        Self { kind, what: what.into(), cause: None, advice: None, told: false }
    }

    /// A failure that another process of this command has already printed.
    pub(crate) fn told(kind: Kind) -> Self {
        Self { told: true, ..Self::new(kind, "told already") }
    }

    /// A failure whose cause speaks for itself: it names what failed, where, and why.
    pub(crate) fn of(kind: Kind, cause: &dyn std::error::Error) -> Self {
        Self::new(kind, words(cause))
    }

    /// The same with another exit code.
    #[must_use]
    pub(crate) fn counted_as(self, kind: Kind) -> Self {
        Self { kind, ..self }
    }

    /// Why, in the words of the refusing crate or system call.
    #[must_use]
    pub(crate) fn because(mut self, cause: &dyn std::error::Error) -> Self {
        self.cause = Some(words(cause));
        self
    }

    /// What to do about it, as a clause.
    #[must_use]
    pub(crate) fn advise(mut self, advice: impl Into<String>) -> Self {
        self.advice = Some(advice.into());
        self
    }

    /// Something else that is to be known about it, as a clause.
    #[must_use]
    pub(crate) fn noting(mut self, note: String) -> Self {
        self.advice = Some(match self.advice {
            Some(advice) => format!("{advice}; {note}"),
            None => note,
        });
        self
    }

    /// The same in a line of a script.
    #[must_use]
    pub(crate) fn in_line(self, number: u64) -> Self {
        Self { what: format!("line {number}: {}", self.what), ..self }
    }

    /// The same of a part of something, which is named in front. Advice goes: it is about the options of another command.
    #[must_use]
    pub(crate) fn of_part(self, shown: &str) -> Self {
        Self { what: format!("{shown}: {}", self.what), advice: None, ..self }
    }

    /// The same of something in an archive, which is named in front.
    #[must_use]
    pub(crate) fn of_archive(self, shown: &str) -> Self {
        Self { what: format!("{shown}: {}", self.what), ..self }
    }

    /// The filesystem refused something about `path` inside the image.
    pub(crate) fn inside(path: &[u8], error: &vfs::Error) -> Self {
        let failure = Self::new(Kind::of(error), safe(path)).because(error);
        match error {
            vfs::Error::NoSpace => failure.advise("`undercroft resize` makes the filesystem larger"),
            _ => failure,
        }
    }

    /// This machine refused something about `what`.
    pub(crate) fn host(what: impl Into<String>, error: &io::Error) -> Self {
        Self::new(Kind::Host, what).because(error)
    }

    /// Standard output refused.
    pub(crate) fn output(error: &io::Error) -> Self {
        let kind = if error.kind() == io::ErrorKind::BrokenPipe { Kind::ClosedPipe } else { Kind::Host };
        Self::new(kind, "cannot write to standard output").because(error)
    }

    /// What it is, for the exit code.
    pub(crate) const fn kind(&self) -> Kind {
        self.kind
    }
}

/// An error and what lies behind it, safe to show.
fn words(cause: &dyn std::error::Error) -> String {
    let mut words = cause.to_string();
    let mut next = cause.source();
    while let Some(deeper) = next {
        let text = deeper.to_string();
        // A transparent or well-written outer error already contains its source's words.
        if !words.contains(&text) {
            words.push_str(": ");
            words.push_str(&text);
        }
        next = deeper.source();
    }
    safe(without_errno(&words).as_bytes())
}

/// The words without the number that the standard library puts behind the system's message.
pub(crate) fn without_errno(words: &str) -> String {
    const MARK: &str = " (os error ";
    let mut plain = String::with_capacity(words.len());
    let mut rest = words;
    while let Some(at) = rest.find(MARK) {
        let after = &rest[at + MARK.len()..];
        match after.split_once(')') {
            Some((number, tail)) if number.bytes().all(|byte| byte.is_ascii_digit()) => {
                plain.push_str(&rest[..at]);
                rest = tail;
            }
            _ => {
                plain.push_str(&rest[..at + MARK.len()]);
                rest = after;
            }
        }
    }
    plain + rest
}

/// What `?` does on a write to standard output, the only [`io::Error`] that commands pass on bare.
impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::output(&error)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)?;
        if let Some(cause) = &self.cause {
            write!(f, ": {cause}")?;
        }
        if let Some(advice) = &self.advice {
            write!(f, "; {advice}")?;
        }
        Ok(())
    }
}

/// Failures that do not end the command, and what they amount to at its end.
#[derive(Debug, Default)]
pub(crate) struct Complaints {
    first: Option<Kind>,
    some_work_done: bool,
}

impl Complaints {
    /// Prints a failure and remembers that there was one. A closed pipe ends the command at once.
    ///
    /// # Errors The failure itself when there is no work left.
    pub(crate) fn add(&mut self, failure: Failure) -> Result<(), Failure> {
        if failure.kind() == Kind::ClosedPipe {
            return Err(failure);
        }
        print_failure(&failure);
        self.first.get_or_insert(failure.kind());
        Ok(())
    }

    /// A part of the work was done.
    pub(crate) const fn done_some(&mut self) {
        self.some_work_done = true;
    }

    /// The outcome of the command: `None` is complete success.
    pub(crate) fn outcome(&self) -> Option<Kind> {
        self.first.map(|first| if self.some_work_done { Kind::Partial } else { first })
    }
}

/// Prints a failure as this program prints every failure.
pub(crate) fn print_failure(failure: &Failure) {
    if !failure.told && failure.kind() != Kind::ClosedPipe {
        // When standard error fails there is no way left to report it.
        let _ = writeln!(io::stderr(), "undercroft: {failure}");
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::{Complaints, Failure};
    use crate::exit::Kind;

    #[test]
    fn a_failure_is_one_sentence() {
        let failure =
            Failure::host("/dest/a", &io::Error::from(io::ErrorKind::PermissionDenied)).advise("run as root");
        assert_eq!(failure.to_string(), "/dest/a: permission denied; run as root");
    }

    #[test]
    fn the_number_of_a_system_error_is_left_out() {
        let error = io::Error::from_raw_os_error(2);
        assert!(error.to_string().contains("(os error 2)"));
        assert_eq!(Failure::of(Kind::Host, &error).to_string(), "No such file or directory");
        let odd = io::Error::other("a (os error b (os error 17) c");
        assert_eq!(Failure::of(Kind::Host, &odd).to_string(), "a (os error b c");
    }

    #[test]
    fn the_only_failure_of_a_command_keeps_its_kind() {
        let mut complaints = Complaints::default();
        complaints.add(Failure::new(Kind::Corrupt, "test: expected complaint")).unwrap();
        assert_eq!(complaints.outcome(), Some(Kind::Corrupt));
        complaints.done_some();
        assert_eq!(complaints.outcome(), Some(Kind::Partial));
    }

    #[test]
    fn a_closed_pipe_stops_the_command() {
        let closed = Failure::output(&io::Error::from(io::ErrorKind::BrokenPipe));
        assert!(Complaints::default().add(closed).is_err());
    }
}

//! The server's complaints about the disk and about itself: each once, and never a flood.
//!
//! The kernel passes only a number on to the program that meets a damaged structure; the sentence that says which
//! structure, inode and block goes to the [`FaultSink`] of the mount options, which keeps the server's log. So do
//! defects of the server, and the moment in which a filesystem stops taking changes.
//! Damage is met again with every access, so what has been said is remembered, and a disk that fails everywhere is
//! cut short.
//!
//! No locks. What was said is remembered as hashes in a small table, where a newer one displaces an older one:
//! the worst that can happen is a sentence said twice.

use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use undercroft_vfs::Error;

use crate::MountError;
use crate::errno::is_fault;
use crate::panics::caught;

/// How many sentences are remembered.
const REMEMBERED: usize = 256;

/// How many sentences may be said at once; one more is allowed for each [`PAUSE_MS`] that passes.
const BURST: u64 = 32;

/// Time after which one more sentence may be said, in milliseconds.
const PAUSE_MS: u64 = 1000;

/// What there is to complain about: a sentence, when shown.
#[derive(Debug)]
#[non_exhaustive]
pub enum Fault<'a> {
    /// The disk or the filesystem on it.
    Filesystem(&'a Error),
    /// The server itself, or its connection to the kernel.
    Server(&'a str),
    /// The mount has ended with this error. Told before the process that unmounts is, and to a listener of one's own only:
    /// the thread that waits for the mount gets the error.
    End(&'a MountError),
}

impl fmt::Display for Fault<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Filesystem(error) => error.fmt(f),
            Self::Server(what) => f.write_str(what),
            Self::End(error) => error.fmt(f),
        }
    }
}

/// Takes what is wrong with the disk and with the server. By default a line on standard error.
///
/// Called from any of the server's threads, while the program that met the fault waits for its answer, and from the thread
/// that commits, which may hold locks: it must not call the filesystem.
#[derive(Clone, Default)]
pub struct FaultSink(Option<Arc<Say>>);

type Say = dyn Fn(&Fault<'_>) + Send + Sync;

impl FaultSink {
    /// Tells `say`.
    pub fn new(say: impl Fn(&Fault<'_>) + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(say)))
    }

    /// Says how the mount has ended.
    pub(crate) fn say_end(&self, error: &MountError) {
        if self.0.is_some() {
            self.say(&Fault::End(error));
        }
    }

    fn say(&self, fault: &Fault<'_>) {
        // A listener that panics, or a standard error that is closed, is no reason for a request to go without answer.
        let _ = caught(|| match &self.0 {
            Some(say) => say(fault),
            None => eprintln!("undercroft: {fault}"),
        });
    }
}

impl fmt::Debug for FaultSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "FaultSink(..)" } else { "FaultSink(standard error)" })
    }
}

/// The same if both tell the same listener.
impl PartialEq for FaultSink {
    fn eq(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (Some(one), Some(two)) => Arc::ptr_eq(one, two),
            (None, None) => true,
            _ => false,
        }
    }
}

impl Eq for FaultSink {}

/// Decides which complaints are worth a line.
pub(crate) struct FaultLog {
    sink: FaultSink,
    said: [AtomicU64; REMEMBERED],
    started: Instant,
    /// Milliseconds since the start up to which the allowance is used up. Runs at most [`BURST`] pauses ahead.
    used_up_ms: AtomicU64,
}

impl FaultLog {
    pub(crate) fn new(sink: FaultSink) -> Self {
        Self {
            sink,
            said: [const { AtomicU64::new(0) }; REMEMBERED],
            started: Instant::now(),
            used_up_ms: AtomicU64::new(0),
        }
    }

    /// Hands the error on if it is about the disk, new, and not one too many.
    pub(crate) fn report(&self, error: &Error) {
        if is_fault(error) {
            self.complain(&Fault::Filesystem(error));
        }
    }

    /// Hands it on if it is new, and not one too many.
    pub(crate) fn complain(&self, fault: &Fault<'_>) {
        if self.is_new(&fault.to_string()) && self.is_allowed() {
            self.sink.say(fault);
        }
    }

    /// Hands it on however much was said before: what a mount's log must not lack.
    pub(crate) fn say_always(&self, fault: &Fault<'_>) {
        self.sink.say(fault);
    }

    fn is_new(&self, sentence: &str) -> bool {
        let mut hasher = DefaultHasher::new();
        sentence.hash(&mut hasher);
        let hash = hasher.finish().max(1);
        let slot = &self.said[(hash % REMEMBERED as u64) as usize];
        slot.swap(hash, Ordering::Relaxed) != hash
    }

    fn is_allowed(&self) -> bool {
        let now_ms = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.used_up_ms
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used_up| {
                let next = used_up.max(now_ms) + PAUSE_MS;
                (next <= now_ms.saturating_add(BURST * PAUSE_MS)).then_some(next)
            })
            .is_ok()
    }
}

#[cfg(test)]
mod tests {
    use undercroft_vfs::Corruption;

    use super::*;

    #[test]
    fn a_sentence_is_new_once() {
        let log = FaultLog::new(FaultSink::default());
        assert!(log.is_new("corrupt inode 12"));
        assert!(!log.is_new("corrupt inode 12"));
        assert!(log.is_new("corrupt inode 13"));
        assert!(!log.is_new("corrupt inode 13"));
    }

    #[test]
    fn only_faults_of_the_disk_are_told() {
        let told = Arc::new(AtomicU64::new(0));
        let counter = Arc::clone(&told);
        let log = FaultLog::new(FaultSink::new(move |_| {
            counter.fetch_add(1, Ordering::Relaxed);
        }));
        log.report(&Error::NotFound);
        assert_eq!(told.load(Ordering::Relaxed), 0);
        let corruption = Corruption { structure: "inode", ino: None, block: None, detail: "is odd".into() };
        let fault = Error::Corrupt(Box::new(corruption));
        log.report(&fault);
        log.report(&fault);
        assert_eq!(told.load(Ordering::Relaxed), 1);
    }

    /// A disk that fails floods the log before the filesystem gives up.
    #[test]
    fn what_the_log_must_not_lack_comes_through_a_flood() {
        let told = Arc::new(AtomicU64::new(0));
        let counter = Arc::clone(&told);
        let log = FaultLog::new(FaultSink::new(move |fault| {
            counter.fetch_add(u64::from(fault.to_string() == "the end"), Ordering::Relaxed);
        }));
        for number in 0..1000 {
            log.complain(&Fault::Server(&format!("fault {number}")));
        }
        log.complain(&Fault::Server("the end"));
        assert_eq!(told.load(Ordering::Relaxed), 0);
        log.say_always(&Fault::Server("the end"));
        assert_eq!(told.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn a_flood_is_cut_short() {
        let log = FaultLog::new(FaultSink::default());
        let allowed = (0..10_000).filter(|_| log.is_allowed()).count() as u64;
        let elapsed_ms = log.started.elapsed().as_millis() as u64;
        assert!((BURST..=BURST + 1 + elapsed_ms / PAUSE_MS).contains(&allowed), "{allowed}");
    }
}

//! A file with a temporary name, which does not outlive the program.
//!
//! The name goes when the file is dropped or gets another name, and when SIGINT, SIGTERM or SIGHUP ends the program: a thread
//! waits for these signals, removes what has a temporary name, and lets the signal do what it does without a handler. A signal
//! that the program was started with ignored stays ignored. Only SIGKILL, and a machine that stops, leave the file.
//!
//! Locks: the list (`temporary_names`) is held while a file gets a name or loses it. The thread keeps it to the end, so that no
//! file gets a temporary name after it has removed the others, and none gets its place after its name was removed.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock, Once};
use std::thread;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;
use tempfile::{Builder, TempPath};
use undercroft_sync::{Mutex, MutexGuard, order};

use crate::signals::is_ignored;

type Names = Vec<PathBuf>;

/// The temporary names that are there.
fn names() -> MutexGuard<'static, Names> {
    static NAMES: LazyLock<Mutex<Names>> =
        LazyLock::new(|| Mutex::new(&order::TEMPORARY_NAMES, Names::new()));
    NAMES.lock()
}

/// A file with a temporary name.
pub(super) struct TemporaryFile {
    file: File,
    /// `None` once it has another name.
    name: Option<TempPath>,
    path: PathBuf,
}

impl TemporaryFile {
    pub(super) fn make(how: &Builder<'_, '_>, directory: &Path) -> io::Result<Self> {
        remove_on_signals();
        let mut names = names();
        let (file, name) = how.tempfile_in(directory)?.into_parts();
        let path = name.to_path_buf();
        names.push(path.clone());
        Ok(Self { file, name: Some(name), path })
    }

    /// Its temporary name.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn file(&self) -> &File {
        &self.file
    }

    /// Gives it the name of its place, where another file is replaced or none may be.
    pub(super) fn persist(mut self, place: &Path, replaces: bool) -> io::Result<()> {
        let mut names = names();
        let Some(name) = self.name.take() else { return Ok(()) };
        let kept = if replaces { name.persist(place) } else { name.persist_noclobber(place) };
        names.retain(|path| *path != self.path);
        kept.map_err(|error| error.error)
    }
}

impl Drop for TemporaryFile {
    fn drop(&mut self) {
        if let Some(name) = self.name.take() {
            let mut names = names();
            drop(name);
            names.retain(|path| *path != self.path);
        }
    }
}

/// Starts the thread that removes what has a temporary name before a signal ends the program. Where the system has no room for
/// it the program does without, and the signal ends it as before.
fn remove_on_signals() {
    static STARTED: Once = Once::new();
    STARTED.call_once(|| {
        let _ = start();
    });
}

fn start() -> io::Result<()> {
    let heeded: Vec<_> =
        [SIGINT, SIGTERM, SIGHUP].into_iter().filter(|&signal| !is_ignored(signal)).collect();
    let ends_program = Arc::new(AtomicBool::new(true));
    for &signal in &heeded {
        flag::register_conditional_default(signal, Arc::clone(&ends_program))?;
    }
    let mut signals = Signals::new(heeded)?;
    let wait = move || {
        for signal in signals.forever() {
            let names = names();
            for name in &*names {
                let _ = fs::remove_file(name);
            }
            let _ = emulate_default_handler(signal);
        }
    };
    thread::Builder::new().name("signals".to_owned()).spawn(wait)?;
    ends_program.store(false, Ordering::SeqCst);
    Ok(())
}

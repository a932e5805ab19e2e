//! Events of an array while it is in use, reported to its user: in the log of its mount or on standard error, and to a
//! program, if one was named.
//!
//! A mount says where before it opens its image ([`listen`]), and hears of everything. Any other command only says, on
//! standard error, what is wrong.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::{Arc, OnceLock};
use std::thread;

use undercroft_md::{Array, Event};

use super::md_failure;
use crate::exit::Kind;
use crate::failure::{Failure, print_failure};
use crate::text::names::safe;

/// Takes a line.
pub(crate) type Tell = Arc<dyn Fn(&Failure) + Send + Sync>;

/// Where a mount tells what happens.
pub(crate) struct Listener {
    pub(crate) tell: Tell,
    /// A degraded array was reported already when it was opened in a terminal.
    pub(crate) in_terminal: bool,
    /// An absolute path. Called with the event's name, the array, and the member that it is about.
    pub(crate) program: Option<PathBuf>,
}

/// One process has one mount.
static LISTENER: OnceLock<Listener> = OnceLock::new();

/// Has everything told to `listener`.
pub(crate) fn listen(listener: Listener) {
    // A second one would be a second mount.
    let _ = LISTENER.set(listener);
}

/// Tells what happens to an array from now on, until it is closed.
pub(super) fn watch(shown: &str, array: &Array) -> Result<(), Failure> {
    let shown = shown.to_owned();
    if let Some(listener) = LISTENER.get().filter(|listener| !listener.in_terminal) {
        // Members that were left out, and why.
        for warning in array.status().warnings {
            (listener.tell)(&Failure::new(Kind::Host, format!("{shown}: {}", safe(warning.as_bytes()))));
        }
    }
    array.watch(move |event| tell(&shown, event)).map_err(|error| md_failure(&error))
}

fn tell(shown: &str, event: &Event) {
    let sentence = Failure::new(Kind::Host, format!("{shown}: {}", safe(event.to_string().as_bytes())));
    let is_of_start = matches!(event, Event::Degraded { .. });
    match LISTENER.get() {
        Some(listener) => {
            if !(is_of_start && listener.in_terminal) {
                (listener.tell)(&sentence);
            }
            if let Some(program) = &listener.program
                && let Err(error) = call(program, shown, event)
            {
                let what = format!(
                    "cannot run the program {} of `--monitor`",
                    safe(program.as_os_str().as_encoded_bytes())
                );
                (listener.tell)(&Failure::host(what, &error));
            }
        }
        None if event.is_trouble() && !is_of_start => print_failure(&sentence),
        None => {}
    }
}

/// Starts the program and leaves it to itself.
fn call(program: &PathBuf, shown: &str, event: &Event) -> std::io::Result<()> {
    let mut child = Command::new(program)
        .arg(event.name())
        .arg(shown)
        .args(event.member())
        .env("UNDERCROFT_EVENT", event.to_string())
        .stdin(Stdio::null())
        .spawn()?;
    // Only so that its end is noticed.
    thread::Builder::new().name("md-program".to_owned()).spawn(move || child.wait())?;
    Ok(())
}

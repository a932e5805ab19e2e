//! What Tab completes: commands, and paths inside the image or of this machine.

use std::cell::RefCell;
use std::fs;
use std::rc::Rc;
use std::sync::Arc;

use rustyline::completion::Completer;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::validate::Validator;
use rustyline::{Context, Helper};
use undercroft_vfs::{Credentials, FileType, Vfs};

use super::words::quoted;
use crate::text::names::is_harmless;

/// As many names are offered.
const OFFERED_MAX: usize = 2000;

/// What is needed to complete a line.
pub(super) struct Completion {
    pub(super) commands: Vec<String>,
    pub(super) vfs: Arc<Vfs>,
    /// The directory at which paths begin.
    pub(super) dir: Rc<RefCell<Vec<u8>>>,
}

impl Completer for Completion {
    type Candidate = String;

    fn complete(&self, line: &str, pos: usize, _: &Context<'_>) -> rustyline::Result<(usize, Vec<String>)> {
        let before = &line[..pos];
        let start = word_start(before);
        let typed = &before[start..];
        let first = before.split_whitespace().next().unwrap_or_default();
        if before[..start].trim().is_empty() {
            let known = self.commands.iter().filter(|command| command.starts_with(typed));
            return Ok((start, known.map(|command| format!("{command} ")).collect()));
        }
        let plain = typed.replace('\\', "");
        let (dir, name) =
            plain.rsplit_once('/').map_or(("", &plain[..]), |(dir, name)| (&plain[..=dir.len()], name));
        let mut names = if matches!(first, "lcd" | "put") { of_machine(dir) } else { self.of_image(dir) };
        // A name with control characters would be typed as keys, and reach the terminal.
        names.retain(|found| found.starts_with(name) && is_harmless(found));
        names.sort_unstable();
        names.truncate(OFFERED_MAX);
        Ok((start, names.into_iter().filter_map(|found| quoted(&format!("{dir}{found}"))).collect()))
    }
}

impl Completion {
    /// The names in a directory of the image, with a slash behind those of directories.
    fn of_image(&self, dir: &str) -> Vec<String> {
        let mut path = if dir.starts_with('/') { Vec::new() } else { self.dir.borrow().clone() };
        path.push(b'/');
        path.extend(dir.as_bytes());
        let Ok(entries) = self.vfs.read_dir(&Credentials::root(), &path) else { return Vec::new() };
        let named = entries.flatten().filter_map(|entry| {
            let name = String::from_utf8(entry.name().to_vec()).ok()?;
            let is_directory = entry.kind().is_ok_and(|kind| kind == FileType::Directory);
            Some(if is_directory { name + "/" } else { name })
        });
        named.collect()
    }
}

fn of_machine(dir: &str) -> Vec<String> {
    let Ok(entries) = fs::read_dir(if dir.is_empty() { "." } else { dir }) else { return Vec::new() };
    let named = entries.flatten().filter_map(|entry| {
        let name = entry.file_name().into_string().ok()?;
        let is_directory = entry.file_type().is_ok_and(|kind| kind.is_dir());
        Some(if is_directory { name + "/" } else { name })
    });
    named.collect()
}

/// Where the word begins that a line ends in; a space behind a backslash is part of it.
fn word_start(line: &str) -> usize {
    let mut start = 0;
    let mut is_escaped = false;
    for (at, character) in line.char_indices() {
        if !is_escaped && matches!(character, ' ' | '\t' | ';') {
            start = at + character.len_utf8();
        }
        is_escaped = !is_escaped && character == '\\';
    }
    start
}

impl Helper for Completion {}
impl Hinter for Completion {
    type Hint = String;
}
impl Highlighter for Completion {}
impl Validator for Completion {}

#[cfg(test)]
mod tests {
    use super::word_start;

    #[test]
    fn a_word_begins_behind_a_space() {
        for (line, word) in
            [("ls /et", "/et"), ("ls", "ls"), ("ls ", ""), ("rm a\\ b", "a\\ b"), ("a;b", "b")]
        {
            assert_eq!(&line[word_start(line)..], word);
        }
    }
}

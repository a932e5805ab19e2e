//! `shell`: many commands on one open image, typed at a terminal or read from a script.
//!
//! A line is taken apart (`words`), parsed by the definitions that the command line has, and carried out by the same
//! functions. A script ends with its first failure; what was done before stays, and is durable when the program ends.

mod complete;
mod words;

use std::cell::RefCell;
use std::env;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, IsTerminal, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser};
use rustyline::error::ReadlineError;
use rustyline::history::DefaultHistory;
use rustyline::{CompletionType, Config, Editor};
use undercroft_vfs::FileType;

use super::{edit, look};
use crate::args::shell::{ShellCommand, ShellLine};
use crate::commands::edit::session::Session;
use crate::exit::Kind;
use crate::failure::{Failure, print_failure};
use crate::get;
use crate::image;
use crate::plan::edit::Edit;
use crate::plan::{Base, Commands, Format, GetPlan, ImageSpec, Look, ShellPlan};
use crate::text::names::safe;
use crate::text::note::note;

use complete::Completion;

/// A script of more bytes than this is none.
const SCRIPT_MAX_BYTES: u64 = 64 << 20;

struct Shell {
    session: Session,
    /// The directory at which paths inside the image begin; the completion looks at it too.
    dir: Rc<RefCell<Vec<u8>>>,
    /// Standard input has the commands, and nothing for them.
    reads_stdin: bool,
}

/// How it goes on after a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    /// With what failed, if something did.
    Command(Option<Kind>),
    End,
}

/// Opens the image and does the commands.
pub(crate) fn run(plan: &ShellPlan) -> Result<Option<Kind>, Failure> {
    let script = match &plan.commands {
        Commands::Given(commands) => Some(commands.as_bytes().to_vec()),
        Commands::File(path) => Some(read_script(path)?),
        Commands::Stdin if io::stdin().is_terminal() => None,
        Commands::Stdin => Some(whole(io::stdin().lock(), "the commands on standard input")?),
    };
    let writes = !plan.read_only && may_write(&plan.image);
    let session = Session::open(&plan.image, writes)?;
    let dir = Rc::new(RefCell::new(b"/".to_vec()));
    let mut shell = Shell { session, dir, reads_stdin: plan.commands == Commands::Stdin && script.is_some() };
    let done = match script {
        Some(script) => shell.script(&script),
        None => shell.interactive(&plan.image),
    };
    let closed = shell.session.close();
    let outcome = done?;
    closed.map(|()| outcome)
}

fn read_script(path: &PathBuf) -> Result<Vec<u8>, Failure> {
    let what = format!("the script {}", safe(path.as_os_str().as_bytes()));
    let file = File::open(path).map_err(|error| Failure::host(format!("cannot read {what}"), &error))?;
    whole(file, &what)
}

/// All of a script, if it is not longer than a script may be.
fn whole(from: impl Read, what: &str) -> Result<Vec<u8>, Failure> {
    let mut script = Vec::new();
    from.take(SCRIPT_MAX_BYTES + 1)
        .read_to_end(&mut script)
        .map_err(|error| Failure::host(format!("cannot read {what}"), &error))?;
    if script.len() as u64 > SCRIPT_MAX_BYTES {
        return Err(Failure::new(Kind::Usage, format!("{what} has more than {SCRIPT_MAX_BYTES} bytes")));
    }
    Ok(script)
}

/// Whether the image is to be opened for changes. What this user may not write to is only looked at.
fn may_write(spec: &ImageSpec) -> bool {
    let is_refused = spec.array.is_none()
        && spec.path.exists()
        && rustix::fs::access(&spec.path, rustix::fs::Access::WRITE_OK).is_err();
    if is_refused {
        note(format_args!("{} cannot be written to, and is open for looking only", spec.shown()));
    }
    !is_refused
}

impl Shell {
    /// Does the lines of a script up to the first failure, which is told with its line.
    fn script(&mut self, script: &[u8]) -> Result<Option<Kind>, Failure> {
        let mut number = 0;
        let mut lines = script.split_inclusive(|byte| *byte == b'\n');
        while let Some(line) = lines.next() {
            number += 1;
            let first = number;
            let mut line = line.to_vec();
            // A line whose end is behind a backslash goes on.
            while line.ends_with(b"\\\n")
                && let Some(more) = lines.next()
            {
                number += 1;
                line.extend_from_slice(more);
            }
            match self.line(&line) {
                Ok(Next::Command(None)) => {}
                Ok(Next::End) => return Ok(None),
                Ok(Next::Command(Some(kind))) => {
                    let what = format!("line {first}: this command failed, and those behind it are not done");
                    print_failure(&Failure::new(kind, what));
                    return Ok(Some(kind));
                }
                Err(failure) => return Err(failure.in_line(first)),
            }
        }
        Ok(None)
    }

    /// Reads lines from a terminal. Ends as the last command did.
    fn interactive(&mut self, spec: &ImageSpec) -> Result<Option<Kind>, Failure> {
        let terminal = |error: ReadlineError| Failure::of(Kind::Host, &error);
        let config = Config::builder().completion_type(CompletionType::List).auto_add_history(true).build();
        let mut editor: Editor<Completion, DefaultHistory> = Editor::with_config(config).map_err(terminal)?;
        let commands = ShellLine::command().get_subcommands().map(|sub| sub.get_name().to_owned()).collect();
        editor.set_helper(Some(Completion {
            commands,
            vfs: Arc::clone(&self.session.opened.vfs),
            dir: Rc::clone(&self.dir),
        }));
        let history = history_file();
        if let Some(history) = &history {
            // The first time there is none.
            let _ = editor.load_history(history);
        }
        let name = spec.path.file_name().map_or_else(|| spec.shown(), |name| safe(name.as_bytes()));
        let mut last = None;
        loop {
            let prompt = format!("{name}:{}> ", safe(&self.dir.borrow()));
            let line = match editor.readline(&prompt) {
                Ok(line) => line,
                Err(ReadlineError::Interrupted) => continue,
                Err(ReadlineError::Eof) => break,
                Err(error) => return Err(terminal(error)),
            };
            match self.line(line.as_bytes()) {
                Ok(Next::End) => break,
                Ok(Next::Command(kind)) => last = kind,
                Err(failure) => {
                    print_failure(&failure);
                    last = Some(failure.kind());
                }
            }
        }
        if let Some(history) = &history {
            // A history that cannot be kept is no reason to fail.
            let _ = history.parent().map(fs::create_dir_all);
            let _ = editor.save_history(history);
        }
        Ok(last)
    }

    /// Does the commands of a line, up to the first that fails.
    fn line(&mut self, line: &[u8]) -> Result<Next, Failure> {
        let commands = words::commands(line)
            .map_err(|why| Failure::new(Kind::Usage, format!("the line cannot be read: {why}")))?;
        for words in commands {
            match self.command(words)? {
                Next::Command(None) => {}
                next => return Ok(next),
            }
        }
        Ok(Next::Command(None))
    }

    fn command(&mut self, words: Vec<OsString>) -> Result<Next, Failure> {
        let typed = match ShellLine::try_parse_from(words) {
            Ok(typed) => typed.command,
            Err(error) if is_help(error.kind()) => {
                let mut stdout = io::stdout();
                write!(stdout, "{}", error.render())?;
                stdout.flush()?;
                return Ok(Next::Command(None));
            }
            Err(error) => return Err(refusal(&error)),
        };
        let base = Base::In(self.dir.borrow().clone());
        let opened = &self.session.opened;
        Ok(Next::Command(match typed {
            ShellCommand::Read(typed) => look::perform(opened, &Look::from_typed(typed, &base)?.1)?,
            ShellCommand::Get(typed) => {
                let format = Format::of(typed.json);
                get::run(&opened.vfs, &GetPlan::from_typed(*typed, &base)?.1, format)?
            }
            ShellCommand::Edit(typed) => self.edit(&Edit::from_typed(typed, &base)?.1)?,
            ShellCommand::Cd { path } => {
                let path = base.path(path)?;
                self.change_directory(&path)?;
                None
            }
            ShellCommand::Pwd => {
                writeln!(io::stdout(), "{}", safe(&self.dir.borrow()))?;
                None
            }
            ShellCommand::Lcd { dir } => {
                let shown = safe(dir.as_os_str().as_bytes());
                env::set_current_dir(&dir)
                    .map_err(|error| Failure::host(format!("cannot change to {shown}"), &error))?;
                None
            }
            ShellCommand::Sync => {
                self.session.sync()?;
                None
            }
            ShellCommand::Exit => return Ok(Next::End),
        }))
    }

    fn edit(&self, edit: &Edit) -> Result<Option<Kind>, Failure> {
        if self.reads_stdin && edit.reads_stdin() {
            let what = "standard input has the commands, and nothing for this one";
            return Err(Failure::new(Kind::Usage, what).advise("give the commands by a file or by -c"));
        }
        edit::perform(&self.session, edit)
    }

    fn change_directory(&mut self, path: &[u8]) -> Result<(), Failure> {
        let node = image::resolve(&self.session.opened.vfs, path, true)?;
        if node.kind() != FileType::Directory {
            return Err(Failure::inside(path, &undercroft_vfs::Error::NotDirectory));
        }
        *self.dir.borrow_mut() = without_dots(path);
        Ok(())
    }
}

/// As sh has it: `..` takes the name before it away.
fn without_dots(path: &[u8]) -> Vec<u8> {
    let mut names: Vec<&[u8]> = Vec::new();
    for name in path.split(|byte| *byte == b'/') {
        match name {
            b"" | b"." => {}
            b".." => {
                names.pop();
            }
            name => names.push(name),
        }
    }
    [b"/", &names.join(&b'/')[..]].concat()
}

const fn is_help(kind: ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::DisplayHelp
            | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
            | ErrorKind::DisplayVersion
    )
}

/// What is wrong with a command, in one sentence.
fn refusal(error: &clap::Error) -> Failure {
    let said = error.render().to_string();
    let said = said.split("\n\n").next().unwrap_or_default();
    let words: Vec<&str> = said.trim_start_matches("error: ").split_whitespace().collect();
    Failure::new(Kind::Usage, words.join(" ")).advise("`help` tells about the commands")
}

/// Where lines are kept that were typed.
fn history_file() -> Option<PathBuf> {
    let of = |name: &str| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let state = of("XDG_STATE_HOME").or_else(|| of("HOME").map(|home| home.join(".local/state")))?;
    Some(state.join("undercroft/history"))
}

#[cfg(test)]
mod tests {
    use std::io::{self, Read};

    use clap::CommandFactory;

    use super::{SCRIPT_MAX_BYTES, ShellLine, whole, without_dots};

    #[test]
    fn the_definitions_agree_with_each_other() {
        ShellLine::command().debug_assert();
    }

    #[test]
    fn a_script_without_an_end_is_refused() {
        assert_eq!(whole(&b"ls\n"[..], "it").unwrap(), b"ls\n");
        assert_eq!(
            whole(io::repeat(b'\n').take(SCRIPT_MAX_BYTES), "it").unwrap().len() as u64,
            SCRIPT_MAX_BYTES
        );
        let refusal = whole(io::repeat(b'\n'), "it").unwrap_err().to_string();
        assert!(refusal.starts_with("it has more than 67108864 bytes"), "{refusal}");
    }

    #[test]
    fn dots_are_taken_out_of_a_directory() {
        for (path, expected) in [("/", "/"), ("/a/../b/./c/", "/b/c"), ("/../..", "/"), ("//a//b", "/a/b")] {
            assert_eq!(without_dots(path.as_bytes()), expected.as_bytes());
        }
    }
}

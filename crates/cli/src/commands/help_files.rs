//! `completions` and `man`: files made from the definitions of the command line.

use std::fs;
use std::io::{self, Write};
use std::path::Path;

use clap::CommandFactory;
use clap_complete::Shell;

use crate::args::Typed;
use crate::failure::Failure;

/// Writes a completion script to standard output.
pub(crate) fn completions(shell: Shell) -> Result<(), Failure> {
    // Into memory first: the generator panics when its writer fails.
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Typed::command(), "undercroft", &mut script);
    let mut stdout = io::stdout().lock();
    stdout.write_all(&script)?;
    Ok(stdout.flush()?)
}

/// Writes the main page to standard output, or all pages into a directory, which is made if it is not there. `help` has no page: each page is the help.
pub(crate) fn man(dir: Option<&Path>) -> Result<(), Failure> {
    let mut command = Typed::command()
        .disable_help_subcommand(true)
        .mut_subcommand("md", |md| md.disable_help_subcommand(true));
    command.build();
    let Some(dir) = dir else {
        let mut stdout = io::stdout().lock();
        stdout.write_all(&page(&command, "undercroft")?)?;
        return Ok(stdout.flush()?);
    };
    fs::create_dir_all(dir)
        .map_err(|error| Failure::host(format!("cannot make the directory {}", dir.display()), &error))?;
    write_page(dir, &command, "undercroft")?;
    for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set()) {
        let name = format!("undercroft-{}", sub.get_name());
        write_page(dir, sub, &name)?;
        for part in sub.get_subcommands().filter(|part| !part.is_hide_set()) {
            write_page(dir, part, &format!("{name}-{}", part.get_name()))?;
        }
    }
    Ok(())
}

fn write_page(dir: &Path, command: &clap::Command, name: &str) -> Result<(), Failure> {
    let path = dir.join(format!("{name}.1"));
    fs::write(&path, page(command, name)?)
        .map_err(|error| Failure::host(format!("cannot write {}", path.display()), &error))
}

fn page(command: &clap::Command, name: &str) -> Result<Vec<u8>, Failure> {
    let mut command = command.clone();
    // The synopsis as `--help` has it. The one that is made for pages shows options without the names of their values.
    let usage = command.render_usage().to_string();
    let command = command.override_usage(usage.trim_start_matches("Usage: ").to_owned());
    let mut page = Vec::new();
    clap_mangen::Man::new(command)
        .title(name.to_uppercase())
        .date(" ")
        .source(concat!("undercroft ", env!("CARGO_PKG_VERSION")))
        .manual("Undercroft")
        .render(&mut page)?;
    Ok(page)
}

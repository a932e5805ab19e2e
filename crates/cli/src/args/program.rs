//! The commands about the program itself, as typed.

use std::path::PathBuf;

use clap::{Subcommand, ValueHint};
use clap_complete::Shell;

use super::JsonArg;

#[derive(Debug, Subcommand)]
pub(crate) enum ProgramCommand {
    /// See it work: a guided look at small images, ext4 and XFS, that this program carries
    #[command(
        after_help = "Needs no root, no FUSE and no disk. Every byte shown comes out of a real ext4 and a real XFS that Linux made. \
For a second it makes a small array of temporary files, too (in TMPDIR, or else in memory), and lets it lose members."
    )]
    Tour {
        #[command(flatten)]
        json: JsonArg,
    },

    /// Write a completion script for a shell to standard output
    #[command(after_help = "Examples:
  undercroft completions bash > /etc/bash_completion.d/undercroft
  undercroft completions zsh > ~/.zfunc/_undercroft
  undercroft completions fish > ~/.config/fish/completions/undercroft.fish")]
    Completions {
        /// Shell
        shell: Shell,
    },

    /// Write the manual pages into a directory, or the main page to standard output
    #[command(after_help = "Examples:
  undercroft man | man -l -
  undercroft man /usr/local/share/man/man1")]
    Man {
        /// Directory for one page per command; it is made if it is not there
        #[arg(value_hint = ValueHint::DirPath)]
        dir: Option<PathBuf>,
    },
}

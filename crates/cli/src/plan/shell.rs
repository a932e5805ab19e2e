//! What `shell` means: where its commands come from.

use std::ffi::OsString;
use std::path::PathBuf;

use super::ImageSpec;
use crate::args::shell::ShellArgs;
use crate::failure::Failure;

/// Many commands on one image.
#[derive(Debug)]
pub(crate) struct ShellPlan {
    pub(crate) image: ImageSpec,
    pub(crate) commands: Commands,
    /// Nothing is to be changed.
    pub(crate) read_only: bool,
}

/// Where commands come from.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Commands {
    Given(OsString),
    File(PathBuf),
    /// A terminal or a script.
    Stdin,
}

impl ShellPlan {
    pub(super) fn from_typed(typed: ShellArgs) -> Result<Self, Failure> {
        let ShellArgs { image, script, command, read_only, danger } = typed;
        let image = ImageSpec { write_while_in_use: danger.write_while_in_use, ..ImageSpec::parse(&image)? };
        let commands = match (command, script) {
            (Some(commands), _) => Commands::Given(commands),
            (None, Some(path)) if path.as_os_str() != "-" => Commands::File(path),
            _ => Commands::Stdin,
        };
        Ok(Self { image, commands, read_only })
    }
}

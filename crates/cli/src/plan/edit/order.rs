//! A mode or an owner that stands in front of the image, as chmod and chown have it in front of their files.

use std::ffi::OsStr;
use std::path::Path;

use crate::args::edit::{EditCommand, EditImageArgs, On};
use crate::exit::Kind;
use crate::failure::Failure;
use crate::text::names::safe;

/// Refuses a command whose image stands behind what is to be changed.
///
/// # Errors
/// [`Kind::Usage`].
pub(crate) fn refuse_image_behind(command: &EditCommand<EditImageArgs>) -> Result<(), Failure> {
    let (name, first, second): (_, &OsStr, &OsStr) = match command {
        EditCommand::Chmod(On { image, what }) => ("chmod", &image.image, what.mode.as_ref()),
        EditCommand::Chown(On { image, what }) => ("chown", &image.image, &what.owner),
        _ => return Ok(()),
    };
    if is_there(first) || !is_there(second) {
        return Ok(());
    }
    let [first, second] = [first, second].map(|word| safe(word.as_encoded_bytes()));
    Err(Failure::new(Kind::Usage, format!("there is no image {first}"))
        .advise(format!("the image comes first: undercroft {name} {second} {first} PATH")))
}

/// Whether there is a file of this name, that of a partition in it left off.
fn is_there(typed: &OsStr) -> bool {
    let text = typed.to_string_lossy();
    let file = text.split_once('?').map_or(&*text, |(file, _)| file);
    Path::new(typed).exists() || Path::new(file).exists()
}

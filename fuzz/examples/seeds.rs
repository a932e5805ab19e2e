//! Writes the seeds of one target into a directory, as `seed-NUMBER`: `seeds TARGET DIR`. `cargo xtask fuzz` runs it.

use std::path::Path;
use std::{env, fs, io};

use undercroft_fuzz::seeds;

fn main() -> io::Result<()> {
    let args: Vec<String> = env::args().skip(1).collect();
    let [target, dir] = &args[..] else { panic!("the arguments are a target and a directory") };
    let inputs = seeds::of(target).unwrap_or_else(|| panic!("{target} has no seeds"));
    let dir = Path::new(dir);
    fs::create_dir_all(dir)?;
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        // Of another version of the images.
        if entry.file_name().as_encoded_bytes().starts_with(b"seed-") {
            fs::remove_file(entry.path())?;
        }
    }
    for (number, input) in inputs.iter().enumerate() {
        fs::write(dir.join(format!("seed-{number}")), input)?;
    }
    Ok(())
}

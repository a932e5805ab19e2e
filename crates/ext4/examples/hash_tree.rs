//! Prints the SHA-256 of every regular file of an ext2, ext3 or ext4 image, as `sha256sum` does:
//!
//! ```sh
//! cargo run -p undercroft-ext4 --example hash_tree disk.img
//! ```

use std::error::Error;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};
use undercroft_block::{ImageOptions, open_image};
use undercroft_ext4::{Ext4, OpenOptions};
use undercroft_vfs::{FileType, Vfs, VfsOptions, WalkEntry, WalkEvent, WalkFlow, WalkOptions};

fn main() -> Result<(), Box<dyn Error>> {
    let image = std::env::args_os().nth(1).map(PathBuf::from).ok_or("usage: hash_tree IMAGE")?;
    run(&image, &mut io::stdout().lock())
}

pub(crate) fn run(image: &Path, out: &mut dyn Write) -> Result<(), Box<dyn Error>> {
    let device = open_image(image, ImageOptions::read_only())?;
    let vfs = Vfs::new(Ext4::open_read_only(device, OpenOptions::default())?, VfsOptions::default());
    let mut failure = None;
    vfs.walk_sorted(&vfs.root()?, WalkOptions::default(), &mut |event| {
        let done = match event {
            WalkEvent::Entry(entry) if entry.kind() == FileType::Regular => hash(&vfs, &entry, out),
            WalkEvent::Entry(_) => Ok(()),
            WalkEvent::Failure { path, error } => Err(format!("{}: {error}", path.escape_ascii()).into()),
        };
        match done {
            Ok(()) => WalkFlow::Continue,
            Err(error) => {
                failure = Some(error);
                WalkFlow::Stop
            }
        }
    });
    failure.map_or(Ok(()), Err)
}

fn hash(vfs: &Vfs, entry: &WalkEntry<'_>, out: &mut dyn Write) -> Result<(), Box<dyn Error>> {
    let mut file = vfs.open_node(&entry.node()?)?.into_cursor();
    let mut hasher = Sha256::new();
    let mut buffer = vec![0; 1 << 20];
    loop {
        match file.read(&mut buffer)? {
            0 => break,
            len => hasher.update(&buffer[..len]),
        }
    }
    for byte in hasher.finalize() {
        write!(out, "{byte:02x}")?;
    }
    writeln!(out, "  {}", entry.path().escape_ascii())?;
    Ok(())
}

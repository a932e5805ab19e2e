//! Makes an ext4 image of a directory, with modes, owners, times and symbolic links:
//!
//! ```sh
//! cargo run -p undercroft-ext4 --example build_image ./rootfs disk.img
//! ```

use std::error::Error;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use undercroft_block::{FileDevice, FileOptions};
use undercroft_ext4::{Ext4, Family, MkfsOptions, OpenOptions, WriteOptions, mkfs};
use undercroft_vfs::{AttrChange, Credentials, NewObject, NewTime, Node, Vfs, VfsOptions};

const ROOT: Credentials = Credentials::root();

fn main() -> Result<(), Box<dyn Error>> {
    let mut paths = std::env::args_os().skip(1).map(PathBuf::from);
    let (Some(from), Some(image)) = (paths.next(), paths.next()) else {
        return Err("usage: build_image DIRECTORY IMAGE".into());
    };
    run(&from, &image)
}

pub(crate) fn run(from: &Path, image: &Path) -> Result<(), Box<dyn Error>> {
    fs::OpenOptions::new().write(true).create_new(true).open(image)?.set_len(1 << 30)?;
    let device = Arc::new(FileDevice::open(image, FileOptions::read_write())?);
    mkfs(&*device, &MkfsOptions { device_is_zeroed: true, ..MkfsOptions::new(Family::Ext4) })?;
    let ext4 = Ext4::open(device, OpenOptions::default(), WriteOptions::default())?;
    let vfs = Vfs::new(ext4, VfsOptions::default());
    copy_directory(&vfs, from, &vfs.root()?).map_err(|error| format!("{}: {error}", from.display()))?;
    Ok(vfs.close()?)
}

fn copy_directory(vfs: &Vfs, from: &Path, to: &Arc<Node>) -> Result<(), Box<dyn Error>> {
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let (path, name) = (entry.path(), entry.file_name());
        let make = |object: &NewObject<'_>| vfs.create(&ROOT, to, name.as_bytes(), object);
        let kind = entry.file_type()?;
        let node = if kind.is_dir() {
            let dir = make(&NewObject::directory(0o755))?;
            copy_directory(vfs, &path, &dir)?;
            dir
        } else if kind.is_symlink() {
            make(&NewObject::symlink(fs::read_link(&path)?.as_os_str().as_bytes()))?
        } else if kind.is_file() {
            let file = make(&NewObject::file(0o644))?;
            let mut copy = vfs.open_node_for_writing(&file)?.into_cursor();
            io::copy(&mut fs::File::open(&path)?, &mut copy)?;
            file
        } else {
            return Err(format!("{} is no file, directory or symbolic link", path.display()).into());
        };
        copy_attributes(vfs, &entry.metadata()?, &node)?;
    }
    Ok(())
}

fn copy_attributes(vfs: &Vfs, from: &fs::Metadata, to: &Arc<Node>) -> Result<(), Box<dyn Error>> {
    let change = AttrChange {
        permissions: (!from.is_symlink()).then_some(from.mode() as u16 & 0o7777),
        uid: Some(from.uid()),
        gid: Some(from.gid()),
        modified: Some(NewTime::At(from.modified()?.into())),
        ..AttrChange::default()
    };
    Ok(vfs.set_attr(&ROOT, to, &change)?)
}

//! Makes an ext4 filesystem in a file, writes to it and reads back:
//!
//! ```sh
//! cargo run -p undercroft-ext4 --example write_image disk.img
//! ```
//!
//! With several files it makes a RAID5 array of them, which mdadm can assemble, and the filesystem on that.

use std::error::Error;
use std::fs::OpenOptions as HostFile;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::sync::Arc;

use undercroft_block::{Device, FileDevice, FileOptions};
use undercroft_ext4::{Ext4, Family, MkfsOptions, OpenOptions, WriteOptions, mkfs};
use undercroft_md::{Array, ArrayOptions, CreateOptions, Level};
use undercroft_vfs::{Credentials, Vfs, VfsOptions};

fn main() -> Result<(), Box<dyn Error>> {
    run(&std::env::args_os().skip(1).map(PathBuf::from).collect::<Vec<_>>())
}

pub(crate) fn run(paths: &[PathBuf]) -> Result<(), Box<dyn Error>> {
    let mut devices: Vec<Device> = Vec::new();
    for path in paths {
        // Nothing is overwritten: the file must be new.
        let file = HostFile::new().write(true).create_new(true).open(path);
        file.map_err(|error| format!("{}: {error}", path.display()))?.set_len(64 << 20)?;
        devices.push(Arc::new(FileDevice::open(path, FileOptions::read_write())?));
    }
    match devices.len() {
        0 => Err("usage: write_image FILE, or at least three FILEs for a RAID5".into()),
        1 => write(devices.remove(0)),
        _ => {
            let new = CreateOptions { assume_clean: true, ..CreateOptions::new(Level::Raid5) };
            let array = Arc::new(Array::create(devices, &new, ArrayOptions::default())?);
            write(array.clone())?;
            Ok(array.close()?)
        }
    }
}

fn write(device: Device) -> Result<(), Box<dyn Error>> {
    mkfs(&*device, &MkfsOptions::new(Family::Ext4))?;
    let ext4 = Ext4::open(device, OpenOptions::default(), WriteOptions::default())?;
    let vfs = Vfs::new(ext4, VfsOptions::default());
    let who = Credentials::root();

    vfs.create_dir_all(&who, "/var/log")?;
    vfs.write(&who, "/var/log/first", "one line\n")?;
    let mut log = vfs.create_file(&who, "/var/log/second")?.into_cursor();
    for number in 1..=3 {
        writeln!(log, "line {number}")?;
    }

    for entry in vfs.read_dir(&who, "/var/log")? {
        let entry = entry?;
        let path = [b"/var/log/", entry.name()].concat();
        let lines = BufReader::new(vfs.open(&who, &path)?.into_cursor()).lines().count();
        println!("{}: {lines} lines", path.escape_ascii());
    }
    // What was written is durable when this returns, and an error says that it is not.
    Ok(vfs.close()?)
}

//! FAT filesystems of all sizes, and what is refused.

use std::process::Command;

use undercroft_block::{FileDevice, FileOptions, MemoryDevice};
use undercroft_populate::{Content, Entry, EntryKind, EntryPath, Metadata, Piece, SourceError};

use super::*;

const MIB: u64 = 1 << 20;

/// Files with content of one letter, in memory.
#[derive(Clone)]
struct Listed {
    entries: Vec<Entry>,
    at: usize,
    read: u64,
}

impl Source for Listed {
    fn name(&self) -> &str {
        "list"
    }

    fn next_entry(&mut self) -> Result<Option<Entry>, SourceError> {
        self.at += 1;
        self.read = 0;
        Ok(self.entries.get(self.at - 1).cloned())
    }

    fn read_content(&mut self, buf: &mut [u8]) -> Result<Option<Piece>, SourceError> {
        let Some(Entry { kind: EntryKind::Regular(content), .. }) = self.entries.get(self.at - 1) else {
            return Ok(None);
        };
        let len = (content.size_bytes - self.read).min(buf.len() as u64) as usize;
        buf[..len].fill(b'a' + (self.at % 26) as u8);
        self.read += len as u64;
        Ok((len > 0).then_some(Piece { offset: self.read - len as u64, len }))
    }

    fn rewind(&mut self) -> Result<(), SourceError> {
        (self.at, self.read) = (0, 0);
        Ok(())
    }
}

fn listed(files: &[(&str, EntryKind)]) -> Vec<Box<dyn Source>> {
    let entries = files.iter().map(|(path, kind)| Entry {
        path: EntryPath::new(path.as_bytes()).unwrap(),
        kind: kind.clone(),
        metadata: Metadata::default(),
    });
    vec![Box::new(Listed { entries: entries.collect(), at: 0, read: 0 })]
}

fn file(bytes: u64) -> EntryKind {
    EntryKind::Regular(Content::whole(bytes))
}

fn options() -> FatOptions {
    FatOptions {
        label: Some("esp".to_owned()),
        volume_id: 0x1234_abcd,
        time: 1_700_000_000,
        start_bytes: MIB,
    }
}

fn bytes_of(device: &MemoryDevice) -> Vec<u8> {
    let mut bytes = vec![0; device.size_bytes() as usize];
    device.read_at(0, &mut bytes).unwrap();
    bytes
}

#[test]
fn what_fat_cannot_have_is_refused() {
    for (files, word) in [
        (vec![("a", EntryKind::Symlink(Box::from(*b"b")))], "/a: FAT has no symbolic links"),
        (vec![("a", EntryKind::Fifo)], "named pipes"),
        (vec![("Boot/x", file(1)), ("BOOT/y", file(1))], "/BOOT/y: in FAT it is the same name as \"Boot\""),
        (vec![("a", file(1 << 32))], "smaller than 4 GiB"),
        (vec![("a:b", file(1))], "/a:b: names in FAT have no ':'"),
        (vec![("big", file(2 * MIB))], "need more than"),
    ] {
        let error = make_fat(&MemoryDevice::new(2 * MIB), &mut listed(&files), &options()).unwrap_err();
        assert!(error.to_string().contains(word), "{error}");
    }
    for label in ["", "twelve chars", "a/b", "\u{e4}"] {
        let options = FatOptions { label: Some(label.to_owned()), ..options() };
        assert!(make_fat(&MemoryDevice::new(2 * MIB), &mut [], &options).is_err(), "{label}");
    }
    assert!(make_fat(&MemoryDevice::new(32 << 10), &mut [], &options()).is_err());
}

#[test]
fn the_same_files_make_the_same_bytes() {
    let files = [("EFI/BOOT/BOOTX64.EFI", file(100_000)), ("EFI/a longer name than eight.txt", file(3))];
    let made = || {
        let device = MemoryDevice::new(40 * MIB);
        make_fat(&device, &mut listed(&files), &options()).unwrap();
        bytes_of(&device)
    };
    assert!(made() == made());
}

#[test]
fn the_least_size_holds_the_files() {
    for files in [
        vec![],
        vec![("a".to_owned(), file(40 * MIB))],
        vec![("a".to_owned(), file(250 * MIB + 1)), ("b".to_owned(), file(MIB))],
        (0..3000).map(|number| (format!("dir/file of the number {number}"), file(5000))).collect(),
    ] {
        let files: Vec<(&str, EntryKind)> =
            files.iter().map(|(name, kind)| (name.as_str(), kind.clone())).collect();
        let mut sources = listed(&files);
        let size = least_fat_bytes(&mut sources).unwrap();
        make_fat(&MemoryDevice::new(size), &mut sources, &options()).unwrap();
    }
}

/// fsck.vfat, where this machine has it.
fn checked(path: &std::path::Path) -> bool {
    match Command::new("fsck.vfat").arg("-nv").arg(path).output() {
        Ok(output) => {
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            assert!(output.status.success(), "{text}");
            true
        }
        Err(_) => false,
    }
}

#[test]
fn every_size_is_one_that_fsck_vfat_finds_good() {
    let files = [
        ("EFI/BOOT/BOOTX64.EFI", file(30_000)),
        ("loader/Entries/x.conf", file(0)),
        ("empty", EntryKind::Directory),
    ];
    for mib in [1, 3, 8, 15, 33, 34, 64, 100, 131, 132, 259, 260, 512, 1024, 9 * 1024] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("fat.img");
        std::fs::File::create(&path).unwrap().set_len(mib * MIB).unwrap();
        let device = FileDevice::open(&path, FileOptions::read_write()).unwrap();
        make_fat(&device, &mut listed(&files), &options()).unwrap();
        drop(device);
        if !checked(&path) {
            return;
        }
    }
}

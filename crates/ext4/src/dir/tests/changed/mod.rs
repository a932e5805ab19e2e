//! Directories that are changed, checked by e2fsck, by debugfs, by Linux and by reading them.

mod hostile;
mod shapes;
mod together;

use undercroft_block::testing::Rng;
use undercroft_vfs::Error;

#[cfg(feature = "oracle")]
use super::super::directory::Directory;
use super::super::{self as dir, ADD_CREDITS, REMOVE_CREDITS, lookup_live, read_dir_live};
use super::*;
use crate::inode::InodeFlags;
use crate::live::Live;
use crate::options::WriteOptions;
use crate::testing::writable::Writable;

/// A directory `d` to change, and a file `f` that all its names lead to.
struct Changed {
    writable: Writable,
    dir: Arc<Live>,
    file: Arc<Live>,
    model: BTreeMap<Vec<u8>, u32>,
}

impl Changed {
    fn new(mke2fs: Mke2fs) -> Self {
        let image = image(mke2fs, |root| {
            touch(&root.join("d"), [""; 0]);
            touch(root, ["f"]);
        });
        Self::open(image)
    }

    fn open(image: Image) -> Self {
        let writable = Writable::open(image, WriteOptions::default());
        let number = |path| inode(&writable.volume, path).number;
        let (dir, file) = (writable.live(number("d")), writable.live(number("f")));
        let model = names(&writable.volume, &dir.fields.read().clone());
        Self { writable, dir, file, model }
    }

    fn add(&mut self, name: &[u8]) {
        self.try_add(name).unwrap();
    }

    fn try_add(&mut self, name: &[u8]) -> Result<()> {
        let handle = self.writable.volume.start(ADD_CREDITS)?;
        dir::add(&handle, &self.dir, name, self.file.number, FileType::Regular)?;
        assert_eq!(self.model.insert(name.to_vec(), self.file.number), None, "it was there");
        Ok(())
    }

    fn remove(&mut self, name: &[u8]) {
        let handle = self.writable.volume.start(REMOVE_CREDITS).unwrap();
        dir::remove(&handle, &self.dir, name, self.file.number).unwrap();
        self.model.remove(name).expect("it was not there");
    }

    fn listed(&self, at_once: usize) -> Vec<Listed> {
        let (mut all, mut from) = (Vec::new(), 0);
        loop {
            let before = all.len();
            read_dir_live(&self.dir, DirOffset(from), &mut |entry| {
                let (name, ino) = (entry.name.to_vec(), entry.ino.0 as u32);
                all.push(Listed { name, ino, kind: entry.kind, next: entry.next });
                if all.len() < before + at_once { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
            })
            .unwrap();
            if all.len() < before + at_once {
                return all;
            }
            from = all.last().unwrap().next.0;
        }
    }

    fn check(&self) {
        for at_once in [usize::MAX, 7] {
            let listed = self.listed(at_once);
            let names: BTreeMap<_, _> = listed.iter().map(|l| (l.name.clone(), l.ino)).collect();
            assert_eq!((names.len(), &names), (listed.len(), &self.model));
        }
        for (name, ino) in &self.model {
            assert_eq!(lookup_live(&self.dir, name).unwrap(), Some(*ino), "{}", name.escape_ascii());
        }
    }

    /// Lets e2fsck check the image.
    fn finish(self) -> Image {
        self.check();
        {
            let handle = self.writable.volume.start(2).unwrap();
            let mut fields = self.file.fields.write();
            fields.links = u16::try_from(self.model.len() - 1).unwrap();
            fields.store(&handle, self.file.location).unwrap();
        }
        let image = self.writable.close();
        image.check().unwrap();
        let truth = names(&Loaded::new(&image).open(), &self.dir.fields.read());
        assert_eq!(truth, self.model);
        image
    }
}

fn random_name(random: &mut Rng, kinds: usize, longest: usize) -> Vec<u8> {
    let number = random.index(kinds);
    let mut name = format!("{number}-").into_bytes();
    let len = (number.wrapping_mul(7919) % longest + 1).max(name.len());
    name.resize(len, b'a' + (number % 26) as u8);
    name
}

fn churn(changed: &mut Changed, random: &mut Rng, rounds: usize, kinds: usize, longest: usize) {
    for _ in 0..rounds {
        let name = random_name(random, kinds, longest);
        if changed.model.contains_key(&name) {
            assert!(matches!(changed.try_add(&name), Err(Error::Exists)));
            if random.index(3) > 0 {
                changed.remove(&name);
            }
        } else {
            assert_eq!(lookup_live(&changed.dir, &name).unwrap(), None);
            changed.add(&name);
        }
    }
}

fn ext4(block_bytes: u32, features: &str) -> Mke2fs {
    let features = format!("^has_journal,^resize_inode,sparse_super2,{features}");
    Mke2fs::new("ext4", 64)
        .block_bytes(block_bytes)
        .inodes(64)
        .features(&features)
        .extended("num_backup_sb=0")
}

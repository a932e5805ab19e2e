//! Image files made on the spot by the real mke2fs, and the e2fsprogs' view of them.
//!
//! Images are sparse files in scratch directories of their own. Nothing is kept between runs: what the
//! installed tools make today is what is tested today.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use undercroft_block::BlockDevice;

use crate::error::Context;
use crate::{Error, LoopMount, MountMode, Result, Scratch, Tool, content};

/// How to call mke2fs.
#[derive(Clone, Debug)]
pub struct Mke2fs {
    kind: &'static str,
    size_bytes: u64,
    args: Vec<String>,
}

impl Mke2fs {
    /// A filesystem of the type `kind` ("ext2", "ext3", "ext4"), with what the installed mke2fs.conf makes of
    /// that.
    #[must_use]
    pub fn new(kind: &'static str, size_mib: u64) -> Self {
        Self { kind, size_bytes: size_mib << 20, args: Vec::new() }
    }

    /// On a device of so many bytes.
    #[must_use]
    pub fn size_bytes(self, size_bytes: u64) -> Self {
        Self { size_bytes, ..self }
    }

    /// The block size in bytes (`-b`).
    #[must_use]
    pub fn block_bytes(self, bytes: u32) -> Self {
        self.args(["-b", &bytes.to_string()])
    }

    /// The inode size in bytes (`-I`).
    #[must_use]
    pub fn inode_bytes(self, bytes: u32) -> Self {
        self.args(["-I", &bytes.to_string()])
    }

    /// The number of inodes (`-N`).
    #[must_use]
    pub fn inodes(self, count: u32) -> Self {
        self.args(["-N", &count.to_string()])
    }

    /// Features to set, or to clear with a `^` before the name (`-O`). mke2fs wants them all in one list.
    #[must_use]
    pub fn features(self, list: &str) -> Self {
        self.args(["-O", list])
    }

    /// Extended options (`-E`).
    #[must_use]
    pub fn extended(self, list: &str) -> Self {
        self.args(["-E", list])
    }

    /// Any other arguments.
    #[must_use]
    pub fn args<'a>(mut self, args: impl IntoIterator<Item = &'a str>) -> Self {
        self.args.extend(args.into_iter().map(str::to_owned));
        self
    }

    /// Makes the image.
    ///
    /// # Errors
    /// What mke2fs said.
    pub fn make(&self) -> Result<Image> {
        let image = Image::empty(self.kind, self.size_bytes)?;
        Tool::new("mke2fs").args(["-q", "-F", "-t", self.kind]).args(&self.args).arg(&image.path).run()?;
        Ok(image)
    }
}

/// Writes what a device holds to a sparse file, for tools to look at.
///
/// # Errors
/// The device cannot be read, or the file not written.
pub fn save_device(device: &dyn BlockDevice, path: &Path) -> Result<()> {
    let file = File::create(path).context("create", path)?;
    file.set_len(device.size_bytes()).context("set the size of", path)?;
    let mut chunk = vec![0; 1 << 20];
    let mut at = 0;
    while at < device.size_bytes() {
        let len = chunk.len().min((device.size_bytes() - at) as usize);
        device.read_at(at, &mut chunk[..len]).map_err(|error| Error::Unfit(error.to_string()))?;
        if chunk[..len].iter().any(|&byte| byte != 0) {
            file.write_all_at(&chunk[..len], at).context("write", path)?;
        }
        at += len as u64;
    }
    Ok(())
}

/// An image file in a scratch directory of its own.
#[derive(Debug)]
pub struct Image {
    kind: &'static str,
    path: PathBuf,
    _scratch: Scratch,
}

impl Image {
    /// A sparse file of zeroes, for another program than mke2fs to make a filesystem of this type on.
    ///
    /// # Errors
    /// The file cannot be made.
    pub fn empty(kind: &'static str, size_bytes: u64) -> Result<Self> {
        Self::empty_in(Scratch::new("image")?, kind, size_bytes)
    }

    /// The same in this scratch directory.
    ///
    /// # Errors
    /// The file cannot be made.
    pub fn empty_in(scratch: Scratch, kind: &'static str, size_bytes: u64) -> Result<Self> {
        let path = scratch.path().join("image");
        let file = File::create(&path).context("create", &path)?;
        file.set_len(size_bytes).context("set the size of", &path)?;
        Ok(Self { kind, path, _scratch: scratch })
    }

    /// What a device holds now.
    ///
    /// # Errors
    /// As for [`save_device`].
    pub fn of_device(kind: &'static str, device: &dyn BlockDevice) -> Result<Self> {
        let scratch = Scratch::new("image")?;
        let path = scratch.path().join("image");
        save_device(device, &path)?;
        Ok(Self { kind, path, _scratch: scratch })
    }

    /// The file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The type as mount takes it.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        self.kind
    }

    /// Mounts it, with these `mount -o` options.
    ///
    /// # Errors
    /// As for [`LoopMount::new`].
    pub fn mount(&self, mode: MountMode, options: &str) -> Result<LoopMount> {
        LoopMount::new(&self.path, self.kind, mode, options)
    }

    /// A copy of its bytes as they are now, holes kept.
    ///
    /// # Errors
    /// The copy cannot be made.
    pub fn copy(&self) -> Result<Self> {
        let scratch = Scratch::new("copy")?;
        let path = scratch.path().join("image");
        let source = File::open(&self.path).context("open", &self.path)?;
        let target = File::create(&path).context("create", &path)?;
        let size = source.metadata().context("stat", &self.path)?.len();
        target.set_len(size).context("set the size of", &path)?;
        let mut buf = vec![0; 1 << 20];
        for (start, len) in content::data_segments(&source, size).context("find the data of", &self.path)? {
            let mut at = start;
            while at < start + len {
                let step = (start + len - at).min(buf.len() as u64) as usize;
                source.read_exact_at(&mut buf[..step], at).context("read", &self.path)?;
                target.write_all_at(&buf[..step], at).context("write", &path)?;
                at += step as u64;
            }
        }
        Ok(Self { kind: self.kind, path, _scratch: scratch })
    }

    /// A copy of its bytes at one moment while the kernel has it mounted and may be writing to it: copied again
    /// until no write reached the image meanwhile.
    ///
    /// # Errors
    /// The copy cannot be made, or the writes never pause for as long as a copy takes.
    pub fn copy_between_writes(&self, mount: &LoopMount) -> Result<Self> {
        const TRIES: u32 = 200;
        for _ in 0..TRIES {
            let before = mount.writes()?;
            let copy = self.copy()?;
            if before.under_way == 0 && mount.writes()? == before {
                return Ok(copy);
            }
        }
        Err(Error::Unfit(format!("writes reached {} during each of {TRIES} copies", self.path.display())))
    }

    /// A copy of its bytes at one moment, also while the kernel has it mounted and writes to it: a reflink, which
    /// no write comes between. The file must lie on a filesystem that has them, and the copy lies beside it.
    ///
    /// # Errors
    /// The filesystem has no reflinks; the copy cannot be made.
    pub fn reflink(&self) -> Result<Self> {
        let home = self.path.parent().and_then(Path::parent).unwrap_or_else(|| Path::new("/"));
        let scratch = Scratch::within(home, "reflink")?;
        let path = scratch.path().join("image");
        let source = File::open(&self.path).context("open", &self.path)?;
        let target = File::create(&path).context("create", &path)?;
        rustix::fs::ioctl_ficlone(&target, &source).context("reflink", &path)?;
        Ok(Self { kind: self.kind, path, _scratch: scratch })
    }

    /// SHA-256 over all its bytes, holes as zeroes: equal sums mean that nothing was written.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn sha256(&self) -> Result<[u8; 32]> {
        content::sha256_of_file(&self.path)
    }

    /// What debugfs answers to one command. debugfs reports most failures only in words, on standard error.
    ///
    /// # Errors
    /// What debugfs said.
    pub fn debugfs(&self, command: &str) -> Result<String> {
        Tool::new("debugfs").args(["-R", command]).arg(&self.path).run_text()
    }

    /// What debugfs answers to each of many commands.
    ///
    /// # Errors
    /// The commands cannot be stored, debugfs cannot open the image, or gave another number of answers.
    pub fn debugfs_all(&self, commands: &[String]) -> Result<Vec<String>> {
        let script = Scratch::new("debugfs")?;
        let path = script.path().join("commands");
        std::fs::write(&path, commands.join("\n") + "\n").context("write", &path)?;
        // Each answer follows its command, which debugfs repeats after a prompt.
        let answers = Tool::new("debugfs").arg("-f").arg(&path).arg(&self.path).run_text()?;
        let answers: Vec<String> = answers.split("debugfs: ").skip(1).map(str::to_owned).collect();
        if answers.len() != commands.len() {
            let detail = format!("{} answers to {} commands", answers.len(), commands.len());
            return Err(Error::Output { tool: "debugfs", detail });
        }
        Ok(answers)
    }

    /// Lets debugfs change the image, one command after the other.
    ///
    /// # Errors
    /// The commands cannot be stored, or debugfs cannot open the image. A single command's failure is not
    /// seen here: check the outcome.
    pub fn debugfs_write(&self, commands: &[&str]) -> Result<()> {
        let script = Scratch::new("debugfs")?;
        let path = script.path().join("commands");
        std::fs::write(&path, commands.join("\n") + "\n").context("write", &path)?;
        Tool::new("debugfs").args(["-w", "-f"]).arg(&path).arg(&self.path).run().map(drop)
    }

    /// Runs tune2fs on it.
    ///
    /// # Errors
    /// What tune2fs said.
    pub fn tune2fs(&self, args: &[&str]) -> Result<()> {
        let tune = || Tool::new("tune2fs").args(args).arg(&self.path).run().map(drop);
        match tune() {
            // Some changes ask for a check that is no older than the last mount, in whole seconds.
            Err(error) if error.to_string().contains("freshly checked") => {
                Tool::new("e2fsck").args(["-f", "-p"]).arg(&self.path).accept(&[0, 1]).run().map(drop)?;
                tune()
            }
            answer => answer,
        }
    }

    /// Lets e2fsck mend it and rebuild its directory indices.
    ///
    /// # Errors
    /// e2fsck could not mend it.
    pub fn rebuild_directories(&self) -> Result<()> {
        Tool::new("e2fsck").args(["-f", "-y", "-D"]).arg(&self.path).accept(&[0, 1]).run().map(drop)
    }

    /// Asks e2fsck whether everything is in order, without changing anything.
    ///
    /// # Errors
    /// What e2fsck found.
    pub fn check(&self) -> Result<()> {
        Tool::new("e2fsck").args(["-f", "-n"]).arg(&self.path).run().map(drop)
    }

    /// The superblock's geometry and features, as dumpe2fs reads them.
    ///
    /// # Errors
    /// What dumpe2fs said, or that its answer has another form.
    pub fn features(&self) -> Result<Features> {
        Features::parse(&self.superblock_dump()?)
    }

    /// The superblock and the journal's as dumpe2fs tells them, one field a line.
    ///
    /// # Errors
    /// What dumpe2fs said.
    pub fn superblock_dump(&self) -> Result<String> {
        Tool::new("dumpe2fs").arg("-h").arg(&self.path).run_text()
    }
}

/// What a filesystem can do, as far as filling it depends on it.
#[derive(Clone, Debug)]
pub struct Features {
    names: Vec<String>,
    /// Block size in bytes.
    pub block_bytes: u32,
    /// Inode size in bytes.
    pub inode_bytes: u32,
    /// The superblock's revision: 0 knows no features at all.
    pub revision: u32,
}

impl Features {
    /// Whether the feature of this name is on.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.names.iter().any(|n| n == name)
    }

    /// What a filesystem of another family can do, in the words of ext4.
    pub(crate) fn of_other(block_bytes: u32, inode_bytes: u32) -> Self {
        let names = ["extent", "ext_attr"].map(str::to_owned).to_vec();
        Self { names, block_bytes, inode_bytes, revision: 1 }
    }

    fn parse(dump: &str) -> Result<Self> {
        let field = |label: &str| {
            let line = dump.lines().find_map(|line| line.strip_prefix(label));
            line.map(str::trim)
                .ok_or_else(|| Error::Output { tool: "dumpe2fs", detail: format!("no line \"{label}\"") })
        };
        let number = |label: &str| {
            let text = field(label)?;
            let first = text.split_whitespace().next().unwrap_or_default();
            let detail = || format!("\"{label}\" is not followed by a number: {text}");
            first.parse().map_err(|_| Error::Output { tool: "dumpe2fs", detail: detail() })
        };
        Ok(Self {
            names: field("Filesystem features:")?.split_whitespace().map(str::to_owned).collect(),
            block_bytes: number("Block size:")?,
            inode_bytes: number("Inode size:").or_else(|e| match number("Filesystem revision #:")? {
                0 => Ok(128),
                _ => Err(e),
            })?,
            revision: number("Filesystem revision #:")?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn features_come_from_the_superblock() {
        let image =
            Mke2fs::new("ext4", 8).block_bytes(1024).inode_bytes(512).features("^extent,^64bit").make();
        let features = image.unwrap().features().unwrap();
        assert_eq!((features.block_bytes, features.inode_bytes, features.revision), (1024, 512, 1));
        assert!(features.has("dir_index") && !features.has("extent"), "{features:?}");
    }

    #[test]
    fn a_copy_has_the_same_bytes() {
        let image = Mke2fs::new("ext2", 4).make().unwrap();
        let copy = image.copy().unwrap();
        assert_eq!(image.sha256().unwrap(), copy.sha256().unwrap());
        copy.debugfs_write(&["mkdir /new"]).unwrap();
        assert_ne!(image.sha256().unwrap(), copy.sha256().unwrap());
    }
}

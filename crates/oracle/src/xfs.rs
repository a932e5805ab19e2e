//! XFS images made on the spot by the real mkfs.xfs, filled by the kernel or, in version 4, by mkfs.xfs itself from a
//! list of files, and what xfsprogs say of them.

use std::path::Path;

use crate::populate::{XFS_FRAGMENTED, XfsPlan, populate_xfs};
use crate::{Error, Features, Image, MountMode, Result, Scratch, Tool};

/// How to call mkfs.xfs.
#[derive(Clone, Debug)]
pub struct MkfsXfs {
    size_bytes: u64,
    args: Vec<String>,
    new_uuid: bool,
}

impl MkfsXfs {
    /// A filesystem of so many MiB, with these arguments, separated by spaces. Filesystems of less than 300 MiB, which
    /// mkfs.xfs calls unsupported, are made too.
    #[must_use]
    pub fn new(size_mib: u64, args: &str) -> Self {
        Self {
            size_bytes: size_mib << 20,
            args: args.split_whitespace().map(str::to_owned).collect(),
            new_uuid: false,
        }
    }

    /// One more argument.
    #[must_use]
    pub fn arg(mut self, arg: impl Into<String>) -> Self {
        self.args.push(arg.into());
        self
    }

    /// Changes the UUID afterwards: metadata keeps the one that it was made with.
    #[must_use]
    pub fn new_uuid(mut self) -> Self {
        self.new_uuid = true;
        self
    }

    /// Makes the image.
    ///
    /// # Errors
    /// What mkfs.xfs said.
    pub fn make(&self) -> Result<Image> {
        self.format(Image::empty("xfs", self.size_bytes)?)
    }

    /// Makes the image in this scratch directory.
    ///
    /// # Errors
    /// What mkfs.xfs said.
    pub fn make_in(&self, scratch: Scratch) -> Result<Image> {
        self.format(Image::empty_in(scratch, "xfs", self.size_bytes)?)
    }

    fn format(&self, image: Image) -> Result<Image> {
        Tool::new("mkfs.xfs").args(["-q", "-f", "--unsupported"]).args(&self.args).arg(image.path()).run()?;
        if self.new_uuid {
            Tool::new("xfs_admin").args(["-U", "generate"]).arg(image.path()).run()?;
        }
        Ok(image)
    }

    /// Makes the image with the files and directories that a prototype in the form of mkfs.xfs(8) lists.
    ///
    /// # Errors
    /// What mkfs.xfs said.
    pub fn make_from(&self, prototype: &Path) -> Result<Image> {
        self.clone().arg("-p").arg(prototype.display().to_string()).make()
    }
}

/// One XFS image: mkfs.xfs, a mount by the kernel to fill it, and what tools do to it afterwards.
#[derive(Clone, Debug)]
pub struct XfsRecipe {
    mkfs: MkfsXfs,
    plan: XfsPlan,
    finish: fn(&Image) -> Result<()>,
}

impl XfsRecipe {
    /// An image that this call of mkfs.xfs makes, filled by the default [`XfsPlan`].
    #[must_use]
    pub fn new(mkfs: MkfsXfs) -> Self {
        Self { mkfs, plan: XfsPlan::default(), finish: |_| Ok(()) }
    }

    /// Changes the plan.
    #[must_use]
    pub fn plan(mut self, change: impl FnOnce(&mut XfsPlan)) -> Self {
        change(&mut self.plan);
        self
    }

    /// What is done to the image after the kernel has let go of it.
    #[must_use]
    pub fn finish(mut self, finish: fn(&Image) -> Result<()>) -> Self {
        self.finish = finish;
        self
    }

    /// Makes the image.
    ///
    /// # Errors
    /// A tool's or the kernel's, and [`Error::Unfit`] when the fragmented file's tree stayed too shallow, or an aged
    /// volume has only whole chunks of inodes.
    pub fn make(&self) -> Result<Image> {
        let image = self.mkfs.make()?;
        let block = image.xfs_number(&["sb 0", "print blocksize"], "blocksize")?;
        let inode = image.xfs_number(&["sb 0", "print inodesize"], "inodesize")?;
        let reflink = image.xfs_db(&["version"])?.contains("REFLINK");
        let features = Features::of_other(block as u32, inode as u32);
        let mount = image.mount(MountMode::ReadWrite, "noatime")?;
        let plan = XfsPlan { reflink, ..self.plan };
        populate_xfs(mount.path(), &features, &plan)?;
        mount.unmount()?;
        let path = format!("path /{XFS_FRAGMENTED}");
        let level = image.xfs_number(&[&path, "print u3.bmbt.level"], "u3.bmbt.level")?;
        if level < u64::from(plan.bmbt_level) {
            let wanted = plan.bmbt_level;
            return Err(Error::Unfit(format!(
                "the root of the fragmented file has level {level}, {wanted} is wanted"
            )));
        }
        if plan.aged && !image.has_sparse_chunks()? {
            return Err(Error::Unfit("all chunks of inodes are whole".to_owned()));
        }
        (self.finish)(&image)?;
        Ok(image)
    }
}

impl Image {
    /// What xfs_db answers to these commands, in one run that changes nothing.
    ///
    /// # Errors
    /// What xfs_db said. A single command's failure is not seen here.
    pub fn xfs_db(&self, commands: &[&str]) -> Result<String> {
        let pairs = commands.iter().flat_map(|command| ["-c", command]);
        Tool::new("xfs_db").arg("-r").args(pairs).arg(self.path()).accept(&[0, 1]).run_text()
    }

    /// Whether a chunk of inodes lacks a part of its blocks.
    fn has_sparse_chunks(&self) -> Result<bool> {
        let groups = self.xfs_number(&["sb 0", "print agcount"], "agcount")?;
        for group in 0..groups {
            let told = self.xfs_db(&[&format!("agi {group}"), "addr root", "btdump"])?;
            // A record of the tree is `number:[first inode,mask of what is missing,...]`.
            let mut records =
                told.split_whitespace().filter_map(|word| word.split_once(":[")?.1.split(',').nth(1));
            if told.contains("holemask") && records.any(|missing| missing != "0") {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Lets xfs_db change the image; checksums are recomputed.
    ///
    /// # Errors
    /// What xfs_db said. A single command's failure is not seen here: check the outcome.
    pub fn xfs_db_write(&self, commands: &[&str]) -> Result<String> {
        let pairs = commands.iter().flat_map(|command| ["-c", command]);
        Tool::new("xfs_db").arg("-x").args(pairs).arg(self.path()).accept(&[0, 1]).run_text()
    }

    /// The number that xfs_db prints as `name = number`.
    ///
    /// # Errors
    /// What xfs_db said, or that there is no such line.
    pub fn xfs_number(&self, commands: &[&str], name: &str) -> Result<u64> {
        let told = self.xfs_db(commands)?;
        let value = told.lines().find_map(|line| line.strip_prefix(name)?.trim().strip_prefix('='));
        let number = value.and_then(|value| value.trim().parse().ok());
        number
            .ok_or_else(|| Error::Output { tool: "xfs_db", detail: format!("no number \"{name}\": {told}") })
    }

    /// Asks xfs_repair whether everything is in order, without changing anything.
    ///
    /// # Errors
    /// What xfs_repair found.
    pub fn xfs_repair_check(&self) -> Result<String> {
        // Of a single group there is no copy that the geometry could be compared with.
        Tool::new("xfs_repair").args(["-n", "-o", "force_geometry"]).arg(self.path()).run_text()
    }
}

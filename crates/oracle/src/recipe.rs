//! How an image of the matrix comes to be: mke2fs, a mount by the kernel to fill it, and what tools do to it
//! afterwards.

use crate::populate::{FRAGMENTED, Plan, populate};
use crate::{Error, Image, Mke2fs, MountMode, Result};

/// The seed of names' hashes. mke2fs makes a random one; with this one the large directory has the same shape
/// every time, and a failure comes again.
const HASH_SEED: &str = "a3c1f0de-5b7e-4c0b-9d55-0c6b2e9c7d11";

/// One image of the matrix.
#[derive(Clone, Debug)]
pub struct Recipe {
    mke2fs: Mke2fs,
    plan: Plan,
    prepare: fn(&Image) -> Result<()>,
    finish: fn(&Image) -> Result<()>,
}

impl Recipe {
    /// An image that this call of mke2fs makes, filled by the default [`Plan`].
    #[must_use]
    pub fn new(mke2fs: Mke2fs) -> Self {
        Self { mke2fs, plan: Plan::default(), prepare: |_| Ok(()), finish: |_| Ok(()) }
    }

    /// Changes the plan.
    #[must_use]
    pub fn plan(mut self, change: impl FnOnce(&mut Plan)) -> Self {
        change(&mut self.plan);
        self
    }

    /// What is done to the image before the kernel first mounts it.
    #[must_use]
    pub fn prepare(mut self, prepare: fn(&Image) -> Result<()>) -> Self {
        self.prepare = prepare;
        self
    }

    /// What is done to the image after the kernel has unmounted it.
    #[must_use]
    pub fn finish(mut self, finish: fn(&Image) -> Result<()>) -> Self {
        self.finish = finish;
        self
    }

    /// Makes the image.
    ///
    /// # Errors
    /// A tool's or the kernel's, and [`Error::Unfit`] when the extent tree stayed too shallow.
    pub fn make(&self) -> Result<Image> {
        let image = self.mke2fs.make()?;
        image.debugfs_write(&[&format!("set_super_value hash_seed {HASH_SEED}")])?;
        (self.prepare)(&image)?;
        let features = image.features()?;
        let mount = image.mount(MountMode::ReadWrite, "noatime")?;
        populate(mount.path(), &features, &self.plan)?;
        mount.unmount()?;
        if features.has("extent") {
            let depth = extent_depth(&image, FRAGMENTED)?;
            if depth < self.plan.extent_depth {
                let wanted = self.plan.extent_depth;
                return Err(Error::Unfit(format!("the extent tree has depth {depth}, {wanted} is wanted")));
            }
        }
        (self.finish)(&image)?;
        Ok(image)
    }
}

/// The depth of a file's extent tree, as debugfs sees it: 0 when all extents lie in the inode.
fn extent_depth(image: &Image, path: &str) -> Result<u32> {
    // Index lines begin with the node's level and the depth: " 0/ 2   1/ 1 ...".
    let dump = image.debugfs(&format!("extents -n /{path}"))?;
    let depth = dump.lines().find_map(|line| {
        let (level, rest) = line.split_once('/')?;
        level.trim().parse::<u32>().ok()?;
        rest.split_whitespace().next()?.parse().ok()
    });
    // With -n a tree without index nodes prints no line but the heading.
    match depth {
        Some(depth) => Ok(depth),
        None if dump.starts_with("Level") => Ok(0),
        None => Err(Error::Output { tool: "debugfs", detail: format!("no extent tree: {dump}") }),
    }
}

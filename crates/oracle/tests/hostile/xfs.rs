//! Damaged XFS images, read and checked: every answer must be data or a clear error, soon, and in little memory.
//!
//! The same damage as for ext4, done to structures that are found by their magic numbers. Two victims have a log to be
//! recovered, and blocks of the log are damaged like everything else.

use std::sync::Arc;

use undercroft_block::testing::Rng;
use undercroft_block::{Access, Device, MemoryDevice};
use undercroft_oracle::{Image, MkfsXfs, MountMode, XfsRecipe};
use undercroft_xfs::testing::{Site, sites};
use undercroft_xfs::{CheckOptions, OpenOptions, Xfs, check};

use crate::damage::walk::{Outcome, walk_all};
use crate::damage::{Damaged, change, check_sentence, paths, watched};
use crate::reading::every_seed;

/// How much is damaged.
#[derive(Clone, Copy)]
pub(crate) struct Extent {
    /// So many structures, or fewer.
    pub(crate) structures: u64,
    /// One structure of so many is a group's header: there are few of them, and everything hangs on them.
    pub(crate) one_in_is_header: u64,
    /// One structure of so many is a block of the log, where that matters.
    pub(crate) one_in_is_log: u64,
}

const DAMAGE: Extent = Extent { structures: 4, one_in_is_header: 6, one_in_is_log: 4 };

/// One image of so many is checked, too.
const ONE_IN_IS_CHECKED: u64 = 8;

pub(crate) struct Victim {
    pub(crate) name: &'static str,
    /// What the good tree has, as far as the paths are text and not overlong.
    pub(crate) paths: Vec<String>,
    bytes: Arc<[u8]>,
    headers: Vec<Site>,
    sites: Vec<Site>,
    /// Only of an image that must be recovered.
    log: Vec<Site>,
    block_bytes: usize,
}

pub(crate) fn damaged_images_are_answered_with_data_or_a_clear_error(victims: &[Victim]) {
    every_seed(|seed| {
        one(victims, seed, DAMAGE, |_, damaged, random| {
            if random.below(ONE_IN_IS_CHECKED) == 0
                && let Err(error) = check(&damaged, &CheckOptions::default())
            {
                check_sentence(&error.to_string());
            }
            let options = OpenOptions { buffer_bytes: 4 << 20, ..OpenOptions::default() };
            match Xfs::open_read_only(damaged, options) {
                Ok(fs) => walk_all(fs, Ok(())),
                Err(error) => {
                    check_sentence(&error.to_string());
                    Outcome::Refused
                }
            }
        })
    });
}

/// Damages the image that belongs to a seed and works with it; fails with the seed if that panics or never ends.
pub(crate) fn one<T>(
    victims: &[Victim],
    seed: u64,
    extent: Extent,
    work: impl FnOnce(&Victim, Device, &mut Rng) -> T,
) -> T {
    let mut random = Rng::new(seed);
    let victim = &victims[random.index(victims.len())];
    let damaged: Device = Arc::new(victim.damage(extent, &mut random));
    watched(victim.name, seed, || work(victim, damaged, &mut random))
}

/// Images that between them have every structure.
pub(crate) fn victims() -> Vec<Victim> {
    let filled = |size_mib, args| {
        let recipe = XfsRecipe::new(MkfsXfs::new(size_mib, args)).plan(|plan| {
            plan.many = 600;
            plan.attributes = 150;
        });
        recipe.make().unwrap()
    };
    let victims = [
        ("4 KiB", filled(96, "")),
        ("1 KiB, reverse map", filled(96, "-b size=1024 -m rmapbt=1")),
        ("directories of 16 KiB", filled(96, "-b size=2048 -n size=16384 -i nrext64=1")),
        ("few features", filled(96, "-m finobt=0,reflink=0,bigtime=0,inobtcount=0 -i sparse=0")),
        ("dirty", in_use(&filled(96, ""))),
        ("dirty, 1 KiB, log stripes", in_use(&filled(96, "-b size=1024 -m rmapbt=1 -l su=32k -n size=4096"))),
    ];
    victims.into_iter().map(|(name, image)| Victim::survey(name, &image)).collect()
}

/// A copy of the image as it is on the device while the kernel has it mounted: changes stand in the log.
fn in_use(image: &Image) -> Image {
    let mount = image.mount(MountMode::ReadWrite, "noatime").unwrap();
    for number in 0..60 {
        let path = mount.path().join(format!("fresh{number}"));
        std::fs::write(&path, vec![number; 3000]).unwrap();
        std::fs::File::open(&path).unwrap().sync_all().unwrap();
        if number % 3 == 0 {
            std::fs::remove_file(&path).unwrap();
        }
    }
    let copy = image.copy_between_writes(&mount).unwrap();
    mount.unmount().unwrap();
    copy
}

impl Victim {
    fn survey(name: &'static str, image: &Image) -> Self {
        let bytes = std::fs::read(image.path()).unwrap();
        let device = MemoryDevice::from_bytes(bytes.clone(), Access::ReadOnly);
        let (mut log, sites): (Vec<Site>, Vec<Site>) =
            sites(&device).unwrap().into_iter().partition(|site| site.structure == "log block");
        let is_header = |site: &Site| matches!(site.structure, "superblock" | "group header" | "free list");
        let headers: Vec<Site> = sites.iter().filter(|site| is_header(site)).cloned().collect();
        assert!(headers.len() >= 4 && sites.len() > 500, "{name}: only {} structures found", sites.len());
        if !name.starts_with("dirty") {
            log.clear();
        }
        let block_bytes = u32::from_be_bytes(bytes[4..8].try_into().unwrap()) as usize;
        let paths = paths(Xfs::open_read_only(Arc::new(device), OpenOptions::default()).unwrap());
        Self { name, paths, bytes: bytes.into(), headers, sites, log, block_bytes }
    }

    /// One structure changed, or more; in half of the images with their checksums recomputed.
    fn damage(&self, extent: Extent, random: &mut Rng) -> Damaged {
        let mend = random.below(2) == 0;
        let mut patches = Vec::new();
        for _ in 0..=random.below(extent.structures) {
            let among = if random.below(extent.one_in_is_header) == 0 {
                &self.headers
            } else if !self.log.is_empty() && random.below(extent.one_in_is_log) == 0 {
                &self.log
            } else {
                &self.sites
            };
            let site = &among[random.below(among.len() as u64) as usize];
            let mut bytes = self.bytes[site.range.start as usize..site.range.end as usize].to_vec();
            change(&mut bytes, &self.bytes, self.block_bytes, random);
            if mend {
                site.mend(&mut bytes);
            }
            patches.push((site.range.start, bytes));
        }
        Damaged { base: Arc::clone(&self.bytes), patches }
    }
}

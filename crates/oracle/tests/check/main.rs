//! Our check against e2fsck's: images that Linux made and filled are clean to both, images damaged in known ways to
//! neither, and of random damage both think the same, but for what is listed here with the reason.
//!
//! `UNDERCROFT_SEED` replays one random damage (the failure prints it), `UNDERCROFT_CHECK_IMAGES` sets how many there
//! are (300).

mod known;
mod sound;

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use undercroft_block::testing::Rng;
use undercroft_block::{FileDevice, FileOptions};
use undercroft_ext4::testing::{Site, sites};
use undercroft_ext4::{CheckOptions, CheckReport, check};
use undercroft_oracle::{Image, Mke2fs, Recipe, Tool, open_ext4};

const IMAGES: u64 = 300;
/// Of so many damaged images one is mended by e2fsck, and checked again.
const MENDED_ONE_IN: u64 = 4;

pub(crate) fn our_check(path: &Path) -> Result<CheckReport, undercroft_vfs::Error> {
    let device = FileDevice::open(path, FileOptions::read_only()).unwrap();
    check(Arc::new(device), &CheckOptions::default())
}

pub(crate) fn told(report: &CheckReport) -> String {
    report.findings.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

pub(crate) fn small(mke2fs: Mke2fs) -> Recipe {
    Recipe::new(mke2fs).plan(|plan| {
        plan.many = 3000;
        plan.many_name_bytes = 60;
        plan.subdirectories = 20;
        plan.extent_depth = 1;
    })
}

pub(crate) fn new(kind: &'static str, block_bytes: u32) -> Mke2fs {
    Mke2fs::new(kind, 96).inodes(8192).block_bytes(block_bytes)
}

fn recipes() -> Vec<(&'static str, Recipe)> {
    let ext4 =
        |features: &'static str, block_bytes| (features, small(new("ext4", block_bytes).features(features)));
    vec![
        ("ext2", small(new("ext2", 1024))),
        ("ext3", small(new("ext3", 4096).inode_bytes(128))),
        ext4("64bit", 4096),
        ext4("orphan_file,metadata_csum_seed,large_dir", 1024),
        ext4("^extent,^64bit", 1024),
        ext4("inline_data,ea_inode", 1024),
        ext4("ea_inode", 4096),
        ext4("meta_bg,^resize_inode,^flex_bg", 1024),
        ext4("bigalloc", 1024),
        ext4("^metadata_csum,uninit_bg", 1024),
        ext4("^metadata_csum,^uninit_bg", 4096),
        ext4("sparse_super2,fast_commit,mmp", 2048),
        ext4("^dir_index,^filetype,^huge_file,^64bit", 4096),
        ext4("encrypt,stable_inodes,verity", 1024),
    ]
}

#[test]
fn what_linux_made_and_filled_is_clean() {
    for (name, recipe) in recipes() {
        let image = recipe.make().unwrap();
        image.check().unwrap();
        let before = image.sha256().unwrap();
        let report = our_check(image.path()).unwrap();
        assert!(report.is_clean(), "{name}:\n{}", told(&report));
        assert!(report.inodes > 3000 && report.directories > 20, "{name}: {report:?}");
        assert_eq!(image.sha256().unwrap(), before, "{name}: a check wrote to the image");
    }
}

/// Images in which e2fsck's verdict is looked for, with where their metadata lies.
struct Victim {
    name: &'static str,
    image: Image,
    sites: Vec<Site>,
}

impl Victim {
    fn all() -> Vec<Self> {
        recipes()
            .into_iter()
            .map(|(name, recipe)| {
                let recipe = recipe.plan(|plan| plan.many = 300);
                let image = recipe.make().unwrap();
                let (fs, _) = open_ext4(image.path()).unwrap();
                let sites = sites(&fs).unwrap();
                Self { name, image, sites }
            })
            .collect()
    }
}

/// Whether e2fsck finds nothing wrong, and what it said. It counts wrong totals in the superblock as no error, but
/// reports them.
pub(crate) fn e2fsck(path: &Path) -> (bool, String) {
    let run = Tool::new("e2fsck").args(["-f", "-n"]).arg(path).run_text();
    match run {
        Ok(text) => (!text.contains("count wrong ("), text),
        Err(error) => (false, error.to_string()),
    }
}

/// Lets e2fsck mend a copy, and compares what both think of that; `false` where e2fsck does not come to an end with it.
fn check_mended(image: &Image, seed: u64, disagreements: &mut Vec<String>) -> bool {
    let copy = image.copy().unwrap();
    // What it mends at once it may find fault with again.
    for _ in 0..3 {
        let _ = Tool::new("e2fsck").args(["-f", "-y"]).arg(copy.path()).accept(&[0, 1, 2, 4, 8, 12]).run();
        if e2fsck(copy.path()).0 {
            let ours = our_check(copy.path());
            if !ours.as_ref().is_ok_and(CheckReport::is_clean) {
                let ours = ours.map_or_else(|error| error.to_string(), |report| told(&report));
                disagreements.push(format!("seed {seed}, mended by e2fsck:\nours: {ours}"));
            }
            return true;
        }
    }
    false
}

#[test]
fn of_random_damage_both_think_the_same() {
    let victims = Victim::all();
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    let seeds = match number("UNDERCROFT_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("UNDERCROFT_CHECK_IMAGES").unwrap_or(IMAGES),
    };
    let mut disagreements = Vec::new();
    let (mut damaged, mut mended_images) = (0, 0);
    for seed in seeds {
        let mut random = Rng::new(seed);
        let victim = &victims[random.below(victims.len() as u64) as usize];
        // Blocks of the log are as many as all others; an empty log's do not matter.
        let site = loop {
            let site = &victim.sites[random.below(victim.sites.len() as u64) as usize];
            if !site.structure.starts_with("journal") {
                break site;
            }
        };
        let file = File::options().read(true).write(true).open(victim.image.path()).unwrap();
        let mut good = vec![0; (site.range.end - site.range.start) as usize];
        file.read_exact_at(&mut good, site.range.start).unwrap();
        let mut bytes = good.clone();
        let width = [1, 2, 4][random.below(3) as usize];
        let at = random.below(bytes.len() as u64) as usize / width * width;
        let values = [0, 1, 2, 0x7f, 0xff, 0x7fff, 0xffff, 0x7fff_ffff, 0xffff_ffff, random.below(1 << 32)];
        let value = values[random.below(10) as usize].to_le_bytes();
        bytes[at..at + width].copy_from_slice(&value[..width]);
        let mended = random.below(2) == 0;
        if mended {
            site.mend(&mut bytes);
        }
        if bytes == good {
            continue;
        }
        file.write_all_at(&bytes, site.range.start).unwrap();
        let (theirs_clean, said) = e2fsck(victim.image.path());
        let ours = our_check(victim.image.path());
        if !theirs_clean && seed % MENDED_ONE_IN == 0 {
            mended_images += u64::from(check_mended(&victim.image, seed, &mut disagreements));
        }
        file.write_all_at(&good, site.range.start).unwrap();
        let ours_clean = ours.as_ref().is_ok_and(CheckReport::is_clean);
        damaged += u64::from(!theirs_clean);
        if ours_clean != theirs_clean {
            let ours = ours.map_or_else(|error| error.to_string(), |report| told(&report));
            let said: String =
                said.lines().filter(|line| !line.starts_with("Pass")).collect::<Vec<_>>().join("\n");
            disagreements.push(format!(
                "seed {seed}, {}: {} at {:#x}+{at:#x}, {width} bytes, mended {mended}: {:x?} became {:x?}\nours: {ours}\ne2fsck: {said}",
                victim.name, site.structure, site.range.start, &good[at..at + width], &bytes[at..at + width]
            ));
        }
    }
    println!("{damaged} damaged images, {mended_images} of them mended by e2fsck");
    assert!(
        disagreements.is_empty(),
        "{} disagreements\n{}",
        disagreements.len(),
        disagreements.join("\n\n")
    );
}

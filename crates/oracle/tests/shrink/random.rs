//! Sizes up and down at random, from a seed.

use std::env;
use std::time::{SystemTime, UNIX_EPOCH};

use undercroft_ext4::{Ext4, OpenOptions, WriteOptions, minimum};
use undercroft_oracle::{Differences, Image, Mke2fs};
use undercroft_vfs::Error;

use super::support::{
    Random, assert_sound, blocks_by_resize2fs, fill_at_random, open_device, shrink_file, tree,
};

/// Resizes of one image.
const STEPS: u64 = 6;

fn from_environment(name: &str) -> Option<u64> {
    env::var(name).ok()?.parse().ok()
}

fn shape(random: &mut Random) -> (String, Mke2fs) {
    let kind = ["ext4", "ext4", "ext4", "ext3", "ext2"][random.below(5) as usize];
    let block_bytes = [1024, 1024, 2048, 4096][random.below(4) as usize];
    let mib = 24 + random.below(60);
    let mut features = Vec::new();
    if kind == "ext4" {
        let choices = [
            "",
            "^flex_bg",
            "^resize_inode",
            "meta_bg,^resize_inode",
            "inline_data",
            "^has_journal",
            "^64bit",
        ];
        features.push(choices[random.below(choices.len() as u64) as usize]);
        features.push(
            ["", "", "^metadata_csum,uninit_bg", "^metadata_csum,^uninit_bg"][random.below(4) as usize],
        );
    }
    features.retain(|feature| !feature.is_empty());
    let features = features.join(",");
    let per_group = [0, 0, 1024, 2048, 4096][random.below(5) as usize];
    let mut mke2fs = Mke2fs::new(kind, mib).block_bytes(block_bytes);
    if !features.is_empty() {
        mke2fs = mke2fs.features(&features);
    }
    let name = format!("{kind}, {mib} MiB, blocks of {block_bytes}, -O {features}, groups of {per_group}");
    if per_group > 0 {
        mke2fs = mke2fs.args(["-g", &per_group.to_string()]);
    }
    (name, mke2fs)
}

fn grow(image: &Image, size_bytes: u64, what: &str) {
    std::fs::File::options().write(true).open(image.path()).unwrap().set_len(size_bytes).unwrap();
    let ext4 =
        Ext4::open(open_device(image.path()), OpenOptions::default(), WriteOptions::default()).unwrap();
    let grown = ext4.grow(None, &mut |_, _| ());
    ext4.close().unwrap();
    match grown {
        Ok(_) => {}
        Err(error) if is_too_much_for_the_journal(&error) => println!("{what}: {error}"),
        Err(error) => panic!("{what}: {error}"),
    }
}

/// A small journal has room for few blocks in one transaction, and what takes more is refused.
fn is_too_much_for_the_journal(error: &Error) -> bool {
    matches!(error, Error::Unsupported(_)) && error.to_string().contains("the journal has room for")
}

/// Resizes an image up and down; returns how often.
fn resize_at_random(seed: u64) -> u64 {
    let mut random = Random::new(seed);
    let (name, mke2fs) = shape(&mut random);
    let Ok(image) = mke2fs.make() else { panic!("UNDERCROFT_SEED={seed}: mke2fs refuses {name}") };
    let (files, most) = (20 + random.below(200), 2000 + random.below(150_000));
    fill_at_random(&image, &mut random, files, most);
    let before = tree(&image);
    for step in 0..STEPS {
        let least = minimum(&open_device(image.path()), OpenOptions::default()).unwrap();
        let block_bytes = u64::from(least.block_bytes);
        let what;
        if random.below(3) == 0 {
            let size = (least.blocks + random.below(20_000)) * block_bytes;
            what = format!("UNDERCROFT_SEED={seed}: {name}, step {step}, up to {size}");
            grow(&image, size, &what);
        } else {
            // The least is an estimate: maps of files in many pieces may need some more.
            let surely = least.least + least.least / 20 + 64;
            let wanted = if random.below(3) == 0 || least.blocks <= surely {
                None
            } else {
                Some((surely + random.below(least.blocks - surely)) * block_bytes)
            };
            what = format!(
                "UNDERCROFT_SEED={seed}: {name}, step {step}, down to {wanted:?}, least {}",
                least.least
            );
            let most = if wanted.is_none() { blocks_by_resize2fs(&image) } else { None };
            match shrink_file(image.path(), wanted) {
                Ok(shrunk) => {
                    let left = shrunk.blocks.1;
                    if let Some(theirs) = most {
                        assert!(
                            left <= theirs + theirs / 20,
                            "{what}: {left} blocks, resize2fs leaves {theirs}"
                        );
                    }
                }
                // The least is an estimate: free space may lie in more pieces than it allows for.
                Err(error) if wanted.is_some() && error.to_string().contains("does not fit") => {
                    println!("{what}: {error}");
                }
                Err(error) if is_too_much_for_the_journal(&error) => println!("{what}: {error}"),
                Err(error) => panic!("{what}: {error}"),
            }
        }
        assert_sound(&image, &what);
        Differences::between(&before, &tree(&image)).assert_none(&what);
    }
    STEPS
}

#[test]
fn a_filesystem_goes_up_and_down_at_random() {
    let count = from_environment("UNDERCROFT_RESIZES").unwrap_or(24);
    let seed = from_environment("UNDERCROFT_SEED").unwrap_or_else(|| {
        SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64 % 1_000_000_000
    });
    println!("UNDERCROFT_SEED={seed}");
    let (mut done, mut next) = (0, seed);
    while done < count {
        done += resize_at_random(next);
        next += 1;
        if done % 120 == 0 {
            println!("{done} of {count} resizes");
        }
    }
}

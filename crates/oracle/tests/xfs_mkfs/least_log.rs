//! The least log is that of mkfs.xfs, over block, inode and directory block sizes, sizes of groups and features.

use undercroft_oracle::{Image, Tool};

use crate::Shape;

/// The number before these words, or behind them.
fn number(text: &str, before: &str) -> Option<u64> {
    let rest = text.split(before).nth(1)?;
    rest.split(|c: char| !c.is_ascii_digit()).find(|word| !word.is_empty())?.parse().ok()
}

fn theirs(shape: &Shape, image: &Image) -> Option<u64> {
    let args = shape.args.split_whitespace();
    let tool = Tool::new("mkfs.xfs").args(["-N", "-f", "--unsupported"]).args(args).arg(image.path());
    let said = tool.run_text().unwrap_or_else(|error| error.to_string());
    number(&said, "minimum size is ").or_else(|| number(&said, "smaller than min log size "))
}

fn ours(shape: &Shape, image: &Image) -> Option<u64> {
    let options = shape.options().expect("options");
    let Err(said) = undercroft_xfs::plan_mkfs(&crate::device(image), &options) else { return None };
    let said = said.to_string();
    number(&said, "too small, ").or_else(|| number(&said, "the log needs "))
}

fn shapes(size_mib: u64) -> Vec<Shape> {
    let mut shapes = Vec::new();
    for (block, inodes, directories) in [
        (1024, &[512][..], &[4096, 65_536][..]),
        (2048, &[1024], &[4096]),
        (4096, &[512, 2048], &[4096, 16_384, 65_536]),
        (16_384, &[512], &[16_384, 65_536]),
        (65_536, &[512, 2048], &[65_536]),
    ] {
        let pairs = inodes.iter().flat_map(|inode| directories.iter().map(move |dir| (inode, dir)));
        for (inode, directory) in pairs {
            for features in ["reflink=1", "reflink=0", "rmapbt=1", "rmapbt=1,reflink=0", "finobt=0,reflink=0"]
            {
                for (counts, stripe) in [("", ""), (",nrext64=1", ""), ("", ",su=64k")] {
                    let args = format!(
                        "-b size={block} -i size={inode}{counts} -n size={directory} -m {features} -l size=2m{stripe}"
                    );
                    shapes.push(Shape::new(size_mib, &args));
                }
            }
        }
    }
    shapes
}

#[test]
fn the_least_log_is_that_of_mkfs_xfs() {
    let mut different = Vec::new();
    let mut compared = 0;
    for size_mib in [64, 600, 1 << 20] {
        let image = Image::empty("xfs", size_mib << 20).expect("an image");
        for shape in shapes(size_mib) {
            let (ours, theirs) = (ours(&shape, &image), theirs(&shape, &image));
            compared += u32::from(theirs.is_some());
            if ours != theirs {
                different.push(format!("{}: {ours:?}, mkfs.xfs {theirs:?}", shape.name()));
            }
        }
    }
    assert!(compared > 100, "only {compared} shapes were compared");
    assert!(different.is_empty(), "{} of {compared}:\n{}", different.len(), different.join("\n"));
}

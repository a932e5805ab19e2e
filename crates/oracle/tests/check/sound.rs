//! What is unusual and no fault: e2fsck finds nothing, and neither do we.

use std::fs;

use undercroft_oracle::{Image, Mke2fs, Scratch, Tool};

use crate::{e2fsck, new, our_check, told};

fn is_sound(image: &Image, what: &str) {
    let (clean, said) = e2fsck(image.path());
    assert!(clean, "{what}: e2fsck finds {said}");
    let report = our_check(image.path()).unwrap();
    assert!(report.is_clean(), "{what}:\n{}", told(&report));
}

fn list_of_bad(blocks: &[u64]) -> (Scratch, String) {
    let dir = Scratch::new("bad").unwrap();
    let list = dir.path().join("list");
    fs::write(&list, blocks.iter().map(|block| format!("{block}\n")).collect::<String>()).unwrap();
    let list = list.to_str().unwrap().to_owned();
    (dir, list)
}

/// Blocks of copies of descriptors and of inode tables may be bad, and stay where they are.
#[test]
fn lists_of_bad_blocks() {
    for block_bytes in [1024, 4096] {
        let few = (5000..5040).collect::<Vec<_>>();
        for blocks in [&[5000][..], &few] {
            let (_dir, list) = list_of_bad(blocks);
            let image = new("ext4", block_bytes).args(["-l", &list]).make().unwrap();
            is_sound(&image, &format!("{} bad blocks of {block_bytes} bytes", blocks.len()));
        }
    }
    let image = new("ext4", 1024).make().unwrap();
    let in_table = first_number(&image, "Inode table at ");
    // Of a group whose inodes are not in use.
    let (in_table, in_copy) = (in_table + 400, 8194);
    let (_dir, list) = list_of_bad(&[in_table, in_table + 1, in_copy, 30_000]);
    Tool::new("e2fsck").args(["-f", "-y", "-l", &list]).arg(image.path()).accept(&[0, 1]).run().unwrap();
    is_sound(&image, "bad blocks found later");
}

fn first_number(image: &Image, label: &str) -> u64 {
    let told = Tool::new("dumpe2fs").arg(image.path()).run_text().unwrap();
    let after = told.split(label).nth(1).unwrap_or_else(|| panic!("{label} is not in {told}"));
    after.split(|c: char| !c.is_ascii_digit()).next().unwrap().parse().unwrap()
}

#[test]
fn shared_blocks() {
    let image = new("ext4", 1024).features("^extent,^64bit,^metadata_csum").make().unwrap();
    let dir = Scratch::new("content").unwrap();
    let file = dir.path().join("file");
    fs::write(&file, vec![7; 3 * 1024]).unwrap();
    let write = |name| format!("write {} {name}", file.display());
    image.debugfs_write(&[&write("a"), &write("b")]).unwrap();
    let blocks = image.debugfs("blocks a").unwrap();
    let own = image.debugfs("blocks b").unwrap();
    let mut commands: Vec<String> = blocks
        .split_whitespace()
        .enumerate()
        .map(|(slot, block)| format!("set_inode_field b block[{slot}] {block}"))
        .collect();
    commands.extend(own.split_whitespace().map(|block| format!("freeb {block} 1")));
    commands.push("feature shared_blocks".to_owned());
    image.debugfs_write(&commands.iter().map(String::as_str).collect::<Vec<_>>()).unwrap();
    Tool::new("e2fsck").args(["-f", "-y"]).arg(image.path()).accept(&[0, 1]).run().unwrap();
    assert_eq!(image.debugfs("blocks a").unwrap().trim(), image.debugfs("blocks b").unwrap().trim());
    is_sound(&image, "two files with the same blocks");
}

/// The inodes of snapshots may have links and a map, and no mode.
#[test]
fn reserved_inodes_without_a_mode() {
    for number in [9, 10] {
        for links in [0, 1] {
            let image = new("ext4", 1024).make().unwrap();
            image
                .debugfs_write(&[
                    &format!("set_inode_field <{number}> block[0] 30000"),
                    &format!("set_inode_field <{number}> blocks 2"),
                    &format!("set_inode_field <{number}> links_count {links}"),
                    "setb 30000 1",
                ])
                .unwrap();
            Tool::new("e2fsck").args(["-f", "-y"]).arg(image.path()).accept(&[0, 1]).run().unwrap();
            let kept = image.debugfs(&format!("stat <{number}>")).unwrap();
            assert!(kept.contains("30000"), "e2fsck took the block away: {kept}");
            is_sound(&image, &format!("inode {number} with {links} links"));
        }
    }
}

/// e2fsck makes lost+found anew, moves directories' blocks and makes the resize inode and the journal again.
#[test]
fn what_e2fsck_made_again() {
    for features in ["^metadata_csum", "metadata_csum", "bigalloc", "inline_data", "^extent,^64bit"] {
        for commands in [
            &["rmdir lost+found"][..],
            &["mkdir a", "mkdir a/b", "clri a"],
            &["clri <7>"],
            &["clri <2>"],
            &["clri <8>"],
            &["mkdir a", "mkdir a/b", "kill_file a"],
        ] {
            let mke2fs = Mke2fs::new("ext4", 32).block_bytes(1024).features(features);
            let image = mke2fs.make().unwrap();
            image.debugfs_write(commands).unwrap();
            for _ in 0..3 {
                Tool::new("e2fsck").args(["-f", "-y"]).arg(image.path()).accept(&[0, 1]).run().unwrap();
            }
            is_sound(&image, &format!("{features}, {commands:?}"));
        }
    }
}

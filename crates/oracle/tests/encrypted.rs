//! Encrypted directories, seen without the key: the names, sizes and targets that the kernel makes up for them
//! must be ours too, and content must be refused, as every change of names is.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use undercroft_block::{FileDevice, FileOptions};
use undercroft_ext4::{Ext4, OpenOptions, WriteOptions};
use undercroft_oracle::{
    Differences, Image, Mke2fs, MountMode, Reading, Result, Tool, kernel_manifest, open_ext4, our_manifest,
};
use undercroft_vfs::{Credentials, FileSystem, Follow, NewKind, NewObject, RenameFlags, Vfs, VfsOptions};

/// Files in the encrypted directory with an index.
const LARGE: usize = 2000;

#[test]
fn names_of_both_policy_versions() {
    check(&Mke2fs::new("ext4", 64).inodes(16_384).block_bytes(4096).features("encrypt"));
}

#[test]
fn small_blocks_and_stable_inodes() {
    check(
        &Mke2fs::new("ext4", 64)
            .inodes(16_384)
            .block_bytes(1024)
            .features("encrypt,stable_inodes,inline_data"),
    );
}

fn check(mke2fs: &Mke2fs) {
    let image = mke2fs.make().unwrap();
    fill(&image).unwrap();
    let mount = image.mount(MountMode::ReadOnly, "").unwrap();
    let expected = kernel_manifest(mount.path()).unwrap();
    mount.unmount().unwrap();
    let locked = expected.entries.values().filter(|entry| entry.content == Some(Reading::NoKey)).count();
    assert!(locked > LARGE, "only {locked} files are locked: was anything encrypted?");
    let (_, vfs) = open_ext4(image.path()).unwrap();
    Differences::between(&expected, &our_manifest(&vfs).unwrap()).assert_none("ours against the kernel's");
    drop(vfs);
    refuses_changes(&image);
}

/// Nothing is made, renamed or moved in an encrypted directory, and what was begun is taken back.
fn refuses_changes(image: &Image) {
    let device = FileDevice::open(image.path(), FileOptions::read_write()).unwrap();
    let fs = Ext4::open(Arc::new(device), OpenOptions::default(), WriteOptions::default()).unwrap();
    let vfs = Vfs::new(Arc::clone(&fs) as Arc<dyn FileSystem>, VfsOptions::default());
    let caller = Credentials::root();
    let root = vfs.root().unwrap();
    let locked = vfs.resolve(&caller, b"/padded-4", Follow::Last).unwrap();
    let outside = vfs.create(&caller, &root, b"outside", &NewObject::file(0o644)).unwrap();
    let no_key = |answer: undercroft_vfs::Result<()>, what| {
        assert!(matches!(answer, Err(undercroft_vfs::Error::NoKey)), "{what}: {answer:?}");
    };
    for object in [NewObject::file(0o644), NewObject { kind: NewKind::Directory, ..NewObject::file(0o755) }] {
        no_key(vfs.create(&caller, &locked, b"new", &object).map(drop), "create");
    }
    no_key(vfs.tmpfile(&caller, &locked, 0o600, 0).map(drop), "create without a name");
    no_key(vfs.link(&caller, &outside, &locked, b"link"), "link");
    no_key(vfs.rename(&caller, (&root, b"outside"), (&locked, b"moved"), RenameFlags::empty()), "rename");
    drop((outside, locked, root, vfs));
    fs.close().unwrap();
    image.check().unwrap();
}

fn fill(image: &Image) -> Result<()> {
    let mount = image.mount(MountMode::ReadWrite, "noatime")?;
    let key: Vec<u8> = (0..64).collect();
    let xfs_io = |command: &str, path: &Path| Tool::new("xfs_io").args(["-c", command]).arg(path);
    let said = xfs_io("add_enckey", mount.path()).input(&key).run_text()?;
    let identifier = said.split_whitespace().last().unwrap_or_default().to_owned();
    const DESCRIPTOR: &str = "0011223344556677";
    xfs_io(&format!("add_enckey -d {DESCRIPTOR}"), mount.path()).input(&key).run()?;
    for (name, policy) in [
        ("padded-4", format!("set_encpolicy -v 2 -f 0 {identifier}")),
        ("padded-32", format!("set_encpolicy -v 2 -f 3 {identifier}")),
        ("first-version", format!("set_encpolicy -v 1 {DESCRIPTOR}")),
    ] {
        let dir = mount.path().join(name);
        fs::create_dir(&dir).unwrap();
        xfs_io(&policy, &dir).run()?;
        fill_directory(&dir);
    }
    mount.unmount()
}

/// Names on both sides of every length at which their encoding changes, links, and an index.
fn fill_directory(dir: &Path) {
    for len in [1, 4, 15, 16, 17, 31, 32, 33, 100, 143, 144, 148, 149, 150, 160, 161, 175, 176, 177, 200, 255]
    {
        fs::write(dir.join("n".repeat(len)), vec![7; len * 10]).unwrap();
    }
    fs::write(dir.join("empty"), "").unwrap();
    for len in [1, 10, 50, 60, 100, 1000] {
        std::os::unix::fs::symlink("t".repeat(len), dir.join(format!("link-{len}"))).unwrap();
    }
    fs::create_dir_all(dir.join("directory/below")).unwrap();
    fs::write(dir.join("directory/below/file"), "content").unwrap();
    fs::create_dir(dir.join("large")).unwrap();
    for number in 0..LARGE {
        fs::write(dir.join(format!("large/entry-{number}")), "").unwrap();
    }
}

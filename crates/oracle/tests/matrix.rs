//! self check
use std::time::Instant;
use undercroft_oracle::*;

fn check(recipe: Recipe) {
    let t = Instant::now();
    let image = recipe.make().unwrap();
    eprintln!("make {:?}", t.elapsed());
    let t = Instant::now();
    let mount = image.mount("ro,noload").unwrap();
    let one = kernel_manifest(mount.path()).unwrap();
    mount.unmount().unwrap();
    eprintln!(
        "manifest {:?}, {} entries, {} identities",
        t.elapsed(),
        one.entries.len(),
        one.entries.values().filter(|e| e.identity.is_some()).count()
    );
    let mount = image.mount("ro").unwrap();
    let two = kernel_manifest(mount.path()).unwrap();
    mount.unmount().unwrap();
    Differences::between(&one, &two).assert_none("kernel twice");
    let t = Instant::now();
    image.check().unwrap();
    eprintln!("fsck {:?}", t.elapsed());
}
#[test]
fn ext4_4k() {
    check(Recipe::new(Mke2fs::new("ext4", 512).inodes(115_000)))
}
#[test]
fn ext4_1k() {
    check(
        Recipe::new(Mke2fs::new("ext4", 512).inodes(115_000).block_bytes(1024)).plan(|p| p.extent_depth = 3),
    )
}

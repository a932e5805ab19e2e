//! What we make in the hands of xfs_repair and the kernel, fresh and filled, on a device that held something else.

use std::path::Path;

use undercroft_oracle::{Image, MountMode, open_xfs};
use undercroft_xfs::{MkfsOptions, mkfs};

use crate::{Shape, device};

fn fill(root: &Path) {
    std::fs::create_dir(root.join("directory")).unwrap();
    for n in 0..50 {
        let path = root.join("directory").join(format!("file{n}"));
        std::fs::write(&path, vec![n; 2_000 * usize::from(n)]).unwrap();
    }
    std::os::unix::fs::symlink("file1", root.join("directory/link")).unwrap();
    std::fs::remove_file(root.join("directory/file3")).unwrap();
}

fn is_sound(image: &Image, name: &str) {
    image.xfs_repair_check().unwrap_or_else(|error| panic!("{name}: {error}"));
    open_xfs(image.path()).unwrap_or_else(|error| panic!("{name}: {error}"));
}

#[test]
fn xfs_repair_and_the_kernel_are_content() {
    for (size_mib, args, is_mountable) in [
        (300, "", true),
        (16, "", true),
        (64, "-b size=1024 -m rmapbt=1", true),
        (300, "-s size=4096 -d su=64k,sw=4 -i nrext64=1", true),
        (300, "-m finobt=0,reflink=0,bigtime=0 -i sparse=0", true),
        (300, "-l agnum=0 -n size=65536", true),
        // Larger than a page, which this kernel may not take.
        (1024, "-b size=65536 -i size=2048", false),
    ] {
        let shape = Shape::new(size_mib, args);
        let name = shape.name();
        let image = shape.ours().unwrap_or_else(|error| panic!("{name}: {error}"));
        is_sound(&image, &name);
        if !is_mountable {
            continue;
        }
        let mount =
            image.mount(MountMode::ReadWrite, "nouuid").unwrap_or_else(|error| panic!("{name}: {error}"));
        fill(mount.path());
        mount.unmount().unwrap();
        is_sound(&image, &format!("{name}, filled"));
    }
}

#[test]
fn what_the_device_held_before_does_not_show() {
    for (size_mib, args, discard) in [(64, "", false), (64, "-m rmapbt=1 -l su=64k", false), (64, "", true)] {
        let shape = Shape::new(size_mib, args);
        let name = format!("{}, discard {discard}", shape.name());
        let image = Image::empty("xfs", size_mib << 20).unwrap();
        std::fs::write(image.path(), vec![0xA5; (size_mib << 20) as usize]).unwrap();
        let options =
            MkfsOptions { discard, device_is_zeroed: false, overwrite: true, ..shape.options().unwrap() };
        mkfs(&device(&image), &options).unwrap_or_else(|error| panic!("{name}: {error}"));
        is_sound(&image, &name);
        let mount =
            image.mount(MountMode::ReadWrite, "nouuid").unwrap_or_else(|error| panic!("{name}: {error}"));
        fill(mount.path());
        mount.unmount().unwrap();
        is_sound(&image, &format!("{name}, filled"));
    }
}

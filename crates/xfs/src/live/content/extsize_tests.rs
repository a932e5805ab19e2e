//! Extent size hints, and what is left past the end of a file, beside the kernel.

use std::os::unix::fs::MetadataExt;
use std::process::Command;

use undercroft_oracle::{MkfsXfs, MountMode};
use undercroft_vfs::{AttrChange, Credentials, Error, ExtentSizeHints, FallocateMode, Follow, InodeFlags};

use super::whole_tests::{World, read};

fn xfs_io(path: &std::path::Path, commands: &[&str]) -> String {
    let arguments = commands.iter().flat_map(|command| ["-c", *command]);
    let output = Command::new("xfs_io").arg("-f").args(arguments).arg(path).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Where a file gets space for a write with such a hint: the kernel's answer is in its number of sectors.
#[test]
fn space_is_allocated_in_the_multiples_of_the_hint() {
    const WRITES: [(u64, usize); 4] = [(100_000, 1), (300_000, 70_000), (131_072, 4096), (1 << 20, 65_536)];
    let caller = Credentials::root();
    let world = World::new("-m rmapbt=1", |root| {
        // In one go: when it is closed the kernel frees what is past the end.
        let writes = WRITES
            .iter()
            .flat_map(|(offset, len)| [format!("pwrite -S 7 {offset} {len}"), "fsync".to_owned()]);
        let commands: Vec<_> = ["extsize 64k".to_owned()].into_iter().chain(writes).collect();
        xfs_io(&root.join("kernels"), &commands.iter().map(String::as_str).collect::<Vec<_>>());
        xfs_io(&root.join("reserved"), &["extsize 128k", "falloc 5000 1"]);
    });
    let set = |path: &str, hints| {
        let node = world.vfs.resolve(&caller, path, Follow::Last).unwrap();
        let done =
            world.vfs.set_attr(&caller, &node, &AttrChange { hints: Some(hints), ..AttrChange::default() });
        done.map(|()| assert_eq!(node.extent_size_hints(), hints))
    };
    let of = |size, copy_size| ExtentSizeHints { size, copy_size };
    let file = world.vfs.create_file(&caller, "/ours").unwrap();
    for wrong in [of(4095, 0), of(1 << 31, 0), of(0, 100)] {
        assert!(matches!(set("/ours", wrong), Err(Error::InvalidArgument(_))));
    }
    set("/ours", of(65_536, 8192)).unwrap();
    let mut model = Vec::new();
    for (offset, len) in WRITES {
        file.write_all_at(offset, &vec![7; len]).unwrap();
        let end = offset as usize + len;
        model.resize(model.len().max(end), 0);
        model[offset as usize..end].fill(7);
    }
    assert!(read(&file) == model);
    let kernels = world.file("/kernels");
    assert!(read(&kernels) == model);
    assert_eq!(kernels.node().extent_size_hints(), of(65_536, 0));
    assert_eq!(file.node().attr().sectors, kernels.node().attr().sectors);
    // Not with extents, but the same again.
    assert!(matches!(set("/ours", of(0, 0)), Err(Error::InvalidArgument(_))));
    set("/ours", of(65_536, 16_384)).unwrap();
    let reserved = world.vfs.create_file(&caller, "/ours2").unwrap();
    set("/ours2", of(131_072, 0)).unwrap();
    reserved.fallocate(FallocateMode::Allocate, 5000, 1, false).unwrap();
    assert_eq!(reserved.node().attr().sectors, world.file("/reserved").node().attr().sectors);
    // A directory hands it on, and flags that users see do not touch it.
    world.vfs.create_dir(&caller, "/dir").unwrap();
    set("/dir", of(32_768, 0)).unwrap();
    let dir = world.vfs.resolve(&caller, "/dir", Follow::Last).unwrap();
    let flags = AttrChange { flags: Some(InodeFlags::NODUMP), ..AttrChange::default() };
    world.vfs.set_attr(&caller, &dir, &flags).unwrap();
    world.vfs.write(&caller, "/dir/inner", [1; 5]).unwrap();
    let inner = world.file("/dir/inner");
    assert_eq!((inner.node().extent_size_hints().size, inner.node().attr().sectors), (32_768, 64));
    drop((file, kernels, reserved, inner, dir));
    let image = world.verify(&[("ours", &model), ("dir/inner", &[1; 5])]);
    let mount = image.mount(MountMode::ReadOnly, "").unwrap();
    for (name, hint) in [("ours", "[65536]"), ("dir", "[32768]"), ("dir/inner", "[32768]")] {
        let output =
            Command::new("xfs_io").args(["-r", "-c", "extsize"]).arg(mount.path().join(name)).output();
        let said = String::from_utf8(output.unwrap().stdout).unwrap();
        assert!(said.starts_with(hint), "{name}: {said}");
    }
    mount.unmount().unwrap();
}

/// Linux gives no file such a hint.
#[test]
fn a_hint_of_more_than_a_group_is_none() {
    let world = World::new("", |root| drop(xfs_io(&root.join("f"), &["extsize 64k"])));
    let World { image, .. } = world;
    let _ = image.xfs_db_write(&["path /f", "write core.extsize 0xffffffff"]);
    let world = World::of(image);
    let file = world.file("/f");
    assert_eq!(file.node().extent_size_hints().size, u32::MAX);
    file.write_all_at(100_000, &[1; 10]).unwrap();
    file.fallocate(FallocateMode::Allocate, 1 << 20, 1, false).unwrap();
    assert_eq!(file.node().attr().sectors, 16);
}

/// Threads write blocks of holes that the hint makes them fill together.
#[test]
fn threads_fill_the_same_multiples() {
    const BLOCKS: u64 = 256;
    let world = World::new("", |_| {});
    let caller = Credentials::root();
    let file = world.vfs.create_file(&caller, "/f").unwrap();
    let hints = Some(ExtentSizeHints { size: 1 << 18, copy_size: 0 });
    world.vfs.set_attr(&caller, file.node(), &AttrChange { hints, ..AttrChange::default() }).unwrap();
    file.truncate(BLOCKS * 4096).unwrap();
    std::thread::scope(|scope| {
        let file = &file;
        for thread in 0..4 {
            scope.spawn(move || {
                for block in (0..BLOCKS).filter(|block| block % 4 == thread) {
                    file.write_all_at(block * 4096, &[block as u8; 4096]).unwrap();
                }
            });
        }
    });
    let model: Vec<u8> = (0..BLOCKS).flat_map(|block| [block as u8; 4096]).collect();
    assert!(read(&file) == model);
    drop(file);
    let _ = world.verify(&[("f", &model)]);
}

/// Post-EOF blocks go with the last user of the file, unless a program has reserved them.
#[test]
fn what_no_program_has_reserved_behind_the_end_is_freed() {
    let image = MkfsXfs::new(64, "-m rmapbt=1").make().unwrap();
    let mount = image.mount(MountMode::ReadWrite, "").unwrap();
    for name in ["left", "reserved"] {
        xfs_io(&mount.path().join(name), &["pwrite 0 5000", "falloc -k 8192 1m"]);
    }
    let sectors = |mount: &std::path::Path, name: &str| std::fs::metadata(mount.join(name)).unwrap().blocks();
    assert_eq!(sectors(mount.path(), "left"), 16 + 2048);
    mount.unmount().unwrap();
    let _ = image.xfs_db_write(&["path /left", "write core.prealloc 0"]);
    image.xfs_repair_check().unwrap();
    let world = World::of(image);
    for path in ["/left", "/reserved"] {
        assert_eq!(world.file(path).node().attr().sectors, 16 + 2048);
    }
    // Opened and not changed: it stays as it is.
    assert_eq!(world.file("/left").node().attr().sectors, 16 + 2048);
    for path in ["/left", "/reserved"] {
        world.file(path).write_all_at(5000, &[1]).unwrap();
    }
    let image = world.verify(&[]);
    let mount = image.mount(MountMode::ReadOnly, "").unwrap();
    assert_eq!((sectors(mount.path(), "left"), sectors(mount.path(), "reserved")), (16, 16 + 2048));
    mount.unmount().unwrap();
}

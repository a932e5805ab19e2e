//! Multiple-mount protection: a filesystem that another host is using is refused, one that was merely left in
//! that state is not. The other host is the kernel here, which changes its sequence number once a second.

use undercroft_oracle::{Mke2fs, MountMode, open_ext4};
use undercroft_vfs::Error;

#[test]
fn a_filesystem_in_use_is_refused_until_it_is_left() {
    let mke2fs = Mke2fs::new("ext4", 32).features("mmp").extended("mmp_update_interval=1");
    let image = mke2fs.make().unwrap();
    let mount = image.mount(MountMode::ReadWrite, "").unwrap();
    std::fs::write(mount.path().join("here"), "here").unwrap();

    let Err(refusal) = open_ext4(image.path()) else { panic!("opened while the kernel has it mounted") };
    let text = refusal.to_string();
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    assert!(text.contains("in use") && text.contains(&host), "the host {host} is not named: {text}");

    // As if the host had died: the number says "in use" for ever.
    let copy = image.copy().unwrap();
    mount.unmount().unwrap();
    let (_, vfs) = open_ext4(copy.path()).unwrap();
    assert!(matches!(vfs.lookup(&vfs.root().unwrap(), b"not here"), Err(Error::NotFound)));

    let (_, vfs) = open_ext4(image.path()).unwrap();
    vfs.lookup(&vfs.root().unwrap(), b"here").unwrap();
}

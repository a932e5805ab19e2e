//! Encrypted directories without their key look as Linux shows them.

use std::io::Write;
use std::process::{Command, Stdio};

use undercroft_oracle::{Mke2fs, MountMode, Tool};

use super::*;

/// Identifier of the key of 64 bytes 0x2a, as Linux computes it.
fn add_key(mount: &Path) -> String {
    let mut xfs_io = Command::new("xfs_io")
        .args(["-c", "add_enckey"])
        .arg(mount)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    xfs_io.stdin.take().unwrap().write_all(&[0x2a; 64]).unwrap();
    let output = xfs_io.wait_with_output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    text.trim().rsplit(' ').next().unwrap().to_owned()
}

#[test]
fn names_are_disguised_as_linux_disguises_them() {
    let mke2fs = Mke2fs::new("ext4", 16).block_bytes(1024).inodes(2048).features("encrypt");
    let image = mke2fs.make().unwrap();
    let mount = image.mount(MountMode::ReadWrite, "").unwrap();
    let key = add_key(mount.path());
    for (directory, count) in [("one-block", 5), ("indexed", 700)] {
        let path = mount.path().join(directory);
        std::fs::create_dir(&path).unwrap();
        let policy = format!("set_encpolicy -v 2 {key}");
        Tool::new("xfs_io").args(["-c", &policy]).arg(&path).run().unwrap();
        touch(&path, (0..count).map(|number| format!("file-{number}")));
        touch(&path, [140, 150, 200, 255].map(|len| "n".repeat(len)));
        std::fs::create_dir(path.join("directory")).unwrap();
    }
    mount.unmount().unwrap();

    let mount = image.mount(MountMode::ReadOnly, "").unwrap();
    let volume = Loaded::new(&image).open();
    for directory in ["one-block", "indexed"] {
        let mut expected: Vec<Vec<u8>> = std::fs::read_dir(mount.path().join(directory))
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_encoded_bytes())
            .collect();
        expected.extend([b".".to_vec(), b"..".to_vec()]);
        expected.sort_unstable();
        let inode = inode(&volume, directory);
        let listed = names(&volume, &inode);
        assert_eq!(listed.keys().cloned().collect::<Vec<_>>(), expected, "{directory}");
        for (name, ino) in &listed {
            assert_eq!(lookup(&volume, &inode, name).unwrap(), Some(*ino));
        }
        for name in ["file-1", "directory", "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"] {
            assert_eq!(lookup(&volume, &inode, name.as_bytes()).unwrap(), None);
        }
    }
    mount.unmount().unwrap();
}

//! `mkfs --mode` changes access control lists with the modes, as chmod does on the kernel's mount.

use std::process::Command;

use undercroft_oracle::{LoopMount, MountMode};

use crate::support::{tool, undercroft};

#[test]
fn the_mode_of_files_with_lists_changes_as_by_chmod() {
    let dir = tempfile::tempdir().unwrap();
    let script = "mkdir -p at/d at/masked; cd at; echo text > f; echo other > plain; echo run > masked/x
        chmod 4755 masked/x; chmod 2775 d
        setfacl -m u:1000:rwx f d; setfacl -d -m u:1000:rwx d; setfacl -m g:7:rwx,m::r masked/x masked";
    let made = Command::new("bash").args(["-ec", script]).current_dir(dir.path()).status().unwrap();
    assert!(made.success());
    tool("tar --acls --xattrs --format=pax -cf at.tar -C at .", dir.path());
    let lists = |path: &std::path::Path| tool("getfacl -R -n d f masked plain", path);
    for mode in ["go=", "u=rwX,go=rX", "2750", "a+w", "o=u", "g-w+x"] {
        tool("cp -a at changed", dir.path());
        tool(&format!("chmod -R {mode} changed"), dir.path());
        let expected = lists(&dir.path().join("changed"));
        for (kind, size) in [("ext4", "8M"), ("xfs", "300M")] {
            for source in ["at", "at.tar"] {
                let (image, source) = (dir.path().join("image"), dir.path().join(source));
                let (image, source) = (image.to_str().unwrap(), source.to_str().unwrap());
                undercroft(["mkfs", kind, image, "--size", size, "--from", source, "--mode", mode])
                    .succeeded();
                let mount =
                    LoopMount::new(std::path::Path::new(image), kind, MountMode::ReadOnly, "").unwrap();
                assert_eq!(lists(mount.path()), expected, "{kind} {source} {mode}");
                mount.unmount().unwrap();
                std::fs::remove_file(image).unwrap();
            }
        }
        tool("rm -r changed", dir.path());
    }
}

//! Images of containers that umoci and skopeo write, as umoci unpacks them.

use std::fs;
use std::path::Path;
use std::process::Command;

use super::{Archives, Made, are_the_same_bytes};
use crate::support::{run, tool};

/// Changes in the second layer: with whiteouts of files and directories, of what was a directory and is a file now, and the
/// other way round.
const CHANGE: &str = r"
    rm -r plain/deep/er plain/link nodes/fifo times sparse/many wide plain/of-1
    rm -r long/a*
    echo file > times
    mkdir plain/of-1 wide
    ln plain/sticky plain/of-1/linked
    echo changed > plain/of-512
    chmod 700 nodes
    chown -h 5:6 plain/absolute
    setfattr -n user.new -v x attributes
    setfattr -x user.note attributes/file
    chmod 600 attributes attributes/file
    mv split plain/moved
";

/// An image of five layers in an OCI layout: the tree, changes of it, an opaque directory, a file that is gone, and a
/// directory over one that is there.
fn layers(archives: &Archives, layout: &Path) {
    let umoci = |command: &str| tool(&format!("umoci {command}"), archives.mount.path());
    let image = format!("--image {}:first", layout.display());
    umoci(&format!("init --layout {}", layout.display()));
    umoci(&format!("new {image}"));
    umoci(&format!("unpack {image} bundle"));
    let files = archives.mount.path().join("bundle/rootfs");
    tool(&format!("cp -a {}/. {}", archives.tree().display(), files.display()), Path::new("/"));
    // Go's library takes no such names.
    tool("setfattr -x user.with=equals attributes/file", &files);
    umoci(&format!("repack --refresh-bundle {image} bundle"));
    run(Command::new("sh").args(["-ec", CHANGE]).current_dir(&files)).succeeded();
    umoci(&format!("repack --refresh-bundle {image} bundle"));
    let new = archives.path("new");
    fs::create_dir_all(new.join("below")).unwrap();
    fs::write(new.join("only"), b"new").unwrap();
    umoci(&format!("insert {image} --opaque {} /sparse", new.display()));
    umoci(&format!("insert {image} --whiteout /bytes"));
    umoci(&format!("insert {image} {} /plain/deep", new.display()));
    umoci(&format!("unpack {image} unpacked"));
}

#[test]
fn layers_of_umoci_are_as_it_unpacks_them() {
    let mut archives = Archives::of_tree();
    let layout = archives.path("layout");
    layers(&archives, &layout);
    let layout = format!("oci:{}:first", layout.display());
    let to = |how: &str, name: &str, tag: &str| format!("{how}:{}{tag}", archives.path(name).display());
    let docker = to("docker-archive", "docker.tar", ":box:first");
    let (oci, zstd) = (to("oci-archive", "oci.tar", ""), to("oci", "zstd", ":first"));
    for (to, options) in [(&docker, ""), (&oci, ""), (&zstd, "--dest-compress-format zstd ")] {
        tool(&format!("skopeo --insecure-policy copy -q {options}{layout} {to}"), Path::new("/"));
    }
    are_the_same_bytes(archives.dir.path(), &layout);
    let sources = [("layout", layout), ("docker-archive", docker), ("oci-archive", oci), ("zstd", zstd)];
    for (name, source) in sources {
        let place = "unpacked/rootfs".into();
        archives.made.push(Made { name: name.into(), sources: vec![source], place });
    }
    archives.are_the_same_in_images(&["layout"], 40);
}

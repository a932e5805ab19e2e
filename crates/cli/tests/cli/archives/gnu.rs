//! GNU tar's formats and options.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use undercroft_oracle::Manifest;

use super::writers::by_libarchive;
use super::{ALL, Archives, Made, are_the_same_bytes, assert_same};
use crate::edit::shown;
use crate::support::{tool, undercroft};

#[test]
fn every_format_of_gnu_tar_is_as_it_unpacks_it() {
    let mut archives = Archives::of_tree();
    for (name, command) in [
        ("v7", "tar --format=v7 -cf {} plain"),
        ("ustar", "tar --format=ustar -cf {} plain nodes split attributes sparse"),
        ("oldgnu", "tar --format=oldgnu -cf {} ."),
        ("oldgnu-sparse", "tar --format=oldgnu --sparse -cf {} ."),
        ("gnu", "tar --format=gnu --sparse --sort=name -cf {} ."),
        ("posix", &format!("tar {ALL} --format=posix -cf {{}} .")),
        ("posix-0.0", &format!("tar {ALL} --format=posix --sparse --sparse-version=0.0 -cf {{}} .")),
        ("posix-0.1", &format!("tar {ALL} --format=posix --sparse --sparse-version=0.1 -cf {{}} .")),
        ("posix-1.0", &format!("tar {ALL} --selinux --format=posix --sparse --sort=inode -cf {{}} .")),
    ] {
        archives.by(name, command);
    }
    archives.are_the_same_in_images(&["oldgnu-sparse", "posix", "posix-1.0"], 12);
}

/// Offsets of more than 32 and 33 bits, which each form of a list of data writes in its own way; and a file without data.
#[test]
fn sparse_files_of_more_than_4_gib_keep_their_holes() {
    const GIB: u64 = 1 << 30;
    let mut archives = Archives::empty();
    let large = fs::File::create(archives.tree().join("large")).unwrap();
    for offset in [0, 2 * GIB - 4096, 4 * GIB - 4096, 4 * GIB + 8192, 9 * GIB] {
        let data: Vec<u8> = (0..8192_u64).map(|at| (offset / 4096 + at * 7) as u8 | 1).collect();
        large.write_all_at(&data, offset).unwrap();
    }
    large.set_len(10 * GIB + 1).unwrap();
    drop(large);
    fs::File::create(archives.tree().join("hole")).unwrap().set_len(5 * GIB).unwrap();
    for form in ["oldgnu", "gnu", "posix --sparse-version=0.0", "posix --sparse-version=0.1", "posix"] {
        archives.by(&form.replace(' ', ""), &format!("tar --sparse --format={form} -cf {{}} ."));
    }
    archives.are_the_same_in_images(&["oldgnu", "posix"], 2);
}

#[test]
fn options_of_gnu_tar_change_nothing_that_it_does_not_change() {
    let mut archives = Archives::of_tree();
    for (name, command) in [
        ("names-of-links", "tar --hard-dereference -cf {} plain nodes"),
        ("moved", "tar --format=gnu --transform=s,^plain,/moved, --absolute-names -cf {} plain long"),
        ("labelled-gnu", "tar --format=gnu --label=Volume -b 1 -cf {} plain"),
        ("labelled-posix", "tar --format=posix --label=Volume -cf {} plain"),
        ("global", "tar --format=posix --pax-option=comment=all,mtime=1234567890.5 -cf {} plain times"),
        (
            "set",
            "tar --format=posix --pax-option=gid:=4000000000,delete=mtime,delete=atime -cf {} plain times",
        ),
        ("numbers", "tar --format=posix --numeric-owner --mtime=@-5.25 --mode=a+rwX,u+s -cf {} plain"),
        ("words", "tar --acls --xattrs --format=posix -cf {} attributes"),
        ("zstd", &format!("tar {ALL} --format=posix --zstd -cf {{}} attributes wide")),
        ("gzip", "tar --format=gnu -zcf {} plain sparse"),
    ] {
        archives.by(name, command);
    }
    // Dumps: all of it, and what changed since then.
    for (format, all) in [("gnu", "--sparse"), ("posix", ALL)] {
        let state = archives.path(&format!("{format}.state"));
        let (whole, later) = (archives.path(&format!("{format}.0")), archives.path(&format!("{format}.1")));
        let dump = |to: &Path| {
            let state = state.display();
            format!("tar {all} --format={format} --listed-incremental={state} -cf {} .", to.display())
        };
        tool(&dump(&whole), &archives.tree());
        fs::write(archives.tree().join("plain/of-1"), b"changed, and longer").unwrap();
        fs::write(archives.tree().join(format!("plain/new-{format}")), b"new").unwrap();
        tool(&dump(&later), &archives.tree());
        archives.unpack(&format!("incremental-{format}"), &[whole, later]);
    }
    archives.unpack("appended", &[appended(&archives)]);
    archives.are_the_same_in_images(&["appended"], 12);
}

/// Members that come again, in one archive and in one that was put behind another. The link that becomes a file leads to
/// its own directory: GNU tar makes others at the end, and takes what has the inode of their places for them.
fn appended(archives: &Archives) -> PathBuf {
    let tree = archives.tree();
    let (appended, second) = (archives.path("appended"), archives.path("second"));
    let tar = format!("tar {ALL} --format=posix");
    tool(&format!("{tar} -cf {} plain attributes", appended.display()), &tree);
    // A directory's lists are those of its last member.
    tool("setfacl -b attributes/dir", &tree);
    tool("setfacl -m u:5:rx plain", &tree);
    fs::write(tree.join("plain/of-512"), b"the second time").unwrap();
    fs::remove_file(tree.join("attributes/link")).unwrap();
    fs::write(tree.join("attributes/link"), b"no link any more").unwrap();
    fs::remove_file(tree.join("plain/again")).unwrap();
    fs::create_dir(tree.join("plain/again")).unwrap();
    fs::hard_link(tree.join("plain/sticky"), tree.join("plain/again/linked")).unwrap();
    let again = "plain/of-512 attributes/link plain/again attributes/dir";
    tool(&format!("{tar} -rf {} {again}", appended.display()), &tree);
    tool(&format!("{tar} -cf {} --no-recursion plain/sticky plain/again plain", second.display()), &tree);
    tool(&format!("tar -Af {} {}", appended.display(), second.display()), &tree);
    appended
}

#[test]
fn a_list_whose_names_have_no_numbers_is_refused() {
    let archives = Archives::of_tree();
    let path = archives.path("archive");
    // The user owns none of it.
    tool(
        &format!("tar --acls --format=posix --exclude=file -cf {} attributes", path.display()),
        &archives.tree(),
    );
    let image = archives.path("image");
    let refused =
        undercroft(["mkfs", "ext4", image.to_str().unwrap(), "--from", path.to_str().unwrap()]).failed(4);
    assert!(refused.contains("attributes/by name") && refused.contains("names \"daemon\""), "{refused}");
    assert!(!image.exists());
}

#[test]
fn an_archive_gives_the_same_bytes_with_any_number_of_threads() {
    let archives = Archives::of_tree();
    let path = archives.path("archive");
    tool(&format!("tar {ALL} --format=posix --sparse -cf {} .", path.display()), &archives.tree());
    are_the_same_bytes(archives.dir.path(), path.to_str().unwrap());
}

/// Into a filesystem that is there, of both kinds.
#[test]
fn archives_are_unpacked_into_an_image_as_into_a_mount() {
    let mut archives = Archives::of_tree();
    archives.by("gnu", &format!("tar {ALL} --format=posix --sparse -cf {{}} ."));
    by_libarchive(&mut archives, "libarchive");
    let (dir, unpacked) = archives.unpacked();
    for family in ["ext4", "xfs"] {
        let image = dir.path().join(family);
        let path = image.to_str().unwrap();
        undercroft(["mkfs", family, path, "--size", "600M"]).succeeded();
        for (Made { name, sources, .. }, _) in &unpacked {
            undercroft(["mkdir", path, &format!("/{name}")]).succeeded();
            let args = ["tar-in", path, &sources[0], &format!("/{name}")];
            undercroft(args).succeeded();
        }
        let shown = shown(&image, family);
        for (Made { name, .. }, expected) in &unpacked {
            let below = [name.as_bytes(), b"/"].concat();
            let inside = |(path, entry): (&Vec<u8>, &undercroft_oracle::Entry)| {
                path.strip_prefix(&below[..]).map(|path| (path.to_vec(), entry.clone()))
            };
            let found = Manifest { entries: shown.entries.iter().filter_map(inside).collect(), space: None };
            assert_same(expected, &found, &format!("{name} in {family}"));
        }
    }
}

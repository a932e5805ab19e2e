//! Other writers than GNU tar.

use std::fs;
use std::path::Path;
use std::process::Command;

use super::Archives;
use crate::support::{run, tool, undercroft};

/// An archive of bsdtar with all that it knows. It writes names of attributes twice, of which GNU tar reads the one in
/// which some bytes are written in another way.
pub(super) fn by_libarchive(archives: &mut Archives, name: &str) {
    archives.by(name, "bsdtar --format=pax --xattrs --acls -cf {} .");
    let place = archives.mount.path().join(name).join("attributes");
    tool("setfattr -x user.%C3%A9 file", &place);
    tool("setfattr -n user.\u{e9} -v e file", &place);
}

#[test]
fn archives_of_libarchive_are_as_gnu_tar_unpacks_them() {
    let mut archives = Archives::of_tree();
    by_libarchive(&mut archives, "pax");
    archives.by("restricted", "bsdtar --xattrs --acls --options xattrheader=SCHILY -cf {} .");
    archives.by("gnutar", "bsdtar --format=gnutar -cf {} .");
    archives.by("ustar", "bsdtar --format=ustar -cf {} plain nodes split sparse");
    archives.by("v7", "bsdtar --format=v7 -cf {} plain");
    archives.are_the_same_in_images(&["pax"], 12);
}

#[test]
fn what_is_no_tar_archive_is_refused_by_its_name() {
    let archives = Archives::of_tree();
    let image = archives.path("image");
    for (format, name) in [
        ("cpio", "a cpio archive"),
        ("newc", "a cpio archive"),
        ("bin", "a cpio archive"),
        ("zip", "a zip archive"),
        ("7zip", "a 7-Zip archive"),
        ("ar", "an ar archive"),
        ("xar", "a xar archive"),
    ] {
        let path = archives.path(format);
        let command = format!("bsdtar --format={format} -cf {} of-1", path.display());
        tool(&command, &archives.tree().join("plain"));
        let from = path.to_str().unwrap();
        let refused = undercroft(["mkfs", "ext4", image.to_str().unwrap(), "--from", from]).failed(4);
        assert!(refused.contains(from) && refused.contains(name), "{format}: {refused}");
        assert!(!image.exists());
    }
}

#[test]
fn archives_of_python_are_as_gnu_tar_unpacks_them() {
    let mut archives = Archives::of_tree();
    // Written with an exponent, which GNU tar takes for no part of the number.
    fs::remove_file(archives.tree().join("times/just before")).unwrap();
    let write = "import sys, tarfile\n\
        name, mode, form, *tree = sys.argv[1:]\n\
        with tarfile.open(name, mode, format=getattr(tarfile, form + '_FORMAT'), encoding='utf-8', \
        errors='surrogateescape') as archive:\n    for part in tree: archive.add(part)";
    for (name, mode, form, parts) in [
        ("pax", "w", "PAX", &["."][..]),
        ("gnu", "w", "GNU", &["."]),
        ("ustar", "w", "USTAR", &["plain", "nodes", "attributes", "sparse"]),
        ("xz", "w:xz", "PAX", &["plain", "times", "bytes"]),
        ("bzip2", "w:bz2", "GNU", &["plain", "long", "wide"]),
    ] {
        let path = archives.path(name);
        let mut python = Command::new("python3");
        python.args(["-c", write]).arg(&path).args([mode, form]).args(parts).current_dir(archives.tree());
        run(&mut python).succeeded();
        archives.unpack(name, &[path]);
    }
    archives.are_the_same_in_images(&["pax"], 12);
}

#[test]
fn archives_of_busybox_cpio_perl_and_git_are_as_gnu_tar_unpacks_them() {
    let mut archives = Archives::of_tree();
    archives.by("busybox", "busybox tar -cf {} .");
    for (name, line) in [
        ("cpio-tar", "find plain -print0 | cpio -0 --quiet -o -H tar"),
        ("cpio-ustar", "find plain nodes split -print0 | cpio -0 --quiet -o -H ustar"),
        (
            "perl",
            r#"find plain -print0 | perl -MArchive::Tar -0 -ne 'chomp; push @f, $_;
            END { my $t = Archive::Tar->new; $t->add_files(@f); $t->write(\*STDOUT) }'"#,
        ),
    ] {
        let path = archives.path(name);
        let line = format!("{line} > {}", path.display());
        run(Command::new("sh").args(["-c", &line]).current_dir(archives.tree())).succeeded();
        archives.unpack(name, &[path]);
    }
    let git = |words: &str| {
        let identity = ["user.name=Test", "user.email=test@localhost", "init.defaultBranch=main"];
        let mut git = Command::new("git");
        git.args(identity.iter().flat_map(|setting| ["-c", setting])).args(words.split(' '));
        git.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_NOSYSTEM", "1");
        let run = run(git.current_dir(archives.tree()));
        assert_eq!(run.code, 0, "git {words}: {}", run.stderr);
    };
    let path = archives.path("git");
    git("init -q");
    git("add plain split bytes");
    git("commit -q -m all");
    git(&format!("archive --format=tar -o {} HEAD", path.display()));
    archives.unpack("git", &[path]);
    archives.are_the_same_in_images(&[], 12);
}

/// Written by Go's archive/tar; see the README beside them.
#[test]
fn archives_of_go_are_as_gnu_tar_unpacks_them() {
    let mut archives = Archives::empty();
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/go");
    for name in ["ustar", "pax", "gnu"] {
        archives.unpack(name, &[fixtures.join(name).with_extension("tar.gz")]);
    }
    archives.are_the_same_in_images(&["pax"], 8);
}

//! The program as mount(8), umount(8), `/etc/fstab` and systemd run it.
//!
//! Each test has a mount namespace of its own, with its own `/sbin` and `/etc/fstab`.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;
use std::process::Command;

use undercroft_oracle::Image;

use crate::support::{PROGRAM, Run, run, small, undercroft};

/// Lays a copy of `/sbin` over `/sbin`, puts the helper's links there, and `fstab` over `/etc/fstab`.
const NAMESPACE: &str = r#"
set -e
sbin=$(realpath /sbin)
mkdir layers
mount -t tmpfs layers layers
mkdir layers/upper layers/work
mount -t overlay -o "lowerdir=$sbin,upperdir=layers/upper,workdir=layers/work" sbin "$sbin"
"$UNDERCROFT" install-helper > links
touch fstab
mount --bind fstab /etc/fstab
end() { for dir in mnt*; do umount "$dir" 2> umount.log || :; done; }
trap end EXIT
"#;

/// Runs a script in a mount namespace with the helper installed. It starts in `dir`.
fn with_helper(dir: &Path, script: &str) -> Run {
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private", "bash", "-c"]);
    command.arg(format!("{NAMESPACE}{script}")).current_dir(dir);
    run(command.env("UNDERCROFT", PROGRAM).env("LC_ALL", "C"))
}

/// A directory with an image `disk.img` in it, which has the file `/file`, and a directory `mnt`.
fn scene() -> (tempfile::TempDir, Image) {
    let image = small(&[("/file", "content\n")]);
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), Permissions::from_mode(0o755)).unwrap();
    fs::create_dir(dir.path().join("mnt")).unwrap();
    fs::copy(image.path(), dir.path().join("disk.img")).unwrap();
    (dir, image)
}

#[test]
fn mount_finds_the_program_by_its_type() {
    let (dir, _image) = scene();
    let told = with_helper(
        dir.path(),
        r#"
        for type in undercroft fuse.undercroft; do
            mount -t $type disk.img mnt
            cat mnt/file
            echo $type >> mnt/types
            findmnt -no FSTYPE mnt
            umount mnt
            # It is closed when umount returns.
            debugfs -R 'cat /types' disk.img 2> debugfs.log
        done
        mount -t fuse "$UNDERCROFT#$PWD/disk.img" mnt
        cat mnt/types
        umount mnt
        rm "$sbin/mount.fuse.undercroft"
        ln -s "$UNDERCROFT" "$sbin/undercroft"
        mount -t fuse.undercroft "$PWD/disk.img" mnt
        cat mnt/types
        umount mnt
        "#,
    );
    let types = "undercroft\nfuse.undercroft\n";
    assert_eq!(
        told.text(),
        format!(
            "content\nfuse.undercroft.ext4\nundercroft\ncontent\nfuse.undercroft.ext4\n{types}{types}{types}"
        )
    );
}

#[test]
fn a_line_of_fstab_is_mounted_once_and_unmounted() {
    let (dir, _image) = scene();
    fs::create_dir(dir.path().join("mnt2")).unwrap();
    let told = with_helper(
        dir.path(),
        r#"
        # This namespace has begun with copies of other tests' mounts, which `umount -a` would unmount.
        for copy in $(sed -n '/ - fuse[a-z]*\.undercroft/p' /proc/self/mountinfo | cut -d' ' -f5); do
            umount -i -l "$copy"
        done
        cat > own.fstab <<END
$PWD/disk.img $PWD/mnt undercroft defaults,nofail,noatime,acl,errors=remount-ro,x-systemd.automount 0 0
tmpfs: $PWD/mnt2 fuse.undercroft size=1M,mode=711,uid=7,_netdev 0 0
$PWD/missing.img $PWD/mnt undercroft noauto 0 0
END
        mount -T own.fstab -a
        # What is mounted is found in the mount table.
        mount -T own.fstab -a
        grep -c " $PWD/mnt " /proc/self/mountinfo
        findmnt -no SOURCE,OPTIONS mnt
        stat -c %a:%u mnt2
        setpriv --reuid 65534 --clear-groups cat mnt/file
        umount -a -t fuse.undercroft.ext4,fuse.undercroft.tmpfs
        grep -c fuse.undercroft /proc/self/mountinfo || :
        mount -T own.fstab "$PWD/mnt"
        cat mnt/file
        "#,
    );
    let text = told.text();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 6, "{text}");
    let image = dir.path().join("disk.img").display().to_string();
    assert!(lines[1].starts_with(&format!("{image} ")), "{text}");
    assert!(lines[1].contains("rw,noatime") && lines[1].contains("allow_other"), "{text}");
    assert_eq!([lines[0], lines[2], lines[3], lines[4], lines[5]], ["1", "711:7", "content", "0", "content"]);
}

/// mount(8) gives up its rights before it starts the helper.
#[test]
fn an_ordinary_user_mounts_what_fstab_allows() {
    let (dir, _image) = scene();
    for name in ["mnt", "disk.img"] {
        chown(dir.path().join(name), Some(65534), Some(65534)).unwrap();
    }
    let told = with_helper(
        dir.path(),
        r#"
        echo "$PWD/disk.img $PWD/mnt undercroft noauto,user,fakeroot 0 0" > fstab
        as_user() { setpriv --reuid 65534 --regid 65534 --clear-groups "$@"; }
        as_user mount "$PWD/mnt"
        findmnt -no OPTIONS mnt
        as_user cat mnt/file
        as_user bash -c 'echo new > mnt/new'
        as_user umount "$PWD/mnt"
        debugfs -R 'cat /new' disk.img 2> debugfs.log
        "#,
    );
    let text = told.text();
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[0].contains("nosuid,nodev,noexec") && lines[0].contains("user_id=65534"), "{text}");
    assert_eq!(lines[1..], ["content", "new"]);
}

#[test]
fn a_write_protected_image_is_mounted_read_only() {
    let (dir, _image) = scene();
    let told = with_helper(
        dir.path(),
        r#"
        mkdir protected
        mount --bind -o ro . protected
        mount -t undercroft "$PWD/protected/disk.img" mnt
        findmnt -no OPTIONS mnt
        umount mnt
        "#,
    );
    assert_eq!(told.code, 0, "{}", told.stderr);
    assert!(told.stderr.ends_with("disk.img is write-protected, mounted read-only\n"), "{}", told.stderr);
    assert!(told.stdout.starts_with(b"ro,"), "{}", String::from_utf8_lossy(&told.stdout));
}

#[test]
fn exit_codes_are_those_of_mount() {
    for (command, code, words) in [
        (
            "mount -t undercroft -o data=journal disk.img mnt",
            1,
            "mount option \"data=journal\" is not supported",
        ),
        ("mount -t undercroft -o nonsense disk.img mnt", 1, "mount option \"nonsense\" is unknown"),
        ("mount -s -t undercroft -o nonsense,data=journal disk.img mnt", 0, ""),
        ("mount -f -t undercroft disk.img mnt; mountpoint -q mnt", 32, ""),
        ("mount -t undercroft zeros mnt", 32, "zeros"),
        ("mount -t undercroft missing.img mnt", 32, "missing.img"),
        ("mount -t undercroft disk.img gone", 32, "make the directory first"),
        ("mount.undercroft disk.img gone", 32, "make the directory first"),
        ("mount.undercroft disk.img", 1, "<DIR>"),
        ("mount -t undercroft disk.img mnt; cd mnt; umount ../mnt", 32, "in use"),
        ("mount -t undercroft disk.img mnt; cd mnt; umount -l ../mnt", 0, ""),
    ] {
        let (dir, _image) = scene();
        fs::write(dir.path().join("zeros"), [0; 65536]).unwrap();
        let script =
            format!("trap '' EXIT; set +e; top=$PWD; {command}; code=$?; cd \"$top\"; end; exit $code");
        let told = with_helper(dir.path(), &script);
        assert_eq!(told.code, code, "{command}: {}", told.stderr);
        assert!(told.stderr.contains(words), "{command}: {}", told.stderr);
    }
}

/// The units that systemd's generator makes of fstab are valid, and mount(8) does what such a unit asks.
#[test]
fn systemd_takes_a_line_of_fstab() {
    let (dir, _image) = scene();
    let told = with_helper(
        dir.path(),
        r#"
        echo "$PWD/disk.img /srv/undercroft-disk undercroft nofail,nodev,nosuid,x-systemd.requires-mounts-for=/var 0 0" > fstab
        mkdir units
        for generator in {/usr,}/lib/systemd/system-generators/systemd-fstab-generator; do
            [ ! -x "$generator" ] || break
        done
        SYSTEMD_FSTAB=$PWD/fstab "$generator" units units units
        systemd-analyze verify units/srv-undercroft*disk.mount
        sed -n 's/^What=//p; s/^Type=//p; s/^Options=/-o /p' units/srv-undercroft*disk.mount
        # systemd runs: mount WHAT WHERE -t TYPE -o OPTIONS.
        mount "$PWD/disk.img" mnt -t undercroft -o nofail,nodev,nosuid,x-systemd.requires-mounts-for=/var
        cat mnt/file
        umount mnt -c
        "#,
    );
    let image = dir.path().join("disk.img").display().to_string();
    let expected =
        format!("{image}\nundercroft\n-o nofail,nodev,nosuid,x-systemd.requires-mounts-for=/var\ncontent\n");
    assert_eq!(told.text(), expected);
}

#[test]
fn the_helper_replaces_its_own_links_only() {
    let dir = tempfile::tempdir().unwrap();
    let prefix = dir.path().display().to_string();
    let install = || undercroft(["install-helper", "--prefix", &prefix]);
    for _ in 0..2 {
        assert_eq!(install().text().lines().count(), 3);
    }
    let link = dir.path().join("sbin/mount.undercroft");
    assert_eq!(fs::read_link(&link).unwrap(), Path::new(PROGRAM).canonicalize().unwrap());
    fs::remove_file(&link).unwrap();
    fs::write(&link, "another program").unwrap();
    let message = install().failed(8);
    assert!(message.contains("mount.undercroft is there, and no link to this program"), "{message}");
    assert_eq!(fs::read(&link).unwrap(), b"another program");
}

/// As for other types: with `nofail` a line of an image that is not there is passed over, and nothing else is.
#[test]
fn an_image_that_is_not_there_is_no_failure_with_nofail() {
    let (dir, _image) = scene();
    let at = dir.path().display();
    fs::create_dir(dir.path().join("mnt2")).unwrap();
    fs::write(
        dir.path().join("fstab"),
        format!(
            "{at}/none.img {at}/mnt undercroft defaults,nofail 0 0\n{at}/disk.img {at}/mnt2 undercroft ro,nofail 0 0\n"
        ),
    )
    .unwrap();
    let told = with_helper(
        dir.path(),
        "mount -a; echo $?; cat mnt2/file; umount mnt2; mount -a; echo $?; umount mnt2\n\
         mount -t undercroft none.img mnt || echo $?\nmount -t undercroft -o nofail fstab mnt || echo $?",
    );
    assert_eq!(String::from_utf8_lossy(&told.stdout), "0\ncontent\n0\n32\n32\n", "{}", told.stderr);
    assert_eq!(told.stderr.lines().count(), 2, "{}", told.stderr);
}

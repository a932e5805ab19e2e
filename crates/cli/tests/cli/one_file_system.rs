//! Sources whose directories on other filesystems are not entered (`--one-file-system`): what GNU tar archives by that option.

use std::fs::{Permissions, set_permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use crate::support::{PROGRAM, run, undercroft};

/// A tree in whose `a/mnt` a tmpfs is mounted, with `tree.tar` of GNU tar beside it, in a mount namespace that ends with
/// the script.
fn with_a_mount(dir: &Path, script: &str) {
    let before =
        "mkdir -p tree/a/mnt tree/b; echo text > tree/a/file; echo other > tree/b/other; touch tree/bound
        mount -t tmpfs -o mode=750 tmpfs tree/a/mnt
        mkdir tree/a/mnt/deep; echo inside > tree/a/mnt/inside; echo deep > tree/a/mnt/deep/er
        mount --bind tree/a/mnt/inside tree/bound
        tar --one-file-system --format=pax -cf tree.tar -C tree .";
    let mut command = Command::new("unshare");
    command
        .args(["--mount", "bash", "-ec", &format!("{before}\n{script}")])
        .current_dir(dir)
        .env("UNDERCROFT", PROGRAM);
    run(&mut command).succeeded();
}

#[test]
fn what_is_mounted_in_a_source_is_left_out_as_gnu_tar_leaves_it_out() {
    let dir = tempfile::tempdir().unwrap();
    with_a_mount(
        dir.path(),
        r#"
        "$UNDERCROFT" mkfs ext4 one.img --from tree --one-file-system
        "$UNDERCROFT" diff one.img tree.tar
        "$UNDERCROFT" diff -x one.img tree
        test "$("$UNDERCROFT" ls -a one.img /a/mnt)" = ""
        test "$("$UNDERCROFT" cat one.img /bound)" = inside
        # Otherwise all of it comes.
        "$UNDERCROFT" mkfs xfs all.img --from tree
        test "$("$UNDERCROFT" cat all.img /a/mnt/deep/er)" = deep
        "$UNDERCROFT" diff all.img tree
        ! "$UNDERCROFT" diff -x all.img tree || exit 1
        # The source itself may be mounted.
        "$UNDERCROFT" mkfs ext4 top.img -x --from tree/a/mnt
        test "$("$UNDERCROFT" cat top.img /deep/er)" = deep
        "$UNDERCROFT" mkfs ext2 put.img --size 8M
        "$UNDERCROFT" put -x --preserve put.img tree/. /
        "$UNDERCROFT" diff --ignore mtime,mode put.img tree.tar
        "$UNDERCROFT" put -r --one-file-system put.img tree/a tree/a/mnt tree/a/mnt/ /b
        test "$("$UNDERCROFT" ls -a put.img /b/a/mnt)" = ""
        test "$("$UNDERCROFT" cat put.img /b/mnt/deep/er)" = deep
        "$UNDERCROFT" put put.img tree/a /b
        test "$("$UNDERCROFT" cat put.img /b/a/mnt/deep/er)" = deep
        e2fsck -fn one.img > checked 2>&1 || { cat checked; exit 1; }
        "#,
    );
}

#[test]
fn partitions_are_filled_without_what_is_mounted_in_a_source() {
    let dir = tempfile::tempdir().unwrap();
    with_a_mount(
        dir.path(),
        r#"
        "$UNDERCROFT" disk create -q typed.img -x root=ext4:32M:tree
        "$UNDERCROFT" diff 'typed.img?part=root' tree.tar
        "$UNDERCROFT" disk create -q all.img root=ext4:32M:tree
        test "$("$UNDERCROFT" cat 'all.img?part=root' /a/mnt/inside)" = inside
        cat > disk.toml <<END
[[partition]]
name = "one"
format = "ext4"
size = "32M"
source = "tree"
one-file-system = true
[[partition]]
name = "all"
format = "ext4"
size = "32M"
source = "tree"
END
        "$UNDERCROFT" disk create -q toml.img --config disk.toml
        "$UNDERCROFT" diff 'toml.img?part=one' tree.tar
        test "$("$UNDERCROFT" cat 'toml.img?part=all' /a/mnt/inside)" = inside
        "$UNDERCROFT" disk create -q both.img --one-file-system --config disk.toml
        "$UNDERCROFT" diff 'both.img?part=all' tree.tar
        "$UNDERCROFT" disk resize both.img 200M > /dev/null
        "$UNDERCROFT" disk add -x both.img more=ext4:32M:tree > /dev/null
        "$UNDERCROFT" diff 'both.img?part=more' tree.tar
        mkdir repart.d
        printf '[Partition]\nType=linux-generic\nLabel=r\nFormat=ext4\nSizeMinBytes=32M\nSizeMaxBytes=32M\nCopyFiles=/a:/x\n' > repart.d/1.conf
        "$UNDERCROFT" disk create -q repart.img -x --definitions repart.d --root tree --size 64M
        test "$("$UNDERCROFT" ls -a 'repart.img?part=r' /x/mnt)" = ""
        test "$("$UNDERCROFT" cat 'repart.img?part=r' /x/file)" = text
        "#,
    );
}

/// An ordinary user may look at a mount point, though not into it. Its attributes are those that user sees.
#[test]
fn a_mount_point_that_the_user_may_not_read_stays_empty() {
    let dir = tempfile::tempdir().unwrap();
    set_permissions(dir.path(), Permissions::from_mode(0o777)).unwrap();
    with_a_mount(
        dir.path(),
        r#"
        chmod 700 tree/a/mnt
        setfattr -n user.hidden -v x tree/a/mnt 2> /dev/null || true
        cp "$UNDERCROFT" program
        user() { setpriv --reuid=65534 --regid=65534 --clear-groups "$@"; }
        user cp -rx tree copied
        test "$(ls -A copied/a/mnt)" = ""
        user ./program mkfs ext4 one.img --from tree -x
        ./program diff -x --ignore xattrs one.img tree
        test "$(./program ls -a one.img /a/mnt)" = ""
        ./program stat one.img /a/mnt | grep -q 0700
        user ./program mkfs ext2 put.img --size 8M
        user ./program put -x put.img tree/a /
        test "$(./program cat put.img /a/file)" = text
        test "$(./program ls -a put.img /a/mnt)" = ""
        # Otherwise it is asked for, and refused.
        ! user ./program mkfs ext4 all.img --from tree 2> refused || exit 1
        grep -q 'a/mnt.*[Pp]ermission denied' refused
        "#,
    );
}

#[test]
fn bind_mounts_of_the_same_filesystem_are_entered_as_by_gnu_tar() {
    let dir = tempfile::tempdir().unwrap();
    with_a_mount(
        dir.path(),
        r#"
        mkdir tree/again
        mount --bind tree/b tree/again
        tar --one-file-system --format=pax -cf bound.tar -C tree .
        tar -tf bound.tar | grep -q again/other
        "$UNDERCROFT" mkfs ext4 one.img --from tree -x
        test "$("$UNDERCROFT" cat one.img /again/other)" = other
        "$UNDERCROFT" diff one.img bound.tar
        "#,
    );
}

/// The option is of directories, and asks for a source where there may be none.
#[test]
fn the_option_asks_for_a_source() {
    let refused = undercroft(["mkfs", "ext4", "/nowhere/image", "--size", "8M", "-x"]);
    assert_eq!(refused.code, 2);
    assert!(refused.stderr.contains("--from"), "{}", refused.stderr);
}

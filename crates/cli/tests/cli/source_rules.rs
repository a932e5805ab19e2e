//! Rules for the sources of `disk create` and `disk add`: what GNU tar archives by the same options.

use std::path::Path;
use std::process::Command;

use crate::support::{PROGRAM, run, undercroft};

/// Runs a script beside a tree, and `tree.tar` of GNU tar with rules.
fn beside_a_tree(dir: &Path, script: &str) {
    let before = "mkdir -p tree/a/.git tree/b; echo text > tree/a/file; echo object > tree/a/x.o; echo x > tree/a/.git/config
        chmod 666 tree/a/file; chmod 777 tree/b
        tar --format=pax --owner=:7 --group=:8 --mode=go-w --mtime=@1000 --exclude='*.o' --exclude=.git -cf tree.tar -C tree .";
    let mut command = Command::new("bash");
    command.args(["-ec", &format!("{before}\n{script}")]).current_dir(dir).env("UNDERCROFT", PROGRAM);
    run(&mut command).succeeded();
}

#[test]
fn rules_of_disks_are_those_of_gnu_tar() {
    let dir = tempfile::tempdir().unwrap();
    beside_a_tree(
        dir.path(),
        r#"
        rules=(--owner 7:8 --mode go-w --mtime @1000 --exclude '*.o' --exclude .git)
        "$UNDERCROFT" disk create -q typed.img "${rules[@]}" --size 200M root=ext4:min:tree two=ext4:32M:tree
        "$UNDERCROFT" diff 'typed.img?part=root' tree.tar
        "$UNDERCROFT" diff 'typed.img?part=two' tree.tar
        "$UNDERCROFT" disk add "${rules[@]}" typed.img more=ext4:32M:tree > /dev/null
        "$UNDERCROFT" diff 'typed.img?part=more' tree.tar
        cat > disk.toml <<END
[[partition]]
name = "one"
format = "ext4"
size = "32M"
source = "tree"
exclude = "*.o"
owner = "7"
mode = "go-w"
[[partition]]
name = "two"
format = "ext4"
size = "0.0625G"
source = "tree"
directories = ["/var/log"]
END
        "$UNDERCROFT" disk create -q toml.img --exclude .git --exclude log --mtime @1000 --owner 1 --group 8 --config disk.toml
        "$UNDERCROFT" diff 'toml.img?part=one' tree.tar
        test "$("$UNDERCROFT" ls 'toml.img?part=two' /a | tr '\n' ' ')" = "file x.o "
        for path in / /a/file /var /var/log; do
            "$UNDERCROFT" stat --json 'toml.img?part=two' $path | tr -d ' \n' | grep -q '"uid":1,"gid":8' || { echo $path; exit 1; }
        done
        # Below another directory, and a file whose other name is left out.
        ln tree/a/x.o tree/b/linked
        mkdir repart.d
        printf '[Partition]\nType=linux-generic\nLabel=r\nFormat=ext4\nSizeMinBytes=32M\nSizeMaxBytes=32M\nCopyFiles=/a:/x\nCopyFiles=/:/all\n' > repart.d/1.conf
        "$UNDERCROFT" disk create -q repart.img "${rules[@]}" --definitions repart.d --root tree --size 64M
        test "$("$UNDERCROFT" ls -a 'repart.img?part=r' /x)" = file
        test "$("$UNDERCROFT" cat 'repart.img?part=r' /all/b/linked)" = object
        "#,
    );
}

#[test]
fn rules_that_change_nothing_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("image");
    let image = image.to_str().unwrap();
    let told = undercroft(["disk", "create", "--owner", "0:0", image, "root=ext4:32M"]).failed(2);
    assert!(told.contains("--owner needs a source of files, and no partition has one"), "{told}");
    let told = undercroft(["mkfs", "ext4", image, "--size", "8M", "--exclude", "*.o"]).failed(2);
    assert!(told.contains("--exclude needs a source of files"), "{told}");
    let config = dir.path().join("disk.toml");
    let definition = "[[partition]]\nname = \"root\"\nformat = \"ext4\"\nsize = \"32M\"\nsource = \"/etc\"\nowner = \"lisa\"\n";
    std::fs::write(&config, definition).unwrap();
    let told = undercroft(["disk", "create", image, "--config", config.to_str().unwrap()]).failed(2);
    assert!(told.contains("partition \"root\": ") && told.contains("\"lisa\""), "{told}");
    assert!(!dir.path().join("image").exists());
}

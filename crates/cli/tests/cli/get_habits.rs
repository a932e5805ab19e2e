//! `get` as users of cp and tar type it: several sources, patterns, what is left out, what is replaced, and standard
//! output. cp, tar and the shell say what is right.

use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;
use std::process::{Command, Stdio};

use undercroft_oracle::{Image, Mke2fs, MountMode};

use crate::support::{PROGRAM, Run, run, small, tool};

/// `get`, its arguments separated by spaces, in a directory that has `image`.
fn get(dir: &Path, args: &str) -> Run {
    run(Command::new(PROGRAM).arg("get").args(args.split(' ')).current_dir(dir))
}

/// What a shell command prints.
fn shell(command: &str, dir: &Path) -> String {
    let output =
        Command::new("bash").args(["-c", command]).current_dir(dir).env("LC_ALL", "C").output().unwrap();
    assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// A tree with files of all kinds, and a place to copy to that has the image.
fn tree() -> (Image, tempfile::TempDir) {
    let image = Mke2fs::new("ext4", 32).make().unwrap();
    let mount = image.mount(MountMode::ReadWrite, "").unwrap();
    shell(
        "rmdir lost+found; mkdir -p etc/sub/deep etc/.hidden src/a src/cache/tmp 'odd/x y'
         for name in etc/a.conf etc/b.conf etc/.c.conf etc/sub/d.conf etc/sub/deep/e.conf etc/.hidden/f.conf \
             src/main.c src/main.o src/a/part.o src/a/part.c src/cache/tmp/x src/tmp 'odd/x y/*' odd/ab odd/a[b; do
             echo $name > \"$name\"
         done
         ln src/main.c etc/linked; ln -s a.conf etc/symlink; mkfifo etc/fifo; chmod 555 etc/sub
         printf x > $'odd/\\xff.conf'
         find . -exec touch -h -d 2020-02-03T04:05:06.7 {} +",
        mount.path(),
    );
    mount.unmount().unwrap();
    let dir = tempfile::tempdir().unwrap();
    symlink(image.path(), dir.path().join("image")).unwrap();
    (image, dir)
}

#[test]
fn several_sources_go_into_a_directory() {
    let (_image, dir) = tree();
    let dir = dir.path();
    let message = get(dir, "image /etc/a.conf /src some").failed(8);
    assert!(message.starts_with("some does not exist; several things"), "{message}");
    fs::create_dir(dir.join("some")).unwrap();
    get(dir, "image /etc/a.conf src /etc/linked some").succeeded();
    assert_eq!(fs::read(dir.join("some/a.conf")).unwrap(), b"etc/a.conf\n");
    assert_eq!(fs::read(dir.join("some/src/a/part.c")).unwrap(), b"src/a/part.c\n");
    let ino = |name: &str| fs::metadata(dir.join(name)).unwrap().ino();
    assert_eq!(ino("some/src/main.c"), ino("some/linked"), "one file with two names is one in the copy");

    // What is wrong with one of them does not keep the others back.
    let partly = get(dir, "image /etc/none /etc/b.conf /etc/a.conf some");
    assert_eq!(partly.code, 1);
    assert_eq!(
        partly.stderr,
        "undercroft: /etc/none: no such file or directory\n\
         undercroft: some/a.conf exists already; name another place, replace it by --overwrite, or go on with a copy \
         that was interrupted by --resume\n"
    );
    assert!(dir.join("some/b.conf").exists());
    // As cp has it: not over what was just made.
    fs::create_dir(dir.join("other")).unwrap();
    let twice = get(dir, "image src/tmp src/cache/tmp other");
    assert_eq!(twice.code, 1);
    assert!(twice.stderr.contains("/src/cache/tmp would be written over another copy"), "{}", twice.stderr);
    assert_eq!(fs::read(dir.join("other/tmp")).unwrap(), b"src/tmp\n");
    let root = get(dir, "image / src/a other");
    assert!(root.stderr.contains("/ has no name that it could have beside others"), "{}", root.stderr);
    // Resumed, all of it is there.
    let json = get(dir, "--resume --json image /etc/a.conf src /etc/linked some").json();
    assert_eq!((json["files"].as_u64(), json["already_there"].as_u64()), (Some(0), Some(8)), "{json}");
}

#[test]
fn what_is_missing_on_the_command_line_is_told() {
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(
        get(dir.path(), "image /etc").failed(2),
        "where to put /etc is not said; name a destination behind it: a file or directory, or `-` for standard output"
    );
    let message = get(dir.path(), "image").failed(2);
    assert!(message.starts_with("neither what to copy nor where to put it is said; "), "{message}");
    assert_eq!(get(dir.path(), "--tar image").failed(2), "nothing to copy is named; the root is `/`");
    let message = get(dir.path(), "--glob [a image x").failed(2);
    assert!(message.starts_with("the pattern [a: "), "{message}");
}

#[test]
fn patterns_find_what_the_shell_finds() {
    let (image, dir) = tree();
    let mount = image.mount(MountMode::ReadOnly, "").unwrap();
    let patterns = [
        "etc/*.conf",
        "etc/*",
        "etc/.*.conf",
        "*/a*",
        "e*/sub/*",
        "etc/[ab].conf",
        "etc/[!a].conf",
        "src/?",
        "**/*.conf",
        "src/**/*.o",
        "odd/a\\[b",
        "odd/*y",
        "odd/*.conf",
        "etc/symlink",
        "src",
    ];
    for (number, pattern) in patterns.iter().enumerate() {
        // Its directories with all that is in them, as cp -r takes them.
        let expected = dir.path().join(format!("expected{number}"));
        let found = dir.path().join(format!("found{number}"));
        fs::create_dir(&expected).unwrap();
        fs::create_dir(&found).unwrap();
        shell(&format!("shopt -s globstar; cp -a -- {pattern} {}", expected.display()), mount.path());
        get(dir.path(), &format!("--glob {pattern} image found{number}")).succeeded();
        assert_eq!(differences(&expected, &found), "", "{pattern}");
        assert!(fs::read_dir(&found).unwrap().count() > 0);
    }
    fs::create_dir(dir.path().join("none")).unwrap();
    // A pattern where a path belongs.
    let message = get(dir.path(), "image /etc/*.conf none").failed(7);
    assert!(message.contains("`--glob '/etc/*.conf'`"), "{message}");
    let message = get(dir.path(), "--glob etc/*.none image none").failed(7);
    assert_eq!(message, "etc/*.none: nothing matches");
}

/// What rsync would have to do to make the second tree the first. The trees' own times are those of the test.
fn differences(expected: &Path, found: &Path) -> String {
    let todo = tool(
        &format!("rsync -naHAXi --checksum --delete {}/ {}/", expected.display(), found.display()),
        Path::new("/"),
    );
    todo.lines().filter(|line| *line != ".d..t...... ./").map(|line| format!("{line}\n")).collect()
}

#[test]
fn what_is_left_out_is_what_tar_leaves_out() {
    let (image, dir) = tree();
    let mount = image.mount(MountMode::ReadOnly, "").unwrap();
    let sorted = |text: String| {
        let mut lines: Vec<String> = text.lines().map(|line| line.trim_end_matches('/').to_owned()).collect();
        lines.sort();
        lines
    };
    for patterns in [
        &["*.o"][..],
        &["cache/tmp"],
        &["tmp"],
        &["src/tmp"],
        &["a*c"],
        &["s*o"],
        &["*.conf", "src"],
        &["x?y"],
        &["[ab].conf"],
        &["\\*"],
    ] {
        let options: Vec<String> = patterns.iter().map(|pattern| format!("--exclude={pattern}")).collect();
        let theirs = Command::new("tar")
            .arg("-c")
            .args(&options)
            .arg("-C")
            .arg(mount.path())
            .args(["etc", "odd", "src"])
            .output()
            .unwrap();
        assert!(theirs.status.success(), "{}", String::from_utf8_lossy(&theirs.stderr));
        let ours = run(Command::new(PROGRAM)
            .args(["get", "--tar"])
            .args(&options)
            .args(["image", "etc", "odd", "src"])
            .current_dir(dir.path()));
        let list = |archive: &[u8]| sorted(listed(archive));
        assert_eq!(list(&ours.succeeded()), list(&theirs.stdout), "{patterns:?}");

        // A copy has the same.
        let copy = dir.path().join("copy");
        run(Command::new(PROGRAM)
            .arg("get")
            .args(&options)
            .args(["image", "/", "copy"])
            .current_dir(dir.path()))
        .succeeded();
        // tar shows bytes that are no characters in its own way.
        let names = shell("find . -mindepth 1 | cut -c3-", &copy).replace('\u{fffd}', "\\377");
        let names = sorted(names);
        assert_eq!(names, list(&theirs.stdout), "{patterns:?}");
        fs::remove_dir_all(&copy).unwrap();
    }
    // From the root on.
    let copy = dir.path().join("anchored");
    get(dir.path(), "--exclude /tmp --exclude /src/tmp --exclude /etc image / anchored").succeeded();
    let names = sorted(shell("find . -name '*tmp*' -o -name etc", &copy));
    assert_eq!(names, ["./src/cache/tmp"]);
}

/// The names in an archive, as tar lists them.
fn listed(archive: &[u8]) -> String {
    use std::io::Write;
    let mut tar = Command::new("tar").arg("-t").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    tar.stdin.take().unwrap().write_all(archive).unwrap();
    String::from_utf8_lossy(&tar.wait_with_output().unwrap().stdout).into_owned()
}

/// A place where an earlier copy is that differs: older and newer files, other kinds, what the image does not have.
fn earlier_copy(dir: &Path, name: &str) {
    shell(
        &format!(
            "mkdir -p {name}/etc/sub {name}/src/a && cd {name}
             echo old > etc/a.conf; echo newer > etc/b.conf; echo foreign > etc/own; echo old > src/main.o
             mkfifo src/main.c; ln -s nowhere etc/linked; echo old > etc/symlink; echo old > etc/fifo; chmod 700 etc
             touch -h -d 2001-01-01 etc/a.conf etc/own src/main.o src/main.c etc/linked etc/symlink etc/fifo
             touch -d 2030-01-01 etc/b.conf; touch -d 2020-02-03T04:05:06.7 src/main.o"
        ),
        dir,
    );
}

#[test]
fn overwriting_and_updating_are_those_of_cp() {
    let (image, dir) = tree();
    let mount = image.mount(MountMode::ReadOnly, "").unwrap();
    for (ours, theirs) in [("--overwrite", "--remove-destination"), ("--update", "--remove-destination -u")] {
        earlier_copy(dir.path(), "theirs");
        earlier_copy(dir.path(), "ours");
        shell(
            &format!("cp -a {theirs} {}/etc {}/src theirs", mount.path().display(), mount.path().display()),
            dir.path(),
        );
        get(dir.path(), &format!("{ours} image etc src ours")).succeeded();
        assert_eq!(differences(&dir.path().join("theirs"), &dir.path().join("ours")), "", "{ours}");
        assert_eq!(fs::read(dir.path().join("ours/etc/own")).unwrap(), b"foreign\n");
        let newer = fs::read(dir.path().join("ours/etc/b.conf")).unwrap();
        assert_eq!(newer, if ours == "--update" { &b"newer\n"[..] } else { b"etc/b.conf\n" });
        // Again, there is nothing new.
        let again = get(dir.path(), "--update --json image etc src ours").json();
        assert_eq!(again["files"], 0, "{again}");
        assert_eq!(shell("find ours -name '.undercroft*'", dir.path()), "");
        shell("rm -r ours theirs", dir.path());
    }
    // The root, and a single file.
    earlier_copy(dir.path(), "ours");
    get(dir.path(), "--overwrite image / ours").succeeded();
    assert_eq!(fs::read(dir.path().join("ours/etc/a.conf")).unwrap(), b"etc/a.conf\n");
    fs::write(dir.path().join("one"), "old").unwrap();
    get(dir.path(), "--overwrite image etc/a.conf one").succeeded();
    assert_eq!(fs::read(dir.path().join("one")).unwrap(), b"etc/a.conf\n");
    assert!(get(dir.path(), "--overwrite --update image etc one").stderr.contains("cannot be used with"));
}

/// No link below the destination is followed, and a directory and what is none do not replace each other.
#[test]
fn overwriting_stays_below_its_destination() {
    let image = small(&[("/dir/sub/file", "new"), ("/dir/name", "new"), ("/dir/was", "new")]);
    let dir = tempfile::tempdir().unwrap();
    symlink(image.path(), dir.path().join("image")).unwrap();
    shell(
        "mkdir -p elsewhere dest/dir/was && echo old > elsewhere/file && echo old > elsewhere/name
         ln -s ../../elsewhere dest/dir/sub && ln -s ../../elsewhere/name dest/dir/name",
        dir.path(),
    );
    let run = get(dir.path(), "--overwrite image dir dest");
    assert_eq!(run.code, 1);
    let mut lines: Vec<&str> = run.stderr.lines().collect();
    lines.sort_unstable();
    assert_eq!(
        lines,
        [
            "undercroft: cannot copy /dir/sub to dest/dir: Not a directory",
            "undercroft: cannot name the copy of /dir/was: Is a directory",
        ]
    );
    assert_eq!(shell("cat elsewhere/file elsewhere/name", dir.path()), "old\nold\n");
    assert_eq!(fs::read(dir.path().join("dest/dir/name")).unwrap(), b"new");
    assert!(!fs::symlink_metadata(dir.path().join("dest/dir/name")).unwrap().is_symlink());
    assert!(fs::symlink_metadata(dir.path().join("dest/dir/sub")).unwrap().is_symlink());
}

#[test]
fn a_file_goes_to_standard_output() {
    let (_image, dir) = tree();
    let dir = dir.path();
    assert_eq!(get(dir, "image etc/a.conf -").succeeded(), b"etc/a.conf\n");
    let message = get(dir, "image etc -").failed(7);
    assert_eq!(message, "/etc: is a directory; `--tar` writes a directory to standard output, as an archive");
    let message = get(dir, "image etc/a.conf etc/b.conf -").failed(2);
    assert!(message.starts_with("standard output takes one file; "), "{message}");
    get(dir, "--overwrite image etc/a.conf -").failed(2);
    let archive = get(dir, "--tar image src -").succeeded();
    assert_eq!(listed(&archive), listed(&get(dir, "--tar image src").succeeded()));
    assert!(!dir.join("-").exists());
}

#[test]
fn names_are_told_beside_what_standard_output_has() {
    let (_image, dir) = tree();
    let dir = dir.path();
    let sorted = |text: &str| {
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    let expected = ["/src/a", "/src/a/part.c", "/src/a/part.o"];
    let told = get(dir, "-v image src/a one").text();
    assert_eq!(sorted(&told), expected);
    let json = get(dir, "-rv --json image src/a two");
    assert_eq!(sorted(&json.stderr), expected);
    assert_eq!(serde_json::from_slice::<serde_json::Value>(&json.stdout).unwrap()["files"], 2);
    let tar = get(dir, "-v --tar image src/a");
    assert_eq!(sorted(&tar.stderr), expected);
    assert_eq!(listed(&tar.stdout).lines().count(), 3);
}

//! `get` that is killed, and `get --resume` after it: at the end the tree and the report are those of one run that was
//! not interrupted.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use undercroft_oracle::{Differences, Entry, Manifest, Mke2fs, MountMode, kernel_manifest};

use crate::get::portable;
use crate::support::{PROGRAM, Run, copy_program, run, small, tool};

const NOBODY: u32 = 65534;

/// An image with one of everything that a copy sets metadata on, and a place that any user may write to.
struct Scene {
    dir: tempfile::TempDir,
    image: PathBuf,
    program: PathBuf,
}

impl Scene {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o777)).unwrap();
        let image = Mke2fs::new("ext4", 16).make().unwrap();
        let mount = image.mount(MountMode::ReadWrite, "").unwrap();
        let inside = mount.path();
        fs::create_dir_all(inside.join("tree/closed")).unwrap();
        let tree = inside.join("tree");
        fs::write(tree.join("tool"), "#!").unwrap();
        fs::write(tree.join("closed/file"), "x").unwrap();
        fs::write(tree.join("unreadable"), "secret").unwrap();
        fs::hard_link(tree.join("tool"), tree.join("closed/linked")).unwrap();
        fs::File::create(tree.join("sparse")).unwrap().set_len(3 << 20).unwrap();
        symlink("tool", tree.join("symlink")).unwrap();
        tool("mknod null c 1 3", &tree);
        tool("mkfifo fifo", &tree);
        tool("chown 7:8 tool", &tree);
        tool("chown -h 9:9 symlink", &tree);
        tool("setfattr -n trusted.word -v x tool", &tree);
        tool("setcap cap_net_raw+ep closed/file", &tree);
        for name in ["tool", "closed", "closed/file"] {
            tool(&format!("setfattr -n user.word -v {name} {name}"), &tree);
        }
        tool("setfacl -m u:1:r-x closed", &tree);
        tool("setfacl -d -m u:2:rwx closed", &tree);
        tool("setfacl -m u:1:r fifo", &tree);
        for (name, mode) in
            [("tool", 0o4555), ("closed/file", 0o444), ("closed", 0o2555), ("unreadable", 0), ("fifo", 0o640)]
        {
            fs::set_permissions(tree.join(name), fs::Permissions::from_mode(mode)).unwrap();
        }
        tool("touch -h -d 2001-02-03T04:05:06.7 tool closed/file fifo null sparse symlink closed", &tree);
        mount.unmount().unwrap();
        let reachable = dir.path().join("image");
        fs::copy(image.path(), &reachable).unwrap();
        let program = dir.path().join("undercroft");
        copy_program(&program);
        Self { dir, image: reachable, program }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// `get` of `from` to `dest`, under `strace` with these arguments if there are any.
    fn get(&self, user: Option<u32>, strace: &[&str], options: &[&str], from: &str, dest: &Path) -> Command {
        let mut words: Vec<String> = Vec::new();
        if let Some(user) = user {
            let user = user.to_string();
            words
                .extend(["setpriv", "--reuid", &user, "--regid", &user, "--clear-groups"].map(str::to_owned));
        }
        words.extend(strace.iter().map(|word| (*word).to_owned()));
        words.push(self.program.to_str().unwrap().to_owned());
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).args(["get", "--json"]).args(options).arg(&self.image).arg(from).arg(dest);
        command.stdin(Stdio::null());
        command
    }
}

fn tree(dir: &Path) -> Manifest {
    // What reads the tree moves these.
    portable(kernel_manifest(dir).unwrap()).map(|_, entry: &mut Entry| entry.accessed = (0, 0))
}

/// What a run reports of what the copy lacks: notes, and figures.
fn lacks(run: &Run) -> (String, serde_json::Value) {
    assert_eq!(run.code, 0, "{}", run.stderr);
    let json: serde_json::Value = serde_json::from_slice(&run.stdout).unwrap();
    (run.stderr.clone(), json["not_kept"].clone())
}

/// Kills a copy at each of its calls in turn.
fn killed_everywhere(user: Option<u32>, options: &[&str]) {
    let scene = Scene::new();
    let reference = scene.path("reference");
    let told = lacks(&run(&mut scene.get(user, &[], options, "/tree", &reference)));
    let expected = tree(&reference);
    let mut kills = 0;
    for calls in [
        "?mkdir,mkdirat",
        "flock",
        "?mknod,mknodat",
        "?symlink,symlinkat",
        "?link,linkat",
        "renameat2",
        "?chown,fchownat",
        "fchown",
        "?chmod,fchmodat",
        "fchmod",
        "fsetxattr",
        "setxattr",
        "utimensat",
        "pwrite64",
    ] {
        for when in 1.. {
            let copy = scene.path("copy");
            let trace = format!("trace={calls}");
            let inject = format!("inject={calls}:signal=SIGKILL:when={when}");
            let strace = ["strace", "-f", "-qq", "-o", "/dev/null", "-e", &trace, "-e", &inject];
            let status = scene.get(user, &strace, options, "/tree", &copy).output().unwrap().status;
            let killed = status.signal() == Some(9);
            assert!(killed || status.success(), "strace is needed for this test: {status}");
            kills += usize::from(killed);
            let again = run(&mut scene.get(user, &[], &[&["--resume"], options].concat(), "/tree", &copy));
            let shown = format!("killed at {calls} number {when}");
            assert_eq!(lacks(&again), told, "{shown}");
            Differences::between(&expected, &tree(&copy)).assert_none(&shown);
            fs::remove_dir_all(&copy).unwrap();
            if !killed {
                break;
            }
        }
    }
    assert!(kills > 20, "{kills}");
}

#[test]
fn a_copy_by_root_that_is_killed_anywhere_is_completed() {
    killed_everywhere(None, &["--special"]);
}

#[test]
fn a_copy_by_a_user_that_is_killed_anywhere_is_completed() {
    killed_everywhere(Some(NOBODY), &[]);
}

/// Over a copy made with other options, or as another user, `--resume` makes what one run with the new ones makes.
#[test]
fn a_complete_copy_gets_what_other_options_keep() {
    let scene = Scene::new();
    let (reference, copy) = (scene.path("reference"), scene.path("copy"));
    let told = lacks(&run(&mut scene.get(None, &[], &["--special"], "/tree", &reference)));
    lacks(&run(&mut scene.get(None, &[], &[], "/tree", &copy)));
    let run = run(&mut scene.get(None, &[], &["--resume", "--special"], "/tree", &copy));
    assert_eq!(lacks(&run), told);
    Differences::between(&tree(&reference), &tree(&copy)).assert_none("the copy");
}

/// What another user made may be anything that looks the same, and would get the original's owner and rights.
#[test]
fn root_does_not_go_on_with_what_another_user_made() {
    let scene = Scene::new();
    let copy = scene.path("copy");
    lacks(&run(&mut scene.get(Some(NOBODY), &[], &[], "/tree", &copy)));
    let refused = run(&mut scene.get(None, &[], &["--resume", "--special"], "/tree", &copy));
    assert_ne!(refused.code, 0);
    assert!(refused.stderr.contains("something else has the name of the copy of"), "{}", refused.stderr);
}

/// The other way round, what is no longer kept is taken off; a device node is named, for nothing is removed.
#[test]
fn a_complete_copy_loses_what_other_options_leave_out() {
    let scene = Scene::new();
    let (reference, copy) = (scene.path("reference"), scene.path("copy"));
    let told = lacks(&run(&mut scene.get(None, &[], &[], "/tree", &reference)));
    lacks(&run(&mut scene.get(None, &[], &["--special"], "/tree", &copy)));
    let refused = run(&mut scene.get(None, &[], &["--resume"], "/tree", &copy));
    assert_eq!(refused.code, 1);
    let complaint = "undercroft: the copy has the device node /tree/null from an earlier run with --special; remove it, \
                     or keep device nodes by --special";
    assert!(refused.stderr.lines().any(|line| line == complaint), "{}", refused.stderr);
    fs::remove_file(copy.join("null")).unwrap();
    assert_eq!(lacks(&run(&mut scene.get(None, &[], &["--resume"], "/tree", &copy))), told);
    Differences::between(&tree(&reference), &tree(&copy)).assert_none("the copy");
}

/// A default ACL of the place is none of the original's.
#[test]
fn a_copy_takes_no_acl_from_its_place() {
    let scene = Scene::new();
    let (reference, place) = (scene.path("reference"), scene.path("place"));
    fs::create_dir(&place).unwrap();
    tool("setfacl -d -m u:3:rwx place", scene.dir.path());
    let told = lacks(&run(&mut scene.get(None, &[], &[], "/tree", &reference)));
    assert_eq!(lacks(&run(&mut scene.get(None, &[], &[], "/tree", &place))), told);
    Differences::between(&tree(&reference), &tree(&place.join("tree"))).assert_none("the copy");
}

fn partials(dir: &Path) -> Vec<String> {
    let names = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.starts_with(".undercroft-partial")).collect()
}

/// What a killed copy of a single file left goes with the next copy to the same place, with `--resume` or without.
#[test]
fn leftovers_of_a_single_file_are_removed() {
    let scene = Scene::new();
    for user in [None, Some(NOBODY)] {
        for (from, call) in
            [("/tree/tool", "fsetxattr"), ("/tree/tool", "renameat2"), ("/tree/unreadable", "renameat2")]
        {
            for options in [&[][..], &["--resume"]] {
                let (dir, copy) = (scene.path("place"), scene.path("place/copy"));
                fs::create_dir(&dir).unwrap();
                fs::set_permissions(&dir, fs::Permissions::from_mode(0o777)).unwrap();
                let (trace, inject) = (format!("trace={call}"), format!("inject={call}:signal=SIGKILL"));
                let strace = ["strace", "-f", "-qq", "-o", "/dev/null", "-e", &trace, "-e", &inject];
                let status = scene.get(user, &strace, &[], from, &copy).output().unwrap().status;
                assert_eq!(status.signal(), Some(9), "{from} {call}");
                assert_eq!(partials(&dir).len(), 1);
                lacks(&run(&mut scene.get(user, &[], options, from, &copy)));
                assert_eq!(partials(&dir), [""; 0], "{user:?} {from} {call} {options:?}");
                assert!(copy.exists());
                fs::remove_dir_all(&dir).unwrap();
            }
        }
    }
}

/// Other users' files, those that a process holds locked, and those that only look alike.
#[test]
fn leftovers_that_are_not_ours_or_in_use_stay() {
    let scene = Scene::new();
    let dir = scene.path("place");
    fs::create_dir(&dir).unwrap();
    fs::set_permissions(&dir, fs::Permissions::from_mode(0o777)).unwrap();
    // A process number that no process has.
    let gone = i32::MAX - 1;
    let ours = format!(".undercroft-partial-{NOBODY}-{gone}-1");
    let locked = format!(".undercroft-partial-{NOBODY}-{gone}-2");
    let of_root = format!(".undercroft-partial-0-{gone}-3");
    let root_made = format!(".undercroft-partial-{NOBODY}-{gone}-4");
    let directory = format!(".undercroft-partial-{NOBODY}-{gone}-5");
    let (note, short) = (".undercroft-partial-notes".to_owned(), ".undercroft-partial-1-1".to_owned());
    for name in [&ours, &locked, &of_root, &root_made, &note, &short] {
        fs::write(dir.join(name), "").unwrap();
    }
    fs::create_dir(dir.join(&directory)).unwrap();
    for name in [&ours, &locked, &of_root, &directory, &note, &short] {
        tool(&format!("chown {NOBODY} {name}"), &dir);
    }
    let holder = fs::File::open(dir.join(&locked)).unwrap();
    holder.lock().unwrap();
    lacks(&run(&mut scene.get(Some(NOBODY), &[], &[], "/tree/sparse", &dir.join("copy"))));
    let mut left = partials(&dir);
    left.sort();
    let mut expected = vec![locked, of_root, root_made, directory, note, short];
    expected.sort();
    assert_eq!(left, expected);
}

/// DEST of a copy that is gone on with is the copy itself, unless the first run put it into DEST under its own name.
#[test]
fn the_same_command_with_resume_goes_on_where_the_first_run_wrote() {
    let image = small(&[("/dir/file", "content")]);
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("other"), "of the user").unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o711)).unwrap();
    let get = |options: &[&str]| {
        run(Command::new(PROGRAM).arg("get").args(options).arg(image.path()).arg("/dir").arg(dir.path()))
    };
    let message = get(&["--resume"]).failed(8);
    let shown = dir.path().display();
    assert_eq!(
        message,
        format!("{shown} is no copy of /dir: it has other; name the copy itself, as in {shown}/dir")
    );
    get(&[]).succeeded();
    fs::remove_file(dir.path().join("dir/file")).unwrap();
    get(&["--resume"]).succeeded();
    assert_eq!(fs::read(dir.path().join("dir/file")).unwrap(), b"content");
    assert!(!dir.path().join("file").exists());
    assert_eq!(fs::metadata(dir.path()).unwrap().mode() & 0o7777, 0o711);
}

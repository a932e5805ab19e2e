//! `md`, and arrays in an image's place: made, filled, failing, rebuilt, checked, each step by another process.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::support::{PROGRAM, Run, run, tool, undercroft};

/// Files that are members, in a directory of their own, in which everything runs.
struct Members(tempfile::TempDir);

impl Members {
    /// An array of these members, as `md create` makes it.
    fn create(options: &str, names: &str) -> Self {
        let all = Self(tempfile::tempdir().unwrap());
        all.run(&format!("md create --member-size 16M {options} {names}")).succeeded();
        all
    }

    fn dir(&self) -> &Path {
        self.0.path()
    }

    /// Runs the program there, its arguments separated by spaces.
    fn run(&self, args: &str) -> Run {
        run(Command::new(PROGRAM).args(args.split(' ')).current_dir(self.dir()))
    }

    fn status(&self, array: &str) -> serde_json::Value {
        let run = self.run(&format!("md status --json {array}"));
        assert_eq!(run.code, 0, "{}", run.stderr);
        serde_json::from_slice(&run.stdout).unwrap()
    }
}

/// Of a run that succeeded, and had something to remark.
fn noted(run: Run, part: &str) -> String {
    assert_eq!(run.code, 0, "{}", run.stderr);
    assert!(run.stderr.lines().all(|line| line.starts_with("undercroft: note: ")), "{}", run.stderr);
    assert!(run.stderr.contains(part), "{part} in {}", run.stderr);
    String::from_utf8(run.stdout).unwrap()
}

/// The last line of a run that failed with this code, and had something to remark before.
fn noted_failure(run: &Run, code: i32) -> String {
    assert_eq!(run.code, code, "{}", run.stderr);
    run.stderr.lines().last().unwrap_or_default().to_owned()
}

#[test]
fn an_array_is_an_image_and_outlives_its_members() {
    let members = Members::create("-l 5 --chunk 64K --name home", "a b c d");
    let all = "md:a,b,c,d";
    members.run(&format!("mkfs ext4 {all}")).succeeded();
    let before = members.status(all);
    assert_eq!((&before["level"], &before["state"]), (&"raid5".into(), &"clean, read-only".into()));
    assert_eq!((&before["name"], &before["chunk_bytes"]), (&"home".into(), &65536.into()));
    let info = members.run(&format!("info --json {all}")).json();
    assert_eq!(info["state"]["clean"], true);
    assert!(members.run(&format!("ls {all}")).text().contains("lost+found"));

    let failed = members.run(&format!("md fail {all} b")).text();
    assert!(failed.contains("clean, degraded") && failed.contains("faulty"), "{failed}");
    // Also found by their superblocks; the one that failed is there, and left out.
    for array in ["md:.", "md:a,c,d", all] {
        assert!(noted(members.run(&format!("ls {array}")), "it lacks 1 member").contains("lost+found"));
        let checked = noted(members.run(&format!("check {array}")), "degraded");
        assert!(checked.contains("clean"), "{checked}");
    }
    assert_eq!(members.status("md:.")["missing_roles"], serde_json::json!([1]));

    let added = members.run("md add --json --member-size 16M md:a,c,d e");
    let added: serde_json::Value = serde_json::from_slice(&added.stdout).unwrap();
    assert_eq!((&added["degraded"], &added["finished"]["action"]), (&0.into(), &"recovery".into()));
    let checked = members.run("md check --json md:a,c,d,e").json();
    assert_eq!(checked["finished"], serde_json::json!({"action": "check", "mismatched_bytes": 0}));
    members.run("check md:a,c,d,e").succeeded();

    // Without another of the first members, what was rebuilt is read.
    members.run("md fail md:a,c,d,e a").succeeded();
    noted(members.run("check md:c,d,e"), "degraded");
}

#[test]
fn a_failure_at_one_of_several_members_says_what_was_done() {
    let members = Members::create("-l 5", "a b c");
    let message = members.run("md fail md:a,b,c a b c").failed(1);
    for part in ["b cannot be declared failed", "a was declared failed", "c was not declared failed"] {
        assert!(message.contains(part), "{part}: {message}");
    }
    assert_eq!(members.status("md:.")["missing_roles"], serde_json::json!([0]));
    // What was made for a device that became a member stays when the next one is refused.
    fs::write(members.dir().join("tiny"), vec![0; 1 << 20]).unwrap();
    let message = noted_failure(&members.run("md add --member-size 16M md:a,b,c e tiny"), 1);
    assert!(message.contains("tiny") && message.contains("e was added"), "{message}");
    noted(members.run("md stop md:b,c,e"), "degraded");
    assert_eq!(members.status("md:b,c,e")["degraded"], 0);
}

#[test]
fn what_is_written_through_a_mount_survives_a_lost_member() {
    let members = Members::create("-l 6 --chunk 64K --bitmap internal", "a b c d e");
    members.run("mkfs ext4 md:a,b,c,d,e -E root_owner=0:0").succeeded();
    fs::create_dir(members.dir().join("point")).unwrap();
    members.run("mount -o rw md:a,b,c,d,e point").succeeded();
    let source = tool("findmnt -no SOURCE point", members.dir());
    let absolute = ["a", "b", "c", "d", "e"].map(|name| members.dir().join(name).display().to_string());
    assert_eq!(source.trim(), format!("md:{}", absolute.join(",")));
    tool("cp -a /usr/include/linux point", members.dir());
    members.run("unmount point").succeeded();
    assert_eq!(members.status("md:.")["state"], "clean, read-only");
    members.run("md fail md:a,b,c,d,e a c").succeeded();
    noted(members.run("get md:b,d,e /linux copy"), "it lacks 2 members");
    tool("diff -r --no-dereference /usr/include/linux copy", members.dir());
    // Changes on trial reach no member.
    let before = fs::read(members.dir().join("b")).unwrap();
    noted(members.run("mount --snapshot md:b,d,e point"), "degraded");
    tool("rm -r point/linux", members.dir());
    members.run("unmount point").succeeded();
    assert!(fs::read(members.dir().join("b")).unwrap() == before);
    // Nothing was written since they left, so the bitmap lets them come back at once.
    let back = members.run("md add --json md:b,d,e a c");
    let back: serde_json::Value = serde_json::from_slice(&back.stdout).unwrap();
    assert_eq!(back["degraded"], 0, "{back}");
    assert_eq!(back["members"].as_array().unwrap().len(), 5);
    members.run("md check md:.").succeeded();
    members.run("check md:.").succeeded();
}

/// A member lies in the filesystem of a server that is stopped: readers do not wait for it, and writers only until the
/// limit is over. The loss of the member is reported, in the log and to a program.
#[test]
fn a_member_whose_server_is_stopped_does_not_stop_the_array() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    fs::create_dir(at("served")).unwrap();
    fs::create_dir(at("point")).unwrap();
    let mut server = Command::new(PROGRAM)
        .args(["mount", "--foreground", "--announce", "tmpfs:"])
        .arg(at("served"))
        .args(["-o", "size=64M"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut word = String::new();
    BufReader::new(server.stdout.take().unwrap()).read_line(&mut word).unwrap();
    assert_eq!(word, "ready\n");
    let run = |args: &str| run(Command::new(PROGRAM).args(args.split(' ')).current_dir(dir.path()));
    let signal = |name: &str| tool(&format!("kill -{name} {}", server.id()), dir.path());

    run("md create --member-size 16M -l 1 a served/b").succeeded();
    run("mkfs ext4 md:a,served/b").succeeded();
    run("mount -o rw md:a,served/b point").succeeded();
    fs::write(at("point/before"), vec![7; 1 << 20]).unwrap();
    run("unmount point").succeeded();

    fs::write(at("program"), "#!/bin/sh\necho \"$*: $UNDERCROFT_EVENT\" >> \"$(dirname \"$0\")/told\"\n")
        .unwrap();
    fs::set_permissions(at("program"), fs::Permissions::from_mode(0o755)).unwrap();
    let program = at("program").display().to_string();
    let array = "md:a,served/b?member_timeout=2";
    run(&format!("mount -o rw --direct --log log --monitor {program} {array} point")).succeeded();
    signal("STOP");
    assert!(fs::read(at("point/before")).unwrap() == vec![7; 1 << 20]);
    tool("dd if=/dev/zero of=point/after bs=64K count=16 conv=fsync status=none", dir.path());
    assert!(fs::read(at("point/before")).unwrap() == vec![7; 1 << 20]);
    signal("CONT");
    assert_eq!(run("unmount point").code, 0);
    let lines = |name: &str| fs::read_to_string(at(name)).unwrap_or_default();
    // The log has it when the mount has ended; the program is on its own.
    let log = lines("log");
    let failed = "served/b failed: ";
    assert!(log.contains(failed) && log.contains("no answer for 2 s (member_timeout)"), "{log}");
    while !lines("told").ends_with('\n') {
        std::thread::yield_now();
    }
    let told = lines("told");
    assert!(told.starts_with(&format!("Fail {array} served/b: member {failed}")), "{told}");
    run(&format!("mount --log log2 {array} point"));
    assert_eq!(run("unmount point").code, 0);
    let log = lines("log2");
    assert!(log.contains("the array is degraded: it lacks 1 member"), "{log}");

    let status: serde_json::Value =
        serde_json::from_slice(&run("md status --json md:a,served/b").stdout).unwrap();
    assert_eq!(status["degraded"], 1, "{status}");

    // Once more, served in the foreground: there, standard error has it.
    let added = run("md add --json md:a served/b");
    assert_eq!(added.code, 0, "{}", added.stderr);
    let mut foreground = Command::new(PROGRAM)
        .args(["mount", "--foreground", "-o", "rw", "--direct", array, "point"])
        .current_dir(dir.path())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    while !at("point/before").exists() {
        assert!(foreground.try_wait().unwrap().is_none(), "the mount has ended");
    }
    signal("STOP");
    tool("dd if=/dev/zero of=point/again bs=64K count=16 conv=fsync status=none", dir.path());
    signal("CONT");
    assert_eq!(run("unmount point").code, 0);
    let told = String::from_utf8(foreground.wait_with_output().unwrap().stderr).unwrap();
    assert!(told.contains(&format!("undercroft: {array}: member {failed}")), "{told}");
    assert!(told.contains("no answer for 2 s (member_timeout)"), "{told}");
    assert_eq!(run("check md:a,served/b").code, 0);
    run("unmount served").succeeded();
    assert_eq!(server.wait().unwrap().code(), Some(0));
}

/// The program is killed at each write and each flush while it records that a member failed: the array starts without
/// force, with the others in sync, and the member comes back.
#[test]
fn a_member_that_was_being_failed_when_the_program_was_killed_costs_no_other() {
    let members = Members::create("-l 5 --chunk 64K", "a b c");
    members.run("mkfs ext4 md:a,b,c").succeeded();
    tool("mkdir whole", members.dir());
    tool("cp --sparse=always a b c whole", members.dir());
    let mut kills = 0;
    for call in ["pwrite64", "fdatasync"] {
        for when in 1.. {
            tool("cp --sparse=always whole/a whole/b whole/c .", members.dir());
            let status = Command::new("strace")
                .args(["-f", "-qq", "-o", "/dev/null", "-e", &format!("trace={call}")])
                .args(["-e", &format!("inject={call}:signal=SIGKILL:when={when}")])
                .args([PROGRAM, "md", "fail", "--json", "md:a,b,c", "b"])
                .current_dir(members.dir())
                .output()
                .unwrap()
                .status;
            let killed = status.signal() == Some(9);
            assert!(killed || status.success(), "strace is needed for this test: {status}");
            kills += usize::from(killed);
            let what = format!("killed at {call} number {when}");
            let run = |args: &str| {
                let run = members.run(args);
                assert_eq!(run.code, 0, "{what}: {args}: {}", run.stderr);
            };
            if members.status("md:a,b,c")["degraded"] == 0 {
                run("md fail md:a,b,c b");
            }
            let left = members.status("md:a,b,c");
            assert_eq!(
                (&left["degraded"], &left["missing_roles"]),
                (&1.into(), &vec![1].into()),
                "{what}: {left}"
            );
            run("md add --json md:a,c b");
            assert_eq!(members.status("md:a,b,c")["degraded"], 0, "{what}");
            run("md check md:a,b,c");
            run("check md:a,b,c");
            if !killed {
                break;
            }
        }
    }
    assert!(kills >= 6, "{kills}");
}

/// A monitor that could not report a lost member is refused before there is a mount.
#[test]
fn a_program_to_monitor_is_there_and_can_be_run() {
    let members = Members::create("-l 1", "a b");
    members.run("mkfs ext4 md:a,b").succeeded();
    members.run("mkfs ext4 plain --size 8M").succeeded();
    fs::create_dir(members.dir().join("point")).unwrap();
    fs::write(members.dir().join("text"), "no program").unwrap();
    for how in ["", "--foreground "] {
        let refused = |program: &str, image: &str, code: i32| {
            members.run(&format!("mount {how}--monitor {program} {image} point")).failed(code)
        };
        let of = |program: &str, why: &str| {
            format!("cannot run the program {program} of `--monitor`: {why}; name an executable file")
        };
        assert_eq!(refused("./none", "md:a,b", 8), of("./none", "No such file or directory"));
        assert_eq!(
            refused("no-such-command", "md:a,b", 8),
            of("no-such-command", "no directory of PATH has it")
        );
        assert_eq!(refused("./text", "md:a,b", 8), of("./text", "Permission denied"));
        assert_eq!(refused("./point", "md:a,b", 8), of("./point", "it is not a file"));
        for image in ["plain", "tmpfs:"] {
            let message = refused("true", image, 2);
            let expected =
                format!("`--monitor` is for arrays, and {image} is none; leave it out, or mount an array: ");
            assert!(message.starts_with(&expected), "{message}");
        }
    }
    assert!(!tool("findmnt -rno TARGET", members.dir()).contains(members.dir().to_str().unwrap()));
}

/// The process that serves has another working directory, and the log is all that stays of a degraded start.
#[test]
fn a_degraded_start_calls_a_program_named_relatively_and_is_logged_with_the_members_left_out() {
    let members = Members::create("-l 1", "a b");
    members.run("mkfs ext4 md:a,b").succeeded();
    assert_eq!(members.run("md fail md:a,b b").code, 0);
    let (dir, at) = (members.dir(), |name: &str| members.dir().join(name));
    fs::create_dir(at("point")).unwrap();
    fs::write(at("program"), "#!/bin/sh\necho \"$*\" >> \"$(dirname \"$0\")/told\"\n").unwrap();
    fs::set_permissions(at("program"), fs::Permissions::from_mode(0o755)).unwrap();
    assert_eq!(members.run("mount --log log --monitor ./program md:a,b point").code, 0);
    tool("ls point", dir);
    assert_eq!(members.run("unmount point").code, 0);
    let log = fs::read_to_string(at("log")).unwrap();
    assert!(log.contains("md:a,b: b was left out: "), "{log}");
    assert!(log.contains("the array is degraded: it lacks 1 member"), "{log}");
    let told = || fs::read_to_string(at("told")).unwrap_or_default();
    while !told().ends_with('\n') {
        std::thread::yield_now();
    }
    assert_eq!(told(), "DegradedArray md:a,b\n");
}

#[test]
fn a_member_is_replaced_while_it_is_there() {
    let members = Members::create("-l 1 --metadata 1.0 --spare s", "a b");
    members.run("mkfs ext4 md:a,b,s").succeeded();
    let replaced = members.run("md replace --json md:. a").json();
    let of = |number: u64| {
        let members = replaced["members"].as_array().unwrap();
        members.iter().find(|member| member["number"] == number).unwrap()["state"].clone()
    };
    assert_eq!((of(1), of(2)), ("active sync".into(), "active sync".into()));
    noted(members.run("md replace --with n --member-size 16M md:. b"), "left out");
    let message = members.run("md replace md:n,s s").failed(2);
    assert!(message.contains("no spare") && message.contains("--with"), "{message}");
    members.run("md check md:n,s").succeeded();
    members.run("check md:n,s").succeeded();
}

/// As for `mdadm --replace --with`, whichever spare is the first one, and whether the array is mounted or not.
#[test]
fn what_is_named_takes_the_place_and_no_other_spare() {
    let members = Members::create("-l 1 --spare s --spare t", "a b");
    members.run("mkfs ext4 md:a,b,s,t").succeeded();
    let state = |report: &serde_json::Value, name: &str| {
        let of_name = |member: &&serde_json::Value| {
            member["device"].as_str().is_some_and(|device| Path::new(device).ends_with(name))
        };
        let found = report["members"].as_array().unwrap().iter().find(of_name);
        found.map_or_else(|| panic!("{name} in {report}"), |member| member["state"].clone())
    };
    let replaced = members.run("md replace --json md:a,b,s,t a --with t").json();
    assert_eq!((state(&replaced, "t"), state(&replaced, "s")), ("active sync".into(), "spare".into()));
    // A new device, where there is a spare too.
    let replaced = members.run("md replace --json md:b,s,t b --with n --member-size 16M").json();
    assert_eq!((state(&replaced, "n"), state(&replaced, "s")), ("active sync".into(), "spare".into()));
    fs::create_dir(members.dir().join("point")).unwrap();
    members.run("mount -o rw md:n,s,t point").succeeded();
    let message = members.run("md replace point t --with n").failed(2);
    assert!(message.contains("n has a role in"), "{message}");
    let replaced = members.run("md replace --json point t --with s").json();
    assert_eq!(state(&replaced, "s"), "active sync");
    members.run("unmount point").succeeded();
    members.run("md check md:n,s").succeeded();
    members.run("check md:n,s").succeeded();
}

#[test]
fn what_has_failed_neither_takes_a_place_nor_is_replaced() {
    let members = Members::create("-l 1 --spare s", "a b");
    members.run("mkfs ext4 md:a,b,s").succeeded();
    fs::create_dir(members.dir().join("point")).unwrap();
    members.run("mount -o rw md:a,b,s point").succeeded();
    members.run("md fail point s").succeeded();
    let message = members.run("md replace point a --with s").failed(2);
    assert!(message.contains("s has failed in") && message.contains("md remove"), "{message}");
    // What it says can be done.
    members.run("md remove point s").succeeded();
    members.run("md add point s").succeeded();
    members.run("md replace point a --with s").succeeded();
    let message = members.run("md replace point a --with n").failed(2);
    assert!(message.contains("a has failed in") && message.contains("md add"), "{message}");
    assert!(!members.dir().join("n").exists());
    members.run("unmount point").succeeded();
    members.run("md check md:b,s").succeeded();
}

/// What is added to a degraded array gets the empty role at once, so nothing is added for another one.
#[test]
fn no_member_of_a_degraded_array_is_replaced() {
    let members = Members::create("-l 1", "a b");
    assert_eq!(members.run("md fail md:a,b b").code, 0);
    let message = noted_failure(&members.run("md replace md:a a --with n --member-size 16M"), 2);
    assert!(message.contains("md:a lacks 1 member, and n would be given that role"), "{message}");
    assert!(!members.dir().join("n").exists());
    assert!(!noted(members.run("md status md:a"), "b").contains("rebuilding"));
}

/// Spares that are not named keep their numbers, and so does one that is named only to take a place.
#[test]
fn spares_that_are_not_open_keep_their_numbers() {
    let members = Members::create("-l 1 --spare s --spare t", "a b");
    members.run("md replace md:a,b a --with t").succeeded();
    let told = members.run("md status md:b,t,s").text();
    assert!(told.contains("active sync") && told.contains("spare"), "{told}");
    members.run("md check md:b,t,s").succeeded();
}

#[test]
fn what_differs_is_counted_and_mended() {
    let members = Members::create("-l 1", "a b");
    let file = fs::OpenOptions::new().write(true).open(members.dir().join("b")).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, &[7; 4096], 8 << 20).unwrap();
    let checked = members.run("md check md:a,b");
    assert_eq!(checked.code, 5, "{}", checked.stderr);
    assert!(String::from_utf8(checked.stdout).unwrap().contains("md repair"));
    let repaired = members.run("md repair --json md:a,b").json();
    assert!(repaired["finished"]["mismatched_bytes"].as_u64().unwrap() >= 4096);
    assert!(members.run("md check md:a,b").text().contains("0 mismatches"));
}

#[test]
fn members_tell_of_themselves() {
    let members =
        Members::create("-l 10 -p f2 -c 64K -k bitmap -u 01234567:89abcdef:01234567:89abcdef", "a b c");
    let text = members.run("md examine a").text();
    assert!(text.contains("raid10") && text.contains("01234567:89abcdef"), "{text}");
    let all = members.run("md examine --json a b c").json();
    for (number, member) in all.as_array().unwrap().iter().enumerate() {
        assert_eq!((&member["role"], &member["level"]), (&number.into(), &"raid10".into()));
        assert_eq!((&member["layout"], &member["array_state"]), (&"far=2".into(), &"AAA".into()));
        assert_eq!(member["array_uuid"], "01234567-89ab-cdef-0123-456789abcdef");
        assert_eq!((&member["clean"], &member["bitmap"]["dirty_bits"]), (&true.into(), &0.into()));
    }
    fs::write(members.dir().join("none"), [0; 65536]).unwrap();
    let mixed = members.run("md examine --json a none");
    assert_eq!(mixed.code, 1, "{}", mixed.stderr);
    assert!(mixed.stderr.contains("none has no md superblock"), "{}", mixed.stderr);
}

#[test]
fn several_arrays_in_a_directory_are_told_apart() {
    let members = Members::create("-l 0 -c 64K", "a b");
    members.run("md create -l linear --name other --member-size 8M x y").succeeded();
    let message = members.run("md status md:.").failed(3);
    assert!(message.contains("\"other\", 2 members") && message.contains("?uuid="), "{message}");
    let uuid = members.run("md examine --json x").json()[0]["array_uuid"].as_str().unwrap().to_owned();
    assert_eq!(members.status(&format!("md:.?uuid={uuid}"))["level"], "linear");
    let message = members.run("md status md:a,x").failed(3);
    assert!(message.contains("give the members of one array"), "{message}");
    let message = members.run("md status md:.?uuid=01234567-89ab-cdef-0123-456789abcdef").failed(3);
    assert!(message.contains("no member of this array"), "{message}");
}

#[test]
fn nothing_is_written_over_or_left_behind_by_mistake() {
    let members = Members::create("-l 5", "a b c");
    let before = fs::read(members.dir().join("a")).unwrap();
    let message = members.run("md create -l 1 a b").failed(8);
    assert!(message.contains("a holds a member of the array") && message.contains("--force"), "{message}");
    assert!(fs::read(members.dir().join("a")).unwrap() == before);
    undercroft(["mkfs", "ext2", members.dir().join("fs").to_str().unwrap(), "--size", "16M"]).succeeded();
    let message = members.run("md create -l 1 --member-size 16M new fs").failed(8);
    assert!(message.contains("fs holds an ext2 filesystem"), "{message}");
    assert!(!members.dir().join("new").exists());
    members.run("md create -l 1 --force --member-size 16M new fs").succeeded();

    for (args, code, word) in [
        ("md create -l 7 x y", 2, "there are linear"),
        ("md create -l 5 -p n2 x y z", 2, "no layout"),
        ("md create -l 5 x y z", 3, "--member-size"),
        ("md create -l 1 -c 64K --member-size 16M x y", 2, "no chunks"),
        ("md create -l 6 --member-size 16M x y z", 2, "too few"),
        ("md create -l 5 -b internal -k ppl --member-size 16M x y z", 2, "exclude"),
        ("md status a", 2, "md:DIR"),
        ("md status md:", 2, "no name"),
        ("md status md:a,,b", 2, "no name"),
        ("md status md:a,none", 3, "check the path"),
        ("md status md:a", 3, "too few members"),
        ("md status md:fs,a", 3, "give the members of one array"),
        ("md fail md:a,b,c z", 2, "its members are a, b, c"),
        ("md fail md:a,b,c 7", 2, "its members are a, b, c"),
        ("md remove md:a,b,c a", 2, "is in use"),
        ("md replace md:a,b,c a", 2, "--with"),
        ("md add md:a,b,c z", 3, "--member-size"),
        ("md add md:a,b fs", 3, "?degraded"),
        ("mkfs ext4 md:a,b", 3, "?degraded"),
        ("md check --speed 0 md:a,b,c", 2, "--speed"),
    ] {
        let message = members.run(args).failed(code);
        assert!(message.contains(word), "{args}: {word}: {message}");
    }
    assert!(!members.dir().join("x").exists() && !members.dir().join("z").exists());
    assert!(fs::read(members.dir().join("a")).unwrap() == before, "a refusal wrote to a member");
}

#[test]
fn a_spare_is_removed_and_forgotten() {
    let members = Members::create("-l 5 --spare s", "a b c");
    let fails = members.run("md fail --json md:. a").json();
    assert_eq!((&fails["degraded"], &fails["finished"]["action"]), (&0.into(), &"recovery".into()));
    noted(members.run("md add --member-size 16M md:. t"), "left out");
    noted(members.run("md remove --erase md:. t a"), "left out");
    let message = members.run("md examine t").failed(4);
    assert!(message.contains("no md superblock"), "{message}");
    assert_eq!(members.status("md:.")["notes"], serde_json::json!([]));
    let message = members.run("md fail md:b,c,s t").failed(2);
    assert!(message.contains("no member"), "{message}");
}

/// Work that was left undone goes on when the array is opened for writing again.
#[test]
fn a_rebuild_that_was_not_waited_for_goes_on() {
    let members = Members::create("-l 5 -c 64K", "a b c");
    members.run("mkfs ext4 md:.").succeeded();
    members.run("md fail md:. b").succeeded();
    noted(members.run("md add --no-wait --member-size 16M md:a,c d"), "degraded");
    let run = members.run("md stop --json md:a,c,d");
    let stopped: serde_json::Value = serde_json::from_slice(&run.stdout).unwrap();
    assert_eq!((&stopped["degraded"], &stopped["state"]), (&0.into(), &"clean".into()), "{stopped}");
    members.run("md check md:a,c,d").succeeded();
    members.run("check md:a,c,d").succeeded();
}

/// A member that is not there yet, as mdadm writes it.
#[test]
fn an_array_is_made_without_a_member() {
    let members = Members::create("-l 5 -c 64K", "a missing c");
    let status = members.status("md:a,c");
    assert_eq!((&status["degraded"], &status["missing_roles"]), (&1.into(), &serde_json::json!([1])));
    assert_eq!(
        (&status["state"], &status["raid_devices"]),
        (&"clean, degraded, read-only".into(), &3.into())
    );
    let said = tool("mdadm --examine c", members.dir());
    for line in ["Device Role : Active device 2", "Array State : A.A", "Raid Devices : 3", "State : clean"] {
        assert!(said.contains(line), "{line} in {said}");
    }
    noted(members.run("mkfs ext4 md:a,c"), "it lacks 1 member");
    let added = members.run("md add --json --member-size 16M md:a,c b");
    assert_eq!(added.code, 0, "{}", added.stderr);
    assert_eq!(members.status("md:.")["degraded"], 0);
    members.run("md check md:.").succeeded();
    members.run("check md:.").succeeded();
    let message = members.run("md create -l 5 --member-size 16M x missing missing").failed(2);
    assert!(message.contains("cannot do without 2"), "{message}");
    assert!(!members.dir().join("x").exists());
}

/// What Linux's own tool says of what was made here.
#[test]
fn mdadm_takes_the_members() {
    let members = Members::create("-l 5 -c 64K --homehost here --name there", "a b c d");
    members.run("md fail md:. b").succeeded();
    let said = tool("mdadm --examine a", members.dir());
    for line in ["Name : here:there", "State : clean", "Array State : A.AA", "Chunk Size : 64K"] {
        assert!(said.contains(line), "{line} in {said}");
    }
    assert!(said.contains(" - correct"), "{said}");
}

/// What is said of a run that came to nothing.
fn refused(run: Run) -> String {
    assert_ne!(run.code, 0, "{}", String::from_utf8_lossy(&run.stdout));
    run.stderr
}

/// Both halves of a mirror were written to while the other was away: neither is taken before the user has chosen.
#[test]
fn halves_of_a_mirror_that_were_written_apart_are_not_merged() {
    for options in ["-l 1", "-l 1 --bitmap internal"] {
        let members = Members::create(options, "a b");
        members.run("mkfs ext4 md:a,b").succeeded();
        let uuids = ["8c7a7d10-0000-4000-8000-000000000001", "8c7a7d10-0000-4000-8000-000000000002"];
        for (half, uuid) in ["a", "b"].into_iter().zip(uuids) {
            noted(
                members.run(&format!("mkfs ext4 --force -U {uuid} md:{half}?degraded")),
                "it lacks 1 member",
            );
        }
        for array in ["md:a,b", "md:.", "md:a,b?force"] {
            let message = refused(members.run(&format!("info {array}")));
            assert!(message.matches(" events, last written ").count() == 2, "{message}");
            assert!(message.contains("give only the members of the part to keep"), "{message}");
        }
        let refused = self::refused(members.run("md add md:a?degraded b"));
        assert!(refused.matches(" events, last written ").count() == 2, "{refused}");
        assert!(refused.contains("--force"), "{refused}");
        // Nothing was merged: each still has its own.
        for (half, uuid) in ["a", "b"].into_iter().zip(uuids) {
            assert!(noted(members.run(&format!("info md:{half}")), "it lacks 1 member").contains(uuid));
        }
        let run = members.run("md add --force md:a?degraded b");
        assert_eq!(run.code, 0, "{}", run.stderr);
        members.run("md check md:a,b").succeeded();
        assert!(members.run("info md:a,b").text().contains(uuids[0]));
    }
}

/// The count is where Linux keeps it.
#[test]
fn corrected_read_errors_are_shown() {
    let members = Members::create("-l 1", "a b");
    let path = members.dir().join("b");
    let mut bytes = fs::read(&path).unwrap();
    let field = |at: usize| 4096 + at..4096 + at + 4;
    let number = |bytes: &[u8], at: usize| u32::from_le_bytes(bytes[field(at)].try_into().unwrap());
    assert_eq!(number(&bytes, 164), 0);
    // The checksum is a sum of words, whose carry comes back in.
    let (sum, carried) = number(&bytes, 216).overflowing_add(7);
    bytes[field(164)].copy_from_slice(&7_u32.to_le_bytes());
    bytes[field(216)].copy_from_slice(&(sum + u32::from(carried)).to_le_bytes());
    fs::write(&path, bytes).unwrap();
    let status = members.status("md:a,b");
    let counts: Vec<_> = (0..2).map(|at| status["members"][at]["corrected_read_errors"].clone()).collect();
    assert_eq!(counts, [serde_json::json!(0), serde_json::json!(7)]);
    let text = members.run("md status md:a,b").text();
    assert!(text.contains("active sync, 7 corrected read errors"), "{text}");
}

#[test]
fn an_array_needs_a_member_that_is_there() {
    let dir = tempfile::tempdir().unwrap();
    let create = |args: &str| run(Command::new(PROGRAM).args(args.split(' ')).current_dir(dir.path()));
    assert_eq!(
        create("md create -l 1 missing missing").failed(2),
        "all 2 members of the new array are missing: name at least one that is there"
    );
    assert_eq!(
        create("md create -l 1 missing").failed(2),
        "the only member of the new array is missing: name at least one that is there"
    );
    let refused = create("md create -l 1 -n 2 missing").failed(2);
    assert!(refused.starts_with("1 member is named, and 2 asked for"), "{refused}");
    std::fs::write(dir.path().join("empty"), "").unwrap();
    let refused = create("md create -l 1 --member-size 10M empty new").failed(3);
    assert!(refused.starts_with("empty has a size of 0 bytes; remove the file"), "{refused}");
    assert!(!dir.path().join("new").exists());
    let refused = create("md create -l 1 --member-size 10M /dev/no-such-disk new").failed(3);
    assert!(refused.starts_with("/dev/no-such-disk does not exist; `lsblk`"), "{refused}");
    assert!(!Path::new("/dev/no-such-disk").exists() && !dir.path().join("new").exists());
}

/// The spellings of mdadm, with its meaning: `mdadm --examine` shows what its manual page says of them.
#[test]
fn options_of_mdadm_mean_what_they_mean_to_mdadm() {
    let cases = [
        (
            "-l 5 -n 3 -x 1 -c 64 a b c d",
            &["Raid Level : raid5", "Raid Devices : 3", "Chunk Size : 64K", "Layout : left-symmetric"][..],
        ),
        (
            "--level=raid5 --raid-devices=4 --chunk=128K --layout=ra a b c d",
            &["Chunk Size : 128K", "Layout : right-asymmetric"],
        ),
        (
            "--level=mirror --raid-devices=2 --size=8192 a b",
            &["Raid Level : raid1", "Used Dev Size : 16384 sectors (8.00 MiB"],
        ),
        ("-l1 -n2 -z 6M a b", &["Used Dev Size : 12288 sectors (6.00 MiB"]),
        ("-l1 -n2 -z 12288s a b", &["Used Dev Size : 12288 sectors (6.00 MiB"]),
        ("-l 5 -n 3 -c 64 -z 1000 a b c", &["Used Dev Size : 1920 sectors"]),
        ("-l 1 -n 2 -z max -e 1 a b", &["Version : 1.2", "Raid Level : raid1"]),
        ("-l stripe -n 2 -e default -c 4 a b", &["Version : 1.2", "Raid Level : raid0", "Chunk Size : 4K"]),
        (
            "-l 10 -p f2 -n 3 -e 1.0 -N home --homehost=here a b c",
            &["Version : 1.0", "Layout : far=2", "Name : here:home"],
        ),
        (
            "-l 6 --raid-devices 4 --spare-devices 1 --bitmap=internal a b missing missing e",
            &["Raid Devices : 4", "Internal Bitmap"],
        ),
        ("-l 4 -n 3 --assume-clean --run a b c", &["Raid Level : raid4", "State : clean"]),
    ];
    for (args, expected) in cases {
        let dir = tempfile::tempdir().unwrap();
        let made = run(Command::new(PROGRAM)
            .args(["md", "create", "--member-size", "16M"])
            .args(args.split(' '))
            .current_dir(dir.path()));
        assert_eq!(made.code, 0, "{args}: {}", made.stderr);
        let shown = tool("mdadm --examine a", dir.path());
        for line in expected {
            let found = shown.lines().any(|shown| shown.trim_start().starts_with(line));
            assert!(found, "{args}: {line} in {shown}");
        }
        // Where a member is missing, a spare takes its place at once.
        if args.contains("-x 1") {
            let last = args.rsplit(' ').next().unwrap();
            let shown = tool(&format!("mdadm --examine {last}"), dir.path());
            assert!(shown.contains("Device Role : spare"), "{args}: {shown}");
        }
    }
}

/// What mdadm would understand in another way than its user meant it here is refused.
#[test]
fn what_conflicts_with_mdadm_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let create = |args: &str| {
        let message = run(Command::new(PROGRAM)
            .args(["md", "create", "--member-size", "16M"])
            .args(args.split(' '))
            .current_dir(dir.path()))
        .failed(2);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0, "{args} left a file behind");
        message
    };
    assert_eq!(
        create("-l 5 -n 4 a b c"),
        "3 members are named, and 4 asked for; name as many; `missing` stands for one that is added later"
    );
    assert_eq!(
        create("-l 5 -n 3 -x 1 a b c"),
        "3 members are named, and 3 asked for and 1 as spares; name as many; `missing` stands for one that is added later"
    );
    assert_eq!(
        create("-l 1 -x spare a b"),
        "--spare-devices spare: it counts spares, as for mdadm; `--spare MEMBER` names one"
    );
    assert!(create("-l 1 -n 2 -x 1 a b missing").starts_with("missing stands for a spare"));
    assert_eq!(
        create("/dev/md127 -l 1 -n 2 a b"),
        "/dev/md127 is no member: an array has no device of its own here; leave it off, and name the array by its \
         members: md:MEMBER,MEMBER,..."
    );
    assert!(create("-l 1 -z 1,5G a b").starts_with("--size 1,5G: that is no size"));
    assert!(create("-l 5 -c 0 a b c").starts_with("--chunk 0: that is no size"));
    assert!(create("-l 1 -e 0.90 a b").starts_with("--metadata 0.90: such superblocks are not made"));
    assert!(create("-l multipath a b").starts_with("\"multipath\" is no level"));
}

/// A member that the others recorded as failed is called so, and one that is named alone is told what it is.
#[test]
fn a_failed_member_is_called_so() {
    let members = Members::create("-l 5", "a b c");
    members.run("mkfs -q ext4 md:a,b,c").succeeded();
    members.run("md fail md:a,b,c b").succeeded();
    for command in ["info md:a,b,c", "md status md:a,b,c", "ls md:."] {
        let run = members.run(command);
        assert_eq!(run.code, 0, "{}", run.stderr);
        let mut notes = run.stderr.lines();
        let left_out = notes.next().unwrap();
        assert!(
            left_out.ends_with("b was left out: the others say that it failed or was removed"),
            "{left_out}"
        );
        assert!(
            notes.next().unwrap().ends_with("the array is degraded: it lacks 1 member"),
            "{}",
            run.stderr
        );
    }
    for command in ["info b", "ls a"] {
        let message = members.run(command).failed(4);
        assert!(message.contains("holds a member of an md array; name the array: `md:"), "{message}");
    }
    for (command, told) in [
        (
            "md grow md:a,b,c",
            "there is no `undercroft md grow`; arrays keep their shape and size here: `mdadm --grow`",
        ),
        ("md assemble a b c", "there is no `undercroft md assemble`; nothing is to be assembled"),
    ] {
        let message = members.run(command).failed(2);
        assert!(message.contains(told), "{message}");
    }
    // JSON, before the subcommand or behind it.
    let before = members.run("md --json status md:a,c");
    let behind = members.run("md status --json md:a,c");
    assert!(before.code == 0 && before.stdout == behind.stdout && before.stdout.starts_with(b"{"));
}

/// mdadm's modes stand in the place of commands, and its order of words is answered.
#[test]
fn modes_of_mdadm_are_taken() {
    let members = Members(tempfile::tempdir().unwrap());
    members.run("md --create -l 1 -n 2 --member-size 16M a b").succeeded();
    for mode in ["--detail", "-D", "detail", "status"] {
        assert!(members.run(&format!("md {mode} md:a,b")).text().contains("raid1"), "{mode}");
    }
    for mode in ["--examine", "-E"] {
        assert!(members.run(&format!("md {mode} a")).text().contains("Raid Level : raid1"), "{mode}");
    }
    let failed = members.run("md --fail md:a,b b").text();
    assert!(failed.contains("faulty  b: it was declared failed\n"), "{failed}");
    noted(members.run("md --remove md:a,b b"), "left out");
    noted(members.run("md --re-add md:a b"), "degraded");
    members.run("md -f md:a,b a").succeeded();
    noted(members.run("md -a md:b a"), "degraded");
    members.run("md --add md:a,b c --member-size 16M").succeeded();
    members.run("md --replace md:a,b,c a --with c").succeeded();
    members.run("md --stop md:b,c").succeeded();
    for (typed, told) in [
        ("md md:b,c --fail b", "the command comes first: undercroft md fail md:b,c"),
        ("md md:b,c fail b", "the command comes first: undercroft md fail md:b,c"),
        ("md md:b,c --manage --add d", "the command comes first: undercroft md add md:b,c"),
        ("md md:b,c", "the command comes first: undercroft md status md:b,c"),
        ("md --manage md:b,c --fail b", "leave it out"),
        ("md --assemble md:b,c", "nothing is to be assembled"),
        ("md -A md:b,c", "nothing is to be assembled"),
        ("md --examine --scan", "`md:DIR` is the array"),
        ("md --zero-superblock b", "`undercroft md remove --erase`"),
        ("md --grow md:b,c", "`mdadm --grow`"),
        ("md wait md:b,c", "`--no-wait`"),
    ] {
        let message = members.run(typed).failed(2);
        assert!(message.contains(told), "{typed}: {message}");
    }
}

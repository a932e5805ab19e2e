//! `md`, and arrays in an image's place: made, filled, failing, rebuilt, checked, each step by another process.

use std::fs;
use std::path::Path;
use std::process::Command;

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
fn what_is_written_through_a_mount_survives_a_lost_member() {
    let members = Members::create("-l 6 --chunk 64K --bitmap internal", "a b c d e");
    members.run("mkfs ext4 md:a,b,c,d,e -E root_owner=0:0").succeeded();
    fs::create_dir(members.dir().join("point")).unwrap();
    members.run("mount -o rw md:a,b,c,d,e point").succeeded();
    let source = tool("findmnt -no SOURCE point", members.dir());
    assert_eq!(source.trim(), "md:a,b,c,d,e");
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
    assert!(message.contains("fs holds an ext2, ext3 or ext4 filesystem"), "{message}");
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
fn a_spare_is_let_go_and_forgotten() {
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
fn mdadm_believes_the_members() {
    let members = Members::create("-l 5 -c 64K --homehost here --name there", "a b c d");
    members.run("md fail md:. b").succeeded();
    let said = tool("mdadm --examine a", members.dir());
    for line in ["Name : here:there", "State : clean", "Array State : A.AA", "Chunk Size : 64K"] {
        assert!(said.contains(line), "{line} in {said}");
    }
    assert!(said.contains(" - correct"), "{said}");
}

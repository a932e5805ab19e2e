//! Help, completions and manual pages.

use std::ffi::OsStr;
use std::fs;
use std::process::Command;

use crate::support::{run, tool, undercroft};

const COMMANDS: [&str; 47] = [
    "info",
    "ls",
    "tree",
    "stat",
    "freeze",
    "thaw",
    "sync",
    "cat",
    "df",
    "get",
    "mount",
    "mounts",
    "unmount",
    "install-helper",
    "mkfs",
    "disk",
    "image",
    "compact",
    "grow",
    "resize",
    "tune",
    "label",
    "uuid",
    "check",
    "md",
    "bench",
    "tour",
    "completions",
    "man",
    "find",
    "diff",
    "put",
    "tar-in",
    "write",
    "mkdir",
    "rm",
    "mv",
    "cp",
    "ln",
    "chmod",
    "chown",
    "touch",
    "truncate",
    "xattr",
    "acl",
    "mknod",
    "shell",
];

#[test]
fn every_command_has_help_and_most_have_examples() {
    let help = undercroft(["--help"]).text();
    for command in COMMANDS {
        assert!(help.contains(&format!("\n  {command} ")), "{command} in {help}");
        let own = undercroft([command, "--help"]).text();
        assert!(own.contains("Usage: undercroft"), "{own}");
        assert!(
            command == "tour" || own.contains(&format!("  undercroft {command}")),
            "{command} has an example"
        );
    }
    for part in ["Exit codes:", "IMAGE?part=N", "md:MEMBER,MEMBER", "name_bytes"] {
        assert!(help.contains(part), "{part}");
    }
    assert!(undercroft(["--version"]).text().starts_with("undercroft "));
}

#[test]
fn completions_are_programs_of_their_shells() {
    let dir = tempfile::tempdir().unwrap();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = undercroft(["completions", shell]).text();
        assert!(script.contains("undercroft") && script.contains("unmount"), "{shell}");
        fs::write(dir.path().join(shell), script).unwrap();
    }
    tool("bash -n bash", dir.path());
}

/// The options of ls that people type without a thought, `-h` among them.
#[test]
fn ls_has_sizes_where_others_have_help() {
    for args in [&["ls", "-lh"][..], &["ls", "-h"]] {
        let run = undercroft([args, &["/nonexistent/disk.img"]].concat());
        assert!(run.failed(3).contains("/nonexistent/disk.img"));
    }
    assert!(undercroft(["ls", "--help"]).text().contains("-h, --human-readable"));
    assert!(undercroft(["stat", "-h"]).text().contains("Usage: undercroft stat"));
}

/// What the help says of writing is what the commands do.
#[test]
fn the_help_names_the_commands_that_write() {
    let help = undercroft(["--help"]).text().split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        help.contains(
            "An image is written to by `mkfs`, by `grow`, `resize`, `tune`, `label` and `uuid`, by `disk add`, `disk resize` and `compact`, by the edits (`put` to `mknod`), by `shell`, by `mount -o rw`, and by the commands of `md`"
        ),
        "{help}"
    );
    assert!(!help.contains("never written"), "{help}");
}

#[test]
fn there_is_a_manual_page_for_every_command() {
    let above = tempfile::tempdir().unwrap();
    let dir = above.path().join("share/man/man1");
    undercroft([OsStr::new("man"), dir.as_os_str()]).succeeded();
    let mut pages: Vec<String> =
        fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    pages.sort();
    let parts =
        ["create", "examine", "status", "fail", "remove", "add", "replace", "check", "repair", "stop"];
    let mut expected: Vec<String> = COMMANDS
        .iter()
        .map(|command| format!("undercroft-{command}.1"))
        .chain(parts.iter().map(|part| format!("undercroft-md-{part}.1")))
        .chain(["get", "set", "remove", "list"].map(|part| format!("undercroft-xattr-{part}.1")))
        .chain(
            ["create", "list", "add", "extract", "resize"]
                .iter()
                .map(|part| format!("undercroft-disk-{part}.1")),
        )
        .collect();
    expected.extend([
        "undercroft.1".to_owned(),
        "undercroft-mkfs-xfs.1".to_owned(),
        "undercroft-image-copy.1".to_owned(),
        "undercroft-bench-suite.1".to_owned(),
    ]);
    expected.sort();
    assert_eq!(pages, expected);
    for page in pages {
        let text = fs::read_to_string(dir.join(&page)).unwrap();
        assert!(text.contains(".TH ") && text.contains(".SH NAME"), "{page}");
        let synopsis = text.split(".SH SYNOPSIS\n").nth(1).unwrap().lines().next().unwrap();
        assert!(synopsis.starts_with("\\fBundercroft") && !synopsis.contains(" \\fR]"), "{page}: {synopsis}");
        // What a page refers to is there.
        let plain = text.replace("\\-", "-");
        for line in plain.lines().filter_map(|line| line.strip_suffix("(1)")) {
            assert!(expected.contains(&format!("{line}.1")), "{page} refers to {line}(1)");
        }
        let said = run(Command::new("man")
            .args(["--warnings=w", "--local-file", "--troff-device=utf8"])
            .arg(dir.join(&page)));
        assert_eq!((said.code, said.stderr.as_str()), (0, ""), "{page}");
    }
    let lint = run(Command::new("mandoc")
        .args(["-T", "lint", "-W", "warning"])
        .args(expected.iter().map(|page| dir.join(page))));
    let findings = String::from_utf8(lint.stdout).unwrap();
    // clap_mangen's breaks before possible values, and pages without a date, for builds are the same on all days.
    let known = ["skipping paragraph macro", "cannot parse date", "missing date"];
    let unknown: Vec<&str> =
        findings.lines().filter(|line| !known.iter().any(|known| line.contains(known))).collect();
    assert!(unknown.is_empty(), "{unknown:#?}");
    let main = undercroft(["man"]).text();
    assert!(main.contains("Exit codes"), "{main}");
}

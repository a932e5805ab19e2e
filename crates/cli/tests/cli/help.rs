//! Help, completions and manual pages.

use std::ffi::OsStr;
use std::fs;

use crate::support::{tool, undercroft};

const COMMANDS: [&str; 16] = [
    "info",
    "ls",
    "tree",
    "stat",
    "sync",
    "cat",
    "get",
    "mount",
    "unmount",
    "mkfs",
    "check",
    "md",
    "bench",
    "tour",
    "completions",
    "man",
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

#[test]
fn there_is_a_manual_page_for_every_command() {
    let dir = tempfile::tempdir().unwrap();
    undercroft([OsStr::new("man"), dir.path().as_os_str()]).succeeded();
    let mut pages: Vec<String> = fs::read_dir(dir.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    pages.sort();
    let parts =
        ["create", "examine", "status", "fail", "remove", "add", "replace", "check", "repair", "stop"];
    let mut expected: Vec<String> = COMMANDS
        .iter()
        .map(|command| format!("undercroft-{command}.1"))
        .chain(parts.iter().map(|part| format!("undercroft-md-{part}.1")))
        .collect();
    expected.push("undercroft.1".to_owned());
    expected.sort();
    assert_eq!(pages, expected);
    for page in pages {
        let text = fs::read_to_string(dir.path().join(&page)).unwrap();
        assert!(text.contains(".TH ") && text.contains(".SH NAME"), "{page}");
    }
    let main = undercroft(["man"]).text();
    assert!(main.contains("Exit codes"), "{main}");
}

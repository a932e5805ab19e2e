//! An edit that is killed: the file is the old one or the new one, and the filesystem is sound after recovery.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use undercroft_oracle::Tool;

use crate::edit::{assert_sound, image, with_stdin};
use crate::support::{PROGRAM, tool, undercroft};

/// Moments at which each edit is killed.
const MOMENTS: u64 = 12;

/// Numbers that are the same in every run.
pub(crate) fn next(seed: &mut u64) -> u64 {
    *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    *seed >> 33
}

/// Starts an edit and kills it after a time, or waits for it.
fn run_for(args: &[&str], stdin: &[u8], limit: Option<Duration>) -> Duration {
    let began = Instant::now();
    let mut child = Command::new(PROGRAM)
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut pipe = child.stdin.take().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            // A killed program reads no more.
            let _ = pipe.write_all(stdin);
        });
        if let Some(limit) = limit {
            std::thread::sleep(limit);
            child.kill().unwrap();
        }
        child.wait().unwrap();
    });
    began.elapsed()
}

/// Recovery by Linux's tools alone leaves a sound filesystem, too.
fn assert_linux_recovers(image: &Path, family: &str) {
    if family == "ext4" {
        let copy = image.with_extension("copy");
        tool(&format!("cp --sparse=always {} {}", image.display(), copy.display()), Path::new("/"));
        // 1 says that something was recovered.
        Tool::new("e2fsck").args(["-fy"]).arg(&copy).accept(&[0, 1]).run().unwrap();
        tool(&format!("e2fsck -fn {}", copy.display()), Path::new("/"));
        fs::remove_file(copy).unwrap();
    }
}

/// The file, once the kernel has let go of what the killed program had open and locked.
fn cat_when_free(path: &str) -> Vec<u8> {
    let began = Instant::now();
    loop {
        let run = undercroft(["cat", path, "/f"]);
        if run.code != 3 || began.elapsed() > Duration::from_secs(20) {
            return run.succeeded();
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_killed_edit_leaves_the_old_or_the_new() {
    let dir = tempfile::tempdir().unwrap();
    let (old, new) = (vec![b'o'; 1 << 20], vec![b'n'; 6 << 20]);
    let mut seed = 20;
    for family in ["ext4", "xfs"] {
        let base = image(dir.path(), family);
        with_stdin(["write", base.to_str().unwrap(), "/f"], &old).succeeded();
        with_stdin(["write", base.to_str().unwrap(), "/g"], &new).succeeded();
        let target = dir.path().join("target");
        let path = target.to_str().unwrap().to_owned();
        for args in
            [&["write", &path, "/f"][..], &["cp", "-a", &path, "/g", "/f"], &["mv", &path, "/g", "/f"]]
        {
            let fresh = || tool(&format!("cp --sparse=always {} {path}", base.display()), dir.path());
            fresh();
            let whole = run_for(args, &new, None);
            for _ in 0..MOMENTS {
                fresh();
                let limit = whole.mul_f64(next(&mut seed) as f64 / f64::from(1_u32 << 31));
                run_for(args, &new, Some(limit));
                assert_linux_recovers(&target, family);
                let found = cat_when_free(&path);
                assert!(
                    found == old || found == new,
                    "{family} {args:?} after {limit:?}: {} bytes",
                    found.len()
                );
                // Opening it for writing recovers it.
                undercroft(["touch", &path, "/recovered"]).succeeded();
                assert_sound(&target, family);
                let again = undercroft(["cat", &path, "/f"]).succeeded();
                assert!(again == found, "{family} {args:?}: recovery has changed the file");
            }
        }
        fs::remove_file(base).unwrap();
    }
}

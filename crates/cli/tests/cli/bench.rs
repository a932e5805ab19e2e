//! Measuring: what is printed, that nothing is left behind, and what is refused. How fast anything is, no test says.

use std::fs;
use std::path::Path;

use serde_json::Value;
use undercroft_oracle::{Mke2fs, MountMode};

use crate::support::undercroft;

const FIELDS: [&str; 12] = [
    "involuntary_switches",
    "latency_us",
    "locks",
    "ops",
    "ops_per_second",
    "seconds",
    "system_s",
    "target",
    "threads",
    "user_s",
    "voluntary_switches",
    "workload",
];

fn words(line: &str) -> impl Iterator<Item = &str> {
    line.split(' ')
}

fn fields(value: &Value) -> Vec<&str> {
    let mut fields: Vec<&str> = value.as_object().unwrap().keys().map(String::as_str).collect();
    fields.sort_unstable();
    fields
}

fn names(dir: &Path) -> Vec<String> {
    fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

/// A measurement that says what it should.
fn check(outcome: &Value, workload: &str, target: &str, threads: u64, ops: u64) {
    let extra = match workload {
        "create-many" | "populate" => Some("growth"),
        "overwrite" | "write" | "raid5-write" | "raid5-sequential" => Some("bytes_per_second"),
        _ => None,
    };
    let is_array = target.starts_with("mem:md5");
    let journal =
        (target.starts_with("mem:ext4") || is_array && workload == "raid5-write").then_some("journal");
    let stripes = is_array.then_some("stripes");
    let mut expected: Vec<&str> = FIELDS.into_iter().chain(extra).chain(journal).chain(stripes).collect();
    expected.sort_unstable();
    assert_eq!(fields(outcome), expected);
    assert_eq!((&outcome["workload"], &outcome["target"]), (&workload.into(), &target.into()));
    assert_eq!((&outcome["threads"], &outcome["ops"]), (&threads.into(), &ops.into()));
    let number = |value: &Value| value.as_f64().unwrap_or_else(|| panic!("{value} in {outcome}"));
    let (seconds, rate) = (number(&outcome["seconds"]), number(&outcome["ops_per_second"]));
    assert!((seconds * rate / (threads * ops) as f64 - 1.0).abs() < 1e-6, "{outcome}");
    let latency = &outcome["latency_us"];
    let [p50, p99, max] = ["p50", "p99", "max"].map(|name| number(&latency[name]));
    assert!(0.0 < p50 && p50 <= p99 && p99 <= max && max <= seconds * 1e6, "{outcome}");
}

#[test]
fn every_workload_is_measured_in_process_and_by_processes() {
    let dir = tempfile::tempdir().unwrap();
    let by_processes = format!("dir:{}", dir.path().display());
    for target in ["tmpfs:", "tmpfs:plain", "mem:ext4", "mem:ext4:plain,orphan=list", &by_processes] {
        for (workload, ops) in [
            ("create-unlink", 200),
            ("rename", 200),
            ("create-many", 200),
            ("populate", 1200),
            ("stat-own", 200),
            ("stat-many", 200),
            ("readdir-storm", 3),
            ("orphan", 5000),
            ("overwrite", 200),
            ("write", 3),
        ] {
            let line = format!("bench {workload} --on {target} --threads 3 --ops {ops} --file-mib 2 --json");
            check(&undercroft(words(&line)).json(), workload, target, 3, ops);
        }
    }
    assert_eq!(names(dir.path()), [""; 0], "everything is removed afterwards");
}

#[test]
fn a_device_without_a_filesystem_is_measured_beside() {
    let line = "bench overwrite --on tmpfs: --compare mem:raw --file-mib 1 --threads 2 --ops 100 --rounds 1";
    let comparison = undercroft(words(&format!("{line} --json"))).json();
    check(&comparison["b"], "overwrite", "mem:raw", 2, 100);
    let text = undercroft(words(line)).text();
    assert!(text.contains("\n  written ") && text.contains(" MiB a second"), "{text}");
}

#[test]
fn handles_are_counted_on_our_ext4() {
    let line =
        "bench overwrite --on mem:ext4 --compare mem:ext4:overwrite=journaled --file-mib 1 --threads 2";
    let line = format!("{line} --ops 1000 --rounds 1");
    let comparison = undercroft(words(&format!("{line} --json"))).json();
    let handles = |side: &str| comparison[side]["journal"]["handles"].as_u64().unwrap();
    assert!(handles("a") < 100 && handles("b") >= 2000, "{comparison}");
    let text = undercroft(words(&line)).text();
    assert!(text.contains("\n  handles ") && text.contains(" started"), "{text}");
}

#[test]
fn an_array_tells_of_its_stripes() {
    let target = "mem:md5:stripes=8";
    let line = format!("bench raid5-write --on {target} --compare {target},stripe_wake=all --threads 3");
    let comparison = undercroft(words(&format!("{line} --ops 2 --rounds 1 --json"))).json();
    check(&comparison["a"], "raid5-write", target, 3, 2);
    for side in ["a", "b"] {
        let stripes = &comparison[side]["stripes"];
        assert_eq!(stripes["cache_bytes"], 8 * 4 * 4096);
        let writes = ["whole_writes", "read_modify_writes", "reconstruct_writes"];
        let written: u64 = writes.map(|name| stripes[name].as_u64().unwrap()).into_iter().sum();
        // Three workers wrote two files each: rows of three pages of data.
        assert!(written >= 3 * 2 * (4 << 20) / (3 * 4096), "{stripes}");
        assert!(stripes["vain_wake_ups"].as_u64() <= stripes["wake_ups"].as_u64(), "{stripes}");
    }
    let line = "bench raid5-sequential --on mem:md5 --compare mem:xor --threads 1 --ops 20 --rounds 1";
    let text = undercroft(words(&format!("{line} --file-mib 8"))).text();
    for part in
        ["\n  stripes ", " released, a cache of 32 MiB", "\n  writes ", "\n  wake-ups ", "\n  per stripe "]
    {
        assert!(text.contains(part), "{part} in {text}");
    }
}

#[test]
fn processes_spend_their_time_in_the_kernel_and_threads_do_not() {
    let dir = tempfile::tempdir().unwrap();
    let on = |target: &str, ops| {
        let line = format!("bench create-unlink --on {target} --threads 1 --ops {ops} --json");
        let outcome = undercroft(words(&line)).json();
        [&outcome["user_s"], &outcome["system_s"]].map(|seconds| seconds.as_f64().unwrap())
    };
    let [user, system] = on(&format!("dir:{}", dir.path().display()), 20_000);
    assert!(system > user, "{system} {user}");
    let [user, system] = on("tmpfs:", 200_000);
    assert!(user > system, "{user} {system}");
}

#[test]
fn the_plain_form_takes_the_directory_and_the_other_the_name() {
    for (plain, target, class) in [("", "tmpfs:", "name"), (" --plain", "tmpfs:plain", "directory")] {
        let line = format!("bench create-unlink --on tmpfs:{plain} --threads 2 --ops 500 --locks");
        let outcome = undercroft(words(&format!("{line} --json"))).json();
        assert_eq!(outcome["target"], target);
        let locks = outcome["locks"].as_array().unwrap();
        let row = locks.iter().find(|row| row["class"] == class && row["mode"] == "exclusive").unwrap();
        assert_eq!(row["acquisitions"], 2 * 500 * 2, "a creation and a removal each");
        assert!(undercroft(words(&line)).text().contains(&format!("\n  {class} (exclusive)")));
    }
}

#[test]
fn two_are_compared_by_their_medians() {
    let dir = tempfile::tempdir().unwrap();
    let other = format!("dir:{}", dir.path().display());
    let line = format!("bench rename --on tmpfs: --compare {other} --threads 2 --ops 100 --rounds 3");
    let comparison = undercroft(words(&format!("{line} --json"))).json();
    assert_eq!(fields(&comparison), ["a", "b", "ratio", "rounds"]);
    check(&comparison["a"], "rename", "tmpfs:", 2, 100);
    check(&comparison["b"], "rename", &other, 2, 100);
    // Reading decimals back may be off by the last bit.
    let rate = |side: &str| comparison[side]["ops_per_second"].as_f64().unwrap();
    let ratio = comparison["ratio"].as_f64().unwrap();
    assert!((ratio * rate("b") / rate("a") - 1.0).abs() < 1e-9, "{comparison}");
    assert_eq!(comparison["rounds"], 3);

    let text = undercroft(words(&line)).text();
    assert!(text.starts_with("rename, 2 workers, medians of 3 rounds\n"), "{text}");
    for part in ["renames it once", "throughput", "latency p99", "switches", " times the throughput of dir:"]
    {
        assert!(text.contains(part), "{part} in {text}");
    }
}

#[test]
fn a_plot_is_drawn_over_the_number_of_workers() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("plot.svg");
    let line = format!("bench create-unlink --on tmpfs: --threads 3 --ops 100 --plot {}", file.display());
    let text = undercroft(words(&line)).text();
    let rows: Vec<&str> = text.lines().map(str::trim_start).collect();
    for (row, count) in [("workers", 1), ("1 ", 1), ("3 ", 1), ("4 ", 0)] {
        assert_eq!(rows.iter().filter(|line| line.starts_with(row)).count(), count, "{row:?} in {text}");
    }
    let svg = fs::read_to_string(&file).unwrap();
    assert!(svg.starts_with("<svg ") && svg.contains("tmpfs:plain"), "{svg}");

    let value = undercroft(words(&format!("{line} --json --rounds 1"))).json();
    assert_eq!((&value["workload"], &value["rounds"]), (&"create-unlink".into(), &1.into()));
    let targets: Vec<_> =
        value["series"].as_array().unwrap().iter().map(|series| &series["target"]).collect();
    assert_eq!(targets, ["tmpfs:", "tmpfs:plain"]);
    assert_eq!(value["series"][1]["points"][2]["threads"], 3);
}

#[test]
fn what_cannot_be_measured_is_refused() {
    for (on, code, says) in [
        ("mem:xfs:fast", 2, "mem:xfs:fast: not a target"),
        ("nowhere.img", 2, "nowhere.img: not a target"),
        ("dir:/nowhere", 8, "cannot make a directory to measure in /nowhere: No such file or directory"),
    ] {
        let message = undercroft(words(&format!("bench rename --on {on} --ops 10"))).failed(code);
        assert!(message.starts_with(says), "{message}");
    }
    assert!(undercroft(words("bench mischief --on tmpfs:")).stderr.contains("create-unlink"));
}

#[test]
fn a_worker_that_is_refused_says_why_once_and_nothing_stays() {
    let image = Mke2fs::new("ext4", 8).inodes(64).make().unwrap();
    let mount = image.mount(MountMode::ReadWrite, "").unwrap();
    let line = format!("bench create-many --on dir:{} --threads 3 --ops 1000", mount.path().display());
    let message = undercroft(words(&line)).failed(8);
    assert!(message.starts_with("cannot create a file in "), "{message}");
    assert!(message.ends_with("No space left on device"), "{message}");
    assert_eq!(names(mount.path()), ["lost+found"]);
    mount.unmount().unwrap();
}

#[test]
fn a_worker_whose_parent_is_gone_does_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let line = format!("bench create-many --on dir:{} --threads 1 --ops 5 --worker 0", dir.path().display());
    assert_eq!(undercroft(words(&line)).text(), "\"Ready\"\n\"Done\"\n");
    assert_eq!(names(dir.path()), [""; 0]);
}

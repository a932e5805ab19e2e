//! `bench suite`: what it measures, what it writes, how the page looks to a browser, and that nothing stays mounted. Each
//! measurement lasts a millisecond or so: the figures mean nothing, and no test looks at them.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use serde_json::Value;
use undercroft_oracle::Scratch;

use crate::support::{PROGRAM, Run, run};

/// Divides the time of each measurement.
const SMALL: (&str, &str) = ("UNDERCROFT_BENCH_SMALL", "50");

fn suite(report: &Path, words: &str) -> Run {
    let words = words.split_whitespace();
    run(Command::new(PROGRAM)
        .args(["bench", "suite", "--report"])
        .arg(report)
        .args(words)
        .env(SMALL.0, SMALL.1))
}

/// What a run wrote, and the JSON that it printed.
struct Written {
    page: String,
    results: Value,
    printed: Value,
}

/// One run for all tests that look at what it wrote.
fn written() -> &'static Written {
    static WRITTEN: OnceLock<Written> = OnceLock::new();
    WRITTEN.get_or_init(|| {
        let dir = Scratch::new("suite").unwrap();
        let report = dir.path().join("made/for/it");
        let words = "--only create-unlink,overwrite,raid5-rebuild --against kernel,fuse2fs --json";
        let printed = suite(&report, words).json();
        let mut names: Vec<_> =
            fs::read_dir(&report).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, ["index.html", "results.json"]);
        let page = fs::read_to_string(report.join("index.html")).unwrap();
        let results = serde_json::from_slice(&fs::read(report.join("results.json")).unwrap()).unwrap();
        Written { page, results, printed }
    })
}

fn array<'a>(value: &'a Value, name: &str) -> &'a [Value] {
    value[name].as_array().unwrap_or_else(|| panic!("{name} in {value}"))
}

#[test]
fn everything_is_measured_or_named() {
    let Written { results, printed, .. } = written();
    assert_eq!(results, printed);
    let gaps: Vec<&str> = array(results, "gaps").iter().map(|gap| gap["what"].as_str().unwrap()).collect();
    assert_eq!(gaps, ["RAID5, kernel"], "{}", results["gaps"]);
    let charts: Vec<(&str, &str)> = array(results, "charts")
        .iter()
        .map(|chart| (chart["workload"].as_str().unwrap(), chart["directories"].as_str().unwrap()))
        .collect();
    let expected = [
        ("create-unlink", "one"),
        ("create-unlink", "separate"),
        ("overwrite", "one"),
        ("raid5-rebuild", "one"),
    ];
    assert_eq!(charts, expected);
    for chart in array(results, "charts") {
        let mut roles = Vec::new();
        for contender in array(chart, "contenders") {
            roles.push((contender["role"].as_str().unwrap(), contender["filesystem"].as_str().unwrap()));
            for cell in array(contender, "cells") {
                assert_eq!((array(cell, "rounds").len(), &cell["gap"]), (3, &Value::Null), "{contender}");
                let spread = &cell["ops_per_second"];
                let [low, middle, high] =
                    ["lowest", "median", "highest"].map(|name| spread[name].as_f64().unwrap());
                assert!(0.0 < low && low <= middle && middle <= high, "{cell}");
                assert_eq!(cell["rounds"][0]["threads"], cell["threads"]);
            }
        }
        let has = |role: &str, filesystem: &str| roles.contains(&(role, filesystem));
        match chart["workload"].as_str().unwrap() {
            "raid5-rebuild" => assert_eq!(roles, [("best", "RAID5"), ("limit", "RAID5")]),
            workload => {
                for filesystem in ["tmpfs", "ext4", "XFS", "RAID5"] {
                    assert!(has("best", filesystem) && has("mount", filesystem), "{roles:?}");
                    let is_names = workload == "create-unlink";
                    let has_plain = filesystem != "RAID5" && (is_names || filesystem != "tmpfs");
                    assert_eq!(has("plain", filesystem), has_plain, "{workload} {filesystem}");
                    assert_eq!(has("kernel", filesystem), filesystem != "RAID5");
                    assert_eq!(has("fuse2fs", filesystem), filesystem == "ext4");
                }
                assert_eq!(has("limit", "device"), workload == "overwrite");
            }
        }
    }
}

#[test]
fn locks_are_counted_of_what_is_ours_in_process() {
    let chart = &written().results["charts"][0];
    for contender in array(chart, "contenders") {
        let is_counted = ["best", "plain"].contains(&contender["role"].as_str().unwrap());
        assert_eq!(contender["locks"].is_object(), is_counted, "{contender}");
        if is_counted {
            let rows = array(&contender["locks"], "rows");
            assert!(rows.iter().any(|row| row["acquisitions"].as_u64().unwrap() > 0), "{contender}");
        }
    }
}

#[test]
fn the_machine_is_described() {
    let Written { results, page, .. } = written();
    let machine = &results["machine"];
    assert!(!array(machine, "processors").is_empty() && machine["memory_bytes"].is_u64(), "{machine}");
    let kernel = machine["kernel"].as_str().unwrap();
    assert!(page.contains(&format!("Linux {kernel}")));
    assert!(results["processor_time"]["stolen"].as_f64().is_some(), "{results}");
    // None where there is one processor, or both are taken by others.
    for transfer in array(results, "line_transfers") {
        assert!(transfer["from"] != transfer["to"], "{transfer}");
        assert!(transfer["median_ns"].as_f64().unwrap() > 0.0, "{transfer}");
        let between = transfer["between"].as_str().unwrap();
        assert!(page.contains(&format!("between {between}<")), "{between}");
    }
    for name in ["program", "size", "ended"] {
        assert!(results[name].is_string(), "{name}");
    }
}

#[test]
fn a_terminal_gets_a_line_for_each_chart_and_the_way_to_the_page() {
    let dir = Scratch::new("suite").unwrap();
    let text = suite(dir.path(), "--only orphan").text();
    assert!(
        text.lines().any(|line| line.trim_start().starts_with("orphan ") && line.contains('×')),
        "{text}"
    );
    assert!(text.contains("not asked for; --against kernel measures them"), "{text}");
    assert!(text.ends_with(&format!("written to {}/index.html\n", dir.path().display())), "{text}");
    assert!(fs::metadata(dir.path().join("results.json")).unwrap().len() > 1000);
}

#[test]
fn an_interrupted_suite_leaves_no_mount_and_no_file() {
    let dir = Scratch::new("suite").unwrap();
    let report = dir.path().join("report");
    // The caller of the tests may ignore the signal, as a shell does for a job in the background; the suite does not.
    let mut child = Command::new("env")
        .args(["--default-signal", PROGRAM, "bench", "suite", "--full", "--only", "rename", "--report"])
        .arg(&report)
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mark = format!("undercroft-suite-{}-", child.id());
    let mounts = || {
        let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
        table.lines().filter(|line| line.contains(&mark)).count()
    };
    while mounts() == 0 {
        assert!(child.try_wait().unwrap().is_none(), "it ends before it mounts");
        std::thread::yield_now();
    }
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(8), "{said}");
    assert!(said.starts_with("undercroft: the suite was interrupted"), "{said}");
    assert_eq!((mounts(), fs::read_dir(&report).unwrap().count()), (0, 0));
}

#[test]
fn a_report_that_cannot_be_written_is_refused_before_anything_is_measured() {
    let message = suite(Path::new("/proc/nowhere"), "").failed(8);
    assert!(message.starts_with("cannot write /proc/nowhere: "), "{message}");
}

/// Asks a browser how large each picture is, whether its lines have colours, and whether the page fits its width.
const PROBE: &str = r#"<script>
addEventListener("load", () => {
  const drawn = [...document.querySelectorAll("svg.plot")].filter(svg => {
    const box = svg.getBoundingClientRect();
    const points = [...svg.querySelectorAll("circle")];
    const inside = points.every(point => {
      const { left, right, top, bottom } = point.getBoundingClientRect();
      return left >= box.left && right <= box.right && top >= box.top && bottom <= box.bottom;
    });
    const line = getComputedStyle(svg.querySelector(".line"));
    return box.width > 100 && box.height > 70 && points.length > 0 && inside && line.stroke.startsWith("rgb");
  });
  parent.postMessage({
    drawn: drawn.length,
    width: innerWidth,
    wide: document.documentElement.scrollWidth,
    paper: getComputedStyle(document.body).backgroundColor,
  }, "*");
});
</script></body>"#;

/// A frame of a phone's width, since a browser's window has a least width, which says what the page in it reports.
const FRAME: &str = r#"<!DOCTYPE html><meta charset="utf-8"><body>
<script>onmessage = event => { document.body.dataset.said = JSON.stringify(event.data); };</script>
<iframe src="page.html" style="width: WIDTHpx; height: 800px; border: 0"></iframe></body>"#;

/// What the page says of itself in a browser, of this width and in this colour scheme (0 is dark, 1 is light).
fn browsed(page: &str, width: u32, scheme: u32) -> Value {
    let dir = Scratch::new("browser").unwrap();
    fs::write(dir.path().join("page.html"), page.replace("</body>", PROBE)).unwrap();
    let frame = dir.path().join("frame.html");
    fs::write(&frame, FRAME.replace("WIDTH", &width.to_string())).unwrap();
    let browser = ["chromium", "chromium-browser"]
        .into_iter()
        .find(|name| {
            let path = std::env::var_os("PATH").unwrap_or_default();
            std::env::split_paths(&path).any(|dir| dir.join(name).is_file())
        })
        .expect("chromium is needed for this test");
    let output = Command::new(browser)
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"])
        .args(["--enable-logging=stderr", "--dump-dom", "--virtual-time-budget=10000"])
        .args(["--window-size=1400,900", &format!("--blink-settings=preferredColorScheme={scheme}")])
        .arg(format!("--user-data-dir={}", dir.path().join("profile").display()))
        .arg(format!("file://{}", frame.display()))
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let console: Vec<&str> = said.lines().filter(|line| line.contains(":CONSOLE")).collect();
    assert!(console.is_empty(), "{console:?}");
    let dom = String::from_utf8(output.stdout).unwrap();
    let report = dom.split("data-said=\"").nth(1).and_then(|rest| rest.split('"').next());
    let report = report.unwrap_or_else(|| panic!("the page does not load: {dom}"));
    serde_json::from_str(&report.replace("&quot;", "\"")).unwrap()
}

#[test]
fn a_browser_draws_every_picture_in_both_schemes_on_a_desk_and_on_a_phone() {
    let Written { page, results, .. } = written();
    // A picture for each filesystem of a chart of which anything was measured.
    let pictures: usize = array(results, "charts")
        .iter()
        .map(|chart| {
            let mut filesystems: Vec<&str> = array(chart, "contenders")
                .iter()
                .map(|contender| contender["filesystem"].as_str().unwrap())
                .filter(|&filesystem| filesystem != "device")
                .collect();
            filesystems.sort_unstable();
            filesystems.dedup();
            filesystems.len()
        })
        .sum();
    assert_eq!(pictures, 4 + 4 + 4 + 1);
    let mut papers = Vec::new();
    for (width, scheme) in [(1280, 1), (390, 1), (390, 0)] {
        let said = browsed(page, width, scheme);
        assert_eq!(said["drawn"], pictures, "{said}");
        assert_eq!(said["width"], width, "{said}");
        assert!(said["wide"].as_u64().unwrap() <= width.into(), "the page is wider than its window: {said}");
        papers.push(said["paper"].clone());
    }
    assert!(papers[0] == papers[1] && papers[1] != papers[2], "dark paper is another than light: {papers:?}");
}

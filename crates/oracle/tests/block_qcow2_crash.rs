//! Power is lost after requests that a qcow2 image makes of its disk, and what was not flushed survives in any subset:
//! `qemu-img check` finds nothing worse than clusters that nothing uses, and each byte is one that was flushed or written
//! since.
//!
//! `UNDERCROFT_SEED` replays a seed, `UNDERCROFT_CRASHES` says how many requests of each run are tried. Each request of an
//! image under a filesystem is tried by the tests of `undercroft-oracle`.

use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use tempfile::TempDir;
use undercroft_block::testing::{FailNth, Recorder, Recording, Repeat, Rng};
use undercroft_block::{Access, BlockDevice, Device, MemoryDevice, Operation, Qcow2Device};

const MIB: usize = 1 << 20;
/// The disk has room for all that the image may come to need.
const DISK_BYTES: usize = 8 * MIB;

fn qemu_img(arguments: &[&str], directory: &Path) {
    let output = Command::new("qemu-img").args(arguments).current_dir(directory).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {output:?}");
}

fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable).map_or(default, |number| number.parse().unwrap())
}

fn seed() -> u64 {
    number("UNDERCROFT_SEED", 1)
}

fn cuts() -> usize {
    number("UNDERCROFT_CRASHES", 40).max(1) as usize
}

/// A disk that begins with a file.
fn disk_with(path: &Path) -> Device {
    let mut bytes = std::fs::read(path).unwrap();
    assert!(bytes.len() <= DISK_BYTES);
    bytes.resize(DISK_BYTES, 0);
    Arc::new(MemoryDevice::from_bytes(bytes, Access::ReadWrite))
}

fn save(disk: &Device, path: &Path) {
    let mut bytes = vec![0; DISK_BYTES];
    disk.read_at(0, &mut bytes).unwrap();
    let mut file = File::create(path).unwrap();
    for (at, chunk) in bytes.chunks(4096).enumerate().filter(|(_, chunk)| chunk.iter().any(|&byte| byte != 0))
    {
        file.seek(SeekFrom::Start(at as u64 * 4096)).unwrap();
        file.write_all(chunk).unwrap();
    }
    file.set_len(DISK_BYTES as u64).unwrap();
}

/// What qemu-img finds, unless that is nothing or leaks.
fn damage(path: &Path) -> Option<String> {
    let output = Command::new("qemu-img").args(["check", "-f", "qcow2"]).arg(path).output().unwrap();
    let told =
        || format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    (!matches!(output.status.code(), Some(0 | 3))).then(told)
}

/// A write, or a flush, with the number of requests before and after it.
struct Step {
    write: Option<(usize, Vec<u8>)>,
    begun: usize,
    ended: usize,
}

struct Run {
    before: Vec<u8>,
    steps: Vec<Step>,
    recording: Recording,
}

/// Writes here and there, and flushes now and then.
fn work(disk: Device, steps: u64, longest: u64, seed: u64) -> Run {
    let recorder = Arc::new(Recorder::new(disk));
    let requests = || recorder.recording().events().len();
    let image = Qcow2Device::on_device(Arc::clone(&recorder) as Device).unwrap();
    let mut before = vec![0; image.size_bytes() as usize];
    image.read_at(0, &mut before).unwrap();
    let mut random = Rng::new(seed);
    let mut done = Vec::new();
    for number in 0..steps {
        let begun = requests();
        let len = 1 + random.below(longest);
        let offset = random.below(image.size_bytes() - len + 1);
        let write = match random.below(8) {
            0 => {
                image.flush().unwrap();
                None
            }
            1 => {
                image.write_zeroes(offset, len).unwrap();
                Some((offset as usize, vec![0; len as usize]))
            }
            _ => {
                let data: Vec<u8> = (0..len).map(|at| (number * 7 + at % 5 + 1) as u8).collect();
                image.write_at(offset, &data).unwrap();
                Some((offset as usize, data))
            }
        };
        done.push(Step { write, begun, ended: requests() });
    }
    let begun = requests();
    image.flush().unwrap();
    done.push(Step { write: None, begun, ended: requests() });
    Run { before, steps: done, recording: recorder.recording() }
}

impl Run {
    /// Where a byte is neither as it was flushed nor as it was written since.
    fn foreign_byte(&self, found: &[u8], events: usize) -> Option<usize> {
        let is_flushed = |step: &Step| step.write.is_none() && step.ended <= events;
        let flushed = self.steps.iter().rposition(is_flushed).map_or(0, |at| at + 1);
        let mut certain = self.before.clone();
        for (offset, data) in self.steps[..flushed].iter().filter_map(|step| step.write.as_ref()) {
            certain[*offset..*offset + data.len()].copy_from_slice(data);
        }
        let since: Vec<_> = self.steps[flushed..]
            .iter()
            .filter(|step| step.begun < events)
            .filter_map(|step| step.write.as_ref())
            .collect();
        let is_possible = |at: usize| {
            since.iter().any(|(offset, data)| {
                at.checked_sub(*offset).and_then(|at| data.get(at)).is_some_and(|byte| *byte == found[at])
            })
        };
        (0..found.len()).find(|&at| found[at] != certain[at] && !is_possible(at))
    }

    /// Cuts the power after requests. Answers with how many there were.
    fn survives_cuts(&self, directory: &Path, what: &str, seed: u64) -> usize {
        let requests = self.recording.events().len();
        let path = directory.join("cut.qcow2");
        for cut in (0..=requests).step_by(requests / cuts() + 1) {
            let (disk, crash) = self.recording.crash(cut, seed << 20 | cut as u64).unwrap();
            let what = format!("{what}, seed {seed}, after {cut} of {requests} requests, {crash}");
            save(&disk, &path);
            if let Some(damage) = damage(&path) {
                panic!("{what}: {damage}");
            }
            let image = Qcow2Device::on_device(disk).unwrap_or_else(|error| panic!("{what}: {error}"));
            let mut found = vec![0; image.size_bytes() as usize];
            image.read_at(0, &mut found).unwrap_or_else(|error| panic!("{what}: {error}"));
            assert_eq!(self.foreign_byte(&found, cut), None, "{what}: a byte was never there");
        }
        requests
    }
}

fn survives(options: &str, size: &str, steps: u64, longest: u64) -> usize {
    let directory = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    qemu_img(&["create", "-q", "-f", "qcow2", "-o", options, "image", size], directory.path());
    let run = work(disk_with(&directory.path().join("image")), steps, longest, seed());
    run.survives_cuts(directory.path(), options, seed())
}

#[test]
fn small_clusters_whose_tables_come_and_go() {
    assert!(survives("cluster_size=512", "1M", 24, 20_000) > 100);
}

#[test]
fn counts_of_every_width() {
    for bits in [1, 4, 8, 64] {
        survives(&format!("cluster_size=512,refcount_bits={bits}"), "256K", 10, 30_000);
    }
}

#[test]
fn a_table_of_counts_that_grows() {
    assert!(survives("cluster_size=512,refcount_bits=64", "3M", 5, 1_500_000) > 100);
}

#[test]
fn clusters_of_the_usual_size() {
    survives("cluster_size=64k", "4M", 30, 100_000);
}

#[test]
fn the_second_version() {
    let directory = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let options = "compat=0.10,cluster_size=1k";
    qemu_img(&["create", "-q", "-f", "qcow2", "-o", options, "image", "1M"], directory.path());
    let run = work(disk_with(&directory.path().join("image")), 12, 10_000, seed());
    run.survives_cuts(directory.path(), options, seed());
}

/// Clusters that are freed by being written to, and used again.
#[test]
fn compressed_clusters_that_are_written_over() {
    let directory = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let content: Vec<u8> = (0..MIB / 2).map(|at| (at / 700) as u8).collect();
    std::fs::write(directory.path().join("raw"), content).unwrap();
    qemu_img(&["convert", "-c", "-O", "qcow2", "-o", "cluster_size=4k", "raw", "image"], directory.path());
    let run = work(disk_with(&directory.path().join("image")), 24, 20_000, seed());
    run.survives_cuts(directory.path(), "compressed", seed());
}

/// Clusters that a snapshot inside the image shares.
#[test]
fn clusters_of_a_snapshot() {
    let directory = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let content: Vec<u8> = (0..MIB / 2).map(|at| (at / 300) as u8).collect();
    std::fs::write(directory.path().join("raw"), content).unwrap();
    qemu_img(&["convert", "-O", "qcow2", "-o", "cluster_size=4k", "raw", "image"], directory.path());
    qemu_img(&["snapshot", "-c", "before", "image"], directory.path());
    let run = work(disk_with(&directory.path().join("image")), 24, 20_000, seed());
    run.survives_cuts(directory.path(), "with a snapshot", seed());
}

#[test]
fn a_failed_flush_is_the_last_request_of_an_image() {
    let directory = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    qemu_img(&["create", "-q", "-f", "qcow2", "-o", "cluster_size=512", "image", "1M"], directory.path());
    for nth in 1.. {
        let recorder = Arc::new(Recorder::new(disk_with(&directory.path().join("image"))));
        let disk = FailNth::new(Arc::clone(&recorder) as Device, Operation::Flush, nth, Repeat::Once);
        let disk = Arc::new(disk);
        let image = Qcow2Device::on_device(Arc::clone(&disk) as Device).unwrap();
        let work = || -> undercroft_block::Result<()> {
            for at in 0..6 {
                image.write_at(at * 150_000, &[at as u8 + 1; 10_000])?;
                image.flush()?;
            }
            Ok(())
        };
        let worked = work();
        assert_eq!(worked.is_err(), disk.has_failed(), "flush {nth}");
        if worked.is_err() {
            let flushes = disk.seen();
            for _ in 0..3 {
                let error = image.flush().unwrap_err().to_string();
                assert!(error.contains("earlier flush failed") || error.contains("flush"), "{error}");
                assert!(image.write_at(900_000, &[9; 600]).is_err(), "flush {nth}: a cluster was allocated");
            }
            assert_eq!(disk.seen(), flushes, "flush {nth}: the disk was asked again");
        }
        drop(image);
        let recording = recorder.recording();
        let (disk_left, _) = recording.crash(recording.events().len(), nth).unwrap();
        let path = directory.path().join("cut");
        save(&disk_left, &path);
        assert_eq!(damage(&path), None, "flush {nth}");
        if !disk.has_failed() {
            assert!(nth > 10, "{nth}");
            break;
        }
    }
}

//! What the server changes by itself, the kernel is told: `stat`, `statx` and `execve` of other processes see it, though
//! the kernel keeps what it knows of an inode for as long as it likes.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use rustix::fs::{AtFlags, CWD, IFlags, StatxFlags};

use crate::both::{Ours, same_answers_with};
use crate::sample::NOBODY;
use crate::support::{command, until};

/// Every way in which the kernel treats a file's bytes, over both transports.
const WAYS: [&str; 6] = [
    "",
    "no_io_uring",
    "no_writeback_cache",
    "no_writeback_cache,no_io_uring",
    "direct_io",
    "direct_io,no_io_uring",
];

/// A user that is neither root nor [`NOBODY`].
const ANOTHER: u32 = 4_321;

/// What follows the program in its file, and may change without harm to it.
const PADDING_BYTES: usize = 128 * 1024;

/// Makes `id` with this mode, owned by root, with padding behind it. Returns the length of the program alone.
fn make_program(program: &Path, mode: u32) -> usize {
    let mut bytes = fs::read("/usr/bin/id").unwrap();
    let len = bytes.len();
    bytes.resize(len.next_multiple_of(4096) + PADDING_BYTES, 0);
    fs::write(program, bytes).unwrap();
    fs::set_permissions(program, Permissions::from_mode(mode)).unwrap();
    len
}

/// As whom the program runs when [`ANOTHER`] starts it: user and group.
fn runs_as(program: &Path) -> (u32, u32) {
    let number = |option| {
        let output = loop {
            match command(ANOTHER, program).arg(option).output() {
                // A process that another test has just forked holds this one's descriptors until it runs its program.
                Err(error) if error.kind() == io::ErrorKind::ExecutableFileBusy => thread::yield_now(),
                done => break done.unwrap(),
            }
        };
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap().trim().parse().unwrap()
    };
    (number("-u"), number("-g"))
}

fn statx_mode(path: &Path) -> u16 {
    rustix::fs::statx(CWD, path, AtFlags::empty(), StatxFlags::MODE).unwrap().stx_mode & 0o7777
}

/// Changes of a file by one that may write to it, as commands of a shell. The file is `program`, `$LEN` the length of
/// what must stay as it is.
const OPERATIONS: [&str; 9] = [
    "dd if=program of=program bs=4096 count=1 conv=notrunc status=none",
    "dd if=program of=program bs=4096 count=3 conv=notrunc status=none",
    "dd if=program of=program bs=4096 count=1 conv=notrunc status=none oflag=direct",
    "printf x >> program",
    "truncate -s +100 program",
    "fallocate -l 300000 program",
    "fallocate -p -o $(( (LEN + 4095) / 4096 * 4096 )) -l 4096 program",
    "fallocate -z -o $(( (LEN + 4095) / 4096 * 4096 )) -l 4096 program",
    "python3 -c 'import os; f = os.open(\"program\", os.O_RDWR); n = int(os.environ[\"LEN\"]) + 5000; \
     assert os.copy_file_range(f, f, 50, n, n + 1000) == 50'",
];

#[test]
fn a_program_changed_by_a_stranger_runs_without_its_owners_rights() {
    for options in WAYS {
        let ours = Ours::new(options);
        fs::set_permissions(ours.root(), Permissions::from_mode(0o777)).unwrap();
        let program = ours.path("program");
        for operation in OPERATIONS {
            let len = make_program(&program, 0o6777);
            assert_eq!(runs_as(&program), (0, 0));
            let done = command(NOBODY, "sh")
                .args(["-c", operation])
                .current_dir(ours.root())
                .env("LEN", len.to_string())
                .output()
                .unwrap();
            assert!(done.status.success(), "{operation} with \"{options}\": {done:?}");
            assert_eq!(runs_as(&program), (ANOTHER, ANOTHER), "{operation} with \"{options}\"");
            assert_eq!(statx_mode(&program), 0o777, "{operation} with \"{options}\"");
            fs::remove_file(&program).unwrap();
        }
    }
}

#[test]
fn a_program_made_set_user_id_while_a_stranger_has_it_open_loses_that_with_the_next_write() {
    for options in WAYS {
        let ours = Ours::new(options);
        fs::set_permissions(ours.root(), Permissions::from_mode(0o777)).unwrap();
        let program = ours.path("program");
        make_program(&program, 0o777);
        let write = "import os, sys\nf = os.open('program', os.O_WRONLY)\nprint('open', flush=True)\n\
                     sys.stdin.readline()\nos.pwrite(f, b'x', os.fstat(f).st_size - 1)\n";
        let mut writer = command(NOBODY, "python3")
            .args(["-c", write])
            .current_dir(ours.root())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        BufReader::new(writer.stdout.take().unwrap()).read_line(&mut String::new()).unwrap();
        fs::set_permissions(&program, Permissions::from_mode(0o4777)).unwrap();
        assert_eq!(statx_mode(&program), 0o4777);
        writer.stdin.take().unwrap().write_all(b"go\n").unwrap();
        assert!(writer.wait().unwrap().success());
        assert_eq!(runs_as(&program).0, ANOTHER, "with \"{options}\"");
    }
}

#[test]
fn a_program_changed_by_root_keeps_its_rights() {
    for options in WAYS {
        let ours = Ours::new(options);
        let program = ours.path("program");
        let len = make_program(&program, 0o6755);
        let file = OpenOptions::new().write(true).open(&program).unwrap();
        file.write_all_at(b"x", len as u64 + 5_000).unwrap();
        file.set_len(300_000).unwrap();
        drop(file);
        assert_eq!(runs_as(&program), (0, 0), "with \"{options}\"");
    }
}

#[test]
fn flags_set_by_ioctl_bring_a_new_time_of_change() {
    for options in WAYS {
        let ours = Ours::new(options);
        let dir = ours.path("dir");
        fs::create_dir(&dir).unwrap();
        fs::write(dir.join("file"), b"x").unwrap();
        let changed = |path: &Path| {
            let found = fs::metadata(path).unwrap();
            (found.ctime(), found.ctime_nsec())
        };
        // While it caches writes, the kernel keeps the times of files by itself, and takes none from anyone.
        let files_too = options.contains("no_writeback_cache");
        for path in [Some(dir.clone()), files_too.then(|| dir.join("file"))].into_iter().flatten() {
            let before = changed(&path);
            // Times may be as coarse as the machine's clock ticks.
            assert!(
                until(Duration::from_secs(10), || {
                    rustix::fs::ioctl_setflags(File::open(&path).unwrap(), IFlags::NODUMP).unwrap();
                    let now = changed(&path);
                    rustix::fs::ioctl_setflags(File::open(&path).unwrap(), IFlags::empty()).unwrap();
                    now != before
                }),
                "{path:?} with \"{options}\""
            );
        }
    }
}

#[test]
fn space_taken_by_a_file_that_stays_open_is_seen() {
    same_answers_with(&WAYS, |dir, answers| {
        let path = dir.join("file");
        let file = File::create_new(&path).unwrap();
        file.set_len(8 << 20).unwrap();
        answers.tell("a hole", fs::metadata(&path).unwrap().blocks());
        file.write_all_at(&[1; 3 << 20], 0).unwrap();
        file.sync_data().unwrap();
        answers.tell("synced", fs::metadata(&path).unwrap().blocks());
        file.write_all_at(&[1; 2 << 20], 5 << 20).unwrap();
        file.sync_all().unwrap();
        answers.tell("synced again", fs::metadata(&path).unwrap().blocks());
        file.write_all_at(&[1; 1 << 20], 4 << 20).unwrap();
        assert!(Command::new("sync").status().unwrap().success());
        let all = ((3 << 20) + (2 << 20) + (1 << 20)) / 512;
        answers.tell(
            "written back",
            until(Duration::from_secs(20), || fs::metadata(&path).unwrap().blocks() == all),
        );
    });
}

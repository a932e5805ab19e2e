//! Running the program, and the images that several tests look at.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use undercroft_oracle::{Image, LoopMount, Mke2fs, MountMode, Recipe};

/// The program under test.
pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_undercroft");

/// What a run left behind.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) code: i32,
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: String,
}

/// Runs the program to its end.
pub(crate) fn undercroft<A: AsRef<OsStr>>(args: impl IntoIterator<Item = A>) -> Run {
    run(Command::new(PROGRAM).args(args))
}

/// Makes a filesystem in a new image file, whatever this machine's mke2fs.conf says.
pub(crate) fn make_filesystem(path: &Path, family: &str, size: &str) {
    let no_conf = (family != "xfs").then_some("--no-conf");
    undercroft(["mkfs", family, path.to_str().unwrap(), "--size", size].into_iter().chain(no_conf))
        .succeeded();
}

/// Runs a command to its end.
pub(crate) fn run(command: &mut Command) -> Run {
    let output = command.stdin(Stdio::null()).output().unwrap();
    Run {
        code: output.status.code().expect("not killed"),
        stdout: output.stdout,
        stderr: String::from_utf8(output.stderr).expect("messages are text"),
    }
}

impl Run {
    /// The output of a run that succeeded and had nothing to complain about.
    pub(crate) fn succeeded(self) -> Vec<u8> {
        assert_eq!((self.code, self.stderr.as_str()), (0, ""), "{}", String::from_utf8_lossy(&self.stdout));
        self.stdout
    }

    /// The same as text.
    pub(crate) fn text(self) -> String {
        String::from_utf8(self.succeeded()).unwrap()
    }

    /// The same as JSON.
    pub(crate) fn json(self) -> serde_json::Value {
        serde_json::from_slice(&self.succeeded()).unwrap()
    }

    /// The message of a run that failed with this code: one sentence in one line.
    pub(crate) fn failed(self, code: i32) -> String {
        assert_eq!(self.code, code, "{}", self.stderr);
        let line = self.stderr.strip_suffix('\n').unwrap_or_else(|| panic!("no line end: {:?}", self.stderr));
        assert!(!line.contains('\n'), "more than one line: {line}");
        line.strip_prefix("undercroft: ").unwrap_or_else(|| panic!("no name in front: {line}")).to_owned()
    }
}

/// An ext4 with one of everything, made once for all tests; no test changes it.
pub(crate) struct Rich(PathBuf);

impl Rich {
    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// What the kernel shows of it.
    pub(crate) fn mount(&self) -> LoopMount {
        LoopMount::new(&self.0, "ext4", MountMode::ReadOnly, "").unwrap()
    }
}

/// The one image. It lives as long as the process and is never dropped, so it lies among the build's own files, where
/// the next run replaces it.
pub(crate) fn rich() -> &'static Rich {
    static RICH: OnceLock<Rich> = OnceLock::new();
    RICH.get_or_init(|| {
        let mke2fs = Mke2fs::new("ext4", 256).inodes(16_000).block_bytes(1024);
        let image = Recipe::new(mke2fs).plan(|plan| plan.many = 2000).make().unwrap();
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("rich.img");
        tool(&format!("cp --sparse=always {} {}", image.path().display(), path.display()), Path::new("/"));
        Rich(path)
    })
}

/// A small ext4 that holds these files, written by debugfs.
pub(crate) fn small(files: &[(&str, &str)]) -> Image {
    let image = Mke2fs::new("ext4", 8).args(["-E", "nodiscard,root_owner=0:0"]).make().unwrap();
    fill(&image, files);
    image
}

/// Writes files into an image, without mounting it. Directories on the way are made.
pub(crate) fn fill(image: &Image, files: &[(&str, &str)]) {
    let dir = tempfile::tempdir().unwrap();
    let mut commands = Vec::new();
    let mut made: Vec<PathBuf> = Vec::new();
    for (number, (path, content)) in files.iter().enumerate() {
        for parent in Path::new(path).ancestors().skip(1).collect::<Vec<_>>().into_iter().rev() {
            if parent != Path::new("/") && !made.iter().any(|known| known == parent) {
                commands.push(format!("mkdir {}", parent.display()));
                made.push(parent.to_owned());
            }
        }
        let source = dir.path().join(number.to_string());
        std::fs::write(&source, content).unwrap();
        commands.push(format!("write {} {path}", source.display()));
    }
    image.debugfs_write(&commands.iter().map(String::as_str).collect::<Vec<_>>()).unwrap();
}

/// Copies the program under test. Another process writes the copy: a file descriptor of this one, open for writing, would
/// be inherited by what other tests start meanwhile, and the kernel runs no program that is open for writing.
pub(crate) fn copy_program(to: &Path) {
    tool(&format!("cp {PROGRAM} {}", to.display()), Path::new("/"));
}

/// A shell's command on a terminal of its own. The caller of the tests may ignore signals, as a shell does for a job in the
/// background, and nohup; the command does not.
pub(crate) fn on_terminal(command: &str) -> Command {
    let mut script = Command::new("env");
    script.args(["--default-signal", "script", "-qec", command, "/dev/null"]);
    script
}

/// A command, its arguments separated by spaces, that must be there and succeed.
pub(crate) fn tool(command: &str, dir: &Path) -> String {
    let mut words = command.split(' ');
    let name = words.next().unwrap();
    let output = Command::new(name)
        .args(words)
        .current_dir(dir)
        .env("LC_ALL", "C")
        .stdin(Stdio::null())
        .output()
        .unwrap_or_else(|error| panic!("{name} is needed for this test: {error}"));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command}: {said}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

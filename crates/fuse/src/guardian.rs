//! A small process that takes the mount away if the server dies without doing so.
//!
//! A FUSE mount whose server was killed stays behind, and every access to it fails with "transport endpoint is not
//! connected". The guardian is started before the mount and waits on a pipe that only the server holds: when the
//! server ends, however it ends, the kernel closes the pipe and the guardian detaches the mount.
//!
//! It is a shell with a few lines of script rather than a copy of ourselves: a library cannot know how its program
//! wants to be started, and a fork without an exec is not safe once there are threads. The mount is told by its
//! device number and its place, so nothing else is touched; while another mount lies on top of it, the guardian
//! waits. (The helper's own `auto_unmount` does not do: for ordinary users it works only where `/etc/fuse.conf`
//! permits `allow_other`.)

use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};

use crate::mount_table::{self, MountEntry};

/// The first line that comes in is the mount's device number and its place as the mount table writes it, the second
/// says that the mount is gone. The end of the pipe says that the server is. `$1` is the place as it is.
const SCRIPT: &str = r#"
trap '' HUP INT QUIT TERM
read -r device place || exit 0
read -r word
[ "$word" = unmounted ] && exit 0
while :; do
    ours= top=
    while read -r id parent mounted root at rest; do
        [ "$at" = "$place" ] || continue
        top=$mounted
        [ "$mounted" = "$device" ] && ours=yes
    done < /proc/self/mountinfo
    [ "$ours" ] || exit 0
    if [ "$top" = "$device" ]; then
        { umount -l -- "$1" || fusermount3 -u -z -- "$1"; } && continue
    fi
    sleep 1
done
"#;

/// The running guardian. Dropping it without [`release`](Self::release) makes it take the mount away.
pub(crate) struct Guardian {
    shell: Child,
    pipe: Option<ChildStdin>,
}

impl Guardian {
    /// Starts a guardian for what is going to be mounted on `dir`. It does nothing before [`guard`](Self::guard).
    pub(crate) fn start(dir: &Path) -> io::Result<Self> {
        let mut shell = Command::new("/bin/sh")
            .arg("-c")
            .arg(SCRIPT)
            .arg("undercroft-guardian")
            .arg(dir)
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // Out of reach of a Ctrl-C that is meant for the server.
            .process_group(0)
            .spawn()?;
        let pipe = shell.stdin.take();
        Ok(Self { shell, pipe })
    }

    /// From now on the mount goes when the server goes.
    pub(crate) fn guard(&mut self, mount: &MountEntry) -> io::Result<()> {
        let mut line = format!("{} ", mount.device).into_bytes();
        line.extend_from_slice(&mount_table::escape(&mount.point));
        self.say(&line)
    }

    /// The mount is gone already: the guardian ends without touching anything.
    pub(crate) fn release(mut self) {
        // If it is not there any more, it cannot do harm either.
        let _ = self.say(b"unmounted");
    }

    fn say(&mut self, line: &[u8]) -> io::Result<()> {
        match &mut self.pipe {
            Some(pipe) => pipe.write_all(&[line, b"\n"].concat()),
            None => Err(io::ErrorKind::BrokenPipe.into()),
        }
    }
}

impl Drop for Guardian {
    fn drop(&mut self) {
        self.pipe = None;
        // Ends within moments: it has nothing left to wait for.
        let _ = self.shell.wait();
    }
}

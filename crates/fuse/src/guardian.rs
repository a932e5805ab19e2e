//! A small process that takes the mount away if the server dies without doing so.
//!
//! A FUSE mount whose server was killed stays behind, and every access to it fails with "transport endpoint is not
//! connected". The guardian is started before the mount and waits on a pipe that only the server holds: when the
//! server ends, however it ends, the kernel closes the pipe and the guardian detaches the mount.
//!
//! It is a shell with a few lines of script rather than a copy of ourselves: a library cannot know how its program
//! wants to be started, and a fork without an exec is not safe once there are threads. The mount is told by its own and
//! its device's number, and taken away from the directory under it, which the guardian holds: whatever becomes of the
//! path, nothing else is touched. Both numbers may come again, at the next mount on the same directory even, whose
//! server answers: only what is dead, and lies on that directory, is taken away. While another mount lies on top of it,
//! or a mount of these numbers is alive or elsewhere, the guardian waits. What an ordinary user has mounted goes by its
//! path, through the helper, which takes away nothing but that user's FUSE mounts. (The helper's own `auto_unmount`
//! does not do: for ordinary users it works only where `/etc/fuse.conf` permits `allow_other`.)

use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use undercroft_block::mountinfo::Mount;

use crate::mount_point::MountPoint;

/// The first line that comes in has the mount's number and its device's, the second says that the mount is gone, or that it
/// is to go although its server lives. The end of the pipe says that the server is gone. `$1` is the path, standard output
/// the directory under the mount. `umount` of util-linux would look for that directory's path if it were not told to take it
/// as it is; that of busybox does not. The table of mounts has octal numbers for some bytes of paths. A dead mount is told by
/// its space: attributes may be the kernel's own. Where there is no `stat`, the numbers have to do.
const SCRIPT: &str = r#"
trap '' HUP INT QUIT TERM
exec 3<&1 >/dev/null
read -r id device || exit 0
read -r word
[ "$word" = unmounted ] && exit 0
while :; do
    ours= covered=
    while read -r mount parent mounted root at rest; do
        [ "$mount $mounted" = "$id $device" ] && ours=$at
    done < /proc/self/mountinfo
    [ "$ours" ] || exit 0
    while read -r mount parent mounted root at rest; do
        [ "$parent $at" = "$id $ours" ] && covered=yes
    done < /proc/self/mountinfo
    # Three digits each; a dot keeps a newline at the end.
    place=
    rest=$ours
    while :; do
        case $rest in *\\[0-7][0-7][0-7]*) ;; *) break ;; esac
        place=$place${rest%%\\*}
        rest=${rest#*\\}
        behind=${rest#???}
        place=$place$(printf "\\${rest%"$behind"}.")
        place=${place%.}
        rest=$behind
    done
    place=$place$rest
    point=$(readlink /proc/self/fd/3; echo .)
    point=${point%??}
    [ "$point" ] || point=$1
    if [ ! "$covered" ] && [ "$place" = "$point" ]; then
        if [ "$word" = detach ] || ! stat -f "/proc/self/fd/3/../${point##*/}"; then
            { umount -c -l /proc/self/fd/3 || umount -l /proc/self/fd/3 || fusermount3 -u -z -- "$point"; } && exit 0
            # What has the numbers from now on may be another.
            word=
        fi
    fi
    sleep 1
done
"#;

/// How long the end of a server waits for its mount to go, which takes moments unless something lies on top of it: that may
/// be any user's, for any time.
const LIMIT: Duration = Duration::from_secs(5);

/// How often it looks.
const LOOK: Duration = Duration::from_millis(1);

/// The running guardian. Dropping it without [`release`](Self::release) makes it take the mount away.
pub(crate) struct Guardian {
    shell: Child,
    pipe: Option<ChildStdin>,
}

impl Guardian {
    /// Starts a guardian for what is going to be mounted on `point`, which is `dir`. It does nothing before
    /// [`guard`](Self::guard).
    pub(crate) fn start(point: &MountPoint, dir: &Path) -> io::Result<Self> {
        let mut shell = Command::new("/bin/sh")
            .arg("-c")
            .arg(SCRIPT)
            .arg("undercroft-guardian")
            .arg(dir)
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::from(point.for_child()?))
            .stderr(Stdio::null())
            // Out of reach of a Ctrl-C that is meant for the server.
            .process_group(0)
            .spawn()?;
        let pipe = shell.stdin.take();
        Ok(Self { shell, pipe })
    }

    /// From now on the mount goes when the server goes.
    pub(crate) fn guard(&mut self, mount: &Mount) -> io::Result<()> {
        self.say(format!("{} {}", mount.id, mount.device).as_bytes())
    }

    /// The mount goes now, although its server lives.
    pub(crate) fn detach(mut self) {
        let _ = self.say(b"detach");
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
        let end = Instant::now() + LIMIT;
        // It outlives us where it has to: it waits for nothing that we hold.
        while matches!(self.shell.try_wait(), Ok(None)) && Instant::now() < end {
            thread::sleep(LOOK);
        }
    }
}

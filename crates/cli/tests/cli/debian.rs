//! A root tree, in a filesystem and on a disk that boots.
//!
//! Each run takes a part of this machine's own tree. By command it is Debian's, which needs Debian's archive and some minutes, and
//! then a disk of it is booted: `UNDERCROFT_DEBIAN=1 cargo test -p undercroft-cli --features oracle --test cli debian`, or
//! `UNDERCROFT_DEBIAN_TAR=FILE` for a tree that mmdebstrap made earlier.

use std::fs;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use undercroft_oracle::Differences;

use crate::documents::{as_ordinary_user, own_directory};
use crate::mkfs_from::{comparable, shown, unpacked};
use crate::support::tool;
use crate::tar::through_tar;

/// What is in the tree: a kernel with its initramfs, a boot loader, systemd, and a file with capabilities.
const PACKAGES: &str = "bash,mount,e2fsprogs,xfsprogs,iputils-ping,libcap2-bin,udev,systemd-sysv,linux-image-cloud-amd64,systemd-boot-efi";

/// How long a boot may take, emulated and on a busy machine.
const BOOT: Duration = Duration::from_secs(1500);

/// A root tree of Debian, as mmdebstrap makes it, if one is asked for.
fn debian_tar(dir: &Path) -> Option<PathBuf> {
    if let Some(made) = std::env::var_os("UNDERCROFT_DEBIAN_TAR") {
        return Some(made.into());
    }
    std::env::var_os("UNDERCROFT_DEBIAN")?;
    let tar = dir.join("root.tar");
    tool(
        &format!("mmdebstrap --quiet --variant=essential --include={PACKAGES} bookworm {}", tar.display()),
        dir,
    );
    Some(tar)
}

/// A part of this machine's.
fn own_tar(dir: &Path) -> PathBuf {
    let all = "--xattrs --xattrs-include=* --numeric-owner";
    tool(&format!("tar {all} -cf root.tar -C / --no-recursion . ./usr --recursion ./usr/sbin"), dir);
    tool("cp /bin/true program", dir);
    tool("setcap cap_net_raw+ep program", dir);
    tool(&format!("tar {all} --format=posix -rf root.tar program"), dir);
    dir.join("root.tar")
}

#[test]
fn a_root_tree_is_as_gnu_tar_unpacks_it() {
    let dir = own_directory();
    let debian = debian_tar(dir.path());
    let least = if debian.is_some() { 5000 } else { 100 };
    let archive = debian.unwrap_or_else(|| own_tar(dir.path()));
    // With --acls GNU tar passes over lists that are kept as attributes, as mmdebstrap keeps them.
    let expected = through_tar(comparable(unpacked(&archive, 2048, "--no-acls")));
    assert!(expected.entries.len() > least, "{} entries", expected.entries.len());
    let has_capability = |xattrs: &std::collections::BTreeMap<Vec<u8>, Vec<u8>>| {
        xattrs.contains_key(&b"security.capability"[..])
    };
    assert!(expected.entries.values().any(|entry| has_capability(&entry.xattrs)));
    for kind in ["ext4", "xfs"] {
        let script = format!("undercroft mkfs {kind} {kind}.img --from - < root.tar");
        as_ordinary_user(dir.path(), &script, Some(&archive)).succeeded();
        let image = dir.path().join(format!("{kind}.img"));
        let found = through_tar(comparable(shown(kind, &image)));
        Differences::between(&expected, &found).assert_none(kind);
        fs::remove_file(image).unwrap();
    }
}

/// Where no tree of Debian is asked for there is nothing to boot.
#[test]
fn a_disk_made_by_one_command_boots() {
    let dir = own_directory();
    let Some(archive) = debian_tar(dir.path()) else { return };
    for (kind, check) in [("ext4", "e2fsck -fn"), ("xfs", "xfs_repair -n")] {
        let making = format!(
            r#"
            mkdir -p unpacked boot/EFI/BOOT boot/loader/entries
            tar -C unpacked --wildcards --no-same-owner -xf root.tar './boot/*' ./usr/lib/systemd/boot/efi/systemd-bootx64.efi
            cp unpacked/usr/lib/systemd/boot/efi/systemd-bootx64.efi boot/EFI/BOOT/BOOTX64.EFI
            cp unpacked/boot/vmlinuz-* boot/vmlinuz && cp unpacked/boot/initrd.img-* boot/initrd.img
            printf 'title Debian\nlinux /vmlinuz\ninitrd /initrd.img\noptions root=PARTLABEL=root console=ttyS0\n' \
                > boot/loader/entries/debian.conf
            undercroft disk create {kind}.img --size 3G esp=vfat:200M:boot root={kind}:rest:root.tar
            # A shell in place of a login.
            getty=/etc/systemd/system/serial-getty@ttyS0.service.d
            undercroft mkdir -p '{kind}.img?part=root' $getty
            printf '[Service]\nExecStart=\nExecStart=-/bin/bash --login\nStandardInput=tty\nStandardOutput=tty\n' |
                undercroft write '{kind}.img?part=root' $getty/shell.conf
            "#
        );
        as_ordinary_user(dir.path(), &making, Some(&archive)).succeeded();
        let image = dir.path().join(format!("{kind}.img"));
        let began = Instant::now();
        let mut machine = Machine::start(&image);
        machine.wait_for("root@");
        // What is typed comes back: it must not have what is waited for.
        machine.type_line("PS1='rea''dy> '");
        machine.wait_for("ready> ");
        machine
            .type_line("echo root is $(findmnt -n -o FSTYPE /); echo booted $((6 * 7)) | tee /root/written");
        machine.wait_for(&format!("root is {kind}"));
        machine.wait_for("booted 42");
        machine.wait_for("ready> ");
        machine.type_line("systemctl poweroff");
        machine.wait_for_end();
        eprintln!("{kind}: booted, written to and off after {} s", began.elapsed().as_secs());
        let name = format!("{kind}.img?part=root");
        let looking = format!(
            "undercroft disk extract '{name}' part.img --force; undercroft cat '{name}' /root/written"
        );
        assert_eq!(as_ordinary_user(dir.path(), &looking, None).text().lines().last(), Some("booted 42"));
        tool(&format!("{check} part.img"), dir.path());
        tool(&format!("sgdisk -v {kind}.img"), dir.path());
        fs::remove_file(image).unwrap();
    }
}

/// A virtual machine with a disk, and what its serial console says.
struct Machine {
    emulator: Child,
    pieces: Receiver<Vec<u8>>,
    said: String,
    seen: usize,
    end: Instant,
}

impl Machine {
    fn start(disk: &Path) -> Self {
        let mut command = Command::new("qemu-system-x86_64");
        command.args(["-accel", "tcg", "-m", "1024", "-nographic", "-no-reboot", "-net", "none"]);
        command.args(["-drive", "if=pflash,format=raw,readonly=on,file=/usr/share/OVMF/OVMF_CODE_4M.fd"]);
        command.arg("-drive").arg(format!("file={},if=virtio,format=raw", disk.display()));
        let mut emulator = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut console = emulator.stdout.take().unwrap();
        let (sender, pieces) = channel();
        thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(len @ 1..) = console.read(&mut buffer) {
                if sender.send(buffer[..len].to_vec()).is_err() {
                    return;
                }
            }
        });
        Self { emulator, pieces, said: String::new(), seen: 0, end: Instant::now() + BOOT }
    }

    /// Hears more; `false` at the end.
    fn hear(&mut self) -> bool {
        match self.pieces.recv_timeout(self.end.saturating_duration_since(Instant::now())) {
            Ok(piece) => {
                self.said += &String::from_utf8_lossy(&piece);
                true
            }
            Err(RecvTimeoutError::Disconnected) => false,
            Err(RecvTimeoutError::Timeout) => panic!("no answer after {BOOT:?}:\n{}", self.said),
        }
    }

    /// Waits until the console says this, behind what was waited for before.
    fn wait_for(&mut self, words: &str) {
        loop {
            if let Some(at) = self.said[self.seen..].find(words) {
                self.seen += at + words.len();
                return;
            }
            assert!(self.hear(), "the machine has ended:\n{}", self.said);
        }
    }

    fn type_line(&mut self, line: &str) {
        self.emulator.stdin.as_mut().unwrap().write_all(format!("{line}\r").as_bytes()).unwrap();
    }

    fn wait_for_end(&mut self) {
        while self.hear() {}
        assert!(self.emulator.wait().unwrap().success(), "{}", self.said);
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = self.emulator.kill();
        let _ = self.emulator.wait();
    }
}

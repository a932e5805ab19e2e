//! Operations done through our vfs.

use std::sync::Arc;

use undercroft_vfs::{
    AttrChange, Credentials, Durable, Error, FileType, Follow, NewKind, NewObject, Node, RenameFlags, Result,
    Vfs, XattrMode,
};

use super::{Done, Hand, Operation, bytes, split};

/// Works from the root of one of our filesystems.
#[derive(Clone)]
pub struct OurHand {
    vfs: Arc<Vfs>,
    caller: Credentials,
}

impl OurHand {
    /// A hand that works from the root on.
    #[must_use]
    pub fn new(vfs: &Arc<Vfs>) -> Self {
        Self { vfs: Arc::clone(vfs), caller: Credentials::root() }
    }

    fn node(&self, path: &str) -> Result<Arc<Node>> {
        self.vfs.resolve(&self.caller, format!("/{path}").as_bytes(), Follow::NoFollow)
    }

    fn place<'a>(&self, path: &'a str) -> Result<(Arc<Node>, &'a [u8])> {
        let (dir, name) = split(path);
        Ok((self.node(dir)?, name.as_bytes()))
    }

    fn make(&self, path: &str, kind: NewKind<'_>, permissions: u16) -> Result<()> {
        let (dir, name) = self.place(path)?;
        self.vfs.create(&self.caller, &dir, name, &NewObject { kind, permissions, umask: 0 }).map(drop)
    }

    fn open(&self, path: &str) -> Result<undercroft_vfs::File> {
        self.vfs.open_node_for_writing(&self.node(path)?)
    }

    fn change(&self, path: &str, change: &AttrChange) -> Result<()> {
        self.vfs.set_attr(&self.caller, &self.node(path)?, change)
    }

    fn try_to(&self, operation: &Operation) -> Result<()> {
        match operation {
            Operation::Create { path } => self.make(path, NewKind::Regular, 0o644),
            Operation::Mkdir { path } => self.make(path, NewKind::Directory, 0o755),
            Operation::Symlink { path, target } => {
                self.make(path, NewKind::Symlink(target.as_bytes()), 0o777)
            }
            Operation::Fifo { path } => self.make(path, NewKind::Fifo, 0o644),
            Operation::Link { path, to } => {
                let (node, (dir, name)) = (self.node(path)?, self.place(to)?);
                self.vfs.link(&self.caller, &node, &dir, name)
            }
            Operation::Unlink { path } => {
                let (dir, name) = self.place(path)?;
                self.vfs.unlink(&self.caller, &dir, name)
            }
            Operation::Rmdir { path } => {
                let (dir, name) = self.place(path)?;
                self.vfs.rmdir(&self.caller, &dir, name)
            }
            Operation::Rename { path, to, exchange } => {
                let ((dir, name), (to_dir, to_name)) = (self.place(path)?, self.place(to)?);
                let flags = if *exchange { RenameFlags::EXCHANGE } else { RenameFlags::empty() };
                self.vfs.rename(&self.caller, (&dir, name), (&to_dir, to_name), flags)
            }
            Operation::Write { path, offset, len, seed } => {
                write_all(*len, |done, data| self.open(path)?.write_at(offset + done, data), *seed)
            }
            Operation::Append { path, len, seed } => {
                write_all(*len, |_, data| Ok(self.open(path)?.append(data)?.1), *seed)
            }
            Operation::Truncate { path, size } => self.open(path)?.truncate(*size),
            Operation::Space { path, change, offset, len, keep_size } => {
                self.open(path)?.fallocate(*change, *offset, *len, *keep_size)
            }
            Operation::Share { path, offset, to, to_offset, len } => {
                self.open(path)?.clone_range(*offset, &self.open(to)?, *to_offset, *len)
            }
            Operation::SetXattr { path, name, value } => {
                let node = self.node(path)?;
                self.vfs.set_xattr(&self.caller, &node, name.as_bytes(), value, XattrMode::Set)
            }
            Operation::RemoveXattr { path, name } => {
                self.vfs.remove_xattr(&self.caller, &self.node(path)?, name.as_bytes())
            }
            Operation::Chmod { path, mode } => {
                if self.node(path)?.kind() == FileType::Symlink {
                    return Err(Error::Unsupported("permissions of a link".into()));
                }
                self.change(path, &AttrChange { permissions: Some(*mode), ..AttrChange::default() })
            }
            Operation::Chown { path, uid, gid } => {
                let change = AttrChange { uid: Some(*uid), gid: Some(*gid), ..AttrChange::default() };
                self.change(path, &change)
            }
            Operation::Sync { path } => self.open(path)?.sync(Durable::Everything),
        }
    }
}

fn write_all(len: usize, write: impl Fn(u64, &[u8]) -> Result<usize>, seed: u64) -> Result<()> {
    let data = bytes(seed, len);
    let mut done = 0;
    while done < len {
        done += write(done as u64, &data[done..])?;
    }
    Ok(())
}

impl Hand for OurHand {
    fn act(&self, operation: &Operation) -> std::result::Result<Done, String> {
        match self.try_to(operation) {
            Ok(()) => Ok(Done::Yes),
            // Attributes have little room, on however large a disk.
            Err(Error::NoSpace) if matches!(operation, Operation::SetXattr { .. }) => Ok(Done::Refused),
            Err(
                error @ (Error::Io(_)
                | Error::Corrupt(_)
                | Error::ReadOnly
                | Error::TurnedReadOnly(_)
                | Error::ShutDown
                | Error::NoSpace),
            ) => Err(format!("{operation}: {error}")),
            Err(_) => Ok(Done::Refused),
        }
    }
}

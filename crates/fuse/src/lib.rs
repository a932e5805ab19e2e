//! A FUSE server over the vfs: mounts a filesystem for every program on the machine.
//!
//! [`mount`] attaches a [`Vfs`](undercroft_vfs::Vfs) to a directory, as root or, with `fusermount3`, as any user;
//! [`Mounted`] is the running server; [`unmount`] takes a mount away from any process.
//!
//! ```no_run
//! use std::path::Path;
//! use undercroft_fuse::{MountOptions, mount};
//! use undercroft_vfs::{Vfs, VfsOptions};
//! # fn filesystem() -> std::sync::Arc<dyn undercroft_vfs::FileSystem> { unimplemented!() }
//!
//! let vfs = Vfs::new(filesystem(), VfsOptions::default());
//! let mounted = mount(vfs, Path::new("/mnt"), MountOptions::default())?;
//! mounted.wait()?; // until it is unmounted; an error says what is not durable
//! # Ok::<(), undercroft_fuse::MountError>(())
//! ```
//!
//! | module        | holds                                                                    |
//! | ------------- | ------------------------------------------------------------------------ |
//! | `transport`   | the wire: the kernel's protocol and the event loops                      |
//! | `server`      | what is answered, with `directory`, `names`, `files`, `attributes`, `ioctl` |
//! | `caller`      | the process that a request comes from                                    |
//! | `nodes`       | which inodes the kernel holds                                            |
//! | `dirty_limit` | how much the kernel may hold of what was written; `failed_writes` keeps what failed of it |
//! | `errno`       | errors into errnos; `fault_log` says in words what they cannot           |
//! | `abort`       | ending a connection whose server cannot go on                            |
//! | `attach`      | mounting and unmounting; `mount_table` finds mounts, `mount_point` and   |
//! |               | `own_mount` hold them                                                    |
//! | `io_flusher`  | what the kernel's memory management must know of the threads             |
//! | `pauses`      | making changes durable when they pause                                   |
//! | `panics`      | what a defect costs                                                       |
//! | `guardian`    | takes the mount away when the server is killed                           |
//! | `sync`        | making everything durable that was written through a mount               |
//! | `liveness`    | how an unmount learns that the server has ended, and how                 |
//!
//! The server keeps no data: the kernel's page cache stands above it, for writing too unless it is told not to. The
//! kernel may keep everything it learns, because nothing changes behind its back; what is asked again is answered
//! from the caches of the vfs. This crate knows nothing of any on-disk format.

mod abort;
mod attach;
mod attributes;
mod caller;
mod directory;
mod dirty_limit;
mod errno;
mod error;
mod failed_writes;
mod fault_log;
mod files;
mod guardian;
mod io_flusher;
mod ioctl;
mod liveness;
mod mount_point;
mod mount_table;
mod mounted;
mod names;
mod nodes;
mod options;
mod own_mount;
mod panics;
mod pauses;
mod server;
mod space;
mod sync;
mod transport;
mod unmount;

#[cfg(test)]
#[path = "../examples/serve_memory/memory.rs"]
mod memory;
#[cfg(test)]
#[path = "../examples/serve_memory/sample.rs"]
mod sample;

pub use error::{MountError, SyncError, UnmountError};
pub use fault_log::{Fault, FaultSink};
pub use io_flusher::become_io_flusher;
pub use mounted::{CloseBelow, Mounted, mount, mount_above};
pub use options::{ListAttributes, MountOptions, OptionError};
pub use sync::sync;
pub use transport::WeakConnection;
pub use unmount::{unmount, unmount_device};

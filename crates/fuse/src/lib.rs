//! A FUSE server over the vfs: mounts a filesystem for every program on the machine.
//!
//! [`mount`] attaches a [`Vfs`](undercroft_vfs::Vfs) to a directory, as root or, with `fusermount3`, as anybody;
//! [`Mounted`] is the running server; [`unmount`] takes a mount away from any process.
//!
//! | module        | holds                                                                    |
//! | ------------- | ------------------------------------------------------------------------ |
//! | `transport`   | the wire: the kernel's protocol and the event loops                      |
//! | `server`      | what is answered, with `directory`, `names`, `files`, `attributes`, `ioctl` |
//! | `caller`      | who asks                                                                 |
//! | `nodes`       | which inodes the kernel holds                                            |
//! | `errno`       | errors into errnos; `fault_log` says in words what they cannot           |
//! | `attach`      | mounting and unmounting; `mount_table` finds mounts                      |
//! | `guardian`    | takes the mount away when the server is killed                           |
//! | `presence`    | how an unmount learns that the server has ended                          |
//!
//! The server keeps no data: the kernel's page cache stands above it, for writing too unless it is told not to. The
//! kernel may keep everything it learns, because nothing changes behind its back; what is asked again is answered
//! from the caches of the vfs. This crate knows nothing of any on-disk format.

mod attach;
mod attributes;
mod caller;
mod directory;
mod errno;
mod error;
mod fault_log;
mod files;
mod guardian;
mod ioctl;
mod mount_table;
mod mounted;
mod names;
mod nodes;
mod options;
mod presence;
mod server;
mod transport;
mod unmount;

#[cfg(test)]
#[path = "../examples/serve_memory/memory.rs"]
mod memory;
#[cfg(test)]
#[path = "../examples/serve_memory/sample.rs"]
mod sample;

pub use error::{MountError, UnmountError};
pub use fault_log::FaultSink;
pub use mounted::{Mounted, mount};
pub use options::{ListAttributes, MountOptions, OptionError, PollIdle};
pub use unmount::unmount;

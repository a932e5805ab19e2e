//! A POSIX filesystem in memory.
//!
//! ```
//! use undercroft_tmpfs::{Tmpfs, TmpfsOptions};
//! use undercroft_vfs::{Credentials, Vfs, VfsOptions};
//!
//! let vfs = Vfs::new(Tmpfs::new(&TmpfsOptions::default())?, VfsOptions::default());
//! let user = Credentials::root();
//! vfs.create_dir_all(&user, "/var/tmp")?;
//! vfs.write(&user, "/var/tmp/note", "text")?;
//! assert_eq!(vfs.read(&user, "/var/tmp/note")?, b"text");
//! # Ok::<(), undercroft_vfs::Error>(())
//! ```
//!
//! | module      | holds                                                                      |
//! | ----------- | -------------------------------------------------------------------------- |
//! | `fs`        | the filesystem as the vfs sees it                                          |
//! | `inode`     | an inode as the vfs sees it                                                |
//! | `directory` | names, and what becomes of inodes when names change                        |
//! | `contents`  | the bytes of a regular file                                                |
//! | `meta`      | attributes and times                                                       |
//! | `numbers`   | inode numbers; owns the inodes                                             |
//! | `shared`    | what all inodes have in common, with `budget`: the space that is left      |
//!
//! No structure is shared by all operations, and no directory has a lock: threads that work on different names of
//! one directory write to no cache line in common once the directory's table has noticed that they do.
//!
//! Differences from Linux's: reading does not change the time of access; a directory's size is always one page.

mod budget;
mod contents;
mod directory;
mod fs;
mod inode;
mod meta;
mod numbers;
mod options;
mod shared;
mod words;

pub use fs::Tmpfs;
pub use options::{OptionError, TmpfsOptions};

//! The control socket: commands reach the process that has an image mounted.
//!
//! An image has one writer, so a mounted filesystem or array can be looked after only by the process that serves the mount.
//! That process listens on a Unix socket ([`server`]), and commands find it by the image or by the mount point
//! ([`client`]). One connection carries one request, a line of JSON; the answer is a line, and for long work lines of
//! progress before it ([`protocol`], [`wire`]).
//!
//! **Trust.** Sockets have mode 0600 and lie in a directory of mode 0700 that belongs to the server's user
//! ([`directory`]). Both sides check the directory's owner and ask the kernel for the other's user (`SO_PEERCRED`):
//!
//! - a server answers its own user and root;
//! - a client trusts a server that runs for the owner of the directory, which is the client's own user. Root's client
//!   also asks the servers of other users, without trust: reading is bounded in size and time, text is escaped, a
//!   mount point counts only if the kernel's mount table has it as that user's mount, and an image only if its file
//!   belongs to that user.
//!
//! **Bounds.** A server serves at most [`server::CONNECTIONS_MAX`] connections, of which at most
//! [`server::WAITING_MAX`] wait for long work, so that short requests always get through. It reads at most
//! [`wire::REQUEST_MAX`] bytes within [`wire::REQUEST_LIMIT`].
//!
//! **Locks.** Of class `mount`: the server's list of open connections, the list of an array's members, and the lock that
//! serializes requests to grow. Only the last is held during a request's work. They are not nested.

pub(crate) mod client;
mod directory;
pub(crate) mod protocol;
pub(crate) mod server;
mod wire;

//! Idle policy: what a thread does between two requests.
//!
//! A blocked client idles its processor, and so does a server that waits. In a virtual machine an idle processor halts,
//! and waking it costs 30 µs and more, several times what most requests cost otherwise. The policy keeps processors
//! awake, or keeps client and server on one:
//!
//! | transport   | means         | what it does                                                              |
//! | ----------- | ------------- | ------------------------------------------------------------------------- |
//! | io_uring    | [`placement`] | a queue's threads run on the queue's processor, beside the client         |
//! | `/dev/fuse` | [`spin`]      | an event loop asks again for some microseconds before it sleeps           |
//! | `/dev/fuse` | [`limit`]     | with `poll_idle` two loops wait at most, so that warm ones are woken      |
//! | both        | [`polling`]   | with `poll_idle`, as root, idle processors of the machine poll            |
//!
//! Without `poll_idle` nothing outside the server's own threads changes. Each means may fail or be refused by the
//! kernel; requests are then answered later, and none is left.

pub(super) mod limit;
pub(super) mod placement;
pub(super) mod polling;
pub(super) mod spin;

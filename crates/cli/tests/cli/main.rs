//! The program as people and scripts meet it: the real binary, in fresh directories, against images that Linux's own
//! tools made, and checked by Linux's own tools. Most of it needs root, for loop mounts, owners and device nodes.

mod bench;
mod block_device;
mod check;
mod control;
mod disk;
mod durable;
mod errors;
mod frozen;
mod get;
mod get_habits;
mod get_interrupted;
mod grow;
mod help;
mod hostile;
mod identity;
mod in_use;
mod look;
mod md;
mod mkfs;
mod mkfs_xfs;
mod mount;
mod mount_helper;
mod mount_refused;
mod namespaces;
mod overwriting;
mod partitions;
mod rescue;
mod slips;
mod support;
mod tar;
mod terminal;
mod tour;
mod xfs;
mod xfs_damage;
mod xfs_mount;

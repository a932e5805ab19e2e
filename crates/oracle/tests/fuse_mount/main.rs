//! The mount, as programs on the machine see it. Needs root, `/dev/fuse`, `fusermount3` and `setfacl`'s kernel side.

#[path = "../../../fuse/examples/serve_memory/memory.rs"]
mod memory;
#[path = "../../../fuse/examples/serve_memory/sample.rs"]
mod sample;

mod attributes;
mod both;
mod changing;
mod closing;
mod contents;
mod damage;
mod forget;
mod full;
mod lifetime;
mod names;
mod support;
mod told;
mod trust;
mod unbroken;
mod users;
mod writing;

//! A device made of another one writes the methods that it changes, and names those that it passes on.
//!
//! Named and not left out, since what may be passed on is a decision for each: a device that changes `write_at` and
//! passes on `run_batch` lets writes by. `#[deny(clippy::missing_trait_methods)]` on the `impl` finds a method that is
//! neither written nor named, also one that has a default.

/// Writes methods of an `impl` of [`BlockDevice`](crate::BlockDevice) that call those of a field.
///
/// ```
/// use undercroft_block::{BlockDevice, Device, Result, forward_block_device};
///
/// /// Forgets what it is told of space that is free.
/// #[derive(Debug)]
/// struct Keeping(Device);
///
/// impl BlockDevice for Keeping {
///     forward_block_device!(self.0: name, size_bytes, refresh_size, access, topology, may_hang, claimed);
///     forward_block_device!(self.0: read_at, write_at, flush, write_zeroes, prefetch, next_data, run_batch);
///
///     fn discard(&self, _offset: u64, _len: u64) -> Result<()> {
///         Ok(())
///     }
/// }
/// ```
#[macro_export]
macro_rules! forward_block_device {
    ($self:ident . $base:tt : $($method:ident),+ $(,)?) => {
        $($crate::forward_block_device!(@ $base $method);)+
    };
    (@ $base:tt name) => {
        fn name(&self) -> ::std::string::String {
            self.$base.name()
        }
    };
    (@ $base:tt size_bytes) => {
        fn size_bytes(&self) -> u64 {
            self.$base.size_bytes()
        }
    };
    (@ $base:tt refresh_size) => {
        fn refresh_size(&self) -> $crate::Result<u64> {
            self.$base.refresh_size()
        }
    };
    (@ $base:tt access) => {
        fn access(&self) -> $crate::Access {
            self.$base.access()
        }
    };
    (@ $base:tt topology) => {
        fn topology(&self) -> $crate::Topology {
            self.$base.topology()
        }
    };
    (@ $base:tt may_hang) => {
        fn may_hang(&self) -> bool {
            self.$base.may_hang()
        }
    };
    (@ $base:tt claimed) => {
        fn claimed(&self) -> ::std::option::Option<&dyn $crate::ClaimedDevice> {
            self.$base.claimed()
        }
    };
    (@ $base:tt read_at) => {
        fn read_at(&self, offset: u64, buf: &mut [u8]) -> $crate::Result<()> {
            self.$base.read_at(offset, buf)
        }
    };
    (@ $base:tt write_at) => {
        fn write_at(&self, offset: u64, data: &[u8]) -> $crate::Result<()> {
            self.$base.write_at(offset, data)
        }
    };
    (@ $base:tt flush) => {
        fn flush(&self) -> $crate::Result<()> {
            self.$base.flush()
        }
    };
    (@ $base:tt discard) => {
        fn discard(&self, offset: u64, len: u64) -> $crate::Result<()> {
            self.$base.discard(offset, len)
        }
    };
    (@ $base:tt write_zeroes) => {
        fn write_zeroes(&self, offset: u64, len: u64) -> $crate::Result<()> {
            self.$base.write_zeroes(offset, len)
        }
    };
    (@ $base:tt prefetch) => {
        fn prefetch(&self, offset: u64, len: u64) {
            self.$base.prefetch(offset, len);
        }
    };
    (@ $base:tt next_data) => {
        fn next_data(&self, offset: u64) -> $crate::Result<$crate::NextData> {
            self.$base.next_data(offset)
        }
    };
    (@ $base:tt run_batch) => {
        fn run_batch(&self, batch: &mut [$crate::Request<'_>]) -> $crate::Result<()> {
            self.$base.run_batch(batch)
        }
    };
}

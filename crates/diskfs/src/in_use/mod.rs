//! In-memory inodes: what a filesystem's own type of them is made of, and the trait by which code below that type has them.
//!
//! Inodes with lazy times and files with reservation windows are listed, so that they are found when times are to be
//! stored or space runs short. The lists belong to the filesystem's state, which lies below the in-memory inodes, so they
//! hold them by the trait [`InUse`].

mod extent_cache;
mod full;
mod lazy_times;
mod times;
mod windows;

use undercroft_vfs::Result;

pub use extent_cache::{CachedExtent, ExtentCache};
pub use full::retry_when_full;
pub use lazy_times::{LazyTimeState, LazyTimes};
pub use times::{ChangeTimes, coarse_nanoseconds};
pub use windows::WindowList;

/// An in-memory inode, as the lists of such inodes have it.
pub trait InUse: Send + Sync {
    /// Stores times that are late. Under no handle.
    ///
    /// # Errors
    /// Why the filesystem takes no changes any more.
    fn store_lazy_times(&self) -> Result<()>;

    /// The same, unless the running transaction has no room: `false` then.
    ///
    /// # Errors
    /// As for [`store_lazy_times`](Self::store_lazy_times).
    fn store_lazy_times_if_room(&self) -> Result<bool>;

    /// Frees a file's reservation window. `false` if there was none.
    fn free_window(&self) -> bool;
}

//! The end of an in-memory inode.
//!
//! An inode whose last name went while it was in use is deleted when its last user goes. Until that is durable it is in
//! the orphan list or file, so after a crash in between it is deleted when the filesystem is opened again.
//!
//! Other threads may still hold the handle, to store lazy times: nothing is stored through it once it is released, see
//! [`LazyTimeState`](undercroft_diskfs::in_use::LazyTimeState).

use std::sync::Arc;

use undercroft_vfs::{FileType, Result};

use super::{Live, content};
use crate::transaction::Handle;
use crate::{inode, orphan, xattr};

/// Deleting what is left when the content is gone: the place in the table, attributes and their bitmap, the group's
/// bitmap and descriptor, the orphan's blocks.
const DELETE_CREDITS: u32 = 10;

/// The last user is gone.
pub(super) fn release(live: &Arc<Live>) {
    // Deleted with its last name.
    if live.volume.writer().is_err() || live.lazy_times.is_released() {
        return;
    }
    let has_no_name = live.fields.read().links == 0;
    let result = if has_no_name { delete(live) } else { store_and_free_window(live) };
    if let Err(error) = result
        && let Ok(writer) = live.volume.writer()
        && !writer.transactions.has_stopped()
    {
        // There is no caller to return the error to; an orphan stays for the next opening.
        let cause = format!("inode {} could not be let go of: {error}", live.number);
        writer.transactions.abort_with(&cause, &error);
    }
}

/// Frees a file's reservation window, and stores times that are newer in memory.
fn store_and_free_window(live: &Live) -> Result<()> {
    content::give_back_reserved(live);
    live.store_and_release()
}

fn delete(live: &Live) -> Result<()> {
    live.lazy_times.set_released();
    content::truncate_all(live)?;
    let handle = live.volume.start(DELETE_CREDITS + xattr::credits(&live.volume, None))?;
    delete_inode(&handle, live)
}

/// Blocks that [`delete_now`] changes for a file with one name that is not in use; `None` where it may take more than
/// one step.
pub(super) fn credits_at_once(live: &Live) -> Option<u32> {
    let fields = live.fields.read();
    if live.kind == FileType::Directory || fields.links != 1 {
        return None;
    }
    let content = content::remove_all_credits(live, &fields)?;
    Some(content + DELETE_CREDITS + xattr::credits(&live.volume, None))
}

/// Deletes an inode under a handle that has room for all of it, content and all: one that was made under it, or one
/// whose content [goes in one step](credits_at_once).
pub(super) fn delete_now(handle: &Handle<'_>, live: &Live) -> Result<()> {
    live.lazy_times.set_released();
    content::truncate_now(handle, live)?;
    delete_inode(handle, live)
}

fn delete_inode(handle: &Handle<'_>, live: &Live) -> Result<()> {
    // Before the time of deletion is set, which stands where the list of orphans has its links.
    orphan::remove(handle, live)?;
    {
        let mut fields = live.fields.write();
        xattr::release(handle, &mut fields, live.location)?;
        inode::mark_deleted(handle, &mut fields, live.location, live.now())?;
    }
    let writer = live.volume.writer()?;
    writer.allocator.free_inode(handle, live.number, live.kind == FileType::Directory)
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use std::sync::OnceLock;
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::time::Duration;

    use undercroft_block::{Access, BlockDevice, Device, FileDevice, FileOptions};
    use undercroft_sync::{Mutex, order};
    use undercroft_vfs::{Inode as VfsInode, WriteKind};

    use super::*;
    use crate::inode::Inode;
    use crate::options::WriteOptions;
    use crate::testing::images::{Mke2fs, Scratch};
    use crate::testing::writable::Writable;

    /// The first file that mke2fs makes behind `lost+found`.
    const FILE: u32 = 12;

    /// Delays the next read of one block: signals that it has begun, and continues when released.
    #[derive(Debug)]
    struct HoldsUp {
        base: Device,
        next: Mutex<Option<(Sender<()>, Receiver<()>)>>,
        at: OnceLock<u64>,
    }

    impl BlockDevice for HoldsUp {
        fn name(&self) -> String {
            self.base.name()
        }

        fn size_bytes(&self) -> u64 {
            self.base.size_bytes()
        }

        fn access(&self) -> Access {
            self.base.access()
        }

        fn read_at(&self, offset: u64, buf: &mut [u8]) -> undercroft_block::Result<()> {
            if self.at.get() == Some(&offset) {
                let next = self.next.lock().take();
                if let Some((begun, go_on)) = next {
                    begun.send(()).unwrap();
                    go_on.recv().unwrap();
                }
            }
            self.base.read_at(offset, buf)
        }

        fn write_at(&self, offset: u64, data: &[u8]) -> undercroft_block::Result<()> {
            self.base.write_at(offset, data)
        }

        fn flush(&self) -> undercroft_block::Result<()> {
            self.base.flush()
        }
    }

    fn load(writable: &Writable) -> Arc<Live> {
        let location = inode::locate(&writable.volume, FILE).unwrap();
        let inode = Inode::read_located(&writable.volume, FILE, location).unwrap();
        Live::shared(Arc::clone(&writable.volume), inode, location)
    }

    /// Whether a thread of this process sleeps.
    fn sleeps(thread: i32) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/self/task/{thread}/stat")).unwrap_or_default();
        stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('S'))
    }

    /// The commit thread has taken the inode from the list of lazy times and is about to store it when the last user
    /// goes. The inode that is loaded next is changed; that change must not be lost.
    #[test]
    fn a_store_of_times_that_is_under_way_comes_before_the_inode_is_loaded_anew() {
        let source = Scratch::new("tree").unwrap();
        std::fs::write(source.path().join("f"), "content").unwrap();
        let mke2fs = Mke2fs::new("ext4", 8).features("^has_journal");
        let image = mke2fs.args(["-d", source.path().to_str().unwrap()]).make().unwrap();
        let base = Arc::new(FileDevice::open(image.path(), FileOptions::read_write()).unwrap());
        let device = Arc::new(HoldsUp { base, next: Mutex::new(&order::DEVICE, None), at: OnceLock::new() });
        let writable = &Writable::open_on(Arc::clone(&device) as Device, image, WriteOptions::default());
        let old = load(writable);
        old.finish_write(0, 7, 7, WriteKind::Overwrite).unwrap();
        let modified = old.attr().modified;
        let table = old.location.block.0;
        writable.volume.buffers().forget(table);
        let ((begun, has_begun), (go_on, goes_on)) = (channel(), channel());
        *device.next.lock() = Some((begun, goes_on));
        device.at.set(table * u64::from(writable.volume.block_bytes())).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| writable.volume.writer().unwrap().lazy_times.store_all().unwrap());
            has_begun.recv_timeout(Duration::from_secs(60)).unwrap();
            let (number, numbered) = channel();
            let user = scope.spawn(move || {
                number.send(rustix::thread::gettid().as_raw_nonzero().get()).unwrap();
                old.release();
                let new = load(writable);
                assert_eq!(new.attr().modified, modified);
                let handle = writable.volume.start(1).unwrap();
                new.change_fields(&handle, |fields| fields.permissions = 0o600).unwrap();
                drop(handle);
                new.release();
            });
            let user_thread = numbered.recv().unwrap();
            // Either the release has returned in spite of the store, or it waits for it.
            while !user.is_finished() && !sleeps(user_thread) {
                std::thread::yield_now();
            }
            go_on.send(()).unwrap();
            user.join().unwrap();
        });
        assert_eq!(load(writable).attr().permissions, 0o600, "the old inode was stored over the new one");
    }
}

//! Damaged filesystems, read and written to.

mod damage;
mod reading;
mod writing;
mod xfs;
mod xfs_log;

use std::sync::{Mutex, PoisonError};

/// One test after the other, since the memory that reading takes is the process's.
static ALONE: Mutex<()> = Mutex::new(());

#[test]
fn damaged_images_are_read_and_written_to() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    reading::damaged_images_are_answered_with_data_or_a_clear_error();
    xfs::damaged_images_are_answered_with_data_or_a_clear_error();
    writing::damaged_images_are_written_to_or_end_with_a_clear_error();
}

#[test]
fn damaged_logs_of_xfs_are_recovered_or_refused() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    xfs_log::damaged_logs_are_answered_with_data_or_a_clear_error();
}

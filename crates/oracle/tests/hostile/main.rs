//! Damaged filesystems, read and written to.

mod damage;
mod reading;
mod writing;
mod xfs;
mod xfs_log;
mod xfs_writing;

/// One after the other, since the memory that reading takes is the process's.
#[test]
fn damaged_images_are_read_and_written_to() {
    reading::damaged_images_are_answered_with_data_or_a_clear_error();
    let victims = xfs::victims();
    xfs::damaged_images_are_answered_with_data_or_a_clear_error(&victims);
    xfs_writing::damaged_images_are_written_to_or_end_with_a_clear_error(&victims);
    drop(victims);
    xfs_log::damaged_logs_are_answered_with_data_or_a_clear_error();
    writing::damaged_images_are_written_to_or_end_with_a_clear_error();
}

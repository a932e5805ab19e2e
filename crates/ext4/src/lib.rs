//! ext4

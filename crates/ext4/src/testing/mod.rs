//! For tests: where the metadata of a good image lies, and how to mend a checksum after damage.
//!
//! Damage that breaks a checksum is caught by the checksum. To test what stands behind it, [`sites`] lists
//! every checksummed structure of a good image that hangs on the tree, and [`Site::mend`] makes the checksum
//! right again after the bytes were changed.

mod mend;
mod survey;

pub use mend::Site;
pub use survey::sites;

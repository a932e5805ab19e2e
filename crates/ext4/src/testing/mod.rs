//! For tests: where the metadata of a good image lies, and how to mend a checksum after damage; and, for this crate's
//! own, an image that can be changed.
//!
//! Damage that breaks a checksum is caught by the checksum. To test what stands behind it, [`sites`] lists
//! every checksummed structure of a good image that hangs on the tree, and [`Site::mend`] makes the checksum
//! right again after the bytes were changed.

#[cfg(test)]
pub(crate) mod images;
#[cfg(feature = "testing")]
mod mend;
#[cfg(feature = "testing")]
mod survey;
#[cfg(test)]
pub(crate) mod writable;

#[cfg(feature = "testing")]
pub use mend::Site;
#[cfg(feature = "testing")]
pub use survey::sites;

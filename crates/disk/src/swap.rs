//! Swap space, as mkswap makes it: a page with a header, and the rest as it is.
//!
//! Layout, in the byte order of the machine that swaps: at byte 1024 the version (1), the number of the last page, the
//! number of bad pages, the UUID and 16 bytes of label; the last ten bytes of the page are the mark. Pages are those of the
//! machine; here 4 KiB, in little-endian order.

use undercroft_block::BlockDevice;
use uuid::Uuid;

use crate::Error;

/// Bytes of a page.
const PAGE_BYTES: u64 = 4096;
/// Linux takes no less.
const PAGES_MIN: u64 = 10;
const HEADER_AT: usize = 1024;
const MARK: &[u8; 10] = b"SWAPSPACE2";
const LABEL_BYTES: usize = 16;

/// The least size of swap space in bytes.
pub const SWAP_MIN_BYTES: u64 = PAGES_MIN * PAGE_BYTES;

/// Makes swap space of a whole device.
///
/// # Errors
/// [`Error::Refused`]: the device is too small, or the label is longer than 16 bytes; the device failed.
pub fn make_swap<D: BlockDevice + ?Sized>(device: &D, label: &str, uuid: Uuid) -> Result<(), Error> {
    let pages = device.size_bytes() / PAGE_BYTES;
    if pages < PAGES_MIN {
        return Err(Error::Refused(format!("swap space has at least {SWAP_MIN_BYTES} bytes")));
    }
    if label.len() > LABEL_BYTES {
        return Err(Error::Refused(format!(
            "{label:?} is longer than a label of swap space, {LABEL_BYTES} bytes"
        )));
    }
    let last = u32::try_from(pages - 1).unwrap_or(u32::MAX - 1);
    let mut page = vec![0; PAGE_BYTES as usize];
    page[HEADER_AT..HEADER_AT + 4].copy_from_slice(&1_u32.to_le_bytes());
    page[HEADER_AT + 4..HEADER_AT + 8].copy_from_slice(&last.to_le_bytes());
    page[HEADER_AT + 12..HEADER_AT + 28].copy_from_slice(uuid.as_bytes());
    page[HEADER_AT + 28..HEADER_AT + 28 + label.len()].copy_from_slice(label.as_bytes());
    let mark_at = page.len() - MARK.len();
    page[mark_at..].copy_from_slice(MARK);
    Ok(device.write_at(0, &page)?)
}

#[cfg(test)]
mod tests {
    use undercroft_block::MemoryDevice;
    use undercroft_block::probe::probe;

    use super::*;

    #[test]
    fn swap_space_is_found_as_such() {
        let device = MemoryDevice::new(1 << 20);
        make_swap(&device, "paging", Uuid::from_u128(5)).unwrap();
        let found = probe(&device).unwrap().unwrap();
        assert_eq!((found.format.name, found.label), ("swap", Some(b"paging".to_vec())));
        assert_eq!(found.uuid, Some(Uuid::from_u128(5).to_string()));
        assert!(make_swap(&MemoryDevice::new(SWAP_MIN_BYTES - 1), "", Uuid::nil()).is_err());
        assert!(make_swap(&device, "more than 16 bytes", Uuid::nil()).is_err());
    }
}

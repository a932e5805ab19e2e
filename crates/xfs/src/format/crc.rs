//! The checksum of version 5: CRC-32C in its common form, with the field that holds it counted as zeroes.
//!
//! The one little-endian number of the format.

/// CRC-32C (Castagnoli) of a structure; the four bytes at `field` count as zeroes.
///
/// # Panics
/// If the structure does not hold the field, which is the caller's mistake: lengths are known before.
pub(crate) fn checksum(bytes: &[u8], field: usize) -> u32 {
    let before = crc32c::crc32c(&bytes[..field]);
    let within = crc32c::crc32c_append(before, &[0; 4]);
    crc32c::crc32c_append(within, &bytes[field + 4..])
}

/// The checksum that a structure carries at `field`.
pub(crate) fn stored(bytes: &[u8], field: usize) -> u32 {
    bytes[field..].first_chunk().map_or(0, |crc| u32::from_le_bytes(*crc))
}

/// Whether a structure's checksum holds: `Err` has the words for a report.
pub(crate) fn verify(bytes: &[u8], field: usize) -> crate::error::Verdict<()> {
    let (stored, computed) = (stored(bytes, field), checksum(bytes, field));
    if stored != computed {
        return Err(format!("checksum is {stored:#010x}, its content gives {computed:#010x}").into());
    }
    Ok(())
}

/// Stores the checksum of a structure in it.
pub(crate) fn seal(bytes: &mut [u8], field: usize) {
    let computed = checksum(bytes, field);
    bytes[field..field + 4].copy_from_slice(&computed.to_le_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The check value from the catalogue of parametrised CRC algorithms (CRC-32/ISCSI).
    #[test]
    fn published_check_value() {
        assert_eq!(checksum(b"\0\0\0\0", 0), crc32c::crc32c(&[0; 4]));
        assert_eq!(crc32c::crc32c(b"123456789"), 0xE306_9283);
    }

    #[test]
    fn a_sealed_structure_verifies_and_a_changed_one_does_not() {
        let mut bytes = *b"a structure of some length";
        seal(&mut bytes, 4);
        assert_eq!(verify(&bytes, 4), Ok(()));
        bytes[20] ^= 1;
        assert!(verify(&bytes, 4).is_err());
    }
}

//! Attributes in the inode, rewritten: a header with the total length and the count, then for each the lengths of
//! name and value, its flags, and both.

use super::leaf::{Item, ItemValue};
use crate::attr::entry::{Flags, Value};
use crate::attr::short::ShortAttributes;
use crate::da::hash_name;
use crate::error::Verdict;

const HEADER_BYTES: usize = 4;
const ENTRY_BYTES: usize = 3;

/// Names and values of this length or longer are not kept in the inode.
const LENGTH_END: usize = 255;

/// The attributes of a fork in the inode, in their order.
pub(super) fn decode(bytes: &[u8]) -> Verdict<Vec<Item>> {
    let items = ShortAttributes::validate(bytes)?.iter().map(|attribute| {
        let value = match attribute.value {
            Value::Here(value) => ItemValue::Here(value.into()),
            Value::Remote { block, bytes } => ItemValue::Remote { block, bytes },
        };
        Item {
            hash: hash_name(attribute.name),
            space: attribute.space,
            incomplete: false,
            name: attribute.name.into(),
            value,
        }
    });
    Ok(items.collect())
}

/// The fork that keeps these attributes in the inode; `None` if one of them cannot be kept there.
pub(super) fn encode<'a>(items: impl Iterator<Item = &'a Item>) -> Option<Vec<u8>> {
    let mut bytes = vec![0; HEADER_BYTES];
    let mut count = 0_u8;
    for item in items {
        let ItemValue::Here(value) = &item.value else { return None };
        if item.incomplete || item.name.len() >= LENGTH_END || value.len() >= LENGTH_END {
            return None;
        }
        count = count.checked_add(1)?;
        let flags = Flags { space: item.space, local: false, incomplete: false };
        bytes.reserve(ENTRY_BYTES + item.name.len() + value.len());
        bytes.extend([item.name.len() as u8, value.len() as u8, flags.bits()]);
        bytes.extend_from_slice(&item.name);
        bytes.extend_from_slice(value);
        // No inode has room for more, and the length is kept in 16 bits.
        if bytes.len() > 1 << 12 {
            return None;
        }
    }
    let total = bytes.len() as u16;
    bytes[..2].copy_from_slice(&total.to_be_bytes());
    bytes[2] = count;
    Some(bytes)
}

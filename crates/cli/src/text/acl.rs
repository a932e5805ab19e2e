//! POSIX ACLs from the form that `getxattr` gives to the text that archives hold and people read.
//!
//! The form: version 2 as a 32-bit number, then entries of 16-bit tag, 16-bit permissions, 32-bit id, all
//! little-endian. The text names users and groups by number, which every reader takes.

/// The version of the form.
const VERSION: u32 = 2;
const ENTRY_BYTES: usize = 8;

/// The text of an ACL, entries separated by commas; `None` for what is not an ACL.
pub(crate) fn text(value: &[u8]) -> Option<String> {
    let (version, entries) = value.split_first_chunk()?;
    if u32::from_le_bytes(*version) != VERSION || entries.len() % ENTRY_BYTES != 0 {
        return None;
    }
    entries.chunks_exact(ENTRY_BYTES).map(entry).collect::<Option<Vec<_>>>().map(|entries| entries.join(","))
}

fn entry(bytes: &[u8]) -> Option<String> {
    let [tag0, tag1, permissions, _, id @ ..] = bytes else { return None };
    let id = u32::from_le_bytes(id.try_into().ok()?);
    let who = match u16::from_le_bytes([*tag0, *tag1]) {
        0x01 => "user:".to_owned(),
        0x02 => format!("user:{id}"),
        0x04 => "group:".to_owned(),
        0x08 => format!("group:{id}"),
        0x10 => "mask:".to_owned(),
        0x20 => "other:".to_owned(),
        _ => return None,
    };
    let letter = |bit: u8, letter: char| if permissions & bit != 0 { letter } else { '-' };
    Some(format!("{who}:{}{}{}", letter(4, 'r'), letter(2, 'w'), letter(1, 'x')))
}

#[cfg(test)]
mod tests {
    use super::text;

    #[test]
    fn entries_become_words() {
        let mut value = vec![2, 0, 0, 0];
        for (tag, permissions, id) in [
            (1_u16, 6_u16, u32::MAX),
            (2, 6, 1000),
            (4, 4, u32::MAX),
            (0x10, 7, u32::MAX),
            (0x20, 0, u32::MAX),
        ] {
            value.extend(tag.to_le_bytes());
            value.extend(permissions.to_le_bytes());
            value.extend(id.to_le_bytes());
        }
        assert_eq!(text(&value).unwrap(), "user::rw-,user:1000:rw-,group::r--,mask::rwx,other::---");
    }

    #[test]
    fn what_is_no_acl_is_refused() {
        for wrong in [&b""[..], &[1, 0, 0, 0], &[2, 0, 0, 0, 1], &[2, 0, 0, 0, 9, 9, 0, 0, 0, 0, 0, 0]] {
            assert_eq!(text(wrong), None, "{wrong:?}");
        }
    }
}

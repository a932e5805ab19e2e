//! POSIX.1e access control lists, in the form that `getxattr` gives: version 2, little-endian.
//!
//! Read by permission checks. A list is parsed once for each node and kept in its [`AclCell`]; that there is
//! none, which is the ordinary case, costs one relaxed load afterwards and no lock.
//!
//! On disk and in the xattr: a four-byte version, then entries of eight bytes (tag, permissions, id), ordered
//! owner, users, owning group, groups, mask, others. A list in another order, without its three obligatory
//! entries or with an unknown tag is corrupt: Linux never stores one.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use undercroft_sync::{RwLock, order};

use crate::access::grants;
use crate::{Access, Corruption, Credentials, Error, Ino, Ownership, Result};

/// The xattr that holds the list of a file.
pub(crate) const ACCESS_XATTR: &[u8] = b"system.posix_acl_access";

/// The xattr that holds the list which new files of a directory inherit.
pub(crate) const DEFAULT_XATTR: &[u8] = b"system.posix_acl_default";

const VERSION: u32 = 2;
/// In entries that name no user or group.
const NO_ID: u32 = u32::MAX;
const TAG_USER_OBJ: u16 = 0x01;
const TAG_USER: u16 = 0x02;
const TAG_GROUP_OBJ: u16 = 0x04;
const TAG_GROUP: u16 = 0x08;
const TAG_MASK: u16 = 0x10;
const TAG_OTHER: u16 = 0x20;

/// A list that governs access to one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Acl {
    owner: u16,
    users: Box<[Named]>,
    owning_group: u16,
    groups: Box<[Named]>,
    mask: Option<u16>,
    others: u16,
}

/// Permissions of a user or group by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Named {
    id: u32,
    permissions: u16,
}

impl Acl {
    /// Validates the bytes that a filesystem has for a list.
    pub(crate) fn parse(bytes: &[u8], ino: Ino) -> Result<Self> {
        Self::validate(bytes).map_err(|detail| {
            let corruption = Corruption {
                structure: "access control list",
                ino: Some(ino),
                block: None,
                detail: detail.into(),
            };
            corruption.into()
        })
    }

    /// Validates the bytes that a user gives for a list: no bytes, or a version without entries, ask for none.
    pub(crate) fn from_user(bytes: &[u8]) -> Result<Option<Self>> {
        match bytes.split_first_chunk() {
            None if bytes.is_empty() => return Ok(None),
            Some((version, _)) if u32::from_le_bytes(*version) != VERSION => {
                return Err(Error::Unsupported("access control lists of another version than 2".into()));
            }
            Some((_, [])) => return Ok(None),
            _ => {}
        }
        let acl = Self::validate(bytes).map_err(Error::InvalidArgument)?;
        if acl.users.iter().chain(&acl.groups).any(|named| named.id == NO_ID) {
            return Err(Error::InvalidArgument(
                "the access control list names a user or group that cannot be",
            ));
        }
        Ok(Some(acl))
    }

    /// The list in the bytes of the xattr, or what is wrong with them.
    fn validate(bytes: &[u8]) -> std::result::Result<Self, &'static str> {
        let Some((version, body)) = bytes.split_first_chunk() else {
            return Err("the list is shorter than its version");
        };
        if u32::from_le_bytes(*version) != VERSION {
            return Err("the list's version is not 2");
        }
        let (entries, rest) = body.as_chunks::<8>();
        if !rest.is_empty() {
            return Err("the list ends within an entry");
        }

        let (mut owner, mut owning_group, mut mask, mut others) = (None, None, None, None);
        let (mut users, mut groups) = (Vec::new(), Vec::new());
        let mut last_tag = 0;
        for &[tag_low, tag_high, permissions_low, permissions_high, id @ ..] in entries {
            let tag = u16::from_le_bytes([tag_low, tag_high]);
            let permissions = u16::from_le_bytes([permissions_low, permissions_high]);
            let id = u32::from_le_bytes(id);
            if permissions > 0o7 {
                return Err("an entry of the list has permissions that do not exist");
            }
            // The tags' values rise in the order that entries have.
            if tag < last_tag {
                return Err("the list's entries are out of order");
            }
            last_tag = tag;
            let repeated = match tag {
                TAG_USER_OBJ => owner.replace(permissions).is_some(),
                TAG_GROUP_OBJ => owning_group.replace(permissions).is_some(),
                TAG_MASK => mask.replace(permissions).is_some(),
                TAG_OTHER => others.replace(permissions).is_some(),
                TAG_USER => {
                    users.push(Named { id, permissions });
                    false
                }
                TAG_GROUP => {
                    groups.push(Named { id, permissions });
                    false
                }
                _ => return Err("an entry of the list has an unknown tag"),
            };
            if repeated {
                return Err("an entry of the list that must be single is repeated");
            }
        }
        let (Some(owner), Some(owning_group), Some(others)) = (owner, owning_group, others) else {
            return Err("the list's entry for owner, owning group or others is missing");
        };
        if mask.is_none() && !(users.is_empty() && groups.is_empty()) {
            return Err("the list names users or groups and has no mask");
        }
        Ok(Self { owner, users: users.into(), owning_group, groups: groups.into(), mask, others })
    }

    /// The list in the form that `getxattr` gives.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = VERSION.to_le_bytes().to_vec();
        let mut put = |tag: u16, permissions: u16, id: u32| {
            bytes.extend_from_slice(&tag.to_le_bytes());
            bytes.extend_from_slice(&permissions.to_le_bytes());
            bytes.extend_from_slice(&id.to_le_bytes());
        };
        put(TAG_USER_OBJ, self.owner, NO_ID);
        self.users.iter().for_each(|user| put(TAG_USER, user.permissions, user.id));
        put(TAG_GROUP_OBJ, self.owning_group, NO_ID);
        self.groups.iter().for_each(|group| put(TAG_GROUP, group.permissions, group.id));
        if let Some(mask) = self.mask {
            put(TAG_MASK, mask, NO_ID);
        }
        put(TAG_OTHER, self.others, NO_ID);
        bytes
    }

    /// Whether permission bits say the same as the list.
    pub(crate) fn is_plain(&self) -> bool {
        self.users.is_empty() && self.groups.is_empty() && self.mask.is_none()
    }

    /// The nine permission bits of a file with this list: the group's are the mask.
    pub(crate) fn permission_bits(&self) -> u16 {
        self.owner << 6 | self.mask.unwrap_or(self.owning_group) << 3 | self.others
    }

    /// Leaves only what a new file's permissions have as well.
    pub(crate) fn restrict(&mut self, permissions: u16) {
        self.owner &= permissions >> 6;
        *self.mask.as_mut().unwrap_or(&mut self.owning_group) &= permissions >> 3;
        self.others &= permissions;
    }

    /// Makes the list say what a `chmod` to `permissions` says: of owner, group class and others.
    pub(crate) fn set_permissions(&mut self, permissions: u16) {
        self.owner = permissions >> 6 & 0o7;
        *self.mask.as_mut().unwrap_or(&mut self.owning_group) = permissions >> 3 & 0o7;
        self.others = permissions & 0o7;
    }

    /// Whether the list lets `caller` do all of `want` with the file that `attr` describes.
    pub(crate) fn grants(&self, caller: &Credentials, attr: &Ownership, want: Access) -> bool {
        if caller.uid == attr.uid {
            return grants(self.owner, want);
        }
        let masked = |permissions: u16| grants(permissions & self.mask.unwrap_or(0o7), want);
        if let Some(user) = self.users.iter().find(|user| user.id == caller.uid) {
            return masked(user.permissions);
        }
        // Any one group that grants everything suffices; several that grant a part each do not.
        let mut is_member = false;
        let owning = Named { id: attr.gid, permissions: self.owning_group };
        for group in std::iter::once(&owning).chain(&self.groups) {
            if caller.in_group(group.id) {
                is_member = true;
                if masked(group.permissions) {
                    return true;
                }
            }
        }
        !is_member && grants(self.others, want)
    }
}

/// A node's cache of its inode's list.
///
/// | state | meaning | next |
/// | --- | --- | --- |
/// | `UNKNOWN` | not asked since the last change | `NONE`, `SOME`, or `UNKNOWN` of the next version |
/// | `NONE` | asked, and there is none | `UNKNOWN` of the next version |
/// | `SOME` | asked, and `list` holds it | `UNKNOWN` of the next version |
///
/// The state shares its word with a version, which counts changes of the list. A thread that changes the list calls
/// [`forget`](Self::forget) after the filesystem has changed it and before the change is answered; that raises the
/// version. A thread that asks the filesystem notes the word before and stores the answer here only if the word is
/// still the same. So an answer from before a change is either stored here before `forget`, which clears it, or finds
/// another version and is not stored. A reader that gets such an answer began before the change returned.
///
/// `list` and the version change only under the lock of `list`; `NONE` takes the place of `UNKNOWN` without it, as
/// nothing but the word says it. The word is stored with release after `list`, and loaded with acquire before it.
pub(crate) struct AclCell {
    /// The state in the lowest bits, the version above.
    word: AtomicU64,
    list: RwLock<Option<Arc<Acl>>>,
}

const STATE: u64 = 0b11;
const UNKNOWN: u64 = 0;
const NONE: u64 = 1;
const SOME: u64 = 2;
const ONE_VERSION: u64 = 4;

impl AclCell {
    /// For an inode whose list has not been read.
    pub(crate) const fn new() -> Self {
        Self { word: AtomicU64::new(UNKNOWN), list: RwLock::new(&order::ACL_CACHE, None) }
    }

    /// The list of the inode `ino`, which `read` gets from the filesystem at the first call after a change. A failure is
    /// not remembered.
    pub(crate) fn get(
        &self,
        ino: Ino,
        read: impl FnOnce() -> Result<Option<Vec<u8>>>,
    ) -> Result<Option<Arc<Acl>>> {
        loop {
            let seen = self.word.load(Ordering::Acquire);
            match seen & STATE {
                NONE => return Ok(None),
                SOME => {
                    if let Some(acl) = self.list.read().clone() {
                        return Ok(Some(acl));
                    }
                    // Forgotten since; the word says so by now.
                }
                _ => return self.ask(seen, ino, read),
            }
        }
    }

    /// Asks the filesystem; `unknown` is the word from before.
    fn ask(
        &self,
        unknown: u64,
        ino: Ino,
        read: impl FnOnce() -> Result<Option<Vec<u8>>>,
    ) -> Result<Option<Arc<Acl>>> {
        // The lock is not held over I/O; two threads that come first at once read the same.
        let Some(bytes) = read()? else {
            // A changed word stays: another thread has stored the same answer, or the list has changed.
            let _ = self.word.compare_exchange(unknown, unknown | NONE, Ordering::Release, Ordering::Relaxed);
            return Ok(None);
        };
        let acl = Arc::new(Acl::parse(&bytes, ino)?);
        let mut list = self.list.write();
        if self.word.load(Ordering::Relaxed) == unknown {
            *list = Some(Arc::clone(&acl));
            self.word.store(unknown | SOME, Ordering::Release);
        }
        Ok(Some(acl))
    }

    /// Forgets what is known, after the filesystem has changed the list or tried to.
    pub(crate) fn forget(&self) {
        let mut list = self.list.write();
        let version = self.word.load(Ordering::Relaxed) & !STATE;
        *list = None;
        self.word.store(version + ONE_VERSION, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::conformance::{AclEntry, acl_bytes, reference_acl_grants};
    use crate::{FileType, InodeFlags};

    fn owned(uid: u32, gid: u32) -> Ownership {
        let (kind, flags) = (FileType::Regular, InodeFlags::empty());
        Ownership { kind, permissions: 0o664, uid, gid, flags }
    }

    /// Few numbers, so that they meet.
    fn id() -> impl Strategy<Value = u32> {
        0_u32..4
    }

    fn bits() -> impl Strategy<Value = u16> {
        0_u16..8
    }

    /// A list as Linux would store one.
    fn list() -> impl Strategy<Value = Vec<AclEntry>> {
        let named = || prop::collection::btree_map(id(), bits(), 0..3);
        (bits(), named(), bits(), named(), prop::option::of(bits()), bits()).prop_map(
            |(owner, users, group, groups, mask, other)| {
                let needs_mask = !(users.is_empty() && groups.is_empty());
                let mut list = vec![AclEntry::Owner(owner)];
                list.extend(users.into_iter().map(|(id, bits)| AclEntry::User(id, bits)));
                list.push(AclEntry::OwningGroup(group));
                list.extend(groups.into_iter().map(|(id, bits)| AclEntry::Group(id, bits)));
                list.extend(mask.or(needs_mask.then_some(0o5)).map(AclEntry::Mask));
                list.push(AclEntry::Other(other));
                list
            },
        )
    }

    proptest! {
        #[test]
        fn agrees_with_the_model(
            list in list(),
            (uid, gid) in (id(), id()),
            (who_uid, who_gid, groups) in (id(), id(), prop::collection::vec(id(), 0..3)),
            want in 0_u16..8,
        ) {
            let caller = Credentials::user(who_uid, who_gid, groups);
            let acl = Acl::parse(&acl_bytes(&list), Ino(9)).unwrap();
            prop_assert_eq!(
                acl.grants(&caller, &owned(uid, gid), Access::from_bits_truncate(want as u8)),
                reference_acl_grants(&list, (uid, gid), &caller, want)
            );
        }

        #[test]
        fn any_bytes_are_validated(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
            // Whatever is accepted is what its own entries say.
            if let Ok(acl) = Acl::parse(&bytes, Ino(9)) {
                prop_assert_eq!(4 + 8 * (3 + acl.users.len() + acl.groups.len() + usize::from(acl.mask.is_some())),
                    bytes.len());
            }
        }

        #[test]
        fn damaged_lists_are_validated(list in list(), at in any::<prop::sample::Index>(), byte in any::<u8>(), cut in 0_usize..9) {
            let mut bytes = acl_bytes(&list);
            let at = at.index(bytes.len());
            bytes[at] = byte;
            bytes.truncate(bytes.len() - cut);
            if let Ok(acl) = Acl::parse(&bytes, Ino(9)) {
                prop_assert!(acl.owner <= 7 && acl.others <= 7 && acl.owning_group <= 7);
            }
        }
    }

    #[test]
    fn refuses_what_is_not_a_list() {
        use AclEntry::{Mask, Other, Owner, OwningGroup, User};
        let good = acl_bytes(&[Owner(6), User(5, 4), OwningGroup(4), Mask(6), Other(4)]);
        assert!(Acl::parse(&good, Ino(9)).is_ok());
        let with = |at: usize, byte: u8| {
            let mut bytes = good.clone();
            bytes[at] = byte;
            bytes
        };
        for (bytes, reason) in [
            (vec![], "shorter"),
            (vec![2, 0, 0], "shorter"),
            (with(0, 1), "version"),
            (good[..good.len() - 1].to_vec(), "within an entry"),
            (with(4, 0x40), "unknown tag"),
            (with(4, 0x04), "out of order"),
            (with(36, 0x40), "unknown tag"),
            (with(6, 8), "permissions"),
            (with(12, 0x01), "repeated"),
            (acl_bytes(&[Owner(6), Other(4)]), "missing"),
            (acl_bytes(&[]), "missing"),
            (acl_bytes(&[Owner(6), User(5, 4), OwningGroup(4), Other(4)]), "no mask"),
            (acl_bytes(&[Owner(6), OwningGroup(4), User(5, 4), Mask(4), Other(4)]), "out of order"),
            (acl_bytes(&[Owner(6), OwningGroup(4), Other(4), Other(4)]), "repeated"),
        ] {
            match Acl::parse(&bytes, Ino(9)) {
                Err(Error::Corrupt(corruption)) => {
                    assert!(corruption.detail.contains(reason), "{bytes:?}: {corruption}");
                    assert_eq!(corruption.ino, Some(Ino(9)));
                }
                other => panic!("{bytes:?} gave {other:?}, expected: {reason}"),
            }
        }
    }
}

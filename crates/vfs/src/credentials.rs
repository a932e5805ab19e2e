//! Credentials: the user and the groups that permission checks go by.

/// A user as permission checks see one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Credentials {
    /// User.
    pub uid: u32,
    /// Primary group.
    pub gid: u32,
    /// Supplementary groups.
    pub groups: Vec<u32>,
    /// Permission bits do not bind this user, as with Linux's `CAP_DAC_OVERRIDE`, and neither does the sticky
    /// bit (`CAP_FOWNER`) nor the loss of set-group-ID (`CAP_FSETID`). Files may be given away, and what only
    /// the privileged change or see (`trusted.` attributes, the flag for immutable files) is open to this user.
    pub override_dac: bool,
}

impl Credentials {
    /// The superuser.
    #[must_use]
    pub const fn root() -> Self {
        Self { uid: 0, gid: 0, groups: Vec::new(), override_dac: true }
    }

    /// An ordinary user.
    #[must_use]
    pub const fn user(uid: u32, gid: u32, groups: Vec<u32>) -> Self {
        Self { uid, gid, groups, override_dac: false }
    }

    /// Whether `gid` is the primary or a supplementary group.
    #[must_use]
    pub fn in_group(&self, gid: u32) -> bool {
        self.gid == gid || self.groups.contains(&gid)
    }
}

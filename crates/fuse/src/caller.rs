//! The process that a request comes from, and what has to be found out about it beyond what the request says.
//!
//! The kernel names user and group only in requests that make something: where mounts may map users, the others
//! could mean one user to the filesystem and another to the machine. What privileges the caller has, and what lies
//! in its memory, is told by `/proc`, and true while the caller waits for the answer.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;

use undercroft_vfs::{Credentials, Error, Result};

/// A privilege of the administrator, by Linux's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Capability {
    /// `CAP_FOWNER`: what is an owner's to do is done to anything.
    OwnAnything = 3,
    /// `CAP_FSETID`: takes away no set-user-ID and set-group-ID of what it writes to.
    KeepPrivileges = 4,
    /// `CAP_LINUX_IMMUTABLE`: makes immutable and append-only.
    SetImmutable = 9,
    /// `CAP_SYS_ADMIN`.
    Administrate = 21,
}

/// The process that a request comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Caller {
    /// To whom new files belong.
    pub(crate) uid: u32,
    /// As the user.
    pub(crate) gid: u32,
    /// The thread that waits for the answer.
    pub(crate) thread: u32,
}

impl Caller {
    /// What the kernel let through is not checked again; new files belong to these.
    pub(crate) fn credentials(self) -> Credentials {
        Credentials { uid: self.uid, gid: self.gid, groups: Vec::new(), override_dac: true }
    }

    /// Whether it is the administrator of this machine, and no container's.
    pub(crate) fn is_administrator(self) -> bool {
        self.has(Capability::Administrate)
    }

    /// Whether set-user-ID and set-group-ID stay on what it writes to.
    pub(crate) fn keeps_privileges(self) -> bool {
        self.has(Capability::KeepPrivileges)
    }

    /// Whether it is the administrator of this machine, and has this privilege.
    pub(crate) fn has(self, capability: Capability) -> bool {
        self.status().is_some_and(|status| is_root_with(&status, capability)) && self.is_at_home()
    }

    /// Whether files of this user are its own.
    pub(crate) fn is_user(self, uid: u32) -> bool {
        self.status().is_some_and(|status| file_user(&status) == Some(uid))
    }

    /// Whether its capabilities are those of this machine: any user has all in a container of its own.
    pub(crate) fn is_in_our_namespace(self) -> bool {
        let of = |process: &str| fs::read_link(format!("/proc/{process}/ns/user"));
        matches!((of(&self.thread.to_string()), of("self")), (Ok(caller), Ok(server)) if caller == server)
    }

    /// As far as that can be seen: a server of an ordinary user may not look at the namespaces of root's processes, and
    /// has to take user 0 for what it says.
    fn is_at_home(self) -> bool {
        !rustix::process::geteuid().is_root() || self.is_in_our_namespace()
    }

    /// Whether the group is one of the caller's.
    pub(crate) fn is_in_group(self, gid: u32) -> bool {
        self.status().is_some_and(|status| is_member(&status, gid))
    }

    fn status(self) -> Option<String> {
        fs::read_to_string(format!("/proc/{}/status", self.thread)).ok()
    }

    /// The word that it has at an address of its memory.
    pub(crate) fn read_word(self, address: u64) -> Result<u32> {
        let out_of_reach = |_| Error::InvalidArgument("the caller's memory cannot be read");
        let memory = File::open(format!("/proc/{}/mem", self.thread)).map_err(out_of_reach)?;
        let mut bytes = [0; 4];
        memory.read_exact_at(&mut bytes, address).map_err(out_of_reach)?;
        Ok(u32::from_ne_bytes(bytes))
    }
}

fn field<'a>(status: &'a str, name: &str) -> Option<&'a str> {
    status.lines().find_map(|line| line.strip_prefix(name))
}

/// Whether a thread of this `/proc/.../status` has the group, as the one for files or as one more.
fn is_member(status: &str, gid: u32) -> bool {
    let groups = field(status, "Groups:").unwrap_or_default().split_whitespace();
    let own = field(status, "Gid:").and_then(|groups| groups.split_whitespace().nth(3));
    own.into_iter().chain(groups).any(|group| group.parse() == Ok(gid))
}

/// To which user new files of a thread of this `/proc/.../status` belong, seen from here.
fn file_user(status: &str) -> Option<u32> {
    field(status, "Uid:")?.split_whitespace().nth(3)?.parse().ok()
}

/// Whether a thread of this `/proc/.../status` is user 0, seen from here, and has the capability.
fn is_root_with(status: &str, capability: Capability) -> bool {
    let user = field(status, "Uid:").and_then(|users| users.split_whitespace().nth(1));
    let capabilities = field(status, "CapEff:").and_then(|bits| u64::from_str_radix(bits.trim(), 16).ok());
    user == Some("0") && capabilities.is_some_and(|bits| bits & (1 << capability as u32) != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_administrator_is_user_0_with_the_capability() {
        let administers = |status: &str| is_root_with(status, Capability::Administrate);
        let status = |uid: &str, bits: &str| format!("Name:\tx\nUid:\t1000\t{uid}\t7\t8\nCapEff:\t{bits}\n");
        assert!(administers(&status("0", "000001ffffffffff")));
        assert!(administers(&status("0", "0000000000200000")));
        assert!(!administers(&status("0", "00000000000fffff")));
        assert!(!administers(&status("1000", "000001ffffffffff")));
        assert!(!administers("Uid:\t0\t0\t0\t0\n"));
        assert!(!administers(""));
    }

    #[test]
    fn a_member_has_the_group_for_files_or_as_one_more() {
        let status = "Gid:\t1\t2\t3\t4\nGroups:\t50 60 \n";
        assert!([4, 50, 60].into_iter().all(|group| is_member(status, group)));
        assert!(![1, 2, 3, 5, 0].into_iter().any(|group| is_member(status, group)));
        assert!(!is_member("", 0));
    }

    #[test]
    fn a_word_is_read_where_it_lies() {
        let word = 0xfeed_beef_u32;
        let thread = rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned();
        let caller = Caller { uid: 0, gid: 0, thread };
        assert_eq!(caller.read_word(std::ptr::from_ref(&word) as u64).unwrap(), 0xfeed_beef);
        assert!(caller.read_word(8).is_err());
    }
}

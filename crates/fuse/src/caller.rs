//! Who asks, and what has to be found out about them beyond what a request says.
//!
//! The kernel names user and group only in requests that make something: where mounts may map users, the others
//! could mean one user to the filesystem and another to the machine. What privileges the caller has, and what lies
//! in its memory, is told by `/proc`, and true while the caller waits for the answer.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;

use undercroft_vfs::{Credentials, Error, Result};

const CAP_SYS_ADMIN: u32 = 21;

/// Who asks.
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
        fs::read_to_string(format!("/proc/{}/status", self.thread)).is_ok_and(|status| administers(&status))
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

/// Whether a thread of this `/proc/.../status` is user 0, seen from here, and may administer the system.
fn administers(status: &str) -> bool {
    let field = |name| status.lines().find_map(|line| line.strip_prefix(name));
    let user = field("Uid:").and_then(|users| users.split_whitespace().nth(1));
    let capabilities = field("CapEff:").and_then(|bits| u64::from_str_radix(bits.trim(), 16).ok());
    user == Some("0") && capabilities.is_some_and(|bits| bits & (1 << CAP_SYS_ADMIN) != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_administrator_is_user_0_with_the_capability() {
        let status = |uid: &str, bits: &str| format!("Name:\tx\nUid:\t1000\t{uid}\t7\t8\nCapEff:\t{bits}\n");
        assert!(administers(&status("0", "000001ffffffffff")));
        assert!(administers(&status("0", "0000000000200000")));
        assert!(!administers(&status("0", "00000000000fffff")));
        assert!(!administers(&status("1000", "000001ffffffffff")));
        assert!(!administers("Uid:\t0\t0\t0\t0\n"));
        assert!(!administers(""));
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

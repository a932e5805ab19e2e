//! Encryption policies: whether each encrypted inode has one, and whether what is in an encrypted directory has the
//! directory's.
//!
//! A policy is the part of an inode's encryption context that inodes have in common: all but the nonce at its end.

use std::collections::HashMap;

use undercroft_diskfs::At;
use undercroft_vfs::FileType;

use super::checker::Checker;
use super::raw::Inode;
use crate::dir;
use crate::inode::InodeFlags;

const NONCE_BYTES: usize = 16;

/// What an attribute says of how its inode is encrypted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Policy {
    /// Numbered in the order in which they were found.
    Known(u32),
    /// Of a version that has another length.
    Wrong,
    /// Of a version that is not known.
    Unknown,
}

/// The policies that were met, and which encrypted inode has which.
#[derive(Debug, Default)]
pub(super) struct Policies {
    numbers: HashMap<Box<[u8]>, u32>,
    of_inodes: HashMap<u32, Policy>,
}

impl Policies {
    /// The policy of an encryption context.
    pub(super) fn parse(&mut self, context: &[u8]) -> Policy {
        let expected_bytes = match context.first() {
            Some(1) => 28,
            Some(2) => 40,
            Some(_) => return Policy::Unknown,
            None => return Policy::Wrong,
        };
        if context.len() != expected_bytes {
            return Policy::Wrong;
        }
        let next = self.numbers.len() as u32;
        let policy = &context[..context.len() - NONCE_BYTES];
        Policy::Known(*self.numbers.entry(policy.into()).or_insert(next))
    }
}

impl Checker<'_> {
    /// An encrypted inode has a policy.
    pub(super) fn check_policy(&mut self, inode: &Inode<'_>, policy: Option<Policy>) {
        if !inode.flags().contains(InodeFlags::ENCRYPTED) {
            return;
        }
        let wrong = match policy {
            None => "is encrypted, and no attribute says how",
            Some(Policy::Wrong) => "is encrypted, and the attribute that says how is damaged",
            Some(Policy::Known(_) | Policy::Unknown) => "",
        };
        if !wrong.is_empty() {
            self.findings.add("encryption", At::inode(inode.number), wrong);
        }
        self.policies.of_inodes.insert(inode.number, policy.unwrap_or(Policy::Wrong));
    }

    /// What is in an encrypted directory is encrypted as the directory is.
    pub(super) fn check_policy_of_entry(&mut self, directory: u32, at: At, ino: u32, name: &str) {
        let Some(&Policy::Known(expected)) = self.policies.of_inodes.get(&directory) else { return };
        let kind = self.kinds.get(ino);
        let can_be = [FileType::Regular, FileType::Directory, FileType::Symlink].map(dir::code_of);
        if !can_be.contains(&kind) {
            return;
        }
        let detail = match self.policies.of_inodes.get(&ino) {
            Some(&Policy::Known(found)) if found == expected => return,
            Some(Policy::Wrong | Policy::Unknown) => return,
            Some(Policy::Known(_)) => format!("{name:?} is encrypted in another way than its directory"),
            None => format!("{name:?} is not encrypted, and its directory is"),
        };
        self.findings.add("encryption", at, detail);
    }
}

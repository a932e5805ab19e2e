//! The numbers that users and groups have by name in an archive.
//!
//! Headers say them, and access control lists need them: of members that come later too. An archive that is read more than
//! once is searched to its end for the first name that is not known yet.

use std::collections::HashMap;

use super::header::Header;
use super::{OpenArchive, TarSource};
use crate::Source;

/// Most names that are kept of an archive.
const NAMES_MAX: usize = 100_000;

/// The numbers of users and groups that headers have named.
#[derive(Default)]
pub(super) struct Names {
    pub(super) users: HashMap<Box<[u8]>, u32>,
    pub(super) groups: HashMap<Box<[u8]>, u32>,
    search: Search,
}

/// What is known of the members that come later.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Search {
    /// Nothing: the archive may be one that is read only once.
    #[default]
    Impossible,
    /// It may be opened again.
    Possible,
    Done,
    /// This is the search: any number will do.
    Running,
}

/// Whose number it is.
#[derive(Clone, Copy, Debug)]
pub(super) enum Whose {
    User,
    Group,
}

impl Names {
    /// Learns from a header, whose numbers may be those of records.
    pub(super) fn learn(&mut self, header: &Header, uid: u32, gid: u32) {
        for (known, name, number) in
            [(&mut self.users, header.user(), uid), (&mut self.groups, header.group(), gid)]
        {
            if !name.is_empty() && known.len() < NAMES_MAX && !known.contains_key(name) {
                known.insert(name.into(), number);
            }
        }
    }

    /// The archive may be opened again.
    pub(super) fn may_search(&mut self) {
        if self.search == Search::Impossible {
            self.search = Search::Possible;
        }
    }

    fn known(&self, whose: Whose, name: &[u8]) -> Option<u32> {
        let known = match whose {
            Whose::User => &self.users,
            Whose::Group => &self.groups,
        };
        known.get(name).copied()
    }

    /// Those of a search.
    pub(super) fn of_search() -> Self {
        Self { search: Search::Running, ..Self::default() }
    }
}

/// The numbers of an archive's names, and the archive.
pub(super) struct Numbers<'a> {
    pub(super) names: &'a mut Names,
    pub(super) open: &'a OpenArchive,
}

impl Numbers<'_> {
    /// The number of a name.
    pub(super) fn of(&mut self, whose: Whose, name: &[u8]) -> Option<u32> {
        if self.names.search == Search::Running {
            return Some(0);
        }
        let known = self.names.known(whose, name);
        if known.is_none() && self.names.search == Search::Possible {
            self.search();
            return self.names.known(whose, name);
        }
        known
    }

    /// Learns from all headers of the archive, once.
    fn search(&mut self) {
        self.names.search = Search::Done;
        // What is wrong with the archive is said when it is read.
        let Ok(archive) = (self.open)() else { return };
        let mut archive = TarSource::searched(archive);
        while let Ok(Some(_)) = archive.next_entry() {}
        self.names.users.extend(archive.names.users);
        self.names.groups.extend(archive.names.groups);
    }
}

//! A name that is looked for, in the form in which a directory's entries can be compared with it.

use super::casefold::fold;
use super::directory::Names;
use super::hash::NameHasher;
use super::nokey::NokeyName;

/// The name asked for, made ready once for many comparisons.
#[derive(Debug)]
pub(super) enum Query<'a> {
    /// Only these bytes.
    Exact(&'a [u8]),
    /// These bytes, or else any name that folds like them.
    Folded { name: &'a [u8], folded: String },
    /// The encrypted name behind a disguise.
    Disguised(NokeyName),
}

/// How well an entry fits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fit {
    Not,
    /// By folding; an exact fit would be preferred.
    Folded,
    Exact,
}

impl<'a> Query<'a> {
    /// `None` for a name that no entry of such a directory can have.
    pub(super) fn new(name: &'a [u8], names: Names) -> Option<Self> {
        if matches!(name, b"." | b"..") {
            return Some(Self::Exact(name));
        }
        match names {
            Names::Plain => Some(Self::Exact(name)),
            Names::Casefolded(_) => Some(match fold(name) {
                Some(folded) => Self::Folded { name, folded },
                None => Self::Exact(name),
            }),
            Names::Encrypted { .. } => NokeyName::decode(name).map(Self::Disguised),
        }
    }

    pub(super) fn fit(&self, stored: &[u8]) -> Fit {
        let exact = |fits| if fits { Fit::Exact } else { Fit::Not };
        match self {
            Self::Exact(name) => exact(*name == stored),
            Self::Folded { name, .. } if *name == stored => Fit::Exact,
            // Spares most entries a copy: ASCII folds to ASCII and nothing else.
            Self::Folded { folded, .. } if stored.is_ascii() => {
                if stored.eq_ignore_ascii_case(folded.as_bytes()) { Fit::Folded } else { Fit::Not }
            }
            Self::Folded { folded, .. } if fold(stored).as_ref() == Some(folded) => Fit::Folded,
            Self::Folded { .. } => Fit::Not,
            Self::Disguised(name) => exact(name.stands_for(stored)),
        }
    }

    /// The hash that leads to the name; `None` when it cannot be computed.
    pub(super) fn hash(&self, hasher: Option<&NameHasher>) -> Option<u32> {
        match self {
            Self::Exact(name) => hasher.map(|h| h.hash(name).major),
            Self::Folded { folded, .. } => hasher.map(|h| h.hash(folded.as_bytes()).major),
            // The disguise carries it: without the key it cannot be computed in every directory.
            Self::Disguised(name) => Some(name.hash.major),
        }
    }
}

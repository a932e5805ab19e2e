//! Digests of content, and streams that are verified against them while they are read.

use std::fmt;
use std::io::{self, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use sha2::{Digest as _, Sha256, Sha512};

/// A digest as OCI writes it: an algorithm, a colon, and lower-case hexadecimal digits.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Digest {
    text: Box<str>,
    algorithm: Algorithm,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Algorithm {
    Sha256,
    Sha512,
}

/// Why text is no digest.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum DigestError {
    /// It is not of the form of one.
    #[error("\"{0}\" is no digest")]
    Form(String),
    /// Its algorithm is not known here.
    #[error("digests by \"{0}\" are not supported")]
    Algorithm(String),
}

impl Digest {
    /// From text. What it says is safe as a name of a file.
    pub(crate) fn parse(text: &str) -> Result<Self, DigestError> {
        let shown = || text.chars().take(100).flat_map(char::escape_debug).collect();
        let (algorithm, digits) = text.split_once(':').ok_or_else(|| DigestError::Form(shown()))?;
        let (algorithm, len) = match algorithm {
            "sha256" => (Algorithm::Sha256, 64),
            "sha512" => (Algorithm::Sha512, 128),
            other => {
                let shown = other.chars().take(100).flat_map(char::escape_debug).collect();
                return Err(DigestError::Algorithm(shown));
            }
        };
        let is_hex = digits.bytes().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'));
        if digits.len() != len || !is_hex {
            return Err(DigestError::Form(shown()));
        }
        Ok(Self { text: text.into(), algorithm })
    }

    /// The algorithm's name and the digits.
    pub(crate) fn parts(&self) -> (&str, &str) {
        self.text.split_once(':').unwrap_or_default()
    }

    /// Whether these bytes have this digest.
    pub(crate) fn is_of(&self, bytes: &[u8]) -> bool {
        let mut hasher = self.algorithm.hasher();
        hasher.update(bytes);
        hasher.digits() == self.parts().1
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Algorithm {
    fn hasher(self) -> Hasher {
        match self {
            Self::Sha256 => Hasher::Sha256(Sha256::new()),
            Self::Sha512 => Hasher::Sha512(Sha512::new()),
        }
    }
}

enum Hasher {
    Sha256(Sha256),
    Sha512(Sha512),
}

impl Hasher {
    fn update(&mut self, bytes: &[u8]) {
        match self {
            Self::Sha256(hasher) => hasher.update(bytes),
            Self::Sha512(hasher) => hasher.update(bytes),
        }
    }

    fn digits(self) -> String {
        let digest = match self {
            Self::Sha256(hasher) => hasher.finalize().to_vec(),
            Self::Sha512(hasher) => hasher.finalize().to_vec(),
        };
        digest
            .iter()
            .flat_map(|byte| [byte >> 4, byte & 15])
            .filter_map(|n| char::from_digit(n.into(), 16))
            .collect()
    }
}

/// Content that is not what its digest says, as the cause within an [`io::Error`].
#[derive(Debug, thiserror::Error)]
#[error("{what} is not what its digest {digest} says")]
pub(crate) struct Mismatch {
    what: &'static str,
    digest: Digest,
}

/// A stream whose digest is verified at its end: the last read fails if it is another one.
pub(crate) struct Verified<R> {
    stream: R,
    what: &'static str,
    digest: Digest,
    /// `None` once the end was seen.
    hasher: Option<Hasher>,
    right: Arc<AtomicBool>,
}

impl<R: Read> Verified<R> {
    /// `what` names the stream in messages. What is returned with it becomes true when the stream has ended and has the
    /// digest.
    pub(crate) fn new(stream: R, what: &'static str, digest: Digest) -> (Self, Arc<AtomicBool>) {
        let right = Arc::new(AtomicBool::new(false));
        let hasher = Some(digest.algorithm.hasher());
        (Self { stream, what, digest, hasher, right: Arc::clone(&right) }, right)
    }
}

impl<R: Read> Read for Verified<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let len = self.stream.read(buf)?;
        if len > 0 {
            if let Some(hasher) = &mut self.hasher {
                hasher.update(&buf[..len]);
            }
        } else if !buf.is_empty()
            && let Some(hasher) = self.hasher.take()
        {
            if hasher.digits() != self.digest.parts().1 {
                return Err(io::Error::other(Mismatch { what: self.what, digest: self.digest.clone() }));
            }
            self.right.store(true, Ordering::Release);
        }
        Ok(len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EMPTY: &str = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

    #[test]
    fn a_digest_names_no_other_file() {
        assert!(Digest::parse(EMPTY).unwrap().is_of(b""));
        assert!(!Digest::parse(EMPTY).unwrap().is_of(b"a"));
        for wrong in ["", "sha256", "sha256:../../etc/passwd", &EMPTY.to_uppercase(), &EMPTY[..70], "md5:00"]
        {
            Digest::parse(wrong).unwrap_err();
        }
        let upper = EMPTY.replace("e3b0", "E3B0");
        assert!(matches!(Digest::parse(&upper), Err(DigestError::Form(_))));
    }

    #[test]
    fn a_stream_with_another_digest_fails_at_its_end() {
        let (mut stream, right) = Verified::new(&b""[..], "it", Digest::parse(EMPTY).unwrap());
        assert_eq!(stream.read(&mut [0; 4]).unwrap(), 0);
        assert!(right.load(Ordering::Acquire));
        let (mut stream, right) = Verified::new(&b"abc"[..], "it", Digest::parse(EMPTY).unwrap());
        assert_eq!(stream.read(&mut [0; 4]).unwrap(), 3);
        stream.read(&mut [0; 4]).unwrap_err();
        assert!(!right.load(Ordering::Acquire));
    }

    #[test]
    fn sha512_is_known() {
        let (_, digits) = ("", "0".repeat(128));
        let digest = Digest::parse(&format!("sha512:{digits}")).unwrap();
        assert!(!digest.is_of(b"abc"));
        let abc = "ddaf35a193617abacc417349ae20413112e6fa4e89a97ea20a9eeee64b55d39a2192992a274fc1a836ba3c23a3feebbd454d4423643ce80e2a9ac94fa54ca49f";
        assert!(Digest::parse(&format!("sha512:{abc}")).unwrap().is_of(b"abc"));
    }
}

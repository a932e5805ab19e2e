//! What is said over a control socket: one line of JSON for a request, and lines of JSON for its answer.
//!
//! ```text
//! {"version":1,"request":"md_change","arguments":{"change":{"fail":{"members":[...]}},"wait":...}}
//! {"version":1,"answer":"progress","with":{"action":"recovery","position_bytes":65536,...}}      any number of them
//! {"version":1,"answer":"array","with":{...}}                                                    the last line
//! ```
//!
//! A connection may carry several requests, one after the other. A version or a request that the server does not know is
//! refused by name. Paths are hexadecimal, since they are bytes.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use undercroft_vfs::StatFs;

use crate::commands::grow::GrowReport;
use crate::commands::info::LiveReport;
use crate::commands::md::{ArrayReport, WorkProgress};
use crate::exit::Kind;
use crate::failure::Failure;
use crate::file_id::FileId;
use crate::plan::{Change, Waiting};
use crate::text::names::hex;

/// Of the protocol. A server speaks one.
pub(super) const VERSION: u32 = 1;

/// A message with its version.
#[derive(Debug, Serialize)]
pub(super) struct Versioned<T> {
    version: u32,
    #[serde(flatten)]
    message: T,
}

/// What is looked at first.
#[derive(Debug, Deserialize)]
struct Version {
    version: u32,
}

/// What a client asks for.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "request", content = "arguments", rename_all = "snake_case")]
pub(crate) enum Request {
    /// What is mounted, and how it is doing.
    Describe,
    /// All that `info` tells.
    Info,
    /// The state of the array.
    MdStatus,
    /// Something becomes of the array.
    MdChange(MdChange),
    /// The filesystem becomes as large as this, or as its device.
    Grow { size_bytes: Option<u64> },
    /// The label, which changes first if one is given.
    Label { change_to: Option<Bytes> },
    /// The UUID.
    Uuid,
    /// What is written waits from now on, and what was written is durable.
    Freeze,
    /// It goes on.
    Thaw,
}

/// What becomes of an array, and whether the answer waits for what that brings about.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct MdChange {
    pub(crate) change: Change,
    pub(crate) wait: Waiting,
}

/// What a server answers.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "answer", content = "with", rename_all = "snake_case")]
pub(crate) enum Answer {
    Served(Box<Served>),
    Info(Box<LiveReport>),
    Array(Box<ArrayReport>),
    Grown(GrowReport),
    Labelled {
        label: Bytes,
    },
    Uuid {
        uuid: String,
    },
    /// More follows.
    Progress(WorkProgress),
    /// More follows: bytes of growth that are done, and all of them.
    Growing {
        done: u64,
        all: u64,
    },
    Refused(Refusal),
}

/// A failure, with the exit code of the command that met it.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Refusal {
    code: u8,
    sentence: String,
}

impl From<Failure> for Answer {
    fn from(failure: Failure) -> Self {
        Self::Refused(Refusal { code: failure.kind().code(), sentence: failure.to_string() })
    }
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        Self::new(Kind::of_code(refusal.code.into()), refusal.sentence)
    }
}

/// What a server has mounted, and how it is doing.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Served {
    /// As it was named.
    pub(crate) image: String,
    pub(crate) filesystem: String,
    pub(crate) point: Bytes,
    /// The mount's device number, which is `st_dev` of all that lies in it.
    pub(crate) device: u64,
    pub(crate) process: u32,
    pub(crate) mode: Mode,
    /// The image, or the members of the array now.
    pub(crate) files: Vec<FileId>,
    pub(crate) is_array: bool,
    pub(crate) array_uuid: Option<String>,
    pub(crate) partition: Option<u32>,
    /// As `md status` has it.
    pub(crate) array_state: Option<String>,
    /// Roles of the array without a member that is in sync.
    pub(crate) degraded: u32,
    /// Background work of the array.
    pub(crate) progress: Option<WorkProgress>,
    /// Why the filesystem or the array takes no more changes.
    pub(crate) failure: Option<String>,
    /// Errors were recorded in the filesystem before it was mounted.
    #[serde(default)]
    pub(crate) has_errors: bool,
    /// What is written waits.
    #[serde(default)]
    pub(crate) is_frozen: bool,
    pub(crate) log: Option<Bytes>,
    pub(crate) space: Space,
}

/// What becomes of changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Mode {
    /// There are none.
    ReadOnly,
    /// They are written to the image, or kept in memory where there is none.
    ReadWrite,
    /// They are kept beside the image.
    Snapshot,
}

/// Free and used space, in blocks.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Space {
    pub(crate) block_bytes: u32,
    pub(crate) blocks: u64,
    pub(crate) blocks_free: u64,
    pub(crate) blocks_available: u64,
    pub(crate) inodes: u64,
    pub(crate) inodes_free: u64,
}

impl From<StatFs> for Space {
    fn from(found: StatFs) -> Self {
        let StatFs { block_bytes, blocks, blocks_free, blocks_available, inodes, inodes_free, .. } = found;
        Self { block_bytes, blocks, blocks_free, blocks_available, inodes, inodes_free }
    }
}

impl Space {
    pub(crate) const fn bytes(&self, blocks: u64) -> u64 {
        blocks.saturating_mul(self.block_bytes as u64)
    }

    pub(crate) const fn used(&self) -> u64 {
        self.blocks.saturating_sub(self.blocks_free)
    }
}

/// Bytes as hexadecimal.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Bytes(pub(crate) Vec<u8>);

impl Bytes {
    pub(crate) fn of_path(path: &Path) -> Self {
        Self(path.as_os_str().as_bytes().to_vec())
    }

    pub(crate) fn to_path(&self) -> PathBuf {
        PathBuf::from(OsString::from_vec(self.0.clone()))
    }
}

impl Serialize for Bytes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&hex(&self.0))
    }
}

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let digit = |byte: u8| char::from(byte).to_digit(16).map(|digit| digit as u8);
        let pair = |pair: &[u8]| match pair {
            [high, low] => Some(digit(*high)? << 4 | digit(*low)?),
            _ => None,
        };
        let bytes: Option<Vec<u8>> = text.as_bytes().chunks(2).map(pair).collect();
        bytes.map(Self).ok_or_else(|| serde::de::Error::custom("a path that is not hexadecimal"))
    }
}

/// A path in a message, for `#[serde(with)]`.
pub(crate) mod path {
    use super::{Bytes, Deserialize, Deserializer, Path, PathBuf, Serialize, Serializer};

    pub(crate) fn serialize<S: Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
        Bytes::of_path(path).serialize(serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<PathBuf, D::Error> {
        Ok(Bytes::deserialize(deserializer)?.to_path())
    }
}

/// A message as a line, without its end.
pub(super) fn line<T: Serialize>(message: &T) -> serde_json::Result<Vec<u8>> {
    serde_json::to_vec(&Versioned { version: VERSION, message })
}

/// The request in a line.
pub(super) fn request(line: &[u8]) -> Result<Request, Failure> {
    check_version(line, "the mount's server")?;
    serde_json::from_slice(line)
        .map_err(|error| Failure::new(Kind::Usage, "the mount's server refuses the request").because(&error))
}

/// The answer in a line.
pub(super) fn answer(line: &[u8]) -> Result<Answer, Failure> {
    check_version(line, "this program")?;
    serde_json::from_slice(line).map_err(|error| no_answer().because(&error))
}

fn check_version(line: &[u8], ours: &str) -> Result<(), Failure> {
    let Version { version } = serde_json::from_slice(line).map_err(|error| {
        Failure::new(Kind::Usage, "a control socket carried something else than a message").because(&error)
    })?;
    if version == VERSION {
        return Ok(());
    }
    let what =
        format!("{ours} speaks version {VERSION} of the control protocol, and the other side {version}");
    Err(Failure::new(Kind::Unsupported, what)
        .advise("use the program of the version that has the image mounted"))
}

pub(crate) fn no_answer() -> Failure {
    Failure::new(Kind::Host, "the server of the mount gave no answer that makes sense")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_and_requests_that_are_not_known_are_refused_by_name() {
        assert!(matches!(request(br#"{"version":1,"request":"describe"}"#), Ok(Request::Describe)));
        let refused = |line: &str| request(line.as_bytes()).unwrap_err().to_string();
        assert!(refused(r#"{"version":7,"request":"describe"}"#).contains("and the other side 7"));
        assert!(refused(r#"{"version":1,"request":"explode"}"#).contains("`explode`"));
        assert!(refused("GET / HTTP/1.1").contains("something else than a message"));
        assert!(refused(&"[".repeat(100_000)).contains("something else than a message"));
    }

    #[test]
    fn paths_are_bytes() {
        let path = Bytes(b"/a\xff\n".to_vec());
        let line = serde_json::to_string(&path).unwrap();
        assert_eq!(line, "\"2f61ff0a\"");
        assert_eq!(serde_json::from_str::<Bytes>(&line).unwrap(), path);
        assert!(serde_json::from_str::<Bytes>("\"2f6\"").is_err());
        assert!(serde_json::from_str::<Bytes>("\"2x\"").is_err());
    }
}

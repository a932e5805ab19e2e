//! Partitions that are to be made: what is decided about them before anything is written.

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};
use std::{env, fs};

use sha2::{Digest, Sha256};
use undercroft_block::partition::{PartitionKind, Scheme};
use undercroft_disk::definition::{ContentFormat, PartitionDefinition};
use undercroft_disk::fat::least_fat_bytes;
use undercroft_disk::layout::{self, Size};
use undercroft_diskfs::mkfs::random_uuid;
use undercroft_populate::FileId;
use uuid::{Builder, Uuid};

use super::content;
use crate::exit::Kind;
use crate::failure::{Failure, without_errno};
use crate::file_id;
use crate::plan::{ImageSpec, PartitionPlan, SourcePlan, kind_of};

/// What a partition has at least where nothing says more.
const LEAST_BYTES: u64 = 1 << 20;

/// Where UUIDs come from.
#[derive(Clone, Debug)]
pub(super) struct Ids {
    seed: Option<String>,
}

impl Ids {
    pub(super) fn new(seed: Option<String>) -> Self {
        Self { seed }
    }

    /// The UUID of something: made from the seed and its name, or a random one.
    pub(super) fn uuid(&self, what: &str) -> Result<Uuid, Failure> {
        let Some(seed) = &self.seed else {
            return random_uuid().map_err(|error| Failure::of(Kind::Host, &error));
        };
        let mut hash = Sha256::new();
        for part in [seed.as_bytes(), b"\0", what.as_bytes()] {
            hash.update(part);
        }
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&hash.finalize()[..16]);
        Ok(Builder::from_random_bytes(bytes).into_uuid())
    }
}

/// The latest time in what is made, in seconds since 1970: that of SOURCE_DATE_EPOCH, or now.
pub(super) fn latest_time() -> Result<i64, Failure> {
    match env::var("SOURCE_DATE_EPOCH") {
        Ok(typed) => typed.parse().map_err(|_| {
            Failure::new(
                Kind::Usage,
                format!("SOURCE_DATE_EPOCH is {typed:?}, which is no number of seconds"),
            )
        }),
        Err(_) => Ok(SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs() as i64)),
    }
}

/// A partition that is to be made.
#[derive(Debug)]
pub(super) struct Part<'a> {
    pub(super) definition: &'a PartitionDefinition,
    /// How its sources are read.
    pub(super) how: &'a SourcePlan,
    pub(super) kind: PartitionKind,
    pub(super) id: Uuid,
    /// Of the filesystem or swap space in it.
    pub(super) content_id: Uuid,
    pub(super) hash_seed: Uuid,
    /// How it is called in messages.
    pub(super) shown: String,
    pub(super) time: i64,
    /// The files of the disk, which are no part of what is put into it.
    pub(super) not_these: Vec<FileId>,
}

impl<'a> Part<'a> {
    /// Decides everything but its place. `place` is what tells it from others of its name.
    pub(super) fn of(
        PartitionPlan { definition, how }: &'a PartitionPlan,
        place: usize,
        scheme: Scheme,
        architecture: Option<&str>,
        ids: &Ids,
    ) -> Result<Self, Failure> {
        let name = definition.name.as_deref().unwrap_or_default();
        let shown = match &definition.name {
            Some(name) => format!("partition \"{name}\""),
            None => format!("partition {place}"),
        };
        let own = |what: &str| ids.uuid(&format!("{what} {place} {name}"));
        Ok(Self {
            definition,
            how,
            kind: kind_of(definition, scheme, architecture)?,
            id: definition.id.map_or_else(|| own("partition"), Ok)?,
            content_id: definition.content_id.map_or_else(|| own("content"), Ok)?,
            hash_seed: own("hash")?,
            shown,
            time: latest_time()?,
            not_these: Vec::new(),
        })
    }

    /// Leaves the file at a path out of what is put into it, if there is one.
    pub(super) fn leave_out(&mut self, path: &Path) {
        let found = fs::metadata(path).ok().filter(fs::Metadata::is_file);
        self.not_these.extend(found.as_ref().map(FileId::of));
    }

    /// Whether its bytes are those of the file at `path`, or of a part of it.
    pub(super) fn copies(&self, path: &Path) -> bool {
        let blocks = self.definition.blocks.as_ref();
        let spec = blocks.and_then(|blocks| ImageSpec::parse(blocks.as_os_str()).ok());
        let id = |path: &Path| file_id::FileId::of_path(path);
        spec.is_some_and(|spec| spec.array.is_none() && id(path).is_some() && id(&spec.path) == id(path))
    }

    /// A failure that names the partition.
    pub(super) fn failed(&self, kind: Kind, what: &dyn std::fmt::Display) -> Failure {
        Failure::new(kind, format!("{}: {}", self.shown, without_errno(&what.to_string())))
    }

    /// How large it may become. What is left over is not known yet.
    pub(super) fn size(&self) -> Result<Size, Failure> {
        let wanted = &self.definition.size;
        let needed = if wanted.minimal || self.definition.blocks.is_some() { self.needed()? } else { 0 };
        if let Some(max) = wanted.max_bytes.filter(|&max| max < needed) {
            return Err(self.failed(
                Kind::Usage,
                &format!("its content has {needed} bytes, and the partition is to have {max} at most"),
            ));
        }
        let min_bytes = match wanted.min_bytes {
            None if wanted.minimal => needed,
            None => needed.max(LEAST_BYTES.min(wanted.max_bytes.unwrap_or(LEAST_BYTES))),
            Some(min) => min.max(needed),
        };
        let max_bytes = if wanted.minimal { Some(min_bytes) } else { wanted.max_bytes };
        Ok(Size { min_bytes, max_bytes, weight: wanted.weight })
    }

    /// Whether it takes what is left, and says no size of its own.
    pub(super) fn takes_rest(&self) -> bool {
        let wanted = &self.definition.size;
        !wanted.minimal && wanted.min_bytes.is_none() && wanted.weight > 0
    }

    /// The least size for its content.
    fn needed(&self) -> Result<u64, Failure> {
        if let Some(blocks) = &self.definition.blocks {
            return Ok(content::open_blocks(blocks)?.0.size_bytes());
        }
        content::refuse_streams(self)?;
        match self.definition.format {
            Some(ContentFormat::Vfat) => {
                let mut sources = content::sources(self)?;
                least_fat_bytes(&mut sources).map_err(|error| content::failure(self, &error))
            }
            Some(ContentFormat::Swap) => Err(self
                .failed(Kind::Usage, &"swap space has no least size")
                .advise("say how large it is to be")),
            Some(format) => content::least_filesystem(self, format),
            None => Err(self.failed(Kind::Usage, &"it has no content").advise("say how large it is to be")),
        }
    }
}

/// The sizes of all, for a disk whose size is not said: the least.
pub(super) fn least_sizes(parts: &[Part<'_>], sizes: &[Size]) -> Result<Vec<Size>, Failure> {
    if let Some(part) = parts.iter().find(|part| part.takes_rest()) {
        return Err(part
            .failed(Kind::Usage, &"it takes what is left of the disk, whose size is not known")
            .advise("say how large the disk is to be: `--size 10G`"));
    }
    Ok(sizes.iter().map(|size| Size::fixed(size.min_bytes)).collect())
}

/// A failure to lay partitions out.
pub(super) fn no_room(error: &undercroft_disk::Error) -> Failure {
    Failure::of(Kind::Usage, error).advise("make the disk larger, or partitions smaller")
}

/// What partitions begin at multiples of.
pub(super) const ALIGN_BYTES: u64 = layout::ALIGN_BYTES;

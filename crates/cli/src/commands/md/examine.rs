//! `md examine`: what members say, one by one.

use std::io::Write;

use serde::Serialize;
use undercroft_md::{DeviceRole, Examined, examine};

use super::report::{layout, level, moment, role};
use crate::exit::Kind;
use crate::failure::{Complaints, Failure};
use crate::image::{self, md_failure};
use crate::plan::{Format, ImageSpec};
use crate::text::names::safe;
use crate::text::out::{JsonArray, Out};

/// One member, for programs. Offsets and sizes are bytes.
#[derive(Debug, Serialize)]
struct Member {
    member: String,
    /// Why the array cannot be assembled from it.
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<String>,
    metadata: String,
    superblock_offset: u64,
    features: u32,
    array_uuid: String,
    device_uuid: String,
    name: String,
    created: String,
    updated: String,
    events: u64,
    level: Option<String>,
    layout: Option<String>,
    chunk_bytes: u64,
    raid_devices: u32,
    array_bytes: Option<u64>,
    data_offset: u64,
    data_bytes: u64,
    member_bytes: u64,
    clean: bool,
    resynced_bytes: Option<u64>,
    recovered_bytes: Option<u64>,
    number: u32,
    role: Option<u32>,
    role_word: &'static str,
    replacement: bool,
    /// By device number.
    roles: Vec<Option<u32>>,
    array_state: String,
    write_mostly: bool,
    failfast: bool,
    bitmap: Option<Bitmap>,
    ppl: Option<Area>,
    bad_blocks: Option<BadBlocks>,
    checksum: u32,
    expected_checksum: u32,
}

#[derive(Debug, Serialize)]
struct Bitmap {
    offset: u64,
    chunk_bytes: u64,
    sync_bytes: u64,
    events: u64,
    events_cleared: u64,
    bits: u64,
    dirty_bits: u64,
}

#[derive(Debug, Serialize)]
struct Area {
    offset: u64,
    bytes: u64,
}

#[derive(Debug, Serialize)]
struct BadBlocks {
    offset: u64,
    room: u64,
    /// First byte and length of each, from the beginning of the data.
    ranges: Vec<(u64, u64)>,
}

impl From<&Examined> for Member {
    fn from(found: &Examined) -> Self {
        let filled = |role: &DeviceRole| match role {
            DeviceRole::Active(role) => Some(*role),
            _ => None,
        };
        Self {
            member: found.member.clone(),
            problem: found.problem.clone(),
            metadata: found.version.to_string(),
            superblock_offset: found.superblock_offset,
            features: found.features,
            array_uuid: found.array_uuid.to_string(),
            device_uuid: found.device_uuid.to_string(),
            name: found.name.clone(),
            created: moment(found.created),
            updated: moment(found.updated),
            events: found.events,
            level: found.shape.map(|(of, _)| level(of).to_owned()),
            layout: found.shape.and_then(|(_, of)| layout(of)),
            chunk_bytes: found.chunk_bytes,
            raid_devices: found.raid_disks,
            array_bytes: found.array_bytes,
            data_offset: found.data_offset,
            data_bytes: found.data_bytes,
            member_bytes: found.member_bytes,
            clean: found.is_clean(),
            resynced_bytes: found.resynced_bytes,
            recovered_bytes: found.recovered_bytes,
            number: found.number,
            role: filled(&found.role),
            role_word: role(found.role),
            replacement: found.is_replacement,
            roles: found.roles.iter().map(filled).collect(),
            array_state: found.array_state(),
            write_mostly: found.is_write_mostly,
            failfast: found.is_fail_fast,
            bitmap: found.bitmap.as_ref().map(|bitmap| Bitmap {
                offset: bitmap.offset,
                chunk_bytes: bitmap.chunk_bytes,
                sync_bytes: bitmap.sync_bytes,
                events: bitmap.events,
                events_cleared: bitmap.events_cleared,
                bits: bitmap.bits,
                dirty_bits: bitmap.dirty_bits,
            }),
            ppl: found.ppl.map(|(offset, bytes)| Area { offset, bytes }),
            bad_blocks: found.bad_blocks.as_ref().map(|list| BadBlocks {
                offset: list.offset,
                room: list.room,
                ranges: list.ranges.iter().map(|range| (range.start, range.end - range.start)).collect(),
            }),
            checksum: found.checksum,
            expected_checksum: found.expected_checksum,
        }
    }
}

/// Shows each member; what cannot be shown is complained of.
pub(super) fn run(members: &[ImageSpec], format: Format) -> Result<Option<Kind>, Failure> {
    let mut out = Out::stdout();
    let mut array = JsonArray::default();
    let mut complaints = Complaints::default();
    for spec in members {
        let found = image::open_member(spec, false)
            .and_then(|device| examine(&*device).map_err(|error| md_failure(&error)));
        let found = match found {
            Ok(found) => found,
            Err(failure) => {
                complaints.add(failure)?;
                continue;
            }
        };
        complaints.done_some();
        match format {
            Format::Json => array.element(&mut out, &Member::from(&found))?,
            Format::Text => {
                for line in found.to_string().lines() {
                    writeln!(out, "{}", safe(line.as_bytes()))?;
                }
            }
        }
    }
    if format == Format::Json {
        array.end(&mut out)?;
    }
    out.finish()?;
    Ok(complaints.outcome())
}

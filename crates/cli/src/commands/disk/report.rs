//! What `info` shows of a disk with partitions: where they lie, what holds what, and what is free.
//!
//! A partition's content is found by its marks (`undercroft_block::probe`), whatever its type says.

use std::io::Write;
use std::num::NonZeroU32;

use serde::Serialize;
use undercroft_block::partition::{Partition, Table};
use undercroft_block::probe::{Class, Content, probe};
use undercroft_block::{Device, PartitionDevice};

use crate::failure::Failure;
use crate::image::Partitioned;
use crate::plan::ImageSpec;
use crate::text::human;
use crate::text::names::{Label, safe};
use crate::text::out::{Out, columns};
use crate::text::style;

/// Gaps up to this size in bytes are alignment, or hold the tables of logical partitions.
const ALIGNMENT_BYTES: u64 = 1 << 20;

/// A disk and its partitions.
#[derive(Debug, Serialize)]
pub(crate) struct DiskReport {
    #[serde(skip)]
    /// How one of its partitions is named.
    one: String,
    size_bytes: u64,
    /// `gpt` or `dos`, as sfdisk calls them.
    table: &'static str,
    id: Option<String>,
    sector_bytes: u32,
    /// By rising number.
    partitions: Vec<PartitionReport>,
    /// Runs without a partition, of more than a MiB.
    free: Vec<Free>,
    /// What is wrong with the table although it could be used.
    damage: Vec<String>,
    /// The only partition that commands open when none is named.
    pub(crate) meant: Option<NonZeroU32>,
}

#[derive(Debug, Serialize)]
struct PartitionReport {
    number: u32,
    start_bytes: u64,
    size_bytes: u64,
    /// The raw type: two hexadecimal digits, or a GUID.
    #[serde(rename = "type")]
    kind: String,
    type_name: Option<&'static str>,
    name: Option<String>,
    uuid: Option<String>,
    bootable: bool,
    /// A container of logical partitions.
    is_extended: bool,
    /// It reaches past the end of the disk, which may be an image that was cut short.
    is_cut_short: bool,
    holds: Option<Held>,
}

#[derive(Debug, Serialize)]
struct Held {
    /// blkid's word for it.
    format: &'static str,
    #[serde(skip)]
    what: &'static str,
    #[serde(flatten)]
    label: Label,
    uuid: Option<String>,
}

#[derive(Debug, Serialize)]
struct Free {
    start_bytes: u64,
    size_bytes: u64,
}

impl DiskReport {
    /// Looks at each partition's first blocks.
    pub(crate) fn of(spec: &ImageSpec, disk: Partitioned) -> Result<Self, Failure> {
        let Partitioned { device, table, meant } = disk;
        let free = table.free(ALIGNMENT_BYTES);
        Ok(Self {
            one: spec.shown_with_part("N"),
            size_bytes: device.size_bytes(),
            table: name_of(&table),
            id: table.disk.map(|id| id.to_string()),
            sector_bytes: table.sector_bytes,
            partitions: table
                .partitions
                .iter()
                .map(|partition| PartitionReport::of(&device, partition))
                .collect(),
            free: free
                .into_iter()
                .map(|range| Free { start_bytes: range.start, size_bytes: range.end - range.start })
                .collect(),
            damage: table.damage,
            meant,
        })
    }

    /// As people read it: in the order of places.
    pub(crate) fn text(&self, out: &mut Out) -> Result<(), Failure> {
        let palette = out.palette;
        let table = if self.table == "gpt" { "GPT" } else { "MBR" };
        let size = human::size(self.size_bytes);
        writeln!(out, "{}", palette.paint(style::HEADING, &format!("disk of {size}, {table}")))?;
        for damage in self.damage.iter().filter(|_| self.meant.is_none()) {
            writeln!(out, "  {}", palette.paint(style::WARN, &safe(damage.as_bytes())))?;
        }
        let head = ["nr", "start", "size", "type", "name", "holds"].map(str::to_owned);
        let mut rows: Vec<(u64, [String; 6])> =
            self.partitions.iter().map(|p| (p.start_bytes, p.row())).collect();
        rows.extend(self.free.iter().map(|free| {
            let (start, size) = (human::size(free.start_bytes), human::size(free.size_bytes));
            (free.start_bytes, ["-".to_owned(), start, size, "free".to_owned(), String::new(), String::new()])
        }));
        rows.sort_by_key(|(start, _)| *start);
        let rows: Vec<[String; 6]> =
            std::iter::once(head).chain(rows.into_iter().map(|(_, row)| row)).collect();
        let width = |column: usize| rows.iter().map(|row| columns(&row[column])).max().unwrap_or(0);
        let widths: [usize; 6] = std::array::from_fn(width);
        for (index, row) in rows.iter().enumerate() {
            let mut line = String::from(" ");
            for (column, (cell, width)) in row.iter().zip(widths).enumerate() {
                let padding = " ".repeat(width - columns(cell));
                // Numbers stand at the right.
                let (before, after) = if column < 3 { (&*padding, "") } else { ("", &*padding) };
                line.push_str(&format!(" {before}{cell}{after} "));
            }
            let line = line.trim_end();
            if index == 0 {
                writeln!(out, "{}", palette.paint(style::DIM, line))?;
            } else {
                writeln!(out, "{line}")?;
            }
        }
        if self.meant.is_none() {
            writeln!(out, "name one as {}", self.one)?;
        }
        Ok(())
    }
}

impl PartitionReport {
    fn of(device: &Device, partition: &Partition) -> Self {
        let window = PartitionDevice::open(Device::clone(device), partition);
        let is_extended = partition.kind.is_extended();
        // What cannot be read is not known; a command that opens the partition says why.
        let content = match &window {
            Ok(window) if !is_extended => probe(window).ok().flatten(),
            _ => None,
        };
        let Partition { number, start_bytes, size_bytes, bootable, .. } = *partition;
        Self {
            number,
            start_bytes,
            size_bytes,
            kind: partition.kind.to_string(),
            type_name: partition.kind.name(),
            name: partition.label.clone(),
            uuid: partition.id.map(|id| id.to_string()),
            bootable,
            is_extended,
            is_cut_short: start_bytes.saturating_add(size_bytes) > device.size_bytes(),
            holds: content.filter(|content| content.format.class != Class::Table).map(Held::from),
        }
    }

    fn row(&self) -> [String; 6] {
        let kind = self.type_name.map_or_else(|| format!("type {}", self.kind), str::to_owned);
        let mut holds = match &self.holds {
            Some(held) => held.words(),
            None if self.is_extended => "logical partitions".to_owned(),
            None => "nothing that is known".to_owned(),
        };
        if self.is_cut_short {
            holds = "reaches past the end of the disk".to_owned();
        }
        let name = self.name.as_ref().map_or_else(String::new, |name| safe(name.as_bytes()));
        [
            self.number.to_string(),
            human::size(self.start_bytes),
            human::size(self.size_bytes),
            kind,
            name,
            holds,
        ]
    }
}

impl From<Content> for Held {
    fn from(content: Content) -> Self {
        let Content { format, label, uuid } = content;
        Self { format: format.name, what: format.what, label: label.unwrap_or_default().into(), uuid }
    }
}

impl Held {
    /// `an ext4 filesystem "root", 1b4e28ba-...`.
    fn words(&self) -> String {
        let label = safe(&self.label.raw);
        let label = if label.is_empty() { label } else { format!(" \"{label}\"") };
        let uuid = self.uuid.as_ref().map_or_else(String::new, |uuid| format!(", {uuid}"));
        format!("{}{label}{uuid}", self.what)
    }
}

fn name_of(table: &Table) -> &'static str {
    match table.scheme {
        undercroft_block::partition::Scheme::Gpt => "gpt",
        _ => "dos",
    }
}

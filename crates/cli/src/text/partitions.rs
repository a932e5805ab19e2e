//! The partitions of a disk in one line, for messages.

use undercroft_block::partition::Table;

use super::human;
use super::names::safe;

/// `3 partitions (1: 100 MiB EFI system "boot", 2: ...)`.
pub(crate) fn list(table: &Table) -> String {
    let partitions = table.partitions.iter().map(|partition| {
        let kind = partition.kind.name().map_or_else(|| format!("type {}", partition.kind), str::to_owned);
        let label = partition
            .label
            .as_ref()
            .map_or_else(String::new, |label| format!(" \"{}\"", safe(label.as_bytes())));
        format!("{}: {} {kind}{label}", partition.number, human::size(partition.size_bytes))
    });
    let number = table.partitions.len() as u64;
    format!("{} ({})", human::counted(number, "partition"), partitions.collect::<Vec<_>>().join(", "))
}

//! `mounts`: what this user has mounted, and how it is doing.

use std::io::Write;

use serde::Serialize;

use crate::control::client;
use crate::control::protocol::{Mode, Served};
use crate::failure::Failure;
use crate::plan::Format;
use crate::text::human;
use crate::text::names::{MountedOn, hex, safe};
use crate::text::out::Out;
use crate::text::style;

use super::md::WorkProgress;

/// One mount.
#[derive(Debug, Serialize)]
pub(crate) struct MountRecord {
    image: String,
    #[serde(flatten)]
    mounted_on: MountedOn,
    filesystem: String,
    mode: Mode,
    /// All that is to be known, in words.
    state: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    array_state: Option<String>,
    degraded: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    progress: Option<WorkProgress>,
    /// Why it takes no more changes.
    #[serde(skip_serializing_if = "Option::is_none")]
    failure: Option<String>,
    log: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    log_bytes: Option<String>,
    user: u32,
    process: u32,
    size_bytes: u64,
    used_bytes: u64,
    available_bytes: u64,
}

impl MountRecord {
    /// Of what the server of `user` has said.
    pub(crate) fn of(served: &Served, user: u32) -> Self {
        let log = served.log.as_ref().map(|log| &log.0);
        Self {
            image: served.image.clone(),
            mounted_on: served.point.0.clone().into(),
            filesystem: served.filesystem.clone(),
            mode: served.mode,
            state: state(served),
            array_state: served.array_state.clone(),
            degraded: served.degraded,
            progress: served.progress.clone(),
            failure: served.failure.clone(),
            log: log.map(|log| String::from_utf8_lossy(log).into_owned()),
            log_bytes: log.filter(|log| std::str::from_utf8(log).is_err()).map(|log| hex(log)),
            user,
            process: served.process,
            size_bytes: served.space.bytes(served.space.blocks),
            used_bytes: served.space.bytes(served.space.used()),
            available_bytes: served.space.bytes(served.space.blocks_available),
        }
    }

    pub(crate) const fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// `rw, degraded, recovery, 12% of 4 GiB`.
    pub(crate) fn state(&self) -> String {
        self.state.clone()
    }

    /// `disk.img on /mnt, served by process 12`.
    pub(crate) fn place(&self) -> String {
        let (image, point) = (safe(self.image.as_bytes()), safe(&self.mounted_on.raw));
        format!("{image} on {point}, served by process {}", self.process)
    }

    /// State, space and log, a line each.
    pub(crate) fn details(&self, out: &mut Out) -> Result<(), Failure> {
        let palette = out.palette;
        let mut line = |label: &str, value: &str| {
            writeln!(out, "  {} {value}", palette.paint(style::DIM, &format!("{label:<9}")))
        };
        let is_well = self.degraded == 0 && self.failure.is_none();
        let colour = if is_well { style::GOOD } else { style::WARN };
        line("state", &palette.paint(colour, &format!("{}, {}", self.filesystem, self.state)))?;
        let (used, size) = (human::size(self.used_bytes), human::size(self.size_bytes));
        line("space", &format!("{used} used of {size}, {} for users", human::size(self.available_bytes)))?;
        if let Some(log) = &self.log {
            line("log", &safe(log.as_bytes()))?;
        }
        Ok(())
    }
}

fn state(served: &Served) -> String {
    let mode = match served.mode {
        Mode::ReadOnly => "ro",
        Mode::ReadWrite => "rw",
        Mode::Snapshot => "snapshot",
    };
    let mut words = vec![mode.to_owned()];
    if served.is_frozen {
        words.push("frozen".to_owned());
    }
    if served.has_errors {
        words.push("has errors, run e2fsck".to_owned());
    }
    if served.degraded > 0 {
        words.push("degraded".to_owned());
    }
    words.extend(served.progress.as_ref().map(WorkProgress::words));
    words.extend(
        served.failure.as_ref().map(|why| format!("takes no more changes: {}", safe(why.as_bytes()))),
    );
    words.join(", ")
}

/// Lists them.
pub(crate) fn run(format: Format) -> Result<(), Failure> {
    let records: Vec<MountRecord> =
        client::servers().iter().map(|live| MountRecord::of(&live.served, live.user)).collect();
    let mut out = Out::stdout();
    match format {
        Format::Json => out.json(&records)?,
        Format::Text => {
            for record in &records {
                writeln!(out, "{}", out.palette.paint(style::HEADING, &record.place()))?;
                record.details(&mut out)?;
            }
        }
    }
    out.finish()
}

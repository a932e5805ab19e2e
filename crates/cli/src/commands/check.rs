//! `check`: looks for damage, and ends as e2fsck would.

use std::io::Write;

use serde::Serialize;

use crate::exit::{Kind, Verdict};
use crate::failure::Failure;
use crate::image::checked::{Checked, Finding};
use crate::image::recovery::Recovery;
use crate::image::{self, Located};
use crate::plan::{Format, ImageSpec};
use crate::text::human;
use crate::text::names::safe;
use crate::text::out::Out;
use crate::text::style;

/// What a check reports.
#[derive(Debug, Serialize)]
struct Report {
    clean: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    partition: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    recovery: Option<Recovery>,
    /// Why fast commits were not looked at, if they were not.
    #[serde(skip_serializing_if = "Option::is_none")]
    fast_commits_left_out: Option<String>,
    /// Inodes that the next mount will release or cut.
    orphans: u64,
    inodes: u64,
    directories: u64,
    blocks: u64,
    findings: Vec<Finding>,
    findings_left_out: u64,
}

/// Checks and tells. `Ok(Some(kind))` when something is wrong.
pub(crate) fn run(spec: &ImageSpec, format: Format) -> Result<Option<Kind>, Failure> {
    let not_checked = |failure: Failure| match failure.kind() {
        Kind::ClosedPipe => failure,
        Kind::Usage => failure.counted_as(Kind::Check(Verdict::Usage)),
        _ => failure.counted_as(Kind::Check(Verdict::NotChecked)),
    };
    let Located { device, log, partition, shown, .. } = image::locate(spec).map_err(not_checked)?;
    let kind = image::require_filesystem(&device, &shown).map_err(not_checked)?;
    let checked = kind.check(device, log.as_ref()).map_err(|error| {
        not_checked(Failure::new(Kind::of(&error), format!("cannot check {shown}")).because(&error))
    })?;
    let report = Report::of(checked, partition);
    let mut out = Out::stdout();
    match format {
        Format::Json => out.json(&report)?,
        Format::Text => report.print(&mut out, &shown)?,
    }
    out.finish()?;
    Ok(match (report.clean, &report.fast_commits_left_out) {
        (false, _) => Some(Kind::Check(Verdict::Damaged)),
        (true, Some(_)) => Some(Kind::Check(Verdict::NotChecked)),
        (true, None) => None,
    })
}

impl Report {
    fn of(checked: Checked, partition: Option<u32>) -> Self {
        Self {
            clean: checked.findings.is_empty(),
            partition,
            recovery: checked.recovery,
            fast_commits_left_out: checked.fast_commits_left_out,
            orphans: checked.orphans,
            inodes: checked.inodes,
            directories: checked.directories,
            blocks: checked.blocks,
            findings: checked.findings,
            findings_left_out: checked.findings_left_out,
        }
    }

    fn print(&self, out: &mut Out, shown: &str) -> Result<(), Failure> {
        if let Some(recovery) = &self.recovery {
            writeln!(out, "{}", recovery.sentence())?;
        }
        if let Some(reason) = &self.fast_commits_left_out {
            writeln!(
                out,
                "the fast commits were not looked at ({}): this is how the last full commit left it",
                safe(reason.as_bytes())
            )?;
        }
        if self.orphans > 0 {
            let orphans = human::counted(self.orphans, "orphaned inode");
            writeln!(out, "{orphans} to be released by the next mount")?;
        }
        for finding in &self.findings {
            writeln!(out, "{}", finding.line)?;
        }
        if self.findings_left_out > 0 {
            writeln!(out, "and {} more", human::counted(self.findings_left_out, "finding"))?;
        }
        let counts = format!(
            "{}, {}, {} in use",
            human::counted(self.inodes, "inode"),
            if self.directories == 1 {
                "1 directory".to_owned()
            } else {
                format!("{} directories", human::count(self.directories))
            },
            human::counted(self.blocks, "block")
        );
        let found = self.findings.len() as u64 + self.findings_left_out;
        let verdict = if self.clean {
            out.palette.paint(style::GOOD, "clean")
        } else {
            out.palette.paint(style::WARN, &human::counted(found, "finding"))
        };
        writeln!(out, "{shown}: {verdict}; {counts}")?;
        Ok(())
    }
}

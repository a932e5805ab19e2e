//! `check`: looks for damage, and ends as e2fsck would.

use std::io::Write;

use serde::Serialize;
use undercroft_ext4::{CheckOptions, CheckReport, Finding, check};

use super::info::Recovery;
use crate::exit::{Kind, Verdict};
use crate::failure::Failure;
use crate::image::{self, FilesystemKind, Located};
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
    findings: Vec<Told>,
    findings_left_out: u64,
}

/// One finding.
#[derive(Debug, Serialize)]
struct Told {
    code: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    group: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    inode: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    block: Option<u64>,
    detail: String,
    #[serde(skip)]
    line: String,
}

impl From<&Finding> for Told {
    fn from(finding: &Finding) -> Self {
        let line = safe(finding.to_string().as_bytes());
        let Finding { code, group, inode, block, detail } = finding.clone();
        Self { code, group, inode, block, detail, line }
    }
}

/// Checks and tells. `Ok(Some(kind))` when something is wrong.
pub(crate) fn run(spec: &ImageSpec, format: Format) -> Result<Option<Kind>, Failure> {
    let not_checked = |failure: Failure| match failure.kind() {
        Kind::ClosedPipe => failure,
        _ => failure.counted_as(Kind::Check(Verdict::NotChecked)),
    };
    let Located { device, partition, shown, .. } = image::locate(spec).map_err(not_checked)?;
    if image::require_filesystem(&device, &shown).map_err(not_checked)? == FilesystemKind::Xfs {
        let what = format!("cannot check {shown}: this version does not check XFS");
        return Err(not_checked(Failure::new(Kind::Unsupported, what).advise("`xfs_repair -n` does")));
    }
    let options = CheckOptions { on_mmp_wait: image::tell_of_wait, ..CheckOptions::default() };
    let checked = check(device, &options).map_err(|error| {
        not_checked(Failure::new(Kind::of(&error), format!("cannot check {shown}")).because(&error))
    })?;
    let report = Report::of(&checked, partition);
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
    fn of(checked: &CheckReport, partition: Option<u32>) -> Self {
        Self {
            clean: checked.is_clean(),
            partition,
            recovery: checked.recovery.as_ref().map(Recovery::from),
            fast_commits_left_out: checked.fast_commits_left_out.clone(),
            orphans: checked.orphans,
            inodes: checked.inodes,
            directories: checked.directories,
            blocks: checked.blocks,
            findings: checked.findings.iter().map(Told::from).collect(),
            findings_left_out: checked.findings_left_out,
        }
    }

    fn print(&self, out: &mut Out, shown: &str) -> Result<(), Failure> {
        if let Some(recovery) = &self.recovery {
            writeln!(out, "the journal was replayed in memory: {}", recovery.words())?;
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

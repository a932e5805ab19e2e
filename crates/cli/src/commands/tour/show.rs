//! The tour in text: what was found, with pictures.

use std::io::Write;

use undercroft_vfs::FileType;

use super::sums::Verified;
use super::{Branch, Report, Sparse, groups};
use crate::failure::Failure;
use crate::text::human;
use crate::text::names::safe;
use crate::text::out::Out;
use crate::text::style::{self, Palette};

/// Names drawn of one directory before the rest is counted.
const NAMES_SHOWN: usize = 4;
/// Columns of the picture of a sparse file.
const PICTURE_COLUMNS: usize = 64;

/// Writes the whole tour.
pub(super) fn text(out: &mut Out, report: &Report) -> Result<(), Failure> {
    let palette = out.palette;
    welcome(out, report)?;

    chapter(out, 1, "What it is")?;
    report.image.text(out)?;

    chapter(out, 2, "What is in it")?;
    draw_tree(out, &report.tree)?;

    chapter(out, 3, "Every byte")?;
    let verified = &report.verified;
    let right = verified.files - verified.wrong.len() as u64;
    say(
        out,
        &format!(
            "{} {right} of {}, {}",
            palette.paint(style::GOOD, &human::bar(right, verified.files, 32)),
            human::counted(verified.files, "file"),
            human::size(verified.bytes),
        ),
    )?;
    say(out, "have the SHA-256 sums that Linux took of them.")?;

    chapter(out, 4, "Odd corners")?;
    corners(out, report)?;

    chapter(out, 5, "The interruption")?;
    interruption(out, report)?;

    chapter(out, 6, "Groups and trees")?;
    groups::text(out, &report.xfs)?;

    chapter(out, 7, "A disk that fails")?;
    failing(out, report)?;

    chapter(out, 8, "Now your own disks")?;
    commands(
        out,
        [
            ("undercroft info DISK.img", "what is it, and in what state?"),
            ("undercroft tree -L 2 DISK.img", "look around"),
            ("undercroft get DISK.img /home ./home", "copy out, with everything on it"),
            ("undercroft mount DISK.img DIR", "use it with every program, read-only"),
            ("undercroft info '/dev/sda?part=2'", "disks and partitions work too"),
        ],
    )?;
    say(out, "")?;
    say(out, "Nothing that these commands open is ever written.")
}

/// Things to type, and what they are good for.
fn commands<'a>(out: &mut Out, lines: impl IntoIterator<Item = (&'a str, &'a str)>) -> Result<(), Failure> {
    let palette = out.palette;
    for (command, meaning) in lines {
        say(
            out,
            &format!(
                "{}  {}",
                palette.paint(style::COMMAND, &format!("{command:<38}")),
                palette.paint(style::DIM, meaning)
            ),
        )?;
    }
    Ok(())
}

/// The array, and how it went on without members.
fn failing(out: &mut Out, report: &Report) -> Result<(), Failure> {
    let palette = out.palette;
    let array = &report.array;
    say(out, "The same tree, on a RAID5 as Linux has it, which was made just now:")?;
    say(out, "")?;
    let mut line = |label: &str, text: &str| {
        writeln!(out, "  {} {text}", palette.paint(style::DIM, &format!("{label:<10}")))
    };
    let all = |verified: &Verified| {
        let right = verified.files - verified.wrong.len() as u64;
        format!(
            "{} {right} of {} files have their sums",
            palette.paint(style::GOOD, &human::bar(right, verified.files, 16)),
            human::count(verified.files)
        )
    };
    line(
        "made",
        &format!(
            "{} members of {}, chunks of {}: {} for data",
            array.members,
            human::size(array.member_bytes),
            human::size(array.chunk_bytes.into()),
            human::size(array.array_bytes)
        ),
    )?;
    line("filled", "an ext4, and the tree that you saw")?;
    line("failed", &format!("member {}; what it held is computed from the others:", array.lost_role))?;
    line("", &all(&array.without_it))?;
    line(
        "rebuilt",
        &format!(
            "{} onto a new member, and checked: {} mismatches",
            human::size(array.rebuilt_bytes),
            array.mismatched_bytes
        ),
    )?;
    line("failed", &format!("member {} as well, so that the new one must be right:", array.lost_role_then))?;
    line("", &all(&array.without_another))?;
    say(out, "")?;
    commands(
        out,
        [
            ("undercroft md create -l 5 \\", "make one (mdadm's are opened, too)"),
            ("  --member-size 1G a b c d", ""),
            ("undercroft mkfs ext4 md:a,b,c,d", "md:MEMBERS is an image"),
            ("undercroft mount -o rw md:a,b,c,d DIR", "use it"),
            ("undercroft md fail md:a,b,c,d b", "lose one"),
            ("undercroft md add md:a,c,d NEW", "rebuild it onto another"),
        ],
    )
}

fn welcome(out: &mut Out, report: &Report) -> Result<(), Failure> {
    let palette = out.palette;
    let arches = ["  .-\"\"-. .-\"\"-.", " /      Y      \\", " |      |      |", " |______|______|"];
    let words = [
        palette.paint(style::HEADING, "undercroft"),
        "A real ext4 filesystem travels inside this program. Linux".to_owned(),
        "made it, filled it, and lost power. We read it now: no root,".to_owned(),
        format!(
            "no kernel, no FUSE. {}, packed into {}.",
            human::size(report.image.size_bytes()),
            human::size(report.compressed_bytes)
        ),
    ];
    writeln!(out)?;
    for (arch, words) in arches.into_iter().zip(words) {
        writeln!(out, "{}   {words}", palette.paint(style::PICTURE, &format!("{arch:<16}")))?;
    }
    Ok(())
}

fn chapter(out: &mut Out, number: u32, title: &str) -> Result<(), Failure> {
    let palette = out.palette;
    let line = "─".repeat(out.width.saturating_sub(title.len() + 6));
    writeln!(
        out,
        "\n{} {} {}",
        palette.paint(style::PICTURE, &format!("─ {number}")),
        palette.paint(style::HEADING, title),
        palette.paint(style::PICTURE, &line)
    )?;
    Ok(())
}

fn say(out: &mut Out, line: &str) -> Result<(), Failure> {
    writeln!(out, "  {line}")?;
    Ok(())
}

/// The tree, with few names of each directory and the number of the others.
fn draw_tree(out: &mut Out, tree: &[Branch]) -> Result<(), Failure> {
    let palette = out.palette;
    say(out, &palette.paint(style::DIM, "/"))?;
    let mut last_at: Vec<bool> = Vec::new();
    let mut drawn_at: Vec<usize> = vec![0];
    let mut left_out = 0_usize;
    for branch in tree {
        let depth = branch.depth as usize;
        last_at.truncate(depth - 1);
        drawn_at.truncate(depth);
        drawn_at.resize(depth, 0);
        drawn_at[depth - 1] += 1;
        let indent: String = last_at.iter().map(|last| if *last { "    " } else { "│   " }).collect();
        last_at.push(branch.last);
        // Only files are left out, and only where more than one would be; the root shows all.
        let too_many =
            depth > 1 && drawn_at[depth - 1] > NAMES_SHOWN && branch.attr.kind != FileType::Directory;
        if too_many && !(branch.last && left_out == 0) {
            left_out += 1;
            if branch.last {
                let rest = format!("{indent}└── ... and {left_out} more");
                say(out, &palette.paint(style::DIM, &rest))?;
                left_out = 0;
            }
            continue;
        }
        let fork = format!("{indent}{}", if branch.last { "└── " } else { "├── " });
        say(
            out,
            &format!(
                "{}{}{}",
                palette.paint(style::DIM, &fork),
                name(palette, branch),
                remark(palette, branch)
            ),
        )?;
    }
    Ok(())
}

fn name(palette: Palette, branch: &Branch) -> String {
    palette.paint(style::of_file(&branch.attr), &safe(&branch.name))
}

fn remark(palette: Palette, branch: &Branch) -> String {
    match (&branch.target, branch.attr.kind) {
        (Some(target), _) => {
            const SHOWN_MAX: usize = 40;
            let target = safe(&target.raw);
            let cut: String = target.chars().take(SHOWN_MAX).collect();
            if cut.len() < target.len() { format!(" -> {cut}...") } else { format!(" -> {target}") }
        }
        (None, FileType::Regular) => {
            palette.paint(style::DIM, &format!("  {}", human::size(branch.size_bytes)))
        }
        (None, FileType::Directory) => String::new(),
        (None, _) => palette.paint(style::DIM, &format!("  {}", branch.kind)),
    }
}

fn corners(out: &mut Out, report: &Report) -> Result<(), Failure> {
    let palette = out.palette;
    let mut line = |label: &str, text: &str| {
        writeln!(out, "  {} {text}", palette.paint(style::DIM, &format!("{label:<10}")))
    };
    let sparse = &report.sparse;
    line(
        "sparse",
        &format!(
            "{} is {} long and takes {} on disk",
            safe(&sparse.path.raw),
            human::size(sparse.size_bytes),
            human::size(sparse.allocated_bytes)
        ),
    )?;
    line("", &palette.paint(style::PICTURE, &islands(sparse)))?;
    line("labels", &safe(&report.labelled.path.raw))?;
    for (name, value) in &report.labelled.xattrs {
        line("", &format!("{name} = {}", palette.paint(style::GOOD, &format!("\"{}\"", safe(&value.raw)))))?;
    }
    if let Some(acl) = &report.labelled.acl {
        let named: Vec<&str> = acl.split(',').filter(|entry| !entry.contains("::")).collect();
        line("", &format!("access for {}", named.join(" and ")))?;
    }
    for (number, name) in report.hard_links.iter().enumerate() {
        line(if number == 0 { "one file" } else { "" }, &safe(&name.raw))?;
    }
    line("", &format!("{} names, one inode: {}", report.hard_links.len(), report.hard_link_inode))?;
    line(
        "link",
        &format!(
            "{} -> {}, inode {}",
            safe(&report.symlink.path.raw),
            safe(&report.symlink.target.raw),
            report.symlink.leads_to_inode
        ),
    )?;
    line("time", &format!("{} was changed at", safe(&report.latest_time.path.raw)))?;
    line(
        "",
        &format!(
            "{}: past 2038, to the nanosecond",
            palette.paint(style::GOOD, &report.latest_time.modified)
        ),
    )?;
    let odd: Vec<String> = report.odd_names.iter().map(|name| safe(&name.raw)).collect();
    line("names", &odd.join("   "))?;
    line("", "are bytes, and may hold anything: none gets at your terminal")?;
    Ok(())
}

/// Where in a file there is data.
fn islands(sparse: &Sparse) -> String {
    let mut picture = vec!['·'; PICTURE_COLUMNS];
    for (start, length) in &sparse.data {
        let column = |byte: u64| {
            (u128::from(byte) * PICTURE_COLUMNS as u128 / u128::from(sparse.size_bytes.max(1))) as usize
        };
        let last = column(start + length.saturating_sub(1)).min(PICTURE_COLUMNS - 1);
        for place in &mut picture[column(*start).min(last)..=last] {
            *place = '█';
        }
    }
    picture.into_iter().collect()
}

fn interruption(out: &mut Out, report: &Report) -> Result<(), Failure> {
    let palette = out.palette;
    let recovery = &report.recovery;
    say(out, "Power was lost after the last changes had reached the journal, and before they")?;
    say(out, "had reached their places on disk. When the image was opened, the journal was")?;
    say(out, &format!("replayed, in memory: {}.", palette.paint(style::GOOD, &recovery.words())))?;
    say(out, "")?;
    let condemned = if report.condemned_exists { "is still there" } else { "is gone" };
    say(out, &format!("So /condemned {condemned}, which the directories on disk still show; and"))?;
    say(out, "/guestbook/last-entry.txt is back, which only the journal knew:")?;
    say(out, "")?;
    for line in report.last_entry.raw.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
        say(out, &format!("{} {}", palette.paint(style::PICTURE, "▌"), safe(line)))?;
    }
    Ok(())
}

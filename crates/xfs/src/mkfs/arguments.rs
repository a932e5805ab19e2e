//! Options as mkfs.xfs takes them: a letter, and names with values behind it (`-d agcount=8,su=64k,sw=4`).
//!
//! Sizes may depend on the block and the sector size, which are therefore looked for first. What mkfs.xfs takes and this
//! library does not make is refused by name. Source: mkfs.xfs(8).

use undercroft_diskfs::mkfs::{MkfsError, refuse};
use uuid::Uuid;

use super::options::{Groups, MkfsOptions, Stripe};

type Result<T> = std::result::Result<T, MkfsError>;

const BASIC_BLOCK: u64 = 512;

/// One name behind a letter, with its value.
#[derive(Clone, Copy)]
struct Argument<'a> {
    letter: char,
    name: &'a str,
    value: Option<&'a str>,
}

/// Alignment as far as it was given.
#[derive(Default)]
struct Alignment {
    sunit: Option<u64>,
    swidth: Option<u64>,
    su: Option<u64>,
    sw: Option<u64>,
    none: bool,
}

/// Sizes that units stand for.
#[derive(Clone, Copy)]
struct Units {
    block_bytes: Option<u32>,
    sector_bytes: Option<u32>,
}

impl MkfsOptions {
    /// The options that mkfs.xfs takes as these: pairs of a letter and what stands behind it, as in
    /// `('d', "agcount=8,su=64k,sw=4")`. What is not said is as in [`MkfsOptions::default`].
    ///
    /// # Errors
    /// [`MkfsError::Refused`]: there is no such option, it is given twice, contradicts another one, or makes what this
    /// library does not make.
    pub fn from_arguments<'a>(arguments: impl IntoIterator<Item = (char, &'a str)>) -> Result<Self> {
        let mut all: Vec<Argument<'_>> = Vec::new();
        for (letter, text) in arguments {
            for one in text.split(',') {
                let (name, value) =
                    one.split_once('=').map_or((one, None), |(name, value)| (name, Some(value)));
                if all.iter().any(|before| (before.letter, before.name) == (letter, name)) {
                    return refuse(format!("-{letter} {name} is given twice"));
                }
                all.push(Argument { letter, name, value });
            }
        }
        let mut options = Self::default();
        let mut units = Units { block_bytes: Some(4096), sector_bytes: None };
        for one in &all {
            match (one.letter, one.name) {
                ('b', "size") => {
                    options.block_bytes = Some(one.small(Units { block_bytes: None, ..units })?);
                    units.block_bytes = options.block_bytes;
                }
                ('s', "size") | ('d', "sectsize") => {
                    let bytes = one.small(Units { sector_bytes: None, block_bytes: None })?;
                    if options.sector_bytes.is_some_and(|before| before != bytes) {
                        return refuse("the sector size is given twice");
                    }
                    options.sector_bytes = Some(bytes);
                    units.sector_bytes = options.sector_bytes;
                }
                _ => {}
            }
        }
        let mut alignment = Alignment::default();
        for one in &all {
            match one.letter {
                'b' | 's' => one.known(&["size"])?,
                'd' => options.data(one, units, &mut alignment)?,
                'i' => options.inodes(one, units)?,
                'l' => options.log(one, units)?,
                'm' => options.metadata(one)?,
                'n' => options.names(one, units)?,
                'r' => return one.not_made("a real-time section"),
                'p' => {
                    return refuse(
                        "a prototype file or directory (-p) is not read: `--from` fills the filesystem from a directory or an archive",
                    );
                }
                'c' => return refuse("a configuration file (-c) is not read"),
                _ => return one.unknown(),
            }
        }
        options.stripe = alignment.decide()?;
        Ok(options)
    }

    fn data(&mut self, one: &Argument<'_>, units: Units, alignment: &mut Alignment) -> Result<()> {
        match one.name {
            "agcount" | "agsize" if self.groups != Groups::Usual => {
                return refuse("-d agcount and -d agsize contradict each other");
            }
            "agcount" => self.groups = Groups::Count(one.count()?),
            "agsize" => self.groups = Groups::Bytes(one.size(units)?),
            "size" => self.size_bytes = Some(one.size(units)?),
            "sunit" => alignment.sunit = Some(one.count()?),
            "swidth" => alignment.swidth = Some(one.count()?),
            "su" => alignment.su = Some(one.size(units)?),
            "sw" => alignment.sw = Some(one.count()?),
            "noalign" => alignment.none = one.flag()?,
            "sectsize" => {}
            "file" | "name" => return refuse(format!("-d {}: the image is named without it", one.name)),
            "rtinherit" => return one.not_made("a real-time section"),
            "cowextsize" | "extszinherit" => return one.not_made("inodes with extent size hints"),
            "projinherit" => return one.not_made("inodes with project numbers"),
            "daxinherit" => return one.not_made("inodes for direct access (DAX)"),
            _ => return one.unknown(),
        }
        Ok(())
    }

    fn inodes(&mut self, one: &Argument<'_>, units: Units) -> Result<()> {
        match one.name {
            "size" | "perblock" if self.inode_bytes.is_some() => {
                return refuse("-i size and -i perblock contradict each other");
            }
            "size" => self.inode_bytes = Some(one.small(units)?),
            "perblock" => {
                let count = u32::try_from(one.count()?).ok().filter(|&count| count > 0);
                let Some(count) = count else { return one.wrong() };
                self.inode_bytes = Some(units.block_bytes.unwrap_or_default() / count);
            }
            "maxpct" => {
                let Ok(percent) = u8::try_from(one.count()?) else { return one.wrong() };
                self.inode_percent = percent;
            }
            "sparse" => self.sparse = one.flag()?,
            "nrext64" => self.nrext64 = one.flag()?,
            "projid32bit" | "align" if !one.flag()? => return one.not_made("version 4"),
            "projid32bit" | "align" => {}
            "attr" if one.count()? != 2 => return one.not_made("version 4"),
            "attr" => {}
            _ => return one.unknown(),
        }
        Ok(())
    }

    fn log(&mut self, one: &Argument<'_>, units: Units) -> Result<()> {
        match one.name {
            "size" => self.log_bytes = Some(one.size(units)?),
            "agnum" => self.log_group = Some(one.count()?),
            "su" | "sunit" if self.log_stripe_bytes.is_some() => {
                return refuse("-l su and -l sunit contradict each other");
            }
            "su" => self.log_stripe_bytes = Some(one.size(units)?),
            "sunit" => self.log_stripe_bytes = one.count()?.checked_mul(BASIC_BLOCK),
            "sectsize" if Some(one.small(units)?) != self.sector_bytes => {
                return refuse(
                    "-l sectsize: an internal log has the sectors of the data, as -s size has them",
                );
            }
            "sectsize" => {}
            "logdev" => return one.not_made("an external log"),
            "internal" if !one.flag()? => return one.not_made("an external log"),
            "internal" => {}
            "version" if one.count()? != 2 => return one.not_made("a log of version 1"),
            "lazy-count" if !one.flag()? => return one.not_made("version 4"),
            "version" | "lazy-count" => {}
            _ => return one.unknown(),
        }
        Ok(())
    }

    fn metadata(&mut self, one: &Argument<'_>) -> Result<()> {
        match one.name {
            "crc" if !one.flag()? => return one.not_made("version 4"),
            "crc" => {}
            "finobt" => self.finobt = one.flag()?,
            "inobtcount" => self.inobtcount = Some(one.flag()?),
            "rmapbt" => self.rmapbt = one.flag()?,
            "reflink" => self.reflink = one.flag()?,
            "bigtime" => self.bigtime = one.flag()?,
            "uuid" => {
                let typed = one.value.unwrap_or_default();
                let Ok(uuid) = Uuid::parse_str(typed) else { return refuse(format!("{typed:?} is no UUID")) };
                self.uuid = Some(uuid);
            }
            _ => return one.unknown(),
        }
        Ok(())
    }

    fn names(&mut self, one: &Argument<'_>, units: Units) -> Result<()> {
        match (one.name, one.value) {
            ("size", _) => self.dir_block_bytes = Some(one.small(units)?),
            ("version", Some("ci")) => return one.not_made("names in which case does not count"),
            ("version", Some("2")) => {}
            ("ftype", _) if !one.flag()? => return one.not_made("version 4"),
            ("ftype", _) => {}
            _ => return one.unknown(),
        }
        Ok(())
    }
}

impl Alignment {
    fn decide(&self) -> Result<Stripe> {
        let Self { none, .. } = *self;
        let (unit, width) = match (self.sunit, self.swidth, self.su, self.sw) {
            (None, None, None, None) => return Ok(if none { Stripe::None } else { Stripe::OfDevice }),
            (Some(unit), Some(width), None, None) => {
                (unit.checked_mul(BASIC_BLOCK), width.checked_mul(BASIC_BLOCK))
            }
            (None, None, Some(unit), Some(count)) => (Some(unit), unit.checked_mul(count)),
            (None, None, _, _) => return refuse("-d su and -d sw are given together"),
            (_, _, None, None) => return refuse("-d sunit and -d swidth are given together"),
            _ => return refuse("-d su, sw and -d sunit, swidth contradict each other"),
        };
        if none {
            return refuse("-d noalign contradicts a stripe unit");
        }
        let (Some(unit), Some(width)) = (unit, width) else { return refuse("the stripe is too large") };
        Ok(Stripe::Bytes { unit, width })
    }
}

impl Argument<'_> {
    fn shown(&self) -> String {
        let value = self.value.map(|value| format!("={value}")).unwrap_or_default();
        format!("-{} {}{value}", self.letter, self.name)
    }

    fn known(&self, names: &[&str]) -> Result<()> {
        if names.contains(&self.name) { Ok(()) } else { self.unknown() }
    }

    fn unknown<T>(&self) -> Result<T> {
        refuse(format!("{}: there is no such option", self.shown()))
    }

    fn not_made<T>(&self, what: &str) -> Result<T> {
        refuse(format!("{}: {what} is not made; mkfs.xfs makes it", self.shown()))
    }

    fn wrong<T>(&self) -> Result<T> {
        refuse(format!("{}: no fitting number", self.shown()))
    }

    /// A plain number.
    fn count(&self) -> Result<u64> {
        self.value.and_then(|value| value.parse().ok()).map_or_else(|| self.wrong(), Ok)
    }

    /// 0 or 1; without a value it is 1.
    fn flag(&self) -> Result<bool> {
        match self.value {
            None | Some("1") => Ok(true),
            Some("0") => Ok(false),
            Some(_) => refuse(format!("{}: the value is 0 or 1", self.shown())),
        }
    }

    /// A number of bytes, or with a unit behind it: blocks, sectors, or KiB to EiB.
    fn size(&self, units: Units) -> Result<u64> {
        let value = self.value.unwrap_or_default();
        let digits = value.trim_end_matches(|letter: char| !letter.is_ascii_digit());
        let unit = match value[digits.len()..].to_ascii_lowercase().as_str() {
            "" => Some(1),
            "b" => units.block_bytes.map(u64::from),
            "s" => Some(units.sector_bytes.map_or(BASIC_BLOCK, u64::from)),
            "k" => Some(1 << 10),
            "m" => Some(1 << 20),
            "g" => Some(1 << 30),
            "t" => Some(1 << 40),
            "p" => Some(1 << 50),
            "e" => Some(1 << 60),
            _ => None,
        };
        let bytes = unit.and_then(|unit| digits.parse::<u64>().ok()?.checked_mul(unit));
        bytes.filter(|&bytes| bytes <= i64::MAX as u64).map_or_else(|| self.wrong(), Ok)
    }

    /// The size of a block, a sector or an inode.
    fn small(&self, units: Units) -> Result<u32> {
        u32::try_from(self.size(units)?).map_or_else(|_| self.wrong(), Ok)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_those_of_mkfs_xfs() {
        let options = MkfsOptions::from_arguments([
            ('l', "size=16384b,su=32k"),
            ('b', "size=8k"),
            ('d', "agcount=7,sunit=128,swidth=512"),
            ('i', "sparse=0,maxpct=7,nrext64,projid32bit"),
            ('m', "crc=1,rmapbt=1,finobt=0,uuid=01234567-89ab-cdef-0123-456789abcdef"),
        ])
        .unwrap();
        assert_eq!(options.log_bytes, Some(16_384 * 8192));
        assert_eq!((options.groups, options.log_stripe_bytes), (Groups::Count(7), Some(32_768)));
        assert_eq!(options.stripe, Stripe::Bytes { unit: 65_536, width: 262_144 });
        assert!(!options.sparse && options.nrext64 && options.rmapbt && !options.finobt);
        assert_eq!(options.inode_percent, 7);
    }

    #[test]
    fn what_is_not_made_is_refused_by_name() {
        let refusal = |letter, text| MkfsOptions::from_arguments([(letter, text)]).unwrap_err().to_string();
        for (letter, text, word) in [
            ('m', "crc=0", "version 4"),
            ('n', "ftype=0", "version 4"),
            ('n', "version=ci", "case"),
            ('i', "attr=1", "version 4"),
            ('i', "projid32bit=0", "version 4"),
            ('l', "logdev=/dev/x", "external log"),
            ('l', "internal=0", "external log"),
            ('l', "lazy-count=0", "version 4"),
            ('r', "rtdev=/dev/x", "real-time"),
            ('d', "rtinherit=1", "real-time"),
            ('p', "file", "prototype"),
            ('c', "options=x", "configuration"),
            ('d', "agcount=4,agsize=16m", "contradict"),
            ('d', "agcount=4,agcount=4", "twice"),
            ('d', "su=64k", "together"),
            ('d', "sunit=8", "together"),
            ('d', "noalign,su=64k,sw=2", "contradicts"),
            ('d', "agcount=x", "no fitting number"),
            ('b', "size=4x", "no fitting number"),
            ('b', "blocks=4", "no such option"),
            ('m', "uuid=x", "no UUID"),
            ('m', "finobt=2", "0 or 1"),
            ('l', "sectsize=4096", "internal log"),
        ] {
            let refusal = refusal(letter, text);
            assert!(refusal.contains(word), "{word}: {refusal}");
        }
    }
}

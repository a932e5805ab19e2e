//! What an image is for: an operating system and a processor, in the words of Go.

use std::fmt;
use std::str::FromStr;

use serde::Deserialize;

/// What an image is for: `linux/arm64`, `linux/arm/v7`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Platform {
    /// The operating system.
    pub os: String,
    /// The processor.
    pub architecture: String,
    /// Which of several kinds of it.
    #[serde(default)]
    pub variant: Option<String>,
}

/// Text that is no platform.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a platform is an operating system and a processor, as in linux/arm64 or linux/arm/v7")]
pub struct NoPlatform;

impl FromStr for Platform {
    type Err = NoPlatform;

    fn from_str(text: &str) -> Result<Self, NoPlatform> {
        let mut parts = text.split('/');
        let (os, architecture, variant) = (parts.next(), parts.next(), parts.next());
        let (Some(os), Some(architecture), None) = (os, architecture, parts.next()) else {
            return Err(NoPlatform);
        };
        if [Some(os), Some(architecture), variant].contains(&Some("")) {
            return Err(NoPlatform);
        }
        Ok(Self {
            os: os.into(),
            architecture: go_name(architecture).into(),
            variant: variant.map(Into::into),
        })
    }
}

impl fmt::Display for Platform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let escaped = |text: &str| text.chars().take(40).flat_map(char::escape_debug).collect::<String>();
        write!(f, "{}/{}", escaped(&self.os), escaped(&self.architecture))?;
        match self.variant.as_deref().filter(|variant| !variant.is_empty()) {
            Some(variant) => write!(f, "/{}", escaped(variant)),
            None => Ok(()),
        }
    }
}

impl Platform {
    /// That of Linux on this machine.
    #[must_use]
    pub fn of_this_machine() -> Self {
        let architecture = match std::env::consts::ARCH {
            "powerpc64" if cfg!(target_endian = "little") => "ppc64le",
            other => go_name(other),
        };
        Self { os: "linux".into(), architecture: architecture.into(), variant: None }
    }

    /// Whether an image for `self` is one for `wanted`. Where no variant is wanted, any is right.
    pub(super) fn is_for(&self, wanted: &Self) -> bool {
        let variant = |of: &Self| match of.variant.as_deref() {
            Some("v8") if of.architecture == "arm64" => None,
            variant => variant.filter(|variant| !variant.is_empty()).map(str::to_owned),
        };
        let wanted_variant = variant(wanted);
        self.os == wanted.os
            && self.architecture == wanted.architecture
            && (wanted_variant.is_none() || variant(self) == wanted_variant)
    }
}

/// A processor's name in Go, for names that other programs have.
fn go_name(architecture: &str) -> &str {
    match architecture {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        "x86" | "i386" | "i686" => "386",
        "powerpc64" => "ppc64",
        "loongarch64" => "loong64",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn platform(text: &str) -> Platform {
        text.parse().unwrap()
    }

    #[test]
    fn platforms_are_written_as_others_write_them() {
        assert_eq!(platform("linux/x86_64").to_string(), "linux/amd64");
        assert_eq!(platform("linux/arm/v7").to_string(), "linux/arm/v7");
        for wrong in ["", "linux", "linux/", "/amd64", "linux/arm/", "linux/arm/v7/x"] {
            assert_eq!(wrong.parse::<Platform>(), Err(NoPlatform), "{wrong}");
        }
    }

    #[test]
    fn a_variant_counts_where_it_is_wanted() {
        assert!(platform("linux/arm/v7").is_for(&platform("linux/arm")));
        assert!(!platform("linux/arm").is_for(&platform("linux/arm/v7")));
        assert!(platform("linux/arm64/v8").is_for(&platform("linux/arm64")));
        assert!(platform("linux/arm64").is_for(&platform("linux/arm64/v8")));
        assert!(!platform("windows/amd64").is_for(&platform("linux/amd64")));
    }
}

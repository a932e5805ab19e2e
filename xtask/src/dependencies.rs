//! What the dependencies bring with them: licences, where they come from, and how many versions of each.
//!
//! The rules are in deny.toml, in cargo-deny's form. Where cargo-deny is installed it is run, offline, and also
//! holds the dependencies against the advisories that it has on disk. Without it our own check of the same
//! licence and source rules runs, and known vulnerabilities are not looked for.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::spdx;
use crate::step::{self, Outcome, command};

const RULES: &str = "deny.toml";

pub(crate) fn run() -> Outcome {
    check_ourselves()?;
    if !has_cargo_deny() {
        println!("note: cargo-deny is not installed: known vulnerabilities were NOT looked for");
        return Ok(());
    }
    if !has_advisories() {
        println!("note: cargo-deny has no advisories on disk: known vulnerabilities were NOT looked for");
        return command("cargo", &["deny", "--offline", "check", "bans", "licenses", "sources"], &[]);
    }
    command("cargo", &["deny", "--offline", "check"], &[])
}

fn check_ourselves() -> Outcome {
    let rules = std::fs::read_to_string(RULES).map_err(|e| format!("cannot read {RULES}: {e}"))?;
    let allowed = list(&rules, "licenses", "allow")?;
    let metadata =
        step::output("cargo", &["metadata", "--locked", "--format-version", "1", "--all-features"])?;
    let metadata: Value =
        serde_json::from_str(&metadata).map_err(|e| format!("cargo metadata is not JSON: {e}"))?;
    let packages = metadata["packages"].as_array().ok_or("cargo metadata lists no packages")?;
    let mut findings = Vec::new();
    let mut versions: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for package in packages {
        let text = |field: &str| package[field].as_str().unwrap_or_default();
        let (name, version) = (text("name"), text("version"));
        versions.entry(name).or_default().push(version);
        match spdx::is_allowed(text("license"), &allowed) {
            Ok(true) => {}
            Ok(false) => {
                findings.push(format!("{name} {version}: licence {} is not allowed", text("license")));
            }
            Err(error) => findings.push(format!("{name} {version}: {error}")),
        }
        // Our own crates have no source. Everything else must come from the default registry.
        if let Some(source) = package["source"].as_str()
            && !is_default_registry(source)
        {
            findings.push(format!("{name} {version}: comes from {source}"));
        }
    }
    for (name, versions) in versions.iter().filter(|(_, versions)| versions.len() > 1) {
        println!("note: {} versions of {name}: {}", versions.len(), versions.join(", "));
    }
    if findings.is_empty() {
        println!("{} packages: licences and sources are in order", packages.len());
        return Ok(());
    }
    Err(findings.join("\n  "))
}

/// Cargo names the default registry by the address of its index, whichever way it is reached.
fn is_default_registry(source: &str) -> bool {
    source.starts_with("registry+https://github.com/rust-lang/") && source.ends_with("-index")
}

/// The strings of the array `key` in the section `section` of a TOML file of the plain form that ours has.
fn list(toml: &str, section: &str, key: &str) -> Result<Vec<String>, String> {
    let heading = format!("[{section}]");
    let body = toml.split(&heading).nth(1).ok_or_else(|| format!("{RULES} has no {heading}"))?;
    let body = body.split("\n[").next().unwrap_or(body);
    let array = body.split(&format!("\n{key} = [")).nth(1).and_then(|rest| rest.split(']').next());
    let array = array.ok_or_else(|| format!("{heading} in {RULES} has no {key}"))?;
    let lines = array.lines().map(|line| line.split('#').next().unwrap_or_default());
    Ok(lines.flat_map(|line| line.split('"').skip(1).step_by(2)).map(str::to_owned).collect())
}

fn has_cargo_deny() -> bool {
    let version = Command::new("cargo").args(["deny", "--version"]).stdin(Stdio::null()).output();
    version.is_ok_and(|output| output.status.success())
}

fn has_advisories() -> bool {
    let home = std::env::var_os("CARGO_HOME").map(Into::into);
    let home = home.or_else(|| std::env::home_dir().map(|home| home.join(".cargo")));
    home.is_some_and(|home: std::path::PathBuf| {
        ["advisory-db", "advisory-dbs"].iter().any(|dir| Path::new(&home).join(dir).is_dir())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_is_read_from_its_own_section() {
        let toml = "[bans]\nallow = [\"no\"]\n[licenses]\n# which\nallow = [\n    \"MIT\", # \"not this\"\n    \"ISC\",\n]\n";
        assert_eq!(list(toml, "licenses", "allow").unwrap(), ["MIT", "ISC"]);
        assert!(list(toml, "sources", "allow").is_err());
    }
}

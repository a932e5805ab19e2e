//! The machine that a suite ran on, as `/sys` and `/proc` describe it, and what its processors had to share meanwhile.
//!
//! Figures without their machine mean nothing: a page of results carries all of this. What the machine does not tell is
//! left out, and the page says so.

mod line;
mod steal;
mod topology;

use std::fs;
use std::path::Path;

use serde::Serialize;

pub use line::{LineTransfer, line_transfers};
pub use steal::{ProcessorTime, Steal};
pub use topology::{Cache, Processor, Relation, Topology};

/// Where the machine describes itself.
const ROOT: &str = "/";

/// What a machine is.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Machine {
    /// The release of its kernel.
    pub kernel: Option<String>,
    /// The processors' model.
    pub processor: Option<String>,
    /// Whether the processors say that a hypervisor runs them.
    pub is_virtual: bool,
    /// All its memory.
    pub memory_bytes: Option<u64>,
    /// Its processors.
    #[serde(flatten)]
    pub topology: Topology,
}

impl Machine {
    /// This one.
    #[must_use]
    pub fn this() -> Self {
        Self::below(Path::new(ROOT))
    }

    fn below(root: &Path) -> Self {
        let processors = read(root, "proc/cpuinfo").unwrap_or_default();
        let memory = read(root, "proc/meminfo").unwrap_or_default();
        Self {
            kernel: read(root, "proc/sys/kernel/osrelease"),
            // Other architectures than x86 name no model here.
            processor: field(&processors, "model name").map(str::to_owned),
            is_virtual: field(&processors, "flags")
                .is_some_and(|flags| flags.split(' ').any(|flag| flag == "hypervisor")),
            memory_bytes: field(&memory, "MemTotal").and_then(kib),
            topology: Topology::below(root),
        }
    }
}

/// A file's text without space around it, if it can be read and is not empty.
fn read(root: &Path, path: &str) -> Option<String> {
    let text = fs::read_to_string(root.join(path)).ok()?;
    let text = text.trim();
    (!text.is_empty()).then(|| text.to_owned())
}

/// The value behind the first `name:`.
fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == name).then(|| value.trim())
    })
}

fn kib(value: &str) -> Option<u64> {
    value.strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_is_what_its_files_say() {
        let root = tempfile::tempdir().unwrap();
        let put = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        assert_eq!(Machine::below(root.path()), Machine::default());
        put("proc/sys/kernel/osrelease", "6.18.5\n");
        put("proc/cpuinfo", "processor\t: 0\nmodel name\t: Fast <1>\nflags\t\t: fpu hypervisor sse\n\n");
        put("proc/meminfo", "MemTotal:       24600000 kB\nMemFree: 1 kB\n");
        let machine = Machine::below(root.path());
        assert_eq!(machine.kernel.as_deref(), Some("6.18.5"));
        assert_eq!(machine.processor.as_deref(), Some("Fast <1>"));
        assert_eq!((machine.is_virtual, machine.memory_bytes), (true, Some(24_600_000 * 1024)));
    }

    #[test]
    fn this_machine_has_processors_and_memory() {
        let machine = Machine::this();
        assert!(machine.memory_bytes.unwrap() > 0 && machine.kernel.is_some(), "{machine:?}");
        assert!(!machine.topology.processors.is_empty(), "{machine:?}");
    }
}

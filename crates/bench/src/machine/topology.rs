//! Which processors share what: threads of a core, cores of a package, nodes of memory, caches.

use std::collections::BTreeSet;
use std::path::Path;

use serde::{Serialize, Serializer};

use super::read;

const PROCESSORS: &str = "sys/devices/system/cpu";
const NODES: &str = "sys/devices/system/node";

/// The processors that are online, by ascending number, and the caches of the first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Topology {
    /// Each hardware thread is one.
    pub processors: Vec<Processor>,
    /// Caches of the first processor, the nearest first.
    pub caches: Vec<Cache>,
}

/// A hardware thread and where it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Processor {
    /// The kernel's number for it.
    pub number: u32,
    /// The package that it is in.
    pub package: u32,
    /// Its core, which has this number within its package.
    pub core: u32,
    /// The node of memory that is nearest.
    pub node: u32,
}

/// A cache.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Cache {
    /// How far from the processor, from 1 on.
    pub level: u32,
    /// `Data`, `Instruction` or `Unified`.
    pub kind: String,
    /// Its size, as the kernel writes it: `32K`.
    pub size: String,
    /// Processors that share it.
    pub shared_by: u32,
}

/// What two processors share, from near to far.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Relation {
    /// A core.
    Threads,
    /// A package.
    Cores,
    /// Memory.
    Packages,
}

impl Topology {
    pub(super) fn below(root: &Path) -> Self {
        let online = read(root, &format!("{PROCESSORS}/online")).and_then(|text| numbers(&text));
        let nodes = read(root, &format!("{NODES}/online")).and_then(|text| numbers(&text));
        let nodes: Vec<(u32, Vec<u32>)> = nodes
            .into_iter()
            .flatten()
            .filter_map(|node| Some((node, numbers(&read(root, &format!("{NODES}/node{node}/cpulist"))?)?)))
            .collect();
        let place = |number: u32, what: &str| -> Option<u32> {
            read(root, &format!("{PROCESSORS}/cpu{number}/topology/{what}"))?.parse().ok()
        };
        let processors: Vec<Processor> = online
            .into_iter()
            .flatten()
            .map(|number| Processor {
                number,
                package: place(number, "physical_package_id").unwrap_or(0),
                // A machine that does not say so has a core for each.
                core: place(number, "core_id").unwrap_or(number),
                node: nodes
                    .iter()
                    .find(|(_, processors)| processors.contains(&number))
                    .map_or(0, |(node, _)| *node),
            })
            .collect();
        let caches = processors.first().map_or_else(Vec::new, |first| caches(root, first.number));
        Self { processors, caches }
    }

    /// What two of its processors share.
    #[must_use]
    pub fn relation(one: Processor, other: Processor) -> Relation {
        match (one.package == other.package, one.core == other.core) {
            (true, true) => Relation::Threads,
            (true, false) => Relation::Cores,
            (false, _) => Relation::Packages,
        }
    }

    /// How many packages there are.
    #[must_use]
    pub fn packages(&self) -> usize {
        self.distinct(|processor| (processor.package, 0))
    }

    /// How many cores there are.
    #[must_use]
    pub fn cores(&self) -> usize {
        self.distinct(|processor| (processor.package, processor.core))
    }

    fn distinct(&self, key: impl Fn(&Processor) -> (u32, u32)) -> usize {
        self.processors.iter().map(key).collect::<BTreeSet<_>>().len()
    }
}

impl Relation {
    /// As people read it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Threads => "threads of one core",
            Self::Cores => "cores of one package",
            Self::Packages => "packages",
        }
    }
}

impl Serialize for Relation {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

fn caches(root: &Path, processor: u32) -> Vec<Cache> {
    /// More than any processor has.
    const INDEXES: u32 = 16;
    let cache = |index| {
        let part = |what: &str| read(root, &format!("{PROCESSORS}/cpu{processor}/cache/index{index}/{what}"));
        Some(Cache {
            level: part("level")?.parse().ok()?,
            kind: part("type")?,
            size: part("size")?,
            shared_by: numbers(&part("shared_cpu_list")?)?.len() as u32,
        })
    };
    (0..INDEXES).map_while(cache).collect()
}

/// A list as the kernel writes it: `0-3,8`. `None` if it is none.
fn numbers(list: &str) -> Option<Vec<u32>> {
    /// More processors than Linux can have.
    const MOST: u32 = 1 << 16;
    let mut numbers = Vec::new();
    for part in list.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u32, u32) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
        if last >= MOST {
            return None;
        }
        numbers.extend(first..=last);
    }
    Some(numbers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read_as_the_kernel_writes_them() {
        assert_eq!(numbers("0-3,8"), Some(vec![0, 1, 2, 3, 8]));
        assert_eq!(numbers("5"), Some(vec![5]));
        assert_eq!((numbers(""), numbers("0-"), numbers("0-4294967295")), (None, None, None));
    }

    #[test]
    fn two_packages_of_two_cores_with_two_threads_each_are_told_apart() {
        let root = tempfile::tempdir().unwrap();
        let put = |path: String, text: &str| {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        put(format!("{PROCESSORS}/online"), "0-7\n");
        put(format!("{NODES}/online"), "0-1\n");
        put(format!("{NODES}/node0/cpulist"), "0-1,4-5\n");
        put(format!("{NODES}/node1/cpulist"), "2-3,6-7\n");
        for number in 0..8_u32 {
            let topology = format!("{PROCESSORS}/cpu{number}/topology");
            put(format!("{topology}/physical_package_id"), &(number % 4 / 2).to_string());
            put(format!("{topology}/core_id"), &(number % 2).to_string());
        }
        for (name, text) in
            [("level", "2"), ("type", "Unified"), ("size", "1024K"), ("shared_cpu_list", "0,4")]
        {
            put(format!("{PROCESSORS}/cpu0/cache/index0/{name}"), text);
        }
        let topology = Topology::below(root.path());
        assert_eq!((topology.processors.len(), topology.cores(), topology.packages()), (8, 4, 2));
        let relation =
            |a: usize, b: usize| Topology::relation(topology.processors[a], topology.processors[b]);
        assert_eq!(
            [relation(0, 4), relation(0, 1), relation(0, 2)],
            [Relation::Threads, Relation::Cores, Relation::Packages]
        );
        assert_eq!(topology.processors[6], Processor { number: 6, package: 1, core: 0, node: 1 });
        let cache = Cache { level: 2, kind: "Unified".into(), size: "1024K".into(), shared_by: 2 };
        assert_eq!(topology.caches, [cache]);
    }
}

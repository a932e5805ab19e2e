//! The machine on the page: its figures in tiles, and its processors as a picture of packages, cores and threads.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::html::{Escaped, percent, short};
use crate::machine::{LineTransfer, Machine, Steal};
use crate::suite::Results;

/// More packages, cores and threads than this are counted and not drawn.
const DRAWN: usize = 512;

/// All of it.
pub(super) fn machine(html: &mut String, results: &Results) {
    let Results { machine, line_transfers, processor_time, .. } = results;
    html.push_str("<section class=\"machine\"><h2>The machine</h2><div class=\"tiles\">");
    processors(html, machine);
    if let Some(bytes) = machine.memory_bytes {
        tile(html, &format!("{:.0} GiB", bytes as f64 / f64::from(1 << 30)), "memory", None);
    }
    if let Some(kernel) = &machine.kernel {
        tile(html, &format!("Linux {kernel}"), "kernel", None);
    }
    transfers(html, line_transfers);
    stolen(html, *processor_time);
    html.push_str("</div>");
    topology(html, machine);
    caches(html, machine);
    html.push_str("</section>");
}

fn tile(html: &mut String, value: &str, label: &str, note: Option<&str>) {
    let _ = write!(
        html,
        "<div class=\"tile\"><strong>{}</strong><span>{}</span>",
        Escaped(value),
        Escaped(label)
    );
    if let Some(note) = note {
        let _ = write!(html, "<small>{}</small>", Escaped(note));
    }
    html.push_str("</div>");
}

fn processors(html: &mut String, machine: &Machine) {
    let topology = &machine.topology;
    let count = topology.processors.len();
    let label = format!(
        "processor{} of {} core{} in {} package{}{}",
        plural(count),
        topology.cores(),
        plural(topology.cores()),
        topology.packages(),
        plural(topology.packages()),
        if machine.is_virtual { ", of a virtual machine" } else { "" }
    );
    tile(html, &count.to_string(), &label, machine.processor.as_deref());
}

fn transfers(html: &mut String, transfers: &[LineTransfer]) {
    if transfers.is_empty() {
        let why = "it takes two processors that this process may run on, and both at the same time";
        tile(html, "–", "a cache line's way from one processor to another", Some(why));
    }
    for transfer in transfers {
        let LineTransfer { from, to, between, median_ns, lowest_ns } = transfer;
        let label = format!("a cache line's way between {}", between.name());
        let note = format!("processors {from} and {to}; {} ns at the lowest", short(*lowest_ns));
        tile(html, &format!("{} ns", short(*median_ns)), &label, Some(&note));
    }
}

fn stolen(html: &mut String, time: Option<Steal>) {
    match time {
        Some(Steal { stolen, idle }) => {
            let note = format!("{} idle, during the whole run", percent(idle));
            tile(html, &percent(stolen), "of the processors' time stolen by the host", Some(&note));
        }
        None => tile(html, "–", "time stolen by the host", Some("/proc/stat does not tell")),
    }
}

/// Boxes in boxes.
fn topology(html: &mut String, machine: &Machine) {
    let processors = &machine.topology.processors;
    if processors.is_empty() || processors.len() > DRAWN {
        return;
    }
    let mut packages: BTreeMap<u32, BTreeMap<u32, Vec<u32>>> = BTreeMap::new();
    for processor in processors {
        let cores = packages.entry(processor.package).or_default();
        cores.entry(processor.core).or_default().push(processor.number);
    }
    html.push_str("<div class=\"topology\" role=\"img\" aria-label=\"packages, their cores, and the processors of each core\">");
    for (package, cores) in packages {
        let _ = write!(html, "<div class=\"package\"><b>package {package}</b>");
        for threads in cores.values() {
            html.push_str("<div class=\"core\">");
            for thread in threads {
                let _ = write!(html, "<i>{thread}</i>");
            }
            html.push_str("</div>");
        }
        html.push_str("</div>");
    }
    html.push_str("</div>");
}

fn caches(html: &mut String, machine: &Machine) {
    if machine.topology.caches.is_empty() {
        return;
    }
    let words: Vec<String> = machine
        .topology
        .caches
        .iter()
        .map(|cache| {
            let kind = match cache.kind.as_str() {
                "Data" => " data",
                "Instruction" => " instructions",
                _ => "",
            };
            format!("L{}{kind} {}, shared by {}", cache.level, cache.size, cache.shared_by)
        })
        .collect();
    let _ = write!(html, "<p class=\"note\">Caches: {}.</p>", Escaped(&words.join("; ")));
}

const fn plural(count: usize) -> &'static str {
    if count == 1 { "" } else { "s" }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::{Relation, Topology};
    use crate::suite::results_for_tests::results;

    #[test]
    fn a_machine_is_drawn_as_it_is() {
        let mut all = results(Vec::new());
        all.machine.memory_bytes = Some(24 << 30);
        all.line_transfers = vec![LineTransfer {
            from: 0,
            to: 1,
            between: Relation::Cores,
            median_ns: 71.26,
            lowest_ns: 60.0,
        }];
        all.processor_time = Some(Steal { stolen: 0.034, idle: 0.5 });
        let mut html = String::new();
        machine(&mut html, &all);
        for part in ["4 cores in 2 packages", "24 GiB", "71.3 ns", "3.4 %", "50 % idle", "Fast &lt;1&gt;"] {
            assert!(html.contains(part), "{part} in {html}");
        }
        assert_eq!(
            (html.matches("class=\"package\"").count(), html.matches("class=\"core\"").count()),
            (2, 4)
        );
    }

    #[test]
    fn what_a_machine_does_not_tell_is_named_or_left_out() {
        let mut all = results(Vec::new());
        all.machine = Machine { topology: Topology::default(), ..Machine::default() };
        let mut html = String::new();
        machine(&mut html, &all);
        assert!(html.contains("/proc/stat does not tell") && html.contains("two processors"), "{html}");
        assert!(!html.contains("topology") && !html.contains("memory"), "{html}");
    }
}

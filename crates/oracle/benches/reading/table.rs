//! Seconds of every round, by contender, printed as the tables that docs/PERFORMANCE.md shows.

pub(crate) struct Table {
    title: String,
    rows: Vec<(&'static str, Vec<f64>)>,
}

impl Table {
    pub(crate) fn new(title: impl Into<String>) -> Self {
        Self { title: title.into(), rows: Vec::new() }
    }

    pub(crate) fn add(&mut self, contender: &'static str, seconds: f64) {
        match self.rows.iter_mut().find(|(name, _)| *name == contender) {
            Some((_, all)) => all.push(seconds),
            None => self.rows.push((contender, vec![seconds])),
        }
    }

    fn median(&self, contender: &str) -> f64 {
        let Some((_, all)) = self.rows.iter().find(|(name, _)| *name == contender) else { return f64::NAN };
        let mut sorted = all.clone();
        sorted.sort_by(f64::total_cmp);
        sorted[sorted.len() / 2]
    }

    /// Prints medians, spreads, and how many times as fast as each reference a contender is.
    pub(crate) fn print(&self, references: &[&str]) {
        print!("\n### {}\n\n| contender | median s | min s | max s |", self.title);
        references.iter().for_each(|reference| print!(" times {reference} |"));
        print!("\n|---|---:|---:|---:|");
        references.iter().for_each(|_| print!("---:|"));
        println!();
        for (name, all) in &self.rows {
            let median = self.median(name);
            let (min, max) = all.iter().fold((f64::MAX, 0.0f64), |(lo, hi), &s| (lo.min(s), hi.max(s)));
            print!("| {name} | {median:.3} | {min:.3} | {max:.3} |");
            references.iter().for_each(|reference| print!(" {:.2} |", self.median(reference) / median));
            println!();
        }
    }
}

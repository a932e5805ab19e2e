//! Arithmetic within a stripe's buffer: parity from data, and what is missing from what is there.

use std::ops::Range;

use super::pages::{PAGE_BYTES, Pages};
use super::work::Work;
use crate::parity;

/// What arithmetic has to work with in a row of pages.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Pattern {
    /// Data columns that are missing, in order.
    missing: [Option<usize>; 2],
    has_p: bool,
    has_q: bool,
}

impl Work<'_> {
    /// Computes the parity of a range of the piece from the data in the buffer, as far as it has somewhere to go.
    pub(super) fn compute_parity(&mut self, range: Range<usize>) {
        let data = self.shape.data;
        let mut parities: Vec<_> =
            (data..self.shape.columns()).map(|column| self.buffer.lift(column)).collect();
        {
            let sources: Vec<&[u8]> =
                self.buffer.columns[..data].iter().map(|column| column.bytes(range.clone())).collect();
            match &mut parities[..] {
                [p] => parity::xor_of(p.bytes_mut(range.clone()), &sources),
                [p, q] => {
                    let (p, q) = (p.bytes_mut(range.clone()), q.bytes_mut(range.clone()));
                    parity::syndrome(p, q, &self.by_exponent(&sources));
                }
                _ => unreachable!("one parity or two"),
            }
        }
        for lifted in parities {
            self.buffer.put_back(lifted);
        }
        for column in &mut self.buffer.columns[data..] {
            column.valid |= Pages::covered_by(range.clone());
        }
    }

    /// Computes the parity of data that lies elsewhere, into the buffer.
    pub(super) fn parity_of(&mut self, sources: &[&[u8]], range: Range<usize>) {
        let Some(q) = self.shape.q_column() else {
            let p = &mut self.buffer.columns[self.shape.p_column()];
            return parity::xor_of(p.bytes_mut(range), sources);
        };
        let ordered = self.by_exponent(sources);
        let (mut p, mut q) = (self.buffer.lift(self.shape.p_column()), self.buffer.lift(q));
        parity::syndrome(p.bytes_mut(range.clone()), q.bytes_mut(range), &ordered);
        self.buffer.put_back(p);
        self.buffer.put_back(q);
    }

    /// What belongs to the data columns, in the order in which they go into Q.
    pub(super) fn by_exponent<T: Copy>(&self, columns: &[T]) -> Vec<T> {
        let row = self.shape.row(self.stripe);
        let mut ordered: Vec<T> = columns.to_vec();
        for (index, &column) in columns.iter().enumerate() {
            ordered[self.shape.map.exponent(row, index as u32) as usize] = column;
        }
        ordered
    }

    /// Makes the wanted pages in these rows valid. All columns that could be read were read, as far as needed.
    pub(super) fn rebuild(&mut self, rows: Pages) {
        let mut rows = rows.iter().peekable();
        while let Some(first) = rows.next() {
            let pattern = self.pattern(first);
            let mut end = first + 1;
            while rows.next_if(|&row| row == end && self.pattern(row) == pattern).is_some() {
                end += 1;
            }
            self.rebuild_range(pattern, first * PAGE_BYTES..end * PAGE_BYTES);
        }
    }

    fn pattern(&self, row: usize) -> Pattern {
        let columns = &self.buffer.columns;
        let mut missing = (0..self.shape.data).filter(|&column| !columns[column].valid.contains(row));
        let has = |column: usize| columns[column].valid.contains(row);
        Pattern {
            missing: [missing.next(), missing.next()],
            has_p: has(self.shape.p_column()),
            has_q: self.shape.q_column().is_some_and(has),
        }
    }

    fn rebuild_range(&mut self, pattern: Pattern, range: Range<usize>) {
        match pattern.missing {
            [Some(one), None] if pattern.has_p => self.rebuild_by_p(one, range.clone()),
            [Some(one), None] => self.rebuild_by_q(one, None, range.clone()),
            [Some(one), Some(two)] => self.rebuild_by_q(one, Some(two), range.clone()),
            [None, _] => {}
        }
        let pages = Pages::covered_by(range.clone());
        for column in pattern.missing.into_iter().flatten() {
            self.buffer.columns[column].valid |= pages;
        }
        let lacks = |column: usize| {
            !(self.buffer.columns[column].wanted & pages & !self.buffer.columns[column].valid).is_empty()
        };
        if (self.shape.data..self.shape.columns()).any(lacks) {
            self.compute_parity(range);
        }
    }

    fn rebuild_by_p(&mut self, missing: usize, range: Range<usize>) {
        let mut lifted = self.buffer.lift(missing);
        let sources: Vec<&[u8]> = (self.buffer.columns[..=self.shape.p_column()].iter().enumerate())
            .filter(|&(index, _)| index != missing)
            .map(|(_, column)| column.bytes(range.clone()))
            .collect();
        parity::xor_of(lifted.bytes_mut(range), &sources);
        self.buffer.put_back(lifted);
    }

    /// Rebuilds two data columns from both parities, or one from Q and what goes with it, P.
    fn rebuild_by_q(&mut self, one: usize, two: Option<usize>, range: Range<usize>) {
        let q = self.shape.q_column().expect("so much can be rebuilt in RAID6 only");
        let p = self.shape.p_column();
        let exponent = |column: usize| self.shape.map.exponent(self.shape.row(self.stripe), column as u32);
        // The lower exponent first.
        let two = two.unwrap_or(p);
        let (first, second) = if two == p || exponent(one) < exponent(two) { (one, two) } else { (two, one) };
        let (mut a, mut b) = (self.buffer.lift(first), self.buffer.lift(second));
        {
            let chunk = |column: usize| {
                let is_there = column != first && column != second;
                is_there.then(|| self.buffer.columns[column].bytes(range.clone()))
            };
            let sources: Vec<Option<&[u8]>> = (0..self.shape.data).map(chunk).collect();
            let ordered = self.by_exponent(&sources);
            let q = self.buffer.columns[q].bytes(range.clone());
            let (a, b) = (a.bytes_mut(range.clone()), b.bytes_mut(range.clone()));
            match chunk(p) {
                Some(p) => parity::recover_two_data(&ordered, p, q, a, b),
                None => parity::recover_data_and_p(&ordered, q, a, b),
            }
        }
        self.buffer.put_back(a);
        self.buffer.put_back(b);
    }
}

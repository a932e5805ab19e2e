//! What differs at a path, in words that stay the same, in text for people, and with what either side has, for programs.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;

/// What either side has.
#[derive(Debug, Serialize)]
pub(super) struct Sides {
    pub(super) image: Value,
    pub(super) other: Value,
}

/// Differences of one path, in the order in which they are told.
#[derive(Debug, Default)]
pub(super) struct Told {
    pub(super) words: Vec<&'static str>,
    pub(super) text: Vec<String>,
    pub(super) values: BTreeMap<&'static str, Sides>,
}

impl Told {
    /// A difference that has no values, or too large ones.
    pub(super) fn add(&mut self, word: &'static str, text: String) {
        self.words.push(word);
        self.text.push(text);
    }

    /// A difference of values that read as `shown`.
    pub(super) fn add_values<T>(
        &mut self,
        word: &'static str,
        sides: [T; 2],
        shown: impl Fn(&T) -> String,
        value: impl Fn(&T) -> Value,
    ) {
        let [image, other] = sides;
        self.add(word, format!("{} {}, {}", label(word), shown(&image), shown(&other)));
        self.values.insert(word, Sides { image: value(&image), other: value(&other) });
    }
}

/// A word as it stands in a sentence.
fn label(word: &str) -> &str {
    if word == "links" { "links with" } else { word }
}

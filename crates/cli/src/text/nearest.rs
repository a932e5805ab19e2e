//! The word that was probably meant by one that is not known.

/// The nearest of `known`, if it is near enough to be what was meant.
pub(crate) fn nearest<'k>(typed: &str, known: impl IntoIterator<Item = &'k str>) -> Option<&'k str> {
    let near_enough = match typed.chars().count() {
        0..=1 => 0,
        2..=4 => 1,
        _ => 2,
    };
    let distances = known.into_iter().map(|word| (strsim::osa_distance(typed, word), word));
    distances
        .min_by_key(|(distance, _)| *distance)
        .filter(|(distance, _)| *distance <= near_enough)
        .map(|(_, word)| word)
}

#[cfg(test)]
mod tests {
    use super::nearest;

    #[test]
    fn a_slip_is_recognised_and_another_word_is_not() {
        let known = ["commit", "discard", "ro", "rw"];
        for (typed, meant) in [
            ("comit", Some("commit")),
            ("dicsard", Some("discard")),
            ("rw", Some("rw")),
            ("x", None),
            ("suid", None),
            ("", None),
        ] {
            assert_eq!(nearest(typed, known), meant, "{typed}");
        }
    }
}

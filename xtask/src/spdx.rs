//! Licence expressions, as far as crates use them: `MIT OR Apache-2.0`, `(A OR B) AND C`, `A WITH exception`,
//! and the old `A/B`.

/// Whether the terms of `expression` can be met with licences from `allowed`.
///
/// # Errors
/// The expression is not one.
pub(crate) fn is_allowed(expression: &str, allowed: &[String]) -> Result<bool, String> {
    let spaced = expression.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
    let mut parser = Parser { words: spaced.split_whitespace().collect(), at: 0, allowed };
    let verdict = parser.any().ok_or_else(|| format!("not a licence expression: {expression}"))?;
    if parser.at == parser.words.len() {
        Ok(verdict)
    } else {
        Err(format!("not a licence expression: {expression}"))
    }
}

struct Parser<'a> {
    words: Vec<&'a str>,
    at: usize,
    allowed: &'a [String],
}

impl Parser<'_> {
    fn take(&mut self, word: &str) -> bool {
        let found = self.words.get(self.at) == Some(&word);
        self.at += usize::from(found);
        found
    }

    fn any(&mut self) -> Option<bool> {
        let mut verdict = self.all()?;
        while self.take("OR") {
            verdict |= self.all()?;
        }
        Some(verdict)
    }

    fn all(&mut self) -> Option<bool> {
        let mut verdict = self.one()?;
        while self.take("AND") {
            verdict &= self.one()?;
        }
        Some(verdict)
    }

    fn one(&mut self) -> Option<bool> {
        if self.take("(") {
            let verdict = self.any()?;
            return self.take(")").then_some(verdict);
        }
        let mut licence =
            self.words.get(self.at).filter(|word| !["OR", "AND", "WITH", ")"].contains(word))?.to_string();
        self.at += 1;
        if self.take("WITH") {
            licence = format!("{licence} WITH {}", self.words.get(self.at)?);
            self.at += 1;
        }
        Some(self.allowed.contains(&licence))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allowed(expression: &str) -> Result<bool, String> {
        is_allowed(expression, &["MIT", "Apache-2.0", "Unicode-3.0"].map(str::to_owned))
    }

    #[test]
    fn one_alternative_is_enough() {
        assert_eq!(allowed("MIT"), Ok(true));
        assert_eq!(allowed("GPL-2.0 OR MIT"), Ok(true));
        assert_eq!(allowed("GPL-2.0/MIT"), Ok(true));
        assert_eq!(allowed("GPL-2.0 OR GPL-3.0"), Ok(false));
    }

    #[test]
    fn every_part_counts() {
        assert_eq!(allowed("(MIT OR Apache-2.0) AND Unicode-3.0"), Ok(true));
        assert_eq!(allowed("MIT AND GPL-2.0"), Ok(false));
        assert_eq!(allowed("Apache-2.0 WITH LLVM-exception"), Ok(false));
        assert_eq!(allowed("Apache-2.0 WITH LLVM-exception OR MIT"), Ok(true));
    }

    #[test]
    fn what_is_no_expression_is_refused() {
        for expression in ["", "MIT OR", "(MIT", "MIT MIT", "AND MIT"] {
            assert!(allowed(expression).is_err(), "{expression}");
        }
    }
}

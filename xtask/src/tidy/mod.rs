//! The project's own rules about its source files: what neither the compiler nor clippy checks.
//!
//! Looks at the files that git tracks, and at new ones that it does not ignore.

mod architecture;
mod imports;
mod modules;
mod words;

use std::path::PathBuf;

use crate::step::{self, Outcome};

/// A text file of the project.
pub(crate) struct Source {
    /// From the repository's root.
    path: PathBuf,
    text: String,
}

impl Source {
    fn is_rust(&self) -> bool {
        self.path.extension().is_some_and(|extension| extension == "rs")
    }

    fn at(&self, line: usize, finding: &str) -> String {
        format!("{}:{line}: {finding}", self.path.display())
    }
}

pub(crate) fn run() -> Outcome {
    let sources = sources()?;
    let mut findings = Vec::new();
    for source in &sources {
        findings.extend(words::forbidden(source));
        if source.is_rust() {
            findings.extend(header(source));
            findings.extend(words::unfinished(source));
            findings.extend(words::unlisted_unsafe(source));
        }
    }
    findings.extend(modules::orphans(&sources));
    findings.extend(imports::findings(&sources));
    findings.extend(architecture::findings(&sources));
    if findings.is_empty() {
        println!("{} files are in order", sources.len());
        return Ok(());
    }
    findings.sort();
    Err(format!("{} findings\n  {}", findings.len(), findings.join("\n  ")))
}

/// Writes the tables of modules in the document of the architecture.
pub(crate) fn write_modules() -> Outcome {
    let text = architecture::rewritten(&sources()?)?;
    std::fs::write(architecture::DOCUMENT, text)
        .map_err(|error| format!("cannot write {}: {error}", architecture::DOCUMENT))
}

/// Every file says at its top what it is.
fn header(source: &Source) -> Option<String> {
    let first = source.text.lines().find(|line| !line.trim().is_empty());
    let told = first.is_some_and(|line| line.starts_with("//!"));
    (!told).then(|| source.at(1, "does not begin with a //! comment that says what it is"))
}

fn sources() -> Result<Vec<Source>, String> {
    let listed = step::output("git", &["ls-files", "-z", "--cached", "--others", "--exclude-standard"])?;
    let mut sources = Vec::new();
    for path in listed.split('\0').filter(|path| !path.is_empty()).map(PathBuf::from) {
        // A file may be deleted and not committed yet; what is not text has no words.
        match std::fs::read(&path) {
            Ok(bytes) => {
                if let Ok(text) = String::from_utf8(bytes) {
                    sources.push(Source { path, text });
                }
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(format!("cannot read {}: {error}", path.display())),
        }
    }
    Ok(sources)
}

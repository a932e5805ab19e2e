//! Archives of `docker save` and `podman save`: `manifest.json` names configs and layers by paths.
//!
//! Layers have no digest there but the one that the config says they have before compression. The config is known by its
//! digest where its name is one.

use super::documents::{Config, SavedImage};
use super::layer::Unpacked;
use super::layout::Layout;
use super::select::Wanted;
use crate::verify::Digest;
use crate::{SourceError, SourceErrorKind};

/// What such an archive begins with.
pub(super) const MANIFEST: &str = "manifest.json";

/// The layers of the image that is wanted.
pub(super) fn layers(layout: &Layout, wanted: Wanted<'_>) -> Result<Vec<Unpacked>, SourceError> {
    let images: Vec<SavedImage> = layout.document(MANIFEST)?;
    let image = choose(layout, &images, wanted.reference)?;
    let config: Config = match digest_in(&image.config) {
        Some(digest) => layout.verified(&image.config, &digest, None)?,
        None => layout.document(&image.config)?,
    };
    if let Some(wanted) = wanted.platform
        && !config.platform.as_ref().is_some_and(|platform| platform.is_for(wanted))
    {
        let has =
            config.platform.map_or_else(|| "none that it names".into(), |platform| platform.to_string());
        return Err(layout.refused(format!("it has no image for {wanted}, but for {has}")));
    }
    let diff_ids = config.diff_ids().map_err(|kind| layout.failed(&image.config, kind))?;
    let paths = image.layers.as_deref().unwrap_or_default();
    if diff_ids.len() != paths.len() {
        let what = format!("it has {} layers, and its config names {}", paths.len(), diff_ids.len());
        return Err(layout.failed(MANIFEST, SourceErrorKind::Malformed(what)));
    }
    let layers = paths.iter().zip(diff_ids);
    Ok(layers
        .map(|(path, diff_id)| Unpacked {
            path: path.clone(),
            digest: path.starts_with("blobs/").then(|| digest_in(path)).flatten(),
            size: None,
            diff_id,
        })
        .collect())
}

fn choose<'a>(
    layout: &Layout,
    images: &'a [SavedImage],
    reference: Option<&str>,
) -> Result<&'a SavedImage, SourceError> {
    let tags = |image: &'a SavedImage| image.repo_tags.iter().flatten().map(String::as_str);
    let found: Vec<&SavedImage> = match reference {
        None => images.iter().collect(),
        Some(reference) => {
            images.iter().filter(|image| tags(image).any(|tag| is_same(tag, reference))).collect()
        }
    };
    if let [one] = *found {
        return Ok(one);
    }
    let known: Vec<String> = images
        .iter()
        .flat_map(tags)
        .take(20)
        .map(|tag| tag.chars().take(200).flat_map(char::escape_debug).collect())
        .collect();
    let known = if known.is_empty() { "none with a name".into() } else { known.join(", ") };
    Err(layout.refused(match (reference, found.is_empty()) {
        (Some(reference), true) => format!("it has no image {reference:?}, but {known}"),
        (None, true) => "it has no image".into(),
        _ => format!("it has several images, of which one must be named: {known}"),
    }))
}

/// The digest that a path has for a name: `blobs/sha256/…`, `….json`, `sha256:…`.
fn digest_in(path: &str) -> Option<Digest> {
    let name = path.rsplit('/').next()?;
    let digits = name.strip_suffix(".json").unwrap_or(name);
    let digits = digits.strip_prefix("sha256:").unwrap_or(digits);
    Digest::parse(&format!("sha256:{digits}")).ok()
}

/// Whether two names of an image mean the same: `debian` is `docker.io/library/debian:latest`.
pub(super) fn is_same(name: &str, other: &str) -> bool {
    name == other || whole_name(name) == whole_name(other)
}

fn whole_name(name: &str) -> String {
    let name = name.strip_prefix("docker.io/").unwrap_or(name);
    let name = name.strip_prefix("library/").unwrap_or(name);
    let last = name.rsplit('/').next().unwrap_or(name);
    if last.contains(':') || last.contains('@') { name.to_owned() } else { format!("{name}:latest") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_images_are_completed() {
        assert!(is_same("debian", "docker.io/library/debian:latest"));
        assert!(is_same("docker.io/a/b:1", "a/b:1"));
        assert!(is_same("1.0", "1.0"));
        assert!(!is_same("debian:12", "debian"));
        assert!(!is_same("host:5000/debian", "debian"));
        assert!(is_same("host:5000/debian", "host:5000/debian:latest"));
    }
}

//! Which image of a layout: by its tag and its platform.
//!
//! An index names manifests and further indexes. All manifests within reach are looked at, each digest once, so an index
//! that names itself ends. Of several for one platform under the same tag the first is taken, as the specification says,
//! but one without a variant before one with.

use std::collections::HashSet;

use super::docker;
use super::documents::{Config, Descriptor, Index, Manifest, Named};
use super::layout::{INDEX, Layout};
use super::platform::Platform;
use crate::verify::Digest;
use crate::{SourceError, SourceErrorKind};

/// Most indexes from `index.json` down to a manifest.
const DEPTH_MAX: usize = 8;
/// Most indexes and manifests that are looked at.
const DOCUMENTS_MAX: usize = 10_000;
/// Most names in a message.
const SHOWN_MAX: usize = 20;

/// Which image is wanted.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Wanted<'a> {
    pub(super) platform: Option<&'a Platform>,
    pub(super) reference: Option<&'a str>,
}

/// A manifest that may be meant.
struct Candidate {
    descriptor: Descriptor,
    digest: Digest,
    /// What it is for, where an index or its config says it.
    platform: Option<Platform>,
    /// Which entry of `index.json` it comes from.
    top: usize,
}

/// The manifest that is wanted.
pub(super) fn manifest(layout: &Layout, wanted: Wanted<'_>) -> Result<Manifest, SourceError> {
    let index: Index = layout.document(INDEX)?;
    let all = index.manifests.unwrap_or_default();
    let tops: Vec<&Descriptor> = match wanted.reference {
        None => all.iter().collect(),
        Some(reference) => {
            all.iter().filter(|top| top.tags().any(|tag| docker::is_same(tag, reference))).collect()
        }
    };
    if let (Some(reference), true) = (wanted.reference, tops.is_empty()) {
        let what = format!("it has no image {reference:?}, but {}", list(tags_of(&all)));
        return Err(layout.refused(what));
    }
    let mut candidates = Search::default().all(layout, &tops)?;
    if candidates.is_empty() {
        return Err(layout.refused("it has no image"));
    }
    if candidates.len() > 1 || wanted.platform.is_some() {
        candidates = for_platform(layout, candidates, wanted.platform)?;
    }
    if let Some(other) = candidates.iter().find(|other| other.digest != candidates[0].digest) {
        let named = candidates[0].top != other.top;
        if named {
            let what = format!("it has several images, of which one must be named: {}", list(tags_of(&all)));
            return Err(layout.refused(what));
        }
    }
    let without =
        candidates.iter().position(|one| one.platform.as_ref().is_none_or(|of| of.variant.is_none()));
    let chosen = candidates.swap_remove(without.unwrap_or(0));
    layout.described(&chosen.descriptor)
}

/// The tags of an index, each once.
fn tags_of(tops: &[Descriptor]) -> Vec<String> {
    let mut tags: Vec<String> = Vec::new();
    for top in tops {
        let tag = match (top.tags().next(), top.named()) {
            (Some(tag), _) => tag.chars().take(200).flat_map(char::escape_debug).collect(),
            (None, Named::Other) => continue,
            (None, _) => "one without a name".to_owned(),
        };
        if !tags.contains(&tag) {
            tags.push(tag);
        }
        if tags.len() > SHOWN_MAX {
            break;
        }
    }
    tags
}

fn list(mut names: Vec<String>) -> String {
    if names.len() > SHOWN_MAX {
        names.truncate(SHOWN_MAX);
        names.push("…".into());
    }
    if names.is_empty() { "none".into() } else { names.join(", ") }
}

/// The candidates for a platform; that of this machine unless another is wanted.
fn for_platform(
    layout: &Layout,
    mut candidates: Vec<Candidate>,
    wanted: Option<&Platform>,
) -> Result<Vec<Candidate>, SourceError> {
    for candidate in candidates.iter_mut().filter(|candidate| candidate.platform.is_none()) {
        candidate.platform = platform_of(layout, &candidate.descriptor)?;
    }
    let this = Platform::of_this_machine();
    let wanted = wanted.unwrap_or(&this);
    let mut known: Vec<String> = Vec::new();
    for platform in candidates.iter().filter_map(|candidate| candidate.platform.as_ref()) {
        let platform = platform.to_string();
        if !known.contains(&platform) && known.len() <= SHOWN_MAX {
            known.push(platform);
        }
    }
    candidates
        .retain(|candidate| candidate.platform.as_ref().is_some_and(|platform| platform.is_for(wanted)));
    if candidates.is_empty() {
        return Err(layout.refused(format!("it has no image for {wanted}, but for {}", list(known))));
    }
    Ok(candidates)
}

/// What a manifest is for, as its config says; `None` if that is no image's.
fn platform_of(layout: &Layout, descriptor: &Descriptor) -> Result<Option<Platform>, SourceError> {
    let manifest: Manifest = layout.described(descriptor)?;
    if !manifest.config.is_config() {
        return Ok(None);
    }
    let config: Config = layout.described(&manifest.config)?;
    Ok(config.platform)
}

/// The search through indexes.
#[derive(Default)]
struct Search {
    seen: HashSet<Digest>,
    found: Vec<Candidate>,
}

impl Search {
    fn all(mut self, layout: &Layout, tops: &[&Descriptor]) -> Result<Vec<Candidate>, SourceError> {
        for (top, descriptor) in tops.iter().enumerate() {
            self.below(layout, (*descriptor).clone(), top)?;
        }
        Ok(self.found)
    }

    /// Looks at what a descriptor of `index.json` leads to.
    fn below(&mut self, layout: &Layout, descriptor: Descriptor, top: usize) -> Result<(), SourceError> {
        let mut waiting = vec![(descriptor, 1)];
        while let Some((descriptor, depth)) = waiting.pop() {
            let named = descriptor.named();
            if named == Named::Other {
                continue;
            }
            let kind = |kind| SourceError::new(&layout.shown, kind);
            let digest = descriptor.digest().map_err(kind)?;
            if !self.seen.insert(digest.clone()) {
                continue;
            }
            if self.seen.len() > DOCUMENTS_MAX || depth > DEPTH_MAX {
                return Err(kind(SourceErrorKind::TooLarge("its indexes are too many, or too deep".into())));
            }
            if named == Named::Manifest {
                let platform = descriptor.platform.clone();
                self.found.push(Candidate { descriptor, digest, platform, top });
                continue;
            }
            let index: Index = layout.described(&descriptor)?;
            let below = index.manifests.unwrap_or_default();
            waiting.extend(below.into_iter().rev().map(|descriptor| (descriptor, depth + 1)));
        }
        Ok(())
    }
}

//! The good images, and where their structures lie, found once by a survey.

use std::io::Read;
use std::sync::{Arc, OnceLock};

use undercroft_block::{Access, Device, MemoryDevice, Overlay};
use undercroft_ext4::testing::{Site, sites};
use undercroft_ext4::{Ext4, OpenOptions};

/// Made by `make-images`.
static CLEAN: &[u8] = include_bytes!("../images/clean.img.zst");
/// As the kernel leaves it when power is lost, with a fast commit at the end of its journal.
static DIRTY: &[u8] = include_bytes!("../images/dirty.img.zst");

/// Which image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Victim {
    /// Unmounted.
    Clean,
    /// Must be recovered.
    Dirty,
}

impl Victim {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Clean, Self::Dirty];
}

pub(crate) struct Image {
    bytes: Vec<u8>,
    device: Device,
    /// Every structure that is not empty.
    pub(crate) sites: Vec<Site>,
}

impl Image {
    /// The image to write to; it is as good again for the next input.
    pub(crate) fn overlay(&self) -> Overlay {
        Overlay::new(Arc::clone(&self.device))
    }

    pub(crate) fn bytes_of(&self, site: &Site) -> &[u8] {
        &self.bytes[site.range.start as usize..site.range.end as usize]
    }

    /// The structures of one kind. One byte of input picks among them.
    pub(crate) fn sites_of(&self, structure: &str) -> Vec<&Site> {
        let found: Vec<&Site> = self.sites.iter().filter(|site| site.structure == structure).collect();
        assert!((1..=256).contains(&found.len()), "the image has {} of {structure}", found.len());
        found
    }
}

pub(crate) fn image(victim: Victim) -> &'static Image {
    static IMAGES: [OnceLock<Image>; 2] = [OnceLock::new(), OnceLock::new()];
    let packed = [CLEAN, DIRTY][victim as usize];
    IMAGES[victim as usize].get_or_init(|| {
        let bytes = unpacked(packed);
        let device: Device = Arc::new(MemoryDevice::from_bytes(bytes.clone(), Access::ReadOnly));
        let fs = Ext4::open_read_only(Arc::clone(&device), OpenOptions::default()).expect("a good image");
        let mut image = Image { bytes, device, sites: Vec::new() };
        let mut sites = sites(&fs).expect("a good image");
        sites.retain(|site| image.bytes_of(site).iter().any(|&byte| byte != 0));
        image.sites = sites;
        image
    })
}

/// What was packed by zstd.
pub(crate) fn unpacked(packed: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut decoder = ruzstd::decoding::StreamingDecoder::new(packed).expect("a good frame");
    decoder.read_to_end(&mut bytes).expect("a good frame");
    bytes
}

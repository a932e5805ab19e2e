//! XFS filesystems that we make: of the same arguments and UUID they are what mkfs.xfs makes, byte for byte; xfs_repair
//! finds nothing wrong with them, and the kernel mounts and fills them.

mod compare;
mod kernel;
mod least_log;
mod random;
mod shapes;
mod topology;

use undercroft_block::{Access, FileDevice, FileOptions};
use undercroft_oracle::{Image, MkfsXfs};
use undercroft_xfs::{MkfsError, MkfsOptions, mkfs};

const UUID: &str = "01234567-89ab-cdef-0123-456789abcdef";

/// A filesystem to be made: the size of the image, and options as mkfs.xfs takes them, separated by spaces.
#[derive(Clone, Debug)]
struct Shape {
    size_mib: u64,
    args: String,
}

impl Shape {
    fn new(size_mib: u64, args: &str) -> Self {
        Self { size_mib, args: args.to_owned() }
    }

    fn name(&self) -> String {
        format!("{} MiB {}", self.size_mib, self.args)
    }

    fn theirs(&self) -> undercroft_oracle::Result<Image> {
        MkfsXfs::new(self.size_mib, &self.args).arg("-m").arg(format!("uuid={UUID}")).make()
    }

    fn options(&self) -> Result<MkfsOptions, MkfsError> {
        let mut pairs = Vec::new();
        let mut label = Vec::new();
        let mut words = self.args.split_whitespace();
        while let Some(flag) = words.next() {
            let letter = flag.strip_prefix('-').and_then(|flag| flag.chars().next()).expect("an option");
            let value = words.next().expect("an option's value");
            match letter {
                'L' => label = value.as_bytes().to_vec(),
                _ => pairs.push((letter, value)),
            }
        }
        let uuid = format!("uuid={UUID}");
        pairs.push(('m', &uuid));
        let options = MkfsOptions::from_arguments(pairs)?;
        Ok(MkfsOptions { label, small: true, device_is_zeroed: true, ..options })
    }

    fn ours(&self) -> Result<Image, MkfsError> {
        let options = self.options()?;
        let image = Image::empty("xfs", self.size_mib << 20).expect("an empty image");
        mkfs(&device(&image), &options)?;
        Ok(image)
    }

    /// What differs between both; that both refuse it is no difference.
    fn difference(&self) -> Option<String> {
        match (self.ours(), self.theirs()) {
            (Ok(ours), Ok(theirs)) => compare::difference(ours.path(), theirs.path()),
            (Err(_), Err(_)) => None,
            (Ok(_), Err(theirs)) => {
                let why = theirs.to_string();
                let why = why.split("Usage:").next().unwrap_or_default().trim();
                Some(format!("made, but mkfs.xfs refuses it: {why}"))
            }
            (Err(ours), Ok(_)) => Some(format!("refused, but mkfs.xfs makes it: {ours}")),
        }
    }
}

fn device(image: &Image) -> FileDevice {
    let options = FileOptions { access: Access::ReadWrite, ..FileOptions::read_only() };
    FileDevice::open(image.path(), options).expect("the image")
}

//! Devices that report a stripe: it is followed as if it had been given, from 1 GiB on.

use undercroft_block::{Access, BlockDevice, FileDevice, FileOptions, Topology, forward_block_device};
use undercroft_oracle::Image;
use undercroft_xfs::{MkfsOptions, mkfs};

use crate::{Shape, compare};

/// A file that reports an array's topology.
#[derive(Debug)]
struct Reporting {
    base: FileDevice,
    topology: Topology,
}

impl BlockDevice for Reporting {
    forward_block_device!(self.base: name, size_bytes, access, read_at, write_at, flush, discard, write_zeroes);

    fn topology(&self) -> Topology {
        self.topology
    }
}

#[test]
fn a_stripe_that_the_device_reports_is_as_if_it_were_given() {
    for (size_mib, minimum, optimal, as_if) in [
        (2048, 64 << 10, 256 << 10, "-d su=64k,sw=4"),
        (2048, 512 << 10, 1536 << 10, "-d su=512k,sw=3"),
        // Too small a filesystem for a stripe, and stripes that make no sense.
        (512, 64 << 10, 256 << 10, ""),
        (2048, 64 << 10, 0, ""),
        (2048, 64 << 10, 100 << 10, ""),
        (2048, 6 << 10, 12 << 10, ""),
        (2048, 512, 0, ""),
    ] {
        let shape = Shape::new(size_mib, as_if);
        let image = Image::empty("xfs", size_mib << 20).unwrap();
        let options = FileOptions { access: Access::ReadWrite, ..FileOptions::read_only() };
        let base = FileDevice::open(image.path(), options).unwrap();
        let topology = Topology {
            logical_block_bytes: 512,
            physical_block_bytes: 512,
            minimum_io_bytes: minimum,
            optimal_io_bytes: optimal,
        };
        let usual = Shape::new(size_mib, "").options().unwrap();
        mkfs(&Reporting { base, topology }, &MkfsOptions { ..usual }).unwrap();
        let difference = compare::difference(image.path(), shape.theirs().unwrap().path());
        assert_eq!(difference, None, "{size_mib} MiB, {minimum} and {optimal} bytes");
    }
}

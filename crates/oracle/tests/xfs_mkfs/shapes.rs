//! A table of shapes: sizes from the smallest to a terabyte, every block, sector, inode and directory block size, every
//! feature, stripes and logs.

use crate::Shape;

/// Size of the image in MiB, and options.
const SHAPES: &[(u64, &str)] = &[
    // Sizes: one group, two, four; odd ends; the smallest that is supported.
    (16, ""),
    (17, ""),
    (31, ""),
    (32, ""),
    (48, ""),
    (64, ""),
    (127, ""),
    (129, ""),
    (299, ""),
    (300, ""),
    (301, "-d size=315000320"),
    (301, "-d size=315000001"),
    (1024, ""),
    (20_000, ""),
    (200_000, ""),
    (1 << 20, ""),
    // Blocks, sectors, inodes, directory blocks.
    (64, "-b size=1024"),
    (300, "-b size=1024 -n size=16384"),
    (300, "-b size=2048"),
    (300, "-b size=8192"),
    (300, "-b size=16384 -i size=2048"),
    (512, "-b size=32768"),
    (1024, "-b size=65536"),
    (1024, "-b size=65536 -i size=2048"),
    (1024, "-b size=65536 -i size=1024 -m rmapbt=1"),
    (300, "-s size=1024"),
    (300, "-s size=4096"),
    (300, "-b size=32768 -s size=32768"),
    (300, "-b size=1024 -s size=1024 -m rmapbt=1"),
    (300, "-i size=1024"),
    (300, "-i size=2048"),
    (300, "-i perblock=4"),
    (300, "-n size=65536"),
    (64, "-n size=65536"),
    // Features.
    (300, "-m rmapbt=1"),
    (300, "-m rmapbt=1,reflink=0"),
    (300, "-m reflink=0"),
    (64, "-m reflink=0"),
    (300, "-m finobt=0"),
    (300, "-m finobt=0,reflink=0"),
    (64, "-m finobt=0,rmapbt=1,reflink=0"),
    (300, "-m inobtcount=0"),
    (300, "-m bigtime=0"),
    (300, "-i sparse=0"),
    (300, "-i nrext64=1"),
    (64, "-i nrext64=1,sparse=0 -m bigtime=0,inobtcount=0,reflink=0"),
    (300, "-L twelve-bytes"),
    (300, "-i maxpct=50"),
    (300, "-i maxpct=0"),
    // Groups.
    (300, "-d agcount=1"),
    (300, "-d agcount=2"),
    (300, "-d agcount=3"),
    (300, "-d agcount=7"),
    (600, "-d agsize=64m"),
    (600, "-d agsize=70m"),
    (320, "-d agsize=17m"),
    (300, "-d agcount=18"),
    // Logs.
    (300, "-l size=70m"),
    (300, "-l size=8m"),
    (300, "-l agnum=0"),
    (300, "-l agnum=3 -m rmapbt=1"),
    (300, "-l su=4096"),
    (300, "-l su=32k"),
    (300, "-l su=64k -m rmapbt=1"),
    (300, "-l su=256k"),
    (300, "-l sunit=512"),
    (300, "-l sunit=1024"),
    (300, "-l agnum=0,su=64k"),
    (300, "-l size=64m,su=48k"),
    // Stripes.
    (1024, "-d su=64k,sw=4"),
    (1024, "-d su=64k,sw=4 -s size=4096"),
    (1024, "-d sunit=128,swidth=128"),
    (2048, "-d su=512k,sw=3"),
    (1024, "-d su=48k,sw=5,agcount=5"),
    (1024, "-d su=64k,sw=2 -l su=8k"),
    (1024, "-d su=4k,sw=3"),
    (1024, "-d su=1m,sw=2 -m rmapbt=1"),
    (1024, "-d noalign"),
    (1024, "-d sunit=0,swidth=0"),
    (300, "-d su=64k,sw=4"),
    (100, "-d su=64k,sw=4"),
    // What both refuse.
    (300, "-d su=1000,sw=4"),
    (300, "-d sunit=16,swidth=24"),
    (300, "-b size=512"),
    (300, "-i size=256"),
    (300, "-b size=1024 -i size=1024"),
    (300, "-s size=8192"),
    (300, "-n size=2048"),
    (300, "-d agcount=19"),
    (300, "-d agsize=15m"),
    (300, "-d agsize=4097k"),
    (300, "-d agsize=400m"),
    (300, "-l size=1m"),
    (300, "-l size=80m"),
    (300, "-l agnum=4"),
    (300, "-l su=6k"),
    (300, "-m finobt=0,inobtcount=1"),
    (300, "-i maxpct=101"),
    (300, "-d size=400m,agcount=4"),
    (15, ""),
];

#[test]
fn it_is_what_mkfs_xfs_makes_of_the_same_arguments() {
    let shapes = SHAPES.iter().map(|&(size_mib, args)| Shape::new(size_mib, args));
    let different: Vec<String> = shapes
        .filter_map(|shape| shape.difference().map(|difference| format!("{}: {difference}", shape.name())))
        .collect();
    assert!(different.is_empty(), "{}", different.join("\n"));
}

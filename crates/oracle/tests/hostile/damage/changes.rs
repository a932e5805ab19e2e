//! What is done to a damaged filesystem.

use undercroft_block::testing::Rng;
use undercroft_oracle::operations::{Abilities, Operation, Worker};
use undercroft_vfs::FallocateMode;

/// Changes to what the image came with, for each change to what is new.
const OLD_TO_NEW: usize = 6;

/// Changes to what the damaged tree has, by its `paths` when it was good, between changes that make and use something new.
pub(crate) fn operations(paths: &[String], random: &mut Rng, count: usize) -> Vec<Operation> {
    let abilities = Abilities {
        extents: true,
        shares: false,
        block_bytes: 1024,
        value_max_bytes: 3000,
        reach_bytes: 300_000,
    };
    let mut worker = Worker::new(random.below(1 << 40), 0, abilities);
    let mut operations = vec![Operation::Mkdir { path: "shared".to_owned() }, Worker::ground(0)];
    for _ in 0..count {
        operations.extend(worker.next());
        operations.extend((0..OLD_TO_NEW).map(|_| change_of_old(paths, random)));
    }
    operations
}

pub(crate) fn change_of_old(paths: &[String], random: &mut Rng) -> Operation {
    let mut any = || paths[random.index(paths.len())].clone();
    let (path, other) = (any(), any());
    let beside = format!("{other}-{}", random.below(100));
    let (offset, len) = (random.below(300_000), 1 + random.below(30_000));
    let space = |change| Operation::Space {
        path: path.clone(),
        change,
        offset: offset / 4096 * 4096,
        len,
        keep_size: false,
    };
    match random.below(16) {
        0 => Operation::Create { path: beside },
        1 => Operation::Create { path: format!("{path}/new-{}", random.below(100)) },
        2 => Operation::Mkdir { path: format!("{path}/new-{}", random.below(100)) },
        3 => Operation::Link { path, to: beside },
        4 | 5 => Operation::Unlink { path },
        6 => Operation::Rmdir { path },
        7 => Operation::Rename { path, to: beside, exchange: false },
        8 => Operation::Rename { path, to: other, exchange: random.below(2) == 0 },
        9 => Operation::Write { path, offset, len: len as usize, seed: offset },
        10 => Operation::Append { path, len: len as usize, seed: offset },
        11 => Operation::Truncate { path, size: offset >> random.below(20) },
        12 => space(FallocateMode::PunchHole),
        13 => space(FallocateMode::Allocate),
        14 => Operation::SetXattr {
            path,
            name: format!("user.{}", len % 3),
            value: vec![1; random.below(2000) as usize],
        },
        _ => Operation::Chmod { path, mode: (len % 512) as u16 },
    }
}

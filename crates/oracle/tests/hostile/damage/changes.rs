//! What is done to a damaged filesystem.

use undercroft_oracle::deeds::{Abilities, Deed, Worker};
use undercroft_vfs::FallocateMode;

use super::{Random, Victim};

/// Changes to what the image came with, for each change to what is new.
const OLD_TO_NEW: usize = 6;

/// Changes to what the damaged tree has, between changes that make and use something new.
pub(crate) fn deeds(victim: &Victim, random: &mut Random, count: usize) -> Vec<Deed> {
    let abilities =
        Abilities { extents: true, block_bytes: 1024, value_max_bytes: 3000, reach_bytes: 300_000 };
    let mut worker = Worker::new(random.below(1 << 40), 0, abilities);
    let mut deeds = vec![Deed::Mkdir { path: "shared".to_owned() }, Worker::ground(0)];
    for _ in 0..count {
        deeds.extend(worker.next());
        deeds.extend((0..OLD_TO_NEW).map(|_| change_of_old(victim, random)));
    }
    deeds
}

pub(crate) fn change_of_old(victim: &Victim, random: &mut Random) -> Deed {
    let mut any = || victim.paths[random.below(victim.paths.len() as u64) as usize].clone();
    let (path, other) = (any(), any());
    let beside = format!("{other}-{}", random.below(100));
    let (offset, len) = (random.below(300_000), 1 + random.below(30_000));
    let space = |change| Deed::Space {
        path: path.clone(),
        change,
        offset: offset / 4096 * 4096,
        len,
        keep_size: false,
    };
    match random.below(16) {
        0 => Deed::Create { path: beside },
        1 => Deed::Create { path: format!("{path}/new-{}", random.below(100)) },
        2 => Deed::Mkdir { path: format!("{path}/new-{}", random.below(100)) },
        3 => Deed::Link { path, to: beside },
        4 | 5 => Deed::Unlink { path },
        6 => Deed::Rmdir { path },
        7 => Deed::Rename { path, to: beside, exchange: false },
        8 => Deed::Rename { path, to: other, exchange: random.below(2) == 0 },
        9 => Deed::Write { path, offset, len: len as usize, seed: offset },
        10 => Deed::Append { path, len: len as usize, seed: offset },
        11 => Deed::Truncate { path, size: offset >> random.below(20) },
        12 => space(FallocateMode::PunchHole),
        13 => space(FallocateMode::Allocate),
        14 => Deed::SetXattr {
            path,
            name: format!("user.{}", len % 3),
            value: vec![1; random.below(2000) as usize],
        },
        _ => Deed::Chmod { path, mode: (len % 512) as u16 },
    }
}

//! Random sets of arguments: we make what mkfs.xfs makes of them, and refuse what it refuses.
//!
//! `UNDERCROFT_XFS_MKFS` sets how many sets there are (30), `UNDERCROFT_SEED` replays those from one on.

use crate::Shape;

const SETS: u64 = 30;

struct Random(u64);

impl Random {
    /// A number below `end`, by splitmix64.
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ z >> 31) % end
    }

    fn one_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    fn of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len() as u64) as usize]
    }
}

fn shape(seed: u64) -> Shape {
    let mut random = Random(seed);
    let size_mib = match random.below(4) {
        0 => 16 + random.below(300),
        1 => 300 + random.below(300),
        2 => 600 + random.below(3000),
        _ => random.of(&[16, 64, 128, 256, 300, 512, 1024, 2048, 4096]),
    };
    let mut words = Vec::new();
    let mut block = 4096;
    if random.one_in(2) {
        block = random.of(&[1024_u64, 1024, 2048, 4096, 8192, 16_384, 32_768, 65_536]);
        words.push(format!("-b size={block}"));
    }
    if random.one_in(4) {
        words.push(format!("-s size={}", random.of(&[512, 1024, 2048, 4096, 4096, 8192, 32_768])));
    }
    if random.one_in(3) {
        words.push(format!("-n size={}", random.of(&[4096, 8192, 16_384, 65_536])));
    }
    let flag = |random: &mut Random, name: &str| format!("{name}={}", random.below(2));
    let mut inodes = Vec::new();
    if random.one_in(3) {
        inodes.push(format!("size={}", random.of(&[512, 1024, 2048])));
    }
    if random.one_in(3) {
        inodes.push(flag(&mut random, "sparse"));
    }
    if random.one_in(3) {
        inodes.push(flag(&mut random, "nrext64"));
    }
    if random.one_in(5) {
        inodes.push(format!("maxpct={}", random.below(101)));
    }
    let mut features = Vec::new();
    for name in ["finobt", "rmapbt", "reflink", "bigtime", "inobtcount"] {
        if random.one_in(3) {
            features.push(flag(&mut random, name));
        }
    }
    let mut data = Vec::new();
    match random.below(5) {
        0 => data.push(format!("agcount={}", 1 + random.below(20))),
        1 => data
            .push(format!("agsize={}b", (random.of(&[16, 17, 20, 64, 100]) << 20) / block + random.below(9))),
        2 => data.push(format!("size={}", (size_mib << 20) - 512 * random.below(9000))),
        _ => {}
    }
    if random.one_in(3) {
        let unit = block * (1 + random.below(1 + (256 << 10) / block));
        data.push(format!("su={unit},sw={}", 1 + random.below(8)));
    }
    let mut log = Vec::new();
    if random.one_in(4) {
        let mib = random.of(&[4, 8, 16, 64, 65, 80]);
        log.push(format!("size={}b", (mib << 20) / block + random.below(3)));
    }
    if random.one_in(4) {
        log.push(format!("su={}", block * (1 + random.below(1 + (128 << 10) / block))));
    }
    if random.one_in(6) {
        log.push(format!("agnum={}", random.below(4)));
    }
    for (letter, values) in [("i", inodes), ("m", features), ("d", data), ("l", log)] {
        if !values.is_empty() {
            words.push(format!("-{letter} {}", values.join(",")));
        }
    }
    Shape::new(size_mib, &words.join(" "))
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

#[test]
fn random_arguments_make_what_mkfs_xfs_makes() {
    let replayed = number("UNDERCROFT_SEED");
    let first = replayed.unwrap_or_else(|| {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        since.map_or(1, |since| since.as_nanos() as u64)
    });
    let sets = number("UNDERCROFT_XFS_MKFS").unwrap_or(SETS);
    let mut different = Vec::new();
    for seed in (0..sets).map(|n| first.wrapping_add(n)) {
        let shape = shape(seed);
        if let Some(difference) = shape.difference() {
            different.push(format!("UNDERCROFT_SEED={seed}: {}: {difference}", shape.name()));
        }
    }
    assert!(different.is_empty(), "from UNDERCROFT_SEED={first} on:\n{}", different.join("\n"));
}

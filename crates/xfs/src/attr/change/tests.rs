//! The tree as it is changed, in memory, against a model.

use std::collections::BTreeMap;

use undercroft_block::testing::Rng;
use undercroft_vfs::{Error, Ino};

use super::leaf::{Item, ItemValue};
use super::tree::{Changes, Content, Draft, Numbers};
use crate::attr::entry::Space;
use crate::attr::leaf::tests::LAYOUT;
use crate::attr::{Attributes, list};
use crate::da::memory::Memory;
use crate::da::{self, Layout, hash_name};

const SMALL: Layout = Layout { block_bytes: 512, dir_block_bytes: 512, ..LAYOUT };

fn fork<'a>(memory: &'a Memory, layout: &'a Layout) -> da::Fork<'a> {
    da::Fork { blocks: memory, layout, owner: Ino(128), structure: "attribute fork", unit: 1 }
}

fn numbers(memory: &Memory) -> Numbers {
    let mut present: Vec<u32> = memory.blocks.keys().copied().collect();
    present.sort_unstable();
    let mut numbers = Numbers::default();
    for number in present {
        numbers.push(u64::from(number)..u64::from(number) + 1);
    }
    numbers
}

fn apply(memory: &mut Memory, changes: Changes, block_bytes: usize) {
    for (number, block) in changes.written {
        assert_eq!(block.home.is_some(), memory.blocks.contains_key(&number), "block {number}");
        let mut bytes = memory.blocks.get(&number).cloned().unwrap_or_else(|| vec![0; block_bytes]);
        block.write(&mut bytes);
        memory.blocks.insert(number, bytes);
    }
    for number in changes.removed {
        assert!(memory.blocks.remove(&number).is_some());
    }
}

fn item(name: &[u8], value: &[u8], weak_hash: bool) -> Item {
    let hash = if weak_hash { hash_name(name) & 3 } else { hash_name(name) };
    Item {
        hash,
        space: Space::User,
        incomplete: false,
        name: name.into(),
        value: ItemValue::Here(value.into()),
    }
}

/// Checks levels, neighbours and hashes, and that no block is anywhere else.
fn check(memory: &Memory, layout: &Layout) -> u16 {
    let mut draft = Draft::of(fork(memory, layout), numbers(memory));
    let mut level = vec![0];
    let (mut seen, mut height) = (0, 0);
    loop {
        seen += level.len();
        let mut below = Vec::new();
        for (n, &number) in level.iter().enumerate() {
            let block = draft.peek(number).clone();
            let at = |n: Option<usize>| n.and_then(|n| level.get(n)).copied().unwrap_or(0);
            assert_eq!(
                (block.back, block.forward),
                (at(n.checked_sub(1)), at(Some(n + 1))),
                "block {number}"
            );
            let Content::Node { entries, level } = block.content else { continue };
            assert!(!entries.is_empty() && (number != 0 || entries.len() > 1));
            height = height.max(level);
            for (hash, child) in entries {
                let child_block = draft.peek(child);
                assert_eq!(child_block.content.last_hash(), Some(hash), "block {child}");
                assert_eq!(child_block.content.level() + 1, level);
                below.push(child);
            }
        }
        if below.is_empty() {
            break;
        }
        level = below;
    }
    assert_eq!(seen, memory.blocks.len());
    height
}

fn random_changes(
    layout: &Layout,
    names: usize,
    longest: usize,
    weak_hash: bool,
    rounds: usize,
    seed: u64,
) -> u16 {
    let mut random = Rng::new(seed);
    let mut memory = Memory { unit: 1, ..Memory::default() };
    let mut model: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
    let changes = Draft::new(layout.block_bytes, Numbers::default(), Vec::new()).unwrap().finish();
    apply(&mut memory, changes, layout.block_bytes);
    let mut highest = 0;
    for round in 0..rounds {
        // It grows, and then shrinks.
        let removes = random.index(10) < if round % (rounds / 2) < rounds / 4 { 2 } else { 8 };
        let name = format!("{:0>1$}", random.index(names), 1 + random.index(names) % 17 * 2).into_bytes();
        let value = vec![b'v'; random.index(longest)];
        let new = item(&name, &value, weak_hash);
        let mut draft = Draft::of(fork(&memory, layout), numbers(&memory));
        let (place, found) = draft.find(new.hash, Space::User, &name).unwrap();
        assert_eq!(found, model.contains_key(&name), "round {round}");
        if found {
            let there = item(&name, &model[&name], weak_hash);
            assert_eq!(draft.get(&place).unwrap(), there);
        }
        if !removes {
            draft.put(place, found, new).unwrap();
            model.insert(name, value);
        } else if found {
            draft.remove(place).unwrap();
            model.remove(&name);
        }
        let changes = draft.finish();
        apply(&mut memory, changes, layout.block_bytes);
        highest = highest.max(check(&memory, layout));
        if round % 16 == 0 {
            let attributes = Attributes { ino: Ino(128), layout, content: da::Content::Blocks(&memory) };
            let mut listed = match list(attributes) {
                Ok(listed) => listed,
                Err(Error::ValueTooLarge) => continue,
                Err(error) => panic!("round {round}: {error}"),
            };
            listed.sort_unstable();
            let expected: Vec<Vec<u8>> = model.keys().map(|name| [b"user.", &name[..]].concat()).collect();
            assert_eq!(listed, expected, "round {round}");
        }
    }
    highest
}

#[test]
fn a_tree_has_what_was_put_into_it() {
    // Names of two lengths are often the same number, so that the hashes differ little.
    assert!(random_changes(&SMALL, 1500, 40, false, 3000, 1) >= 2);
    assert!(random_changes(&SMALL, 500, 330, false, 1500, 2) >= 2);
    assert!(random_changes(&SMALL, 60, 300, true, 1500, 3) >= 1);
    random_changes(&Layout { block_bytes: 4096, ..SMALL }, 600, 3000, false, 800, 4);
    random_changes(&LAYOUT, 600, 30_000, false, 100, 5);
}

//! A change of attributes, worked out and then carried out.

use std::sync::Arc;

use undercroft_vfs::{Error, Ino, Result, XattrMode};

use super::leaf::{self, Item, ItemValue};
use super::tree::{Changes, Content, Draft, Numbers, TreeBlock};
use super::{Attempt, Request, fit, remote, short};
use crate::alloc::Held;
use crate::attr::STRUCTURE;
use crate::attr::entry::Space;
use crate::da::mapped::MappedFork;
use crate::da::{self, Layout, hash_name};
use crate::error::corrupt_inode;
use crate::format::dinode::ForkFormat;
use crate::format::extent::{Extent, FILE_BLOCK_END};
use crate::format::{FileBlock, FsBlock, Incompat};
use crate::inode::{Fork, ForkKind, Inode, STORE_CREDITS};
use crate::map::change::Progress;
use crate::map::{self, Run};
use crate::transaction::{Handle, Seal};
use crate::volume::Volume;

/// Blocks that a change of one extent changes for one level more of the fork's tree.
const LEVEL_CREDITS: u32 = 3;

/// What the attribute fork becomes.
#[derive(Debug)]
enum Form {
    /// There is none.
    None,
    /// Attributes in the inode.
    Short(Vec<u8>),
    /// Attributes in blocks.
    Blocks(Changes),
    /// As it was.
    Same,
}

/// A value to be written into blocks.
#[derive(Debug)]
struct NewValue {
    bytes: Vec<u8>,
    /// The first block in the fork.
    first: u32,
    blocks: u32,
    /// The blocks of the old value, if it takes as many.
    homes: Option<Vec<FsBlock>>,
}

/// A change that has been worked out.
pub(super) struct Plan {
    layout: Layout,
    form: Form,
    /// Where the attribute fork begins afterwards, in words; 0 for none.
    words: u8,
    value: Option<NewValue>,
    /// The blocks of a value that goes.
    freed: Vec<Extent>,
    /// In how many steps all blocks of the fork go, if they do.
    steps: u32,
}

impl Plan {
    /// `None` if the data fork leaves no room for one of attributes.
    pub(super) fn new(volume: &Volume, inode: &Inode, request: &Request<'_>) -> Result<Option<Self>> {
        let layout = Layout::of(volume.superblock());
        match &inode.attr {
            None => Self::from_inode(layout, inode, request, Vec::new()),
            Some(Fork::Local(bytes)) => {
                let items = short::decode(bytes);
                let items = items.map_err(|detail| corrupt_inode(STRUCTURE, inode.ino, None, detail))?;
                Self::from_inode(layout, inode, request, items)
            }
            Some(Fork::Extents(extents)) if extents.is_empty() => {
                Self::from_inode(layout, inode, request, Vec::new())
            }
            Some(fork) => Self::from_blocks(volume, layout, inode, fork, request).map(Some),
        }
    }

    /// For attributes that lie in the inode.
    fn from_inode(
        layout: Layout,
        inode: &Inode,
        request: &Request<'_>,
        mut items: Vec<Item>,
    ) -> Result<Option<Self>> {
        refuse_parents(inode.ino, &items)?;
        let at = items.iter().position(|item| item.space == request.space && *item.name == *request.name);
        let old = at.map(|at| items[at].clone());
        if request.is_there_already(old.as_ref())? {
            return Ok(Some(Self::nothing(layout, inode)));
        }
        let mut numbers = Numbers::default();
        let mut value = None;
        match request.new_item(&layout) {
            None => drop(at.map(|at| items.remove(at))),
            Some(mut item) => {
                value = request.place_value(&layout, &mut item, &mut numbers)?;
                match at {
                    Some(at) => items[at] = item,
                    None => items.push(item),
                }
            }
        }
        let (form, words) = match in_inode(inode, &items) {
            Some(small) => small,
            None => {
                let Some(words) = fit::for_blocks(inode) else { return Ok(None) };
                (Form::Blocks(Draft::new(layout.block_bytes, numbers, items)?.finish()), words)
            }
        };
        Ok(Some(Self { layout, form, words, value, freed: Vec::new(), steps: 0 }))
    }

    /// For attributes that lie in blocks.
    fn from_blocks(
        volume: &Volume,
        layout: Layout,
        inode: &Inode,
        fork: &Fork,
        request: &Request<'_>,
    ) -> Result<Self> {
        let ino = inode.ino;
        let mut steps = 0_u32;
        let mut numbers = Numbers::default();
        map::for_each_extent(volume, ino, fork, |extent| {
            steps = steps.saturating_add(steps_of(extent));
            numbers.push(extent.file.0..extent.end());
            Ok(())
        })?;
        let blocks = MappedFork::of(volume, ino, STRUCTURE, fork);
        let fork_blocks =
            da::Fork { blocks: &blocks, layout: &layout, owner: ino, structure: STRUCTURE, unit: 1 };
        let mut draft = Draft::of(fork_blocks, numbers);
        let (place, is_there) = draft.find(hash_name(request.name), request.space, request.name)?;
        let old = if is_there { Some(draft.get(&place)?) } else { None };
        if request.is_there_already(old.as_ref())? {
            return Ok(Self::nothing(layout, inode));
        }
        let mut freed = Vec::new();
        let mut old_range = None;
        if let Some(Item { value: ItemValue::Remote { block, bytes }, .. }) = old {
            let count = remote::blocks(&layout, bytes as usize);
            if draft.has_any_of(block..block.saturating_add(count)) {
                let detail = format!("a value is said to lie in block {block}, where its tree is");
                return Err(corrupt_inode(STRUCTURE, ino, None, detail));
            }
            freed = runs(volume, ino, fork, block, count)?;
            old_range = Some((block, count));
        }
        let mut value = None;
        match request.new_item(&layout) {
            None => draft.remove(place)?,
            Some(mut item) => {
                let new = request.value.as_deref().unwrap_or_default();
                match old_range {
                    Some((first, count))
                        if is_remote(&item) && count == remote::blocks(&layout, new.len()) =>
                    {
                        item.value = ItemValue::Remote { block: first, bytes: new.len() as u32 };
                        let homes =
                            freed.iter().flat_map(|run| (run.file.0..run.end()).map(|at| run.block_of(at)));
                        let homes = Some(homes.collect());
                        value = Some(NewValue { bytes: new.to_vec(), first, blocks: count, homes });
                        freed.clear();
                    }
                    _ => value = request.place_value(&layout, &mut item, &mut draft.numbers)?,
                }
                draft.put(place, is_there, item)?;
            }
        }
        let small = match draft.single_leaf()? {
            Some(items) if !items.iter().any(|item| item.space == Space::Parent) => in_inode(inode, items),
            _ => None,
        };
        Ok(match small {
            Some((form, words)) => Self { layout, form, words, value: None, freed: Vec::new(), steps },
            None => {
                let changes = draft.finish();
                let words = fit::words(inode);
                Self { layout, form: Form::Blocks(changes), words, value, freed, steps: 0 }
            }
        })
    }

    fn nothing(layout: Layout, inode: &Inode) -> Self {
        let words = fit::words(inode);
        Self { layout, form: Form::Same, words, value: None, freed: Vec::new(), steps: 0 }
    }

    /// Carries it out, if the handle has room for it.
    pub(super) fn make(self, handle: &Handle<'_>, inode: &mut Inode) -> Result<Attempt> {
        // The boundary moves in memory only, and shows whether the forks fit.
        let mut changed = inode.clone();
        self.move_boundary(&mut changed)?;
        // The fork's tree may get a level on the way.
        let step = map::change::credits(handle.volume(), &changed, ForkKind::Attr) + LEVEL_CREDITS;
        let (new, tree_steps, rewritten) = self.tree_blocks();
        let held = self.hold(handle, &changed)?;
        let new_value_blocks = self.value.as_ref().map_or(0, |value| value.blocks);
        let freed: u32 = self.freed.iter().map(steps_of).sum();
        let steps = (tree_steps + held.len() as u32 + freed).saturating_add(self.steps);
        let credits = STORE_CREDITS
            .saturating_add(rewritten + new + new_value_blocks)
            .saturating_add(steps.saturating_mul(step));
        check_count(handle.volume(), &changed, steps)?;
        if !handle.has_room(credits) {
            return Ok(Attempt::Wants(credits));
        }
        let map_space = if steps > 0 { 1 + map::change::space(&changed, ForkKind::Attr) } else { 0 };
        handle.ensure_space(u64::from(new) + u64::from(steps) * map_space)?;
        self.check_removals(handle, &changed)?;
        handle.or_abort(self.change(handle, &mut changed, held))?;
        *inode = changed;
        Ok(Attempt::Done)
    }

    /// Refuses where blocks that go cannot be freed.
    fn check_removals(&self, handle: &Handle<'_>, inode: &Inode) -> Result<()> {
        let check = |extent: &Extent| map::change::check_removal(handle, extent.block, extent.count.into());
        self.freed.iter().try_for_each(check)?;
        let (volume, ino) = (handle.volume(), inode.ino);
        match (&self.form, &inode.attr) {
            (Form::None | Form::Short(_), Some(fork @ (Fork::Extents(_) | Fork::Btree(_)))) => {
                map::for_each_extent(volume, ino, fork, check)
            }
            (Form::Blocks(changes), Some(fork)) => changes.removed.iter().try_for_each(|number| {
                match map::lookup(volume, ino, fork, FileBlock((*number).into()))? {
                    Run::Extent(extent) => {
                        map::change::check_removal(handle, extent.block_of((*number).into()), 1)
                    }
                    Run::Hole { .. } => Ok(()),
                }
            }),
            _ => Ok(()),
        }
    }

    /// New blocks of the tree, blocks that are added or removed, and those that are written in their places.
    fn tree_blocks(&self) -> (u32, u32, u32) {
        let Form::Blocks(changes) = &self.form else { return (0, 0, 0) };
        let new = changes.written.iter().filter(|(_, block)| block.home.is_none()).count();
        let steps = new + changes.removed.len();
        (new as u32, steps as u32, (changes.written.len() - new) as u32)
    }

    /// Moves the boundary of the forks where that comes first: before blocks are added.
    fn move_boundary(&self, inode: &mut Inode) -> Result<()> {
        if !matches!(self.form, Form::Blocks(_)) {
            return Ok(());
        }
        if self.words != fit::words(inode) && !inode.set_forkoff(self.words) {
            return Err(Error::NoSpace);
        }
        if matches!(&inode.attr, None | Some(Fork::Local(_))) {
            set_fork(inode, Fork::Extents(Arc::new([])));
        }
        Ok(())
    }

    /// Holds the blocks of a new value, which lie together as far as free space does.
    fn hold(&self, handle: &Handle<'_>, inode: &Inode) -> Result<Vec<Held>> {
        let Some(NewValue { blocks, homes: None, .. }) = self.value else { return Ok(Vec::new()) };
        let goal = goal(handle.volume(), inode);
        let (mut held, mut left) = (Vec::new(), u64::from(blocks));
        while left > 0 {
            let run = handle.writer().allocator.hold(handle.volume(), goal, left)?;
            left = left.saturating_sub(run.len().max(1));
            held.push(run);
        }
        Ok(held)
    }

    fn change(self, handle: &Handle<'_>, inode: &mut Inode, held: Vec<Held>) -> Result<()> {
        let ino = inode.ino;
        if let Some(NewValue { bytes, first, homes, .. }) = &self.value {
            let homes = match homes {
                Some(homes) => homes.clone(),
                None => enter(handle, inode, *first, held)?,
            };
            remote::write(handle, ino, homes.into_iter(), &self.layout, bytes)?;
        }
        for run in &self.freed {
            remove(handle, inode, run.file, FileBlock(run.end()))?;
        }
        match self.form {
            Form::Same => {}
            Form::Blocks(changes) => {
                for (number, block) in &changes.written {
                    write(handle, inode, *number, block)?;
                }
                for number in changes.removed {
                    map::change::remove_blocks(handle, inode, ForkKind::Attr, FileBlock(number.into()), 1)?;
                }
            }
            Form::Short(bytes) => {
                remove_blocks(handle, inode)?;
                if self.words != fit::words(inode) && !inode.set_forkoff(self.words) {
                    return Err(corrupt_inode(STRUCTURE, ino, None, "does not fit beside the data fork"));
                }
                set_fork(inode, Fork::Local(bytes.into()));
            }
            Form::None => {
                remove_blocks(handle, inode)?;
                if !inode.set_forkoff(0) {
                    return Err(corrupt_inode(
                        STRUCTURE,
                        ino,
                        None,
                        "cannot go, for what the data fork holds",
                    ));
                }
            }
        }
        inode.store(handle)
    }
}

impl Request<'_> {
    /// Whether the attribute is there with this value, so that nothing need be done.
    fn is_there_already(&self, old: Option<&Item>) -> Result<bool> {
        match (&self.value, self.mode, old) {
            (Some(_), XattrMode::Create, Some(_)) => Err(Error::Exists),
            (_, XattrMode::Replace, None) | (None, _, None) => Err(Error::NoAttribute),
            (Some(value), _, Some(Item { value: ItemValue::Here(old), .. })) => Ok(**value == **old),
            _ => Ok(false),
        }
    }

    /// The attribute; a value that lies elsewhere has no place yet.
    fn new_item(&self, layout: &Layout) -> Option<Item> {
        let value = self.value.as_deref()?;
        let value = if leaf::keeps_value(layout.block_bytes, self.name, value) {
            ItemValue::Here(value.into())
        } else {
            ItemValue::Remote { block: 0, bytes: value.len() as u32 }
        };
        let hash = hash_name(self.name);
        Some(Item { hash, space: self.space, incomplete: false, name: self.name.into(), value })
    }

    /// Finds a place in the fork for a value that lies elsewhere.
    fn place_value(
        &self,
        layout: &Layout,
        item: &mut Item,
        numbers: &mut Numbers,
    ) -> Result<Option<NewValue>> {
        let ItemValue::Remote { block, bytes } = &mut item.value else { return Ok(None) };
        let blocks = remote::blocks(layout, *bytes as usize);
        let first = numbers.take(blocks)?;
        *block = first;
        let bytes = self.value.as_deref().unwrap_or_default().to_vec();
        Ok(Some(NewValue { bytes, first, blocks, homes: None }))
    }
}

/// As [`crate::attr::change::remove_all`].
pub(super) fn remove_all(handle: &Handle<'_>, inode: &mut Inode) -> Result<Progress> {
    let is_large = match &inode.attr {
        Some(Fork::Extents(extents)) => extents.iter().map(|extent| u64::from(extent.count)).sum::<u64>() > 1,
        Some(Fork::Btree(_)) => true,
        _ => false,
    };
    if is_large {
        // The tree goes first: what is left are blocks that nothing leads to, which the fork's end takes along.
        empty_root(handle, inode)?;
        let (from, to) = (FileBlock(1), FileBlock(FILE_BLOCK_END));
        let progress = map::change::remove(handle, inode, ForkKind::Attr, from, to);
        if !matches!(progress, Ok(Progress::Done)) {
            // What is gone by now stays gone.
            handle.or_abort(inode.store(handle))?;
            return progress;
        }
        if !handle.has_room(STORE_CREDITS + map::change::credits(handle.volume(), inode, ForkKind::Attr)) {
            handle.or_abort(inode.store(handle))?;
            return Ok(Progress::From(0));
        }
    }
    // What is refused has changed nothing, and the inode is as it was, or as it was stored.
    let removed = remove_blocks(handle, inode);
    if removed.is_ok() && inode.attr.is_some() && !inode.set_forkoff(0) {
        set_fork(inode, Fork::Extents(Arc::new([])));
    }
    handle.or_abort(inode.store(handle))?;
    removed.map(|()| Progress::Done)
}

/// In how many steps blocks of metadata are removed.
fn steps_of(extent: &Extent) -> u32 {
    extent.count.div_ceil(map::change::METADATA_STEP as u32)
}

/// Makes the tree's root an empty leaf, unless it is one.
fn empty_root(handle: &Handle<'_>, inode: &Inode) -> Result<()> {
    let Some(fork) = &inode.attr else { return Ok(()) };
    let volume = handle.volume();
    let Run::Extent(extent) = map::lookup(volume, inode.ino, fork, FileBlock(0))? else { return Ok(()) };
    let home = extent.block_of(0);
    let empty = TreeBlock::new(Content::Leaf(Vec::new()));
    handle.make_owned(home, Seal::AttrLeaf, inode.ino.0, |bytes| empty.write(bytes))
}

/// Removes all blocks of the attribute fork.
fn remove_blocks(handle: &Handle<'_>, inode: &mut Inode) -> Result<()> {
    match &inode.attr {
        None | Some(Fork::Local(_)) => Ok(()),
        Some(Fork::Extents(extents)) if extents.is_empty() => Ok(()),
        Some(_) => remove(handle, inode, FileBlock(0), FileBlock(FILE_BLOCK_END)),
    }
}

fn remove(handle: &Handle<'_>, inode: &mut Inode, from: FileBlock, to: FileBlock) -> Result<()> {
    match map::change::remove(handle, inode, ForkKind::Attr, from, to)? {
        Progress::Done => Ok(()),
        // There was room for all of it.
        Progress::From(at) => Err(corrupt_inode(
            STRUCTURE,
            inode.ino,
            None,
            format!("has more extents than counted, from {at} on"),
        )),
    }
}

/// Enters held blocks into the fork, and returns them one by one.
fn enter(handle: &Handle<'_>, inode: &mut Inode, first: u32, held: Vec<Held>) -> Result<Vec<FsBlock>> {
    let mut at = u64::from(first);
    let mut homes = Vec::new();
    for mut run in held {
        let count = run.len();
        let block = handle.writer().allocator.take_held(handle, &mut run, count)?;
        let extent = Extent { file: FileBlock(at), block, count: count as u32, unwritten: false };
        map::change::insert(handle, inode, ForkKind::Attr, extent)?;
        homes.extend((at..extent.end()).map(|at| extent.block_of(at)));
        at = extent.end();
    }
    Ok(homes)
}

/// Writes a block of the tree, which gets a place if it has none.
fn write(handle: &Handle<'_>, inode: &mut Inode, number: u32, block: &TreeBlock) -> Result<()> {
    let seal = match block.content {
        Content::Leaf(_) => Seal::AttrLeaf,
        Content::Node { .. } => Seal::DaNode,
    };
    if let Some(home) = block.home {
        return handle.change(home, seal, |bytes| block.write(bytes));
    }
    let home = map::change::add_block(handle, inode, ForkKind::Attr, FileBlock(number.into()))?;
    handle.make_owned(home, seal, inode.ino.0, |bytes| block.write(bytes))
}

/// The form that keeps these attributes in the inode, and where the fork begins; `None` if they do not fit.
fn in_inode(inode: &Inode, items: &[Item]) -> Option<(Form, u8)> {
    if items.is_empty() && fit::can_drop(inode) {
        return Some((Form::None, 0));
    }
    let bytes = short::encode(items.iter())?;
    let words = fit::for_bytes(inode, bytes.len())?;
    Some((Form::Short(bytes), words))
}

fn set_fork(inode: &mut Inode, fork: Fork) {
    inode.core.attr_extents = 0;
    inode.core.attr_format = match fork {
        Fork::Local(_) => ForkFormat::Local,
        _ => ForkFormat::Extents,
    };
    inode.attr = Some(fork);
}

fn is_remote(item: &Item) -> bool {
    matches!(item.value, ItemValue::Remote { .. })
}

/// Refuses a change by which the fork may get more extents than an inode can count.
fn check_count(volume: &Volume, inode: &Inode, steps: u32) -> Result<()> {
    let is_large = volume.superblock().features().incompat().contains(Incompat::NREXT64);
    let most = if is_large { u32::MAX } else { i16::MAX as u32 };
    if inode.core.attr_extents.saturating_add(steps.saturating_mul(2)) > most {
        return Err(Error::NoSpace);
    }
    Ok(())
}

/// New blocks of the fork come near this one: the fork's last, or the inode itself.
fn goal(volume: &Volume, inode: &Inode) -> FsBlock {
    if let Some(Fork::Extents(extents)) = &inode.attr
        && let Some(last) = extents.last()
    {
        return last.block;
    }
    volume.geometry().inode_place(inode.ino).map_or(FsBlock(0), |(block, _)| block)
}

/// The parts of extents that `count` blocks from `first` on lie in.
fn runs(volume: &Volume, ino: Ino, fork: &Fork, first: u32, count: u32) -> Result<Vec<Extent>> {
    let (mut at, end) = (u64::from(first), u64::from(first) + u64::from(count));
    let mut runs = Vec::new();
    while at < end {
        let Run::Extent(extent) = map::lookup(volume, ino, fork, FileBlock(at))? else {
            let detail = format!("a value lies in block {at}, which is not there");
            return Err(corrupt_inode(STRUCTURE, ino, None, detail));
        };
        let to = extent.end().min(end);
        let block = extent.block_of(at);
        runs.push(Extent { file: FileBlock(at), block, count: (to - at) as u32, unwritten: false });
        at = to;
    }
    Ok(runs)
}

/// Parent pointers have hashes of their own, which only their leaf has.
fn refuse_parents(ino: Ino, items: &[Item]) -> Result<()> {
    if items.iter().any(|item| item.space == Space::Parent) {
        let what = format!("changing the attributes of inode {ino}, which has parent pointers");
        return Err(Error::Unsupported(what.into()));
    }
    Ok(())
}

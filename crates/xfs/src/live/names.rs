//! Adding, removing and moving names: the part of the contract that changes directories.
//!
//! Each operation is one handle, so a crash shows all of it or nothing. It [plans](crate::dir::change) the changes of
//! directories, makes sure that its handle has room and space for all that follows, and makes the changes. What the plans
//! need is known only once the directories are locked: where the handle cannot be given as much, everything is dropped
//! and a new handle starts with it. So everything that can be refused is refused before the first change, except that a
//! new inode may find no room for its attributes; it is deleted again then. And the number of a new file is taken before its
//! directory is locked, so that threads do not wait for the group's lock with the directory's; it is given back where the
//! name is refused.
//!
//! Locks: the caller holds the names. Directories are locked in the order of their numbers, under the handle. Fields of two
//! inodes are never held at once: each is changed in a step of its own.

use std::sync::Arc;

use undercroft_sync::atomic::Ordering;
use undercroft_vfs::{Error, FileType, Found, Ino, NewInode, Node, Result, Timestamp};

use super::making::{Attempt, Making, making};
use super::{Live, release};
use crate::alloc::NewNumber;
use crate::dir;
use crate::dir::change::{self, Change, usual_credits};
use crate::format::dinode::DiFlags;
use crate::inode::{Inode, STORE_CREDITS};
use crate::transaction::Handle;
use release::UNLINKED_CREDITS;

/// Most names of a file, and of a directory one more than this many directories, as Linux has it.
const LINKS_MAX: u32 = i32::MAX as u32;

/// Losing a name: the inode and its unlinked list.
const LOSE_CREDITS: u32 = STORE_CREDITS + UNLINKED_CREDITS;

/// Runs `attempt` with handles with room for more blocks, until one has enough.
fn with_room<T>(
    dir: &Live,
    mut credits: u32,
    mut attempt: impl FnMut(&Handle<'_>) -> Result<Attempt<T>>,
) -> Result<T> {
    loop {
        let handle = dir.volume.start(credits)?;
        match attempt(&handle)? {
            Attempt::Done(done) => return Ok(done),
            Attempt::Wants(more) => credits = more.max(credits + 1),
        }
    }
}

/// What the handle lacks for these plans and for `rest` blocks that are changed beside them: `None`, with the space
/// reserved, when it lacks nothing.
fn lacks(handle: &Handle<'_>, plans: &mut [&mut Change<'_>], rest: u32, used: u64) -> Result<Option<u32>> {
    let credits = plans.iter().fold(rest, |sum, plan| sum.saturating_add(plan.credits()));
    if !handle.has_room(credits) {
        return Ok(Some(credits));
    }
    let mut used = used;
    for plan in &mut *plans {
        plan.reserve(handle, used)?;
        used += plan.space();
    }
    // More where a block of a directory could only be had in several pieces.
    let now = plans.iter().fold(rest, |sum, plan| sum.saturating_add(plan.credits()));
    Ok(Some(now).filter(|&now| now > credits && !handle.has_room(now)))
}

pub(super) fn create(dir: &Live, name: &[u8], new: &NewInode<'_>) -> Result<Found> {
    let kind = new.kind.file_type();
    let is_directory = kind == FileType::Directory;
    let made = making(dir, new, usual_credits(&dir.volume), |handle, making| {
        let mut touch = touch(dir, dir.now(), i64::from(is_directory));
        if Making::may_be_first(new) {
            let number = making.number(handle, dir, new)?;
            let made = create_with(handle, dir, name, new, making, number, touch);
            if !matches!(made, Ok(Attempt::Done(_))) && !handle.writer().transactions.has_stopped() {
                making.give_back(handle, dir, new, number)?;
            }
            return made;
        }
        if !making.may_be_refused {
            if is_directory {
                check_room_for_directory(dir)?;
            }
            let mut number = None;
            let mut give = || -> Result<Ino> {
                let given = making.number(handle, dir, new)?;
                Ok(number.insert(given).ino)
            };
            let is_added = change::add(dir, handle, name, kind, &mut give, &mut touch)?;
            if let (true, Some(number)) = (is_added, number) {
                return handle.or_abort(making.fill(handle, dir, new, 1, number)).map(Attempt::Done);
            }
        }
        let mut change = Change::begin(dir, 0)?;
        change.add(name, None, kind)?;
        if is_directory {
            check_room_for_directory(dir)?;
        }
        if let Some(wanted) = lacks(handle, &mut [&mut change], making.credits, making.space)? {
            return Ok(Attempt::Wants(wanted));
        }
        let made = match making.make(handle, dir, new, 1)? {
            Attempt::Done(made) => made,
            Attempt::Wants(more) => return Ok(Attempt::Wants(more)),
        };
        let led = change.lead_to(name, made.ino, kind);
        handle.or_abort(led)?;
        change.apply(handle, touch)?;
        Ok(Attempt::Done(made))
    });
    Ok(found(made.map_err(|error| unless_there(dir, name, error))?))
}

/// Creates a name for a number that was taken. Where that is refused, nothing else has changed.
fn create_with(
    handle: &Handle<'_>,
    dir: &Live,
    name: &[u8],
    new: &NewInode<'_>,
    making: &Making,
    number: NewNumber,
    mut touch: impl FnMut(&mut Inode) -> bool,
) -> Result<Attempt<Arc<Live>>> {
    let kind = new.kind.file_type();
    if !change::add(dir, handle, name, kind, &mut || Ok(number.ino), &mut touch)? {
        let mut change = Change::begin(dir, 0)?;
        change.add(name, Some(number.ino), kind)?;
        if let Some(wanted) = lacks(handle, &mut [&mut change], STORE_CREDITS, 0)? {
            return Ok(Attempt::Wants(wanted));
        }
        change.apply(handle, touch)?;
    }
    handle.or_abort(making.fill(handle, dir, new, 1, number)).map(Attempt::Done)
}

pub(super) fn tmpfile(dir: &Live, new: &NewInode<'_>) -> Result<Found> {
    let made = making(dir, new, UNLINKED_CREDITS, |handle, making| {
        if !handle.has_room(making.credits + UNLINKED_CREDITS) {
            return Ok(Attempt::Wants(making.credits + UNLINKED_CREDITS));
        }
        let made = match making.make(handle, dir, new, 0)? {
            Attempt::Done(made) => made,
            Attempt::Wants(more) => return Ok(Attempt::Wants(more)),
        };
        made.linkable.store(true, Ordering::Relaxed);
        let listed = handle.writer().allocator.add_unlinked(handle, made.ino);
        handle.or_abort(listed)?;
        Ok(Attempt::Done(made))
    })?;
    Ok(found(made))
}

pub(super) fn link(dir: &Live, name: &[u8], node: &Arc<Node>) -> Result<()> {
    let target: &Live = node.inode_as()?;
    let (links, project) = {
        let fields = target.fields.read();
        (fields.core.links, fields.core.project)
    };
    if links == 0 && !target.linkable.load(Ordering::Relaxed) {
        return Err(unless_there(dir, name, Error::NotFound));
    }
    if links >= LINKS_MAX {
        return Err(unless_there(dir, name, Error::TooManyLinks));
    }
    check_project(dir, target.kind, project).map_err(|error| unless_there(dir, name, error))?;
    with_room(dir, usual_credits(&dir.volume) + LOSE_CREDITS, |handle| {
        let now = dir.now();
        let mut touch = touch(dir, now, 0);
        if !change::add(dir, handle, name, target.kind, &mut || Ok(target.ino), &mut touch)? {
            let mut change = Change::begin(dir, 0)?;
            change.add(name, Some(target.ino), target.kind)?;
            if let Some(wanted) = lacks(handle, &mut [&mut change], LOSE_CREDITS, 0)? {
                return Ok(Attempt::Wants(wanted));
            }
            change.apply(handle, touch)?;
        }
        let rest = || {
            if links == 0 {
                target.linkable.store(false, Ordering::Relaxed);
                handle.writer().allocator.remove_unlinked(handle, target.ino)?;
            }
            target.change_fields(handle, |fields| {
                fields.core.links += 1;
                target.note_change(fields, now);
            })
        };
        handle.or_abort(rest()).map(Attempt::Done)
    })
}

/// Runs `attempt`, and where it finds no space once more with directories that keep their blocks, for which removing names
/// takes none.
pub(super) fn or_keep_blocks<T>(mut attempt: impl FnMut(bool) -> Result<T>) -> Result<T> {
    match attempt(false) {
        Err(Error::NoSpace) => attempt(true),
        outcome => outcome,
    }
}

pub(super) fn unlink(dir: &Live, name: &[u8], victim: &Arc<Node>) -> Result<()> {
    or_keep_blocks(|keep| unlink_once(dir, name, victim.inode_as()?, keep))
}

/// With `keep` the directory keeps its blocks.
pub(super) fn unlink_once(dir: &Live, name: &[u8], victim: &Live, keep: bool) -> Result<()> {
    let is_directory = victim.kind == FileType::Directory;
    if is_directory && !dir::is_empty(victim)? {
        return Err(Error::NotEmpty);
    }
    with_room(dir, usual_credits(&dir.volume) + LOSE_CREDITS, |handle| {
        let now = dir.now();
        let touch = touch(dir, now, -i64::from(is_directory));
        if let Some(wanted) = remove(handle, dir, name, victim.ino, keep, LOSE_CREDITS, touch)? {
            return Ok(Attempt::Wants(wanted));
        }
        handle.or_abort(lose_name(handle, victim, now)).map(Attempt::Done)
    })
}

/// As [`unlink`], for the last name of a file that is not in use: if all of it goes in one step, it is deleted under
/// the same handle, and is never on an unlinked list.
pub(super) fn unlink_unused(dir: &Live, name: &[u8], victim: &Arc<Node>) -> Result<()> {
    let live: &Live = victim.inode_as()?;
    let Some(credits) = release::credits_at_once(live) else { return unlink(dir, name, victim) };
    or_keep_blocks(|keep| {
        with_room(dir, usual_credits(&dir.volume) + credits, |handle| {
            let touch = touch(dir, dir.now(), 0);
            if let Some(wanted) = remove(handle, dir, name, live.ino, keep, credits, touch)? {
                return Ok(Attempt::Wants(wanted));
            }
            handle.or_abort(release::delete_now(handle, live)).map(Attempt::Done)
        })
    })
}

/// Removes a name, in place or by a plan. Returns what the handle must have room for, where it lacks that, with `rest`
/// blocks that are changed beside it.
fn remove(
    handle: &Handle<'_>,
    dir: &Live,
    name: &[u8],
    ino: Ino,
    keep: bool,
    rest: u32,
    mut touch: impl FnMut(&mut Inode) -> bool,
) -> Result<Option<u32>> {
    if change::remove(dir, handle, name, ino, &mut touch)? {
        return Ok(None);
    }
    let mut change = begin(dir, 0, keep)?;
    change.remove(name, ino)?;
    if let Some(wanted) = lacks(handle, &mut [&mut change], rest, 0)? {
        return Ok(Some(wanted));
    }
    change.apply(handle, touch)?;
    Ok(None)
}

/// Begins the plan for a directory, which with `keep` keeps its blocks.
fn begin(dir: &Live, number: u32, keep: bool) -> Result<Change<'_>> {
    let mut change = Change::begin(dir, number)?;
    if keep {
        change.keep_blocks();
    }
    Ok(change)
}

pub(super) fn rename(
    dir: &Live,
    name: &[u8],
    moved: &Arc<Node>,
    to: &Node,
    to_name: &[u8],
    replaced: Option<&Arc<Node>>,
    whiteout: Option<&NewInode<'_>>,
) -> Result<()> {
    let (moved, to): (&Live, &Live) = (moved.inode_as()?, to.inode_as()?);
    let replaced: Option<&Live> = replaced.map(|replaced| replaced.inode_as()).transpose()?;
    let between = dir.ino != to.ino;
    let moves_up = moved.kind == FileType::Directory && between;
    if let Some(replaced) = replaced {
        if replaced.kind == FileType::Directory && !dir::is_empty(replaced)? {
            return Err(Error::NotEmpty);
        }
    } else if moves_up {
        check_room_for_directory(to)?;
    }
    let project = moved.fields.read().core.project;
    check_project(to, moved.kind, project)?;
    let replaced_directory = replaced.is_some_and(|replaced| replaced.kind == FileType::Directory);
    let gained = i64::from(moves_up) - i64::from(replaced_directory);
    let rest_credits = STORE_CREDITS + replaced.map_or(0, |_| LOSE_CREDITS);
    let attempt =
        |handle: &Handle<'_>, making: Option<&Making>, keep: bool| -> Result<Attempt<Option<Arc<Live>>>> {
            let changed = [Some(dir), between.then_some(to), moves_up.then_some(moved)];
            let mut plans = Plans::begin(&changed, keep)?;
            let target = plans.of(to);
            match replaced {
                Some(replaced) => target.replace(to_name, replaced.ino, Some(moved.ino), moved.kind)?,
                None => target.add(to_name, Some(moved.ino), moved.kind)?,
            }
            let source = plans.of(dir);
            match whiteout {
                Some(whiteout) => source.replace(name, moved.ino, None, whiteout.kind.file_type())?,
                None => source.remove(name, moved.ino)?,
            }
            if moves_up {
                let parent = plans.of(moved);
                check_parent(parent, dir)?;
                parent.set_parent(to.ino)?;
            }
            let (credits, space) = making.map_or((0, 0), |making| (making.credits, making.space));
            if let Some(wanted) = lacks(handle, &mut plans.all(), credits + rest_credits, space)? {
                return Ok(Attempt::Wants(wanted));
            }
            let mut made = None;
            if let (Some(whiteout), Some(making)) = (whiteout, making) {
                match making.make(handle, dir, whiteout, 1)? {
                    Attempt::Done(new) => {
                        let led = plans.of(dir).lead_to(name, new.ino, new.kind);
                        handle.or_abort(led)?;
                        made = Some(new);
                    }
                    Attempt::Wants(more) => return Ok(Attempt::Wants(more)),
                }
            }
            let now = dir.now();
            plans.apply(handle, |changed| {
                if changed == moved.ino {
                    return None;
                }
                Some(if changed == to.ino { (to, now, gained) } else { (dir, now, -i64::from(moves_up)) })
            })?;
            let rest = || {
                moved.change_fields(handle, |fields| moved.note_change(fields, now))?;
                replaced.map_or(Ok(()), |replaced| lose_name(handle, replaced, now))
            };
            handle.or_abort(rest()).map(|()| Attempt::Done(made))
        };
    let credits = 2 * usual_credits(&dir.volume) + rest_credits;
    or_keep_blocks(|keep| match whiteout {
        Some(new) => making(dir, new, credits, |handle, making| {
            Ok(match attempt(handle, Some(making), keep)? {
                Attempt::Done(Some(made)) => Attempt::Done(made),
                Attempt::Done(None) => unreachable!("a whiteout is made"),
                Attempt::Wants(more) => Attempt::Wants(more),
            })
        })
        .map(drop),
        None => with_room(dir, credits, |handle| attempt(handle, None, keep)).map(drop),
    })
}

pub(super) fn exchange(
    dir: &Live,
    name: &[u8],
    one: &Arc<Node>,
    to: &Node,
    to_name: &[u8],
    other: &Arc<Node>,
) -> Result<()> {
    let (one, to, other): (&Live, &Live, &Live) = (one.inode_as()?, to.inode_as()?, other.inode_as()?);
    let is_directory = |live: &Live| live.kind == FileType::Directory;
    let between = dir.ino != to.ino;
    // One parent gains a subdirectory and the other loses one, unless both or neither of the inodes are directories.
    let gained = if between { i64::from(is_directory(other)) - i64::from(is_directory(one)) } else { 0 };
    if gained != 0 {
        check_room_for_directory(if gained > 0 { dir } else { to })?;
    }
    let project = one.fields.read().core.project;
    check_project(to, one.kind, project)?;
    let moves = |live: &Live| between && is_directory(live);
    let rest_credits = 2 * STORE_CREDITS;
    with_room(dir, 2 * usual_credits(&dir.volume) + rest_credits, |handle| {
        let changed =
            [Some(dir), between.then_some(to), moves(one).then_some(one), moves(other).then_some(other)];
        let mut plans = Plans::begin(&changed, false)?;
        plans.of(dir).replace(name, one.ino, Some(other.ino), other.kind)?;
        plans.of(to).replace(to_name, other.ino, Some(one.ino), one.kind)?;
        for (live, old, new) in [(one, dir, to), (other, to, dir)] {
            if moves(live) {
                let parent = plans.of(live);
                check_parent(parent, old)?;
                parent.set_parent(new.ino)?;
            }
        }
        if let Some(wanted) = lacks(handle, &mut plans.all(), rest_credits, 0)? {
            return Ok(Attempt::Wants(wanted));
        }
        let now = dir.now();
        plans.apply(handle, |changed| {
            if changed == dir.ino {
                return Some((dir, now, gained));
            }
            (changed == to.ino).then_some((to, now, -gained))
        })?;
        // As Linux does: files that change places keep their times.
        let shows = moves(one) || moves(other);
        let rest = || {
            for live in [one, other].into_iter().filter(|_| shows) {
                live.change_fields(handle, |fields| {
                    if is_directory(live) {
                        fields.note_modification(now);
                    } else {
                        live.note_change(fields, now);
                    }
                })?;
            }
            Ok(())
        };
        handle.or_abort(rest()).map(Attempt::Done)
    })
}

/// Plans for several directories, which are locked in the order of their numbers.
struct Plans<'a>(Vec<(Ino, Change<'a>)>);

impl<'a> Plans<'a> {
    fn begin(dirs: &[Option<&'a Live>], keep: bool) -> Result<Self> {
        let mut dirs: Vec<&Live> = dirs.iter().flatten().copied().collect();
        dirs.sort_unstable_by_key(|dir| dir.ino);
        let begun = (0..).zip(dirs).map(|(number, dir)| Ok((dir.ino, begin(dir, number, keep)?)));
        Ok(Self(begun.collect::<Result<_>>()?))
    }

    fn of(&mut self, dir: &Live) -> &mut Change<'a> {
        match self.0.iter_mut().find(|(ino, _)| *ino == dir.ino) {
            Some((_, change)) => change,
            None => unreachable!("every directory that is changed has a plan"),
        }
    }

    fn all(&mut self) -> Vec<&mut Change<'a>> {
        self.0.iter_mut().map(|(_, change)| change).collect()
    }

    /// Applies all of them. `touched` says which directory's names have changed by the plan of this number, when, and how
    /// many directories it gains; `None` where nothing but its parent has changed.
    fn apply<'l>(
        self,
        handle: &Handle<'_>,
        touched: impl Fn(Ino) -> Option<(&'l Live, Timestamp, i64)>,
    ) -> Result<()> {
        for (ino, change) in self.0 {
            match touched(ino) {
                Some((live, now, gained)) => change.apply(handle, touch(live, now, gained))?,
                None => change.apply(handle, |_| false)?,
            }
        }
        Ok(())
    }
}

/// Refuses a directory that has another parent than the one in which it was found.
fn check_parent(change: &mut Change<'_>, parent: &Live) -> Result<()> {
    let found = change.parent()?;
    if found != parent.ino {
        return Err(crate::error::corrupt_inode(
            "directory",
            parent.ino,
            None,
            format!("has a directory whose parent is {found}"),
        ));
    }
    Ok(())
}

/// Returns `Exists` for a name that exists before any other error.
fn unless_there(dir: &Live, name: &[u8], refusal: Error) -> Error {
    match dir::lookup_live(dir, name) {
        Ok(Some(_)) => Error::Exists,
        _ => refusal,
    }
}

fn found(made: Arc<Live>) -> Found {
    Found::Made(made.ino, made)
}

/// Counts one name of `victim` less.
fn lose_name(handle: &Handle<'_>, victim: &Live, now: Timestamp) -> Result<()> {
    let last = victim.change_fields(handle, |fields| {
        let core = &mut fields.core;
        core.links = if victim.kind == FileType::Directory { 0 } else { core.links.saturating_sub(1) };
        victim.note_change(fields, now);
        fields.core.links == 0
    })?;
    if last {
        handle.writer().allocator.add_unlinked(handle, victim.ino)?;
    }
    Ok(())
}

/// Notes a change of a directory's names, and `gained` more subdirectories. Returns whether the inode is to be stored.
///
/// Of the changes within one tick of the coarse clock only the first is stored: the others would store the same time.
/// If the times were read since, the clock is precise and the next change is stored.
fn touch(dir: &Live, now: Timestamp, gained: i64) -> impl FnMut(&mut Inode) -> bool {
    move |inode| {
        let nearest = inode.nearest_time(now);
        if gained == 0
            && !dir.lazy_times.is_set()
            && inode.core.modified == nearest
            && inode.core.changed == nearest
        {
            return false;
        }
        inode.note_modification(now);
        let links = i64::from(inode.core.links).saturating_add(gained);
        inode.core.links = u32::try_from(links).unwrap_or(0).max(u32::from(inode.core.links > 0));
        true
    }
}

/// Refuses one more directory where the count is full.
fn check_room_for_directory(dir: &Live) -> Result<()> {
    if dir.fields.read().core.links >= LINKS_MAX { Err(Error::TooManyLinks) } else { Ok(()) }
}

/// Refuses a file of another project in a directory that hands its project on. Device nodes and the like may have none.
fn check_project(dir: &Live, kind: FileType, project: u32) -> Result<()> {
    let inheritance = dir.permissions_cache.inheritance();
    let is_special = !matches!(kind, FileType::Regular | FileType::Directory | FileType::Symlink);
    if inheritance.flags.contains(DiFlags::PROJECT_INHERIT)
        && inheritance.project != project
        && !(is_special && project == 0)
    {
        return Err(Error::CrossDevice);
    }
    Ok(())
}

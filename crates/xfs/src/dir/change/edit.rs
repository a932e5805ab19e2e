//! Names added, removed and led elsewhere, in whichever form the directory is.

use undercroft_vfs::{Error, FileType, Ino, Result};

use super::super::data::DataBlock;
use super::super::entry::{Position, code_of, entry_bytes};
use super::super::short::dots;
use super::data::{New, put_target};
use super::plan::{Change, TreeBlock};
use super::raw;
use super::short::Short;
use super::tree::Path;
use crate::da::fold_case;
use crate::format::block_header::HeaderKind;
use crate::inode::Fork;
use crate::transaction::Seal;

/// The form of a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    Short,
    Block,
    Leaf,
    Tree,
}

/// A name that was found in blocks.
#[derive(Clone, Debug)]
pub(super) struct Hit {
    /// The number of the block of names, and the byte in it.
    pub(super) block: u32,
    pub(super) at: usize,
    pub(super) name_bytes: usize,
    pub(super) ino: u64,
    /// The number of its entry in the index.
    pub(super) item: usize,
    /// The leaf of a tree that has this entry.
    pub(super) path: Option<Path>,
}

impl Change<'_> {
    /// Adds a name. Where `ino` is not known yet, [`lead_to`](Self::lead_to) follows before the plan is applied.
    ///
    /// # Errors
    /// [`Exists`](Error::Exists); [`NoSpace`](Error::NoSpace) for a directory that cannot grow; corruption; I/O failure.
    pub(crate) fn add(&mut self, name: &[u8], ino: Option<Ino>, kind: FileType) -> Result<()> {
        let ino = ino.map_or_else(|| self.widest_ino(), |ino| ino.0);
        let new = New { name, ino, kind: code_of(kind) };
        if self.form()? == Form::Short {
            let mut short = self.short()?;
            if short.find(name, self.layout.folds_case).is_some() {
                return Err(Error::Exists);
            }
            if short.enter(&self.layout.clone(), &new) && self.fits_inode(&short) {
                self.set_short(&short);
                return Ok(());
            }
            let short = self.short()?;
            self.short_to_block(&short)?;
        } else if self.find(name)?.is_some() {
            return Err(Error::Exists);
        }
        let hash = self.layout.hash(name);
        if self.form()? == Form::Block {
            if self.block_add(&new, hash)? {
                return Ok(());
            }
            self.block_to_leaf()?;
        }
        if self.form()? == Form::Leaf {
            if self.leaf_add(&new, hash)? {
                return Ok(());
            }
            self.leaf_to_tree()?;
        }
        self.tree_add(&new, hash)
    }

    /// Moves names that lie in the inode to a block: the inode's room is needed for something else.
    ///
    /// # Errors
    /// Corruption.
    pub(crate) fn leave_inode(&mut self) -> Result<()> {
        if self.form()? == Form::Short {
            let short = self.short()?;
            self.short_to_block(&short)?;
        }
        Ok(())
    }

    /// Removes a name that leads to `ino`.
    ///
    /// # Errors
    /// [`NotFound`](Error::NotFound); corruption; I/O failure.
    pub(crate) fn remove(&mut self, name: &[u8], ino: Ino) -> Result<()> {
        let form = self.form()?;
        if form == Form::Short {
            let mut short = self.short()?;
            let found = short.find(name, self.layout.folds_case);
            let found = found.filter(|&found| short.entries[found].ino == ino.0).ok_or(Error::NotFound)?;
            short.entries.remove(found);
            self.set_short(&short);
            return Ok(());
        }
        let hit = self.find(name)?.filter(|hit| hit.ino == ino.0).ok_or(Error::NotFound)?;
        match form {
            Form::Short | Form::Block => self.block_remove(&hit),
            Form::Leaf => self.leaf_remove(&hit),
            Form::Tree => self.tree_remove(hit),
        }
    }

    /// Lets a name lead to another inode.
    ///
    /// # Errors
    /// As for [`remove`](Self::remove), and as for [`add`](Self::add) where the number has no room in the inode.
    pub(crate) fn replace(&mut self, name: &[u8], old: Ino, ino: Option<Ino>, kind: FileType) -> Result<()> {
        let new_ino = ino.map_or_else(|| self.widest_ino(), |ino| ino.0);
        if self.form()? == Form::Short {
            let mut short = self.short()?;
            let found = short.find(name, self.layout.folds_case);
            let found = found.filter(|&found| short.entries[found].ino == old.0).ok_or(Error::NotFound)?;
            (short.entries[found].ino, short.entries[found].kind) = (new_ino, code_of(kind));
            if self.fits_inode(&short) {
                self.set_short(&short);
                return Ok(());
            }
            return self.short_to_block(&short);
        }
        let hit = self.find(name)?.filter(|hit| hit.ino == old.0).ok_or(Error::NotFound)?;
        self.put_ino(hit.block, hit.at, hit.name_bytes, new_ino, code_of(kind))
    }

    /// Gives the number to a name that was added, or led elsewhere, when it was not known.
    ///
    /// # Errors
    /// Corruption; I/O failure.
    pub(crate) fn lead_to(&mut self, name: &[u8], ino: Ino, kind: FileType) -> Result<()> {
        let widest = Ino(self.widest_ino());
        self.replace(name, widest, Some(ino), kind)
    }

    /// The directory's parent.
    ///
    /// # Errors
    /// Corruption; I/O failure.
    pub(crate) fn parent(&mut self) -> Result<Ino> {
        if self.form()? == Form::Short {
            return Ok(Ino(self.short()?.parent));
        }
        Ok(Ino(self.parent_place()?.1))
    }

    /// Moves the directory below another parent.
    ///
    /// # Errors
    /// Corruption; I/O failure.
    pub(crate) fn set_parent(&mut self, parent: Ino) -> Result<()> {
        if self.form()? == Form::Short {
            let mut short = self.short()?;
            short.parent = parent.0;
            if self.fits_inode(&short) {
                self.set_short(&short);
                return Ok(());
            }
            return self.short_to_block(&short);
        }
        let (at, _) = self.parent_place()?;
        self.put_ino(0, at, 2, parent.0, code_of(FileType::Directory))
    }

    /// Where `..` is in the first block, and where it leads.
    fn parent_place(&mut self) -> Result<(usize, u64)> {
        let single = self.form()? == Form::Block;
        self.load(0, HeaderKind::DirBlock)?;
        let (_, at) = dots(&self.layout)[1].split(&self.layout);
        let entry =
            DataBlock::validate(self.bytes(0), &self.layout, 0, single).and_then(|data| data.entry(at));
        let entry = self.checked(0, entry)?;
        if entry.name != b".." {
            let detail = format!("has \"{}\" in the place of \"..\"", entry.name.escape_ascii());
            return Err(self.corrupt(self.home(0), detail));
        }
        Ok((at, entry.ino))
    }

    fn put_ino(&mut self, block: u32, at: usize, name_bytes: usize, ino: u64, kind: u8) -> Result<()> {
        let seal = if self.form()? == Form::Block { Seal::DirBlock } else { Seal::DirData };
        let (layout, from) = (self.layout, self.layout.names_at(block));
        put_target(self.edit(from, seal), &layout, at, name_bytes, ino, kind);
        Ok(())
    }

    /// A number that no file has, which takes as many bytes as the filesystem's last number.
    fn widest_ino(&self) -> u64 {
        let geometry = self.volume.geometry();
        let last = geometry.ags().last().and_then(|ag| geometry.join_ino(ag, crate::format::AgIno(0)));
        let wide = last.is_none_or(|last| last.0 > u64::from(u32::MAX));
        if wide { u64::MAX >> 8 } else { u64::from(u32::MAX) }
    }

    /// Which form the directory has.
    pub(super) fn form(&mut self) -> Result<Form> {
        if self.is_short() {
            return Ok(Form::Short);
        }
        let root = self.layout.index_start();
        if !self.is_present(root)? {
            return Ok(Form::Block);
        }
        Ok(match self.load_tree(root)? {
            TreeBlock::OnlyLeaf => Form::Leaf,
            TreeBlock::Leaf | TreeBlock::Node(_) => Form::Tree,
        })
    }

    pub(super) fn short(&self) -> Result<Short> {
        let bytes: &[u8] = if let Fork::Local(bytes) = &self.inode.data { bytes } else { &[] };
        self.validated(None, Short::read(bytes, &self.layout))
    }

    pub(super) fn fits_inode(&self, short: &Short) -> bool {
        short.fits(&self.layout, self.inode.core.data_fork.len())
    }

    pub(super) fn set_short(&mut self, short: &Short) {
        let bytes = short.write(&self.layout);
        self.inode.core.size_bytes = bytes.len() as u64;
        self.inode.data = Fork::Local(bytes.into());
        self.inode_changes = true;
    }

    /// A name of a directory in blocks.
    fn find(&mut self, name: &[u8]) -> Result<Option<Hit>> {
        let hash = self.layout.hash(name);
        match self.form()? {
            Form::Short => Ok(None),
            Form::Block => {
                let items = self.block_items()?;
                let first = items.partition_point(|item| item.0 < hash);
                let same = items.iter().enumerate().skip(first).take_while(|(_, item)| item.0 == hash);
                let same: Vec<_> = same.map(|(number, item)| (number, item.1)).collect();
                Ok(self.find_among(&same, name, true)?.map(|(hit, _)| hit))
            }
            Form::Leaf => {
                let same = self.with_hash(self.layout.index_start(), hash);
                Ok(self.find_among(&same, name, false)?.map(|(hit, _)| hit))
            }
            Form::Tree => self.tree_find(name, hash),
        }
    }

    /// The entries of a leaf with this hash: their numbers, and where they lead.
    pub(super) fn with_hash(&self, leaf: u32, hash: u32) -> Vec<(usize, u32)> {
        let bytes = self.bytes(leaf);
        let numbers = raw::place_of(bytes, hash)..raw::count(bytes);
        let items = numbers.map(|number| (number, raw::item(bytes, number)));
        items.take_while(|(_, item)| item.0 == hash).map(|(number, item)| (number, item.1)).collect()
    }

    /// The one of these entries of the index that leads to the name, and whether it is equal in every byte.
    pub(super) fn find_among(
        &mut self,
        items: &[(usize, u32)],
        name: &[u8],
        single: bool,
    ) -> Result<Option<(Hit, bool)>> {
        let mut folded = None;
        for &(item, address) in items.iter().filter(|item| item.1 != 0) {
            let (number, at) = Position(u64::from(address)).split(&self.layout);
            let block = u32::try_from(number).unwrap_or(u32::MAX);
            if block >= self.layout.names_end() || single && block != 0 {
                return Err(self.corrupt(None, format!("its index leads to block {block}")));
            }
            let from = self.layout.names_at(block);
            self.load(from, HeaderKind::DirBlock)?;
            let entry = DataBlock::validate(self.bytes(from), &self.layout, number, single);
            let entry = self.checked(from, entry.and_then(|data| data.entry(at)))?;
            let hit = Hit { block, at, name_bytes: entry.name.len(), ino: entry.ino, item, path: None };
            if entry.name == name {
                return Ok(Some((hit, true)));
            }
            if folded.is_none() && self.layout.folds_case && is_same_folded(entry.name, name) {
                folded = Some((hit, false));
            }
        }
        Ok(folded)
    }

    /// Bytes that a name takes in a block.
    pub(super) fn entry_bytes(&self, name_bytes: usize) -> usize {
        entry_bytes(&self.layout, name_bytes)
    }

    /// The position of a byte of a block of names, as the index has it.
    pub(super) fn address(&self, block: u32, at: usize) -> u32 {
        Position::of(&self.layout, u64::from(block), at).0 as u32
    }
}

/// Whether two names differ by nothing but capital letters.
pub(super) fn is_same_folded(one: &[u8], other: &[u8]) -> bool {
    let fold = |byte: &u8| fold_case(*byte);
    one.len() == other.len() && one.iter().map(fold).eq(other.iter().map(fold))
}

//! Path walking: from a path to a node.
//!
//! Relative paths start at the root, as absolute ones do. The walk is a loop: the target of a symbolic link
//! becomes a new segment in front of what is left of the path, and the directories passed are kept on a stack,
//! so that `..` needs no disk and a false `..` on a disk leads nowhere. Symbolic links are limited in number and
//! length, which bounds the work and the memory.
//!
//! Every directory must let the user pass (execute permission), also for `.` and `..`. A slash after the last
//! name demands a directory and follows a symbolic link.

use std::borrow::Cow;
use std::sync::Arc;

use crate::{Access, Credentials, Error, File, FileType, Node, Result, Vfs, check_access};

/// What to do when the last name is a symbolic link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Follow {
    /// Give what it points to.
    Last,
    /// Give the link itself.
    NoFollow,
}

/// Longest path, and longest target of a symbolic link, in bytes: Linux's 4096 less the terminating NUL.
pub const PATH_MAX_BYTES: usize = 4095;

/// Most symbolic links that one walk follows.
const SYMLINKS_MAX: u32 = 40;

impl Vfs {
    /// The node that a path stands for.
    ///
    /// # Errors
    /// [`NotFound`](Error::NotFound), [`NotDirectory`](Error::NotDirectory),
    /// [`PermissionDenied`](Error::PermissionDenied), [`NameTooLong`](Error::NameTooLong),
    /// [`TooManySymlinks`](Error::TooManySymlinks), [`InvalidArgument`](Error::InvalidArgument) for a path with
    /// a NUL byte; the filesystem's own.
    pub fn resolve(&self, caller: &Credentials, path: impl AsRef<[u8]>, follow: Follow) -> Result<Arc<Node>> {
        self.walk_path(caller, path.as_ref(), follow)
    }

    fn walk_path(&self, caller: &Credentials, path: &[u8], follow: Follow) -> Result<Arc<Node>> {
        check_path(path)?;
        let root = self.root_ref()?;
        let mut rest = Rest(vec![Segment { bytes: Cow::Borrowed(path), at: 0 }]);
        // The directories from below the root down to where the walk is.
        let mut passed: Vec<Arc<Node>> = Vec::new();
        let mut symlinks = 0;

        while let Some(name) = rest.next_name() {
            let dir = passed.last().unwrap_or(root);
            check_access(caller, dir, Access::EXECUTE)?;
            if rest.name(&name) == b"." {
                continue;
            }
            if rest.name(&name) == b".." {
                passed.pop();
                continue;
            }
            let node = self.lookup(dir, rest.name(&name))?;
            let more = rest.more();
            match node.kind() {
                FileType::Directory => passed.push(node),
                FileType::Symlink if more != More::Nothing || follow == Follow::Last => {
                    symlinks += 1;
                    if symlinks > SYMLINKS_MAX {
                        return Err(Error::TooManySymlinks);
                    }
                    let target = node.read_link()?;
                    if target.is_empty() {
                        return Err(Error::NotFound);
                    }
                    if target.len() > PATH_MAX_BYTES {
                        return Err(Error::NameTooLong);
                    }
                    if target[0] == b'/' {
                        passed.clear();
                    }
                    rest.push(target);
                }
                _ if more == More::Nothing => return Ok(node),
                _ => return Err(Error::NotDirectory),
            }
        }
        Ok(passed.pop().unwrap_or_else(|| Arc::clone(root)))
    }

    /// Opens the regular file that a path stands for, following symbolic links, if `caller` may read it.
    ///
    /// # Errors
    /// As for [`resolve`](Self::resolve) and [`open_node`](Self::open_node).
    pub fn open(&self, caller: &Credentials, path: impl AsRef<[u8]>) -> Result<File> {
        let node = self.resolve(caller, path, Follow::Last)?;
        node.check_regular()?;
        check_access(caller, &node, Access::READ)?;
        self.open_node(&node)
    }

    /// Opens the regular file that a path stands for, following symbolic links, if `caller` may read and write it.
    ///
    /// # Errors
    /// As for [`resolve`](Self::resolve) and [`open_node_for_writing`](Self::open_node_for_writing).
    pub fn open_for_writing(&self, caller: &Credentials, path: impl AsRef<[u8]>) -> Result<File> {
        let node = self.resolve(caller, path, Follow::Last)?;
        let file = self.open_node_for_writing(&node)?;
        check_access(caller, &node, Access::READ | Access::WRITE)?;
        Ok(file)
    }
}

/// Refuses a path that cannot be.
pub(crate) fn check_path(path: &[u8]) -> Result<()> {
    if path.is_empty() {
        return Err(Error::NotFound);
    }
    if path.len() > PATH_MAX_BYTES {
        return Err(Error::NameTooLong);
    }
    if path.contains(&0) {
        return Err(Error::InvalidArgument("a path cannot hold a NUL byte"));
    }
    Ok(())
}

/// What is left of the path: the path itself and above it the targets of links that are being followed, each
/// with the position up to which it is consumed. The last segment comes next.
struct Rest<'a>(Vec<Segment<'a>>);

struct Segment<'a> {
    bytes: Cow<'a, [u8]>,
    at: usize,
}

/// A name within the last segment.
struct Name {
    start: usize,
    end: usize,
}

/// What follows a name.
#[derive(Clone, Copy, PartialEq, Eq)]
enum More {
    Nothing,
    /// Only slashes: the name must stand for a directory.
    Slashes,
    Names,
}

impl Rest<'_> {
    /// Consumes the next name; `None` at the end of the path.
    fn next_name(&mut self) -> Option<Name> {
        loop {
            let segment = self.0.last_mut()?;
            let left = &segment.bytes[segment.at..];
            let Some(slashes) = left.iter().position(|&byte| byte != b'/') else {
                self.0.pop();
                continue;
            };
            let start = segment.at + slashes;
            let len = left[slashes..].iter().position(|&byte| byte == b'/').unwrap_or(left.len() - slashes);
            segment.at = start + len;
            return Some(Name { start, end: segment.at });
        }
    }

    /// The bytes of the name that was consumed last.
    fn name(&self, name: &Name) -> &[u8] {
        self.0.last().map_or(&[], |segment| &segment.bytes[name.start..name.end])
    }

    fn more(&self) -> More {
        let mut more = More::Nothing;
        for segment in &self.0 {
            let left = &segment.bytes[segment.at..];
            if left.iter().any(|&byte| byte != b'/') {
                return More::Names;
            }
            if !left.is_empty() {
                more = More::Slashes;
            }
        }
        more
    }

    fn push(&mut self, target: Vec<u8>) {
        self.0.push(Segment { bytes: Cow::Owned(target), at: 0 });
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::VfsOptions;
    use crate::conformance::{Content, Object, Tree};
    use crate::memory_fs::MemoryFs;

    /// The tree as the model sees it: canonical paths as lists of names.
    #[derive(Debug)]
    struct Model {
        objects: BTreeMap<Vec<String>, Kind>,
    }

    #[derive(Clone, Debug)]
    enum Kind {
        Directory { open: bool },
        File,
        Link(String),
    }

    impl Model {
        /// Path resolution as one would explain it: name by name, and a link is resolved by resolving its
        /// target from the directory where the link is.
        fn resolve(
            &self,
            from: &[String],
            path: &str,
            follow: bool,
            links: &mut u32,
        ) -> std::result::Result<Vec<String>, &'static str> {
            let mut at = if path.starts_with('/') { Vec::new() } else { from.to_vec() };
            let names: Vec<&str> = path.split('/').filter(|name| !name.is_empty()).collect();
            for (position, name) in names.iter().enumerate() {
                let last = position + 1 == names.len();
                match self.objects[&at] {
                    Kind::Directory { open: true } => {}
                    Kind::Directory { open: false } => return Err("PermissionDenied"),
                    _ => return Err("NotDirectory"),
                }
                let next = match *name {
                    "." => at.clone(),
                    ".." => at[..at.len().saturating_sub(1)].to_vec(),
                    name => [&at[..], &[name.to_owned()]].concat(),
                };
                at = match self.objects.get(&next).ok_or("NotFound")? {
                    Kind::Link(target) if !last || follow || path.ends_with('/') => {
                        *links += 1;
                        if *links > 40 {
                            return Err("TooManySymlinks");
                        }
                        self.resolve(&at, target, true, links)?
                    }
                    _ => next,
                };
            }
            if path.ends_with('/') && !matches!(self.objects[&at], Kind::Directory { .. }) {
                return Err("NotDirectory");
            }
            Ok(at)
        }
    }

    /// Paths over few names, with dots and slashes everywhere.
    fn path() -> impl Strategy<Value = String> {
        let name = prop::sample::select(vec!["a", "a", "b", "b", "c", ".", "..", "x"]);
        let slashes = || prop::sample::select(vec!["/", "/", "//"]);
        (prop::option::of(slashes()), prop::collection::vec((name, slashes()), 1..6), any::<bool>()).prop_map(
            |(front, parts, slash_last)| {
                let mut path = front.unwrap_or("").to_owned();
                for (name, slash) in parts {
                    path.push_str(name);
                    path.push_str(slash);
                }
                if !slash_last {
                    path.truncate(path.trim_end_matches('/').len());
                }
                path
            },
        )
    }

    /// A few objects; each is put below one of the directories made before it.
    fn model() -> impl Strategy<Value = Model> {
        let kind = prop_oneof![
            4 => prop::bool::weighted(0.9).prop_map(|open| Kind::Directory { open }),
            1 => Just(Kind::File),
            3 => path().prop_map(Kind::Link),
        ];
        let name = prop::sample::select(vec!["a", "b", "c"]);
        prop::collection::vec((any::<prop::sample::Index>(), name, kind), 1..15).prop_map(|made| {
            let mut objects = BTreeMap::from([(Vec::new(), Kind::Directory { open: true })]);
            for (parent, name, kind) in made {
                let is_directory =
                    |object: &(&Vec<String>, &Kind)| matches!(object.1, Kind::Directory { .. });
                let directories: Vec<_> = objects.iter().filter(is_directory).collect();
                let mut path = directories[parent.index(directories.len())].0.clone();
                path.push(name.to_owned());
                objects.entry(path).or_insert(kind);
            }
            Model { objects }
        })
    }

    fn tree_of(model: &Model) -> Tree {
        let mut tree = Tree::new();
        for (path, kind) in model.objects.iter().skip(1) {
            let path = path.join("/");
            match kind {
                Kind::Directory { open } => {
                    tree.add(path, Object::Directory).owned(if *open { 0o711 } else { 0o700 }, 1, 1)
                }
                Kind::File => tree.add(path, Object::File(Content::default())),
                Kind::Link(target) => tree.add(path, Object::Symlink(target.clone().into_bytes())),
            };
        }
        tree
    }

    proptest! {
        #[test]
        fn agrees_with_the_model(model in model(), queries in prop::collection::vec((path(), any::<bool>()), 20)) {
            let fs = MemoryFs::new(&tree_of(&model));
            let options = VfsOptions::default();
            let (vfs, fs) = fs.mount(options.inode_cache_bytes, options.name_cache_bytes);
            let caller = Credentials::user(9, 9, vec![]);
            for (path, follow) in queries {
                let expected = model.resolve(&[], &path, follow, &mut 0);
                let follow = if follow { Follow::Last } else { Follow::NoFollow };
                match (vfs.resolve(&caller, path.as_bytes(), follow), expected) {
                    (Ok(node), Ok(expected)) => {
                        prop_assert_eq!(node.ino(), fs.ino(&expected.join("/")), "{}", path);
                    }
                    (Err(error), Err(expected)) => prop_assert_eq!(format!("{error:?}"), expected, "{}", path),
                    (got, expected) => prop_assert!(false, "{path}: {got:?}, expected {expected:?}"),
                }
            }
        }
    }

    #[test]
    fn the_longest_path_is_4095_bytes() {
        let (vfs, _) = MemoryFs::new(&Tree::new()).mount(1 << 20, 1 << 20);
        let resolve = |len| vfs.resolve(&Credentials::root(), vec![b'/'; len], Follow::Last);
        assert!(resolve(4095).is_ok());
        assert!(matches!(resolve(4096), Err(Error::NameTooLong)));
    }

    #[test]
    fn hostile_link_targets_are_refused() {
        let mut tree = Tree::new();
        tree.add("empty", Object::Symlink(Vec::new()));
        tree.add("long", Object::Symlink(vec![b'/'; 4096]));
        tree.add("longest", Object::Symlink(vec![b'/'; 4095]));
        tree.add("nul", Object::Symlink(b"a\0b".to_vec()));
        let (vfs, _) = MemoryFs::new(&tree).mount(1 << 20, 1 << 20);
        let resolve = |path: &str| vfs.resolve(&Credentials::root(), path.as_bytes(), Follow::Last);
        assert!(matches!(resolve("empty"), Err(Error::NotFound)));
        assert!(matches!(resolve("long"), Err(Error::NameTooLong)));
        assert!(matches!(resolve("nul"), Err(Error::InvalidArgument(_))));
        assert_eq!(resolve("longest").unwrap().ino(), vfs.root().unwrap().ino());
    }

    #[test]
    fn a_directory_with_a_false_parent_is_refused() {
        let mut tree = Tree::new();
        for path in ["a", "a/b", "elsewhere"] {
            tree.add(path, Object::Directory);
        }
        let mut fs = MemoryFs::new(&tree);
        let elsewhere = fs.ino("elsewhere");
        fs.inode_mut("a/b").names[1].1 = elsewhere;
        let (vfs, _) = fs.mount(1 << 20, 1 << 20);
        for path in ["/a/b", "/a/b/.."] {
            let refused = vfs.resolve(&Credentials::root(), path.as_bytes(), Follow::Last);
            assert!(matches!(refused, Err(Error::Corrupt(_))), "{path}: {refused:?}");
        }
    }
}

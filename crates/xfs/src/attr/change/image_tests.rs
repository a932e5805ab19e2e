//! Attributes changed by us, of files of every kind that the kernel made, and shown by the kernel afterwards.

use std::collections::BTreeMap;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use undercroft_block::testing::Rng;
use undercroft_oracle::{Image, MkfsXfs, MountMode, Tool, kernel_manifest};
use undercroft_vfs::{AttrChange, Error, Inode as _, Result, XattrMode};

use super::remove_all;
use crate::dir;
use crate::inode::Fork;
use crate::live::Live;
use crate::map::change::Progress;
use crate::options::WriteOptions;
use crate::testing::writable::{Writable, check_image};

/// Attributes by name.
type Model = BTreeMap<Vec<u8>, Vec<u8>>;

/// Names of files, each of which keeps other things in its data fork.
const FILES: [&str; 13] = [
    "empty",
    "extents-1",
    "extents-12",
    "extents-17",
    "extents-19",
    "extents-21",
    "extents-300",
    "link-short",
    "link-long",
    "directory-empty",
    "directory-full",
    "directory-block",
    "fifo",
];

fn fill(root: &Path) {
    for name in FILES {
        let path = root.join(name);
        match name.split_once('-') {
            None if name == "fifo" => drop(Tool::new("mkfifo").arg(&path).run().unwrap()),
            None => std::fs::write(&path, "").unwrap(),
            Some(("extents", count)) => {
                let file = std::fs::File::create(&path).unwrap();
                for n in 0..count.parse().unwrap() {
                    file.write_all_at(&[n as u8; 4096], n * 3 * 4096).unwrap();
                    file.sync_all().unwrap();
                }
            }
            Some(("link", len)) => {
                let len = if len == "short" { 30 } else { 330 };
                std::os::unix::fs::symlink("t/".repeat(len / 2), &path).unwrap();
            }
            Some((_, what)) => {
                std::fs::create_dir(&path).unwrap();
                let count = ["empty", "full", "block"].iter().position(|each| *each == what).unwrap();
                for n in 0..[0, 15, 60][count] {
                    std::fs::write(path.join(format!("entry-{n:06}")), "").unwrap();
                }
            }
        }
    }
}

fn image(size_mib: u64, args: &str) -> Image {
    let image = MkfsXfs::new(size_mib, args).make().unwrap();
    let mount = image.mount(MountMode::ReadWrite, "").unwrap();
    fill(mount.path());
    mount.unmount().unwrap();
    image
}

fn live(writable: &Writable, name: &str) -> Arc<Live> {
    let ino = dir::lookup_live(&writable.root(), name.as_bytes()).unwrap().unwrap();
    writable.live(ino)
}

fn set(live: &Live, name: &str, value: &[u8]) -> Result<()> {
    live.set_xattr(name.as_bytes(), Some(value), XattrMode::Set, &AttrChange::default())
}

fn remove(live: &Live, name: &str) -> Result<()> {
    live.set_xattr(name.as_bytes(), None, XattrMode::Replace, &AttrChange::default())
}

/// The stored form of lists, which are listed twice, is left out.
fn without_stored_lists(mut model: Model) -> Model {
    model.retain(|name, _| !name.starts_with(b"trusted.SGI_ACL"));
    model
}

fn shown(live: &Live) -> Model {
    let names = live.list_xattrs().unwrap();
    without_stored_lists(
        names.into_iter().map(|name| (name.clone(), live.xattr(&name).unwrap().unwrap())).collect(),
    )
}

fn check_by_kernel(image: &Image, models: &[(&str, Model)]) {
    let mount = image.mount(MountMode::ReadOnly, "").unwrap();
    let manifest = kernel_manifest(mount.path()).unwrap();
    for (name, model) in models {
        let found = without_stored_lists(manifest.entries[name.as_bytes()].xattrs.clone());
        assert!(found.keys().eq(model.keys()), "{name}");
        for (attribute, value) in &found {
            assert!(*value == model[attribute], "{} of {name}", attribute.escape_ascii());
        }
    }
    mount.unmount().unwrap();
}

/// `getxattr`'s form of a list with an entry for one user.
fn acl(user: u32) -> Vec<u8> {
    let entry = |tag: u16, permissions: u16, id: u32| {
        [&tag.to_le_bytes()[..], &permissions.to_le_bytes(), &id.to_le_bytes()].concat()
    };
    let none = u32::MAX;
    [
        2_u32.to_le_bytes().to_vec(),
        entry(1, 6, none),
        entry(2, 7, user),
        entry(4, 4, none),
        entry(0x10, 7, none),
        entry(0x20, 4, none),
    ]
    .concat()
}

fn may_have(file: &str, name: &str) -> bool {
    let is_special = file == "fifo" || file.starts_with("link");
    !is_special || !(name.starts_with("user.") || name.starts_with("system."))
}

/// Sets and removes at random and compares with the model, then lets xfs_repair and the kernel check.
fn random_changes(args: &str, rounds: usize, seed: u64) {
    let mut names: Vec<String> = [
        "user.small",
        "trusted.t",
        "user.a",
        "security.something longer than others",
        "system.posix_acl_access",
        "trusted.\u{e4}\u{f6}\u{fc}",
    ]
    .map(str::to_owned)
    .into();
    let mut random = Rng::new(seed);
    for n in 0..80 {
        let prefix = ["user.", "trusted.", "security."][n % 3];
        names.push(format!("{prefix}{}{n}", "name".repeat(random.index(60))));
    }
    let writable = Writable::open(image(200, args), WriteOptions::default());
    let files: Vec<Arc<Live>> = FILES.iter().map(|name| live(&writable, name)).collect();
    let mut models: Vec<Model> = files.iter().map(|file| shown(file)).collect();
    let block_bytes = writable.volume.geometry().block_bytes() as usize;
    let lengths =
        [0, 3, 30, 80, 200, 260, 700, block_bytes / 4 * 3 - 40, block_bytes, 5 * block_bytes, 65_000];
    let mut kept = 0;
    for round in 0..rounds {
        let n = random.index(FILES.len());
        let (file, model) = (&files[n], &mut models[n]);
        // A file has few attributes first, then many, then few again.
        let phase = round * 4 / rounds;
        let pool = if phase == 1 || phase == 2 { names.len() } else { 8 };
        let name = &names[random.index(pool)];
        if !may_have(FILES[n], name) {
            continue;
        }
        let large = random.index(if phase == 1 { 8 } else { 4 }) == 0;
        let len = lengths[random.index(if large { lengths.len() } else { 6 })] + random.index(40);
        let value = match name.as_str() {
            "system.posix_acl_access" => acl(random.index(3) as u32),
            _ => vec![b'a' + random.index(20) as u8; len],
        };
        let sets = random.index(6) < if phase == 3 { 2 } else { 4 };
        let value = sets.then_some(value);
        let mode = [XattrMode::Set, XattrMode::Set, XattrMode::Create, XattrMode::Replace][random.index(4)];
        let there = model.contains_key(name.as_bytes());
        let result = file.set_xattr(name.as_bytes(), value.as_deref(), mode, &AttrChange::default());
        match result {
            Ok(()) => {
                kept += 1;
                match value {
                    Some(value) => model.insert(name.as_bytes().into(), value),
                    None => model.remove(name.as_bytes()),
                };
            }
            Err(Error::Exists) => assert!(there && mode == XattrMode::Create),
            Err(Error::NoAttribute) => assert!(!there && (mode == XattrMode::Replace || value.is_none())),
            Err(error) => panic!("round {round}: {name} of {}: {error}", FILES[n]),
        }
        assert_eq!(
            file.xattr(name.as_bytes()).unwrap().as_ref(),
            model.get(name.as_bytes()),
            "round {round}"
        );
        if round % 16 == 0 {
            writable.commit();
            assert!(shown(file) == *model, "round {round}, {}, {name}", FILES[n]);
        }
        if round % (rounds / 5) == rounds / 5 - 1 {
            writable.check();
        }
    }
    assert!(kept > rounds / 4, "{kept} changes");
    drop(files);
    let image = writable.finish();
    let models: Vec<(&str, Model)> = FILES.into_iter().zip(models).collect();
    check_by_kernel(&image, &models);
    changed_by_kernel(&image, &models);
}

/// The kernel changes what we have written.
fn changed_by_kernel(image: &Image, models: &[(&str, Model)]) {
    let mount = image.mount(MountMode::ReadWrite, "").unwrap();
    for (file, model) in models {
        let path = mount.path().join(file);
        let set = |name: &str, value: &str| {
            Tool::new("setfattr").args(["-h", "-n", name, "-v", value]).arg(&path).run().unwrap();
        };
        for n in 0..6 {
            set(&format!("trusted.kernel{n}"), &"k".repeat(n * n * 20));
        }
        let names = model.keys().map(|name| String::from_utf8_lossy(name));
        for (n, name) in names.filter(|name| !name.starts_with("system.")).take(24).enumerate() {
            match n % 3 {
                0 => drop(Tool::new("setfattr").args(["-h", "-x", &name]).arg(&path).run().unwrap()),
                1 => set(&name, "short"),
                _ => set(&name, &"long".repeat(400)),
            }
        }
    }
    mount.unmount().unwrap();
    check_image(image);
}

#[test]
fn attributes_are_what_was_set_and_the_kernel_shows_them() {
    random_changes("", 2000, 1);
    random_changes("-b size=1024 -m rmapbt=1", 2000, 2);
    random_changes("-i size=2048 -m reflink=1", 1500, 3);
    random_changes("-i size=1024 -b size=8192", 600, 4);
}

/// Each attribute alone, on each kind of file: the fork comes and goes.
#[test]
fn the_fork_comes_with_the_first_attribute_and_goes_with_the_last() {
    for args in ["", "-b size=1024", "-i size=2048"] {
        let writable = Writable::open(image(100, args), WriteOptions::default());
        let mut models = Vec::new();
        for file in FILES {
            let node = live(&writable, file);
            for len in [1, 90, 200, 250, 300, 700, 2000, 4000, 70_000 - 5000] {
                let at = format!("{len} bytes of {file} of mkfs.xfs {args}");
                set(&node, "trusted.t", &vec![b'x'; len]).unwrap_or_else(|error| panic!("{at}: {error}"));
                assert_eq!(shown(&node).len(), 1, "{at}");
                if len % 100 == 0 {
                    writable.commit();
                }
                if len % 200 == 0 || len == 250 {
                    remove(&node, "trusted.t").unwrap();
                    // A root stays as small as it is, and a long target does not return.
                    let stays = file == "link-long" || matches!(node.fields.read().data, Fork::Btree(_));
                    assert!(node.fields.read().attr.is_none() || stays, "{at}");
                }
            }
            assert!(matches!(remove(&node, "trusted.none"), Err(Error::NoAttribute)));
            models.push((file, shown(&node)));
        }
        let image = writable.finish();
        check_by_kernel(&image, &models);
    }
}

/// As when an inode is deleted: in as many steps as it takes, after each of which the image is good.
#[test]
fn all_attributes_are_removed_in_steps() {
    let writable = Writable::open(image(200, "-b size=1024"), WriteOptions::default());
    for (file, count, len) in
        [("empty", 3, 10), ("extents-300", 20, 100), ("extents-12", 200, 150), ("directory-full", 60, 40_000)]
    {
        let node = live(&writable, file);
        for n in 0..count {
            set(&node, &format!("user.{n}"), &vec![b'x'; len]).unwrap();
            writable.commit();
        }
        let mut steps = 0;
        loop {
            let handle = writable.volume.start(200).unwrap();
            let mut fields = node.fields.write();
            let progress = remove_all(&handle, &mut fields).unwrap();
            drop((fields, handle));
            writable.check();
            steps += 1;
            if progress == Progress::Done {
                break;
            }
            assert_eq!(shown(&node), Model::new());
        }
        assert!(shown(&node).is_empty() && steps < 100, "{file} in {steps} steps");
    }
    check_image(&writable.close());
}

/// The first extent of the fork is longer than what one step removes, and no block is there for one that is cut in two.
#[test]
fn attributes_in_many_pieces_are_removed_without_space() {
    let writable = Writable::open(image(200, "-m rmapbt=1"), WriteOptions::default());
    let (node, other) = (live(&writable, "empty"), live(&writable, "fifo"));
    set(&node, "user.short", b"x").unwrap();
    for n in 0..60 {
        set(&node, &format!("user.{n}"), &[b'x'; 40_000]).unwrap();
        if n > 8 {
            set(&other, &format!("user.{n}"), &[b'y'; 40_000]).unwrap();
        }
        writable.commit();
    }
    assert!(matches!(node.fields.read().attr, Some(Fork::Btree(_))));
    loop {
        let credits = super::remove_credits(&node.volume, &node.fields.read());
        let handle = writable.volume.start(credits).unwrap();
        assert_eq!(handle.space(), 0);
        let progress = remove_all(&handle, &mut node.fields.write()).unwrap();
        drop(handle);
        writable.check();
        if progress == Progress::Done {
            break;
        }
    }
    assert!(shown(&node).is_empty());
    check_image(&writable.close());
}

/// Threads change attributes of the same files and read them: each finds its own as it left them.
#[test]
fn threads_change_attributes_of_the_same_files() {
    const THREADS: usize = 4;
    let writable = Writable::open(image(200, "-m rmapbt=1"), WriteOptions::default());
    let files: Vec<Arc<Live>> =
        ["empty", "extents-19", "directory-full"].map(|name| live(&writable, name)).into();
    let running = AtomicUsize::new(THREADS);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (files, running) = (&files, &running);
            scope.spawn(move || {
                let mut random = Rng::new(thread as u64 + 1);
                let mut models = vec![Model::new(); files.len()];
                for _ in 0..250 {
                    let n = random.index(files.len());
                    let name = format!("user.{thread}-{}", random.index(30));
                    let value = vec![b'a' + thread as u8; [10, 100, 500, 4000, 20_000][random.index(5)]];
                    if random.index(3) == 0 && models[n].remove(name.as_bytes()).is_some() {
                        remove(&files[n], &name).unwrap();
                    } else {
                        set(&files[n], &name, &value).unwrap();
                        models[n].insert(name.into_bytes(), value);
                    }
                    let n = random.index(files.len());
                    for (name, value) in &models[n] {
                        assert!(files[n].xattr(name).unwrap().as_ref() == Some(value));
                    }
                    files[n].list_xattrs().unwrap();
                }
                running.fetch_sub(1, Ordering::Relaxed);
            });
        }
        while running.load(Ordering::Relaxed) > 0 {
            writable.commit();
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
    });
    drop(files);
    writable.finish();
}

//! Directories that have been removed and are still held: a long run of random schedules once met a move into one whose
//! parent was gone as well, which answered that a file handle was stale.

use undercroft_tmpfs::{Tmpfs, TmpfsOptions};
use undercroft_vfs::{Credentials, Error, NewObject, RenameFlags, Vfs, VfsOptions};

#[test]
fn a_directory_is_not_moved_into_one_that_is_gone_with_its_parent() {
    let vfs = Vfs::new(Tmpfs::new(&TmpfsOptions::default()).unwrap(), VfsOptions::default());
    let (caller, root) = (Credentials::root(), vfs.root().unwrap());
    let directory = NewObject::directory(0o755);
    let parent = vfs.create(&caller, &root, b"parent", &directory).unwrap();
    let held = vfs.create(&caller, &parent, b"held", &directory).unwrap();
    vfs.create(&caller, &root, b"moved", &directory).unwrap();
    vfs.rmdir(&caller, &parent, b"held").unwrap();
    vfs.rmdir(&caller, &root, b"parent").unwrap();
    drop(parent);
    let refused = vfs.rename(&caller, (&root, b"moved"), (&held, b"name"), RenameFlags::empty());
    assert!(matches!(refused, Err(Error::NotFound)), "{refused:?}");
    assert!(vfs.lookup(&root, b"moved").is_ok());
}

//! The inodes that the kernel holds are counted exactly.

use std::fs;
use std::thread;
use std::time::Duration;

use crate::support::{FILES, Fixture, until};

#[test]
fn what_the_kernel_forgets_is_forgotten() {
    let fixture = Fixture::new("threads=4");
    assert_eq!(fixture.mounted.inodes_in_kernel(), 0);
    // Handed out several times: by listings, by look-ups, and by threads that get in each other's way.
    let (many, hello) = (fixture.path("many"), fixture.path("hello"));
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for entry in fs::read_dir(&many).unwrap() {
                    assert!(entry.unwrap().metadata().unwrap().is_file());
                }
                assert!(fs::read(&hello).is_ok());
            });
        }
    });
    assert_eq!(fixture.mounted.inodes_in_kernel(), FILES + 2);
    assert!(until(Duration::from_secs(20), || {
        // Dentries and inodes, not pages; nothing that is in use.
        fs::write("/proc/sys/vm/drop_caches", "2").unwrap();
        fixture.mounted.inodes_in_kernel() == 0
    }));
    assert_eq!(fs::read_dir(many).unwrap().count(), FILES);
}

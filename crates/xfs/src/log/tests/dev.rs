use std::sync::Arc;
use std::io::{Read, Write};
use undercroft_block::{Device, FileDevice, FileOptions};
use crate::format::Superblock;

#[test]
fn dev() {
    let Ok(list) = std::env::var("XFS_DEV") else { return };
    for entry in list.split(',') {
        let (image, log) = entry.split_once('+').map_or((entry, None), |(a, b)| (a, Some(b)));
        let open = |p: &str| -> Device { Arc::new(FileDevice::open(std::path::Path::new(p), FileOptions::read_only()).unwrap()) };
        let device = open(image);
        let log = log.map(open);
        let superblock = Superblock::read(&*device).unwrap();
        let began = std::time::Instant::now();
        match super::super::recover(&device, log.as_ref(), &superblock) {
            Err(error) => println!("{image}: ERROR {error}"),
            Ok(recovered) => {
                let took = began.elapsed();
                let unlinked = recovered.recovery.as_ref().map(|r| r.unlinked.len());
                let mut r = recovered.recovery.clone();
                if let Some(r) = &mut r { r.unlinked.clear(); }
                println!("{image}: {took:?} unlinked {unlinked:?} {r:?}");
                if let Ok(suffix) = std::env::var("XFS_DEV_OUT") {
                    let out = format!("{image}{suffix}");
                    let mut file = std::fs::OpenOptions::new().write(true).open(&out).unwrap();
                    let _ = (&mut file as &mut dyn Write, &mut std::io::empty() as &mut dyn Read);
                    use std::os::unix::fs::FileExt;
                    let mut buf = vec![0; 1 << 20];
                    let mut base = vec![0; 1 << 20];
                    let size = device.size_bytes();
                    let mut at = 0;
                    while at < size {
                        let n = (size - at).min(1 << 20) as usize;
                        recovered.device.read_at(at, &mut buf[..n]).unwrap();
                        device.read_at(at, &mut base[..n]).unwrap();
                        if buf[..n] != base[..n] { file.write_all_at(&buf[..n], at).unwrap(); }
                        at += n as u64;
                    }
                }
            }
        }
    }
}

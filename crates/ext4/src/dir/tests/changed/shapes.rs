//! Every shape a directory can take: by block size, by hash, by depth.

#[cfg(feature = "oracle")]
use super::dir::index::Leaves;
#[cfg(feature = "oracle")]
use super::dir::query::Query;
use super::*;

#[test]
fn a_directory_that_grows_and_shrinks() {
    for (block_bytes, features) in [
        (1024, "metadata_csum"),
        (1024, "^metadata_csum"),
        (1024, "^dir_index"),
        (1024, "^filetype"),
        (2048, "large_dir"),
        (4096, "metadata_csum"),
        (65536, "metadata_csum"),
    ] {
        let mut changed = Changed::new(ext4(block_bytes, features));
        let mut random = Rng::new(0x5EED);
        for kinds in [20, 300, 2000, 100] {
            churn(&mut changed, &mut random, 3000, kinds, 255);
            changed.check();
        }
        let is_indexed = changed.dir.fields.read().flags.contains(InodeFlags::INDEXED);
        assert_eq!(is_indexed, features != "^dir_index", "{block_bytes} {features}");
        changed.finish();
    }
}

#[cfg(feature = "oracle")]
#[test]
fn every_hash_function() {
    for hash in ["legacy", "half_md4", "tea"] {
        for unsigned in [false, true] {
            let image = image(ext4(1024, "metadata_csum"), |root| {
                touch(&root.join("d"), [""; 0]);
                touch(root, ["f"]);
            });
            let flags = if unsigned { "2" } else { "1" };
            image
                .debugfs_write(&[&format!("ssv def_hash_version {hash}"), &format!("ssv flags {flags}")])
                .unwrap();
            let mut changed = Changed::open(image);
            for n in 0..600_u32 {
                let mut name = n.to_string().into_bytes();
                // Bytes on which signed and unsigned functions differ.
                name.extend((0..30).map(|at| 0x80 | (n * 7 + at) as u8));
                changed.add(&name);
            }
            changed.finish();
        }
    }
}

/// Names of one hash, of which a block of 1 KiB holds four: found by trying, for the legacy function.
#[cfg(feature = "oracle")]
fn names_of_one_hash() -> impl Iterator<Item = Vec<u8>> {
    const ENDS: &str = "aaaaaa c6ih3N ebMoXQ gkQ6wH gY-pMQ hg8elZ j-Ps2k lby3TI mWNci0 nc9prx neGAYy np2Cho nuWJ4d \
        onqUSK qOzEn_ rKeOkn rSDiuB sSIaMi uWwESj vaifsx vLSP5D wKnaRx xePcb5 x1gyad E8Sh7C HSUQzd LpYNxC Nj5Uy7 \
        Nl85RD OxoM_2 OL3jve QoN1p0 Q_ZGFf SZScij XAHiXX YNbFEb YNjqv0 22p2Z8 4eo4Jb";
    ENDS.split_whitespace().map(|end| [&[b'x'; 200], end.as_bytes()].concat())
}

#[cfg(feature = "oracle")]
#[test]
fn names_of_one_hash_fill_many_leaves() {
    let image = image(ext4(1024, "metadata_csum"), |root| {
        touch(&root.join("d"), [""; 0]);
        touch(root, ["f"]);
    });
    image.debugfs_write(&["ssv def_hash_version legacy", "ssv flags 1"]).unwrap();
    let mut changed = Changed::open(image);
    let mut random = Rng::new(9);
    churn(&mut changed, &mut random, 200, 1000, 30);
    for name in names_of_one_hash() {
        changed.add(&name);
        assert!(matches!(changed.try_add(&name), Err(Error::Exists)));
    }
    let inode = changed.dir.fields.read().clone();
    let directory = Directory::open(&changed.writable.volume, &inode).unwrap();
    let first = names_of_one_hash().next().unwrap();
    let mut leaves = Leaves::find(directory, &Query::Exact(&first)).unwrap().unwrap();
    assert!(std::iter::from_fn(|| leaves.next_place().unwrap()).count() > 8);
    churn(&mut changed, &mut random, 2000, 1000, 30);
    changed.check();
    for (name, back) in names_of_one_hash().zip([true, true, false].into_iter().cycle()) {
        changed.remove(&name);
        assert_eq!(lookup_live(&changed.dir, &name).unwrap(), None);
        if back {
            changed.add(&name);
        }
    }
    changed.finish();
}

#[test]
fn an_index_of_three_levels_and_one_that_is_full() {
    for (features, levels, enough) in [("large_dir,metadata_csum", 2, 40_000), ("metadata_csum", 1, 60_000)] {
        let mut changed = Changed::new(ext4(1024, features));
        let mut added = 0;
        let outcome = loop {
            let name = format!("{added:0>255}");
            match changed.try_add(name.as_bytes()) {
                Ok(()) => added += 1,
                other => break other,
            }
            // A transaction has no room for all of the blocks.
            if added % 1000 == 0 {
                changed.writable.commit();
            }
            if added == enough {
                break Ok(());
            }
        };
        // Without the feature it ends as with Linux: no room in the index.
        assert_eq!(outcome.is_err(), levels == 1, "{features} {added}");
        assert!(outcome.is_ok() || matches!(outcome, Err(Error::NoSpace)));
        let image = changed.finish();
        #[cfg(feature = "oracle")]
        {
            let htree = image.debugfs("htree_dump /d").unwrap();
            assert!(htree.contains(&format!("Indirect levels: {levels}")), "{features}");
        }
        image.check().unwrap();
    }
}

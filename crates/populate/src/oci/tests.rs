//! Layouts and archives, right ones and hostile ones.

use std::fs;
use std::io::Write;
use std::path::Path;

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tempfile::TempDir;

use super::{ArchiveKind, ImageOptions, image_in_archive, image_in_layout, is_image_layout};
use crate::Source;

const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const INDEX: &str = "application/vnd.oci.image.index.v1+json";
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const LAYER: &str = "application/vnd.oci.image.layer.v1.tar";

fn digest(bytes: &[u8]) -> String {
    let digits: Vec<String> = Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{}", digits.concat())
}

/// A tar of files with their content.
fn tar(files: &[(&str, &[u8])]) -> Vec<u8> {
    let mut tar = Vec::new();
    for (name, content) in files {
        let mut header = [0; 512];
        header[..name.len()].copy_from_slice(name.as_bytes());
        header[100..107].copy_from_slice(b"0000644");
        header[108..115].copy_from_slice(b"0000000");
        header[116..123].copy_from_slice(b"0000000");
        header[124..135].copy_from_slice(format!("{:011o}", content.len()).as_bytes());
        header[136..147].copy_from_slice(b"00000000000");
        header[156] = b'0';
        header[257..265].copy_from_slice(b"ustar\x0000");
        header[148..156].fill(b' ');
        let sum: u64 = header.iter().map(|&byte| u64::from(byte)).sum();
        header[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
        tar.extend(header);
        tar.extend(*content);
        tar.resize(tar.len().next_multiple_of(512), 0);
    }
    tar.resize(tar.len() + 1024, 0);
    tar
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// A layout under construction.
struct Layout(TempDir);

impl Layout {
    fn new() -> Self {
        let dir = TempDir::new().unwrap();
        fs::create_dir_all(dir.path().join("blobs/sha256")).unwrap();
        fs::write(dir.path().join("oci-layout"), r#"{"imageLayoutVersion":"1.0.0"}"#).unwrap();
        Self(dir)
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn blob(&self, bytes: &[u8], media_type: &str) -> Value {
        let digest = digest(bytes);
        fs::write(self.path().join("blobs").join(digest.replace(':', "/")), bytes).unwrap();
        json!({ "mediaType": media_type, "digest": digest, "size": bytes.len() })
    }

    fn document(&self, document: &Value, media_type: &str) -> Value {
        self.blob(document.to_string().as_bytes(), media_type)
    }

    /// An image of these layers, of which each is compressed.
    fn image(&self, layers: &[Vec<u8>], platform: &str) -> Value {
        let (os, architecture) = platform.split_once('/').unwrap();
        let diff_ids: Vec<String> = layers.iter().map(|layer| digest(layer)).collect();
        let config = json!({
            "os": os, "architecture": architecture, "rootfs": { "type": "layers", "diff_ids": diff_ids },
        });
        let layers: Vec<Value> =
            layers.iter().map(|layer| self.blob(&gzip(layer), &format!("{LAYER}+gzip"))).collect();
        self.manifest(&config, &layers)
    }

    fn manifest(&self, config: &Value, layers: &[Value]) -> Value {
        let config = self.document(config, CONFIG);
        self.document(&json!({ "schemaVersion": 2, "config": config, "layers": layers }), MANIFEST)
    }

    fn index(&self, manifests: &[Value]) -> &Self {
        let index = json!({ "schemaVersion": 2, "manifests": manifests });
        fs::write(self.path().join("index.json"), index.to_string()).unwrap();
        self
    }

    fn read(&self, reference: Option<&str>, platform: Option<&str>) -> Result<Vec<String>, String> {
        let options = options(reference, platform);
        image_in_layout(self.path(), "image", &options).map_err(|error| error.to_string()).and_then(paths)
    }

    fn refused(&self, why: &str) {
        let error = self.read(None, None).expect_err(why);
        assert!(error.contains(why), "{error}");
    }
}

fn options(reference: Option<&str>, platform: Option<&str>) -> ImageOptions {
    let platform = platform.map(|platform| platform.parse().unwrap());
    ImageOptions { platform, reference: reference.map(str::to_owned), most_bytes: 1 << 20 }
}

fn paths(mut source: Box<dyn Source>) -> Result<Vec<String>, String> {
    let mut paths = Vec::new();
    while let Some(entry) = source.next_entry().map_err(|error| error.to_string())? {
        paths.push(String::from_utf8(entry.path.as_bytes().to_vec()).unwrap());
    }
    Ok(paths)
}

fn named(mut descriptor: Value, tag: &str) -> Value {
    descriptor["annotations"] = json!({ "org.opencontainers.image.ref.name": tag });
    descriptor
}

fn with_platform(mut descriptor: Value, os: &str, architecture: &str) -> Value {
    descriptor["platform"] = json!({ "os": os, "architecture": architecture });
    descriptor
}

#[test]
fn layers_are_applied_in_their_order() {
    let layout = Layout::new();
    let layers = [tar(&[("a", b"1"), ("b", b"2")]), tar(&[(".wh.a", b""), ("c", b"3")])];
    let image = layout.image(&layers, "linux/arm64");
    layout.index(&[image]);
    assert!(is_image_layout(layout.path()));
    // The only image is taken, whatever it is for, unless a platform is asked for.
    assert_eq!(layout.read(None, None).unwrap(), ["b", "c"]);
    assert_eq!(layout.read(None, Some("linux/arm64")).unwrap(), ["b", "c"]);
    let error = layout.read(None, Some("linux/s390x")).unwrap_err();
    assert_eq!(error, "image: it has no image for linux/s390x, but for linux/arm64");
}

#[test]
fn the_tag_and_the_platform_choose() {
    let layout = Layout::new();
    let image = |name: &str, platform: &str| layout.image(&[tar(&[(name, b"")])], platform);
    let both = json!({ "manifests": [
        with_platform(image("x", "linux/amd64"), "linux", "amd64"),
        with_platform(image("y", "linux/arm64"), "linux", "arm64"),
        { "mediaType": "application/xml", "digest": "sha256:none", "size": 1 },
    ]});
    let both = layout.document(&both, INDEX);
    layout.index(&[named(both.clone(), "two"), named(image("z", "linux/amd64"), "one")]);
    assert_eq!(layout.read(Some("one"), None).unwrap(), ["z"]);
    assert_eq!(layout.read(Some("two"), Some("linux/arm64")).unwrap(), ["y"]);
    assert_eq!(layout.read(None, Some("linux/arm64")).unwrap(), ["y"]);
    let error = layout.read(None, Some("linux/amd64")).unwrap_err();
    assert_eq!(error, "image: it has several images, of which one must be named: two, one");
    assert_eq!(
        layout.read(Some("three"), None).unwrap_err(),
        "image: it has no image \"three\", but two, one"
    );
    let error = layout.read(Some("two"), Some("linux/riscv64")).unwrap_err();
    assert_eq!(error, "image: it has no image for linux/riscv64, but for linux/amd64, linux/arm64");
    // The same image twice is one.
    layout.index(&[both.clone(), both]);
    assert_eq!(layout.read(None, Some("linux/amd64")).unwrap(), ["x"]);
}

#[test]
fn what_is_not_what_its_digest_says_is_refused() {
    let layer = tar(&[("a", b"1")]);
    let change = |which: &dyn Fn(&[u8]) -> bool, change: &dyn Fn(&mut Vec<u8>)| {
        let layout = Layout::new();
        let image = layout.image(std::slice::from_ref(&layer), "linux/amd64");
        layout.index(&[image]);
        for blob in fs::read_dir(layout.path().join("blobs/sha256")).unwrap() {
            let path = blob.unwrap().path();
            let mut bytes = fs::read(&path).unwrap();
            if which(&bytes) {
                change(&mut bytes);
                fs::write(path, bytes).unwrap();
            }
        }
        layout
    };
    let last = |bytes: &mut Vec<u8>| *bytes.last_mut().unwrap() ^= 1;
    let is_layer = |bytes: &[u8]| bytes.starts_with(&[0x1f]);
    change(&|bytes| bytes.starts_with(b"{") && bytes.windows(7).any(|part| part == b"config\""), &last)
        .refused("it is not what its digest says");
    change(&|bytes| bytes.windows(6).any(|part| part == b"rootfs"), &last)
        .refused("it is not what its digest says");
    change(&is_layer, &|bytes| bytes.push(0)).refused("its descriptor says");
    // Whichever byte it is that makes it no gzip, no tar, or another file.
    for at in 0..gzip(&layer).len() {
        change(&is_layer, &|bytes| bytes[at] ^= 1).refused("it is not what its digest sha256:");
    }
    let empty: &dyn Fn(&[u8]) -> bool = &|bytes| bytes.starts_with(&[0x1f]);
    let layout = change(empty, &|_| {});
    for blob in fs::read_dir(layout.path().join("blobs/sha256")).unwrap() {
        let path = blob.unwrap().path();
        if is_layer(&fs::read(&path).unwrap()) {
            fs::remove_file(path).unwrap();
        }
    }
    layout.refused("it is missing");
}

#[test]
fn what_is_in_a_layer_has_its_digest_too() {
    let layout = Layout::new();
    let layer = layout.blob(&gzip(&tar(&[("a", b"1")])), &format!("{LAYER}+gzip"));
    let rootfs = json!({ "type": "layers", "diff_ids": [digest(b"else")] });
    let image = layout.manifest(
        &json!({ "os": "linux", "architecture": "amd64", "rootfs": rootfs }),
        std::slice::from_ref(&layer),
    );
    layout.index(&[image]).refused("what is in it is not what its digest sha256:");
    let rootfs = json!({ "type": "layers", "diff_ids": [] });
    let image =
        layout.manifest(&json!({ "os": "linux", "architecture": "amd64", "rootfs": rootfs }), &[layer]);
    layout.index(&[image]).refused("it has 1 layers, and its config names 0");
}

#[test]
fn what_is_behind_the_tar_counts_too() {
    let mut layer = tar(&[("a", b"1")]);
    layer.extend([7; 5000]);
    let layout = Layout::new();
    let image = layout.image(&[layer], "linux/amd64");
    layout.index(&[image]);
    assert_eq!(layout.read(None, None).unwrap(), ["a"]);
}

#[test]
fn layers_of_another_kind_are_refused_by_name() {
    let layout = Layout::new();
    let layer = layout.blob(b"", "application/vnd.oci.image.layer.v1.tar+encrypted");
    let rootfs = json!({ "diff_ids": [digest(b"")] });
    let image = layout.manifest(&json!({ "rootfs": rootfs }), &[layer]);
    layout.index(&[image]).refused("tar+encrypted is not supported");
    let artifact = layout.document(&json!({}), "application/vnd.oci.empty.v1+json");
    let image = layout.document(&json!({ "config": artifact, "layers": [] }), MANIFEST);
    layout.index(&[image]).refused("it is no image of a filesystem");
}

#[test]
fn a_bomb_ends_in_one_error() {
    let layout = Layout::new();
    let image = layout.image(&[tar(&[("zeros", &vec![0; 2 << 20])])], "linux/amd64");
    layout.index(&[image]).refused("what is compressed with gzip in it is larger than 1048576 bytes");
}

#[test]
fn nothing_outside_is_opened() {
    let layout = Layout::new();
    let wrong = |digest: &str| json!({ "mediaType": MANIFEST, "digest": digest, "size": 1 });
    layout.index(&[wrong("sha256:../../../../etc/passwd")]).refused("is no digest");
    layout.index(&[wrong("../x:00")]).refused("are not supported");
    // A link in place of a blob, and in place of a directory of blobs.
    let image = layout.image(&[tar(&[("a", b"1")])], "linux/amd64");
    layout.index(std::slice::from_ref(&image));
    let blobs = layout.path().join("blobs/sha256");
    let path = blobs.join(&image["digest"].as_str().unwrap()["sha256:".len()..]);
    let away = layout.path().join("away");
    fs::rename(&path, &away).unwrap();
    std::os::unix::fs::symlink(&away, &path).unwrap();
    layout.refused("symbolic link, which is not followed");
    fs::remove_file(&path).unwrap();
    fs::rename(&away, &path).unwrap();
    fs::rename(&blobs, &away).unwrap();
    std::os::unix::fs::symlink(&away, &blobs).unwrap();
    layout.refused("symbolic link, which is not followed");
}

#[test]
fn indexes_end() {
    let layout = Layout::new();
    let image = layout.image(&[tar(&[("a", b"1")])], "linux/amd64");
    let mut index = image.clone();
    for _ in 0..7 {
        index = layout.document(&json!({ "manifests": [index] }), INDEX);
    }
    layout.index(std::slice::from_ref(&index));
    assert_eq!(layout.read(None, None).unwrap(), ["a"]);
    let deeper = layout.document(&json!({ "manifests": [index] }), INDEX);
    layout.index(&[deeper]).refused("too deep");
    layout.index(&[]).refused("it has no image");
    fs::write(layout.path().join("index.json"), vec![b' '; (4 << 20) + 1]).unwrap();
    layout.refused("more than the 4194304");
    fs::write(layout.path().join("index.json"), "[".repeat(100_000)).unwrap();
    layout.refused("it is not the JSON it should be");
    fs::write(layout.path().join("oci-layout"), r#"{"imageLayoutVersion":"2.0.0"}"#).unwrap();
    layout.refused("version 2.0.0 is not supported");
}

/// An archive of files, as an image.
fn archive(
    files: &[(&str, &[u8])],
    kind: ArchiveKind,
    reference: Option<&str>,
) -> Result<Vec<String>, String> {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(&tar(files)).unwrap();
    let source = image_in_archive(file, kind, "image", &options(reference, None));
    source.map_err(|error| error.to_string()).and_then(paths)
}

#[test]
fn saved_images_are_read_by_their_manifest() {
    let layers = [tar(&[("a", b"1")]), tar(&[("b", b"2"), (".wh.a", b"")])];
    let config =
        json!({ "rootfs": { "diff_ids": layers.each_ref().map(|layer| digest(layer)) } }).to_string();
    let config_name = format!("{}.json", &digest(config.as_bytes())["sha256:".len()..]);
    let image = |tag: &str, config: &str| json!({ "Config": config, "RepoTags": [tag], "Layers": ["1/layer.tar", "2.tar"] });
    let manifest =
        json!([image("debian:latest", &config_name), image("other:1", "../../etc/passwd")]).to_string();
    let files = |manifest: &str, config: &str, second: &[u8]| {
        [
            ("1/layer.tar", layers[0].clone()),
            ("2.tar", second.to_vec()),
            (&*config_name, config.as_bytes().to_vec()),
            ("manifest.json", manifest.as_bytes().to_vec()),
        ]
        .map(|(name, content)| (name.to_owned(), content))
    };
    let read = |files: [(String, Vec<u8>); 4], reference| {
        let files: Vec<(&str, &[u8])> = files.iter().map(|(name, content)| (&**name, &**content)).collect();
        archive(&files, ArchiveKind::Any, reference)
    };
    let debian = Some("docker.io/library/debian");
    assert_eq!(read(files(&manifest, &config, &layers[1]), debian).unwrap(), ["b"]);
    assert_eq!(read(files(&manifest, &config, &gzip(&layers[1])), debian).unwrap(), ["b"]);
    let refused = |files, reference, why: &str| {
        let error = read(files, reference).expect_err(why);
        assert!(error.contains(why), "{error}");
    };
    refused(files(&manifest, &config, &layers[1]), None, "one must be named: debian:latest, other:1");
    refused(files(&manifest, &config, &layers[1]), Some("other:1"), "no path of a file in it");
    refused(files(&manifest, &config, &layers[0]), debian, "what is in it is not what its digest");
    let changed = config.replace('{', "{ ");
    refused(files(&manifest, &changed, &layers[1]), debian, "it is not what its digest says");
}

#[test]
fn an_archive_of_files_that_is_taken_for_an_image_is_told_how_to_be_named() {
    let manifest = json!([{ "Config": "config.json", "Layers": ["layer.tar"] }]).to_string();
    let layer = tar(&[("a", b"1")]);
    let config = json!({ "rootfs": { "diff_ids": [digest(&layer)] } }).to_string();
    let [manifest, config, layer]: [(&str, &[u8]); 3] =
        [("manifest.json", manifest.as_bytes()), ("config.json", config.as_bytes()), ("layer.tar", &layer)];
    let hint = "; put `tar:` in front of the archive's name if it is none of an image, but of files";
    for (files, why) in [
        (&[manifest][..], "config.json: it is missing"),
        (&[manifest, config], "layer.tar: it is missing"),
        (&[manifest, ("config.json", b"{"), layer], "config.json: it is not the JSON it should be"),
    ] {
        let told = archive(files, ArchiveKind::Any, None).unwrap_err();
        assert!(told.contains(why) && told.ends_with(hint), "{told}");
        for (kind, reference) in [(ArchiveKind::Docker, None), (ArchiveKind::Docker, Some("x"))] {
            let told = archive(files, kind, reference).unwrap_err();
            assert!(!told.contains("`tar:`"), "{told}");
        }
    }
    assert_eq!(archive(&[manifest, config, layer], ArchiveKind::Any, None).unwrap(), ["a"]);
}

#[test]
fn an_archive_of_a_layout_is_one() {
    let layout = Layout::new();
    let image = layout.image(&[tar(&[("a", b"1")])], "linux/amd64");
    layout.index(&[image]);
    let mut files = Vec::new();
    for blob in fs::read_dir(layout.path().join("blobs/sha256")).unwrap() {
        let blob = blob.unwrap();
        let name = format!("./blobs/sha256/{}", blob.file_name().into_string().unwrap());
        files.push((name, fs::read(blob.path()).unwrap()));
    }
    for name in ["index.json", "oci-layout"] {
        files.push((name.to_owned(), fs::read(layout.path().join(name)).unwrap()));
    }
    let files: Vec<(&str, &[u8])> = files.iter().map(|(name, content)| (&**name, &**content)).collect();
    assert_eq!(archive(&files, ArchiveKind::Any, None).unwrap(), ["a"]);
    let error = archive(&files, ArchiveKind::Docker, None).unwrap_err();
    assert_eq!(error, "image: manifest.json: it is missing");
}

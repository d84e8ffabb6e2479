//! Builds images for the tests: layers are written entry by entry, and pushed as a client does.

use std::io::Write;

use sha2::{Digest, Sha256};

/// How a layer is compressed.
#[derive(Clone, Copy)]
pub(crate) enum Compression {
    Plain,
    Gzip,
    Zstd,
}

/// A layer that is being written.
pub(crate) struct LayerBuilder(tar::Builder<Vec<u8>>);

/// A blob of an image, as a registry stores it.
#[derive(Clone)]
pub(crate) struct Blob {
    pub(crate) kind: &'static str,
    pub(crate) bytes: Vec<u8>,
    pub(crate) archive: String,
}

/// An image: its manifest, and its configuration followed by its layers.
#[derive(Clone)]
pub(crate) struct TestImage {
    pub(crate) manifest: Vec<u8>,
    pub(crate) blobs: Vec<Vec<u8>>,
}

/// The architecture of this host, as images name it.
pub(crate) fn architecture() -> &'static str {
    if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" }
}

pub(crate) fn digest(bytes: &[u8]) -> String {
    format!("sha256:{}", hex::encode(Sha256::digest(bytes)))
}

impl LayerBuilder {
    pub(crate) fn new() -> Self {
        LayerBuilder(tar::Builder::new(Vec::new()))
    }

    /// Adds an entry of any kind, with a name and a link that are not checked.
    pub(crate) fn entry(mut self, kind: tar::EntryType, path: &str, link: &str, mode: u32, content: &[u8]) -> Self {
        let mut header = tar::Header::new_gnu();
        header.as_old_mut().name[..path.len()].copy_from_slice(path.as_bytes());
        header.as_old_mut().linkname[..link.len()].copy_from_slice(link.as_bytes());
        header.set_entry_type(kind);
        header.set_mode(mode);
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(1_000_000_000);
        header.set_size(content.len() as u64);
        if matches!(kind, tar::EntryType::Char | tar::EntryType::Block) {
            header.set_device_major(1).unwrap();
            header.set_device_minor(3).unwrap();
        }
        header.set_cksum();
        self.0.append(&header, content).unwrap();
        self
    }

    pub(crate) fn file(self, path: &str, mode: u32, content: &[u8]) -> Self {
        self.entry(tar::EntryType::Regular, path, "", mode, content)
    }

    pub(crate) fn directory(self, path: &str, mode: u32) -> Self {
        self.entry(tar::EntryType::Directory, path, "", mode, b"")
    }

    pub(crate) fn symlink(self, path: &str, target: &str) -> Self {
        self.entry(tar::EntryType::Symlink, path, target, 0o777, b"")
    }

    pub(crate) fn hard_link(self, path: &str, target: &str) -> Self {
        self.entry(tar::EntryType::Link, path, target, 0o644, b"")
    }

    /// Adds a file with a name that does not fit into a header.
    pub(crate) fn long(mut self, path: &str, content: &[u8]) -> Self {
        let mut header = tar::Header::new_gnu();
        header.set_mode(0o644);
        header.set_size(content.len() as u64);
        self.0.append_data(&mut header, path, content).unwrap();
        self
    }

    /// Attaches extended attributes to the next entry.
    pub(crate) fn attached(mut self, all: &[(&str, &[u8])]) -> Self {
        let names: Vec<_> = all.iter().map(|(name, _)| format!("SCHILY.xattr.{name}")).collect();
        let pairs = names.iter().zip(all).map(|(name, (_, value))| (name.as_str(), *value));
        self.0.append_pax_extensions(pairs).unwrap();
        self
    }

    pub(crate) fn pack(self, compression: Compression) -> Blob {
        let plain = self.0.into_inner().unwrap();
        let archive = digest(&plain);
        let (kind, bytes) = match compression {
            Compression::Plain => ("application/vnd.oci.image.layer.v1.tar", plain),
            Compression::Gzip => {
                let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
                gzip.write_all(&plain).unwrap();
                ("application/vnd.docker.image.rootfs.diff.tar.gzip", gzip.finish().unwrap())
            }
            Compression::Zstd => {
                ("application/vnd.oci.image.layer.v1.tar+zstd", zstd::encode_all(&plain[..], 3).unwrap())
            }
        };
        Blob { kind, bytes, archive }
    }
}

/// An image of these layers, for this host.
pub(crate) fn image(layers: &[Blob]) -> TestImage {
    image_for(architecture(), layers)
}

/// An image for another architecture.
pub(crate) fn image_for(architecture: &str, layers: &[Blob]) -> TestImage {
    let run = serde_json::json!({ "Env": ["GREETING=hello world"], "User": "1000:1000", "WorkingDir": "/srv" });
    image_with_config(architecture, run, layers)
}

/// An image with another configuration of its programs.
pub(crate) fn image_with_config(architecture: &str, run: serde_json::Value, layers: &[Blob]) -> TestImage {
    let archives: Vec<_> = layers.iter().map(|layer| layer.archive.clone()).collect();
    let config = serde_json::to_vec(&serde_json::json!({
        "os": "linux",
        "architecture": architecture,
        "config": run,
        "rootfs": { "type": "layers", "diff_ids": archives },
    }))
    .unwrap();
    let descriptor = |kind: &str, bytes: &[u8]| serde_json::json!({ "mediaType": kind, "digest": digest(bytes), "size": bytes.len() });
    let manifest = serde_json::to_vec(&serde_json::json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": descriptor("application/vnd.oci.image.config.v1+json", &config),
        "layers": layers.iter().map(|layer| descriptor(layer.kind, &layer.bytes)).collect::<Vec<_>>(),
    }))
    .unwrap();
    let blobs = std::iter::once(config).chain(layers.iter().map(|layer| layer.bytes.clone())).collect();
    TestImage { manifest, blobs }
}

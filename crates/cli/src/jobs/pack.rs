//! What of a directory is uploaded, by the rules of `.gitignore`, and the archive of it, which is made while it is sent.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use ignore::gitignore::{Gitignore, GitignoreBuilder};
use tokio::sync::mpsc;

use crate::failure::{Failure, Result};
use crate::settings;

/// How many files and directories there may be. The engine has limits of its own.
const MAX_ENTRIES: usize = 1_000_000;

/// How deep they may be nested.
const MAX_DEPTH: usize = 256;

/// How much is sent at a time, and how many such pieces wait to be.
const PIECE: usize = 256 << 10;
const WAITING: usize = 4;

/// What is not uploaded.
pub(super) struct Patterns(Gitignore);

/// What is uploaded, and how many bytes it has.
pub(super) struct Listed {
    directory: PathBuf,
    pub(super) entries: Vec<PathBuf>,
    pub(super) bytes: u64,
    /// Whether the file with the API key was left out.
    pub(super) has_key: bool,
}

/// How much is packed by now, and why it could not go on.
#[derive(Clone, Default)]
pub(super) struct Packed(Arc<State>);

#[derive(Default)]
struct State {
    bytes: AtomicU64,
    failure: OnceLock<String>,
}

impl Packed {
    /// In bytes of the files.
    pub(super) fn bytes(&self) -> u64 {
        self.0.bytes.load(Ordering::Relaxed)
    }

    /// What of the files could not be read.
    pub(super) fn failure(&self) -> Option<Failure> {
        self.0.failure.get().map(|failure| Failure::new(format!("the upload is given up: {failure}")))
    }
}

/// The patterns of a job. What else stands in its file is the engine's to judge.
pub(super) fn patterns(config: &str) -> Result<Patterns> {
    let table: toml::Table =
        config.parse().map_err(|e: toml::de::Error| Failure::usage(format!("the file is no TOML: {}", e.message())))?;
    let lines =
        table.get("ignore").and_then(toml::Value::as_array).into_iter().flatten().filter_map(toml::Value::as_str);
    let mut builder = GitignoreBuilder::new("");
    for line in lines {
        builder
            .add_line(None, line)
            .map_err(|e| Failure::usage(format!("ignore: {line:?} is not a pattern of .gitignore: {e}")))?;
    }
    builder.build().map(Patterns).map_err(|e| Failure::usage(format!("ignore: these patterns do not work: {e}")))
}

/// Finds what is uploaded.
pub(super) fn list(directory: &Path, patterns: &Patterns) -> Result<Listed> {
    let mut listed = Listed { directory: directory.to_owned(), entries: Vec::new(), bytes: 0, has_key: false };
    descend(&mut listed, patterns, Path::new(""), 0)?;
    Ok(listed)
}

fn descend(listed: &mut Listed, patterns: &Patterns, below: &Path, depth: usize) -> Result<()> {
    let place = listed.directory.join(below);
    let failed = |e: io::Error| Failure::doing(format_args!("{} cannot be read", place.display()), e);
    let mut names = std::fs::read_dir(&place)
        .map_err(failed)?
        .map(|entry| Ok(entry?.file_name()))
        .collect::<io::Result<Vec<_>>>()
        .map_err(failed)?;
    names.sort();
    for name in names {
        let path = below.join(name);
        let found = listed.directory.join(&path).symlink_metadata().map_err(failed)?;
        let kind = found.file_type();
        let matched = patterns.0.matched(&path, kind.is_dir());
        if matched.is_ignore() || !(kind.is_dir() || kind.is_file() || kind.is_symlink()) {
            continue;
        }
        // Whoever runs the job would have the key of who pushed it, unless that is wanted.
        if !matched.is_whitelist() && kind.is_file() && settings::key_in(&listed.directory, &path).is_some() {
            listed.has_key = true;
            continue;
        }
        if listed.entries.len() >= MAX_ENTRIES || depth >= MAX_DEPTH {
            return Err(Failure::new(
                "the directory has more in it than can be uploaded; leave something out by `ignore`",
            ));
        }
        listed.bytes += if kind.is_file() { found.len() } else { 0 };
        listed.entries.push(path.clone());
        if kind.is_dir() {
            descend(listed, patterns, &path, depth + 1)?;
        }
    }
    Ok(())
}

/// The archive, piece by piece, and how far it is.
pub(super) fn pack(listed: Listed) -> (mpsc::Receiver<io::Result<Bytes>>, Packed) {
    let (sender, receiver) = mpsc::channel(WAITING);
    let packed = Packed::default();
    let counted = packed.clone();
    tokio::task::spawn_blocking(move || {
        let encoder =
            GzEncoder::new(Pieces { sender: sender.clone(), held: Vec::with_capacity(PIECE) }, Compression::fast());
        if let Err(e) = write(&listed, encoder, &counted) {
            // Written down first: whoever hears of a broken upload asks then. Whoever is gone needs to hear nothing.
            if !sender.is_closed() {
                let _ = counted.0.failure.set(e.to_string());
            }
            let _ = sender.blocking_send(Err(e));
        }
    });
    (receiver, packed)
}

fn write(listed: &Listed, encoder: GzEncoder<Pieces>, packed: &Packed) -> io::Result<()> {
    let mut archive = tar::Builder::new(encoder);
    for path in &listed.entries {
        let full = listed.directory.join(path);
        let named = |e: io::Error| io::Error::new(e.kind(), format!("{}: {e}", path.display()));
        append(&mut archive, path, &full, packed).map_err(named)?;
    }
    archive.into_inner()?.finish()?.flush()
}

fn append(archive: &mut tar::Builder<GzEncoder<Pieces>>, path: &Path, full: &Path, packed: &Packed) -> io::Result<()> {
    let found = match full.symlink_metadata() {
        // It was removed since it was seen.
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        found => found?,
    };
    let mut header = tar::Header::new_gnu();
    header.set_mode(found.mode() & 0o777);
    header.set_mtime(u64::try_from(found.mtime()).unwrap_or(0));
    header.set_size(0);
    if found.is_symlink() {
        header.set_entry_type(tar::EntryType::Symlink);
        return archive.append_link(&mut header, path, std::fs::read_link(full)?);
    }
    if found.is_dir() {
        header.set_entry_type(tar::EntryType::Directory);
        return archive.append_data(&mut header, path, io::empty());
    }
    append_file(archive, path, File::open(full)?, header, packed)
}

/// A file as long as it is when it is opened, whatever happens to it meanwhile: the archive says its length first.
fn append_file(
    archive: &mut tar::Builder<GzEncoder<Pieces>>,
    path: &Path,
    file: File,
    mut header: tar::Header,
    packed: &Packed,
) -> io::Result<()> {
    let size = file.metadata()?.len();
    header.set_entry_type(tar::EntryType::Regular);
    header.set_size(size);
    let data = Counted { inner: file.chain(io::repeat(0)).take(size), packed: packed.clone() };
    archive.append_data(&mut header, path, data)
}

/// Counts what is read.
struct Counted<R> {
    inner: R,
    packed: Packed,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.inner.read(buffer)?;
        self.packed.0.bytes.fetch_add(length as u64, Ordering::Relaxed);
        Ok(length)
    }
}

/// Sends what is written in pieces of the same size.
struct Pieces {
    sender: mpsc::Sender<io::Result<Bytes>>,
    held: Vec<u8>,
}

impl Write for Pieces {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        self.held.extend_from_slice(data);
        if self.held.len() >= PIECE {
            self.flush()?;
        }
        Ok(data.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.held.is_empty() {
            return Ok(());
        }
        let piece = std::mem::replace(&mut self.held, Vec::with_capacity(PIECE));
        self.sender.blocking_send(Ok(piece.into())).map_err(|_| io::ErrorKind::BrokenPipe.into())
    }
}

/// A number of bytes for a person.
pub(super) fn size(bytes: u64) -> String {
    match bytes {
        0..1_000 => format!("{bytes} bytes"),
        1_000..1_000_000 => format!("{:.1} kB", bytes as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} MB", bytes as f64 / 1e6),
        _ => format!("{:.1} GB", bytes as f64 / 1e9),
    }
}

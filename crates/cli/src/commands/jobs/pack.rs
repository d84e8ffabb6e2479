//! The files of a directory that are uploaded, chosen by the rules of `.gitignore`, and the archive, which is built
//! while it is sent.

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

/// The maximum number of files and directories. The engine has limits of its own.
const MAX_ENTRIES: usize = 1_000_000;

/// The maximum depth of directories.
const MAX_DEPTH: usize = 256;

/// The size of a chunk, and the number of chunks that wait to be sent.
const CHUNK_BYTES: usize = 256 << 10;
const MAX_QUEUED_CHUNKS: usize = 4;

/// The patterns of files that are not uploaded.
pub(super) struct Patterns(Gitignore);

/// The files to upload and their total size.
pub(super) struct FileList {
    directory: PathBuf,
    pub(super) entries: Vec<PathBuf>,
    pub(super) bytes: u64,
    /// Whether `.env` was left out because it holds an API key.
    pub(super) has_key: bool,
}

/// How much is packed by now, and why packing stopped.
#[derive(Clone, Default)]
pub(super) struct PackProgress(Arc<PackState>);

#[derive(Default)]
struct PackState {
    bytes: AtomicU64,
    failure: OnceLock<String>,
}

impl PackProgress {
    /// The number of bytes read from the files.
    pub(super) fn bytes(&self) -> u64 {
        self.0.bytes.load(Ordering::Relaxed)
    }

    /// Why a file could not be read.
    pub(super) fn failure(&self) -> Option<Failure> {
        self.0.failure.get().map(|failure| Failure::new(format!("the upload was stopped: {failure}")))
    }
}

/// Parses the `ignore` patterns of a job file. The engine checks everything else in the file.
pub(super) fn parse_ignore_patterns(config: &str) -> Result<Patterns> {
    let table: toml::Table = config
        .parse()
        .map_err(|e: toml::de::Error| Failure::usage(format!("the job file is not valid TOML: {}", e.message())))?;
    let lines =
        table.get("ignore").and_then(toml::Value::as_array).into_iter().flatten().filter_map(toml::Value::as_str);
    let mut builder = GitignoreBuilder::new("");
    for line in lines {
        builder
            .add_line(None, line)
            .map_err(|e| Failure::usage(format!("ignore: {line:?} is not a valid .gitignore pattern: {e}")))?;
    }
    builder.build().map(Patterns).map_err(|e| Failure::usage(format!("ignore: the patterns are not valid: {e}")))
}

/// Lists the files to upload.
pub(super) fn list_files(directory: &Path, patterns: &Patterns) -> Result<FileList> {
    let mut listed = FileList { directory: directory.to_owned(), entries: Vec::new(), bytes: 0, has_key: false };
    list_directory(&mut listed, patterns, Path::new(""), 0)?;
    Ok(listed)
}

fn list_directory(listed: &mut FileList, patterns: &Patterns, below: &Path, depth: usize) -> Result<()> {
    let place = listed.directory.join(below);
    let failed = |e: io::Error| Failure::with_cause(format_args!("cannot read {}", place.display()), e);
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
        // The API key must not reach the instances, unless a pattern explicitly includes the file.
        if !matched.is_whitelist() && kind.is_file() && settings::key_in_env_file(&listed.directory, &path).is_some() {
            listed.has_key = true;
            continue;
        }
        if listed.entries.len() >= MAX_ENTRIES || depth >= MAX_DEPTH {
            return Err(Failure::new("the directory holds too many files to upload; exclude some with `ignore`"));
        }
        listed.bytes += if kind.is_file() { found.len() } else { 0 };
        listed.entries.push(path.clone());
        if kind.is_dir() {
            list_directory(listed, patterns, &path, depth + 1)?;
        }
    }
    Ok(())
}

/// Builds the archive in a thread, and returns its chunks and the progress.
pub(super) fn pack_archive(listed: FileList) -> (mpsc::Receiver<io::Result<Bytes>>, PackProgress) {
    let (sender, receiver) = mpsc::channel(MAX_QUEUED_CHUNKS);
    let packed = PackProgress::default();
    let counted = packed.clone();
    tokio::task::spawn_blocking(move || {
        let encoder = GzEncoder::new(
            ChunkWriter { sender: sender.clone(), held: Vec::with_capacity(CHUNK_BYTES) },
            Compression::fast(),
        );
        if let Err(e) = write_archive(&listed, encoder, &counted) {
            // Stored first, because the uploader reads it after the upload breaks. A closed channel means that the
            // uploader gave up for another reason.
            if !sender.is_closed() {
                let _ = counted.0.failure.set(e.to_string());
            }
            let _ = sender.blocking_send(Err(e));
        }
    });
    (receiver, packed)
}

fn write_archive(listed: &FileList, encoder: GzEncoder<ChunkWriter>, packed: &PackProgress) -> io::Result<()> {
    let mut archive = tar::Builder::new(encoder);
    for path in &listed.entries {
        let full = listed.directory.join(path);
        let named = |e: io::Error| io::Error::new(e.kind(), format!("{}: {e}", path.display()));
        append_entry(&mut archive, path, &full, packed).map_err(named)?;
    }
    archive.into_inner()?.finish()?.flush()
}

fn append_entry(
    archive: &mut tar::Builder<GzEncoder<ChunkWriter>>,
    path: &Path,
    full: &Path,
    packed: &PackProgress,
) -> io::Result<()> {
    let found = match full.symlink_metadata() {
        // The file was removed after it was listed.
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

/// Appends a file with the size it has when it is opened: the header of the archive states the size first, so a file
/// that changes meanwhile is cut or padded.
fn append_file(
    archive: &mut tar::Builder<GzEncoder<ChunkWriter>>,
    path: &Path,
    file: File,
    mut header: tar::Header,
    packed: &PackProgress,
) -> io::Result<()> {
    let size = file.metadata()?.len();
    header.set_entry_type(tar::EntryType::Regular);
    header.set_size(size);
    let data = CountingReader { inner: file.chain(io::repeat(0)).take(size), packed: packed.clone() };
    archive.append_data(&mut header, path, data)
}

/// Counts the bytes that are read.
struct CountingReader<R> {
    inner: R,
    packed: PackProgress,
}

impl<R: Read> Read for CountingReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.inner.read(buffer)?;
        self.packed.0.bytes.fetch_add(length as u64, Ordering::Relaxed);
        Ok(length)
    }
}

/// Sends the written bytes in chunks.
struct ChunkWriter {
    sender: mpsc::Sender<io::Result<Bytes>>,
    held: Vec<u8>,
}

impl Write for ChunkWriter {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        self.held.extend_from_slice(data);
        if self.held.len() >= CHUNK_BYTES {
            self.flush()?;
        }
        Ok(data.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.held.is_empty() {
            return Ok(());
        }
        let piece = std::mem::replace(&mut self.held, Vec::with_capacity(CHUNK_BYTES));
        self.sender.blocking_send(Ok(piece.into())).map_err(|_| io::ErrorKind::BrokenPipe.into())
    }
}

/// A number of bytes in a readable unit.
pub(super) fn format_size(bytes: u64) -> String {
    match bytes {
        0..1_000 => format!("{bytes} bytes"),
        1_000..1_000_000 => format!("{:.1} kB", bytes as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} MB", bytes as f64 / 1e6),
        _ => format!("{:.1} GB", bytes as f64 / 1e9),
    }
}

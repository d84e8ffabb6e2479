//! What the rest of the backups needs of a place. A directory and a bucket have it, and nothing else depends on which
//! of them it is.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};

use async_trait::async_trait;
use tarn_model::ids::FileId;
use tarn_store::backup::NamedFile;

use super::scratch::Scratch;
use super::sums::FileSum;

/// A place of backups. An error of the kind `NotFound` means that what was asked for is not there; every other error
/// says nothing about what is there, unless [`says_damage`](Medium::says_damage) does.
#[async_trait]
pub(in crate::backup) trait Medium: Send + Sync {
    /// Returns the names of all complete backups, damaged ones too.
    async fn backup_names(&self) -> io::Result<Vec<String>>;

    /// Begins a backup, and returns the local directory that is filled with its files.
    async fn begin(&self, name: &str) -> io::Result<PathBuf>;

    /// The filesystem on which that directory is, for a message.
    fn staging(&self) -> &'static str;

    /// Stores a file of that directory before the others. It may not be in the directory any more.
    async fn store_early(&self, name: &str, staged: &Path, file: &str) -> io::Result<()>;

    /// Stores the files of that directory, and makes the backup complete.
    async fn publish(&self, name: &str, staged: &Path) -> io::Result<()>;

    /// Removes what interrupted backups left.
    async fn remove_leftovers(&self) -> io::Result<()>;

    /// Removes a backup. If that is interrupted, the next backup continues.
    async fn remove_backup(&self, name: &str) -> io::Result<()>;

    /// Reads a file of a backup.
    async fn read_file(&self, name: &str, file: &str) -> io::Result<Vec<u8>>;

    /// Reads a file of a backup completely, and returns its checksum.
    async fn file_sum(&self, name: &str, file: &str) -> io::Result<FileSum>;

    /// Copies a file of a backup to a new local file.
    async fn copy_file(&self, name: &str, file: &str, to: &Path) -> io::Result<()>;

    /// Returns a file of a backup as a local one.
    async fn local_file(&self, name: &str, file: &str) -> io::Result<LocalFile>;

    /// Returns all contents, with their sizes, by [`content_key`](super::content_key).
    async fn contents(&self) -> io::Result<HashMap<String, u64>>;

    /// Brings a content, and replaces the one that is there. It gets its name after it was compared.
    async fn bring(&self, file: &NamedFile, source: &Path) -> io::Result<Brought>;

    /// Reads a content completely, and returns its size and its MD5.
    async fn content_sum(&self, file: &FileId) -> io::Result<(u64, String)>;

    /// Copies a content to a new local file, or links it there if that is possible and `may_link`. Returns its size and
    /// its MD5.
    async fn copy_content(&self, file: &FileId, to: &Path, may_link: bool) -> io::Result<(u64, String)>;

    /// Removes contents.
    async fn remove_contents(&self, keys: Vec<String>) -> io::Result<()>;

    /// Reads a note that the last backup left; `None` if there is none.
    async fn read_note(&self, note: &str) -> io::Result<Option<String>>;

    /// Writes a note for the next backup.
    async fn write_note(&self, note: &str, text: &str) -> io::Result<()>;

    /// Whether an error means that what was read is damaged. A bucket that cannot be reached is not.
    fn says_damage(&self, error: &io::Error) -> bool;

    /// What was written first, if the place is a bucket: an engine that finds it in its own database serves it.
    fn trace(&self) -> Option<Trace>;

    /// Ends the use of the place.
    async fn close(&self);
}

/// What came of bringing a content.
pub(in crate::backup) enum Brought {
    /// It is there, with this MD5.
    Stored { is_linked: bool, md5: String },
    /// The source does not exist.
    Missing,
    /// The source is not what was stored.
    Damaged,
}

/// An object that was written by this process and has never been anywhere else.
pub(in crate::backup) struct Trace {
    pub(in crate::backup) bucket: String,
    pub(in crate::backup) key: String,
    pub(in crate::backup) etag: String,
}

/// A local file with what a file of a backup has. It may exist only as long as this value.
pub(in crate::backup) struct LocalFile {
    pub(in crate::backup) path: PathBuf,
    pub(in crate::backup) _scratch: Option<Scratch>,
}

/// Whether a content is the one that a row names. One without a known MD5 is compared by its size.
pub(super) fn is_expected(file: &NamedFile, bytes: u64, md5: &str) -> bool {
    bytes == file.bytes && (file.md5.len() != 32 || md5 == file.md5)
}

//! Creates a volume under a temporary name, and moves it into place when all of it is on disk.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::{CWD, RenameFlags, renameat_with};
use tarn_model::ids::VolumeId;
use tokio::process::Command;

use super::inspection::filesystem_label;
use super::pool;
use crate::Error;
use crate::local::host::files;
use crate::local::host::paths::InstallationPaths;
use crate::local::local_host::{LocalHost, blocking, failed};

const FAILED: &str = "the volume could not be created";

/// How long `mkfs.xfs` may take; it needs a few milliseconds.
const MKFS_TIMEOUT: Duration = Duration::from_secs(60);

/// How much of its error message is kept.
const MAX_REASON: usize = 300;

/// The root directory of a new volume belongs to the default user of every instance.
const PROTOTYPE: &str = "/\n0 0\nd--755 1000 1000\n$\n";

/// The size of the journal: one part in so many of the volume, between these bounds.
const JOURNAL: (u64, u64, u64) = (2_048, 64 << 20, 2 << 30);

/// What a new filesystem needs besides its journal, with a margin.
const REST: u64 = 16 << 20;

/// Creates a volume that does not exist, while the caller holds its lock. A failure leaves nothing behind.
pub(super) async fn create_volume(host: &LocalHost, mkfs: &Path, id: &VolumeId, size_bytes: u64) -> Result<(), Error> {
    let draft = Arc::new(Draft::new(&host.paths, id, size_bytes));
    let made = async {
        let own = draft.clone();
        blocking(FAILED, move || own.create_file()).await??;
        draft.format_filesystem(mkfs, filesystem_label(id)).await?;
        let own = draft.clone();
        blocking(FAILED, move || own.move_into_place()).await
    };
    let made = made.await;
    if made.is_err() {
        blocking("the leftovers of a volume could not be removed", move || files::remove_tree(&draft.directory))
            .await?;
    }
    made
}

/// The refusal of a size that no file can have.
pub(super) fn too_large_error() -> Error {
    Error::Permanent("the volume is larger than the largest file on the disk of the volumes".into())
}

/// The error for a full pool.
pub(super) fn disk_full_error(what: &str) -> Error {
    Error::Retry(format!("{what}: the disk of the volumes is full"))
}

/// Runs `mkfs.xfs` on a file, and returns its message if it fails.
pub(in crate::local) async fn run_mkfs(
    what: &'static str,
    mkfs: &Path,
    options: &[&OsStr],
    file: &Path,
) -> Result<Option<String>, Error> {
    let mut command = Command::new(mkfs);
    // A filesystem with 4 KiB sectors can be mounted from disks of either sector size.
    command.args(["-q", "-K", "-s", "size=4096"]).args(options).arg(file);
    command.env_clear().env("LC_ALL", "C").current_dir("/").kill_on_drop(true);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let ended = tokio::time::timeout(MKFS_TIMEOUT, command.output()).await;
    let ended = ended.unwrap_or_else(|_| Err(io::Error::other("mkfs.xfs did not finish in time")));
    let ended = ended.map_err(|error| failed(what, &error))?;
    Ok((!ended.status.success()).then(|| String::from_utf8_lossy(&ended.stderr).into_owned()))
}

/// The error for a message of `mkfs.xfs`.
pub(in crate::local) fn mkfs_error(what: &'static str, message: &str) -> Error {
    let reason = tarn_base::plain(message.lines().next().unwrap_or("mkfs.xfs failed"), MAX_REASON);
    failed(what, &io::Error::other(reason))
}

/// A volume that is being created.
struct Draft {
    pool: PathBuf,
    target: PathBuf,
    size_bytes: u64,
    directory: PathBuf,
    data: PathBuf,
    prototype: PathBuf,
}

impl Draft {
    fn new(paths: &InstallationPaths, id: &VolumeId, size_bytes: u64) -> Self {
        let target = paths.volume_directory(id);
        let directory = target.with_extension(pool::NEW);
        let data = directory.join(paths.volume_file(id).file_name().unwrap_or_default());
        let prototype = directory.join("prototype");
        Draft { pool: paths.pool.clone(), target, size_bytes, directory, data, prototype }
    }

    /// Creates the empty file.
    fn create_file(&self) -> io::Result<Result<(), Error>> {
        let (part, least, most) = JOURNAL;
        if pool::free_bytes(&self.pool)? < (self.size_bytes / part).clamp(least, most) + REST {
            return Ok(Err(disk_full_error(FAILED)));
        }
        files::remove_tree(&self.directory)?;
        files::ensure_directory(&self.directory, 0o700)?;
        fs::write(&self.prototype, PROTOTYPE)?;
        let file = File::options().write(true).create_new(true).mode(0o600).open(&self.data)?;
        match file.set_len(self.size_bytes) {
            Err(error) if is_file_too_large(&error) => Ok(Err(too_large_error())),
            done => done.map(Ok),
        }
    }

    /// Creates the filesystem.
    async fn format_filesystem(&self, mkfs: &Path, label: &str) -> Result<(), Error> {
        let options = ["-L".as_ref(), label.as_ref(), "-p".as_ref(), self.prototype.as_os_str()];
        let Some(message) = run_mkfs(FAILED, mkfs, &options, &self.data).await? else { return Ok(()) };
        let refused = mkfs_error(FAILED, &message);
        Err(if message.contains("No space left") { disk_full_error(FAILED) } else { refused })
    }

    /// Moves the volume into place, with everything synced before and after.
    fn move_into_place(&self) -> io::Result<()> {
        fs::remove_file(&self.prototype)?;
        File::open(&self.data)?.sync_all()?;
        files::sync_directory(&self.directory)?;
        renameat_with(CWD, &self.directory, CWD, &self.target, RenameFlags::NOREPLACE)?;
        files::sync_directory(&self.pool)
    }
}

/// Returns whether the filesystem of the pool does not support files of this size.
pub(super) fn is_file_too_large(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EFBIG | libc::EINVAL))
}

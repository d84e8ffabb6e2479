//! The template: an empty filesystem of the size that the disks of instances have.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tarn_base::files::publish_file;
use tokio::process::Command;

use crate::Error;
use crate::local::host::files;
use crate::local::local_host::{blocking, failed};

const FAILED: &str = "the disk template could not be created";

/// How long `mkfs.xfs` may take; it needs a few milliseconds.
const MKFS_TIMEOUT: Duration = Duration::from_secs(60);

/// The version of the template's format. Incrementing it creates new templates.
const FORMAT: u32 = 1;

/// The journal is allocated in every disk, so it has the smallest size that `mkfs.xfs` creates.
const JOURNAL: &str = "size=64m";

/// Returns the template for disks of a size, creates it if it does not exist, and removes those of other sizes.
pub(super) async fn ensure_template(directory: &Path, mkfs: &Path, size_bytes: u64) -> Result<PathBuf, Error> {
    let path = directory.join(format!("{size_bytes}-{FORMAT}.xfs"));
    let (parent, own) = (directory.to_owned(), path.clone());
    if blocking(FAILED, move || prepare_directory(&parent, &own)).await? {
        return Ok(path);
    }
    let next = path.with_extension("new");
    let own = next.clone();
    blocking(FAILED, move || {
        File::options().write(true).create(true).truncate(true).mode(0o600).open(own)?.set_len(size_bytes)
    })
    .await?;
    let mut command = Command::new(mkfs);
    // A filesystem with 4 KiB sectors can be mounted from disks of either sector size.
    command.args(["-q", "-K", "-f", "-s", "size=4096", "-l", JOURNAL, "-L", "tarn-disk"]).arg(&next);
    command.env_clear().env("LC_ALL", "C").current_dir("/").kill_on_drop(true);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let ended = tokio::time::timeout(MKFS_TIMEOUT, command.output()).await;
    let ended = ended.unwrap_or_else(|_| Err(io::Error::other("mkfs.xfs did not finish in time")));
    let ended = ended.map_err(|error| failed(FAILED, &error))?;
    if !ended.status.success() {
        let message = String::from_utf8_lossy(&ended.stderr);
        let reason = tarn_base::plain(message.lines().next().unwrap_or("mkfs.xfs failed"), 300);
        return Err(failed(FAILED, &io::Error::other(reason)));
    }
    let own = path.clone();
    blocking(FAILED, move || {
        File::open(&next)?.sync_all()?;
        publish_file(&next, &own)
    })
    .await?;
    Ok(path)
}

/// Creates the directory, removes other templates from it, and returns whether the wanted one exists.
fn prepare_directory(directory: &Path, wanted: &Path) -> io::Result<bool> {
    files::ensure_directory(directory, 0o700)?;
    let mut found = false;
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if path == wanted {
            found = true;
        } else {
            files::ignore_missing(fs::remove_file(path))?;
        }
    }
    Ok(found)
}

//! Removes a job: ends its attempts and removes everything of it. The helper `remove_tree` deletes the files.

mod remove_tree;

use std::ffi::OsStr;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;
use tarn_link::{Reply, Result, Writer};
use tokio::io::AsyncWrite;
use tokio::time::timeout;

pub use remove_tree::run_remove_helper;

use crate::filesystem::open_directory;
use crate::jobs::attempts::attempt::{Attempt, Stage};
use crate::jobs::helper_process::HelperProcess;
use crate::jobs::paths::{JOBS_DIRECTORY, JobPaths, VENVS_DIRECTORY};
use crate::link_service::{Guest, send_refusal};
use crate::users::Account;

/// How long to wait for another start or removal of the same job.
pub(in crate::jobs) const LOCK_TIMEOUT: Duration = Duration::from_secs(60);

/// How long a killed attempt may take to end.
const KILL_TIMEOUT: Duration = Duration::from_secs(90);

/// How long the removal of a tree may take.
const REMOVE_TIMEOUT: Duration = Duration::from_secs(600);

/// Forgets a job, and replies when nothing of it is left.
pub(in crate::jobs) async fn serve_forget<W: AsyncWrite + Unpin>(
    guest: &Guest,
    job: &str,
    writer: &mut Writer<W>,
) -> Result<()> {
    let Some(paths) = JobPaths::new(&guest.settings.root, job) else {
        return send_refusal(writer, "that is not a job id".into()).await;
    };
    match forget_job(guest, &paths).await {
        Ok(()) => writer.message(&Reply::Ready).await,
        Err(reason) => send_refusal(writer, format!("the job could not be forgotten: {reason}")).await,
    }
}

async fn forget_job(guest: &Guest, paths: &JobPaths) -> std::result::Result<(), String> {
    // An unknown job is registered as well: files of an earlier attempt may be left.
    let job = guest.jobs.find_or_insert(paths.job()).ok_or("the guest knows too many jobs")?;
    let _guard = timeout(LOCK_TIMEOUT, job.exclusive.lock()).await.map_err(|_| "it is being started")?;
    if !guest.jobs.is_known(paths.job(), &job) {
        // Another stream has forgotten it, and it may have been started again.
        return Ok(());
    }
    for (number, attempt) in job.all_attempts() {
        if !kill_attempt(&attempt).await {
            return Err(format!("attempt {number} does not end"));
        }
    }
    let account = guest.account().ok();
    remove_job_files(guest, paths, account.as_ref()).await.map_err(|e| e.to_string())?;
    guest.jobs.remove_job(paths.job());
    Ok(())
}

/// Kills an attempt; returns whether it has ended.
pub(in crate::jobs) async fn kill_attempt(attempt: &Arc<Attempt>) -> bool {
    attempt.requests.send_modify(|requests| requests.stop = Some(0));
    let mut progress = attempt.progress.subscribe();
    let ended = progress.wait_for(|progress| matches!(progress.stage, Stage::NotStarted(_) | Stage::Ended(_)));
    matches!(timeout(KILL_TIMEOUT, ended).await, Ok(Ok(_)))
}

/// Removes everything of a job, without following links in the home directory.
async fn remove_job_files(guest: &Guest, paths: &JobPaths, account: Option<&Account>) -> io::Result<()> {
    if let Some(account) = account {
        remove_working_directory(guest, paths, account).await?;
    }
    remove_path(guest, &paths.user_files_directory()).await?;
    remove_path(guest, &paths.state_directory()).await
}

/// Removes the directory of a job, and its virtual environment.
pub(in crate::jobs) async fn remove_working_directory(
    guest: &Guest,
    paths: &JobPaths,
    account: &Account,
) -> io::Result<()> {
    let Some(directories) = open_subdirectory(open_directory(&account.home).ok(), JOBS_DIRECTORY)? else {
        return Ok(());
    };
    remove_entry(guest, directories.try_clone()?, paths.job().as_ref()).await?;
    match open_subdirectory(Some(directories), VENVS_DIRECTORY)? {
        Some(venvs) => remove_entry(guest, venvs, paths.job().as_ref()).await,
        None => Ok(()),
    }
}

/// Removes a path in a directory of the system.
pub(in crate::jobs) async fn remove_path(guest: &Guest, path: &Path) -> io::Result<()> {
    let (Some(directory), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    match open_directory(directory) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        directory => remove_entry(guest, directory?, name).await,
    }
}

/// Opens a directory inside another; `None` if there is none.
fn open_subdirectory(parent: Option<OwnedFd>, name: &str) -> io::Result<Option<OwnedFd>> {
    let Some(parent) = parent else { return Ok(None) };
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    match rustix::fs::openat(parent, name, flags, Mode::empty()) {
        Ok(directory) => Ok(Some(directory)),
        Err(Errno::NOENT | Errno::LOOP | Errno::NOTDIR) => Ok(None),
        Err(e) => Err(e.into()),
    }
}

/// Removes an entry of any kind from a directory. A helper does it, because the contents are untrusted.
async fn remove_entry(guest: &Guest, directory: OwnedFd, name: &OsStr) -> io::Result<()> {
    if matches!(rustix::fs::statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW), Err(Errno::NOENT)) {
        return Ok(());
    }
    let mut command = Command::new(&guest.settings.helper);
    command.arg("remove").arg(name).env_clear().stdin(directory).stdout(Stdio::null());
    let mut helper = HelperProcess::start(guest, &mut command)?;
    match timeout(REMOVE_TIMEOUT, helper.wait_exit()).await {
        Ok(Some(status)) if status.exit_status() == Some(0) => Ok(()),
        Ok(_) => Err(io::Error::other("some files could not be removed")),
        Err(_) => Err(io::ErrorKind::TimedOut.into()),
    }
}

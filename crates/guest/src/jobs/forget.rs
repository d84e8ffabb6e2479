//! Ending attempts at once, and forgetting jobs.

use std::ffi::OsStr;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;
use tarn_link::{Answer, Result, Writer};
use tokio::io::AsyncWrite;
use tokio::time::timeout;

use super::attempts::{Attempt, Stage};
use super::helpers::Helper;
use super::places::{DIRECTORIES, Place, VENVS};
use crate::accounts::Account;
use crate::configuration::files::open_directory;
use crate::service::{Guest, refuse};

/// How long it may take until nobody else starts or forgets a job.
pub(super) const MAX_TURN: Duration = Duration::from_secs(60);

/// How long an attempt may take to end when it is killed.
const MAX_END: Duration = Duration::from_secs(90);

/// How long it may take to remove a tree.
const MAX_REMOVAL: Duration = Duration::from_secs(600);

/// Forgets a job, and answers when nothing of it is left.
pub(super) async fn serve<W: AsyncWrite + Unpin>(guest: &Guest, job: &str, writer: &mut Writer<W>) -> Result<()> {
    let Some(place) = Place::new(&guest.settings.root, job) else {
        return refuse(writer, "that is no job".into()).await;
    };
    match forget(guest, &place).await {
        Ok(()) => writer.message(&Answer::Ready).await,
        Err(reason) => refuse(writer, format!("the job was not forgotten: {reason}")).await,
    }
}

async fn forget(guest: &Guest, place: &Place) -> std::result::Result<(), String> {
    // Also one that is not known: something of it may be left of an earlier try.
    let job = guest.jobs.enter(place.job()).ok_or("the guest knows too many jobs")?;
    let _turn = timeout(MAX_TURN, job.turn.lock()).await.map_err(|_| "it is being started")?;
    if !guest.jobs.is_known(place.job(), &job) {
        // Somebody else has forgotten it, and it may have been begun again.
        return Ok(());
    }
    for (number, attempt) in job.attempts() {
        if !end(&attempt).await {
            return Err(format!("attempt {number} does not end"));
        }
    }
    let account = guest.account().ok();
    remove(guest, place, account.as_ref()).await.map_err(|e| e.to_string())?;
    guest.jobs.remove(place.job());
    Ok(())
}

/// Ends an attempt at once; whether it has ended.
pub(super) async fn end(attempt: &Arc<Attempt>) -> bool {
    attempt.wishes.send_modify(|wishes| wishes.stop = Some(0));
    let mut progress = attempt.progress.subscribe();
    let ended = progress.wait_for(|progress| matches!(progress.stage, Stage::NotStarted(_) | Stage::Ended(_)));
    matches!(timeout(MAX_END, ended).await, Ok(Ok(_)))
}

/// Removes everything of a job. In the home of the user no link of his is followed.
async fn remove(guest: &Guest, place: &Place, account: Option<&Account>) -> io::Result<()> {
    if let Some(account) = account {
        remove_working(guest, place, account).await?;
    }
    remove_path(guest, &place.shown()).await?;
    remove_path(guest, &place.state()).await
}

/// Removes the directory of a job, and its virtual environment.
pub(super) async fn remove_working(guest: &Guest, place: &Place, account: &Account) -> io::Result<()> {
    let Some(directories) = below(open_directory(&account.home).ok(), DIRECTORIES)? else { return Ok(()) };
    remove_in(guest, directories.try_clone()?, place.job().as_ref()).await?;
    match below(Some(directories), VENVS)? {
        Some(venvs) => remove_in(guest, venvs, place.job().as_ref()).await,
        None => Ok(()),
    }
}

/// Removes something in a directory of the system.
pub(super) async fn remove_path(guest: &Guest, path: &Path) -> io::Result<()> {
    let (Some(directory), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    match open_directory(directory) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        directory => remove_in(guest, directory?, name).await,
    }
}

/// A directory inside of another, if it is one.
fn below(parent: Option<OwnedFd>, name: &str) -> io::Result<Option<OwnedFd>> {
    let Some(parent) = parent else { return Ok(None) };
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    match rustix::fs::openat(parent, name, flags, Mode::empty()) {
        Ok(directory) => Ok(Some(directory)),
        Err(Errno::NOENT | Errno::LOOP | Errno::NOTDIR) => Ok(None),
        Err(e) => Err(e.into()),
    }
}

/// Removes something in a directory, whatever it is. A helper does so: what it meets on its way is up to who made it.
async fn remove_in(guest: &Guest, directory: OwnedFd, name: &OsStr) -> io::Result<()> {
    if matches!(rustix::fs::statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW), Err(Errno::NOENT)) {
        return Ok(());
    }
    let mut command = Command::new(&guest.settings.helper);
    command.arg("remove").arg(name).env_clear().stdin(directory).stdout(Stdio::null());
    let mut helper = Helper::start(guest, &mut command)?;
    match timeout(MAX_REMOVAL, helper.ended()).await {
        Ok(Some(status)) if status.exit_status() == Some(0) => Ok(()),
        Ok(_) => Err(io::Error::other("there is something that cannot be removed")),
        Err(_) => Err(io::ErrorKind::TimedOut.into()),
    }
}

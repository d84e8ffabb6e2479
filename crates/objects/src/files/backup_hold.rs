//! The hold of a backup on the files: while it lasts, no process removes a file that had a row when the hold began.
//!
//! The backup runs in another process than the engines that remove files. It locks a file of the directory exclusively;
//! an engine holds the lock shared while it removes. So a removal either ends before the backup reads the rows, or is
//! left to the sweep. The kernel releases the lock when the backup dies. A backup that stands still does not renew its
//! hold, and after [`TIMEOUT`] the sweep ignores it; the backup notices that and fails. Everything here may block.
//!
//! Removals that overlap would share the lock for ever. So a second file is the turn: a removal takes it shared for the
//! moment in which it begins, and a backup takes it exclusively before it waits for the removals in progress. New ones
//! do not begin then.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

use rustix::fs::{CWD, FlockOperation, Gid, Mode, OFlags, Timespec, Timestamps, UTIME_NOW, Uid};
use rustix::io::Errno;
use tarn_model::Time;

/// The locked files. No data file has these names, and they stay after a backup.
const HOLD: &str = "backup.hold";
const TURN: &str = "backup.turn";

/// The time after which the sweep ignores a backup that did not renew its hold.
const TIMEOUT: Duration = Duration::from_secs(600);

/// The interval at which a backup should renew its hold.
pub const RENEW_INTERVAL: Duration = Duration::from_secs(30);

/// A backup that waits for its hold. Removals in progress are finished, and no new ones begin as soon as it has its
/// turn.
pub struct HoldRequest {
    turn: File,
    hold: File,
    has_turn: bool,
}

/// The outcome of a try to take the hold.
pub enum HoldAttempt {
    /// The hold is taken.
    Taken(BackupHold),
    /// Another backup has it.
    OtherBackup(HoldRequest),
    /// An engine removes files. It is worth trying again.
    Removals(HoldRequest),
}

/// A hold on all files, until it is dropped or the process ends.
pub struct BackupHold {
    hold: File,
    _turn: File,
}

impl HoldRequest {
    /// Opens the locked files of a directory of objects.
    pub fn open(directory: &Path) -> io::Result<HoldRequest> {
        let root = rustix::fs::openat(CWD, directory, OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        let owner = rustix::fs::fstat(&root)?;
        let open = |name: &str| -> io::Result<File> {
            let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let file = rustix::fs::openat(&root, name, flags, Mode::RUSR | Mode::WUSR)?;
            // The engine may run as another user than the backup, and must be able to open the file.
            if rustix::fs::fstat(&file)?.st_uid != owner.st_uid {
                rustix::fs::fchown(&file, Some(Uid::from_raw(owner.st_uid)), Some(Gid::from_raw(owner.st_gid)))?;
            }
            Ok(file.into())
        };
        Ok(HoldRequest { turn: open(TURN)?, hold: open(HOLD)?, has_turn: false })
    }

    /// Tries to take the hold.
    pub fn try_take(mut self) -> io::Result<HoldAttempt> {
        if !self.has_turn {
            if !try_lock(&self.turn, FlockOperation::NonBlockingLockExclusive)? {
                // Only a backup has it exclusively.
                if !try_lock(&self.turn, FlockOperation::NonBlockingLockShared)? {
                    return Ok(HoldAttempt::OtherBackup(self));
                }
                rustix::fs::flock(&self.turn, FlockOperation::Unlock)?;
                return Ok(HoldAttempt::Removals(self));
            }
            self.has_turn = true;
            // The hold is young before it is locked: the sweep ignores an old one.
            touch(&self.turn)?;
            touch(&self.hold)?;
        }
        if !try_lock(&self.hold, FlockOperation::NonBlockingLockExclusive)? {
            return Ok(HoldAttempt::Removals(self));
        }
        touch(&self.hold)?;
        Ok(HoldAttempt::Taken(BackupHold { hold: self.hold, _turn: self.turn }))
    }
}

impl BackupHold {
    /// Renews the hold. An error if it was not renewed for so long that files may have been removed.
    pub fn renew(&self) -> io::Result<()> {
        let before = modified_us(&self.hold)?;
        touch(&self.hold)?;
        let pause = Time::from_micros(modified_us(&self.hold)?).until(Time::from_micros(before));
        if pause < TIMEOUT {
            Ok(())
        } else {
            let seconds = pause.as_secs();
            Err(io::Error::other(format!(
                "this process stood still for {seconds} s, and meanwhile the engine may have removed files that the \
                 backup needs"
            )))
        }
    }
}

/// Whether files may be removed.
pub(super) enum Removal {
    /// They may while this value lives.
    Allowed { _lock: Option<OwnedFd> },
    /// A backup needs the files, or waits for the removals in progress.
    Held,
}

/// Asks whether files may be removed now.
pub(super) fn begin_removal(root: impl AsFd) -> io::Result<Removal> {
    let turn = open_existing(&root, TURN)?;
    if let Some(turn) = &turn
        && !try_lock(turn, FlockOperation::NonBlockingLockShared)?
    {
        return Ok(Removal::Held);
    }
    let Some(hold) = open_existing(&root, HOLD)? else { return Ok(Removal::Allowed { _lock: None }) };
    let is_locked = try_lock(&hold, FlockOperation::NonBlockingLockShared)?;
    Ok(if is_locked { Removal::Allowed { _lock: Some(hold) } } else { Removal::Held })
}

/// Like [`begin_removal`], for the sweep: a backup that did not renew its hold in time, or that has waited for it for
/// as long, does not count.
pub(super) fn begin_sweep(root: impl AsFd, now: Time) -> io::Result<Removal> {
    if let allowed @ Removal::Allowed { .. } = begin_removal(&root)? {
        return Ok(allowed);
    }
    let is_old = |file: &OwnedFd| Ok::<_, io::Error>(now.until(Time::from_micros(modified_us(file)?)) >= TIMEOUT);
    let (Some(turn), Some(hold)) = (open_existing(&root, TURN)?, open_existing(&root, HOLD)?) else {
        return Ok(Removal::Held);
    };
    // With this lock the sweep is safe from a backup that still waits, so only its turn must be old.
    let is_locked = try_lock(&hold, FlockOperation::NonBlockingLockShared)?;
    if !is_old(if is_locked { &turn } else { &hold })? {
        return Ok(Removal::Held);
    }
    Ok(Removal::Allowed { _lock: is_locked.then_some(hold) })
}

/// Opens a locked file; `None` if no backup was ever made. A backup that creates it after this reads the rows after
/// this.
fn open_existing(root: impl AsFd, name: &str) -> io::Result<Option<OwnedFd>> {
    match rustix::fs::openat(root, name, OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty()) {
        Ok(file) => Ok(Some(file)),
        Err(Errno::NOENT) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Locks a file if no other process prevents it.
fn try_lock(file: impl AsFd, operation: FlockOperation) -> io::Result<bool> {
    match rustix::fs::flock(file, operation) {
        Ok(()) => Ok(true),
        Err(Errno::WOULDBLOCK) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

fn touch(file: impl AsFd) -> io::Result<()> {
    let now = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
    Ok(rustix::fs::futimens(file, &Timestamps { last_access: now, last_modification: now })?)
}

fn modified_us(file: impl AsFd) -> io::Result<i64> {
    let stat = rustix::fs::fstat(file)?;
    Ok(stat.st_mtime * 1_000_000 + stat.st_mtime_nsec as i64 / 1000)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root(place: &Path) -> OwnedFd {
        rustix::fs::openat(CWD, place, OFlags::DIRECTORY, Mode::empty()).unwrap()
    }

    fn now(place: &Path) -> Time {
        std::fs::write(place.join("now"), "").unwrap();
        Time::from_micros(modified_us(std::fs::File::open(place.join("now")).unwrap()).unwrap())
    }

    fn take(place: &Path) -> BackupHold {
        match HoldRequest::open(place).unwrap().try_take().unwrap() {
            HoldAttempt::Taken(hold) => hold,
            HoldAttempt::OtherBackup(_) | HoldAttempt::Removals(_) => panic!("nothing has the hold"),
        }
    }

    /// Nothing is removed while a backup holds the files, and everything may be when it has ended.
    #[test]
    fn hold_lasts_as_long_as_the_backup() {
        let place = tempfile::tempdir().unwrap();
        let root = root(place.path());
        assert!(matches!(begin_removal(&root).unwrap(), Removal::Allowed { .. }), "there was no backup yet");
        let hold = take(place.path());
        assert!(matches!(begin_removal(&root).unwrap(), Removal::Held));
        assert!(matches!(begin_sweep(&root, now(place.path())).unwrap(), Removal::Held));
        let other = HoldRequest::open(place.path()).unwrap().try_take().unwrap();
        assert!(matches!(other, HoldAttempt::OtherBackup(_)), "one backup at a time");
        hold.renew().unwrap();
        drop((hold, other));
        assert!(matches!(begin_sweep(&root, now(place.path())).unwrap(), Removal::Allowed { .. }));
        take(place.path());
    }

    /// A removal is not interrupted, and those that come after it do not keep a backup waiting.
    #[test]
    fn removals_do_not_keep_a_backup_waiting() {
        let place = tempfile::tempdir().unwrap();
        let root = root(place.path());
        drop(take(place.path()));
        let first = begin_removal(&root).unwrap();
        let request = HoldRequest::open(place.path()).unwrap();
        let HoldAttempt::Removals(request) = request.try_take().unwrap() else { panic!("a removal is in progress") };
        assert!(matches!(begin_removal(&root).unwrap(), Removal::Held), "the backup is next");
        assert!(matches!(begin_sweep(&root, now(place.path())).unwrap(), Removal::Held));
        let later = now(place.path()).after(TIMEOUT + Duration::from_secs(1));
        assert!(matches!(begin_sweep(&root, later).unwrap(), Removal::Allowed { _lock: Some(_) }));
        drop(first);
        let HoldAttempt::Taken(hold) = request.try_take().unwrap() else { panic!("the removal has ended") };
        assert!(matches!(begin_removal(&root).unwrap(), Removal::Held));
        drop(hold);
        assert!(matches!(begin_removal(&root).unwrap(), Removal::Allowed { .. }));
    }

    /// A backup that stood still loses its hold, and learns of it.
    #[test]
    fn hold_that_is_not_renewed_ends() {
        let place = tempfile::tempdir().unwrap();
        let hold = take(place.path());
        let root = root(place.path());
        let later = now(place.path()).after(TIMEOUT);
        let swept = begin_sweep(&root, later.after(Duration::from_secs(1))).unwrap();
        assert!(matches!(swept, Removal::Allowed { .. }) && matches!(begin_removal(&root).unwrap(), Removal::Held));
        let past = Timespec { tv_sec: now(place.path()).before(TIMEOUT * 2).as_micros() / 1_000_000, tv_nsec: 0 };
        rustix::fs::futimens(&hold.hold, &Timestamps { last_access: past, last_modification: past }).unwrap();
        assert!(hold.renew().unwrap_err().to_string().contains("stood still"));
    }
}

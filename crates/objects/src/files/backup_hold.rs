//! The hold of a backup on the files: while it lasts, no process removes a file that had a row when the hold began.
//!
//! The backup runs in another process than the engines that remove files. It locks a file of the directory exclusively;
//! an engine holds the lock shared while it removes. So a removal either ends before the backup reads the rows, or is
//! left to the sweep. The kernel releases the lock when the backup dies. A backup that stands still does not renew its
//! hold, and after [`TIMEOUT`] the sweep ignores it; the backup notices that and fails. Everything here may block.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

use rustix::fs::{CWD, FlockOperation, Gid, Mode, OFlags, Timespec, Timestamps, UTIME_NOW, Uid};
use rustix::io::Errno;
use tarn_model::Time;

/// The locked file. No data file has this name, and it stays after a backup.
const FILE: &str = "backup.hold";

/// The time after which the sweep ignores a hold that was not renewed.
const TIMEOUT: Duration = Duration::from_secs(600);

/// The interval at which a backup should renew its hold.
pub const RENEW_INTERVAL: Duration = Duration::from_secs(30);

/// A hold on all files, until it is dropped or the process ends.
pub struct BackupHold {
    file: File,
}

impl BackupHold {
    /// Takes the hold; `None` while another backup has it, or while an engine removes files.
    pub fn try_take(directory: &Path) -> io::Result<Option<BackupHold>> {
        let root = rustix::fs::openat(CWD, directory, OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&root, FILE, flags, Mode::RUSR | Mode::WUSR)?;
        // The engine may run as another user than the backup, and must be able to open the file.
        let owner = rustix::fs::fstat(&root)?;
        if rustix::fs::fstat(&file)?.st_uid != owner.st_uid {
            rustix::fs::fchown(&file, Some(Uid::from_raw(owner.st_uid)), Some(Gid::from_raw(owner.st_gid)))?;
        }
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => return Ok(None),
            Err(error) => return Err(error.into()),
        }
        touch(&file)?;
        Ok(Some(BackupHold { file: file.into() }))
    }

    /// Renews the hold. An error if it was not renewed for so long that files may have been removed.
    pub fn renew(&self) -> io::Result<()> {
        let before = modified_us(&self.file)?;
        touch(&self.file)?;
        let pause = Time::from_micros(modified_us(&self.file)?).until(Time::from_micros(before));
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
    /// A backup needs the files.
    Held,
}

/// Asks whether files may be removed now.
pub(super) fn begin_removal(root: impl AsFd) -> io::Result<Removal> {
    let Some(file) = open_hold(root)? else { return Ok(Removal::Allowed { _lock: None }) };
    match rustix::fs::flock(&file, FlockOperation::NonBlockingLockShared) {
        Ok(()) => Ok(Removal::Allowed { _lock: Some(file) }),
        Err(Errno::WOULDBLOCK) => Ok(Removal::Held),
        Err(error) => Err(error.into()),
    }
}

/// Like [`begin_removal`], for the sweep: a hold that was not renewed in time does not count.
pub(super) fn begin_sweep(root: impl AsFd, now: Time) -> io::Result<Removal> {
    let removal = begin_removal(&root)?;
    if let (Removal::Held, Some(file)) = (&removal, open_hold(&root)?)
        && now.until(Time::from_micros(modified_us(&file)?)) >= TIMEOUT
    {
        return Ok(Removal::Allowed { _lock: None });
    }
    Ok(removal)
}

/// Opens the file; `None` if no backup was ever made. A backup that creates it after this reads the rows after this.
fn open_hold(root: impl AsFd) -> io::Result<Option<OwnedFd>> {
    match rustix::fs::openat(root, FILE, OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty()) {
        Ok(file) => Ok(Some(file)),
        Err(Errno::NOENT) => Ok(None),
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

    /// Nothing is removed while a backup holds the files, and everything may be when it has ended.
    #[test]
    fn hold_lasts_as_long_as_the_backup() {
        let place = tempfile::tempdir().unwrap();
        let root = root(place.path());
        assert!(matches!(begin_removal(&root).unwrap(), Removal::Allowed { .. }), "there was no backup yet");
        let hold = BackupHold::try_take(place.path()).unwrap().unwrap();
        assert!(matches!(begin_removal(&root).unwrap(), Removal::Held));
        assert!(matches!(begin_sweep(&root, now(place.path())).unwrap(), Removal::Held));
        assert!(BackupHold::try_take(place.path()).unwrap().is_none(), "one backup at a time");
        hold.renew().unwrap();
        drop(hold);
        assert!(matches!(begin_sweep(&root, now(place.path())).unwrap(), Removal::Allowed { .. }));
        let removal = begin_removal(&root).unwrap();
        assert!(BackupHold::try_take(place.path()).unwrap().is_none(), "a removal is not interrupted");
        drop(removal);
        assert!(BackupHold::try_take(place.path()).unwrap().is_some());
    }

    /// A backup that stood still loses its hold, and learns of it.
    #[test]
    fn hold_that_is_not_renewed_ends() {
        let place = tempfile::tempdir().unwrap();
        let hold = BackupHold::try_take(place.path()).unwrap().unwrap();
        let root = root(place.path());
        let later = now(place.path()).after(TIMEOUT);
        let swept = begin_sweep(&root, later.after(Duration::from_secs(1))).unwrap();
        assert!(matches!(swept, Removal::Allowed { .. }) && matches!(begin_removal(&root).unwrap(), Removal::Held));
        let past = Timespec { tv_sec: now(place.path()).before(TIMEOUT * 2).as_micros() / 1_000_000, tv_nsec: 0 };
        rustix::fs::futimens(&hold.file, &Timestamps { last_access: past, last_modification: past }).unwrap();
        assert!(hold.renew().unwrap_err().to_string().contains("stood still"));
    }
}

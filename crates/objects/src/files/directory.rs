//! The directory of the data files: paths, creation, durable names, and the files in flight.
//!
//! A file lies in the subdirectory that the first two characters of its id name. Consecutive ids stay in one
//! subdirectory for a while, so that files created at the same time share its fsync. Nothing here knows the contents.
//! Everything may block.

use std::collections::HashSet;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::{Mutex, MutexGuard};
use rustix::fs::{AtFlags, CWD, FlockOperation, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use tarn_model::ids::FileId;
use tarn_model::{Ids, Time};

use super::backup_hold::{self, Removal};
use super::pending::Pending;
use super::sync_rounds::{FailureCount, SyncRounds};

/// The number of subdirectories: one for each pair of base32 characters.
const SHARDS: u64 = 1024;

/// The number of pairs of digits and letters. Not every letter is used in base32.
const PAIRS: usize = 36 * 36;

/// The number of consecutive ids in the same subdirectory.
const IDS_PER_SHARD: u64 = 64;

/// How often another id is tried when one is in use. Random numbers of 50 bits rarely collide; seeded ones may.
const TRIES: u32 = 100;

const PRIVATE: Mode = Mode::RUSR.union(Mode::WUSR);

pub(super) struct Directory {
    root: OwnedFd,
    /// The bytes of the disk that stay free.
    reserve_bytes: u64,
    ids: Arc<dyn Ids>,
    /// The number of ids handed out, starting at a random number. It selects the subdirectory.
    ids_handed_out: AtomicU64,
    shards: Vec<Shard>,
    /// Held while a subdirectory is created.
    creating: Mutex<()>,
    in_flight: Mutex<HashSet<FileId>>,
}

#[derive(Default)]
struct Shard {
    /// Whether this process has made the subdirectory durable.
    durable: AtomicBool,
    rounds: SyncRounds,
}

impl Directory {
    /// Opens the directory and creates it if it is missing.
    pub(super) fn open(path: &Path, reserve_bytes: u64, ids: Arc<dyn Ids>) -> io::Result<Self> {
        match rustix::fs::mkdir(path, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
        // The parent is synced in any case: a process that created the directory may have been killed before its sync.
        tarn_base::files::sync_parent(path)?;
        let root = rustix::fs::openat(CWD, path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        rustix::fs::fchmod(&root, Mode::RWXU)?;
        // Replicas share the directory, and a restore that takes it over has it for itself.
        match rustix::fs::flock(&root, FlockOperation::NonBlockingLockShared) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => return Err(io::Error::other("`tarn restore` takes it over at the moment")),
            Err(error) => return Err(error.into()),
        }
        let ids_handed_out = AtomicU64::new(ids.bits());
        let shards = (0..PAIRS).map(|_| Shard::default()).collect();
        Ok(Directory {
            root,
            reserve_bytes,
            ids,
            ids_handed_out,
            shards,
            creating: Mutex::default(),
            in_flight: Mutex::default(),
        })
    }

    /// Returns the bytes that an unprivileged user could still write, including the reserve.
    pub(super) fn free_bytes(&self) -> io::Result<u64> {
        let stat = rustix::fs::fstatvfs(&self.root)?;
        Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
    }

    /// Returns the size of the filesystem.
    pub(super) fn disk_bytes(&self) -> io::Result<u64> {
        let stat = rustix::fs::fstatvfs(&self.root)?;
        Ok(stat.f_blocks.saturating_mul(stat.f_frsize))
    }

    /// Returns whether only the reserve of the disk is left.
    pub(super) fn is_full(&self) -> io::Result<bool> {
        Ok(self.free_bytes()? < self.reserve_bytes)
    }

    /// Creates an empty file with a new id. Its name is durable only after [`Directory::sync_name`].
    pub(super) fn create(self: &Arc<Self>) -> io::Result<(File, Pending)> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let (file, pending) =
            self.with_fresh_id(|file_path| rustix::fs::openat(&self.root, file_path, flags, PRIVATE))?;
        Ok((file.into(), pending))
    }

    /// Creates another name for a file, with a new id. It is durable only after [`Directory::sync_name`].
    pub(super) fn link(self: &Arc<Self>, from: &FileId) -> io::Result<Pending> {
        let from = file_path(from);
        let link = |to: &str| rustix::fs::linkat(&self.root, &from, &self.root, to, AtFlags::empty());
        self.with_fresh_id(link).map(|((), pending)| pending)
    }

    /// Opens a file for reading.
    pub(super) fn open_file(&self, id: &FileId) -> io::Result<File> {
        Ok(rustix::fs::openat(&self.root, file_path(id), READING, Mode::empty())?.into())
    }

    /// Like [`Directory::open_file`], but never waits for a disk: `WouldBlock` says that it would have to.
    pub(super) fn open_file_now(&self, id: &FileId) -> io::Result<File> {
        let resolve = ResolveFlags::CACHED | ResolveFlags::BENEATH;
        match rustix::fs::openat2(&self.root, file_path(id), READING, Mode::empty(), resolve) {
            Ok(file) => Ok(file.into()),
            Err(Errno::NOENT) => Err(io::ErrorKind::NotFound.into()),
            // Some kernels and sandboxes lack the system call. A blocking thread finds the actual error.
            Err(_) => Err(io::ErrorKind::WouldBlock.into()),
        }
    }

    /// Makes the name of a file durable.
    pub(super) fn sync_name(&self, pending: &Pending) -> io::Result<()> {
        let id = pending.id();
        let rounds = &self.shards[shard_of(id)].rounds;
        rounds.wait_for_round(pending.since(), || self.open_directory(shard_name(id))?.sync_all())
    }

    /// Must be called before a name is created, so that [`Directory::sync_name`] reports every failure after that.
    pub(super) fn since(&self, id: &FileId) -> FailureCount {
        self.shards[shard_of(id)].rounds.since()
    }

    /// Removes a file. A missing file is no error. The removal is not synced: after a crash, the sweep repeats it.
    pub(super) fn remove(&self, id: &FileId) -> io::Result<()> {
        match rustix::fs::unlinkat(&self.root, file_path(id), AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Asks whether files that had rows may be removed now.
    pub(super) fn begin_removal(&self) -> io::Result<Removal> {
        backup_hold::begin_removal(&self.root)
    }

    /// Asks whether the sweep may remove files now.
    pub(super) fn begin_sweep(&self, now: Time) -> io::Result<Removal> {
        backup_hold::begin_sweep(&self.root, now)
    }

    /// Returns when the file last changed in any way, including links, in microseconds; `None` when it is missing.
    pub(super) fn changed_us(&self, id: &FileId) -> io::Result<Option<i64>> {
        match rustix::fs::statat(&self.root, file_path(id), AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(stat.st_ctime * 1_000_000 + stat.st_ctime_nsec as i64 / 1000)),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Returns the names of the entries of the directory, or of one of its subdirectories.
    pub(super) fn entry_names(&self, shard: Option<&str>) -> io::Result<Vec<String>> {
        let directory = match self.open_directory(shard.unwrap_or(".")) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            opened => opened?,
        };
        let mut names = Vec::new();
        for entry in rustix::fs::Dir::read_from(directory)? {
            // A name that is not UTF-8 is not one of our files.
            if let Ok(name) = entry?.file_name().to_str() {
                names.push(name.to_owned());
            }
        }
        Ok(names)
    }

    /// Returns the files that are being created, or whose row is being written.
    pub(super) fn in_flight(&self) -> MutexGuard<'_, HashSet<FileId>> {
        self.in_flight.lock()
    }

    /// Lets `make` create something at the path of a new id. The id is in flight before anything exists.
    fn with_fresh_id<T>(self: &Arc<Self>, make: impl Fn(&str) -> Result<T, Errno>) -> io::Result<(T, Pending)> {
        let mut tries = 0;
        loop {
            let shard = (self.ids_handed_out.fetch_add(1, Ordering::Relaxed) / IDS_PER_SHARD) % SHARDS;
            let id = FileId::fresh(&ChosenBits(shard << 50 | self.ids.bits() >> 14));
            self.ensure_shard(&id)?;
            // An id in flight is in use, too, even if it has no file yet.
            let claim = Pending::claim(self, id).ok_or(Errno::EXIST);
            match claim.and_then(|claim| make(&file_path(claim.id())).map(|made| (made, claim.with_file()))) {
                Ok(made) => return Ok(made),
                Err(Errno::EXIST) if tries < TRIES => tries += 1,
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Makes the subdirectory of an id durable, once per process.
    fn ensure_shard(&self, id: &FileId) -> io::Result<()> {
        let shard = &self.shards[shard_of(id)];
        if shard.durable.load(Ordering::Acquire) {
            return Ok(());
        }
        // One thread at a time: the kernel reports a failed sync once, and a second thread would take the subdirectory
        // for durable.
        let _alone = self.creating.lock();
        let created = match rustix::fs::mkdirat(&self.root, shard_name(id), Mode::RWXU) {
            Ok(()) => true,
            Err(Errno::EXIST) => false,
            Err(error) => return Err(error.into()),
        };
        if let Err(error) = rustix::fs::fsync(&self.root) {
            if created {
                // So that the next caller has to create it again.
                let _ = rustix::fs::unlinkat(&self.root, shard_name(id), AtFlags::REMOVEDIR);
            }
            return Err(error.into());
        }
        shard.durable.store(true, Ordering::Release);
        Ok(())
    }

    fn open_directory(&self, name: &str) -> io::Result<File> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(rustix::fs::openat(&self.root, name, flags, Mode::empty())?.into())
    }
}

const READING: OFlags = OFlags::RDONLY.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// An id source with one given number.
struct ChosenBits(u64);

impl Ids for ChosenBits {
    fn bits(&self) -> u64 {
        self.0
    }
}

/// Returns the subdirectory of a file.
pub(super) fn shard_name(id: &FileId) -> &str {
    &id.as_str()[FileId::PREFIX.len()..][..2]
}

fn file_path(id: &FileId) -> String {
    format!("{}/{}", shard_name(id), id)
}

fn shard_of(id: &FileId) -> usize {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => byte - b'0',
        _ => byte - b'a' + 10,
    };
    shard_name(id).bytes().fold(0, |number, byte| number * 36 + usize::from(digit(byte)))
}

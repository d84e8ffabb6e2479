//! The directory of the files: where a file is, how one is made, how its name becomes durable, and which are in flight.
//!
//! A file lies in the subdirectory that the first two characters of its id name. New ids stay with one subdirectory for a
//! while, so that files that are made at the same time share the fsync of it. Contents are not known here; everything may
//! block.

use std::collections::HashSet;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::fs::{AtFlags, CWD, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use tarn_model::Ids;
use tarn_model::ids::FileId;

use super::pending::Pending;
use super::sync_rounds::{Rounds, Since};

/// How many subdirectories there are: one for each pair of base32 characters.
const SHARDS: u64 = 1024;

/// How many pairs of digits and letters there are; not every letter is in base32.
const PAIRS: usize = 36 * 36;

/// How many files in a row go to the same subdirectory.
const RUN: u64 = 64;

/// How often another id is tried when one is taken. Random numbers of 50 bits hardly meet; seeded ones may come again.
const TRIES: u32 = 100;

const PRIVATE: Mode = Mode::RUSR.union(Mode::WUSR);

pub(super) struct Directory {
    root: OwnedFd,
    /// How many bytes of the disk are left alone.
    reserve_bytes: u64,
    ids: Arc<dyn Ids>,
    /// How many ids were given out, from a random number on: it chooses the subdirectory.
    given: AtomicU64,
    shards: Vec<Shard>,
    /// Held by the one who makes a subdirectory.
    making: Mutex<()>,
    in_flight: Mutex<HashSet<FileId>>,
}

#[derive(Default)]
struct Shard {
    /// Whether this process has seen to it that the subdirectory exists and stays.
    durable: AtomicBool,
    rounds: Rounds,
}

impl Directory {
    /// Opens the directory, which is made if it is missing.
    pub(super) fn open(path: &Path, reserve_bytes: u64, ids: Arc<dyn Ids>) -> io::Result<Self> {
        match rustix::fs::mkdir(path, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
        // Also when it was there: whoever made it may have been killed before this.
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        File::open(parent)?.sync_all()?;
        let root = rustix::fs::openat(CWD, path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        rustix::fs::fchmod(&root, Mode::RWXU)?;
        let given = AtomicU64::new(ids.bits());
        let shards = (0..PAIRS).map(|_| Shard::default()).collect();
        Ok(Directory { root, reserve_bytes, ids, given, shards, making: Mutex::default(), in_flight: Mutex::default() })
    }

    /// How many bytes a user without privileges could still write, the reserve included.
    pub(super) fn free_bytes(&self) -> io::Result<u64> {
        let stat = rustix::fs::fstatvfs(&self.root)?;
        Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
    }

    /// Whether nothing but the reserve is left of the disk.
    pub(super) fn is_full(&self) -> io::Result<bool> {
        Ok(self.free_bytes()? < self.reserve_bytes)
    }

    /// Makes an empty file with a new id. Its name is durable only after [`Directory::sync_name`].
    pub(super) fn create(self: &Arc<Self>) -> io::Result<(File, Pending)> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let (file, pending) = self.fresh(|place| rustix::fs::openat(&self.root, place, flags, PRIVATE))?;
        Ok((file.into(), pending))
    }

    /// Gives a file one more name, a new id. It is durable only after [`Directory::sync_name`].
    pub(super) fn link(self: &Arc<Self>, from: &FileId) -> io::Result<Pending> {
        let from = place(from);
        let link = |to: &str| rustix::fs::linkat(&self.root, &from, &self.root, to, AtFlags::empty());
        self.fresh(link).map(|((), pending)| pending)
    }

    /// Opens a file to read it.
    pub(super) fn open_file(&self, id: &FileId) -> io::Result<File> {
        Ok(rustix::fs::openat(&self.root, place(id), READING, Mode::empty())?.into())
    }

    /// As [`Directory::open_file`], but it never waits for a disk: `WouldBlock` says that it would have to.
    pub(super) fn open_file_now(&self, id: &FileId) -> io::Result<File> {
        let resolve = ResolveFlags::CACHED | ResolveFlags::BENEATH;
        match rustix::fs::openat2(&self.root, place(id), READING, Mode::empty(), resolve) {
            Ok(file) => Ok(file.into()),
            Err(Errno::NOENT) => Err(io::ErrorKind::NotFound.into()),
            // Some kernels and sandboxes do not know the question; a thread that may wait finds out what is the matter.
            Err(_) => Err(io::ErrorKind::WouldBlock.into()),
        }
    }

    /// Makes the name of a file durable.
    pub(super) fn sync_name(&self, pending: &Pending) -> io::Result<()> {
        let id = pending.id();
        let rounds = &self.shards[shard_of(id)].rounds;
        rounds.covered(pending.since(), || self.open_directory(shard_name(id))?.sync_all())
    }

    /// What to ask for before a name is made, so that [`Directory::sync_name`] hears of every failure after that.
    pub(super) fn since(&self, id: &FileId) -> Since {
        self.shards[shard_of(id)].rounds.since()
    }

    /// Removes a file; that it is gone already is fine. Whether the removal is durable is left to time and the sweep.
    pub(super) fn remove(&self, id: &FileId) -> io::Result<()> {
        match rustix::fs::unlinkat(&self.root, place(id), AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// When the file last changed in any way, also by a link, in microseconds; `None` when it is gone.
    pub(super) fn changed_us(&self, id: &FileId) -> io::Result<Option<i64>> {
        match rustix::fs::statat(&self.root, place(id), AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(stat.st_ctime * 1_000_000 + stat.st_ctime_nsec as i64 / 1000)),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// The names of what is in the directory, or in one of its subdirectories.
    pub(super) fn names(&self, shard: Option<&str>) -> io::Result<Vec<String>> {
        let directory = match self.open_directory(shard.unwrap_or(".")) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            opened => opened?,
        };
        let mut names = Vec::new();
        for entry in rustix::fs::Dir::read_from(directory)? {
            // What is not text is not ours.
            if let Ok(name) = entry?.file_name().to_str() {
                names.push(name.to_owned());
            }
        }
        Ok(names)
    }

    /// The files that are being made, or whose row is being written.
    pub(super) fn in_flight(&self) -> MutexGuard<'_, HashSet<FileId>> {
        self.in_flight.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets `make` put something at the place of a new id. The id is in flight before anything is there.
    fn fresh<T>(self: &Arc<Self>, make: impl Fn(&str) -> Result<T, Errno>) -> io::Result<(T, Pending)> {
        let mut tries = 0;
        loop {
            let shard = (self.given.fetch_add(1, Ordering::Relaxed) / RUN) % SHARDS;
            let id = FileId::fresh(&Bits(shard << 50 | self.ids.bits() >> 14));
            self.ensure_shard(&id)?;
            // An id in flight is taken as well, whether there is a file already or not.
            let claim = Pending::claim(self, id).ok_or(Errno::EXIST);
            match claim.and_then(|claim| make(&place(claim.id())).map(|made| (made, claim.made()))) {
                Ok(made) => return Ok(made),
                Err(Errno::EXIST) if tries < TRIES => tries += 1,
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Sees to it, once in the life of the process, that the subdirectory of an id exists and will after a crash.
    fn ensure_shard(&self, id: &FileId) -> io::Result<()> {
        let shard = &self.shards[shard_of(id)];
        if shard.durable.load(Ordering::Acquire) {
            return Ok(());
        }
        // One at a time: the kernel tells a failed sync once, and a second one would take the subdirectory for durable.
        let _alone = self.making.lock().unwrap_or_else(PoisonError::into_inner);
        let made = match rustix::fs::mkdirat(&self.root, shard_name(id), Mode::RWXU) {
            Ok(()) => true,
            Err(Errno::EXIST) => false,
            Err(error) => return Err(error.into()),
        };
        if let Err(error) = rustix::fs::fsync(&self.root) {
            if made {
                // So that the next one has to make it again.
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

/// Bits that are chosen already.
struct Bits(u64);

impl Ids for Bits {
    fn bits(&self) -> u64 {
        self.0
    }
}

/// The subdirectory of a file.
pub(super) fn shard_name(id: &FileId) -> &str {
    &id.as_str()[FileId::PREFIX.len()..][..2]
}

fn place(id: &FileId) -> String {
    format!("{}/{}", shard_name(id), id)
}

fn shard_of(id: &FileId) -> usize {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => byte - b'0',
        _ => byte - b'a' + 10,
    };
    shard_name(id).bytes().fold(0, |number, byte| number * 36 + usize::from(digit(byte)))
}

//! Unpacking the files of a job: a program of its own that runs as the user in the directory of the job.
//!
//! So the kernel decides what may be written. Beyond that an archive may only hold what a directory of a person holds:
//! paths that are relative and clean, files, directories and links. Links may say anything, but nothing is ever written
//! through one that leads out of the directory.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::OwnedFd;
use std::path::{Component, Path, PathBuf};
use std::time::{Duration, SystemTime};

use flate2::read::MultiGzDecoder;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, setrlimit};
use tar::{Archive, Entry, EntryType};

use super::failures::Failure;
use super::walk::open_below;
use crate::configuration::files::open_directory;

/// How many entries an archive may have.
const MAX_ENTRIES: usize = 1_000_000;

/// How much memory unpacking may take: names in an archive can be of any length.
const MAX_MEMORY: u64 = 512 << 20;

/// How much of the disk is left to others.
const RESERVE: u64 = 256 << 20;

/// Bits of a mode that are not kept: a file must not give away the rights of its owner.
const DROPPED: u32 = 0o7000;

/// How much is read at a time.
const PIECE: usize = 256 << 10;

/// The life of the helper: unpacks its input, and says what came of it.
pub fn main() -> io::Result<()> {
    let limit = Some(MAX_MEMORY);
    // Without it a hostile archive takes what the instance has, and the helper is the first to die of it.
    let _ = setrlimit(Resource::As, Rlimit { current: limit, maximum: limit });
    let outcome = unpack(io::stdin().lock(), Path::new("."));
    io::stdout().write_all(&serde_json::to_vec(&outcome)?)
}

fn unpack(input: impl io::Read, directory: &Path) -> Result<(), Failure> {
    let mut archive = Archive::new(MultiGzDecoder::new(io::BufReader::with_capacity(PIECE, input)));
    archive.set_preserve_permissions(true);
    archive.set_preserve_mtime(true);
    archive.set_overwrite(true);
    let unpacked = unpack_all(&mut archive, directory);
    // The sum at the very end is part of the archive, and whoever sends it should be heard out.
    unpacked.and_then(|()| io::copy(&mut archive.into_inner(), &mut io::sink()).map(|_| ()).map_err(|e| broken(&e)))
}

fn unpack_all(archive: &mut Archive<impl io::Read>, directory: &Path) -> Result<(), Failure> {
    let directory = directory.canonicalize().map_err(|e| Failure::during("the directory of the job is gone", &e))?;
    let top = open_directory(&directory).map_err(|e| Failure::during("the directory of the job is gone", &e))?;
    let mut directories = BTreeMap::new();
    for (count, entry) in archive.entries().map_err(|e| broken(&e))?.enumerate() {
        let mut entry = entry.map_err(|e| broken(&e))?;
        if count >= MAX_ENTRIES {
            return Err(Failure::lasting(format!("the archive has more than {MAX_ENTRIES} entries")));
        }
        let kind = check(&entry)?;
        leave_room(&directory, entry.size())?;
        match kind {
            Kind::Skipped => {}
            Kind::Directory => {
                let path = make_directory(&entry, &top)?;
                let header = entry.header();
                let (mode, time) = (header.mode().map_err(|e| broken(&e))?, header.mtime().map_err(|e| broken(&e))?);
                directories.insert(path, (mode, time));
            }
            Kind::Other => write(&mut entry, &directory)?,
        }
    }
    // A directory may be one that nothing can be put into, so what it should be like is said last, and inside first.
    directories.iter().rev().try_for_each(|(path, (mode, time))| finish(&top, path, *mode, *time))
}

enum Kind {
    Skipped,
    Directory,
    Other,
}

/// Whether an entry may be unpacked.
fn check(entry: &Entry<'_, impl io::Read>) -> Result<Kind, Failure> {
    let name = shown(&entry.path_bytes());
    let path = entry.path().map_err(|e| broken(&e))?;
    if !is_clean(&path) {
        return Err(Failure::lasting(format!("the archive has a path that is not clean and relative: {name}")));
    }
    match entry.header().entry_type() {
        EntryType::XGlobalHeader => Ok(Kind::Skipped),
        EntryType::Directory => Ok(Kind::Directory),
        EntryType::Regular | EntryType::Continuous | EntryType::GNUSparse | EntryType::Symlink => Ok(Kind::Other),
        EntryType::Link => match entry.link_name() {
            Ok(Some(target)) if is_clean(&target) => Ok(Kind::Other),
            _ => Err(Failure::lasting(format!("the archive has a hard link that leads out of it: {name}"))),
        },
        _ => Err(Failure::lasting(format!("the archive has something that is no file, directory or link: {name}"))),
    }
}

/// Makes a directory, and those that it lies in, and gives its path; it may be there already.
fn make_directory(entry: &Entry<'_, impl io::Read>, top: &OwnedFd) -> Result<PathBuf, Failure> {
    let failed = |path: &Path, e: Errno| not_unpacked(path, e.into());
    let path = entry.path().map_err(|e| broken(&e))?;
    let mut made = PathBuf::new();
    let mut parent = None;
    for name in path.components().filter(|part| matches!(part, Component::Normal(_))) {
        let above: &OwnedFd = parent.as_ref().unwrap_or(top);
        match rustix::fs::mkdirat(above, name.as_os_str(), Mode::from_raw_mode(0o755)) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(e) => return Err(failed(&path, e)),
        }
        made.push(name);
        // Looked up from the top each time: a link may lead anywhere inside of the directory.
        parent = Some(open_below(top, &made, OFlags::PATH | OFlags::DIRECTORY).map_err(|e| failed(&path, e))?);
    }
    Ok(made)
}

/// Makes a directory what it should be, when everything is in it.
fn finish(top: &OwnedFd, path: &Path, mode: u32, time: u64) -> Result<(), Failure> {
    if path.as_os_str().is_empty() {
        // The directory of the job itself is the guest's.
        return Ok(());
    }
    let finished = open_below(top, path, OFlags::RDONLY | OFlags::DIRECTORY).and_then(|directory| {
        rustix::fs::fchmod(&directory, Mode::from_raw_mode(mode & !DROPPED & 0o777))?;
        Ok(directory)
    });
    let time = SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(time));
    let dated = finished.map_err(io::Error::from).and_then(|directory| match time {
        Some(time) => File::from(directory).set_modified(time),
        None => Ok(()),
    });
    dated.map_err(|e| not_unpacked(path, e))
}

fn not_unpacked(path: &Path, error: io::Error) -> Failure {
    let name = shown(path.as_os_str().as_encoded_bytes());
    if [Errno::XDEV, Errno::LOOP].iter().any(|errno| error.raw_os_error() == Some(errno.raw_os_error())) {
        return Failure::lasting(format!("{name} leads out of the archive"));
    }
    Failure::during(&format!("{name} could not be unpacked"), &error)
}

fn write(entry: &mut Entry<'_, impl io::Read>, directory: &Path) -> Result<(), Failure> {
    entry.set_mask(DROPPED);
    match entry.unpack_in(directory) {
        Ok(true) => Ok(()),
        Ok(false) => Err(Failure::lasting(format!("{} leads out of the archive", shown(&entry.path_bytes())))),
        Err(e) => {
            let cause = root_of(&e);
            Err(Failure::during(&format!("{} could not be unpacked", shown(&entry.path_bytes())), cause))
        }
    }
}

/// The error below the library's words, if the system reported one.
fn root_of(error: &io::Error) -> &io::Error {
    let inner = error.get_ref().and_then(|inner| inner.source()).and_then(|inner| inner.downcast_ref::<io::Error>());
    inner.map_or(error, root_of)
}

/// Refuses what would fill the disk, before it does.
fn leave_room(directory: &Path, size: u64) -> Result<(), Failure> {
    let free = rustix::fs::statvfs(directory).map(|found| found.f_bavail.saturating_mul(found.f_frsize));
    match free {
        Ok(free) if free < size.saturating_add(RESERVE) => {
            Err(Failure::passing("the files do not fit on the disk of the node"))
        }
        _ => Ok(()),
    }
}

fn broken(error: &io::Error) -> Failure {
    Failure::lasting(format!("the archive is broken: {}", shown(error.to_string().as_bytes())))
}

fn is_clean(path: &Path) -> bool {
    let mut components = path.components();
    components.all(|part| matches!(part, Component::Normal(_) | Component::CurDir)) && path.as_os_str().len() < 4096
}

/// A name for a message: no longer than a line, and with nothing odd in it.
fn shown(name: &[u8]) -> String {
    let name = String::from_utf8_lossy(name);
    name.chars().take(200).flat_map(char::escape_debug).collect()
}

//! Unpacks the files of a job: a helper program that runs as the user in the directory of the job.
//!
//! So the kernel decides what may be written. In addition, an archive may only contain regular content: relative,
//! normalized paths, files, directories and links. Links may point anywhere, but nothing is ever written through one
//! that leads out of the directory.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path, PathBuf};

use flate2::read::MultiGzDecoder;
use rustix::fs::{AtFlags, Mode, OFlags, Timespec, Timestamps};
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, setrlimit};
use tarn_base::archive::{Entries, Entry, EntryType};

use crate::filesystem::open_directory;
use crate::jobs::attempts::Failure;
use crate::jobs::files::walk::open_below;

/// The maximum number of entries in an archive.
const MAX_ENTRIES: usize = 1_000_000;

/// The maximum size of a name or of the PAX records of one entry, as in the engine.
const MAX_EXTENSION: u64 = 1 << 20;

/// The memory limit of unpacking, whatever an archive holds.
const MAX_MEMORY: u64 = 512 << 20;

/// How much of the disk is left to other uses.
const RESERVE: u64 = 256 << 20;

/// How much is read at a time.
const PIECE: usize = 256 << 10;

/// Runs the helper: unpacks its standard input, and writes the result to its standard output.
pub fn run_unpack_helper() -> io::Result<()> {
    let limit = Some(MAX_MEMORY);
    // Without the limit, a hostile archive could exhaust the memory of the instance.
    let _ = setrlimit(Resource::As, Rlimit { current: limit, maximum: limit });
    let outcome = unpack_archive(io::stdin().lock(), Path::new("."));
    io::stdout().write_all(&serde_json::to_vec(&outcome)?)
}

fn unpack_archive(input: impl io::Read, directory: &Path) -> Result<(), Failure> {
    let decoder = MultiGzDecoder::new(io::BufReader::with_capacity(PIECE, input));
    let mut archive = Entries::new(decoder, MAX_EXTENSION);
    let top = open_directory(directory).map_err(|e| Failure::from_io_error("the directory of the job is gone", &e))?;
    unpack_entries(&mut archive, &top)?;
    // The checksum at the end belongs to the archive, and the sender must be able to send everything.
    io::copy(&mut archive.into_inner(), &mut io::sink()).map(|_| ()).map_err(|e| broken_archive(&e))
}

fn unpack_entries(archive: &mut Entries<impl io::Read>, top: &OwnedFd) -> Result<(), Failure> {
    let mut directories = BTreeMap::new();
    let mut count = 0;
    while let Some(entry) = archive.next_entry().map_err(|e| broken_archive(&e))? {
        count += 1;
        if count > MAX_ENTRIES {
            return Err(Failure::permanent(format!("the archive has more than {MAX_ENTRIES} entries")));
        }
        check_entry(&entry)?;
        check_free_space(top, entry.size)?;
        let path: PathBuf = as_path(&entry.path).components().filter(|part| *part != Component::CurDir).collect();
        let unpacked = match entry.kind {
            EntryType::Directory => create_directories(top, &path).map(drop).map_err(io::Error::from),
            _ => unpack_entry(archive, &entry, top, &path),
        };
        unpacked.map_err(|e| unpack_failure(&path, &e))?;
        if entry.kind == EntryType::Directory {
            directories.insert(path, attributes(&entry));
        }
    }
    // A directory may become read-only, so its attributes are set last, and those of subdirectories first. The guest
    // determines the attributes of the job's directory itself.
    for (path, (mode, times)) in directories.iter().rev().filter(|(path, _)| !path.as_os_str().is_empty()) {
        let restored = open_below(top, path, OFlags::RDONLY | OFlags::DIRECTORY)
            .and_then(|directory| set_attributes(&directory, *mode, times.as_ref()));
        restored.map_err(|e| unpack_failure(path, &e.into()))?;
    }
    Ok(())
}

/// Checks whether an entry may be unpacked.
fn check_entry(entry: &Entry) -> Result<(), Failure> {
    let refuse = |why: &str| Err(Failure::permanent(format!("the archive has {why}: {}", printable_name(&entry.path))));
    if !is_clean_path(as_path(&entry.path)) {
        return refuse("a path that is not relative and normalized");
    }
    match entry.kind {
        EntryType::Regular | EntryType::Continuous | EntryType::Directory | EntryType::Symlink => Ok(()),
        EntryType::Link if is_clean_path(as_path(&entry.link)) => Ok(()),
        EntryType::Link => refuse("a hard link that leads out of it"),
        _ => refuse("an entry that is not a file, directory or link"),
    }
}

/// Creates a directory and its parents; they may exist already.
fn create_directories(top: &OwnedFd, path: &Path) -> rustix::io::Result<OwnedFd> {
    // Always resolved from the top: a link may lead anywhere inside the directory.
    let open = |path: &Path| open_below(top, path, OFlags::PATH | OFlags::DIRECTORY);
    match (open(path), path.parent(), path.file_name()) {
        (Err(Errno::NOENT), Some(above), Some(name)) => {
            rustix::fs::mkdirat(create_directories(top, above)?, name, Mode::from_raw_mode(0o755))?;
            open(path)
        }
        (opened, ..) => opened,
    }
}

/// Writes a file or a link. An existing file is replaced, and never written to.
fn unpack_entry(archive: &mut Entries<impl io::Read>, entry: &Entry, top: &OwnedFd, path: &Path) -> io::Result<()> {
    let (Some(above), Some(name)) = (path.parent(), path.file_name()) else { return Ok(()) };
    let parent = create_directories(top, above)?;
    let target = as_path(&entry.link);
    if entry.kind == EntryType::Link {
        let (Some(above), Some(target)) = (target.parent(), target.file_name()) else {
            return Err(Errno::NOENT.into());
        };
        let above = open_below(top, above, OFlags::PATH | OFlags::DIRECTORY)?;
        return Ok(rustix::fs::linkat(above, target, parent, name, AtFlags::empty())?);
    }
    match rustix::fs::unlinkat(&parent, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => {}
        Err(e) => return Err(e.into()),
    }
    let (mode, times) = attributes(entry);
    if entry.kind == EntryType::Symlink {
        rustix::fs::symlinkat(target, &parent, name)?;
        return match times {
            Some(times) => Ok(rustix::fs::utimensat(&parent, name, &times, AtFlags::SYMLINK_NOFOLLOW)?),
            None => Ok(()),
        };
    }
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let mut file = File::from(rustix::fs::openat(&parent, name, flags, Mode::RUSR | Mode::WUSR)?);
    io::copy(archive, &mut file)?;
    Ok(set_attributes(&file, mode, times.as_ref())?)
}

/// Returns the mode of an entry, and when it was changed. A file must not pass the rights of its owner on.
fn attributes(entry: &Entry) -> (Mode, Option<Timestamps>) {
    let mode = entry.header.mode().unwrap_or(if entry.kind == EntryType::Directory { 0o755 } else { 0o644 });
    let changed = entry.header.mtime().ok().and_then(|seconds| i64::try_from(seconds).ok());
    let times = changed.map(|tv_sec| Timespec { tv_sec, tv_nsec: 0 });
    let times = times.map(|time| Timestamps { last_access: time, last_modification: time });
    (Mode::from_raw_mode(mode & 0o777), times)
}

fn set_attributes(file: impl AsFd, mode: Mode, times: Option<&Timestamps>) -> rustix::io::Result<()> {
    rustix::fs::fchmod(&file, mode)?;
    times.map_or(Ok(()), |times| rustix::fs::futimens(&file, times))
}

fn unpack_failure(path: &Path, error: &io::Error) -> Failure {
    let name = printable_name(path.as_os_str().as_encoded_bytes());
    if [Errno::XDEV, Errno::LOOP].iter().any(|errno| error.raw_os_error() == Some(errno.raw_os_error())) {
        return Failure::permanent(format!("{name} leads out of the archive"));
    }
    Failure::from_io_error(&format!("{name} could not be unpacked"), error)
}

/// Rejects an entry that would fill the disk.
fn check_free_space(directory: &OwnedFd, size: u64) -> Result<(), Failure> {
    let free = rustix::fs::fstatvfs(directory).map(|found| found.f_bavail.saturating_mul(found.f_frsize));
    match free {
        Ok(free) if free < size.saturating_add(RESERVE) => {
            Err(Failure::temporary("the files do not fit on the disk of the node"))
        }
        _ => Ok(()),
    }
}

fn broken_archive(error: &io::Error) -> Failure {
    Failure::permanent(format!("the archive is broken: {}", printable_name(error.to_string().as_bytes())))
}

fn as_path(bytes: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(bytes))
}

fn is_clean_path(path: &Path) -> bool {
    let mut components = path.components();
    components.all(|part| matches!(part, Component::Normal(_) | Component::CurDir)) && path.as_os_str().len() < 4096
}

/// Formats a name for a message.
fn printable_name(name: &[u8]) -> String {
    tarn_base::plain(&String::from_utf8_lossy(name), 200).into_owned()
}

//! Unpacks the files of a job: a helper program that runs as the user in the directory of the job.
//!
//! So the kernel decides what may be written. In addition, an archive may only contain regular content: relative,
//! normalized paths, files, directories and links. Links may point anywhere, but nothing is ever written through one
//! that leads out of the directory.

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

use crate::filesystem::open_directory;
use crate::jobs::attempts::failure::Failure;
use crate::jobs::files::walk::open_below;

/// The maximum number of entries in an archive.
const MAX_ENTRIES: usize = 1_000_000;

/// The memory limit of unpacking: names in an archive can have any length.
const MAX_MEMORY: u64 = 512 << 20;

/// How much of the disk is left to other uses.
const RESERVE: u64 = 256 << 20;

/// Mode bits that are dropped: a file must not pass the rights of its owner on.
const DROPPED: u32 = 0o7000;

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
    let mut archive = Archive::new(MultiGzDecoder::new(io::BufReader::with_capacity(PIECE, input)));
    archive.set_preserve_permissions(true);
    archive.set_preserve_mtime(true);
    archive.set_overwrite(true);
    let unpacked = unpack_entries(&mut archive, directory);
    // The checksum at the end belongs to the archive, and the sender must be able to send everything.
    unpacked
        .and_then(|()| io::copy(&mut archive.into_inner(), &mut io::sink()).map(|_| ()).map_err(|e| broken_archive(&e)))
}

fn unpack_entries(archive: &mut Archive<impl io::Read>, directory: &Path) -> Result<(), Failure> {
    let directory =
        directory.canonicalize().map_err(|e| Failure::from_io_error("the directory of the job is gone", &e))?;
    let top = open_directory(&directory).map_err(|e| Failure::from_io_error("the directory of the job is gone", &e))?;
    let mut directories = BTreeMap::new();
    for (count, entry) in archive.entries().map_err(|e| broken_archive(&e))?.enumerate() {
        let mut entry = entry.map_err(|e| broken_archive(&e))?;
        if count >= MAX_ENTRIES {
            return Err(Failure::permanent(format!("the archive has more than {MAX_ENTRIES} entries")));
        }
        let kind = classify_entry(&entry)?;
        check_free_space(&directory, entry.size())?;
        match kind {
            EntryKind::Skipped => {}
            EntryKind::Directory => {
                let path = create_entry_directory(&entry, &top)?;
                let header = entry.header();
                let (mode, time) =
                    (header.mode().map_err(|e| broken_archive(&e))?, header.mtime().map_err(|e| broken_archive(&e))?);
                directories.insert(path, (mode, time));
            }
            EntryKind::Other => unpack_entry(&mut entry, &directory)?,
        }
    }
    // A directory may become read-only, so its attributes are set last, and those of subdirectories first.
    directories.iter().rev().try_for_each(|(path, (mode, time))| restore_directory_attributes(&top, path, *mode, *time))
}

enum EntryKind {
    Skipped,
    Directory,
    Other,
}

/// Checks whether an entry may be unpacked, and returns its kind.
fn classify_entry(entry: &Entry<'_, impl io::Read>) -> Result<EntryKind, Failure> {
    let name = printable_name(&entry.path_bytes());
    let path = entry.path().map_err(|e| broken_archive(&e))?;
    if !is_clean_path(&path) {
        return Err(Failure::permanent(format!("the archive has a path that is not relative and normalized: {name}")));
    }
    match entry.header().entry_type() {
        EntryType::XGlobalHeader => Ok(EntryKind::Skipped),
        EntryType::Directory => Ok(EntryKind::Directory),
        EntryType::Regular | EntryType::Continuous | EntryType::GNUSparse | EntryType::Symlink => Ok(EntryKind::Other),
        EntryType::Link => match entry.link_name() {
            Ok(Some(target)) if is_clean_path(&target) => Ok(EntryKind::Other),
            _ => Err(Failure::permanent(format!("the archive has a hard link that leads out of it: {name}"))),
        },
        _ => Err(Failure::permanent(format!("the archive has an entry that is not a file, directory or link: {name}"))),
    }
}

/// Creates a directory and its parents, and returns its path; it may exist already.
fn create_entry_directory(entry: &Entry<'_, impl io::Read>, top: &OwnedFd) -> Result<PathBuf, Failure> {
    let failed = |path: &Path, e: Errno| unpack_failure(path, e.into());
    let path = entry.path().map_err(|e| broken_archive(&e))?;
    let mut made = PathBuf::new();
    let mut parent = None;
    for name in path.components().filter(|part| matches!(part, Component::Normal(_))) {
        let above: &OwnedFd = parent.as_ref().unwrap_or(top);
        match rustix::fs::mkdirat(above, name.as_os_str(), Mode::from_raw_mode(0o755)) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(e) => return Err(failed(&path, e)),
        }
        made.push(name);
        // Resolved from the top each time: a link may lead anywhere inside the directory.
        parent = Some(open_below(top, &made, OFlags::PATH | OFlags::DIRECTORY).map_err(|e| failed(&path, e))?);
    }
    Ok(made)
}

/// Sets the attributes of a directory after its contents are complete.
fn restore_directory_attributes(top: &OwnedFd, path: &Path, mode: u32, time: u64) -> Result<(), Failure> {
    if path.as_os_str().is_empty() {
        // The guest determines the attributes of the job's directory itself.
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
    dated.map_err(|e| unpack_failure(path, e))
}

fn unpack_failure(path: &Path, error: io::Error) -> Failure {
    let name = printable_name(path.as_os_str().as_encoded_bytes());
    if [Errno::XDEV, Errno::LOOP].iter().any(|errno| error.raw_os_error() == Some(errno.raw_os_error())) {
        return Failure::permanent(format!("{name} leads out of the archive"));
    }
    Failure::from_io_error(&format!("{name} could not be unpacked"), &error)
}

fn unpack_entry(entry: &mut Entry<'_, impl io::Read>, directory: &Path) -> Result<(), Failure> {
    entry.set_mask(DROPPED);
    match entry.unpack_in(directory) {
        Ok(true) => Ok(()),
        Ok(false) => {
            Err(Failure::permanent(format!("{} leads out of the archive", printable_name(&entry.path_bytes()))))
        }
        Err(e) => {
            let cause = root_cause(&e);
            Err(Failure::from_io_error(
                &format!("{} could not be unpacked", printable_name(&entry.path_bytes())),
                cause,
            ))
        }
    }
}

/// Returns the system error inside an error of the library, if there is one.
fn root_cause(error: &io::Error) -> &io::Error {
    let inner = error.get_ref().and_then(|inner| inner.source()).and_then(|inner| inner.downcast_ref::<io::Error>());
    inner.map_or(error, root_cause)
}

/// Rejects an entry that would fill the disk.
fn check_free_space(directory: &Path, size: u64) -> Result<(), Failure> {
    let free = rustix::fs::statvfs(directory).map(|found| found.f_bavail.saturating_mul(found.f_frsize));
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

fn is_clean_path(path: &Path) -> bool {
    let mut components = path.components();
    components.all(|part| matches!(part, Component::Normal(_) | Component::CurDir)) && path.as_os_str().len() < 4096
}

/// Formats a name for a message.
fn printable_name(name: &[u8]) -> String {
    tarn_base::plain(&String::from_utf8_lossy(name), 200).into_owned()
}

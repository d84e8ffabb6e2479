//! Finds the files of a job that match. No link that leads out of the job's directory is followed.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::Errno;

use crate::jobs::files::patterns::Patterns;

/// The maximum number of files and skipped entries in the result.
const MAX_FILES: usize = 100_000;

/// The maximum number of files, directories and links that are visited.
const MAX_ENTRIES: usize = 2_000_000;

/// The maximum depth of directories.
const MAX_DEPTH: usize = 100;

const LEADS_OUTSIDE: &str = "it is a link that leads nowhere, or out of the directory of the job";

const ALREADY_VISITED: &str = "it is a link to a directory that other links lead to as well";

/// A file that matches.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::jobs) struct FoundFile {
    /// Relative to the directory of the job; bytes that are not UTF-8 are replaced.
    pub(in crate::jobs) path: String,
    /// Its size, or why it cannot be sent.
    pub(in crate::jobs) size: Result<u64, String>,
}

/// A walk through the directory of a job.
#[derive(Debug)]
pub(in crate::jobs) struct Walk<'a> {
    directory: &'a OwnedFd,
    patterns: &'a Patterns,
    only: Option<HashSet<&'a str>>,
    found: Vec<FoundFile>,
    entries_seen: usize,
    /// Whether the current path leads through a link.
    is_linked: bool,
    /// The directories that were reached by a link below another link, and whether everything in them was wanted. Each
    /// is visited once in that way: the number of paths through directories that link to each other is unbounded.
    linked: HashSet<((u64, u64), bool)>,
}

/// Opens a path below a directory, and never anything outside.
pub(in crate::jobs) fn open_below(directory: &OwnedFd, path: &Path, flags: OFlags) -> rustix::io::Result<OwnedFd> {
    let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    loop {
        match rustix::fs::openat2(directory, path, flags | OFlags::CLOEXEC, Mode::empty(), resolve) {
            // A concurrent rename made the kernel uncertain about the path.
            Err(Errno::AGAIN | Errno::INTR) => {}
            result => return result,
        }
    }
}

impl<'a> Walk<'a> {
    /// Creates a walk through a directory.
    pub(in crate::jobs) fn new(directory: &'a OwnedFd, patterns: &'a Patterns, only: &'a [String]) -> Walk<'a> {
        let only = (!only.is_empty()).then(|| only.iter().map(String::as_str).collect());
        Walk { directory, patterns, only, found: Vec::new(), entries_seen: 0, is_linked: false, linked: HashSet::new() }
    }

    /// Returns all matches, sorted by path.
    pub(in crate::jobs) fn find_files(mut self) -> Vec<FoundFile> {
        self.visit_directory(Path::new(""), false, &mut Vec::new());
        self.found.sort_unstable();
        self.found
    }

    fn visit_directory(&mut self, path: &Path, is_wanted: bool, above: &mut Vec<(u64, u64)>) {
        let opened = open_below(self.directory, path, OFlags::RDONLY | OFlags::DIRECTORY).and_then(|directory| {
            let stat = rustix::fs::fstat(&directory)?;
            Ok((inode_of(&stat), Dir::read_from(&directory)?, directory))
        });
        let (identity, entries, directory) = match opened {
            Ok(opened) => opened,
            Err(e) if is_wanted => return self.skip_path(path, &e.to_string()),
            Err(_) => return,
        };
        // A link may lead to one of its parent directories.
        if above.contains(&identity) || above.len() >= MAX_DEPTH {
            return;
        }
        above.push(identity);
        for entry in entries.map_while(Result::ok) {
            let name = entry.file_name();
            if [c".", c".."].contains(&name) {
                continue;
            }
            let path = path.join(OsStr::from_bytes(name.to_bytes()));
            self.entries_seen += 1;
            if self.entries_seen == MAX_ENTRIES {
                let reason = format!("there are more than {MAX_ENTRIES} files and directories to look at");
                self.found.push(FoundFile { path: path.to_string_lossy().into_owned(), size: Err(reason) });
            }
            if self.entries_seen >= MAX_ENTRIES || self.found.len() >= MAX_FILES {
                break;
            }
            if let Ok(stat) = rustix::fs::statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW) {
                self.visit_entry(path, &stat, is_wanted, above);
            }
        }
        above.pop();
    }

    fn visit_entry(&mut self, path: PathBuf, stat: &Stat, is_inside: bool, above: &mut Vec<(u64, u64)>) {
        let is_wanted = is_inside || self.patterns.matches_path(&path);
        let may_hold = is_wanted || self.patterns.may_match_below(&path);
        let mut stat = *stat;
        let is_link = FileType::from_raw_mode(stat.st_mode) == FileType::Symlink;
        if is_link && may_hold {
            let target = open_below(self.directory, &path, OFlags::PATH).and_then(rustix::fs::fstat);
            match target {
                Ok(target) => stat = target,
                Err(_) if is_wanted => return self.skip_path(&path, LEADS_OUTSIDE),
                Err(_) => return,
            }
        }
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory if is_link && may_hold => self.follow_link(&path, &stat, is_wanted, above),
            FileType::Directory if may_hold => self.visit_directory(&path, is_wanted, above),
            FileType::RegularFile if is_wanted => match path.to_str() {
                Some(text) => self.add_file(text.to_owned(), Ok(u64::try_from(stat.st_size).unwrap_or(0))),
                None => self.skip_path(&path, "its name is not UTF-8"),
            },
            FileType::Directory | FileType::RegularFile => {}
            _ if is_wanted => self.skip_path(&path, "it is not a regular file"),
            _ => {}
        }
    }

    /// Follows a link to a directory.
    fn follow_link(&mut self, path: &Path, stat: &Stat, is_wanted: bool, above: &mut Vec<(u64, u64)>) {
        let identity = inode_of(stat);
        if above.contains(&identity) {
            return;
        }
        if self.is_linked && !self.linked.insert((identity, is_wanted)) {
            if is_wanted {
                self.skip_path(path, ALREADY_VISITED);
            }
            return;
        }
        let was_linked = std::mem::replace(&mut self.is_linked, true);
        self.visit_directory(path, is_wanted, above);
        self.is_linked = was_linked;
    }

    fn skip_path(&mut self, path: &Path, reason: &str) {
        self.add_file(path.to_string_lossy().into_owned(), Err(reason.to_owned()));
    }

    fn add_file(&mut self, path: String, size: Result<u64, String>) {
        if self.only.as_ref().is_some_and(|only| !only.contains(path.as_str())) {
            return;
        }
        let size =
            if self.found.len() + 1 == MAX_FILES { Err(format!("more than {MAX_FILES} files match")) } else { size };
        self.found.push(FoundFile { path, size });
    }
}

#[allow(clippy::useless_conversion, reason = "the width of these numbers depends on the architecture")]
fn inode_of(stat: &Stat) -> (u64, u64) {
    (stat.st_dev.into(), stat.st_ino.into())
}

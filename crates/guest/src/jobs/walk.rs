//! Finding the files of a job that are wanted. No link is followed that leads out of its directory.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::Errno;

use super::patterns::Patterns;

/// How many files may be found, together with what cannot be given.
const MAX_FOUND: usize = 100_000;

/// How many files, directories and links may be met on the way.
const MAX_MET: usize = 2_000_000;

/// How deep directories may lie in each other.
const MAX_DEPTH: usize = 100;

const LEADS_OUT: &str = "it is a link that leads nowhere, or out of the directory of the job";

const WALKED: &str = "it is a link to a directory that other links lead to as well";

/// Something that is wanted.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Found {
    /// Relative to the directory of the job; as far as it can be shown, if it cannot be given.
    pub(super) path: String,
    /// Its size, or why it cannot be given.
    pub(super) size: Result<u64, String>,
}

/// A walk.
#[derive(Debug)]
pub(super) struct Walk<'a> {
    directory: &'a OwnedFd,
    patterns: &'a Patterns,
    only: Option<HashSet<&'a str>>,
    found: Vec<Found>,
    met: usize,
    /// Whether the way leads through a link.
    is_linked: bool,
    /// The directories that a link led to on a way through another, and whether all in them was wanted. Each is walked once
    /// like that: directories that link to each other have more ways through them than can be gone.
    linked: HashSet<((u64, u64), bool)>,
}

/// Opens something below a directory, and never anything else.
pub(super) fn open_below(directory: &OwnedFd, path: &Path, flags: OFlags) -> rustix::io::Result<OwnedFd> {
    let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    loop {
        match rustix::fs::openat2(directory, path, flags | OFlags::CLOEXEC, Mode::empty(), resolve) {
            // Something was renamed meanwhile, and the kernel is not sure where it is.
            Err(Errno::AGAIN | Errno::INTR) => {}
            result => return result,
        }
    }
}

impl<'a> Walk<'a> {
    /// A walk through a directory.
    pub(super) fn new(directory: &'a OwnedFd, patterns: &'a Patterns, only: &'a [String]) -> Walk<'a> {
        let only = (!only.is_empty()).then(|| only.iter().map(String::as_str).collect());
        Walk { directory, patterns, only, found: Vec::new(), met: 0, is_linked: false, linked: HashSet::new() }
    }

    /// All that is wanted, in the order of the paths.
    pub(super) fn run(mut self) -> Vec<Found> {
        self.visit(Path::new(""), false, &mut Vec::new());
        self.found.sort_unstable();
        self.found
    }

    fn visit(&mut self, path: &Path, is_wanted: bool, above: &mut Vec<(u64, u64)>) {
        let opened = open_below(self.directory, path, OFlags::RDONLY | OFlags::DIRECTORY).and_then(|directory| {
            let stat = rustix::fs::fstat(&directory)?;
            Ok((identity(&stat), Dir::read_from(&directory)?, directory))
        });
        let (identity, entries, directory) = match opened {
            Ok(opened) => opened,
            Err(e) if is_wanted => return self.skip(path, &e.to_string()),
            Err(_) => return,
        };
        // A link may lead to a directory that it lies in.
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
            self.met += 1;
            if self.met == MAX_MET {
                let reason = format!("there are more than {MAX_MET} files and directories to look at");
                self.found.push(Found { path: path.to_string_lossy().into_owned(), size: Err(reason) });
            }
            if self.met >= MAX_MET || self.found.len() >= MAX_FOUND {
                break;
            }
            if let Ok(stat) = rustix::fs::statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW) {
                self.meet(path, &stat, is_wanted, above);
            }
        }
        above.pop();
    }

    fn meet(&mut self, path: PathBuf, stat: &Stat, is_inside: bool, above: &mut Vec<(u64, u64)>) {
        let is_wanted = is_inside || self.patterns.match_path(&path);
        let may_hold = is_wanted || self.patterns.may_match_below(&path);
        let mut stat = *stat;
        let is_link = FileType::from_raw_mode(stat.st_mode) == FileType::Symlink;
        if is_link && may_hold {
            let target = open_below(self.directory, &path, OFlags::PATH).and_then(rustix::fs::fstat);
            match target {
                Ok(target) => stat = target,
                Err(_) if is_wanted => return self.skip(&path, LEADS_OUT),
                Err(_) => return,
            }
        }
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory if is_link && may_hold => self.enter_link(&path, &stat, is_wanted, above),
            FileType::Directory if may_hold => self.visit(&path, is_wanted, above),
            FileType::RegularFile if is_wanted => match path.to_str() {
                Some(text) => self.add(text.to_owned(), Ok(u64::try_from(stat.st_size).unwrap_or(0))),
                None => self.skip(&path, "its name is not UTF-8"),
            },
            FileType::Directory | FileType::RegularFile => {}
            _ if is_wanted => self.skip(&path, "it is no ordinary file"),
            _ => {}
        }
    }

    /// Goes where a link leads.
    fn enter_link(&mut self, path: &Path, stat: &Stat, is_wanted: bool, above: &mut Vec<(u64, u64)>) {
        let identity = identity(stat);
        if above.contains(&identity) {
            return;
        }
        if self.is_linked && !self.linked.insert((identity, is_wanted)) {
            if is_wanted {
                self.skip(path, WALKED);
            }
            return;
        }
        let was_linked = std::mem::replace(&mut self.is_linked, true);
        self.visit(path, is_wanted, above);
        self.is_linked = was_linked;
    }

    fn skip(&mut self, path: &Path, reason: &str) {
        self.add(path.to_string_lossy().into_owned(), Err(reason.to_owned()));
    }

    fn add(&mut self, path: String, size: Result<u64, String>) {
        if self.only.as_ref().is_some_and(|only| !only.contains(path.as_str())) {
            return;
        }
        let size =
            if self.found.len() + 1 == MAX_FOUND { Err(format!("more than {MAX_FOUND} files match")) } else { size };
        self.found.push(Found { path, size });
    }
}

#[allow(clippy::useless_conversion, reason = "the width of these numbers depends on the processor")]
fn identity(stat: &Stat) -> (u64, u64) {
    (stat.st_dev.into(), stat.st_ino.into())
}

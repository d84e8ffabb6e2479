//! The open files and directories of a client.

use std::collections::HashMap;
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::fs::Dir;
use rustix::io::{Errno, Result};

/// The maximum number of open handles.
pub(super) const MAX_HANDLES: usize = 512;

/// An open file or directory.
#[derive(Debug)]
pub(super) enum Handle {
    File(File),
    /// The entries, and the directory itself for looking them up.
    Directory(Dir, File),
}

/// All open handles, by number.
#[derive(Debug, Default)]
pub(super) struct Handles {
    last: u64,
    open: HashMap<u64, Handle>,
}

impl Handles {
    /// Adds a handle and returns its name.
    pub(super) fn insert(&mut self, handle: Handle) -> Result<[u8; 8]> {
        if self.open.len() >= MAX_HANDLES {
            return Err(Errno::MFILE);
        }
        self.last += 1;
        self.open.insert(self.last, handle);
        Ok(self.last.to_be_bytes())
    }

    pub(super) fn remove(&mut self, name: &[u8]) -> Result<()> {
        self.open.remove(&parse_handle(name)?).map(drop).ok_or(Errno::BADF)
    }

    pub(super) fn file(&self, name: &[u8]) -> Result<&File> {
        match self.open.get(&parse_handle(name)?) {
            Some(Handle::File(file)) => Ok(file),
            _ => Err(Errno::BADF),
        }
    }

    pub(super) fn directory(&mut self, name: &[u8]) -> Result<(&mut Dir, &File)> {
        match self.open.get_mut(&parse_handle(name)?) {
            Some(Handle::Directory(entries, directory)) => Ok((entries, directory)),
            _ => Err(Errno::BADF),
        }
    }

    /// Returns a file or a directory.
    pub(super) fn file_or_directory(&self, name: &[u8]) -> Result<BorrowedFd<'_>> {
        match self.open.get(&parse_handle(name)?) {
            Some(Handle::File(file) | Handle::Directory(_, file)) => Ok(file.as_fd()),
            None => Err(Errno::BADF),
        }
    }
}

fn parse_handle(name: &[u8]) -> Result<u64> {
    name.try_into().map(u64::from_be_bytes).map_err(|_| Errno::BADF)
}

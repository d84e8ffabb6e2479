//! The verbs of the protocol.

use std::fs::File;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Dir, Mode, OFlags, RenameFlags};
use rustix::io::Errno;

use super::attributes::{self, Attributes};
use super::handles::{Handle, Handles};
use super::listing::Listing;
use super::wire::{Fields, Malformed, Packet};
use super::{MAX_DATA, MAX_PACKET, extended};

const VERSION: u8 = 2;
const STATUS: u8 = 101;
const HANDLE: u8 = 102;
const DATA: u8 = 103;
const NAME: u8 = 104;
const ATTRIBUTES: u8 = 105;

/// How many entries of a directory go into one answer.
const MAX_ENTRIES: u32 = 128;

/// How a request ended that has no answer of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Status {
    Done,
    End,
    Malformed,
    Unsupported,
    Failed(Errno),
}

impl From<Errno> for Status {
    fn from(error: Errno) -> Self {
        Status::Failed(error)
    }
}

impl From<std::io::Error> for Status {
    fn from(error: std::io::Error) -> Self {
        Status::Failed(Errno::from_io_error(&error).unwrap_or(Errno::IO))
    }
}

impl From<Malformed> for Status {
    fn from(_: Malformed) -> Self {
        Status::Malformed
    }
}

/// `Ok` when an answer was written; a status is written by the caller.
pub(super) type Answered = Result<(), Status>;

/// A conversation with a client.
#[derive(Debug, Default)]
pub(super) struct Server {
    pub(super) handles: Handles,
    listing: Listing,
}

impl Server {
    /// Answers one packet.
    pub(super) fn answer(&mut self, packet: &[u8], out: &mut Vec<u8>) {
        let mut fields = Fields(packet);
        let (Ok(kind), Ok(id)) = (fields.byte(), fields.number()) else {
            return write_status(out, 0, Status::Malformed);
        };
        if let Err(status) = self.act(kind, id, &mut fields, out) {
            write_status(out, id, status);
        }
    }

    fn act(&mut self, kind: u8, id: u32, fields: &mut Fields<'_>, out: &mut Vec<u8>) -> Answered {
        match kind {
            1 => greet(out),
            3 => self.open(id, fields, out)?,
            4 => {
                self.handles.remove(fields.string()?)?;
                return Err(Status::Done);
            }
            5 => self.read(id, fields, out)?,
            6 => {
                let (handle, offset, data) = (fields.string()?, fields.long()?, fields.string()?);
                self.handles.file(handle)?.write_all_at(data, offset)?;
                return Err(Status::Done);
            }
            7 => write_attributes(out, id, &rustix::fs::lstat(fields.path()?)?),
            8 => write_attributes(out, id, &rustix::fs::fstat(self.handles.any(fields.string()?)?)?),
            9 => {
                let path = fields.path()?;
                Attributes::read(fields)?.set_path(path, true)?;
                return Err(Status::Done);
            }
            10 => {
                let handle = self.handles.any(fields.string()?)?;
                Attributes::read(fields)?.set(handle)?;
                return Err(Status::Done);
            }
            11 => self.open_directory(id, fields.path()?, out)?,
            12 => self.read_directory(id, fields.string()?, out)?,
            17 => write_attributes(out, id, &rustix::fs::stat(fields.path()?)?),
            16 => write_name(out, id, real_path(fields.path()?)?.as_os_str().as_bytes()),
            19 => write_name(out, id, rustix::fs::readlink(fields.path()?, Vec::new())?.as_bytes()),
            13..=15 | 18 | 20 => return Err(change(kind, fields)?),
            200 => extended::act(self, id, fields, out)?,
            _ => return Err(Status::Unsupported),
        }
        Ok(())
    }

    fn open(&mut self, id: u32, fields: &mut Fields<'_>, out: &mut Vec<u8>) -> Answered {
        let (path, wanted) = (fields.path()?, fields.number()?);
        let attributes = Attributes::read(fields)?;
        let mut flags = match wanted & 3 {
            1 => OFlags::RDONLY,
            2 => OFlags::WRONLY,
            3 => OFlags::RDWR,
            _ => return Err(Status::Malformed),
        };
        for (bit, flag) in [(4, OFlags::APPEND), (8, OFlags::CREATE), (16, OFlags::TRUNC), (32, OFlags::EXCL)] {
            flags.set(flag, wanted & bit != 0);
        }
        let file = rustix::fs::open(path, flags | OFlags::CLOEXEC | OFlags::NOCTTY, attributes.mode(0o666))?;
        self.give_handle(id, Handle::File(File::from(file)), out)
    }

    fn open_directory(&mut self, id: u32, path: &Path, out: &mut Vec<u8>) -> Answered {
        let directory = rustix::fs::open(path, OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        let entries = Dir::read_from(&directory)?;
        self.give_handle(id, Handle::Directory(entries, File::from(directory)), out)
    }

    fn give_handle(&mut self, id: u32, handle: Handle, out: &mut Vec<u8>) -> Answered {
        let name = self.handles.insert(handle)?;
        let mut packet = Packet::new(out, HANDLE, id);
        packet.string(&name);
        packet.end();
        Ok(())
    }

    fn read(&self, id: u32, fields: &mut Fields<'_>, out: &mut Vec<u8>) -> Answered {
        let (handle, offset, most) = (fields.string()?, fields.long()?, fields.number()? as usize);
        let file = self.handles.file(handle)?;
        match Packet::new(out, DATA, id).fill(most.min(MAX_DATA), |buffer| file.read_at(buffer, offset))? {
            0 => Err(Status::End),
            _ => Ok(()),
        }
    }

    #[allow(clippy::disallowed_methods, reason = "this is a program of its own, and a listing shows times beside now")]
    fn read_directory(&mut self, id: u32, handle: &[u8], out: &mut Vec<u8>) -> Answered {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        let now = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
        let (entries, directory) = self.handles.directory(handle)?;
        let count_at = out.len() + 9;
        let mut packet = Packet::new(out, NAME, id);
        packet.number(0);
        let mut count = 0_u32;
        // A name is written twice, and neither is long: as much as the longest must be left for the next.
        while count < MAX_ENTRIES && packet.len() < MAX_PACKET / 2 {
            let Some(entry) = entries.read() else { break };
            let Ok(entry) = entry else { break };
            // The file may have gone since the directory was read.
            let Ok(stat) = rustix::fs::statat(directory, entry.file_name(), AtFlags::SYMLINK_NOFOLLOW) else {
                continue;
            };
            let name = entry.file_name().to_bytes();
            packet.string(name).string(&self.listing.line(name, &stat, now));
            attributes::write(&mut packet, &stat);
            count += 1;
        }
        packet.end();
        if count == 0 {
            out.truncate(count_at - 9);
            return Err(Status::End);
        }
        out[count_at..count_at + 4].copy_from_slice(&count.to_be_bytes());
        Ok(())
    }
}

/// Verbs that change names and answer with nothing but how it went.
fn change(kind: u8, fields: &mut Fields<'_>) -> Result<Status, Status> {
    let path = fields.path()?;
    match kind {
        13 => rustix::fs::unlink(path)?,
        14 => rustix::fs::mkdir(path, Attributes::read(fields)?.mode(0o777))?,
        15 => rustix::fs::rmdir(path)?,
        18 => rename_to_free(path, fields.path()?)?,
        // OpenSSH names the target first, against the standard, and everybody does as OpenSSH does.
        _ => rustix::fs::symlink(path, fields.path()?)?,
    }
    Ok(Status::Done)
}

/// The protocol's own rename never replaces; not every filesystem can promise that in one step.
fn rename_to_free(from: &Path, to: &Path) -> Result<(), Errno> {
    match rustix::fs::renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        Err(Errno::INVAL | Errno::NOSYS) => match rustix::fs::lstat(to) {
            Ok(_) => Err(Errno::EXIST),
            Err(Errno::NOENT) => rustix::fs::rename(from, to),
            Err(e) => Err(e),
        },
        other => other,
    }
}

/// The path without links and dots; its last part need not exist.
pub(super) fn real_path(path: &Path) -> Result<PathBuf, Status> {
    match (path.canonicalize(), path.parent(), path.file_name()) {
        (Err(e), Some(parent), Some(name)) if e.kind() == std::io::ErrorKind::NotFound => {
            let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
            Ok(parent.canonicalize()?.join(name))
        }
        (result, ..) => Ok(result?),
    }
}

fn greet(out: &mut Vec<u8>) {
    let mut packet = Packet::new(out, VERSION, 3);
    for (name, version) in extended::NAMES {
        packet.string(name.as_bytes()).string(version.as_bytes());
    }
    packet.end();
}

fn write_attributes(out: &mut Vec<u8>, id: u32, stat: &rustix::fs::Stat) {
    let mut packet = Packet::new(out, ATTRIBUTES, id);
    attributes::write(&mut packet, stat);
    packet.end();
}

/// A name alone; its attributes are not asked for.
pub(super) fn write_name(out: &mut Vec<u8>, id: u32, name: &[u8]) {
    let mut packet = Packet::new(out, NAME, id);
    packet.number(1).string(name).string(name).number(0);
    packet.end();
}

fn write_status(out: &mut Vec<u8>, id: u32, status: Status) {
    let (code, words) = match status {
        Status::Done => (0, "Success".into()),
        Status::End => (1, "End of file".into()),
        Status::Failed(Errno::NOENT | Errno::NOTDIR | Errno::BADF | Errno::LOOP) => (2, "No such file".into()),
        Status::Failed(Errno::PERM | Errno::ACCESS) => (3, "Permission denied".into()),
        Status::Failed(Errno::NOSYS | Errno::OPNOTSUPP) | Status::Unsupported => (8, "Operation unsupported".into()),
        Status::Failed(error) => (4, error.to_string()),
        Status::Malformed => (5, "Bad message".into()),
    };
    let mut packet = Packet::new(out, STATUS, id);
    packet.number(code).string(words.as_bytes()).string(b"");
    packet.end();
}

//! The requests of the protocol.

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

/// The maximum number of directory entries in one reply.
const MAX_ENTRIES: u32 = 128;

/// The status of a request that has no reply of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Status {
    Done,
    EndOfFile,
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

/// `Ok` if a reply was written; the caller writes a status otherwise.
pub(super) type RequestResult = Result<(), Status>;

/// The state of the server for one client.
#[derive(Debug, Default)]
pub(super) struct Server {
    pub(super) handles: Handles,
    listing: Listing,
}

impl Server {
    /// Handles one packet.
    pub(super) fn handle_packet(&mut self, packet: &[u8], out: &mut Vec<u8>) {
        let mut fields = Fields(packet);
        let (Ok(kind), Ok(id)) = (fields.byte(), fields.number()) else {
            return write_status(out, 0, Status::Malformed);
        };
        if let Err(status) = self.dispatch_request(kind, id, &mut fields, out) {
            write_status(out, id, status);
        }
    }

    fn dispatch_request(&mut self, kind: u8, id: u32, fields: &mut Fields<'_>, out: &mut Vec<u8>) -> RequestResult {
        match kind {
            1 => write_version(out),
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
            8 => write_attributes(out, id, &rustix::fs::fstat(self.handles.file_or_directory(fields.string()?)?)?),
            9 => {
                let path = fields.path()?;
                Attributes::read(fields)?.set_on_path(path, true)?;
                return Err(Status::Done);
            }
            10 => {
                let handle = self.handles.file_or_directory(fields.string()?)?;
                Attributes::read(fields)?.set_on_file(handle)?;
                return Err(Status::Done);
            }
            11 => self.open_directory(id, fields.path()?, out)?,
            12 => self.read_directory(id, fields.string()?, out)?,
            17 => write_attributes(out, id, &rustix::fs::stat(fields.path()?)?),
            16 => write_name(out, id, real_path(fields.path()?)?.as_os_str().as_bytes()),
            19 => write_name(out, id, rustix::fs::readlink(fields.path()?, Vec::new())?.as_bytes()),
            13..=15 | 18 | 20 => return Err(change_names(kind, fields)?),
            200 => extended::serve_extension(self, id, fields, out)?,
            _ => return Err(Status::Unsupported),
        }
        Ok(())
    }

    fn open(&mut self, id: u32, fields: &mut Fields<'_>, out: &mut Vec<u8>) -> RequestResult {
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
        self.write_handle(id, Handle::File(File::from(file)), out)
    }

    fn open_directory(&mut self, id: u32, path: &Path, out: &mut Vec<u8>) -> RequestResult {
        let directory = rustix::fs::open(path, OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        let entries = Dir::read_from(&directory)?;
        self.write_handle(id, Handle::Directory(entries, File::from(directory)), out)
    }

    fn write_handle(&mut self, id: u32, handle: Handle, out: &mut Vec<u8>) -> RequestResult {
        let name = self.handles.insert(handle)?;
        let mut packet = Packet::new(out, HANDLE, id);
        packet.string(&name);
        packet.end();
        Ok(())
    }

    fn read(&self, id: u32, fields: &mut Fields<'_>, out: &mut Vec<u8>) -> RequestResult {
        let (handle, offset, most) = (fields.string()?, fields.long()?, fields.number()? as usize);
        let file = self.handles.file(handle)?;
        match Packet::new(out, DATA, id).fill(most.min(MAX_DATA), |buffer| file.read_at(buffer, offset))? {
            0 => Err(Status::EndOfFile),
            _ => Ok(()),
        }
    }

    #[allow(clippy::disallowed_methods, reason = "a separate program, and a listing compares times with now")]
    fn read_directory(&mut self, id: u32, handle: &[u8], out: &mut Vec<u8>) -> RequestResult {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        let now = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
        let (entries, directory) = self.handles.directory(handle)?;
        let count_at = out.len() + 9;
        let mut packet = Packet::new(out, NAME, id);
        packet.number(0);
        let mut count = 0_u32;
        // A name is written twice, and neither copy is long: there must be space left for the longest possible entry.
        while count < MAX_ENTRIES && packet.len() < MAX_PACKET / 2 {
            let Some(entry) = entries.read() else { break };
            let Ok(entry) = entry else { break };
            // The file may have been removed since the directory was read.
            let Ok(stat) = rustix::fs::statat(directory, entry.file_name(), AtFlags::SYMLINK_NOFOLLOW) else {
                continue;
            };
            let name = entry.file_name().to_bytes();
            packet.string(name).string(&self.listing.format_entry(name, &stat, now));
            attributes::encode_attributes(&mut packet, &stat);
            count += 1;
        }
        packet.end();
        if count == 0 {
            out.truncate(count_at - 9);
            return Err(Status::EndOfFile);
        }
        out[count_at..count_at + 4].copy_from_slice(&count.to_be_bytes());
        Ok(())
    }
}

/// Handles requests that change names and only return a status.
fn change_names(kind: u8, fields: &mut Fields<'_>) -> Result<Status, Status> {
    let path = fields.path()?;
    match kind {
        13 => rustix::fs::unlink(path)?,
        14 => rustix::fs::mkdir(path, Attributes::read(fields)?.mode(0o777))?,
        15 => rustix::fs::rmdir(path)?,
        18 => rename_to_free(path, fields.path()?)?,
        // OpenSSH sends the target first, contrary to the standard, and all clients follow OpenSSH.
        _ => rustix::fs::symlink(path, fields.path()?)?,
    }
    Ok(Status::Done)
}

/// The rename of the protocol never replaces a file; not every filesystem supports that atomically.
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

/// Returns the path without links and dots; its last part need not exist.
pub(super) fn real_path(path: &Path) -> Result<PathBuf, Status> {
    match (path.canonicalize(), path.parent(), path.file_name()) {
        (Err(e), Some(parent), Some(name)) if e.kind() == std::io::ErrorKind::NotFound => {
            let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
            Ok(parent.canonicalize()?.join(name))
        }
        (result, ..) => Ok(result?),
    }
}

fn write_version(out: &mut Vec<u8>) {
    let mut packet = Packet::new(out, VERSION, 3);
    for (name, version) in extended::EXTENSIONS {
        packet.string(name.as_bytes()).string(version.as_bytes());
    }
    packet.end();
}

fn write_attributes(out: &mut Vec<u8>, id: u32, stat: &rustix::fs::Stat) {
    let mut packet = Packet::new(out, ATTRIBUTES, id);
    attributes::encode_attributes(&mut packet, stat);
    packet.end();
}

/// Writes a name without attributes.
pub(super) fn write_name(out: &mut Vec<u8>, id: u32, name: &[u8]) {
    let mut packet = Packet::new(out, NAME, id);
    packet.number(1).string(name).string(name).number(0);
    packet.end();
}

fn write_status(out: &mut Vec<u8>, id: u32, status: Status) {
    let (code, message) = match status {
        Status::Done => (0, "Success".into()),
        Status::EndOfFile => (1, "End of file".into()),
        Status::Failed(Errno::NOENT | Errno::NOTDIR | Errno::BADF | Errno::LOOP) => (2, "No such file".into()),
        Status::Failed(Errno::PERM | Errno::ACCESS) => (3, "Permission denied".into()),
        Status::Failed(Errno::NOSYS | Errno::OPNOTSUPP) | Status::Unsupported => (8, "Operation unsupported".into()),
        Status::Failed(error) => (4, error.to_string()),
        Status::Malformed => (5, "Bad message".into()),
    };
    let mut packet = Packet::new(out, STATUS, id);
    packet.number(code).string(message.as_bytes()).string(b"");
    packet.end();
}

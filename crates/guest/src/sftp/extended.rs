//! The OpenSSH extensions of the protocol.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{StatVfs, StatVfsMountFlags};

use super::attributes::Attributes;
use super::handles::MAX_HANDLES;
use super::requests::{RequestResult, Server, Status, real_path, write_name};
use super::wire::{Fields, Packet};
use super::{MAX_DATA, MAX_PACKET};
use crate::users::Accounts;

const EXTENDED_REPLY: u8 = 201;

/// The supported extensions and their versions.
pub(super) const EXTENSIONS: [(&str, &str); 8] = [
    ("posix-rename@openssh.com", "1"),
    ("statvfs@openssh.com", "2"),
    ("fstatvfs@openssh.com", "2"),
    ("hardlink@openssh.com", "1"),
    ("fsync@openssh.com", "1"),
    ("lsetstat@openssh.com", "1"),
    ("limits@openssh.com", "1"),
    ("expand-path@openssh.com", "1"),
];

/// Handles an extended request.
pub(super) fn serve_extension(server: &Server, id: u32, fields: &mut Fields<'_>, out: &mut Vec<u8>) -> RequestResult {
    match fields.string()? {
        b"posix-rename@openssh.com" => rustix::fs::rename(fields.path()?, fields.path()?)?,
        b"hardlink@openssh.com" => rustix::fs::link(fields.path()?, fields.path()?)?,
        b"fsync@openssh.com" => rustix::fs::fsync(server.handles.file(fields.string()?)?)?,
        b"lsetstat@openssh.com" => {
            let path = fields.path()?;
            Attributes::read(fields)?.set_on_path(path, false)?;
        }
        b"statvfs@openssh.com" => {
            write_filesystem(out, id, &rustix::fs::statvfs(fields.path()?)?);
            return Ok(());
        }
        b"fstatvfs@openssh.com" => {
            write_filesystem(out, id, &rustix::fs::fstatvfs(server.handles.file_or_directory(fields.string()?)?)?);
            return Ok(());
        }
        b"limits@openssh.com" => {
            let mut packet = Packet::new(out, EXTENDED_REPLY, id);
            packet.long(MAX_PACKET as u64).long(MAX_DATA as u64).long(MAX_DATA as u64).long(MAX_HANDLES as u64);
            packet.end();
            return Ok(());
        }
        b"expand-path@openssh.com" => {
            write_name(out, id, real_path(&expand_home(fields.path()?)?)?.as_os_str().as_bytes());
            return Ok(());
        }
        _ => return Err(Status::Unsupported),
    }
    Err(Status::Done)
}

/// Replaces a leading tilde by a home directory.
fn expand_home(path: &Path) -> Result<PathBuf, Status> {
    let Some(rest) = path.as_os_str().as_bytes().strip_prefix(b"~") else { return Ok(path.into()) };
    let end = rest.iter().position(|byte| *byte == b'/').unwrap_or(rest.len());
    let (name, below) = (&rest[..end], &rest[end..]);
    let accounts = Accounts::load_lenient(Path::new("/"));
    let home = match std::str::from_utf8(name) {
        // The own home is in the environment: it may have no entry in `/etc/passwd`.
        Ok("") => std::env::var_os("HOME").map(PathBuf::from),
        Ok(name) => accounts.find_by_name(name).map(|account| account.home),
        Err(_) => None,
    };
    let home = home.ok_or(Status::Failed(rustix::io::Errno::NOENT))?;
    Ok(home.join(OsStr::from_bytes(below.strip_prefix(b"/").unwrap_or(below))))
}

fn write_filesystem(out: &mut Vec<u8>, id: u32, found: &StatVfs) {
    let read_only = u64::from(found.f_flag.contains(StatVfsMountFlags::RDONLY));
    let no_setuid = u64::from(found.f_flag.contains(StatVfsMountFlags::NOSUID)) << 1;
    let mut packet = Packet::new(out, EXTENDED_REPLY, id);
    packet.long(found.f_bsize).long(found.f_frsize).long(found.f_blocks).long(found.f_bfree).long(found.f_bavail);
    packet.long(found.f_files).long(found.f_ffree).long(found.f_favail).long(found.f_fsid);
    packet.long(read_only | no_setuid).long(found.f_namemax);
    packet.end();
}

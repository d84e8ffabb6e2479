//! File attributes: size, owner, permissions, times.

use std::fs::File;
use std::os::fd::AsFd;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Gid, Mode, Stat, Timespec, Timestamps, Uid};
use rustix::io::{Errno, Result};

use super::wire::{Fields, Malformed, Packet};

const SIZE: u32 = 1;
const OWNER: u32 = 2;
const PERMISSIONS: u32 = 4;
const TIMES: u32 = 8;
const EXTENDED: u32 = 1 << 31;

/// The attributes that a client wants to set.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Attributes {
    size: Option<u64>,
    owner: Option<(u32, u32)>,
    permissions: Option<u32>,
    times: Option<(u32, u32)>,
}

impl Attributes {
    pub(super) fn read(fields: &mut Fields<'_>) -> std::result::Result<Self, Malformed> {
        let flags = fields.number()?;
        let mut attributes = Attributes::default();
        if flags & SIZE != 0 {
            attributes.size = Some(fields.long()?);
        }
        if flags & OWNER != 0 {
            attributes.owner = Some((fields.number()?, fields.number()?));
        }
        if flags & PERMISSIONS != 0 {
            attributes.permissions = Some(fields.number()?);
        }
        if flags & TIMES != 0 {
            attributes.times = Some((fields.number()?, fields.number()?));
        }
        if flags & EXTENDED != 0 {
            for _ in 0..fields.number()? {
                fields.string()?;
                fields.string()?;
            }
        }
        Ok(attributes)
    }

    /// Returns the permissions of a new file.
    pub(super) fn mode(&self, otherwise: u32) -> Mode {
        Mode::from_raw_mode(self.permissions.unwrap_or(otherwise) & 0o7777)
    }

    /// Sets the attributes of an open file.
    pub(super) fn set_on_file(&self, file: impl AsFd) -> Result<()> {
        if let Some(size) = self.size {
            rustix::fs::ftruncate(&file, size)?;
        }
        if self.permissions.is_some() {
            rustix::fs::fchmod(&file, self.mode(0))?;
        }
        if let Some(times) = self.times {
            rustix::fs::futimens(&file, &timestamps(times))?;
        }
        if let Some((uid, gid)) = self.owner {
            rustix::fs::fchown(&file, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)))?;
        }
        Ok(())
    }

    /// Sets the attributes of a path.
    pub(super) fn set_on_path(&self, path: &Path, follow: bool) -> Result<()> {
        let flags = if follow { AtFlags::empty() } else { AtFlags::SYMLINK_NOFOLLOW };
        let is_link = !follow && is_link(&rustix::fs::lstat(path)?);
        if let Some(size) = self.size {
            if is_link {
                return Err(Errno::INVAL);
            }
            let file =
                File::options().write(true).open(path).map_err(|e| Errno::from_io_error(&e).unwrap_or(Errno::IO))?;
            rustix::fs::ftruncate(file, size)?;
        }
        // Links have no permissions of their own.
        if self.permissions.is_some() && !is_link {
            rustix::fs::chmod(path, self.mode(0))?;
        }
        if let Some(times) = self.times {
            rustix::fs::utimensat(CWD, path, &timestamps(times), flags)?;
        }
        if let Some((uid, gid)) = self.owner {
            rustix::fs::chownat(CWD, path, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)), flags)?;
        }
        Ok(())
    }
}

fn timestamps((access, modification): (u32, u32)) -> Timestamps {
    let at = |seconds: u32| Timespec { tv_sec: seconds.into(), tv_nsec: 0 };
    Timestamps { last_access: at(access), last_modification: at(modification) }
}

fn is_link(stat: &Stat) -> bool {
    rustix::fs::FileType::from_raw_mode(stat.st_mode).is_symlink()
}

/// Encodes the attributes of a file.
#[allow(clippy::useless_conversion, clippy::unnecessary_cast, reason = "the fields differ between architectures")]
pub(super) fn encode_attributes(packet: &mut Packet<'_>, stat: &Stat) {
    let seconds = |seconds: i64| u32::try_from(seconds.max(0)).unwrap_or(u32::MAX);
    packet.number(SIZE | OWNER | PERMISSIONS | TIMES);
    packet.long(u64::try_from(stat.st_size).unwrap_or(0)).number(stat.st_uid).number(stat.st_gid).number(stat.st_mode);
    packet.number(seconds(stat.st_atime as i64)).number(seconds(stat.st_mtime as i64));
}

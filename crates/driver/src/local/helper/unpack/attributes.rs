//! The attributes of a file in a layer: owner, mode, times and extended attributes.

use std::ffi::CString;
use std::io;
use std::os::fd::AsFd;

use rustix::fs::{
    AtFlags, Gid, Mode, Timespec, Timestamps, Uid, XattrFlags, chownat, fchmod, fchown, fsetxattr, futimens, utimensat,
};
use rustix::io::Errno;

use tarn_base::archive::Entry;

use super::super::Failure;
use super::stream::archive_error;
use super::tree::{TreeEntry, printable_path};
use crate::local::capabilities;
use crate::local::host::id_ranges::IDS;

/// The size of extended attributes that every filesystem supports. Some support little more, and then report that there
/// is no space.
const ALWAYS_FITS: u64 = 1 << 10;

/// The extended attributes that are kept: file capabilities and those of users. Never those that an overlay interprets,
/// and never those that only the host's `root` may set.
fn is_kept_xattr(name: &[u8]) -> bool {
    name == b"security.capability" || (name.starts_with(b"user.") && !name.starts_with(b"user.overlay."))
}

/// Returns whether an attribute would keep the program from being executed inside.
fn is_unusable(name: &[u8], value: &[u8]) -> bool {
    name == capabilities::ATTRIBUTE.as_bytes() && capabilities::prevents_execution(value)
}

/// The attributes of a file.
#[derive(Debug)]
pub(super) struct Attributes {
    owner: (u32, u32),
    mode: u32,
    pub(super) changed: Timestamps,
    attached: Vec<(CString, Vec<u8>)>,
}

impl Attributes {
    /// Returns the attributes of an entry.
    pub(super) fn of_entry(entry: &Entry) -> Result<Self, Failure> {
        let header = &entry.header;
        let old = header.as_old();
        let (mut user, mut group) = (header_number(header.uid(), &old.uid)?, header_number(header.gid(), &old.gid)?);
        let mode = header_number(header.mode(), &old.mode)? & 0o7777;
        let mut changed = (i64::try_from(header_number(header.mtime(), &old.mtime)?).unwrap_or(i64::MAX), 0);
        let mut attached = Vec::new();
        for (key, value) in &entry.records {
            let text = || std::str::from_utf8(value).ok();
            match key.as_slice() {
                b"uid" => user = text().and_then(|id| id.parse().ok()).unwrap_or(user),
                b"gid" => group = text().and_then(|id| id.parse().ok()).unwrap_or(group),
                b"mtime" => changed = text().and_then(parse_pax_time).unwrap_or(changed),
                key => {
                    let name =
                        [b"SCHILY.xattr.".as_slice(), b"LIBARCHIVE.xattr."].iter().find_map(|p| key.strip_prefix(*p));
                    if let Some(name) = name.filter(|name| is_kept_xattr(name) && !is_unusable(name, value))
                        && let Ok(name) = CString::new(name)
                    {
                        attached.push((name, value.clone()));
                    }
                }
            }
        }
        let id = |id: u64| u32::try_from(id).ok().filter(|id| *id < IDS);
        let (Some(user), Some(group)) = (id(user), id(group)) else {
            let (path, most) = (printable_path(&entry.path), IDS - 1);
            return Err(Failure::Unfit(format!("{path} belongs to {user}:{group}, and ids go up to {most} here")));
        };
        // A time that some filesystem cannot store is clamped to the range that all can.
        let moment = Timespec { tv_sec: changed.0.clamp(0, i64::from(u32::MAX >> 1)), tv_nsec: changed.1 };
        let changed = Timestamps { last_access: moment, last_modification: moment };
        Ok(Attributes { owner: (user, group), mode, changed, attached })
    }

    /// Returns the total size of the extended attributes, with their names.
    pub(super) fn bytes(&self) -> u64 {
        self.attached.iter().map(|(name, value)| (name.count_bytes() + value.len()) as u64).sum()
    }

    /// Applies the attributes to an open file. The mode comes after the owner, and file capabilities after that: each
    /// change clears the next one.
    pub(super) fn apply_to(&self, file: impl AsFd) -> Result<(), Failure> {
        fchown(&file, Some(Uid::from_raw(self.owner.0)), Some(Gid::from_raw(self.owner.1)))?;
        fchmod(&file, Mode::from_raw_mode(self.mode))?;
        for (name, value) in &self.attached {
            fsetxattr(&file, name.as_c_str(), value, XattrFlags::empty()).map_err(|error| self.xattr_error(error))?;
        }
        Ok(futimens(&file, &self.changed)?)
    }

    /// Explains a failure to set an extended attribute: a filesystem with free space, but not for so much at one file,
    /// reports the same error as a full one.
    fn xattr_error(&self, error: Errno) -> Failure {
        match error {
            Errno::TOOBIG | Errno::RANGE => {}
            Errno::NOSPC | Errno::DQUOT if self.bytes() > ALWAYS_FITS => {}
            other => return other.into(),
        }
        let bytes = self.bytes();
        Failure::Unfit(format!(
            "{bytes} bytes of extended attributes are on a file in it, more than the disk of this host supports"
        ))
    }

    /// Applies those attributes that a file has which cannot be opened.
    pub(super) fn apply_at(&self, place: &TreeEntry, with_mode: bool) -> Result<(), Failure> {
        let (user, group) = (Uid::from_raw(self.owner.0), Gid::from_raw(self.owner.1));
        chownat(&place.parent, &place.name, Some(user), Some(group), AtFlags::SYMLINK_NOFOLLOW)?;
        if with_mode {
            rustix::fs::chmodat(&place.parent, &place.name, Mode::from_raw_mode(self.mode), AtFlags::empty())?;
        }
        Ok(utimensat(&place.parent, &place.name, &self.changed, AtFlags::SYMLINK_NOFOLLOW)?)
    }
}

/// Returns a number in a header; a blank field is 0.
fn header_number<N: Default>(read: io::Result<N>, field: &[u8]) -> Result<N, Failure> {
    let is_blank = field.iter().all(|byte| matches!(byte, 0 | b' '));
    read.or_else(|error| if is_blank { Ok(N::default()) } else { Err(archive_error(error)) })
}

/// Parses a PAX time: seconds since 1970 with a fraction.
fn parse_pax_time(text: &str) -> Option<(i64, i64)> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let digits: String = fraction.chars().chain(std::iter::repeat('0')).take(9).collect();
    Some((whole.parse().ok()?, digits.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pax_times_have_fractions() {
        assert_eq!(parse_pax_time("12"), Some((12, 0)));
        assert_eq!(parse_pax_time("12.5"), Some((12, 500_000_000)));
        assert_eq!(parse_pax_time("12.0000000019"), Some((12, 1)));
        assert_eq!(parse_pax_time("x"), None);
    }

    /// Only a capability that instances do not have is dropped.
    #[test]
    fn unusable_capabilities_are_dropped() {
        let effective = |capability: u32| {
            let words = [0x0200_0001, 1 << capability, 0, 0, 0_u32];
            words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>()
        };
        assert!(is_unusable(b"security.capability", &effective(13)), "raw sockets");
        assert!(!is_unusable(b"security.capability", &effective(10)), "low ports");
        assert!(!is_unusable(b"user.note", &effective(13)));
    }

    #[test]
    fn overlay_attributes_are_dropped() {
        assert!(is_kept_xattr(b"security.capability") && is_kept_xattr(b"user.note"));
        for name in ["trusted.overlay.opaque", "user.overlay.opaque", "security.selinux", "system.posix_acl_access"] {
            assert!(!is_kept_xattr(name.as_bytes()), "{name}");
        }
    }
}

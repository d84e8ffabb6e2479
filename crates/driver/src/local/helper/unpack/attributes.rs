//! Whose a file of a layer is, what may be done with it, when it was changed, and what else is attached to it.

use std::ffi::CString;
use std::io;
use std::os::fd::AsFd;

use rustix::fs::{
    AtFlags, Gid, Mode, Timespec, Timestamps, Uid, XattrFlags, chownat, fchmod, fchown, fsetxattr, futimens, utimensat,
};
use rustix::io::Errno;

use super::super::Failure;
use super::archive::Entry;
use super::stream::broken;
use super::tree::{Place, shown};
use crate::local::host::id_ranges::IDS;

/// Every filesystem can attach so much to a file. Some cannot attach much more, and say that there is no space.
const ALWAYS_FITS: u64 = 1 << 10;

/// What may be attached to a file: what the kernel lets programs gain, and what belongs to users. Never what an overlay takes
/// for its own, and never what only the machine's `root` may say.
fn is_kept(name: &[u8]) -> bool {
    name == b"security.capability" || (name.starts_with(b"user.") && !name.starts_with(b"user.overlay."))
}

/// What goes with a file.
#[derive(Debug)]
pub(super) struct Attributes {
    owner: (u32, u32),
    mode: u32,
    pub(super) changed: Timestamps,
    attached: Vec<(CString, Vec<u8>)>,
}

impl Attributes {
    /// What an archive says of an entry.
    pub(super) fn of(entry: &Entry) -> Result<Self, Failure> {
        let header = &entry.header;
        let old = header.as_old();
        let (mut user, mut group) = (number(header.uid(), &old.uid)?, number(header.gid(), &old.gid)?);
        let mode = number(header.mode(), &old.mode)? & 0o7777;
        let mut changed = (i64::try_from(number(header.mtime(), &old.mtime)?).unwrap_or(i64::MAX), 0);
        let mut attached = Vec::new();
        for (key, value) in &entry.notes.0 {
            let text = || std::str::from_utf8(value).ok();
            match key.as_slice() {
                b"uid" => user = text().and_then(|id| id.parse().ok()).unwrap_or(user),
                b"gid" => group = text().and_then(|id| id.parse().ok()).unwrap_or(group),
                b"mtime" => changed = text().and_then(moment).unwrap_or(changed),
                key => {
                    let name =
                        [b"SCHILY.xattr.".as_slice(), b"LIBARCHIVE.xattr."].iter().find_map(|p| key.strip_prefix(*p));
                    if let Some(name) = name.filter(|name| is_kept(name))
                        && let Ok(name) = CString::new(name)
                    {
                        attached.push((name, value.clone()));
                    }
                }
            }
        }
        let id = |id: u64| u32::try_from(id).ok().filter(|id| *id < IDS);
        let (Some(user), Some(group)) = (id(user), id(group)) else {
            let (path, most) = (shown(&entry.path), IDS - 1);
            return Err(Failure::Unfit(format!("{path} belongs to {user}:{group}, and ids go up to {most} here")));
        };
        // A moment that no filesystem can keep is the last one that every filesystem can.
        let moment = Timespec { tv_sec: changed.0.clamp(0, i64::from(u32::MAX >> 1)), tv_nsec: changed.1 };
        let changed = Timestamps { last_access: moment, last_modification: moment };
        Ok(Attributes { owner: (user, group), mode, changed, attached })
    }

    /// How long all is that is attached, with its names.
    pub(super) fn bytes(&self) -> u64 {
        self.attached.iter().map(|(name, value)| (name.count_bytes() + value.len()) as u64).sum()
    }

    /// Gives them to something that is open. The bits for becoming somebody else come after the owner, and what the kernel
    /// lets programs gain after that: each change takes the next one away.
    pub(super) fn give(&self, file: impl AsFd) -> Result<(), Failure> {
        fchown(&file, Some(Uid::from_raw(self.owner.0)), Some(Gid::from_raw(self.owner.1)))?;
        fchmod(&file, Mode::from_raw_mode(self.mode))?;
        for (name, value) in &self.attached {
            fsetxattr(&file, name.as_c_str(), value, XattrFlags::empty()).map_err(|error| self.unattached(error))?;
        }
        Ok(futimens(&file, &self.changed)?)
    }

    /// Why something could not be attached: a filesystem that has room, but not for so much at one file, says the same as a full one.
    fn unattached(&self, error: Errno) -> Failure {
        match error {
            Errno::TOOBIG | Errno::RANGE => {}
            Errno::NOSPC | Errno::DQUOT if self.bytes() > ALWAYS_FITS => {}
            other => return other.into(),
        }
        let bytes = self.bytes();
        Failure::Unfit(format!(
            "{bytes} bytes are attached to a file in it, more than the disk of this machine can keep there"
        ))
    }

    /// Gives them to what cannot be opened, as far as it can have them.
    pub(super) fn give_at(&self, place: &Place, with_mode: bool) -> Result<(), Failure> {
        let (user, group) = (Uid::from_raw(self.owner.0), Gid::from_raw(self.owner.1));
        chownat(&place.parent, &place.name, Some(user), Some(group), AtFlags::SYMLINK_NOFOLLOW)?;
        if with_mode {
            rustix::fs::chmodat(&place.parent, &place.name, Mode::from_raw_mode(self.mode), AtFlags::empty())?;
        }
        Ok(utimensat(&place.parent, &place.name, &self.changed, AtFlags::SYMLINK_NOFOLLOW)?)
    }
}

/// A number in a header; one that nobody has written is 0.
fn number<N: Default>(read: io::Result<N>, field: &[u8]) -> Result<N, Failure> {
    let is_blank = field.iter().all(|byte| matches!(byte, 0 | b' '));
    read.or_else(|error| if is_blank { Ok(N::default()) } else { Err(broken(error)) })
}

/// A moment as PAX writes it: seconds since 1970 with a fraction.
fn moment(text: &str) -> Option<(i64, i64)> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let digits: String = fraction.chars().chain(std::iter::repeat('0')).take(9).collect();
    Some((whole.parse().ok()?, digits.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_have_fractions() {
        assert_eq!(moment("12"), Some((12, 0)));
        assert_eq!(moment("12.5"), Some((12, 500_000_000)));
        assert_eq!(moment("12.0000000019"), Some((12, 1)));
        assert_eq!(moment("x"), None);
    }

    #[test]
    fn what_an_overlay_takes_for_its_own_is_not_attached() {
        assert!(is_kept(b"security.capability") && is_kept(b"user.note"));
        for name in ["trusted.overlay.opaque", "user.overlay.opaque", "security.selinux", "system.posix_acl_access"] {
            assert!(!is_kept(name.as_bytes()), "{name}");
        }
    }
}

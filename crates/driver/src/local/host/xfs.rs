//! The filesystem of a volume's device, for whoever has to do with it without a place to mount it at.
#![allow(unsafe_code, reason = "requests to XFS have no safe wrapper")]

use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::{Dir, Mode, OFlags, openat};
use rustix::io::Errno;
use rustix::ioctl::{Getter, Setter, ioctl, opcode};
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsconfig_set_flag, fsconfig_set_string, fsmount, fsopen,
};

/// The last piece of a filesystem is left out if it is shorter than so many blocks, because nothing useful fits in.
const MIN_GROUP_BLOCKS: u64 = 64;

/// Mounts the filesystem of a device nowhere: it can be used through the descriptor, and is unmounted with its end.
pub(in crate::local) fn mount_detached(device: &Path) -> io::Result<OwnedFd> {
    mount_with_options(device, &[])
}

/// Mounts, likewise nowhere, a filesystem that is a copy: it has the id of the one that it was copied from, and of every other copy.
/// What is removed there is given back to the disk of the machine.
pub(in crate::local) fn mount_copy_detached(device: &Path) -> io::Result<OwnedFd> {
    mount_with_options(device, &["nouuid", "discard"])
}

fn mount_with_options(device: &Path, options: &[&str]) -> io::Result<OwnedFd> {
    let context = fsopen("xfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_set_string(&context, "source", device)?;
    for option in options {
        fsconfig_set_flag(&context, *option)?;
    }
    fsconfig_create(&context)?;
    let attributes = MountAttrFlags::MOUNT_ATTR_NODEV | MountAttrFlags::MOUNT_ATTR_NOSUID;
    let mount = fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, attributes)?;
    // One that is in use already and has failed since says so only to whoever reads.
    for entry in Dir::new(open_root(&mount)?)?.take(1) {
        entry?;
    }
    Ok(mount)
}

/// Whether the kernel found the filesystem damaged.
pub(in crate::local) fn is_damage(error: &io::Error) -> bool {
    // `EUCLEAN` is a broken structure, `EBADMSG` a wrong checksum.
    matches!(error.raw_os_error(), Some(libc::EUCLEAN | libc::EBADMSG))
}

/// Whether reading or writing failed: the disk below may be full, or the kernel has given a damaged filesystem up.
pub(in crate::local) fn is_io_failure(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::EIO)
}

/// Grows the filesystem of a device to the size of the device, also while it is in use elsewhere. Says how many bytes it has
/// then.
pub(in crate::local) fn grow_to_device(device: &Path) -> io::Result<u64> {
    let bytes = File::open(device)?.seek(SeekFrom::End(0))?;
    let mount = mount_detached(device)?;
    let root = open_root(&mount)?;
    let before = read_geometry(&root)?;
    let wanted = bytes / u64::from(before.block_bytes.max(1));
    if before.blocks < wanted {
        let order = Growth { blocks: wanted, inode_percent: before.inode_percent, _padding: 0 };
        // SAFETY: the request reads a structure of this form (`struct xfs_growfs_data`) and writes nothing to this process.
        unsafe { ioctl(&root, Setter::<GROW, Growth>::new(order)) }?;
    }
    let after = read_geometry(&root)?;
    if after.blocks + MIN_GROUP_BLOCKS <= wanted {
        return Err(io::Error::other("the filesystem has not grown"));
    }
    Ok(after.blocks * u64::from(after.block_bytes))
}

/// A mount that is nowhere is only a handle; reading and requests need an open directory. Looking at it leaves no trace.
fn open_root(mount: &OwnedFd) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOATIME | OFlags::CLOEXEC;
    openat(mount, ".", flags, Mode::empty())
}

/// `XFS_IOC_FSGEOMETRY_V1`
const GEOMETRY: rustix::ioctl::Opcode = opcode::read::<Geometry>(b'X', 100);

/// `XFS_IOC_FSGROWFSDATA`
const GROW: rustix::ioctl::Opcode = opcode::write::<Growth>(b'X', 110);

/// `struct xfs_fsop_geom_v1`, of which only the named fields are of interest.
#[repr(C)]
struct Geometry {
    block_bytes: u32,
    _before: [u32; 6],
    inode_percent: u32,
    blocks: u64,
    _after: [u64; 9],
}

/// `struct xfs_growfs_data`
#[repr(C)]
struct Growth {
    blocks: u64,
    inode_percent: u32,
    _padding: u32,
}

fn read_geometry(root: impl AsFd) -> Result<Geometry, Errno> {
    // SAFETY: the request writes a structure of this form and size (`struct xfs_fsop_geom_v1`), which is made of numbers only.
    unsafe { ioctl(root, Getter::<GEOMETRY, Geometry>::new()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_structures_have_the_size_that_the_kernel_has_for_them() {
        assert_eq!((size_of::<Geometry>(), size_of::<Growth>()), (112, 16));
    }

    #[test]
    fn what_is_damage_and_what_is_not() {
        for (code, damage, failure) in [
            (libc::EUCLEAN, true, false),
            (libc::EBADMSG, true, false),
            (libc::EIO, false, true),
            (libc::EBUSY, false, false),
            (libc::ENOSPC, false, false),
        ] {
            let error = io::Error::from_raw_os_error(code);
            assert_eq!((is_damage(&error), is_io_failure(&error)), (damage, failure), "{code}");
        }
    }
}

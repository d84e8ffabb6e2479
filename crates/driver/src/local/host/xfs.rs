//! XFS on a device, mounted and grown without a mount point.
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

/// XFS leaves out the last allocation group if it is shorter than so many blocks.
const MIN_GROUP_BLOCKS: u64 = 64;

/// Mounts the filesystem of a device without a mount point: it is used through the descriptor and unmounted when that
/// is closed.
pub(in crate::local) fn mount_detached(device: &Path) -> io::Result<OwnedFd> {
    mount_with_options(device, &[])
}

/// Mounts, also without a mount point, a copied filesystem: it has the same UUID as its source and all other copies.
/// Blocks that are freed in it are returned to the host's disk.
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
    // A filesystem that is already in use and has failed since reports that only on a read.
    for entry in Dir::new(open_root(&mount)?)?.take(1) {
        entry?;
    }
    Ok(mount)
}

/// Returns whether the kernel found the filesystem damaged.
pub(in crate::local) fn is_damage(error: &io::Error) -> bool {
    // `EUCLEAN` is a broken structure, `EBADMSG` a wrong checksum.
    matches!(error.raw_os_error(), Some(libc::EUCLEAN | libc::EBADMSG))
}

/// Returns whether reading or writing failed: the underlying disk may be full, or the kernel has shut down a damaged
/// filesystem.
pub(in crate::local) fn is_io_failure(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::EIO)
}

/// Grows the filesystem of a device to the size of the device, also while it is in use elsewhere. Returns its size in
/// bytes.
pub(in crate::local) fn grow_to_device(device: &Path) -> io::Result<u64> {
    let bytes = File::open(device)?.seek(SeekFrom::End(0))?;
    let mount = mount_detached(device)?;
    let root = open_root(&mount)?;
    let before = read_geometry(&root)?;
    let wanted = bytes / u64::from(before.block_bytes.max(1));
    if before.blocks < wanted {
        let order = Growth { blocks: wanted, inode_percent: before.inode_percent, _padding: 0 };
        // SAFETY: the request reads a structure of this form (`struct xfs_growfs_data`) and writes no memory.
        unsafe { ioctl(&root, Setter::<GROW, Growth>::new(order)) }?;
    }
    let after = read_geometry(&root)?;
    if after.blocks + MIN_GROUP_BLOCKS <= wanted {
        return Err(io::Error::other("the filesystem has not grown"));
    }
    Ok(after.blocks * u64::from(after.block_bytes))
}

/// Opens the root directory: the descriptor of a detached mount is only a handle, while reads and requests need an open
/// directory. `NOATIME` leaves the filesystem unchanged.
fn open_root(mount: &OwnedFd) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOATIME | OFlags::CLOEXEC;
    openat(mount, ".", flags, Mode::empty())
}

/// `XFS_IOC_FSGEOMETRY_V1`
const GEOMETRY: rustix::ioctl::Opcode = opcode::read::<Geometry>(b'X', 100);

/// `XFS_IOC_FSGROWFSDATA`
const GROW: rustix::ioctl::Opcode = opcode::write::<Growth>(b'X', 110);

/// `struct xfs_fsop_geom_v1`; only the named fields are used.
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
    // SAFETY: the request writes a structure of this form and size (`struct xfs_fsop_geom_v1`), made of numbers only.
    unsafe { ioctl(root, Getter::<GEOMETRY, Geometry>::new()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The structures have the sizes that the kernel expects.
    #[test]
    fn structures_have_kernel_sizes() {
        assert_eq!((size_of::<Geometry>(), size_of::<Growth>()), (112, 16));
    }

    /// The error code tells damage from a failed read or write.
    #[test]
    fn error_codes_tell_damage_from_failure() {
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

//! The four requests to loop devices, which have no safe wrapper in the libraries. Each is a function that is safe to
//! call with any open file.
#![allow(unsafe_code, reason = "requests to loop devices have no safe wrapper")]

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use linux_raw_sys::loop_device::{
    LOOP_CONFIGURE, LOOP_CTL_GET_FREE, LOOP_GET_STATUS64, LOOP_SET_CAPACITY, loop_config, loop_info64,
};

/// The device detaches its file when its last user closes it.
const AUTOCLEAR: u32 = 4;

/// Returns the number of a device without a file, which is created if there is none. Another process may take it first.
pub(super) fn next_free_number(control: impl AsFd) -> io::Result<u32> {
    // SAFETY: the request takes no argument and touches no memory of this process.
    let status = unsafe { libc::ioctl(control.as_fd().as_raw_fd(), LOOP_CTL_GET_FREE.into()) };
    u32::try_from(status).map_err(|_| io::Error::last_os_error())
}

/// Attaches a file to a device without one, both opened for writing. It stays attached until the last user closes the
/// device.
pub(super) fn attach_file(device: impl AsFd, file: impl AsFd) -> io::Result<()> {
    // SAFETY: the structure is made of plain numbers, for which zero is a value.
    let mut configuration: loop_config = unsafe { std::mem::zeroed() };
    configuration.fd = file.as_fd().as_raw_fd().unsigned_abs();
    // Direct I/O would bypass the page cache and double the time of small reads and writes.
    configuration.info.lo_flags = AUTOCLEAR;
    // SAFETY: the request reads such a structure, which lives until it is done.
    let status = unsafe { libc::ioctl(device.as_fd().as_raw_fd(), LOOP_CONFIGURE.into(), &raw const configuration) };
    check_status(status)
}

/// The device and the inode of the file that is attached to a loop device.
pub(super) fn backing_file(device: impl AsFd) -> io::Result<(u64, u64)> {
    // SAFETY: the structure is made of plain numbers, for which zero is a value.
    let mut info: loop_info64 = unsafe { std::mem::zeroed() };
    // SAFETY: the request writes such a structure, which lives until it is done and is not shared.
    check_status(unsafe { libc::ioctl(device.as_fd().as_raw_fd(), LOOP_GET_STATUS64.into(), &raw mut info) })?;
    Ok((info.lo_device, info.lo_inode))
}

/// Tells a device that the size of its file has changed.
pub(super) fn refresh_size(device: impl AsFd) -> io::Result<()> {
    // SAFETY: the request takes no argument and touches no memory of this process.
    check_status(unsafe { libc::ioctl(device.as_fd().as_raw_fd(), LOOP_SET_CAPACITY.into()) })
}

fn check_status(status: i32) -> io::Result<()> {
    if status < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

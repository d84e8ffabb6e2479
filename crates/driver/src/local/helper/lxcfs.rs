//! Shows an instance its own share of the host in files that otherwise show the whole host: `/proc/meminfo` and others.
//! lxcfs, a filesystem of the host whose program answers by the control groups of the process that reads, has these
//! files; each is mounted over the instance's own.
//!
//! That program may hang, and then a process that waits for it cannot always be killed. So all that asks it is done
//! first, and by a process that nothing waits for without a limit.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use libcontainer::syscall::linux::{MOUNT_ATTR_NODEV, MOUNT_ATTR_NOEXEC, MOUNT_ATTR_NOSUID, MOUNT_ATTR_RDONLY};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{CWD, FsWord, Mode, OFlags, PROC_SUPER_MAGIC, ResolveFlags, fstatfs, openat, openat2};
use rustix::io::Errno;
use rustix::mount::{MoveMountFlags, OpenTreeFlags, UnmountFlags, move_mount, open_tree, unmount};
use rustix::process::{Pid, PidfdFlags, Signal, WaitOptions, kill_process, pidfd_open, waitpid};

use super::order::ShowLxcfs;
use super::volumes::mount_points::MountNamespace;
use super::{kernel, mount_calls};
use crate::local::host::mount_tables::{self, Mount};

/// The files, in the directory of lxcfs and in an instance. The last one is there when all are.
pub(in crate::local) const FILES: [&str; 7] =
    ["sys/devices/system/cpu/online", "proc/cpuinfo", "proc/loadavg", "proc/stat", "proc/swaps", "proc/uptime", LAST];
pub(in crate::local) const LAST: &str = "proc/meminfo";

/// The type of the filesystem in mount tables.
pub(in crate::local) const KIND: &[u8] = b"fuse.lxcfs";

/// How long a start of an instance waits for lxcfs. Without an answer the instance starts without its files.
const START_TIMEOUT: Duration = Duration::from_secs(2);

/// The longest content that is read; `stat` has some kilobytes for each CPU.
const MAX_CONTENT: u64 = 4 << 20;

/// Type of the filesystem of `/sys`, which has no name in rustix.
const SYSFS_MAGIC: FsWord = 0x6265_6572;

/// Reads all files, to try whether lxcfs answers.
pub(super) fn read_files(directory: &Path) -> io::Result<()> {
    for file in FILES {
        match File::open(directory.join(file)) {
            Ok(opened) => io::copy(&mut opened.take(MAX_CONTENT), &mut io::sink()).map(drop)?,
            // Older versions do not have all of them.
            Err(error) if error.kind() == io::ErrorKind::NotFound && file != LAST => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Shows the files in an instance, or those of another lxcfs than before, or none. An instance that has ended needs
/// none.
pub(super) fn show_files(order: &ShowLxcfs) -> io::Result<()> {
    let trees = match &order.lxcfs {
        Some(lxcfs) => open_files(&lxcfs.directory)?,
        None => Vec::new(),
    };
    let Some(inside) = MountNamespace::of_process(&order.process)? else { return Ok(()) };
    let Some(before) = mount_tables::mounts_of(&order.process)? else { return Ok(()) };
    let wanted = order.lxcfs.as_ref().map(|lxcfs| lxcfs.device);
    inside.enter_mount_namespace()?;
    for file in FILES {
        let shown = shown_devices(&before, file);
        // An earlier one may have been mounted over by a later one.
        if shown != wanted.into_iter().collect::<Vec<_>>() {
            for _ in shown {
                unmount(Path::new("/").join(file), UnmountFlags::DETACH | UnmountFlags::NOFOLLOW)?;
            }
        }
    }
    let root = openat(CWD, "/", OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    for (file, tree) in trees {
        if shown_devices(&before, file) != wanted.into_iter().collect::<Vec<_>>() {
            place_file(&root, file, &tree)?;
        }
    }
    Ok(())
}

/// The devices of lxcfs that are mounted over a file of an instance.
pub(in crate::local) fn shown_devices(mounts: &[Mount], file: &str) -> Vec<u64> {
    let path = Path::new("/").join(file);
    mounts.iter().filter(|mount| mount.kind == KIND && mount.path == path).map(|mount| mount.device).collect()
}

/// Opens a mount of each file.
fn open_files(directory: &Path) -> io::Result<Vec<(&'static str, OwnedFd)>> {
    read_files(directory)?;
    let mut trees = Vec::new();
    for file in FILES {
        let path: PathBuf = directory.join(file);
        let tree = match open_tree(CWD, &path, OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC) {
            Err(Errno::NOENT) => continue,
            tree => tree?,
        };
        let attributes = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC;
        mount_calls::set_mount_attributes(&tree, attributes, None)?;
        trees.push((file, tree));
    }
    Ok(trees)
}

/// Moves a mount over the kernel's own file, and over nothing else. What is missing there stays missing.
fn place_file(root: &OwnedFd, file: &str, tree: &OwnedFd) -> io::Result<()> {
    let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::BENEATH;
    let target = match openat2(root, file, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty(), resolve) {
        Err(Errno::NOENT) => return Ok(()),
        target => target?,
    };
    let kind = fstatfs(&target)?.f_type;
    if kind != PROC_SUPER_MAGIC && kind != SYSFS_MAGIC {
        return Err(io::Error::other(format!("/{file} is not a file of the kernel")));
    }
    let both = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    Ok(move_mount(tree, "", &target, "", both)?)
}

/// Shows the files in an instance that is being started. This is done in a forked process, for which nothing waits
/// longer than [`START_TIMEOUT`].
pub(super) fn show_files_in_time(order: &ShowLxcfs) -> io::Result<()> {
    let child = kernel::fork(|| {
        // If this process cannot be killed, at least it keeps nothing of the instance open.
        let shown = kernel::close_inherited().and_then(|()| show_files(order));
        i32::from(shown.is_err())
    })?;
    let Some(child) = i32::try_from(child).ok().and_then(Pid::from_raw) else {
        return Err(io::Error::other("the process has no id"));
    };
    let ended = pidfd_open(child, PidfdFlags::empty())?;
    let timeout = Timespec { tv_sec: START_TIMEOUT.as_secs() as i64, tv_nsec: 0 };
    if poll(&mut [PollFd::new(&ended, PollFlags::IN)], Some(&timeout))? == 0 {
        kill_process(child, Signal::KILL)?;
        return Err(io::Error::from(io::ErrorKind::TimedOut));
    }
    match waitpid(Some(child), WaitOptions::empty())? {
        Some((_, status)) if status.exit_status() == Some(0) => Ok(()),
        _ => Err(io::Error::other("lxcfs cannot be shown")),
    }
}
